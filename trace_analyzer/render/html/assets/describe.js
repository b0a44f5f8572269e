// The class that a Python frame is a method of, where the trace tells: PyTorch records a call of a module as an event around
// the frames that make it, of which only `forward` is the module's own.

import { factElement, formatCount, formatDuration, formatMemory, formatQuantity, made, Part, placeTip, shortened } from './common.js';
import { endOf, followers, holds, isActivity, linked, lowerBound, pathRow, rowOf, rowsAt, stackOf } from './store.js';

const MODULE = /^nn\.Module: (.+?)(?:_\d+)?$/;
const MACHINERY = /(?:^|[/\\])torch[/\\]nn[/\\]modules[/\\]module\.py\(/;
const METHOD = /^<(?:built-in )?method '?([\w.]+)'? of '?(?:type )?([\w.]+)'?(?: objects?)?/;

const MOST_KNOWN = 20_000;

// The class of a frame; '' for a function, and where it is not recorded. Cached, as labels need it in every frame drawn.
export function classOf(store, event) {
  if (rowOf(store, event).family !== 'python') return '';
  store.classes ??= new Map();
  if (store.classes.size > MOST_KNOWN) store.classes.clear();
  if (!store.classes.has(event)) store.classes.set(event, innermostModule(store, event));
  return store.classes.get(event);
}

function innermostModule(store, event) {
  const inner = stackOf(store, event).findLast((open) => !MACHINERY.test(eventName(store, open)) && open !== event);
  return inner === undefined ? '' : MODULE.exec(eventName(store, inner))?.[1] ?? '';
}

// The label of a frame with its class: `Linear.forward · linear.py`; a method of a built-in type as `Tensor.item`.
export function frameLabel(store, event, label) {
  if (rowOf(store, event).family !== 'python') return label;
  const method = METHOD.exec(eventName(store, event));
  if (method) return method[2] === 'type' || method[2] === 'object' ? method[1] : `${method[2].split('.').at(-1)}.${method[1]}`;
  const owner = label.includes(' · ') ? classOf(store, event) : '';
  return owner ? `${owner}.${label}` : label;
}

// The facts about an event, as label and value: plain text, wherever it is shown.

const SHORT_CHAIN = 3;

export function eventName(store, event) {
  return store.name_values[store.name[event]];
}

// The short name with the class of a Python frame, or the label of a cause of idle time.
export function eventLabel(store, words, event) {
  const label = store.labels[store.name[event]];
  return ['idle', 'exposed', 'path'].includes(rowOf(store, event).family) ? words[label] ?? label : frameLabel(store, event, label);
}

// The known facts for a tooltip, the most important first.
export function describe(store, words, event) {
  const row = rowOf(store, event);
  const facts = [
    ['Duration', formatDuration(store.duration[event])],
    ['Start', formatDuration(store.start[event])],
    ['On', `${row.place}, ${row.label}`],
  ];
  const stack = stackOf(store, event);
  if (isActivity(store, event)) facts.push(...describeActivity(store, words, event, stack));
  else if (row.family === 'idle') facts.push(...describeIdle(store, words, event));
  else if (row.family === 'path') facts.push(...describePath(store, words, event));
  else facts.push(...describeHost(store, event));
  facts.push(['Inside', chain(store, row.thread === null ? stack.slice(0, -1) : stack)]);
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
  const operator = stack.findLast((open) => rowOf(store, open).family === 'operators');
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
    ['Shared memory', of('shared_memory_bytes') ? formatMemory(of('shared_memory_bytes')) : ''],
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
    ['What', EDGES[of('edge')] ?? of('edge')],
    ['Operator', of('operator')],
    ['Module', of('module')],
    ['Function', of('python_function')],
  ];
}

