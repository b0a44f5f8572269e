// The timeline: draws what the view shows into Bokeh's sources, and listens to pointer and keyboard.

import { describe, eventName, isActivity, otherEnd } from './describe.js';
import { formatCount, formatDuration, formatTick } from './format.js';
import { layOut, rowAt } from './layout.js';
import { visibleBoxes, visibleSteps } from './lod.js';
import { around, clampView, pan, parseFragment, ticks, writeFragment, zoom } from './navigation.js';
import { eventAt, neighbourMatch, rowOf, search } from './store.js';

const BOX_BUDGET = 5000;
const LABEL_BUDGET = 300;
const LABEL_MIN_PX = 34;
const CHARACTER_PX = 6.6;
const HOVER_PX = 4;
const CLICK_PX = 4;
const TICK_PX = 110;
const DIMMED = 0.15;
const PAN_STEP = 0.15;
const ZOOM_STEP = 1.4;
const FRAGMENT_DELAY_MS = 300;

export class Timeline {
  constructor(bokehDocument, store, words, root) {
    this.store = store;
    this.words = words;
    this.root = root;
    this.model = (name) => bokehDocument.get_model_by_name(name);
    this.range = this.model('view');
    this.folded = new Set(store.tracks.flatMap((track, id) => (track.collapsed ? [id] : [])));
    this.selected = -1;
    this.queue = store.queues[0];
    this.fetched = null;
    this.pointers = new Map();
    this.element = (name) => root.querySelector(`[data-tl="${name}"]`);
    this.scroller = this.element('rows');
    this.readColours();
    this.relayout();
    this.listen();
    this.openFragment();
  }

  // ---- view -------------------------------------------------------------------------------------------

  get view() {
    return { from: this.range.start, to: this.range.end };
  }

  show(view) {
    const { from, to } = clampView(view, this.store.end);
    this.range.setv({ start: from, end: to });
  }

  showAll() {
    this.show({ from: 0, to: this.store.end });
  }

  get plotWidth() {
    return Math.max(this.element('canvas').clientWidth, 1);
  }

  timeAt(clientX) {
    const { left } = this.element('canvas').getBoundingClientRect();
    const { from, to } = this.view;
    return from + ((clientX - left) / this.plotWidth) * (to - from);
  }

  xOf(time) {
    const { from, to } = this.view;
    return ((time - from) / (to - from)) * this.plotWidth;
  }

  openFragment() {
    const { view, selected } = parseFragment(location.hash);
    if (view) this.show(view);
    else this.showAll();
    if (selected >= 0 && selected < this.store.start.length) this.select(selected);
  }

  rememberFragment() {
    clearTimeout(this.fragmentTimer);
    this.fragmentTimer = setTimeout(() => {
      try {
        history.replaceState(null, '', writeFragment(this.view, this.selected));
      } catch {
        // a sandboxed frame has no address of its own
      }
    }, FRAGMENT_DELAY_MS);
  }

  // ---- drawing ----------------------------------------------------------------------------------------

  // One redraw per frame, however many changes ask for it.
  schedule(stale = false) {
    if (stale) this.fetched = null;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (!this.isFetched()) this.fetch();
    this.drawLabels();
    this.drawAxis();
    this.drawSelection();
    this.rememberFragment();
  }

  // Boxes are taken for half a view more on both sides, so that most of panning needs no new ones.
  fetch() {
    const { from, to } = this.view;
    const margin = (to - from) / 2;
    const top = this.scroller.scrollTop;
    const height = this.scroller.clientHeight;
    const rows = this.layout.rows.filter((row) => row.bottom > top && row.top < top + height);
    const quantum = (to - from) / this.plotWidth;
    const boxes = visibleBoxes(this.store, rows, from - margin, to + margin, quantum, BOX_BUDGET);
    this.fetched = { from: from - margin, to: to + margin, length: to - from, boxes };
    this.model('rows-y').setv({ start: top + height, end: top });
    this.model('boxes').data = {
      left: boxes.left,
      right: boxes.right,
      top: boxes.top,
      bottom: boxes.bottom,
      fill: boxes.kind.map((kind) => this.colours[kind].fill),
      alpha: boxes.alpha.map((alpha, i) => (boxes.hit[i] ? alpha : alpha * DIMMED)),
    };
    this.drawQueue(quantum);
  }

