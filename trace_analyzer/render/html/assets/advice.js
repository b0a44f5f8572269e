// What an advice concerns: its events on the timeline, their launches, and the modules that they belong to.

import { eventLabel } from './describe.js';
import { formatCount, formatDuration } from './format.js';
import { endOf, firstEndingAfter, linked, lowerBound, rowOf, stackOf } from './store.js';

const TOP_SUMS = 8;
const MOST_STACKS = 2000; // for finding launches and modules: each takes a search in every row of a thread

// The events inside the advice's intervals, a sentence on their number, and all outlines by row.
export function memberEvents(store, id) {
  const { total, members } = store.advice.get(id) ?? { total: 0, members: [] };
  const events = [...new Set(members.flatMap((member) => eventsWithin(store, member)))].sort((a, b) => store.start[a] - store.start[b]);
  const looked = events.slice(0, MOST_STACKS);
  const launches = looked.map((event) => linked(store, event).source).filter((launch) => launch >= 0);
  const modules = new Map(looked.map((event) => [event, moduleOf(store, event)]));
  const ns = events.reduce((sum, event) => sum + store.duration[event], 0);
  const longest = events.reduce((best, event, place) => (store.duration[event] > store.duration[events[best]] ? place : best), 0);
  const kept = total > members.length ? `; the longest ${formatCount(members.length)} of ${formatCount(total)} places` : '';
  return {
    events, modules, longest, place: longest,
    summary: `${formatCount(events.length)} ${events.length === 1 ? 'event' : 'events'} outlined, ${formatDuration(ns)} together${kept}. Their launches and modules are outlined too.`,
    outlines: byRow(store, [...events, ...launches, ...[...modules.values()].filter((module) => module >= 0)]),
  };
}

// Device activities within an interval, or its idle time without any.
function eventsWithin(store, { start, end, place }) {
  for (const family of ['stream', 'idle']) {
    const places = [];
    for (const row of store.rows) {
      const track = store.tracks[row.track];
      if (track.family !== family || track.group.split(' · ')[0] !== place) continue;
      const last = row.first + row.count;
      for (let i = lowerBound(store.start, start, row.first, last); i < last && store.start[i] < end; i++) if (endOf(store, i) <= end) places.push(i);
    }
    if (places.length) return places;
  }
  return idleAround(store, start, place);
}

// The idle event that contains the beginning of an interval cut by a window.
function idleAround(store, start, place) {
  for (const row of store.rows) {
    const track = store.tracks[row.track];
    if (track.family !== 'idle' || track.group.split(' · ')[0] !== place) continue;
    const event = firstEndingAfter(store, row, start);
    if (event < row.first + row.count && store.start[event] <= start) return [event];
  }
  return [];
}

// The innermost module around the launch of an event; -1 for none.
function moduleOf(store, event) {
  return stackOf(store, event).findLast((open) => store.tracks[rowOf(store, open).track].family === 'modules') ?? -1;
}

function byRow(store, events) {
  const rows = new Map();
  for (const event of new Set(events)) {
    const row = rowOf(store, event);
    rows.set(row, [...(rows.get(row) ?? []), event]);
  }
  return [...rows].map(([row, members]) => ({ row, events: members.sort((a, b) => store.start[a] - store.start[b]) }));
}

// Pairs of launch and member for arrows: an even sample of those in the view, as many as there is room for.
export function memberArrowEvents(store, { events }, { from, to }, most) {
  const shown = events.filter((event) => endOf(store, event) > from && store.start[event] < to);
  const step = Math.max(1, Math.ceil(shown.length / most));
  return shown.filter((_, i) => i % step === 0).map((event) => [linked(store, event).source, event]).filter(([launch]) => launch >= 0);
}

// The members by name and by module, largest time first.
export function memberTables(store, words, { events, modules }) {
  const sum = (summed, keyOf) => {
    const sums = new Map();
    for (const event of summed) {
      const key = keyOf(event);
      const known = sums.get(key) ?? { count: 0, ns: 0 };
      sums.set(key, { count: known.count + 1, ns: known.ns + store.duration[event] });
    }
    return [...sums].sort((a, b) => b[1].ns - a[1].ns).slice(0, TOP_SUMS).map(([key, { count, ns }]) => [key, formatCount(count), formatDuration(ns)]);
  };
  const heads = ['Name', 'Count', 'Time'];
  const byModule = sum(modules.keys(), (event) => (modules.get(event) < 0 ? 'no module' : store.labels[store.name[modules.get(event)]]));
  const share = modules.size < events.length ? `, of the first ${formatCount(modules.size)}` : '';
  return [
    { title: 'By name', heads, rows: sum(events, (event) => eventLabel(store, words, event)) },
    { title: `By module${share}`, heads, rows: byModule.length > 1 || byModule[0]?.[0] !== 'no module' ? byModule : [] },
  ].filter(({ rows }) => rows.length);
}
