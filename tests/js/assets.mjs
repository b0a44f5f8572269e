// Small stores for the tests of the page's modules.

import { buildStore } from '../../trace_analyzer/render/html/assets/store.js';

// A store of one track per entry: { family, rows: [[[start, duration, name, kind, link?], ...], ...] }.
export function storeOf(tracks, { activities = 0, queues = [] } = {}) {
  const columns = { gap: [], duration: [], link: [], queue_time: [], queue_depth: [] };
  const [names, kinds] = [[], []];
  const header = { labels: [], tracks: [], queues: [], end: 0 };
  for (const { family = 'operators', group = 'main', collapsed = false, rows } of tracks) {
    const spans = rows.map((events) => {
      let end = 0;
      const first = columns.gap.length;
      for (const [start, duration, name, kind, link = -1] of events) {
        columns.gap.push(start - end);
        columns.duration.push(duration);
        columns.link.push(link);
        names.push(name);
        kinds.push(kind);
        end = start + duration;
        header.end = Math.max(header.end, end);
      }
      return [first, events.length];
    });
    header.tracks.push({ family, group, label: family, collapsed, rows: spans });
  }
  for (const [device, steps] of queues) {
    header.queues.push([device, steps.length]);
    for (const [time, depth] of steps) {
      columns.queue_time.push(time);
      columns.queue_depth.push(depth);
    }
  }
  for (const name of ['bucket', 'bound', 'operator', 'grid', 'block']) {
    columns[name] = new Uint8Array(activities);
    columns[`${name}_values`] = [''];
  }
  for (const name of ['bytes', 'registers_per_thread', 'shared_memory_bytes', 'flop', 'moved_bytes']) {
    columns[name] = new Float64Array(activities);
  }
  columns.queue_time = Float64Array.from(columns.queue_time);
  columns.queue_depth = Float64Array.from(columns.queue_depth);
  [columns.name, columns.name_values] = interned(names);
  [columns.kind, columns.kind_values] = interned(kinds);
  header.labels = columns.name_values;
  return buildStore({ header, columns });
}

function interned(strings) {
  const values = ['', ...new Set(strings)];
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
