import assert from 'node:assert/strict';
import { test } from 'node:test';

import { describe, pathStory } from '../../trace_analyzer/render/html/assets/describe.js';
import { layOut } from '../../trace_analyzer/render/html/assets/layout.js';
import { drawPath, pathPieces } from '../../trace_analyzer/render/html/assets/overlays.js';
import { followers, pathRow, search } from '../../trace_analyzer/render/html/assets/store.js';
import { storeOf } from './assets.mjs';

// A kernel after a call; the path goes over both, with a wait between.
const small = () => storeOf([
  { family: 'stream', group: 'GPU 0', rows: [[[50, 40, 'mm', 'matmul', 1]]] },
  { family: 'calls', rows: [[[0, 30, 'launch', 'runtime']]] },
  { family: 'path', group: 'GPU 0', rows: [[[0, 30, 'dispatch', 'path-dispatch', 1, 1], [30, 20, 'launch-latency', 'path-launch-latency'], [50, 40, 'matmul', 'matmul', 0]]] },
], { activities: 1, details: [{ operator: 'aten::mm', module: 'Net/Linear_0', python_function: 'step (train.py:3)', edge: 'thread' }] });

test('wide stretches are pieces of their own, at the events that they belong to', () => {
  const store = small();
  assert.deepEqual(pathPieces(store, pathRow(store), 10, 200, 1), [
    { from: 10, to: 30, event: 1 }, { from: 30, to: 50, event: -1 }, { from: 50, to: 90, event: 0 },
  ]);
});

test('narrow stretches are one piece, where the longest of them belongs', () => {
  const store = small();
  assert.deepEqual(pathPieces(store, pathRow(store), 0, 90, 1000), [{ from: 0, to: 90, event: 0 }]);
});

test('a long path takes no more pieces than there is room for, and they leave no part of it out', () => {
  const count = 100_000;
  const random = ((state) => () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648)(1);
  const start = new Float64Array(count);
  const duration = Float64Array.from(start, () => 1 + Math.floor(random() ** 8 * 1000));
  for (let i = 1; i < count; i++) start[i] = start[i - 1] + duration[i - 1];
  const store = { start, duration, link: Int32Array.from(start, (_, i) => i) };
  const end = start[count - 1] + duration[count - 1];
  const pieces = pathPieces(store, { first: 0, last: count }, 0, end, end / 600);
  assert.ok(pieces.length <= 1201);
  assert.deepEqual([pieces[0].from, pieces.at(-1).to], [0, end]);
  for (let i = 1; i < pieces.length; i++) assert.equal(pieces[i].from, pieces[i - 1].to);
});

test('the line runs along the feet of rows and leaves out what is not shown', () => {
  const drawn = [];
  const ink = { beginPath() {}, stroke: () => drawn.push('stroke'), moveTo: (x, y) => drawn.push(['move', x, y]), lineTo: (x, y) => drawn.push(['line', x, y]) };
  const pieces = [{ from: 0, to: 10, event: 5 }, { from: 10, to: 20, event: 9 }, { from: 20, to: 30, event: -1 }, { from: 30, to: 40, event: 9 }];
  drawPath(ink, pieces, (event) => ({ 9: 50 })[event], (time) => time, { colour: 'red', halo: 'white' });
  const along = [10, 20, 30].flatMap((x) => [['move', x, 50], ['line', x + 10, 50]]);
  assert.deepEqual(drawn, [...along, 'stroke', 'stroke', ...along, 'stroke']);
});

test('where the path goes on in another row, a line leads there', () => {
  const drawn = [];
  const ink = { beginPath() {}, stroke() {}, moveTo: (x, y) => drawn.push([x, y]), lineTo: (x, y) => drawn.push([x, y]) };
  drawPath(ink, [{ from: 0, to: 10, event: 1 }, { from: 10, to: 20, event: 2 }], (event) => event * 30, (time) => time, { colour: 'red', halo: 'white' });
  assert.deepEqual(drawn.slice(4, 6), [[10, 30], [10, 60]]);
});

test('a stretch says what it is: cause, kind of dependency, operator, module, function', () => {
  const store = small();
  const { first } = pathRow(store);
  const facts = new Map(describe(store, { dispatch: 'dispatcher' }, first));
  assert.equal(facts.get('Bucket or cause'), 'dispatcher');
  assert.deepEqual(['Operator', 'Module', 'Function'].map((fact) => facts.get(fact)), ['aten::mm', 'Net/Linear_0', 'step (train.py:3)']);
  assert.ok(facts.get('What').includes('CPU'));
});

test('a stretch leads to what it belongs to and to its neighbours; other events have no such story', () => {
  const store = small();
  const { first } = pathRow(store);
  assert.deepEqual(pathStory(store, first).map(({ event }) => event), [1, first + 1]);
  assert.deepEqual(pathStory(store, first + 1).map(({ event }) => event), [undefined, first, first + 2]);
  assert.deepEqual(pathStory(store, 0), []);
});

test('the path is neither found by a search nor launched by a call', () => {
  const store = small();
  assert.equal(search(store, 'matmul'), 0);
  assert.equal(search(store, 'mm'), 1);
  assert.deepEqual([...followers(store, 1)], [0]);
});

test('a hidden track takes no room', () => {
  const store = small();
  const { track } = pathRow(store);
  const [all, hidden] = [layOut(store, new Set()), layOut(store, new Set(), { hidden: new Set([track]) })];
  assert.ok(hidden.height < all.height);
  assert.ok(hidden.rows.every((row) => row.track !== track));
});
