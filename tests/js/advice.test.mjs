import assert from 'node:assert/strict';
import { test } from 'node:test';

import { memberArrowEvents, memberEvents, memberTables } from '../../trace_analyzer/render/html/assets/overlays.js';
import { idleStory } from '../../trace_analyzer/render/html/assets/describe.js';
import { storeOf } from './assets.mjs';

const store = () => {
  const made = storeOf([
    { group: 'GPU 0 · H100', family: 'stream', rows: [[[50, 10, 'gemm', 'matmul', 4], [100, 30, 'relu', 'pointwise', 5]]] },
    { group: 'GPU 1', family: 'stream', rows: [[[50, 10, 'gemm', 'matmul']]] },
    { group: 'GPU 0 · H100', family: 'idle', rows: [[[60, 40, 'python', 'idle-python', 6]]] },
    { group: 'main', family: 'calls', rows: [[[20, 5, 'cudaLaunchKernel', 'runtime'], [90, 5, 'cudaLaunchKernel', 'runtime']]] },
    { group: 'main', family: 'python', thread: 0, rows: [[[10, 100, 'train.py(3): step', 'py-1']]] },
    { group: 'main', family: 'modules', thread: 0, rows: [[[15, 15, 'nn.Module: Linear_0', 'module'], [85, 15, 'nn.Module: ReLU_0', 'module']]] },
  ], { activities: 3 });
  made.own = new Set(['py-1']);
  made.advice = new Map([
    ['kernels', { total: 5, members: [{ start: 50, end: 60, place: 'GPU 0' }, { start: 100, end: 130, place: 'GPU 0' }] }],
    ['idle', { total: 1, members: [{ start: 70, end: 100, place: 'GPU 0' }] }],
    ['none', { total: 0, members: [] }],
  ]);
  return made;
};

test('an advice outlines its members, their launches and modules, on its device alone', () => {
  const { events, places, summary, outlines } = memberEvents(store(), 'kernels');
  assert.deepEqual([events, places], [[0, 1], [{ step: undefined, events: [0] }, { step: undefined, events: [1] }]]);
  assert.match(summary, /^2 events outlined, 40 ns together; the longest 2 of 5 intervals\./);
  assert.deepEqual(outlines.map((outline) => outline.events), [[0, 1], [4, 5], [7, 8]]);
});

test('the members of a step are one place', () => {
  const made = store();
  const places = (numbers, starts, ends) => {
    made.steps = new Map([['GPU 0', { numbers, starts, ends }]]);
    return memberEvents(made, 'kernels').places.map(({ step, events }) => [step, events]);
  };
  assert.deepEqual(places([7, 8], [40, 90], [90, 101]), [[7, [0]], [8, [1]]]);
  assert.deepEqual(places([7], [40], [101]), [[7, [0, 1]]]);
  assert.deepEqual(places([7], [40], [60]), [[7, [0]], [undefined, [1]]]);
});

test('idle time that the window cut is outlined whole', () => {
  assert.deepEqual(memberEvents(store(), 'idle').events, [3]);
  assert.deepEqual(memberEvents(store(), 'none').events, []);
  assert.deepEqual(memberEvents(store(), 'unknown').events, []);
});

test('arrows lead to members in the view, no more than there is room for', () => {
  const advice = memberEvents(store(), 'kernels');
  assert.deepEqual(memberArrowEvents(store(), advice, { from: 0, to: 200 }, 40), [[4, 0], [5, 1]]);
  assert.deepEqual(memberArrowEvents(store(), advice, { from: 0, to: 200 }, 1), [[4, 0]]);
  assert.deepEqual(memberArrowEvents(store(), advice, { from: 0, to: 70 }, 40), [[4, 0]]);
});

test('members are summed up by name and by module', () => {
  const tables = memberTables(store(), {}, memberEvents(store(), 'kernels'));
  assert.deepEqual(tables.map(({ title, rows }) => [title, rows]), [
    ['By name', [['relu', '1', '30 ns'], ['gemm', '1', '10 ns']]],
    ['By module', [['nn.Module: ReLU_0', '1', '30 ns'], ['nn.Module: Linear_0', '1', '10 ns']]],
  ]);
});

test('all members are summed up by name, and the table by module says of how many it is', () => {
  const kernels = Array.from({ length: 2500 }, (_, i) => [10 * i + 6, 3, 'gemm', 'matmul', 2500 + i]);
  const calls = Array.from({ length: 2500 }, (_, i) => [10 * i + 1, 2, 'cudaLaunchKernel', 'runtime']);
  const made = storeOf([
    { group: 'GPU 0', family: 'stream', rows: [kernels] },
    { group: 'main', family: 'calls', thread: 0, rows: [calls] },
    { group: 'main', family: 'modules', thread: 0, rows: [[[0, 30000, 'nn.Module: Linear_0', 'module']]] },
  ], { activities: 2500 });
  made.advice = new Map([['kernels', { total: 1, members: [{ start: 0, end: 30000, place: 'GPU 0' }] }]]);
  const [byName, byModule] = memberTables(made, {}, memberEvents(made, 'kernels'));
  assert.deepEqual([byName.title, byName.rows], ['By name', [['gemm', '2,500', '7.50 us']]]);
  assert.deepEqual([byModule.title, byModule.rows], ['By module, of the first 2,000', [['nn.Module: Linear_0', '2,000', '6 us']]]);
});

test('idle time tells since when the queue was empty, who had the CPU, what was launched when and what ended it', () => {
  const made = store();
  const story = idleStory(made, { python: 'Python' }, [{ kind: 'queue', place: 'GPU 0', time: [25, 50, 95, 100], value: [1, 0, 1, 0] }], 3);
  assert.deepEqual(story, [
    { text: 'The queue had been empty for 10 ns when the device ran out of work.' },
    { text: 'Cause: Python. The CPU was in', event: 6 },
    { text: 'The next work was launched 30 ns after the device ran out of work, by', event: 5 },
    { text: 'After 40 ns in all the waiting ended with', event: 1 },
  ]);
  assert.deepEqual(idleStory(made, {}, [], 0), []);
});
