// The critical path over the rows: a line along the work, the calls and the code that the steps waited for, one after the other.

import { formatCount, formatDuration, made, Part, shortened, tableElement } from './common.js';
import { eventLabel, eventName, otherEnds } from './describe.js';
import { around } from './layout.js';
import { addTo, endOf, firstEndingAfter, linked, lowerBound, pathRow, rowOf, rowsAt, stackOf, stepOf } from './store.js';

const LOOKED_AT = 256; // intervals within one piece: more are too narrow to distinguish

// The path between two times as pieces { from, to, event } of at least `quantum`: a wide stretch is its own piece, a run of
// narrow ones is one that stands where the longest of them belongs (`event`, -1 where no event is recorded for it).
export function pathPieces(store, row, from, to, quantum) {
  const { start, duration, link } = store;
  const pieces = [];
  for (let i = firstEndingAfter(store, row, from); i < row.last && start[i] < to;) {
    const next = duration[i] >= quantum ? i + 1 : lowerBound(start, start[i] + quantum, i + 1, row.last);
    let longest = i;
    for (let j = i + 1; j < Math.min(next, i + LOOKED_AT); j++) if (duration[j] > duration[longest]) longest = j;
    pieces.push({ from: Math.max(start[i], from), to: Math.min(endOf(store, next - 1), to), event: link[longest] });
    i = next;
  }
  return pieces;
}

// Draws pieces as one line: along the foot of each piece's row, thinner from row to row where the path goes on elsewhere.
// `footOf` gives the height for an event, undefined where its row is not shown; `xOf` the place of a time.
export function drawPath(ink, pieces, footOf, xOf, { colour, halo }) {
  const [along, across] = [[], []];
  let height;
  for (const { from, to, event } of pieces) {
    const foot = event < 0 ? height : footOf(event) ?? height;
    if (foot === undefined) continue;
    if (height !== undefined && height !== foot) across.push([xOf(from), height, xOf(from), foot]);
    along.push([xOf(from), foot, xOf(to), foot]);
    height = foot;
  }
  for (const [lines, width, style] of [[along, 5, halo], [across, 1, colour], [along, 2.5, colour]]) {
    ink.lineWidth = width;
    ink.strokeStyle = style;
    ink.beginPath();
    for (const [x0, y0, x1, y1] of lines) {
      ink.moveTo(x0, y0);
      ink.lineTo(x1, y1);
    }
    ink.stroke();
  }
}

// What an advice concerns: its events on the timeline, their launches, and the modules that they belong to.

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
  const kept = total > members.length ? `; the longest ${formatCount(members.length)} of ${formatCount(total)} intervals` : '';
  return {
    events, modules, place: 0, places: placesOf(store, events),
    summary: `${formatCount(events.length)} ${events.length === 1 ? 'event' : 'events'} outlined, ${formatDuration(ns)} together${kept}. Their launches and modules are outlined too.`,
    outlines: byRow(store, [...events, ...launches, ...[...modules.values()].filter((module) => module >= 0)]),
  };
}

// Where to go one after the other, in order of time: all events of a step together; without steps, each event.
function placesOf(store, events) {
  const places = [];
  for (const event of events) {
    const step = stepOf(store, event);
    const last = places.at(-1);
    if (store.steps.size && last && last.step === step) last.events.push(event);
    else places.push({ step, events: [event] });
  }
  return places;
}

// Device activities within an interval, else its idle time; of an interval cut by a window, the one that contains its beginning.
function eventsWithin(store, { start, end, place }) {
  for (const family of ['stream', 'idle']) {
    const events = [];
    for (const { first, last } of rowsAt(store, place, family)) {
      for (let i = lowerBound(store.start, start, first, last); i < last && store.start[i] < end; i++) if (endOf(store, i) <= end) events.push(i);
    }
    if (events.length) return events;
  }
  for (const row of rowsAt(store, place, 'idle')) {
    const event = firstEndingAfter(store, row, start);
    if (event < row.last && store.start[event] <= start) return [event];
  }
  return [];
}

