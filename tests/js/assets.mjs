// Small stores for the tests of the page's modules.

import { buildStore } from '../../trace_analyzer/render/html/assets/store.js';

const TEXTS = ['bucket', 'bound', 'operator', 'dtype', 'grid', 'block', 'input_dims', 'input_types', 'collective', 'message_dtype', 'call_stack', 'edge', 'module', 'python_function'];
const NUMBERS = [
  'bytes', 'registers_per_thread', 'shared_memory_bytes', 'flop', 'moved_bytes', 'occupancy_percent',
  'message_elements', 'group_size',
];

// A store of one track per entry: { family, rows: [[[start, duration, name, kind, link?, detail?], ...], ...] }.
export function storeOf(tracks, { activities = 0, curves = [], details = [] } = {}) {
  const columns = { gap: [], duration: [], link: [], detail: [], curve_time: [], curve_value: [] };
  const [names, kinds] = [[], []];
  const header = { labels: [], tracks: [], curves: [], end: 0, activities };
  for (const { family = 'operators', group = 'main', collapsed = false, thread = family === 'operators' || family === 'calls' ? 0 : null, rows } of tracks) {
    const spans = rows.map((events) => {
      let end = 0;
      const first = columns.gap.length;
      for (const [start, duration, name, kind, link = -1, detail = 0] of events) {
        columns.gap.push(start - end);
        columns.duration.push(duration);
        columns.link.push(link);
        columns.detail.push(detail);
        names.push(name);
        kinds.push(kind);
        end = start + duration;
        header.end = Math.max(header.end, end);
      }
      return [first, events.length];
    });
    header.tracks.push({ family, group, label: family, thread, collapsed, rows: spans });
  }
  for (const [kind, place, steps] of curves) {
    header.curves.push([kind, place, steps.length]);
    for (const [time, value] of steps) {
      columns.curve_time.push(time);
      columns.curve_value.push(value);
    }
  }
  for (const column of TEXTS) [columns[column], columns[`${column}_values`]] = interned(details.map((detail) => detail[column] ?? ''));
  for (const column of NUMBERS) columns[column] = Float64Array.from(details, (detail) => detail[column] ?? 0);
  columns.curve_time = Float64Array.from(columns.curve_time);
  columns.curve_value = Float64Array.from(columns.curve_value);
  [columns.name, columns.name_values] = interned(names);
  [columns.kind, columns.kind_values] = interned(kinds);
  header.labels = columns.name_values;
  return buildStore({ header, columns });
}

function interned(strings) {
  const values = ['', ...new Set(strings.filter(Boolean))];
  return [Uint32Array.from(strings, (value) => values.indexOf(value)), values];
}

// Pseudo-random numbers that are the same on every run.
export function randomNumbers(seed) {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
}

// A row of disjoint events with random gaps, durations and kinds.
export function randomRow(seed, count) {
  const random = randomNumbers(seed);
  let time = 0;
  return Array.from({ length: count }, () => {
    time += random(5) ? random(30) : 0;
    const start = time;
    const duration = random(4) ? random(10) : random(400);
    time += duration;
    return [start, duration, `name${random(7)}`, `kind${random(3)}`];
  });
}
