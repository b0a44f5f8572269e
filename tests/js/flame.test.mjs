import assert from 'node:assert/strict';
import { test } from 'node:test';

import { buildFlames, flameBoxes, flameMatches } from '../../trace_analyzer/render/html/assets/flame.js';

const flames = () => buildFlames({
  header: { flames: [['idle', 'Waiting', 4, 2], ['cpu', 'CPU time', 1, 0]] },
  columns: {
    caller: [-1, 0, 0, 1, -1], frame: [1, 2, 3, 3, 1], frame_values: ['', 'a.py(1): main', 'a.py(5): step', 'python'],
    label: [1, 2, 3, 3, 1], label_values: ['', 'main · a.py', 'step · a.py', 'Python'],
    colour: [0, 0, 1, 1, 0], colour_values: ['k-py-1', 'p-python'], value: [100, 60, 40, 60, 7],
  },
});

test('each tree has its own root, and its time is that of its outermost frames', () => {
  const [idle, cpu] = flames();
  assert.deepEqual([idle.root.value, cpu.root.value, idle.leftOut], [100, 7, 2]);
  assert.deepEqual(idle.root.callees[0].callees.map(({ label }) => label), ['step · a.py', 'Python']);
});

test('a box is as wide as its time, under its caller, and what is too narrow is left out', () => {
  const [{ root }] = flames();
  const boxes = flameBoxes(root, 200).map(({ node, x, width, row }) => [node.label, x, width, row]);
  assert.deepEqual(boxes, [['all', 0, 200, 0], ['main · a.py', 0, 200, 1], ['step · a.py', 0, 120, 2], ['Python', 0, 120, 3], ['Python', 120, 80, 2]]);
  assert.equal(flameBoxes(root, 1).length, 4);
  const inner = flameBoxes(root.callees[0].callees[0], 200);
  assert.deepEqual(inner.map(({ node, width }) => [node.label, width]), [['main · a.py', 200], ['all', 200], ['step · a.py', 200], ['Python', 200]]);
});

test('a search sums up what it finds, each instant once', () => {
  const [{ root }] = flames();
  const { matched, value } = flameMatches(root, 'A.PY');
  assert.deepEqual([matched.size, value], [2, 100]);
  assert.equal(flameMatches(root, 'python').value, 100);
  assert.equal(flameMatches(root, '').matched.size, 0);
});