  isFetched() {
    const { from, to } = this.view;
    const { fetched } = this;
    return fetched && from >= fetched.from && to <= fetched.to && Math.abs(to - from - fetched.length) < 1e-6 * fetched.length;
  }

  drawQueue(quantum) {
    if (!this.queue) return;
    const steps = visibleSteps(this.queue, this.fetched.from, this.fetched.to, quantum);
    const highest = steps.y.reduce((a, b) => Math.max(a, b), 1);
    this.model('queue-y').setv({ start: 0, end: highest * 1.15 });
    this.model('queue-source').data = steps;
    this.element('queue-max').textContent = `max ${formatCount(highest)}`;
  }

  // Labels stay inside the view while their box is partly out of it.
  drawLabels() {
    const { boxes } = this.fetched;
    const { from, to } = this.view;
    const nsPerPx = (to - from) / this.plotWidth;
    const labels = { x: [], y: [], text: [], color: [] };
    for (let i = 0; i < boxes.left.length && labels.x.length < LABEL_BUDGET; i++) {
      const left = Math.max(boxes.left[i], from);
      const room = (Math.min(boxes.right[i], to) - left) / nsPerPx;
      const tall = boxes.bottom[i] - boxes.top[i] >= 12;
      if (boxes.event[i] < 0 || room < LABEL_MIN_PX || !tall) continue;
      labels.x.push(left);
      labels.y.push((boxes.top[i] + boxes.bottom[i]) / 2);
      labels.text.push(shortened(this.labelOf(boxes.event[i]), Math.floor((room - 8) / CHARACTER_PX)));
      labels.color.push(boxes.hit[i] ? this.colours[boxes.kind[i]].ink : this.muted);
    }
    this.model('labels').data = labels;
  }

  labelOf(event) {
    const label = this.store.labels[this.store.name[event]];
    return this.store.tracks[rowOf(this.store, event).track].family === 'idle' ? this.words[label] ?? label : label;
  }

  drawAxis() {
    const { step, times } = ticks(this.view, this.plotWidth / TICK_PX);
    this.model('ticks').ticks = times;
    this.element('axis').replaceChildren(...times.map((time) => {
      const tick = document.createElement('span');
      tick.textContent = formatTick(time, step);
      tick.style.left = `${this.xOf(time)}px`;
      return tick;
    }));
    this.element('span').textContent = `${formatDuration(this.view.to - this.view.from)} shown`;
  }

  drawSelection() {
    const empty = { left: [], right: [], top: [], bottom: [] };
    const noArrow = { x0: [], y0: [], x1: [], y1: [], cx0: [], cy0: [], cx1: [], cy1: [] };
    const box = this.selected < 0 ? null : this.boxOf(this.selected);
    this.model('chosen').data = box ? { left: [box.left], right: [box.right], top: [box.top], bottom: [box.bottom] } : empty;
    this.model('arrow').data = (box && this.arrow()) ?? noArrow;
  }

  // An event's box, at least a few pixels wide, so that the outline of a short one can be seen.
  boxOf(event) {
    const { start, duration } = this.store;
    const row = this.layout.rows.find(({ first, count }) => event >= first && event < first + count);
    if (!row) return null;
    const { from, to } = this.view;
    const least = ((to - from) / this.plotWidth) * 3;
    const left = Math.max(start[event], from - (to - from));
    const right = Math.min(Math.max(start[event] + duration[event], start[event] + least), to + (to - from));
    return { left, right, top: row.top, bottom: row.bottom };
  }

