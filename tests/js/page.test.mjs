import assert from 'node:assert/strict';
import { test } from 'node:test';

import { describe, exactTimes, otherEnds } from '../../trace_analyzer/render/html/assets/describe.js';
import { formatDuration, formatQuantity, formatTick, zoom } from '../../trace_analyzer/render/html/assets/common.js';
import { labelTop, lanesInView, layOut, onScreen, pinnedTracks, rowAt } from '../../trace_analyzer/render/html/assets/layout.js';
import { around, clampView, parseFragment, ticks, writeFragment } from '../../trace_analyzer/render/html/assets/layout.js';
import { storeOf } from './assets.mjs';

test('durations have three digits and the unit that fits', () => {
  assert.deepEqual([0, 999, 1500, 999_600, 12_340_000, 2e9].map(formatDuration), ['0 ns', '999 ns', '1.50 us', '1.00 ms', '12.3 ms', '2 s']);
  assert.equal(formatQuantity(312e12, 'FLOP/s'), '312 TFLOP/s');
});

test('ticks are round, within the view, and labelled so that neighbours differ', () => {
  const { step, times } = ticks({ from: 71_830_000, to: 71_990_000 }, 8);
  assert.equal(step, 20_000);
  assert.ok(times.every((time) => time % step === 0));
  const labels = times.map((time) => formatTick(time, step));
  assert.equal(new Set(labels).size, labels.length);
});

test('a view stays near the trace and never collapses', () => {
  const { from, to } = clampView({ from: -1e9, to: 5e9 }, 1000);
  assert.ok(from >= -20 && to <= 1020);
  const tiny = clampView({ from: 500, to: 500 }, 1000);
  assert.equal(tiny.to - tiny.from, 20);
  assert.ok(clampView({ from: 0, to: 0 }, 0).to > 0);
});

test('zoom keeps the time under the pointer', () => {
  assert.deepEqual(zoom({ from: 0, to: 100 }, 25, 0.5), { from: 12.5, to: 62.5 });
  assert.deepEqual(around(100, 200, 0.5), { from: 50, to: 250 });
});

test('a fragment leads back to its place, and nonsense to none', () => {
  assert.deepEqual(parseFragment(writeFragment({ from: 10.4, to: 99.5 }, 7, null)), { view: { from: 10, to: 100 }, selected: 7, interval: null, hasPath: false });
  assert.ok(parseFragment(writeFragment({ from: 10, to: 99 }, -1, null, true)).hasPath);
  const interval = { from: 20, to: 30 };
  assert.deepEqual(parseFragment(writeFragment({ from: 10, to: 99 }, -1, interval)).interval, interval);
  for (const nonsense of ['', '#', '#t=5,1', '#t=a,b&sel=x', '#sel=1.5', '#iv=9,9', '#iv=<img>']) {
    assert.deepEqual(parseFragment(nonsense), { view: null, selected: -1, interval: null, hasPath: false });
  }
});

test('a folded track shows its first row only, and rows do not overlap', () => {
  const store = storeOf([
    { group: 'GPU', family: 'stream', rows: [[[0, 1, 'a', 'k']]] },
    { group: 'main', family: 'operators', rows: [[[0, 9, 'b', 'o']], [[1, 2, 'c', 'o']]] },
  ]);
  const open = layOut(store, new Set());
  assert.deepEqual(open.items.map((item) => item.heading ?? item.label), ['GPU', 'stream', 'main', 'operators']);
  assert.equal(open.rows.length, 3);
  assert.equal(layOut(store, new Set([1])).rows.length, 2);
  for (let i = 1; i < open.rows.length; i++) assert.ok(open.rows[i].top >= open.rows[i - 1].bottom);
  assert.equal(rowAt(open.rows, open.rows[1].top), open.rows[1]);
  assert.equal(rowAt(open.rows, 0), undefined);
});

const twoThreads = () => storeOf([
  { group: 'GPU', family: 'stream', rows: [[[0, 1, 'a', 'k']]] },
  { group: 'GPU', family: 'idle', rows: [[[1, 1, 'python', 'idle-python']]] },
  { group: 'main', family: 'operators', rows: [[[0, 9, 'b', 'o']], [[1, 2, 'c', 'o']], [[1, 1, 'd', 'o']]] },
]);

test('a second device stays in sight whole or not at all', () => {
  const track = (group, family) => ({ group, family, rows: [[[0, 1, 'a', 'k']]] });
  const store = storeOf([track('GPU 0', 'stream'), track('GPU 0', 'idle'), track('GPU 1', 'stream'), track('GPU 1', 'idle'), { ...track('main', 'operators'), thread: 0 }]);
  const fits = (room) => pinnedTracks(store, new Set(), room, { heights: new Map() }).size;
  assert.deepEqual([...new Set(Array.from({ length: 400 }, (_, room) => fits(room)))], [0, 1, 2, 4]);
});

