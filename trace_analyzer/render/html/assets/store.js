// The events in memory: typed arrays in row order, and the questions that the timeline asks of them.

const CHUNK = 64;

export function buildStore({ header, columns }) {
  const rows = header.tracks.flatMap((track, trackId) =>
    track.rows.map(([first, count], depth) => ({ first, count, depth, track: trackId })));
  const store = {
    ...columns,
    rows,
    tracks: header.tracks,
    labels: header.labels,
    end: header.end,
    link: Int32Array.from(columns.link),
    start: absoluteStarts(rows, columns.gap, columns.duration),
    queues: queueSlices(header.queues, columns),
    matches: null,
  };
  store.sums = chunkSums(store);
  store.launched = invertLinks(store);
  return store;
}

function absoluteStarts(rows, gap, duration) {
  const start = new Float64Array(gap.length);
  for (const { first, count } of rows) {
    let end = 0;
    for (let i = first; i < first + count; i++) {
      start[i] = end + gap[i];
      end = start[i] + duration[i];
    }
  }
  return start;
}

function queueSlices(queues, columns) {
  let offset = 0;
  return queues.map(([device, length]) => {
    const from = offset;
    offset += length;
    return { device, time: columns.queue_time.subarray(from, offset), depth: columns.queue_depth.subarray(from, offset) };
  });
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

// First activity of each launch, as a map from launch to activity with the number of activities.
function invertLinks({ link, bucket }) {
  const launched = new Map();
  for (let i = 0; i < bucket.length; i++) {
    if (link[i] < 0) continue;
    const known = launched.get(link[i]);
    if (known) known.count += 1;
    else launched.set(link[i], { first: i, count: 1 });
  }
  return launched;
}

// Position of the first of the sorted numbers [from, to) that is not less than `value`.
export function lowerBound(sorted, value, from, to) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (sorted[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

// First event of a row that ends after `time`.
export function firstEndingAfter(store, row, time) {
  const from = lowerBound(store.start, time, row.first, row.first + row.count);
  const before = from - 1;
  return before >= row.first && store.start[before] + store.duration[before] > time ? before : from;
}

// The event of a row at `time`, else the nearest one no further than `tolerance`; -1 if there is none.
export function eventAt(store, row, time, tolerance) {
  const next = lowerBound(store.start, time, row.first, row.first + row.count);
  let best = -1;
  let nearest = tolerance;
  for (const i of [next - 1, next]) {
    if (i < row.first || i >= row.first + row.count) continue;
    const away = Math.max(store.start[i] - time, time - store.start[i] - store.duration[i], 0);
    if (away <= nearest) [best, nearest] = [i, away];
  }
  return best;
}

export function rowOf(store, event) {
  return store.rows.find(({ first, count }) => event >= first && event < first + count);
}

// Marks the events whose name holds the text, ignoring case; returns how many there are.
export function search(store, text) {
  store.matches = text ? matchSums(store, text.toLowerCase()) : null;
  return store.matches ? store.matches[store.matches.length - 1] : 0;
}

// matches[i] is the number of matching events before i.
function matchSums({ name, name_values: names }, text) {
  const matching = names.map((value) => value.toLowerCase().includes(text));
  const sums = new Uint32Array(name.length + 1);
  for (let i = 0; i < name.length; i++) sums[i + 1] = sums[i] + (matching[name[i]] ? 1 : 0);
  return sums;
}

export function isMatch(store, from, to) {
  return store.matches[to] > store.matches[from];
}

// The match that follows (direction 1) or precedes (-1) an event in time, around the ends, and its place.
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
  const found = next < 0 ? edge : next;
  each((i) => { if (later(i, found) <= 0) place += 1; });
  return { event: found, place, count };
}