  // From the end of the launch to the start of the activity.
  arrow() {
    const other = otherEnd(this.store, this.selected);
    if (other < 0 || !(isActivity(this.store, this.selected) || isActivity(this.store, other))) return null;
    const [activity, launch] = isActivity(this.store, this.selected) ? [this.selected, other] : [other, this.selected];
    const [tail, head] = [this.boxOf(launch), this.boxOf(activity)];
    if (!tail || !head) return null;
    const [x0, x1] = [this.store.start[launch] + this.store.duration[launch], this.store.start[activity]];
    const [y0, y1] = tail.top > head.top ? [tail.top, head.bottom] : [tail.bottom, head.top];
    const middle = (y0 + y1) / 2;
    return { x0: [x0], y0: [y0], x1: [x1], y1: [y1], cx0: [x0], cy0: [middle], cx1: [x1], cy1: [middle] };
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
    const unknown = colour('--k-other', 'gray');
    this.muted = colour('--text-muted', 'gray');
    this.colours = this.store.kind_values.map((kind) => {
      const fill = colour(kind.startsWith('idle-') ? kind.replace('idle-', '--p-') : `--k-${kind}`, unknown);
      return { fill, ink: readableOn(fill) };
    });
    this.model('grid').grid_line_color = colour('--grid', 'gray');
    const accent = colour('--text', 'black');
    this.model('chosen-box').glyph.line_color = { value: accent };
    this.model('arrow-line').glyph.line_color = { value: accent };
    this.model('arrow-head').glyph.setv({ fill_color: { value: accent }, line_color: { value: accent } });
    this.model('overview-area').glyph.fill_color = { value: colour('--k-matmul', 'blue') };
    this.model('overview-box').setv({ fill_color: accent, line_color: accent });
    this.model('queue-area').glyph.fill_color = { value: colour('--queue', 'gray') };
    this.schedule(true);
  }

  // ---- tracks -----------------------------------------------------------------------------------------

