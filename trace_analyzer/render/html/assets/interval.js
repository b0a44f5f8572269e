// What happened between two times: sums over the events there, each clipped to the interval.

import { formatCount, formatDuration, formatShare, Part, tableElement } from './common.js';
import { addTo, endOf, firstEndingAfter, rowsAt } from './store.js';

const TOP = 8;
const MOST_THREADS = 4;
const HOST_FAMILIES = [['operators', 'operator'], ['calls', 'call'], ['python', 'Python']];

// Per device: time accounted for, busy and idle time, and time with counts by bucket, by cause of idling and by name.
// Per thread: time in its outermost events, and self time by operator, call and Python function.
export function statistics(store, from, to) {
  const places = [...new Set(store.rows.filter(({ family }) => family === 'stream').map(({ place }) => place))];
  return {
    from,
    to,
    devices: places.map((place) => deviceStatistics(store, place, from, to)),
    threads: threads(store).map(([thread, group]) => threadStatistics(store, thread, group, from, to)).filter(({ names }) => names.length),
  };
}

// The threads with most events; threads that launch come first, as in the order of tracks.
function threads(store) {
  const groups = new Map();
  for (const { thread, group } of store.tracks) if (thread !== null && !groups.has(thread)) groups.set(thread, group);
  return [...groups].slice(0, MOST_THREADS);
}

// Self time: time inside a nested event on the same track counts for the nested event only.
function threadStatistics(store, thread, group, from, to) {
  const names = HOST_FAMILIES.flatMap(([family, label]) => ownTimes(store, store.rows.filter((row) => row.thread === thread && row.family === family), from, to)
    .map((sum) => ({ ...sum, family: label })));
  return { group, names: names.sort(byTime) };
}

function byTime(a, b) {
  return b.ns - a.ns || (a.key < b.key ? -1 : 1);
}

// { key, ns, count } by label over the rows of one track: time clipped to the interval, minus that of the row below.
function ownTimes(store, rows, from, to) {
  const totals = new Map();
  const add = (event, ns, count) => addTo(totals, store.labels[store.name[event]], ns, count);
  const sorted = [...rows].sort((a, b) => a.depth - b.depth);
  sorted.forEach((row, place) => {
    const above = sorted[place - 1];
    for (let i = firstEndingAfter(store, row, from); i < row.last && store.start[i] < to; i++) {
      const ns = Math.min(endOf(store, i), to) - Math.max(store.start[i], from);
      add(i, ns, 1);
      const parent = above ? firstEndingAfter(store, above, store.start[i]) : -1;
      if (above && parent < above.last && store.start[parent] <= store.start[i]) add(parent, -ns, 0);
    }
  });
  return [...totals.values()].filter(({ ns }) => ns > 0);
}

function deviceStatistics(store, place, from, to) {
  const streams = rowsAt(store, place, 'stream');
  const begin = Math.min(...streams.map(({ first }) => store.start[first]));
  const end = Math.max(...streams.map(({ last }) => endOf(store, last - 1)));
  const causes = sums(store, rowsAt(store, place, 'idle'), from, to, (i) => store.name_values[store.name[i]]);
  const windowNs = Math.max(0, Math.min(end, to) - Math.max(begin, from));
  const idleNs = causes.reduce((total, { ns }) => total + ns, 0);
  return {
    place,
    windowNs,
    busyNs: windowNs - idleNs,
    idleNs,
    buckets: sums(store, streams, from, to, (i) => bucketOf(store, i)),
    causes,
    kernels: sums(store, streams, from, to, (i) => store.name_values[store.name[i]]).map((sum) => ({ ...sum, label: store.labels[store.name_values.indexOf(sum.key)] })),
  };
}

// The bucket of a kernel, or the kind of another activity.
export function bucketOf(store, event) {
  const detail = store.detail[event];
  return (detail && store.bucket_values[store.bucket[detail - 1]]) || store.kind_values[store.kind[event]];
}

// { key, ns, count } by key, largest time first.
function sums(store, rows, from, to, keyOf) {
  const totals = new Map();
  for (const row of rows) {
    for (let i = firstEndingAfter(store, row, from); i < row.last && store.start[i] < to; i++) {
      addTo(totals, keyOf(i), Math.min(endOf(store, i), to) - Math.max(store.start[i], from));
    }
  }
  return [...totals.values()].sort(byTime);
}

