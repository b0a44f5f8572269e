// The facts about an event, as label and value: plain text, wherever it is shown.

import { formatCount, formatDuration, formatQuantity } from './format.js';
import { edgeText } from './path.js';
import { classOf, frameLabel } from './python_class.js';
import { followers, isActivity, linked, stackOf, trackOf } from './store.js';

const SHORT_CHAIN = 3;

export function eventName(store, event) {
  return store.name_values[store.name[event]];
}

// The short name with the class of a Python frame, or the label of a cause of idle time.
export function eventLabel(store, words, event) {
  const label = store.labels[store.name[event]];
  return ['idle', 'exposed', 'path'].includes(trackOf(store, event).family) ? words[label] ?? label : frameLabel(store, event, label);
}

// The known facts for a tooltip, the most important first.
export function describe(store, words, event) {
  const track = trackOf(store, event);
  const facts = [
    ['Duration', formatDuration(store.duration[event])],
    ['Start', formatDuration(store.start[event])],
    ['On', `${track.group.split(' · ')[0]}, ${track.label}`],
  ];
  const stack = stackOf(store, event);
  if (isActivity(store, event)) facts.push(...describeActivity(store, words, event, stack));
  else if (track.family === 'idle') facts.push(...describeIdle(store, words, event));
  else if (track.family === 'path') facts.push(...describePath(store, words, event));
  else facts.push(...describeHost(store, event));
  facts.push(['Inside', chain(store, track.thread === null ? stack.slice(0, -1) : stack)]);
  return facts.filter(([, value]) => value);
}

// Start, end and length to the nanosecond, as in the trace.
export function exactTimes(store, event) {
  const ns = (value) => `${formatCount(Math.round(value))} ns`;
  return [['Starts at', ns(store.start[event])], ['Ends at', ns(store.start[event] + store.duration[event])], ['Lasts', ns(store.duration[event])]];
}

// Everything that an event's arrows lead to: the launch of an activity, what a call launched, the other pass.
export function otherEnds(store, event) {
  const { source, targets } = linked(store, event);
  return source < 0 ? [...targets] : [source, ...targets];
}

// A detail of an event: its text or number; '' or 0 when unknown.
export function detail(store, event, column) {
  const row = store.detail[event];
  if (!row) return column in store && !(`${column}_values` in store) ? 0 : '';
  const value = store[column][row - 1];
  return `${column}_values` in store ? store[`${column}_values`][value] : value;
}

function describeActivity(store, words, event, stack) {
  const of = (column) => detail(store, event, column);
  const seconds = store.duration[event] / 1e9;
  const launch = store.link[event];
  const operator = stack.findLast((open) => trackOf(store, open).family === 'operators');
  return [
    ['Bucket', words[of('bucket')] ?? of('bucket')],
    ['Bound by', words[of('bound')] ?? of('bound')],
    ['Operator', of('operator')],
    ['Inputs', operator === undefined ? '' : inputs(store, operator)],
    ['Type', of('dtype')],
    ['Work', quantity(of('flop'), 'FLOP')],
    ['Arithmetic', seconds ? quantity(of('flop') / seconds, 'FLOP/s') : ''],
    ['Traffic at least', quantity(of('moved_bytes'), 'B')],
    ['Bandwidth at least', seconds ? quantity(of('moved_bytes') / seconds, 'B/s') : ''],
    ['Copied', quantity(of('bytes'), 'B')],
    ['Bandwidth', seconds ? quantity(of('bytes') / seconds, 'B/s') : ''],
    ['Grid', of('grid')],
    ['Block', of('block')],
    ['Registers', of('registers_per_thread') ? `${of('registers_per_thread')} per thread` : ''],
    ['Shared memory', quantity(of('shared_memory_bytes'), 'B')],
    ['Occupancy', of('occupancy_percent') ? `${of('occupancy_percent')} %, estimated` : ''],
    ['Launched', launch < 0 ? 'by an unknown call' : leadText(store.start[event] - store.start[launch] - store.duration[launch])],
  ];
}

function describeIdle(store, words, event) {
  const cause = eventName(store, event);
  return [
    ['Cause', words[cause] ?? cause],
    ['Host was in', store.link[event] < 0 ? '' : eventName(store, store.link[event])],
  ];
}

function describePath(store, words, event) {
  const of = (column) => detail(store, event, column);
  return [
    ['Bucket or cause', eventLabel(store, words, event)],
    ['What', edgeText(of('edge'))],
    ['Operator', of('operator')],
    ['Module', of('module')],
    ['Function', of('python_function')],
  ];
}

function describeHost(store, event) {
  const of = (column) => detail(store, event, column);
  const targets = followers(store, event);
  const activities = [...targets.subarray(0, 1)].some((target) => isActivity(store, target));
  const source = store.link[event];
  return [
    ['Class', classOf(store, event)],
    ['Inputs', inputs(store, event)],
    ['Collective', of('collective')],
    ['Message', of('message_elements') ? `${formatCount(of('message_elements'))} × ${of('message_dtype') || 'elements'}` : ''],
    ['Group', of('group_size') ? `${formatCount(of('group_size'))} ranks` : ''],
    [activities ? 'Launches' : 'Backward', targets.length ? severalText(store, targets) : ''],
    ['Forward', source < 0 || trackOf(store, event).thread === null ? '' : eventName(store, source)],
    ['Call', source < 0 || trackOf(store, event).thread !== null ? '' : eventName(store, source)],
    ['Recorded stack', of('call_stack')],
  ];
}

// Types and shapes of an operator's tensors, as in "float [128, 256], float [256]".
function inputs(store, event) {
  const [shapes, types] = [list(detail(store, event, 'input_dims')), list(detail(store, event, 'input_types'))];
  return shapes
    .map((shape, i) => (Array.isArray(shape) && shape.length ? `${String(types[i] ?? '').replace(/^c10::/, '')} ${JSON.stringify(shape).replaceAll(',', ', ')}`.trim() : ''))
    .filter(Boolean)
    .join(', ');
}

function list(text) {
  try {
    const value = JSON.parse(text);
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}

function chain(store, stack) {
  const shown = stack.slice(-SHORT_CHAIN).map((event) => store.labels[store.name[event]]);
  return (stack.length > SHORT_CHAIN ? ['…', ...shown] : shown).join(' › ');
}

function severalText(store, events) {
  return events.length === 1 ? eventName(store, events[0]) : `${formatCount(events.length)} events, ${eventName(store, events[0])} first`;
}

function leadText(lead) {
  return lead < 0 ? 'while its launch call was running' : `${formatDuration(lead)} ahead`;
}

function quantity(value, unit) {
  return value ? formatQuantity(value, unit) : '';
}
