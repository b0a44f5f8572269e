// The events in memory: typed arrays in row order, and the timeline's queries on them.

const CHUNK = 64;

export function buildStore({ header, columns }) {
  const rows = header.tracks.flatMap(({ rows: spans, family, group, label, thread }, track) => spans.map(([first, count], depth) => (
    { first, last: first + count, depth, track, family, group, label, thread, place: group.split(' · ')[0] })));
  const store = {
    ...columns,
    rows,
    tracks: header.tracks,
    labels: header.labels,
    end: header.end,
    activities: header.activities,
    link: new Int32Array(columns.link),
    start: absoluteStarts(rows, columns.gap, columns.duration),
    curves: curveSlices(header.curves, columns),
    advice: adviceMembers(header, columns),
    steps: stepsByPlace(header.steps ?? []),
    own: new Set(header.own_kinds ?? []),
    matches: null,
  };
  store.sums = chunkSums(store);
  return store;
}

function absoluteStarts(rows, gap, duration) {
  const start = new Float64Array(gap.length);
  for (const { first, last } of rows) {
    let end = 0;
    for (let i = first; i < last; i++) {
      start[i] = end + gap[i];
      end = start[i] + duration[i];
    }
  }
  return start;
}

function curveSlices(curves, columns) {
  let offset = 0;
  return curves.map(([kind, place, length]) => {
    const from = offset;
    offset += length;
    return { kind, place, time: columns.curve_time.subarray(from, offset), value: columns.curve_value.subarray(from, offset) };
  });
}

// The intervals of each advice by its id: { total, members: [{ start, end, place }] }.
function adviceMembers({ advice = [], places = [] }, columns) {
  let offset = 0;
  return new Map(advice.map(([id, total, count]) => {
    const members = Array.from({ length: count }, (_, i) => ({
      start: columns.member_start[offset + i], end: columns.member_end[offset + i], place: places[columns.member_place[offset + i]],
    }));
    offset += count;
    return [id, { total, members }];
  }));
}

// The steps of each device in order of time: numbers, starts and ends.
function stepsByPlace(steps) {
  const byPlace = new Map();
  for (const [place, number, start, end] of [...steps].sort((a, b) => a[2] - b[2])) {
    if (!byPlace.has(place)) byPlace.set(place, { numbers: [], starts: [], ends: [] });
    const own = byPlace.get(place);
    own.numbers.push(number);
    own.starts.push(start);
    own.ends.push(end);
  }
  return byPlace;
}

// The number of the step in which an event of a device begins; undefined outside of steps.
export function stepOf(store, event) {
  const own = store.steps.get(rowOf(store, event).place);
  const step = own ? lowerBound(own.starts, store.start[event] + 1, 0, own.starts.length) - 1 : -1;
  return step >= 0 && store.start[event] < own.ends[step] ? own.numbers[step] : undefined;
}

// Running sums of duration per kind, kept at every 64th event: what a long run of events is made of is
// then the difference of two sums and at most two partial chunks.
function chunkSums({ kind, duration, kind_values: kinds }) {
  const width = kinds.length;
  const sums = new Float64Array((Math.floor(kind.length / CHUNK) + 1) * width);
  const running = new Float64Array(width);
  for (let i = 0; i < kind.length; i++) {
    if (i % CHUNK === 0) sums.set(running, (i / CHUNK) * width);
    running[kind[i]] += duration[i];
  }
  if (kind.length % CHUNK === 0) sums.set(running, (kind.length / CHUNK) * width);
  return sums;
}

// Duration per kind of the events [from, to), added into `out`.
export function kindTimes(store, from, to, out) {
  out.fill(0);
  const width = out.length;
  const firstChunk = Math.ceil(from / CHUNK);
  const lastChunk = Math.floor(to / CHUNK);
  if (firstChunk >= lastChunk) return addEvents(store, from, to, out);
  addEvents(store, from, firstChunk * CHUNK, out);
  addEvents(store, lastChunk * CHUNK, to, out);
  for (let k = 0; k < width; k++) out[k] += store.sums[lastChunk * width + k] - store.sums[firstChunk * width + k];
  return out;
}

