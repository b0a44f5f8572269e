// The queue of each device, put together again from activities and launches: sending its steps too would make files a
// sixth larger. The same definition as `queue_depths` in trace_analyzer/analyses/run_ahead.py.

import { endOf, eventAt, firstEndingAfter, followers, lowerBound } from './store.js';

// Step functions of queue depth and queued work for each device with known launches.
export function queueCurves(store) {
  const groups = [...new Set(store.tracks.filter(({ family }) => family === 'stream').map(({ group }) => group))];
  return groups.flatMap((group) => {
    const steps = queueSteps(store, group);
    const place = group.split(' · ')[0];
    return steps.time.length ? [{ kind: 'queue', place, time: steps.time, value: steps.depth }, { kind: 'queued_work', place, time: steps.time, value: steps.queuedWork }] : [];
  });
}

// One more queued where a launch ended, one less where its activity started; an activity that started before its
// launch returned was never queued.
function queueSteps(store, group) {
  const rows = (chosen) => store.rows.filter(({ track }) => chosen(store.tracks[track]));
  const streams = rows((track) => track.family === 'stream' && track.group === group);
  const isHere = new Uint8Array(store.activities);
  for (const { first, count } of streams) isHere.fill(1, first, first + count);
  const queued = (i) => store.link[i] >= 0 && store.start[i] >= endOf(store, store.link[i]);
  const left = streams.map((row) => changes(row, (i, add) => { if (queued(i)) add(store.start[i], -1, -store.duration[i]); }));
  const entered = rows(({ family }) => family === 'calls').map((row) => changes(row, (launch, add) => {
    for (const i of followers(store, launch)) if (isHere[i] && queued(i)) add(endOf(store, launch), 1, store.duration[i]);
  }));
  return accumulated(merged([...left, ...entered].filter(({ time }) => time.length)));
}

// Changes of depth and queued work along one row, in order of time since the row's events are disjoint.
function changes({ first, count }, visit) {
  const [time, depth, queuedWork] = [[], [], []];
  const add = (at, more, duration) => {
    time.push(at);
    depth.push(more);
    queuedWork.push(duration);
  };
  for (let i = first; i < first + count; i++) visit(i, add);
  return { time, depth, queuedWork };
}

// Merge many sorted lists into one, pairwise.
function merged(lists) {
  let left = lists;
  while (left.length > 1) {
    const next = [];
    for (let i = 0; i < left.length; i += 2) next.push(i + 1 < left.length ? mergedPair(left[i], left[i + 1]) : left[i]);
    left = next;
  }
  return left[0] ?? { time: [], depth: [], queuedWork: [] };
}

function mergedPair(a, b) {
  const length = a.time.length + b.time.length;
  const result = { time: new Float64Array(length), depth: new Float64Array(length), queuedWork: new Float64Array(length) };
  for (let i = 0, j = 0, k = 0; k < length; k++) {
    const fromA = j >= b.time.length || (i < a.time.length && a.time[i] <= b.time[j]);
    const [source, at] = fromA ? [a, i++] : [b, j++];
    result.time[k] = source.time[at];
    result.depth[k] = source.depth[at];
    result.queuedWork[k] = source.queuedWork[at];
  }
  return result;
}

// Running sums, one step per time.
function accumulated({ time, depth, queuedWork }) {
  const steps = { time: new Float64Array(time.length), depth: new Float64Array(time.length), queuedWork: new Float64Array(time.length) };
  let [depthNow, queuedWorkNow, count] = [0, 0, 0];
  for (let i = 0; i < time.length; i++) {
    depthNow += depth[i];
    queuedWorkNow += queuedWork[i];
    if (i + 1 < time.length && time[i + 1] === time[i]) continue;
    steps.time[count] = time[i];
    steps.depth[count] = depthNow;
    steps.queuedWork[count] = queuedWorkNow;
    count += 1;
  }
  return { time: steps.time.subarray(0, count), depth: steps.depth.subarray(0, count), queuedWork: steps.queuedWork.subarray(0, count) };
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
  const rows = (family) => store.rows.filter(({ track }) => store.tracks[track].family === family && store.tracks[track].group.split(' · ')[0] === curve.place);
  return idleAt(store, rows('idle'), curve, instant) ?? nearest(store, rows('stream'), instant);
}

// The idle event at the time, else the first of the interval with an empty queue.
function idleAt(store, rows, curve, instant) {
  const step = stepAt(curve, instant);
  if (step < 0 || curve.value[step] > 0) return undefined;
  const until = curve.time[step + 1] ?? Infinity;
  for (const time of [instant, curve.time[step]]) {
    for (const row of rows) {
      const event = firstEndingAfter(store, row, time);
      if (event < row.first + row.count && store.start[event] < until) return event;
    }
  }
  return undefined;
}

function nearest(store, rows, instant) {
  const away = (event) => Math.max(store.start[event] - instant, instant - endOf(store, event), 0);
  const events = rows.map((row) => eventAt(store, row, instant, Infinity)).filter((event) => event >= 0);
  return events.length ? events.reduce((best, event) => (away(event) < away(best) ? event : best)) : -1;
}