  relayout() {
    this.layout = layOut(this.store, this.folded);
    this.root.style.setProperty('--tl-height', `${this.layout.height}px`);
    this.element('labels').replaceChildren(...this.layout.items.map((item) => this.trackLabel(item)));
    this.root.style.setProperty('--tl-bar', `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
    this.schedule(true);
  }

  trackLabel(item) {
    const label = document.createElement(item.foldable ? 'button' : 'span');
    label.className = item.heading === undefined ? 'track' : 'heading';
    label.textContent = item.heading ?? item.label;
    label.title = label.textContent;
    label.style.top = `${item.top}px`;
    label.style.height = `${item.heading === undefined ? Math.min(item.height, 24) : item.height}px`;
    if (item.foldable) {
      label.type = 'button';
      label.setAttribute('aria-expanded', String(!item.folded));
      label.addEventListener('click', () => this.fold(item.track, !item.folded));
    }
    return label;
  }

  fold(track, folded) {
    if (folded) this.folded.add(track);
    else this.folded.delete(track);
    const hadFocus = this.element('labels').contains(document.activeElement);
    this.relayout();
    const place = this.layout.items.findIndex((item) => item.track === track);
    if (hadFocus) this.element('labels').children[place].focus();
  }

  // ---- events -----------------------------------------------------------------------------------------

  eventUnder(pointer) {
    const { top } = this.element('canvas').getBoundingClientRect();
    const row = rowAt(this.layout.rows, pointer.clientY - top + this.scroller.scrollTop);
    if (!row) return -1;
    const { from, to } = this.view;
    return eventAt(this.store, row, this.timeAt(pointer.clientX), (HOVER_PX * (to - from)) / this.plotWidth);
  }

  select(event) {
    this.selected = event;
    if (event >= 0) this.reveal(event);
    this.drawDetails();
    this.schedule();
  }

  // Unfolds the event's track and scrolls to its row.
  reveal(event) {
    const { track } = rowOf(this.store, event);
    if (this.folded.has(track) && !this.layout.rows.some(({ first, count }) => event >= first && event < first + count)) {
      this.fold(track, false);
    }
    const { top, bottom } = this.boxOf(event);
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop || bottom > scrollTop + clientHeight) this.scroller.scrollTop = top - clientHeight / 2;
  }

  goTo(event) {
    const { start, duration } = this.store;
    this.show(around(start[event], start[event] + duration[event], 1.5));
    this.select(event);
  }

  // Both ends of the selected event's arrow.
  showArrow() {
    const ends = [this.selected, otherEnd(this.store, this.selected)];
    const starts = ends.map((event) => this.store.start[event]);
    this.show(around(Math.min(...starts), Math.max(...ends.map((event) => this.store.start[event] + this.store.duration[event])), 0.2));
  }

  drawDetails() {
    const panel = this.element('details');
    panel.hidden = this.selected < 0;
    if (panel.hidden) return;
    const name = this.element('details-name');
    name.textContent = name.title = eventName(this.store, this.selected);
    this.element('details-facts').replaceChildren(...describe(this.store, this.words, this.selected).map(factElement));
    this.element('show-arrow').hidden = otherEnd(this.store, this.selected) < 0;
    this.element('go-other').hidden = this.element('show-arrow').hidden;
  }

  drawTooltip(pointer) {
    const tooltip = this.element('tooltip');
    const event = this.eventUnder(pointer);
    tooltip.hidden = event < 0;
    if (event < 0) return;
    const title = document.createElement('strong');
    title.textContent = shortened(eventName(this.store, event), 240);
    tooltip.replaceChildren(title, ...describe(this.store, this.words, event).map(factElement));
    const { width, height } = tooltip.getBoundingClientRect();
    const left = Math.max(8, Math.min(pointer.clientX + 14, innerWidth - width - 8));
    const below = pointer.clientY + 18;
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${below + height > innerHeight - 8 ? Math.max(8, pointer.clientY - height - 14) : below}px`;
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

  // ---- search -----------------------------------------------------------------------------------------

  find(text) {
    const count = search(this.store, text.trim());
    this.element('found').textContent = text.trim() ? `${formatCount(count)} found` : '';
    this.schedule(true);
  }

  step(direction) {
    if (!this.store.matches) return;
    const { event, place, count } = neighbourMatch(this.store, this.selected, direction);
    if (event < 0) return;
    this.goTo(event);
    this.element('found').textContent = `${formatCount(place)} of ${formatCount(count)}`;
  }

  // ---- listening --------------------------------------------------------------------------------------

  listen() {
    this.range.change.connect(() => this.schedule());
    this.scroller.addEventListener('scroll', () => this.schedule(true), { passive: true });
    new ResizeObserver(() => this.relayout()).observe(this.scroller);
    addEventListener('hashchange', () => this.openFragment());
    this.listenToPointer(this.element('canvas'));
    this.listenToSearch();
    this.listenToButtons();
    document.addEventListener('keydown', (event) => this.onKey(event));
  }

  listenToPointer(canvas) {
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.onPointerUp(event));
    canvas.addEventListener('pointercancel', (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener('pointerleave', () => this.leave());
    canvas.addEventListener('dblclick', () => this.selected >= 0 && this.goTo(this.selected));
  }

  onWheel(event) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      this.show(zoom(this.view, this.timeAt(event.clientX), Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.show(pan(this.view, (sideways / this.plotWidth) * (this.view.to - this.view.from)));
    } else return; // plain wheel scrolls
    event.preventDefault();
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    this.element('canvas').setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, travelled: 0 });
  }

  onPointerMove(event) {
    const known = this.pointers.get(event.pointerId);
    this.drawCrosshair(event);
    if (!known) return this.drawTooltip(event);
    this.element('tooltip').hidden = true;
    const before = this.grip();
    known.travelled += Math.abs(event.clientX - known.x) + Math.abs(event.clientY - known.y);
    known.x = event.clientX;
    known.y = event.clientY;
    this.drag(before, this.grip());
  }

  onPointerUp(event) {
    const known = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (known && known.travelled < CLICK_PX) this.select(this.eventUnder(event));
  }

  // Middle and spread of the fingers (or the one pointer) that hold the view.
  grip() {
    const xs = [...this.pointers.values()].map(({ x }) => x);
    const [least, most] = [Math.min(...xs), Math.max(...xs)];
    return { middle: (least + most) / 2, spread: Math.max(most - least, 1) };
  }

  drag(before, after) {
    const nsPerPx = (this.view.to - this.view.from) / this.plotWidth;
    const moved = pan(this.view, (before.middle - after.middle) * nsPerPx);
    const { left } = this.element('canvas').getBoundingClientRect();
    const time = moved.from + (after.middle - left) * nsPerPx;
    this.show(this.pointers.size > 1 ? zoom(moved, time, before.spread / after.spread) : moved);
  }

  listenToSearch() {
    const field = this.element('search');
    field.addEventListener('input', () => this.find(field.value));
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.step(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        field.value = '';
        this.find('');
        this.scroller.focus();
      }
    });
  }

  listenToButtons() {
    const actions = {
      next: () => this.step(1),
      previous: () => this.step(-1),
      'zoom-in': () => this.zoomBy(1 / ZOOM_STEP),
      'zoom-out': () => this.zoomBy(ZOOM_STEP),
      all: () => this.showAll(),
      help: () => this.element('help-text').showModal(),
      fit: () => this.selected >= 0 && this.goTo(this.selected),
      'show-arrow': () => this.showArrow(),
      'go-other': () => this.goTo(otherEnd(this.store, this.selected)),
      close: () => this.select(-1),
    };
    for (const [name, action] of Object.entries(actions)) this.element(name).addEventListener('click', action);
    this.element('queue-device')?.addEventListener('change', (event) => {
      this.queue = this.store.queues.find(({ device }) => device === Number(event.target.value));
      this.schedule(true);
    });
  }

  zoomBy(factor) {
    const { from, to } = this.view;
    this.show(zoom(this.view, (from + to) / 2, factor));
  }

  // Keys act while nothing else has the focus; the arrows only inside the timeline, elsewhere they scroll.
  onKey(event) {
    const inside = this.root.contains(event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    if (!inside && event.target !== document.body) return;
    const length = this.view.to - this.view.from;
    const step = (direction) => this.show(pan(this.view, direction * PAN_STEP * length));
    const actions = {
      w: () => this.zoomBy(1 / ZOOM_STEP),
      s: () => this.zoomBy(ZOOM_STEP),
      a: () => step(-1),
      d: () => step(1),
      f: () => this.selected >= 0 && this.goTo(this.selected),
      0: () => this.showAll(),
      '/': () => this.element('search').focus(),
      '?': () => this.element('help-text').showModal(),
      Escape: () => this.select(-1),
      ...(inside && { ArrowLeft: () => step(-1), ArrowRight: () => step(1) }),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

function isField(element) {
  return element.matches('input, select, textarea') || element.closest('dialog') !== null;
}

function factElement([name, value]) {
  const row = document.createElement('div');
  const [term, text] = [document.createElement('span'), document.createElement('span')];
  term.textContent = name;
  text.textContent = value;
  row.append(term, text);
  return row;
}

function shortened(text, characters) {
  return text.length <= characters ? text : `${text.slice(0, Math.max(characters - 1, 0))}…`;
}

// Dark or light text, whichever stands out against a #rrggbb fill.
function readableOn(fill) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16) / 255);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 ? '#14181f' : '#ffffff';
}
