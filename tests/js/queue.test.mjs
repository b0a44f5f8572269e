import assert from 'node:assert/strict';
import { test } from 'node:test';

import { eventAtInstant, valueAt } from '../../trace_analyzer/render/html/assets/store.js';
import { storeOf } from './assets.mjs';

test('an instant leads to what ran, and while nothing was queued to the idle time that followed', () => {
  const store = storeOf([
    { group: 'GPU 0 · H100', family: 'stream', rows: [[[10, 20, 'a', 'k'], [60, 5, 'b', 'k'], [65, 10, 'c', 'k']]] },
    { group: 'GPU 0 · H100', family: 'idle', rows: [[[30, 30, 'python', 'idle-python']]] },
  ], { activities: 3, curves: [['queue', 'GPU 0', [[5, 1], [10, 0], [55, 1], [58, 2], [60, 1], [65, 0]]]] });
  const [queue] = store.curves;
  assert.deepEqual([0, 5, 9, 10, 57, 61, 65, 99].map((time) => valueAt(queue, time)), [0, 1, 1, 0, 1, 1, 0, 0]);
  const name = (time) => store.name_values[store.name[eventAtInstant(store, queue, time)]];
  assert.deepEqual([7, 20, 40, 57, 62, 70, 900].map(name), ['a', 'python', 'python', 'b', 'b', 'c', 'c']);
  assert.equal(eventAtInstant(store, undefined, 7), -1);
});
