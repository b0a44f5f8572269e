import assert from 'node:assert/strict';
import test from 'node:test';
import { lanesOf, rowsOf } from '../../trace_analyzer/render/html/assets/ranks.js';

test('every rank has a row, and no rank has two', () => {
  for (const [ranks, height] of [[8, 360], [1000, 560], [10_000, 560], [561, 560]]) {
    const rows = rowsOf(ranks, height);
    assert.equal(rows[0][0], 0);
    assert.equal(rows.at(-1)[1], ranks);
    rows.slice(1).forEach(([first], place) => assert.equal(first, rows[place][1]));
    assert.ok(rows.length <= height);
  }
});

test('lanes hold the chosen rank, late ones and neighbours, in order', () => {
  assert.deepEqual(lanesOf(50, [7, 90], 100, 6), [7, 48, 49, 50, 51, 90]);
  assert.deepEqual(lanesOf(0, [], 3, 48), [0, 1, 2]);
  assert.equal(lanesOf(5, Array.from({ length: 500 }, (_, n) => n), 1000, 48).length, 48);
});
