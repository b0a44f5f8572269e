import assert from 'node:assert/strict';
import { test } from 'node:test';

import { queueCurves } from '../../trace_analyzer/render/html/assets/queue.js';
import { storeOf } from './assets.mjs';

test('depth and runway step up where a launch ends and down where its activity starts', () => {
  const store = storeOf([
    { group: 'GPU 0 · H100', family: 'stream', rows: [[[10, 20, 'a', 'k', 3], [40, 5, 'b', 'k', 4], [50, 5, 'early', 'k', 5]]] },
    { family: 'calls', rows: [[[0, 5, 'launch', 'r'], [20, 5, 'launch', 'r'], [48, 9, 'blocking copy', 'r']]] },
  ], { activities: 3 });
  const [queue, runway] = queueCurves(store);
  assert.deepEqual([queue.kind, queue.place, runway.kind], ['queue', 'GPU 0', 'runway']);
  assert.deepEqual([...queue.time], [5, 10, 25, 40]);
  assert.deepEqual([...queue.value], [1, 0, 1, 0]);
  assert.deepEqual([...runway.value], [20, 0, 5, 0]);
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
