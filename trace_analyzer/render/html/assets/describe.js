// What is said about an event, as label and value: plain text, wherever it is shown.

import { formatCount, formatDuration, formatQuantity } from './format.js';
import { rowOf } from './store.js';

export function eventName(store, event) {
  return store.name_values[store.name[event]];
}

// The facts worth a tooltip, the most telling first.
export function describe(store, words, event) {
  const track = store.tracks[rowOf(store, event).track];
  const facts = [
    ['Duration', formatDuration(store.duration[event])],
    ['Start', formatDuration(store.start[event])],
    ['On', `${track.group}, ${track.label}`],
  ];
  if (isActivity(store, event)) facts.push(...describeActivity(store, event));
  if (track.family === 'idle') facts.push(...describeIdle(store, words, event));
  const launched = store.launched.get(event);
  if (launched) facts.push(['Launches', launchedText(store, launched)]);
  return facts;
}

export function isActivity(store, event) {
  return event < store.bucket.length;
}

// The other end of an event's arrow: its launch, or the first activity that it launched; -1 if unknown.
export function otherEnd(store, event) {
  return store.launched.get(event)?.first ?? store.link[event];
}

function describeActivity(store, event) {
  const text = (column) => store[`${column}_values`][store[column][event]];
  const seconds = store.duration[event] / 1e9;
  const launch = store.link[event];
  const facts = [
    ['Bucket', text('bucket')],
    ['Bound by', text('bound')],
    ['Operator', text('operator')],
    ['Grid', text('grid')],
    ['Block', text('block')],
    ['Registers', store.registers_per_thread[event] ? `${store.registers_per_thread[event]} per thread` : ''],
    ['Shared memory', quantity(store.shared_memory_bytes[event], 'B')],
    ['Copied', quantity(store.bytes[event], 'B')],
    ['Bandwidth', seconds ? quantity(store.bytes[event] / seconds, 'B/s') : ''],
    ['Arithmetic', seconds ? quantity(store.flop[event] / seconds, 'FLOP/s') : ''],
    ['Traffic at least', seconds ? quantity(store.moved_bytes[event] / seconds, 'B/s') : ''],
    ['Launched', launch < 0 ? 'by an unknown call' : leadText(store.start[event] - store.start[launch] - store.duration[launch])],
  ];
  return facts.filter(([, value]) => value);
}

function describeIdle(store, words, event) {
  const cause = eventName(store, event);
  const facts = [['Cause', words[cause] ?? cause]];
  if (store.link[event] >= 0) facts.push(['Host was in', eventName(store, store.link[event])]);
  return facts;
}

function launchedText(store, { first, count }) {
  return count === 1 ? eventName(store, first) : `${formatCount(count)} activities`;
}

function leadText(lead) {
  return lead < 0 ? 'while its launch call was running' : `${formatDuration(lead)} ahead`;
}

function quantity(value, unit) {
  return value ? formatQuantity(value, unit) : '';
}
