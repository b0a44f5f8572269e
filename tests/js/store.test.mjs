import assert from 'node:assert/strict';
import { test } from 'node:test';

import { eventAt, eventOf, firstEndingAfter, followers, kindTimes, linked, lowerBound, neighbourMatch, rowOf, search, stackOf } from '../../trace_analyzer/render/html/assets/store.js';
import { randomNumbers, randomRow, storeOf } from './assets.mjs';

test('starts are rebuilt row by row', () => {
  const store = storeOf([{ rows: [[[5, 3, 'a', 'k'], [8, 0, 'b', 'k']], [[6, 1, 'c', 'k']]] }]);
  assert.deepEqual([...store.start], [5, 8, 6]);
  assert.equal(rowOf(store, 2).depth, 1);
});

test('lowerBound finds the first that is not less', () => {
  const sorted = [1, 3, 3, 7];
  assert.deepEqual([0, 1, 2, 3, 8].map((value) => lowerBound(sorted, value, 0, 4)), [0, 0, 1, 1, 4]);
});

test('kindTimes equals the plain sum for any range', () => {
  const store = storeOf([{ rows: [randomRow(1, 1000)] }]);
  const random = randomNumbers(2);
  for (let round = 0; round < 200; round++) {
    const [from, to] = [random(1001), random(1001)].sort((a, b) => a - b);
    const naive = new Float64Array(store.kind_values.length);
    for (let i = from; i < to; i++) naive[store.kind[i]] += store.duration[i];
    assert.deepEqual([...kindTimes(store, from, to, new Float64Array(naive.length))], [...naive]);
  }
});

test('the event under a time is the one that holds it, else a near one', () => {
  const store = storeOf([{ rows: [[[10, 10, 'a', 'k'], [40, 10, 'b', 'k']]] }]);
  const [row] = store.rows;
  assert.equal(eventAt(store, row, 15, 0), 0);
  assert.equal(eventAt(store, row, 38, 3), 1);
  assert.equal(eventAt(store, row, 30, 3), -1);
  assert.equal(firstEndingAfter(store, row, 20), 1);
  assert.equal(firstEndingAfter(store, row, 19), 0);
});

test('a place is the event that lasts just as long, a kernel before what surrounds it', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[0, 0, 'marker', 'k'], [0, 4, 'kernel', 'k']]] },
    { family: 'operators', rows: [[[0, 9, 'op', 'o'], [20, 5, 'op', 'o']], [[0, 4, 'inner', 'o']]] },
  ]);
  assert.deepEqual([[0, 9], [20, 25], [0, 4], [0, 5], [30, 31]].map(([start, end]) => eventOf(store, start, end)), [2, 3, 1, -1, -1]);
});

test('search counts events, not names, and ignores case', () => {
  const store = storeOf([{ rows: [[[0, 1, 'aten::MM', 'k'], [1, 1, 'aten::mm', 'k'], [2, 1, 'relu', 'k']]] }]);
  assert.equal(search(store, 'Mm'), 2);
  assert.equal(search(store, 'nothing'), 0);
  assert.equal(search(store, ''), 0);
  assert.equal(store.matches, null);
});

test('next and previous go through the matches in time, across rows and around the ends', () => {
  const store = storeOf([{ rows: [[[0, 1, 'x', 'k'], [20, 1, 'x', 'k']], [[10, 1, 'x', 'k']]] }]);
  search(store, 'x');
  const walk = (event, direction) => neighbourMatch(store, event, direction);
  assert.deepEqual(walk(-1, 1), { event: 0, place: 1, count: 3 });
  assert.deepEqual(walk(0, 1), { event: 2, place: 2, count: 3 });
  assert.deepEqual(walk(1, 1), { event: 0, place: 1, count: 3 });
  assert.deepEqual(walk(0, -1), { event: 1, place: 3, count: 3 });
});

test('links lead both ways, but nothing leads back from idle time', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[5, 1, 'k1', 'k', 3], [7, 1, 'k2', 'k', 3]]] },
    { family: 'idle', rows: [[[6, 1, 'python', 'idle-python', 3]]] },
    { family: 'calls', rows: [[[0, 3, 'graph', 'r']]] },
  ], { activities: 2 });
  assert.deepEqual([...followers(store, 3)], [0, 1]);
  assert.deepEqual(linked(store, 0).source, 3);
  assert.equal(linked(store, 2).source, -1);
});

test('a stack is what was open on the thread, for a kernel around its launch', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[90, 10, 'gemm', 'k', 5]]] },
    { family: 'operators', rows: [[[0, 50, 'linear', 'o']], [[5, 30, 'mm', 'o']], [[40, 5, 'later', 'o']]] },
    { family: 'python', thread: 0, rows: [[[0, 60, 'train.py(1): step', 'p']]] },
    { family: 'calls', rows: [[[10, 4, 'launch', 'r']]] },
    { family: 'operators', thread: 1, rows: [[[0, 100, 'another thread', 'o']]] },
  ], { activities: 1 });
  const names = (event) => stackOf(store, event).map((open) => store.name_values[store.name[open]]);
  assert.deepEqual(names(5), ['train.py(1): step', 'linear', 'mm']);
  assert.deepEqual(names(0), ['train.py(1): step', 'linear', 'mm', 'launch']);
  assert.deepEqual(names(6), []);
});

test('a filter keeps one bucket, one kind or one cause, and search looks inside it', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[0, 1, 'gemm a', 'matmul', -1, 1], [1, 1, 'relu a', 'pointwise', -1, 2], [2, 1, 'gemm b', 'matmul', -1, 1]]] },
    { family: 'idle', rows: [[[3, 1, 'python', 'idle-python']]] },
  ], { activities: 3, details: [{ bucket: 'matmul' }, { bucket: 'activation' }] });
  assert.equal(search(store, '', { column: 'bucket', value: 'matmul' }), 2);
  assert.equal(search(store, 'B', { column: 'bucket', value: 'matmul' }), 1);
  assert.equal(search(store, '', { column: 'kind', value: 'idle-python' }), 1);
  assert.equal(search(store, '', null), 0);
});