test('the rows of devices stay in sight while those of threads pass under them', () => {
  const store = twoThreads();
  const pinned = pinnedTracks(store, new Set(), 1000, { heights: new Map() });
  assert.deepEqual([...pinned], [0, 1]);
  assert.deepEqual([...pinnedTracks(store, new Set(), 70, { heights: new Map() })], [0]); // no more than there is room for
  const layout = layOut(store, new Set(), { pinned });
  const [stream, idle, first, second] = layout.rows;
  assert.deepEqual(onScreen(layout, 0, 1000), layout.rows);
  const scrolled = first.bottom - layout.pinnedHeight + 2; // the first row of the thread is out of sight, the second is cut
  const shown = onScreen(layout, scrolled, 1000);
  assert.deepEqual(shown.slice(0, 2), [stream, idle]);
  assert.deepEqual([shown[2].first, shown[2].top, shown[2].bottom], [second.first, layout.pinnedHeight, second.bottom - scrolled]);
});

test('a label stays beside what is in sight of its track', () => {
  const layout = layOut(twoThreads(), new Set(), { pinned: new Set([0, 1]) });
  const operators = layout.items.find(({ label }) => label === 'operators');
  assert.equal(labelTop(operators, 0, layout.pinnedHeight), operators.top);
  const shift = operators.top - layout.pinnedHeight + 5;
  assert.ok(labelTop(operators, shift, layout.pinnedHeight) >= layout.pinnedHeight);
  assert.ok(labelTop(operators, 1e6, layout.pinnedHeight) < 0);
  assert.equal(labelTop(layout.items[1], 500, layout.pinnedHeight), layout.items[1].top);
});

test('lanes that hold nothing in the view are put away, chosen heights are kept', () => {
  const store = twoThreads();
  assert.deepEqual([...lanesInView(store, 0, 10)], [[0, 1], [1, 1], [2, 3]]);
  const lanes = lanesInView(store, 4, 8);
  assert.equal(lanes.get(2), 1);
  const layout = layOut(store, new Set(), { lanes, heights: new Map([[2, 40]]) });
  assert.equal(layout.rows.length, 3);
  assert.equal(layout.rows[2].bottom - layout.rows[2].top, 39);
});

test('times are exact to the nanosecond where they are asked for', () => {
  const store = storeOf([{ rows: [[[1_118_402_917, 40, 'a', 'k']]] }]);
  assert.deepEqual(exactTimes(store, 0), [['Starts at', '1,118,402,917 ns'], ['Ends at', '1,118,402,957 ns'], ['Lasts', '40 ns']]);
});

test('an activity tells its launch, a launch its activity, idle time its cause', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[50, 10, 'gemm', 'matmul', 2]]] },
    { family: 'idle', rows: [[[0, 50, 'python', 'idle-python', 2]]] },
    { family: 'calls', rows: [[[20, 5, 'cudaLaunchKernel', 'runtime']]] },
  ], { activities: 1 });
  const facts = (event) => Object.fromEntries(describe(store, { python: 'Python' }, event));
  assert.equal(facts(0).Launched, '25 ns ahead');
  assert.equal(facts(1).Cause, 'Python');
  assert.equal(facts(1)['Host was in'], 'cudaLaunchKernel');
  assert.equal(facts(2).Launches, 'gemm');
  assert.deepEqual([0, 2].map((event) => otherEnds(store, event)), [[2], [0]]);
});

test('details are shown where they are known: shapes of the operator, rates, occupancy', () => {
  const store = storeOf([
    { family: 'stream', rows: [[[50, 1000, 'gemm', 'matmul', 1, 1]]] },
    { family: 'calls', rows: [[[20, 5, 'launch', 'runtime']]] },
    { family: 'operators', rows: [[[10, 30, 'aten::mm', 'operator', -1, 2]]] },
  ], {
    activities: 1,
    details: [
      { bucket: 'matmul', flop: 2e9, moved_bytes: 1e6, occupancy_percent: 50, grid: '[8, 1, 1]' },
      { input_dims: '[[2,3],[],[3,4]]', input_types: '["c10::BFloat16","int","float"]' },
    ],
  });
  const facts = Object.fromEntries(describe(store, {}, 0));
  assert.equal(facts.Inputs, 'BFloat16 [2, 3], float [3, 4]');
  assert.deepEqual([facts.Arithmetic, facts['Bandwidth at least'], facts.Occupancy], ['2 PFLOP/s', '1 TB/s', '50 %, estimated']);
  assert.ok(!('Block' in facts) && !('Copied' in facts));
  assert.equal(facts.Inside, 'aten::mm');
});
