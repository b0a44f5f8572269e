// What happened between two times: sums over the events there, each clipped to the interval.

import { formatCount, formatDuration } from './format.js';
import { endOf, firstEndingAfter } from './store.js';

const TOP = 8;

// Per device: time accounted for, busy and idle time, and time with counts by bucket, by cause of idling and by name.
// Without a device: time with counts by operator, children included.
export function statistics(store, from, to) {
  const groups = [...new Set(store.tracks.filter(({ family }) => family === 'stream').map(({ group }) => group))];
  return {
    from,
    to,
    devices: groups.map((group) => deviceStatistics(store, group, from, to)),
    operators: groups.length ? [] : sums(store, rowsOf(store, ({ family }) => family === 'operators'), from, to, (i) => store.name_values[store.name[i]]),
  };
}

function deviceStatistics(store, group, from, to) {
  const streams = rowsOf(store, (track) => track.group === group && track.family === 'stream');
  const idleRows = rowsOf(store, (track) => track.group === group && track.family === 'idle');
  const begin = Math.min(...streams.map(({ first }) => store.start[first]));
  const end = Math.max(...streams.map(({ first, count }) => endOf(store, first + count - 1)));
  const causes = sums(store, idleRows, from, to, (i) => store.name_values[store.name[i]]);
  const windowNs = Math.max(0, Math.min(end, to) - Math.max(begin, from));
  const idleNs = causes.reduce((total, { ns }) => total + ns, 0);
  return {
    group,
    windowNs,
    busyNs: windowNs - idleNs,
    idleNs,
    buckets: sums(store, streams, from, to, (i) => bucketOf(store, i)),
    causes,
    kernels: sums(store, streams, from, to, (i) => store.name_values[store.name[i]]),
  };
}

// The bucket of a kernel; what kind of activity it is where it has none.
export function bucketOf(store, event) {
  const detail = store.detail[event];
  return (detail && store.bucket_values[store.bucket[detail - 1]]) || store.kind_values[store.kind[event]];
}

function rowsOf(store, chosen) {
  return store.rows.filter(({ track }) => chosen(store.tracks[track]));
}

// { key, ns, count } by key, the most time first.
function sums(store, rows, from, to, keyOf) {
  const totals = new Map();
  for (const row of rows) {
    const last = row.first + row.count;
    for (let i = firstEndingAfter(store, row, from); i < last && store.start[i] < to; i++) {
      const key = keyOf(i);
      const total = totals.get(key) ?? { key, ns: 0, count: 0 };
      total.ns += Math.min(endOf(store, i), to) - Math.max(store.start[i], from);
      total.count += 1;
      totals.set(key, total);
    }
  }
  return [...totals.values()].sort((a, b) => b.ns - a.ns || (a.key < b.key ? -1 : 1));
}

// The statistics as tables for the page and for the clipboard: title, heads, rows of cells.
export function statisticsTables({ devices, operators }, words) {
  const several = devices.length > 1;
  const named = (table, group) => ({ ...table, title: several ? `${group.split(' · ')[0]}: ${table.title.toLowerCase()}` : table.title });
  const tables = devices.flatMap((device) => [
    table('Busy and idle', ['', 'Time', 'Share'], [['Busy', device.busyNs], ['Idle', device.idleNs]].map(([name, ns]) => [name, formatDuration(ns), share(ns, device.windowNs)])),
    table('Idle by cause', ['Cause', 'Time', 'Share'], device.causes.map(({ key, ns }) => [words[key] ?? key, formatDuration(ns), share(ns, device.windowNs)])),
    table('Device time by bucket', ['Bucket', 'Count', 'Time', 'Share'], device.buckets.map((sum) => timed(sum, device.buckets))),
    table('Top activities', ['Name', 'Count', 'Time', 'Share'], device.kernels.slice(0, TOP).map((sum) => timed(sum, device.kernels))),
  ].map((part) => named(part, device.group)));
  if (!devices.length) tables.push(table('Operators, children included', ['Name', 'Count', 'Time'], operators.slice(0, TOP).map(({ key, ns, count }) => [key, formatCount(count), formatDuration(ns)])));
  return tables.filter(({ rows }) => rows.length);
}

function table(title, heads, rows) {
  return { title, heads, rows };
}

function timed({ key, ns, count }, all) {
  return [key, formatCount(count), formatDuration(ns), share(ns, all.reduce((total, sum) => total + sum.ns, 0))];
}

function share(ns, whole) {
  return whole ? `${((100 * ns) / whole).toFixed(1)} %` : '–';
}

// Tab-separated text, for spreadsheets and chats.
export function statisticsText(stats, words) {
  const head = `${formatDuration(stats.from)} to ${formatDuration(stats.to)} (${formatDuration(stats.to - stats.from)})`;
  const tables = statisticsTables(stats, words).map(({ title, heads, rows }) => [title, ...[heads, ...rows].map((row) => row.join('\t'))].join('\n'));
  return [head, ...tables].join('\n\n');
}
