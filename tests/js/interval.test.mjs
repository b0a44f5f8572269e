import assert from 'node:assert/strict';
import { test } from 'node:test';

import { statistics, statisticsTables, statisticsText } from '../../trace_analyzer/render/html/assets/interval.js';
import { randomNumbers, randomRow, storeOf } from './assets.mjs';

const device = () => storeOf([
  { group: 'GPU 0', family: 'stream', rows: [[[0, 40, 'gemm', 'matmul', -1, 1], [60, 40, 'relu', 'pointwise', -1, 2]]] },
  { group: 'GPU 0', family: 'stream', rows: [[[20, 30, 'Memcpy', 'memcpy']]] },
  { group: 'GPU 0', family: 'idle', rows: [[[50, 10, 'python', 'idle-python']]] },
], { activities: 3, details: [{ bucket: 'gemm' }, { bucket: 'activation' }] });

test('sums are clipped to the interval, and busy time is the union of all streams', () => {
  const [{ windowNs, busyNs, idleNs, buckets, causes, kernels }] = statistics(device(), 30, 80).devices;
  assert.deepEqual([windowNs, busyNs, idleNs], [50, 40, 10]);
  assert.deepEqual(causes, [{ key: 'python', ns: 10, count: 1 }]);
  assert.deepEqual(buckets, [{ key: 'activation', ns: 20, count: 1 }, { key: 'memcpy', ns: 20, count: 1 }, { key: 'gemm', ns: 10, count: 1 }]);
  assert.deepEqual(kernels.map(({ key }) => key), ['Memcpy', 'relu', 'gemm']);
});

test('time outside of the first and the last activity is not accounted for', () => {
  const [{ windowNs, busyNs, kernels }] = statistics(device(), 90, 500).devices;
  assert.deepEqual([windowNs, busyNs, kernels.length], [10, 10, 1]);
  assert.equal(statistics(device(), 200, 300).devices[0].windowNs, 0);
});

test('any interval agrees with the plain sum', () => {
  const store = storeOf([{ group: 'GPU 0', family: 'stream', rows: [randomRow(5, 500)] }], { activities: 500 });
  const random = randomNumbers(6);
  for (let round = 0; round < 100; round++) {
    const [from, to] = [random(store.end), random(store.end)].sort((a, b) => a - b);
    const naive = new Map();
    for (let i = 0; i < 500; i++) {
      const inside = Math.min(to, store.start[i] + store.duration[i]) - Math.max(from, store.start[i]);
      const key = store.name_values[store.name[i]];
      if (inside > 0) naive.set(key, (naive.get(key) ?? 0) + inside);
    }
    const listed = statistics(store, from, to).devices[0].kernels.filter(({ ns }) => ns);
    assert.deepEqual(new Map(listed.map(({ key, ns }) => [key, ns])), new Map([...naive].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))));
  }
});

test('threads tell what took their own time: of operators, calls and Python, with short names', () => {
  const store = storeOf([
    { group: 'main', family: 'operators', rows: [[[0, 10, 'aten::linear', 'operator'], [20, 10, 'aten::mm', 'operator']], [[2, 6, 'aten::mm', 'operator']]] },
    { group: 'main', family: 'calls', rows: [[[3, 2, 'cudaLaunchKernel', 'runtime']]] },
  ]);
  const [{ group, names }] = statistics(store, 5, 25).threads;
  assert.equal(group, 'main');
  assert.deepEqual(names, [
    { key: 'aten::mm', ns: 8, count: 2, family: 'operator' }, // 5 to 8, and 20 to 25
    { key: 'aten::linear', ns: 2, count: 1, family: 'operator' }, // 8 to 10
  ]);
  assert.deepEqual(statisticsTables(statistics(store, 5, 25), {}).map(({ title }) => title), ['main: own time']);
  assert.deepEqual(statistics(store, 100, 200).threads, []);
});

test('the copied text has a line per row and names the causes in words', () => {
  const text = statisticsText(statistics(device(), 0, 100), { python: 'Python code', memcpy: 'Copy' });
  assert.match(text, /^0 ns to 100 ns/);
  assert.match(text, /Python code\t10 ns\t10\.0 %/);
  assert.match(text, /\nCopy\t1\t30 ns/);
});