// The innermost module around the launch of an event; -1 for none.
function moduleOf(store, event) {
  return stackOf(store, event).findLast((open) => rowOf(store, open).family === 'modules') ?? -1;
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
    for (const event of summed) addTo(sums, keyOf(event), store.duration[event]);
    return [...sums.values()].sort((a, b) => b.ns - a.ns).slice(0, TOP_SUMS).map(({ key, ns, count }) => [key, formatCount(count), formatDuration(ns)]);
  };
  const heads = ['Name', 'Count', 'Time'];
  const byModule = sum(modules.keys(), (event) => (modules.get(event) < 0 ? 'no module' : store.labels[store.name[modules.get(event)]]));
  const share = modules.size < events.length ? `, of the first ${formatCount(modules.size)}` : '';
  return [
    { title: 'By name', heads, rows: sum(events, (event) => eventLabel(store, words, event)) },
    { title: `By module${share}`, heads, rows: byModule.length > 1 || byModule[0]?.[0] !== 'no module' ? byModule : [] },
  ].filter(({ rows }) => rows.length);
}

// The outline of the selected event, its arrows, and the markers of ends outside the view.

export const ARROW_BUDGET = 200;
const EDGE_PX = 14;

export class Arrows extends Part {
  constructor(timeline) {
    super(timeline);
    this.isOutlined = false;
  }

  drawSelection() {
    const empty = { left: [], right: [], top: [], bottom: [] };
    const box = this.timeline.selected < 0 ? null : this.boxOf(this.timeline.selected);
    const arrows = this.timeline.selected < 0 ? [] : this.arrows();
    if (this.timeline.selected < 0 && !this.isOutlined) return; // nothing to draw or to erase
    this.isOutlined = this.timeline.selected >= 0;
    this.model('chosen').data = box ? { left: [box.left], right: [box.right], top: [box.top], bottom: [box.bottom] } : empty;
    const columns = ['x0', 'y0', 'x1', 'y1', 'cx0', 'cy0', 'cx1', 'cy1'];
    this.model('arrow').data = Object.fromEntries(columns.map((name) => [name, arrows.map((arrow) => arrow[name])]));
    this.drawEdgeMarkers(this.timeline.selected < 0 ? new Map() : this.endsBehindEdges());
  }

  // An event's box, at least a few pixels wide, so that the outline of a short event is visible.
  boxOf(event) {
    const row = this.timeline.tracks.rowInLayout(event);
    if (!row || this.timeline.tracks.isHidden(row)) return null;
    const { from, to } = this.timeline.view;
    const least = ((to - from) / this.timeline.plotWidth) * 3;
    const left = this.timeline.clipped(this.store.start[event]);
    const right = this.timeline.clipped(Math.max(endOf(this.store, event), this.store.start[event] + least));
    return { left, right, top: row.pinned ? row.top : Math.max(row.top, this.timeline.tracks.ceiling), bottom: row.bottom };
  }

  // From the end of a launch to the start of its activity, from a forward operator to its backward one.
  arrows() {
    const { source, targets } = linked(this.store, this.timeline.selected);
    const pairs = [...targets.subarray(0, ARROW_BUDGET)].map((target) => [this.timeline.selected, target]);
    if (source >= 0) pairs.push([source, this.timeline.selected]);
    return pairs.map(([tail, head]) => this.arrow(tail, head)).filter(Boolean);
  }

  arrow(tailEvent, headEvent) {
    const [tail, head] = [tailEvent, headEvent].map((event) => this.timeline.tracks.inSight(this.timeline.tracks.rowInLayout(event)));
    if (!tail || !head) return null;
    const [x0, x1] = [this.timeline.clipped(endOf(this.store, tailEvent)), this.timeline.clipped(this.store.start[headEvent])];
    const [y0, y1] = tail.top > head.top ? [tail.top, head.bottom] : [tail.bottom, head.top];
    const middle = (y0 + y1) / 2;
    return { x0, y0, x1, y1, cx0: x0, cy0: middle, cx1: x1, cy1: middle };
  }