function describeHost(store, event) {
  const of = (column) => detail(store, event, column);
  const targets = followers(store, event);
  const source = store.link[event] < 0 ? '' : eventName(store, store.link[event]);
  const { thread } = rowOf(store, event);
  return [
    ['Class', classOf(store, event)],
    ['Inputs', inputs(store, event)],
    ['Collective', of('collective')],
    ['Message', of('message_elements') ? `${formatCount(of('message_elements'))} × ${of('message_dtype') || 'elements'}` : ''],
    ['Group', of('group_size') ? `${formatCount(of('group_size'))} ranks` : ''],
    [targets.length && isActivity(store, targets[0]) ? 'Launches' : 'Backward', targets.length ? severalText(store, targets) : ''],
    [thread === null ? 'Call' : 'Forward', source],
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

// What happened around an interval of idle time, as sentences: since when nothing was queued, what the CPU did and whose
// code that was, when the next work was launched, and what ended the waiting.

// Sentences on idle time, each with the event at its end, if any; none for other events.
export function idleStory(store, words, curves, event) {
  if (event < 0 || rowOf(store, event).family !== 'idle') return [];
  const { place } = rowOf(store, event);
  const gap = wholeGap(store, event);
  const next = workFrom(store, place, gap.end);
  const launch = next < 0 ? -1 : linked(store, next).source;
  return [emptiness(curves, place, gap), ...hostSentences(store, words, event), launchSentence(store, gap, launch), endSentence(store, gap, next)].filter(Boolean);
}

// From the end of the device's work before to the start of that after: idle time of several causes in a row.
function wholeGap(store, event) {
  const row = rowOf(store, event);
  let [first, last] = [event, event];
  while (first > row.first && endOf(store, first - 1) === store.start[first]) first -= 1;
  while (last + 1 < row.last && store.start[last + 1] === endOf(store, last)) last += 1;
  return { start: store.start[first], end: endOf(store, last) };
}

// The activity of a device that starts at a time; -1 if none does.
function workFrom(store, place, time) {
  for (const { first, last } of rowsAt(store, place, 'stream')) {
    const event = lowerBound(store.start, time, first, last);
    if (event < last && store.start[event] === time) return event;
  }
  return -1;
}

function emptiness(curves, place, gap) {
  const queue = curves.find((curve) => curve.kind === 'queue' && curve.place === place);
  if (!queue) return null;
  const step = lowerBound(queue.time, gap.start + 1, 0, queue.time.length) - 1;
  if (step >= 0 && queue.value[step] > 0) return { text: `${queue.value[step]} launched ${queue.value[step] === 1 ? 'activity was' : 'activities were'} queued when the device stopped: it waited for something else than a launch.` };
  const since = step < 0 ? null : gap.start - queue.time[step];
  return { text: since === null ? 'Nothing had been launched before.' : since === 0 ? 'The queue ran empty at that instant.' : `The queue had been empty for ${formatDuration(since)} when the device ran out of work.` };
}

function hostSentences(store, words, event) {
  const host = store.link[event];
  const cause = eventName(store, event);
  if (host < 0) return [{ text: `Cause: ${words[cause] ?? cause}. No event of the CPU is recorded for it.` }];
  const stack = stackOf(store, host);
  const family = (open) => rowOf(store, open).family;
  const module = stack.findLast((open) => family(open) === 'modules');
  const frames = [...stack, host].filter((open) => family(open) === 'python');
  const own = frames.findLast((open) => isOwn(store, open)) ?? frames.at(-1);
  return [
    { text: `Cause: ${words[cause] ?? cause}. The CPU was in`, event: host },
    own !== undefined && own !== host ? { text: 'called from', event: own } : null,
    module !== undefined ? { text: 'inside of module', event: module } : null,
  ].filter(Boolean);
}

// Whether a Python frame is neither of an installed package nor of Python itself.
function isOwn(store, event) {
  return store.own?.has(store.kind_values[store.kind[event]]) ?? false;
}

function launchSentence(store, gap, launch) {
  if (launch < 0) return null;
  const [begin, end] = [store.start[launch] - gap.start, endOf(store, launch) - gap.start];
  const when = begin < 0 && end <= 0 ? `${formatDuration(-end)} before the device ran out of work` : begin < 0 ? 'while the device ran out of work' : `${formatDuration(begin)} after the device ran out of work`;
  return { text: `The next work was launched ${when}, by`, event: launch };
}

function endSentence(store, gap, next) {
  const length = formatDuration(gap.end - gap.start);
  return next < 0 ? { text: `The device was idle for ${length} in all.` } : { text: `After ${length} in all the waiting ended with`, event: next };
}

const EDGES = {
  thread: 'work of the CPU',
  call: 'call of the runtime',
  'launch-latency': 'from launch to start',
  execution: 'work of the device',
  'stream-order': 'gap between neighbours on a stream',
  'stream-wait': 'wait for another stream',
  contention: 'wait for room on the device',
  synchronization: 'wait of the CPU for the device',
  polling: 'wait of the CPU that polls the device',
  'hand-over': 'wait for another thread',
  'queue-room': 'wait for room in the launch queue',
};

// The event of an interval of the path, and the intervals before and after it: sentences, each with a link.
export function pathStory(store, event) {
  const row = pathRow(store);
  if (!row || !holds(row, event)) return [];
  return [
    store.link[event] < 0 ? { text: 'No event is recorded for it.' } : { text: 'It belongs to', event: store.link[event] },
    event > row.first ? { text: 'Before it, the path goes through', event: event - 1 } : null,
    event + 1 < row.last ? { text: 'After it, through', event: event + 1 } : null,
  ].filter(Boolean);
}

// Describe an event: the panel of the selected one, and the card under the pointer.

const PANEL_GAP_PX = 12;

export class Panels extends Part {
  // The details panel must not cover the row of its event.
  uncover(event) {
    const hidden = () => this.scroller.getBoundingClientRect().top + this.timeline.tracks.rowInLayout(event).bottom - this.element('dock').getBoundingClientRect().top;
    if (hidden() > 0 && !this.timeline.tracks.rowInLayout(event).pinned) this.scroller.scrollTop += hidden() + PANEL_GAP_PX;
    if (hidden() > 0 && !this.timeline.tracks.isFull) scrollBy({ top: hidden() + PANEL_GAP_PX, behavior: 'instant' });
  }

  drawDetails() {
    const panel = this.element('details');
    panel.hidden = this.timeline.selected < 0;
    if (panel.hidden) return;
    const name = this.element('details-name');
    const titles = { idle: 'Idle: ', path: 'Critical path: ' };
    const title = titles[rowOf(this.store, this.timeline.selected).family];
    name.textContent = name.title = title ? title + eventLabel(this.store, this.words, this.timeline.selected) : eventName(this.store, this.timeline.selected);
    const facts = describe(this.store, this.words, this.timeline.selected).filter(([term]) => term !== 'Inside' && term !== 'Host was in');
    const [duration, start, ...rest] = facts;
    const exact = [...exactTimes(this.store, this.timeline.selected), ...rest];
    this.element('details-facts').replaceChildren(...[duration, start, ...exact].map(factElement));
    const story = [...idleStory(this.store, this.words, this.timeline.curves, this.timeline.selected), ...pathStory(this.store, this.timeline.selected)];
    this.element('story').hidden = !story.length;
    this.element('story').replaceChildren(...story.map((step) => this.itemElement(step)));
    this.drawStack();
    this.element('show-arrow').hidden = !otherEnds(this.store, this.timeline.selected).length;
    this.element('go-other').hidden = this.element('show-arrow').hidden;
  }

  // A sentence, with a link to the event that it names; or the link alone.
  itemElement({ text, event }) {
    const item = document.createElement('li');
    if (text) item.append(text);
    if (event === undefined) return item;
    const name = rowOf(this.store, event).family === 'path' ? eventLabel(this.store, this.words, event) : eventName(this.store, event);
    const way = made('button', { type: 'button', textContent: name });
    way.addEventListener('click', () => this.timeline.goTo(event));
    item.append(...(text ? [' '] : []), way);
    return item;
  }

  // The open frames around the event, each with a link.
  drawStack() {
    const stack = stackOf(this.store, this.timeline.selected);
    this.element('details-stack').parentElement.hidden = !stack.length;
    this.element('details-stack').replaceChildren(...stack.reverse().map((event) => this.itemElement({ event })));
  }

  drawTooltip(pointer) {
    const event = this.timeline.eventUnder(pointer);
    if (event < 0) this.element('tooltip').hidden = true;
    else this.placeTooltip(pointer, eventName(this.store, event), describe(this.store, this.words, event));
  }

  placeTooltip(pointer, name, facts) {
    const tooltip = this.element('tooltip');
    tooltip.hidden = false;
    tooltip.replaceChildren(made('strong', { textContent: shortened(name, 240) }), ...facts.map(factElement));
    const dock = this.element('dock'); // it stays above that
    const floor = dock.offsetHeight ? Math.min(innerHeight, dock.getBoundingClientRect().top) : innerHeight;
    placeTip(tooltip, { left: pointer.clientX + 14, top: Math.min(pointer.clientY - 6, floor), bottom: pointer.clientY + 10 }, floor);
  }

  drawCrosshair(pointer) {
    const line = this.element('crosshair');
    line.hidden = pointer === null;
    if (pointer === null) return;
    const { left } = this.element('canvas').getBoundingClientRect();
    line.style.left = `${pointer.clientX - left}px`;
  }

  leave() {
    this.element('tooltip').hidden = true;
    this.drawCrosshair(null);
  }
}
