import assert from 'node:assert/strict';
import { test } from 'node:test';

import { instantAt, listenToTaps, themed } from '../../trace_analyzer/render/html/assets/plots.js';
import { compare, csv, matches, sortValue, status, turned } from '../../trace_analyzer/render/html/assets/page.js';
import { tipPlace } from '../../trace_analyzer/render/html/assets/common.js';

test('numbers sort by value, texts by alphabet, what is missing stays last', () => {
  const sorted = (values, descending) => values.toSorted((a, b) => compare(a, b, descending));
  assert.deepEqual(sorted([10, null, 9, 100], false), [9, 10, 100, null]);
  assert.deepEqual(sorted([10, null, 9, 100], true), [100, 10, 9, null]);
  assert.deepEqual(sorted(['b', 'A', null], false), ['A', 'b', null]);
});

test('a filter wants every word, in any order and case', () => {
  assert.ok(matches('aten::mm ampere_SGEMM', 'sgemm aten'));
  assert.ok(!matches('aten::mm', 'mm conv'));
  assert.ok(matches('anything', ''));
});

test('a table tells what it shows and what it leaves out', () => {
  assert.equal(status({ shown: 5, matched: 5, total: 5, leftOut: 0 }), '');
  assert.equal(status({ shown: 12, matched: 100, total: 100, leftOut: 1234 }), '12 of 100 rows · 1,234 smaller ones are not on this page');
  assert.equal(status({ shown: 2, matched: 2, total: 9, leftOut: 0 }), '2 of 2 found');
});

test('a tooltip stays inside the window', () => {
  const size = { width: 200, height: 50 };
  const window = { width: 390, height: 800 };
  assert.deepEqual(tipPlace({ left: 300, top: 10, bottom: 30 }, size, window), { left: 182, top: 38 });
  assert.deepEqual(tipPlace({ left: 5, top: 760, bottom: 780 }, size, window), { left: 8, top: 702 });
});

test('models take their colours from the theme, glyphs by the name in their tags', () => {
  const colour = (name) => `<${name}>`;
  const bar = { tags: ['--p-python'], attributes: { fill_color: { value: '#d55e00' }, line_color: { value: null } } };
  assert.deepEqual(themed(bar, colour), { fill_color: { value: '<--p-python>' } });
  assert.deepEqual(themed({ attributes: { grid_line_color: 'x' } }, colour), { grid_line_color: '<--grid>' });
  assert.deepEqual(themed({ tags: [], attributes: {} }, colour), {});
});

test('a tap leads to the place of its point, and leaves nothing selected', () => {
  const listeners = [];
  const selected = { indices: [], change: { connect: (listener) => listeners.push(listener) } };
  const columns = { start_ns: [5, -1], end_ns: [9, -1] };
  const source = { selected, get_column: (name) => columns[name] ?? null };
  const bare = { selected, get_column: () => null };
  const models = [{ type: 'GlyphRenderer', data_source: source }, { type: 'GlyphRenderer', data_source: bare }, { type: 'Range1d' }];
  const places = [];
  listenToTaps({ _all_models: new Map(models.entries()) }, (place) => places.push(place));
  assert.equal(listeners.length, 1);
  for (const indices of [[0], [1], []]) {
    selected.indices = indices;
    listeners[0]();
    assert.deepEqual(selected.indices, []);
  }
  assert.deepEqual(places, [{ start: 5, end: 9 }]);
});

test('an instant is that of the nearest curve, in ns', () => {
  const curves = [
    { place: 'GPU 0', unit: 1000, xs: [0, 5, 5, 9], ys: [2, 2, 8, 8] },
    { place: 'GPU 1', unit: 1000, xs: [0, 9], ys: [4, 4] },
  ];
  assert.deepEqual(instantAt(curves, 2.5, 2.2), { place: 'GPU 0', time: 2500 });
  assert.deepEqual(instantAt(curves, 2.5, 3.8), { place: 'GPU 1', time: 2500 });
  assert.deepEqual(instantAt(curves, 6, 7), { place: 'GPU 0', time: 6000 });
  assert.equal(instantAt(curves, -1, 2), null);
});

test('numbers sort by their value, texts by what is shown, a dash is missing', () => {
  const cell = (kind, textContent, sort) => ({ classList: { contains: (name) => name === kind }, dataset: sort === undefined ? {} : { sort }, textContent });
  assert.deepEqual([cell('n', '201 ms', '2e8'), cell('n', '–'), cell('name', ' add '), cell('name', '–')].map(sortValue), [2e8, null, 'add', null]);
});

test('what stands side by side on the page is a line each in a file', () => {
  assert.deepEqual(turned([['Device', 'GPU 0', 'GPU 1'], ['Busy', '0.4', '0.5']]), [['Device', 'Busy'], ['GPU 0', '0.4'], ['GPU 1', '0.5']]);
});

test('CSV quotes what needs it, and nothing in it is a formula', () => {
  const text = csv([['Name', 'Time'], ['a, "b"', '12'], ['=SUM(A1)', '-3'], ['@x', '1e-9']]);
  assert.equal(text, 'Name,Time\r\n"a, ""b""",12\r\n\'=SUM(A1),-3\r\n\'@x,1e-9\r\n');
});