  // For each edge with ends of arrows beyond it: the nearest end, its projected place, and the number of ends.
  endsBehindEdges() {
    const { from, to } = this.timeline.view;
    const height = this.scroller.clientHeight;
    const middle = (from + to) / 2;
    const behind = new Map();
    for (const event of otherEnds(this.store, this.timeline.selected).slice(0, ARROW_BUDGET)) {
      const row = this.timeline.tracks.rowInLayout(event);
      const { side, x, y } = this.placeOf(event, row, { from, to, height });
      if (!side) continue;
      const away = Math.abs(this.store.start[event] - middle);
      const known = behind.get(side) ?? { count: 0, away: Infinity };
      behind.set(side, away < known.away ? { event, x, y, away, count: known.count + 1 } : { ...known, count: known.count + 1 });
    }
    return behind;
  }

  // Where an event is relative to the view: beyond which edge, and where along it.
  placeOf(event, row, { from, to, height }) {
    const clamp = (value, least, most) => Math.max(least, Math.min(value, most));
    const y = clamp(row ? (row.top + row.bottom) / 2 : this.timeline.tracks.trackTop(event), (row?.pinned ? 0 : this.timeline.tracks.ceiling) + EDGE_PX, height - EDGE_PX);
    const x = clamp(this.timeline.xOf(this.store.start[event]), EDGE_PX, this.timeline.plotWidth - EDGE_PX);
    if (endOf(this.store, event) < from) return { side: 'left', x, y };
    if (this.store.start[event] > to) return { side: 'right', x, y };
    if (!row || !this.timeline.tracks.isHidden(row)) return { side: row ? null : 'below', x, y };
    return { side: row.bottom <= this.timeline.tracks.ceiling ? 'above' : 'below', x, y };
  }

  // One button for each edge, kept while it is needed so that it does not lose the focus.
  drawEdgeMarkers(behind) {
    const box = this.element('markers');
    for (const marker of [...box.children]) if (!behind.has(marker.dataset.side)) marker.remove();
    for (const [side, { event, x, y, count }] of behind) {
      const marker = box.querySelector(`[data-side="${side}"]`) ?? box.appendChild(this.edgeMarker(side));
      const arrow = { left: '←', right: '→', above: '↑', below: '↓' }[side];
      const label = `${shortened(eventLabel(this.store, this.words, event), 40)}${count > 1 ? ` and ${formatCount(count - 1)} more` : ''}`;
      marker.textContent = side === 'right' ? `${label} ${arrow}` : `${arrow} ${label}`;
      marker.title = `Go to ${eventName(this.store, event)}`;
      marker.dataset.event = event;
      marker.style.top = `${y}px`;
      if (side === 'above' || side === 'below') marker.style.left = `${x}px`;
    }
  }

  edgeMarker(side) {
    const marker = made('button', { type: 'button', className: `tl-marker ${side}` });
    marker.dataset.side = side;
    marker.addEventListener('click', () => this.timeline.goTo(Number(marker.dataset.event)));
    return marker;
  }
}

// Overlays on request: the members of an advice, and the critical path.

const MEMBER_ARROWS = 40; // of an advice: more would hide their targets
const PATH_PX = 2; // narrower intervals of the critical path are merged
const OUTLINE_GAP_PX = 2;

export class Overlays extends Part {
  constructor(timeline) {
    super(timeline);
    this.advice = null;
    this.path = pathRow(this.store);
    if (this.path) timeline.tracks.hidden.add(this.path.track);
  }

  // Outlines everything that an advice concerns, with launches and modules, and opens one place of it.
  chooseAdvice(id, title = '') {
    this.advice = id === null ? null : memberEvents(this.store, id);
    if (this.advice && !this.advice.events.length) this.advice = null;
    const panel = this.element('advice-panel');
    panel.hidden = !this.advice;
    if (this.advice) {
      this.timeline.select(-1);
      this.element('advice-title').textContent = title;
      this.element('advice-count').textContent = this.advice.summary;
      this.element('advice-tables').replaceChildren(...memberTables(this.store, this.words, this.advice).map(tableElement));
      this.showMember(0);
    }
    this.timeline.schedule(true);
  }