// The statistics as tables for the page and for the clipboard: title, heads, rows of cells.
export function statisticsTables({ devices, threads: hosts }, words) {
  const named = (table, place) => ({ ...table, title: devices.length > 1 ? `${place}: ${table.title.toLowerCase()}` : table.title });
  const tables = devices.flatMap((device) => [
    table('Busy and idle', ['', 'Time', 'Share'], [['Busy', device.busyNs], ['Idle', device.idleNs]].map(([name, ns]) => [name, formatDuration(ns), formatShare(ns, device.windowNs)])),
    table('Idle by cause', ['Cause', 'Time', 'Share'], device.causes.map(({ key, ns }) => [words[key] ?? key, formatDuration(ns), formatShare(ns, device.windowNs)])),
    table('Device time by bucket', ['Bucket', 'Count', 'Time', 'Share'], device.buckets.map((sum) => timed({ ...sum, label: words[sum.key] }, device.buckets))),
    table('Top activities', ['Name', 'Count', 'Time', 'Share'], device.kernels.slice(0, TOP).map((sum) => timed(sum, device.kernels))),
  ].map((part) => named(part, device.place)));
  for (const { group, names } of hosts) {
    const rows = names.slice(0, TOP).map(({ key, family, ns, count }) => [key, family, formatCount(count), formatDuration(ns)]);
    tables.push(table(`${group}: own time`, ['Name', 'Kind', 'Count', 'Time'], rows));
  }
  return tables.filter(({ rows }) => rows.length);
}

function table(title, heads, rows) {
  return { title, heads, rows };
}

function timed({ key, label, ns, count }, all) {
  return [label ?? key, formatCount(count), formatDuration(ns), formatShare(ns, all.reduce((total, sum) => total + sum.ns, 0))];
}

// Tab-separated text, for spreadsheets and chats.
export function statisticsText(stats, words) {
  const head = `${formatDuration(stats.from)} to ${formatDuration(stats.to)} (${formatDuration(stats.to - stats.from)})`;
  const tables = statisticsTables(stats, words).map(({ title, heads, rows }) => [title, ...[heads, ...rows].map((row) => row.join('\t'))].join('\n'));
  return [head, ...tables].join('\n\n');
}

// The axis as a ruler: dragging on it selects an interval, whose statistics are shown.

export const CLICK_PX = 4;

export class Ruler extends Part {
  constructor(timeline) {
    super(timeline);
    this.interval = this.statistics = null;
    this.anchor = this.drawn = null; // while an interval is dragged
  }

  // Selects an interval and shows its statistics; null clears the selection.
  chooseInterval(interval) {
    const shown = interval && { from: Math.max(0, Math.round(interval.from)), to: Math.min(this.store.end, Math.round(interval.to)) };
    this.interval = shown && shown.from < shown.to ? shown : null;
    this.element('interval-panel').hidden = !this.interval;
    if (this.interval) {
      const { from, to } = this.interval;
      this.statistics = statistics(this.store, from, to);
      this.element('interval-title').textContent = `Selected ${formatDuration(to - from)}, from ${formatDuration(from)}`;
      this.element('interval-tables').replaceChildren(...statisticsTables(this.statistics, this.words).map(tableElement));
    }
    this.timeline.schedule();
  }

  drawInterval() {
    const band = this.element('interval');
    const shown = this.drawn ?? this.interval;
    if (band.hidden === Boolean(shown)) band.hidden = !shown;
    if (!shown) return;
    const [left, right] = [this.timeline.xOf(shown.from), this.timeline.xOf(shown.to)].map((x) => Math.max(-4, Math.min(x, this.timeline.plotWidth + 4)));
    band.style.left = `${left}px`;
    band.style.width = `${Math.max(1, right - left)}px`;
    band.dataset.length = formatDuration(shown.to - shown.from);
  }

  startInterval(event) {
    this.anchor = { time: this.timeline.timeAt(event.clientX), x: event.clientX };
    this.element('tooltip').hidden = true;
  }

  stretchInterval(event) {
    const times = [this.anchor.time, this.timeline.timeAt(event.clientX)].sort((a, b) => a - b);
    this.drawn = { from: times[0], to: times[1] };
    this.timeline.schedule();
  }

  endInterval(event) {
    this.stretchInterval(event);
    const isClick = Math.abs(event.clientX - this.anchor.x) < CLICK_PX;
    const chosen = this.drawn;
    this.anchor = this.drawn = null;
    this.chooseInterval(isClick ? null : chosen);
    if (this.interval) this.timeline.select(-1);
  }

  // The axis is a ruler: dragging on it chooses an interval.
  listenToAxis(axis) {
    axis.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      axis.setPointerCapture(event.pointerId);
      this.startInterval(event);
    });
    axis.addEventListener('pointermove', (event) => this.anchor && this.stretchInterval(event));
    axis.addEventListener('pointerup', (event) => this.anchor && this.endInterval(event));
    axis.addEventListener('pointercancel', () => { this.anchor = this.drawn = null; });
  }
}
