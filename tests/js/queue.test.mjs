import assert from 'node:assert/strict';
import { test } from 'node:test';

import { eventAtInstant, queueCurves, valueAt } from '../../trace_analyzer/render/html/assets/store.js';
import { storeOf } from './assets.mjs';

test('depth and queued work step up where a launch ends and down where its activity starts', () => {
  const store = storeOf([
    { group: 'GPU 0 · H100', family: 'stream', rows: [[[10, 20, 'a', 'k', 3], [40, 5, 'b', 'k', 4], [50, 5, 'early', 'k', 5]]] },
    { family: 'calls', rows: [[[0, 5, 'launch', 'r'], [20, 5, 'launch', 'r'], [48, 9, 'blocking copy', 'r']]] },
  ], { activities: 3 });
  const [queue, queuedWork] = queueCurves(store);
  assert.deepEqual([queue.kind, queue.place, queuedWork.kind], ['queue', 'GPU 0', 'queued_work']);
  assert.deepEqual([...queue.time], [5, 10, 25, 40]);
  assert.deepEqual([...queue.value], [1, 0, 1, 0]);
  assert.deepEqual([...queuedWork.value], [20, 0, 5, 0]);
});

test('changes at one time are one step, and each device has its own queue', () => {
  const store = storeOf([
    { group: 'GPU 0', family: 'stream', rows: [[[10, 20, 'a', 'k', 3], [30, 1, 'b', 'k', 3]]] },
    { group: 'GPU 1', family: 'stream', rows: [[[30, 7, 'c', 'k', 3]]] },
    { family: 'calls', thread: 1, rows: [[[4, 6, 'graph launch', 'r']]] },
  ], { activities: 3 });
  const curves = queueCurves(store).filter(({ kind }) => kind === 'queue').map(({ time, value }) => [[...time], [...value]]);
  assert.deepEqual(curves, [[[10, 30], [1, 0]], [[10, 30], [1, 0]]]);
});

test('without launches there is no queue', () => {
  assert.deepEqual(queueCurves(storeOf([{ group: 'GPU 0', family: 'stream', rows: [[[0, 1, 'a', 'k']]] }], { activities: 1 })), []);
});

test('an instant leads to what ran, and while nothing was queued to the idle time that followed', () => {
  const store = storeOf([
    { group: 'GPU 0 · H100', family: 'stream', rows: [[[10, 20, 'a', 'k', 3], [60, 5, 'b', 'k', 4], [65, 10, 'c', 'k', 5]]] },
    { family: 'calls', rows: [[[0, 5, 'launch', 'r'], [50, 5, 'launch', 'r'], [56, 2, 'launch', 'r']]] },
    { group: 'GPU 0 · H100', family: 'idle', rows: [[[30, 30, 'python', 'idle-python']]] },
  ], { activities: 3 });
  const [queue] = queueCurves(store);
  assert.deepEqual([0, 5, 9, 10, 57, 61, 65, 99].map((time) => valueAt(queue, time)), [0, 1, 1, 0, 1, 1, 0, 0]);
  const name = (time) => store.name_values[store.name[eventAtInstant(store, queue, time)]];
  assert.deepEqual([7, 20, 40, 57, 62, 70, 900].map(name), ['a', 'python', 'python', 'b', 'b', 'c', 'c']);
  assert.equal(eventAtInstant(store, undefined, 7), -1);
});