  // The members of one step in the view, or one member, with the launch of the first, if it has one.
  showMember(place) {
    const { places } = this.advice;
    this.advice.place = (place + places.length) % places.length;
    const { step, events } = places[this.advice.place];
    const { source } = linked(this.store, events[0]);
    const start = Math.min(this.store.start[events[0]], source < 0 ? Infinity : this.store.start[source]);
    this.timeline.show(around(start, events.reduce((end, event) => Math.max(end, endOf(this.store, event)), 0), 0.15));
    const where = !this.store.steps.size ? '' : step === undefined ? 'outside of steps: ' : `step ${formatCount(step)}: `;
    this.element('advice-place').textContent = `${where}${formatCount(this.advice.place + 1)} of ${formatCount(places.length)}`;
    this.root.scrollIntoView({ behavior: 'instant', block: 'start' });
  }

  // Outlines of members, launches and modules; touching ones are merged.
  drawMembers(ink) {
    if (!this.advice) return;
    const { from, to } = this.timeline.view;
    ink.strokeStyle = this.timeline.painter.accent;
    this.drawMemberArrows(ink);
    ink.lineWidth = 1.5;
    for (const { row: { first }, events } of this.advice.outlines) {
      const row = this.timeline.painter.shown.find((candidate) => candidate.first === first);
      if (!row) continue;
      let [left, right] = [NaN, NaN];
      const outline = () => { if (left <= right) ink.strokeRect(left + 0.5, row.top + 0.5, Math.max(2, right - left - 1), row.bottom - row.top - 1); };
      for (const event of events) {
        if (endOf(this.store, event) < from || this.store.start[event] > to) continue;
        const [begin, end] = [this.timeline.xOf(Math.max(this.store.start[event], from)), this.timeline.xOf(Math.min(endOf(this.store, event), to))];
        if (begin - right <= OUTLINE_GAP_PX) right = Math.max(right, end);
        else {
          outline();
          [left, right] = [begin, end];
        }
      }
      outline();
    }
  }

  drawMemberArrows(ink) {
    ink.lineWidth = 1;
    ink.globalAlpha = 0.55;
    ink.beginPath();
    for (const [tail, head] of memberArrowEvents(this.store, this.advice, this.timeline.view, MEMBER_ARROWS)) {
      const arrow = this.timeline.arrows.arrow(tail, head);
      if (!arrow) continue;
      const [x0, x1] = [this.timeline.xOf(arrow.x0), this.timeline.xOf(arrow.x1)];
      ink.moveTo(x0, arrow.y0);
      ink.bezierCurveTo(x0, arrow.cy0, x1, arrow.cy1, x1, arrow.y1);
    }
    ink.stroke();
    ink.globalAlpha = 1;
  }

  get hasPath() {
    return Boolean(this.path) && !this.timeline.tracks.hidden.has(this.path.track);
  }

  // Shows or hides the critical path: its own row, and a line over the rows of its events.
  showPath(isShown) {
    if (!this.path || isShown === this.hasPath) return;
    if (isShown) this.timeline.tracks.hidden.delete(this.path.track);
    else this.timeline.tracks.hidden.add(this.path.track);
    if (!isShown && this.timeline.selected >= 0 && rowOf(this.store, this.timeline.selected).family === 'path') this.timeline.select(-1);
    this.element('path').setAttribute('aria-pressed', String(isShown));
    this.timeline.tracks.relayout();
  }

  drawPath(ink) {
    if (!this.hasPath) return;
    const { from, to } = this.timeline.view;
    const pieces = pathPieces(this.store, this.path, from, to, (PATH_PX * (to - from)) / this.timeline.plotWidth);
    const { scrollTop } = this.scroller;
    const placed = this.timeline.tracks.layout.rows.map((row) => this.timeline.tracks.inSight(row.pinned ? row : { ...row, top: row.top - scrollTop, bottom: row.bottom - scrollTop }));
    placed.sort((a, b) => a.first - b.first);
    const firsts = placed.map(({ first }) => first);
    const footOf = (event) => {
      const row = placed[lowerBound(firsts, event + 1, 0, firsts.length) - 1];
      return row && event < row.last ? row.bottom - 1 : undefined;
    };
    drawPath(ink, pieces, footOf, (time) => this.timeline.xOf(time), this.timeline.painter.pathColours);
  }
}
