import assert from 'node:assert/strict';
import { test } from 'node:test';

import { visibleBoxes, visibleSteps } from '../../trace_analyzer/render/html/assets/painter.js';
import { search } from '../../trace_analyzer/render/html/assets/store.js';
import { randomRow, storeOf } from './assets.mjs';

const placed = (store) => store.rows.map((row, i) => ({ ...row, top: i * 10, bottom: i * 10 + 9 }));

test('every event is inside a box, boxes are disjoint, and wide events have their own', () => {
  const store = storeOf([{ rows: [randomRow(3, 2000)] }]);
  for (const quantum of [1, 7, 50, 1000]) {
    const boxes = visibleBoxes(store, placed(store), 0, store.end + 1, quantum, 1e9);
    for (let i = 1; i < boxes.left.length; i++) assert.ok(boxes.left[i] >= boxes.right[i - 1]);
    let box = 0;
    for (let i = 0; i < store.start.length; i++) {
      while (boxes.right[box] < store.start[i] + store.duration[i]) box += 1;
      assert.ok(boxes.left[box] <= store.start[i], `event ${i} at quantum ${quantum}`);
      if (store.duration[i] >= quantum && store.duration[i]) assert.ok(boxes.event.includes(i));
    }
  }
});

test('the number of boxes stays within the budget', () => {
  const store = storeOf([{ rows: [randomRow(4, 5000)] }]);
  assert.ok(visibleBoxes(store, placed(store), 0, store.end, 1, 100).left.length <= 100);
});

test('boxes are clipped to the view', () => {
  const store = storeOf([{ rows: [[[0, 1000, 'long', 'k'], [1000, 5, 'short', 'k']]] }]);
  const boxes = visibleBoxes(store, placed(store), 300, 400, 1, 10);
  assert.deepEqual([boxes.left, boxes.right, boxes.event].map((column) => [...column]), [[300], [400], [0]]);
});

test('a run of short events takes the kind with most time and the busy share as opacity', () => {
  const store = storeOf([{ rows: [[[0, 30, 'a', 'big'], [30, 10, 'b', 'small'], [40, 10, 'c', 'small']]] }]);
  const boxes = visibleBoxes(store, placed(store), 0, 100, 100, 10);
  assert.equal(store.kind_values[boxes.kind[0]], 'big');
  assert.equal(boxes.alpha[0], 0.5);
  assert.equal(boxes.event[0], -1);
});

test('a run that hides a match is marked as one', () => {
  const store = storeOf([{ rows: [[[0, 1, 'a', 'k'], [1, 1, 'b', 'k'], [500, 1, 'a', 'k']]] }]);
  search(store, 'b');
  assert.deepEqual([...visibleBoxes(store, placed(store), 0, 1000, 50, 10).hit], [1, 0]);
});

test('runs that look the same and touch are one box; a gap, another kind or another share part them', () => {
  const steady = Array.from({ length: 40 }, (_, i) => [10 * i, 8, 'a', 'k']);
  const columns = (row, ...view) => {
    const boxes = visibleBoxes(storeOf([{ rows: [row] }]), [{ first: 0, last: row.length, top: 0, bottom: 9 }], ...view, 100);
    return [[...boxes.left], [...boxes.right], [...boxes.alpha]];
  };
  assert.deepEqual(columns(steady, 0, 400, 20), [[0], [400], [0.75]]);
  const parted = [...steady.slice(0, 10), ...steady.slice(20)];
  assert.deepEqual(columns(parted, 0, 400, 20)[0], [0, 200]);
  const mixed = steady.map(([at, length, name, kind], i) => [at, i < 20 ? length : 3, name, i < 10 ? 'other' : kind]);
  assert.deepEqual(columns(mixed, 0, 400, 20)[0], [0, 100, 200]);
});

test('steps keep the highest value of each pixel and the value that remains', () => {
  const queue = { time: [0, 10, 11, 12, 50], value: [1, 2, 9, 3, 0] };
  assert.deepEqual(visibleSteps(queue, 5, 100, 5), { x: [5, 10, 15, 50, 100], y: [1, 9, 3, 0, 0] });
  assert.deepEqual(visibleSteps({ time: [], value: [] }, 0, 10, 1), { x: [0, 10], y: [0, 0] });
});

test('on a row of idle time a run of short events is as high as its share of the time', () => {
  const row = Array.from({ length: 40 }, (_, i) => [100 * i, 25, 'python', 'idle-python']);
  const store = storeOf([{ family: 'idle', rows: [row] }]);
  const place = { first: 0, last: row.length, top: 0, bottom: 16, family: 'idle' };
  const boxes = visibleBoxes(store, [place], 0, 4000, 800, 100);
  assert.ok([...boxes.top].every((top) => top === 12), 'a quarter of the time, a quarter of the height');
  assert.deepEqual([...visibleBoxes(store, [place], 0, 200, 1, 100).top], [0, 0]);
  const rare = storeOf([{ family: 'idle', rows: [[[0, 1, 'python', 'idle-python']]] }]);
  assert.deepEqual([...visibleBoxes(rare, [{ ...place, last: 1 }], 0, 1e6, 1000, 100).top], [15]);
});