function addEvents({ kind, duration }, from, to, out) {
  for (let i = from; i < to; i++) out[kind[i]] += duration[i];
  return out;
}

// Adds to the sum { key, ns, count } of a key.
export function addTo(sums, key, ns, count = 1) {
  if (!sums.has(key)) sums.set(key, { key, ns: 0, count: 0 });
  const sum = sums.get(key);
  sum.ns += ns;
  sum.count += count;
}

// Index of the first of the sorted numbers [from, to) that is not less than `value`.
export function lowerBound(sorted, value, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (sorted[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

export function endOf(store, event) {
  return store.start[event] + store.duration[event];
}

// First event of a row that ends after `time`.
export function firstEndingAfter(store, row, time) {
  const from = lowerBound(store.start, time, row.first, row.last);
  return from > row.first && endOf(store, from - 1) > time ? from - 1 : from;
}

// The event of a row at `time`, else the nearest one within `tolerance`; -1 without one.
export function eventAt(store, row, time, tolerance) {
  const next = lowerBound(store.start, time, row.first, row.last);
  let best = -1;
  let nearest = tolerance;
  for (const i of [next - 1, next]) {
    if (!holds(row, i)) continue;
    const away = Math.max(store.start[i] - time, time - endOf(store, i), 0);
    if (away <= nearest) [best, nearest] = [i, away];
  }
  return best;
}

// The event that lasts exactly from `start` to `end`, preferably a device activity; -1 without one.
export function eventOf(store, start, end) {
  for (const { first, last } of [...store.rows].sort((a, b) => a.first - b.first)) {
    for (let i = lowerBound(store.start, start, first, last); i < last && store.start[i] === start; i++) if (endOf(store, i) === end) return i;
  }
  return -1;
}

export function holds({ first, last }, event) {
  return event >= first && event < last;
}

export function rowOf(store, event) {
  return store.rows.find((row) => holds(row, event));
}

export function rowsAt(store, place, family) {
  return store.rows.filter((row) => row.place === place && row.family === family);
}

// The row with the intervals of the critical path; undefined without a replay.
export function pathRow(store) {
  return store.rows.find(({ family }) => family === 'path');
}

export function isActivity(store, event) {
  return event < store.activities;
}

// ---- links ------------------------------------------------------------------------------------------------

// The events that link to this one: the activities of a launch, the backward operators of a forward one.
export function followers(store, event) {
  store.inverse ??= invertLinks(store);
  const { offsets, members } = store.inverse;
  return members.subarray(offsets[event], offsets[event + 1]);
}

// Links of idle time and of the critical path only explain these; there are no links back.
const EXPLAINED = new Set(['idle', 'path']);

function invertLinks(store) {
  const { link, start } = store;
  const pointing = store.rows.filter(({ family }) => !EXPLAINED.has(family)).sort((a, b) => a.first - b.first);
  const each = (visit) => {
    for (const { first, last } of pointing) for (let i = first; i < last; i++) if (link[i] >= 0) visit(i);
  };
  const offsets = new Uint32Array(start.length + 1);
  each((i) => { offsets[link[i] + 1] += 1; });
  for (let i = 0; i < start.length; i++) offsets[i + 1] += offsets[i];
  const members = new Uint32Array(offsets[start.length]);
  const next = offsets.slice();
  each((i) => { members[next[link[i]]++] = i; });
  return { offsets, members };
}

// Both directions: the event that this one links to first (arrows end here), then those that link to it.
export function linked(store, event) {
  const source = store.link[event];
  return { source: source >= 0 && !EXPLAINED.has(rowOf(store, event).family) ? source : -1, targets: followers(store, event) };
}

// What was open on the thread when the event began, the outermost first: frames, modules, operators, annotations.
// For work on a device, and for idle time, what was open around the call or frame that explains it, and that one too.
export function stackOf(store, event) {
  const row = rowOf(store, event);
  if (row.thread === null) return store.link[event] < 0 ? [] : [...stackOf(store, store.link[event]), store.link[event]];
  const open = [];
  for (const other of store.rows) {
    if (other.thread !== row.thread || other.family === 'phases' || (other.track === row.track && other.depth >= row.depth)) continue;
    const i = firstEndingAfter(store, other, store.start[event]);
    if (i < other.last && store.start[i] <= store.start[event] && endOf(store, i) >= endOf(store, event)) open.push(i);
  }
  return open.sort((a, b) => store.start[a] - store.start[b] || store.duration[b] - store.duration[a]);
}

// ---- search -----------------------------------------------------------------------------------------------

// Marks the events whose name holds the text, ignoring case, and that pass the filter; returns how many there are.
// A filter is { column, value }: the bucket or kind of an activity, or the name (cause) of idle time.
export function search(store, text, filter = null) {
  store.matches = text || filter ? matchSums(store, text.toLowerCase(), filter) : null;
  return store.matches ? store.matches[store.matches.length - 1] : 0;
}

// matches[i] is the number of matching events before i.
function matchSums(store, text, filter) {
  const { name, name_values: names } = store;
  const named = Uint8Array.from(names, (value) => Number(value.toLowerCase().includes(text)));
  const passes = filterOf(store, filter);
  const path = pathRow(store) ?? { first: 0, last: 0 }; // its intervals do not count
  const sums = new Uint32Array(name.length + 1);
  for (let i = 0; i < name.length; i++) sums[i + 1] = sums[i] + (named[name[i]] && !holds(path, i) && passes(i) ? 1 : 0);
  return sums;
}

function filterOf(store, filter) {
  if (!filter) return () => true;
  if (filter.column === 'bucket') {
    const code = store.bucket_values.indexOf(filter.value);
    return (i) => i < store.activities && store.detail[i] > 0 && store.bucket[store.detail[i] - 1] === code;
  }
  const code = store.kind_values.indexOf(filter.value);
  return (i) => store.kind[i] === code;
}

export function isMatch(store, from, to) {
  return store.matches[to] > store.matches[from];
}

// The next (direction 1) or previous (-1) match of an event in time, wrapping around, and its index.
export function neighbourMatch(store, event, direction) {
  const { matches, start } = store;
  const later = (a, b) => start[a] - start[b] || a - b;
  let [next, edge, place, count] = [-1, -1, 0, 0];
  const each = (visit) => { for (let i = 0; i < start.length; i++) if (matches[i + 1] > matches[i]) visit(i); };
  each((i) => {
    count += 1;
    if (event >= 0 && direction * later(i, event) > 0 && (next < 0 || direction * later(next, i) > 0)) next = i;
    if (edge < 0 || direction * later(edge, i) > 0) edge = i;
  });
  const target = next < 0 ? edge : next;
  each((i) => { if (later(i, target) <= 0) place += 1; });
  return { event: target, place, count };
}

// ---- instants ---------------------------------------------------------------------------------------------

// Index of the last step that began by a time; -1 before the first.
function stepAt({ time }, instant) {
  const next = lowerBound(time, instant, 0, time.length);
  return next < time.length && time[next] === instant ? next : next - 1;
}

export function valueAt(curve, instant) {
  const step = stepAt(curve, instant);
  return step < 0 ? 0 : curve.value[step];
}

// What the device of a queue did at an instant: while nothing was queued, how it idled in that time, if it did; else
// what ran, or the nearest that did.
export function eventAtInstant(store, curve, instant) {
  if (!curve) return -1;
  return idleAt(store, curve, instant) ?? nearest(store, rowsAt(store, curve.place, 'stream'), instant);
}

// The idle event at the time, else the first of the interval with an empty queue.
function idleAt(store, curve, instant) {
  const step = stepAt(curve, instant);
  if (step < 0 || curve.value[step] > 0) return undefined;
  const until = curve.time[step + 1] ?? Infinity;
  for (const time of [instant, curve.time[step]]) {
    for (const row of rowsAt(store, curve.place, 'idle')) {
      const event = firstEndingAfter(store, row, time);
      if (event < row.last && store.start[event] < until) return event;
    }
  }
  return undefined;
}

function nearest(store, rows, instant) {
  const away = (event) => Math.max(store.start[event] - instant, instant - endOf(store, event), 0);
  const events = rows.map((row) => eventAt(store, row, instant, Infinity)).filter((event) => event >= 0);
  return events.length ? events.reduce((best, event) => (away(event) < away(best) ? event : best)) : -1;
}
