// The timeline: draws what the view shows into Bokeh's sources, and listens to pointer and keyboard.

import { copyText } from './clipboard.js';
import { memberArrowEvents, memberEvents, memberTables } from './advice.js';
import { describe, eventLabel, eventName, exactTimes, otherEnds } from './describe.js';
import { formatCount, formatDuration, formatQuantity, formatTick } from './format.js';
import { idleStory } from './idle_story.js';
import { cleared, readableOn } from './ink.js';
import { bucketOf, statistics, statisticsTables, statisticsText } from './interval.js';
import { labelTop, lanesInView, layOut, onScreen, pinnedTracks, ROW_LIMITS, rowAt } from './layout.js';
import { visibleBoxes, visibleSteps } from './lod.js';
import { around, clampView, pan, parseFragment, ticks, writeFragment, zoom } from './navigation.js';
import { drawPath, pathPieces, pathRow, pathStory } from './path.js';
import { eventAtInstant, queueCurves, valueAt } from './queue.js';
import { endOf, eventAt, linked, lowerBound, neighbourMatch, rowOf, search, stackOf, trackOf } from './store.js';

const BOX_BUDGET = 4000;
const MARGIN = 0.25;
const LABEL_BUDGET = 200;
const LABEL_MIN_PX = 34;
const LABEL_MIN_HEIGHT_PX = 12;
const LABEL_HEIGHT_PX = { least: 18, most: 24 }; // beside the rows
const LABEL_PADDING_PX = 4;
const LONGEST_LABEL = 300; // characters: more than a screen is wide
const AXIS_PX = 26;
const TELL_DELAY_MS = 100;
const CHARACTER_PX = 7;
const HOVER_PX = 4;
const CLICK_PX = 4;
const TICK_PX = { least: 64, most: 110, padding: 14, gap: 6 };
const DIMMED = 0.15;
const PAN_STEP = 0.15;
const ZOOM_STEP = 1.4;
const FRAGMENT_DELAY_MS = 300;
const ARROW_BUDGET = 200;
const MEMBER_ARROWS = 40; // of an advice: more hide what they lead to
const PATH_PX = 2; // what is narrower than this along the critical path is one piece
const OUTLINE_GAP_PX = 2;
const EDGE_PX = 14;
const PANEL_GAP_PX = 12;
const ROWS_PX = 288; // as high as the rows are at least, in a low window; as in timeline.css
const ROWS_SHARE = 0.6; // of the window's height
const ROWS_LEAST_PX = 160;
const PINNED_SHARE = 0.55; // of the rows' height, at most
const FULL_FRAME_PX = 320; // what stands around the rows in a window of their own
const CURVES = { queue: formatCount, runway: formatDuration, memory: (bytes) => formatQuantity(bytes, 'B') };

export class Timeline {
  constructor(bokehDocument, store, words, root) {
    this.store = store;
    this.words = words;
    this.root = root;
    root.timeline = this; // for the console, and for tests
    this.model = remembering((name) => bokehDocument.get_model_by_name(name));
    this.range = this.model('view');
    this.heights = new Map();
    this.lanes = lanesInView(store, 0, store.end);
    this.folded = new Set(store.tracks.flatMap((track, id) => (track.collapsed ? [id] : [])));
    this.path = pathRow(store);
    this.hidden = new Set(this.path ? [this.path.track] : []);
    this.selected = -1;
    this.interval = null;
    this.filter = null;
    this.curves = [...queueCurves(store), ...store.curves];
    this.place = this.curves[0]?.place;
    this.fetched = null;
    this.pointers = new Map();
    this.widths = new Map(); // of labels
    this.told = new Map(); // texts that the page shows soon
    this.element = (name) => root.querySelector(`[data-tl="${name}"]`);
    this.scroller = this.element('rows');
    this.offerFilters();
    this.offerPlaces();
    this.readColours();
    this.relayout();
    this.listen();
    this.listenToGrips();
    this.openFragment(performance.getEntriesByType('navigation')[0]?.type === 'navigate');
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

  timeAt(clientX) {
    const { left } = this.element('canvas').getBoundingClientRect();
    const { from, to } = this.view;
    return from + ((clientX - left) / this.plotWidth) * (to - from);
  }

  xOf(time) {
    const { from, to } = this.view;
    return ((time - from) / (to - from)) * this.plotWidth;
  }

  // A link to a part of the timeline shows the timeline; who reloads the page stays where they were.
  openFragment(arrives) {
    const { view, selected, interval, hasPath } = parseFragment(location.hash);
    this.showPath(hasPath);
    if (view) this.show(view);
    else this.showAll();
    this.drawAxis(); // what it writes above the rows takes a line on a phone: before anything is scrolled to
    const isPart = this.view.to - this.view.from < 0.999 * this.store.end || selected >= 0 || interval;
    if (arrives && isPart) this.root.scrollIntoView({ behavior: 'instant', block: 'start' });
    if (selected >= 0 && selected < this.store.start.length) this.select(selected);
    this.chooseInterval(interval);
  }

  rememberFragment() {
    clearTimeout(this.fragmentTimer);
    this.fragmentTimer = setTimeout(() => {
      this.closeLanes();
      try {
        history.replaceState(null, '', writeFragment(this.view, this.selected, this.interval, this.hasPath));
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
    if (!this.isFetched()) {
      this.openLanes();
      this.fetch();
    }
    this.placeLabels();
    this.drawLabels();
    this.drawAxis();
    this.drawSelection();
    this.drawInterval();
    this.rememberFragment();
  }

  // What is drawn before printing Chromium prints as vectors, and scales each canvas differently: so the axis is text
  // of the page on paper, and labels go onto the rows' own canvas.
  drawForPaper() {
    this.fetched = null;
    this.draw();
    const ticks = this.labelledTicks().filter(({ isLabelled }) => isLabelled).map(({ x, label }) => {
      const tick = document.createElement('span');
      tick.textContent = label;
      tick.style.left = `${x}px`;
      return tick;
    });
    this.element('axis').replaceChildren(this.element('axis-ink'), ...ticks);
  }

  // While a view moves, boxes are taken for a part of it more on both sides, so that most of moving needs no new ones;
  // zooming needs new ones anyway, and then those outside would be drawn for nobody.
  fetch() {
    const { from, to } = this.view;
    const margin = this.isMoved() ? (to - from) * MARGIN : 0;
    const height = this.scroller.clientHeight;
    this.shown = onScreen(this.layout, this.scroller.scrollTop, height);
    const rows = this.shown;
    const quantum = (to - from) / this.plotWidth;
    const boxes = visibleBoxes(this.store, rows, from - margin, to + margin, quantum, BOX_BUDGET);
    this.fetched = { from: from - margin, to: to + margin, length: to - from, boxes };
    this.model('rows-y').setv({ start: height, end: 0 });
    this.model('boxes').data = {
      left: boxes.left,
      right: boxes.right,
      top: boxes.top,
      bottom: boxes.bottom,
      fill: Uint32Array.from(boxes.kind, (kind, i) => packed(this.colours[kind].rgb, boxes.alpha[i] * (boxes.hit[i] ? 1 : DIMMED))),
    };
    this.drawCurves(quantum);
  }

  isFetched() {
    const { from, to } = this.view;
    return this.isMoved() && from >= this.fetched.from && to <= this.fetched.to;
  }

  // Whether the view is as long as the one that boxes were taken for.
  isMoved() {
    const { from, to } = this.view;
    return this.fetched !== null && Math.abs(to - from - this.fetched.length) < 1e-6 * this.fetched.length;
  }

  // The chosen place's step functions; each panel says what its top stands for.
  drawCurves(quantum) {
    for (const [kind, format] of Object.entries(CURVES)) {
      const panel = this.root.querySelector(`[data-curve="${kind}"]`);
      if (!panel) continue;
      const curve = this.curves.find((candidate) => candidate.kind === kind && candidate.place === this.place);
      panel.hidden = !curve;
      if (!curve) continue;
      const steps = visibleSteps(curve, this.fetched.from, this.fetched.to, quantum);
      const highest = steps.y.reduce((a, b) => Math.max(a, b), 1);
      this.model(`${kind}-y`).setv({ start: 0, end: highest * 1.15 });
      this.model(`${kind}-source`).data = steps;
      this.tell(panel.querySelector('small'), `max ${format(highest)}`);
    }
  }

  // Labels stay inside the view while their box is partly out of it.
  drawLabels(ink = cleared(this.element('ink'), this.plotWidth, this.scroller.clientHeight)) {
    const { boxes } = this.fetched;
    const { from, to } = this.view;
    const nsPerPx = (to - from) / this.plotWidth;
    ink.font = this.fonts.label;
    ink.textBaseline = 'middle';
    let room = LABEL_BUDGET;
    for (let i = 0; i < boxes.left.length && room > 0; i++) {
      const left = Math.max(boxes.left[i], from);
      const width = (Math.min(boxes.right[i], to) - left) / nsPerPx;
      if (boxes.event[i] < 0 || width < LABEL_MIN_PX || boxes.bottom[i] - boxes.top[i] < LABEL_MIN_HEIGHT_PX) continue;
      const text = this.fitted(ink, eventLabel(this.store, this.words, boxes.event[i]), width - 2 * LABEL_PADDING_PX);
      ink.fillStyle = boxes.hit[i] ? this.colours[boxes.kind[i]].ink : this.muted;
      ink.fillText(text, (left - from) / nsPerPx + LABEL_PADDING_PX, (boxes.top[i] + boxes.bottom[i]) / 2 + 0.5);
      room -= 1;
    }
    this.drawPath(ink);
    this.drawMembers(ink);
  }

  // As much of a text as has room, by the mean width of its characters.
  fitted(ink, text, px) {
    if (!this.widths.has(text)) this.widths.set(text, ink.measureText(text.slice(0, LONGEST_LABEL)).width);
    const width = this.widths.get(text);
    return width <= px ? text : shortened(text, Math.floor((px / width) * Math.min(text.length, LONGEST_LABEL)) - 1);
  }

  drawAxis() {
    const ticks = this.labelledTicks();
    this.model('ticks').ticks = ticks.map(({ time }) => time);
    const ink = cleared(this.element('axis-ink'), this.plotWidth, AXIS_PX);
    ink.font = this.fonts.tick;
    ink.textBaseline = 'middle';
    ink.fillStyle = this.muted;
    for (const { x, label, isLabelled } of ticks) {
      ink.fillRect(Math.round(x), AXIS_PX / 4, 1, AXIS_PX / 2);
      if (isLabelled) ink.fillText(label, Math.round(x) + TICK_PX.gap, AXIS_PX / 2);
    }
    this.tell(this.element('span'), `${formatDuration(this.view.to - this.view.from)} shown`);
  }

  // Sets a text of the page: often enough for the eye, not with each frame, since the page is laid out anew for it.
  tell(element, text) {
    if (!element.textContent) element.textContent = text;
    this.told.set(element, text);
    this.telling ??= setTimeout(() => {
      this.telling = null;
      for (const [place, last] of this.told) if (place.textContent !== last) place.textContent = last;
      this.told.clear();
    }, TELL_DELAY_MS);
  }

  // Those that would run out of the axis have no label.
  labelledTicks() {
    const { times, labels } = this.ticks();
    const last = this.plotWidth - this.tickPx(labels) + TICK_PX.padding / 2;
    return times.map((time, i) => ({ time, label: labels[i], x: this.xOf(time), isLabelled: this.xOf(time) < last }));
  }

  // As many round times as have room for their labels.
  ticks() {
    for (let count = this.plotWidth / TICK_PX.least; ; count /= 1.5) {
      const { step, times } = ticks(this.view, Math.min(count, Math.max(this.plotWidth / TICK_PX.most, 4)));
      const labels = times.map((time) => formatTick(time, step));
      const apart = (step / (this.view.to - this.view.from)) * this.plotWidth;
      if (apart >= this.tickPx(labels) || times.length < 2) return { times, labels };
    }
  }

  tickPx(labels) {
    return Math.max(0, ...labels.map((label) => label.length)) * CHARACTER_PX + TICK_PX.padding;
  }

  drawSelection() {
    const empty = { left: [], right: [], top: [], bottom: [] };
    const box = this.selected < 0 ? null : this.boxOf(this.selected);
    const arrows = this.selected < 0 ? [] : this.arrows();
    if (this.selected < 0 && !this.isOutlined) return; // nothing to draw and nothing to take back
    this.isOutlined = this.selected >= 0;
    this.model('chosen').data = box ? { left: [box.left], right: [box.right], top: [box.top], bottom: [box.bottom] } : empty;
    const columns = ['x0', 'y0', 'x1', 'y1', 'cx0', 'cy0', 'cx1', 'cy1'];
    this.model('arrow').data = Object.fromEntries(columns.map((name) => [name, arrows.map((arrow) => arrow[name])]));
    this.drawEdgeMarkers(this.selected < 0 ? new Map() : this.endsBehindEdges());
  }

  // The row of an event as it stands on the screen, in sight or not; undefined in a folded track.
  rowInLayout(event) {
    const row = this.layout.rows.find(({ first, count }) => event >= first && event < first + count);
    if (!row || row.pinned) return row;
    const { scrollTop } = this.scroller;
    return { ...row, top: row.top - scrollTop, bottom: row.bottom - scrollTop };
  }

  // The height at which what scrolls begins.
  get ceiling() {
    return this.layout.pinnedHeight;
  }

  isHidden({ pinned, top, bottom }) {
    return !pinned && (bottom <= this.ceiling || top >= this.scroller.clientHeight);
  }

  // An event's box, at least a few pixels wide, so that the outline of a short one can be seen.
  boxOf(event) {
    const row = this.rowInLayout(event);
    if (!row || this.isHidden(row)) return null;
    const { from, to } = this.view;
    const least = ((to - from) / this.plotWidth) * 3;
    const left = this.clipped(this.store.start[event]);
    const right = this.clipped(Math.max(endOf(this.store, event), this.store.start[event] + least));
    return { left, right, top: row.pinned ? row.top : Math.max(row.top, this.ceiling), bottom: row.bottom };
  }

  // A time no further out of the view than the view is long: screen coordinates are float32.
  clipped(time) {
    const { from, to } = this.view;
    return Math.max(from - (to - from), Math.min(time, to + (to - from)));
  }

  // From the end of a launch to the start of its activity, from a forward operator to its backward one.
  arrows() {
    const { source, targets } = linked(this.store, this.selected);
    const pairs = [...targets.subarray(0, ARROW_BUDGET)].map((target) => [this.selected, target]);
    if (source >= 0) pairs.push([source, this.selected]);
    return pairs.map(([tail, head]) => this.arrow(tail, head)).filter(Boolean);
  }

  arrow(tailEvent, headEvent) {
    const [tail, head] = [tailEvent, headEvent].map((event) => this.inSight(this.rowInLayout(event)));
    if (!tail || !head) return null;
    const [x0, x1] = [this.clipped(endOf(this.store, tailEvent)), this.clipped(this.store.start[headEvent])];
    const [y0, y1] = tail.top > head.top ? [tail.top, head.bottom] : [tail.bottom, head.top];
    const middle = (y0 + y1) / 2;
    return { x0, y0, x1, y1, cx0: x0, cy0: middle, cx1: x1, cy1: middle };
  }

  // A row that is out of sight stands where it went out of it: arrows end there.
  inSight(row) {
    if (!row || !this.isHidden(row)) return row;
    const y = row.bottom <= this.ceiling ? this.ceiling : this.scroller.clientHeight;
    return { ...row, top: y, bottom: y };
  }

  // For each edge behind which ends of the arrows lie: the nearest of them, where it would be, how many there are.
  endsBehindEdges() {
    const { from, to } = this.view;
    const height = this.scroller.clientHeight;
    const middle = (from + to) / 2;
    const behind = new Map();
    for (const event of otherEnds(this.store, this.selected).slice(0, ARROW_BUDGET)) {
      const row = this.rowInLayout(event);
      const { side, x, y } = this.placeOf(event, row, { from, to, height });
      if (!side) continue;
      const away = Math.abs(this.store.start[event] - middle);
      const known = behind.get(side) ?? { count: 0, away: Infinity };
      behind.set(side, away < known.away ? { event, x, y, away, count: known.count + 1 } : { ...known, count: known.count + 1 });
    }
    return behind;
  }

  // Where an event lies as seen from the view: behind which edge, and where along it.
  placeOf(event, row, { from, to, height }) {
    const clamp = (value, least, most) => Math.max(least, Math.min(value, most));
    const y = clamp(row ? (row.top + row.bottom) / 2 : this.trackTop(event), (row?.pinned ? 0 : this.ceiling) + EDGE_PX, height - EDGE_PX);
    const x = clamp(this.xOf(this.store.start[event]), EDGE_PX, this.plotWidth - EDGE_PX);
    if (endOf(this.store, event) < from) return { side: 'left', x, y };
    if (this.store.start[event] > to) return { side: 'right', x, y };
    if (!row || !this.isHidden(row)) return { side: row ? null : 'below', x, y };
    return { side: row.bottom <= this.ceiling ? 'above' : 'below', x, y };
  }

  trackTop(event) {
    const { track } = rowOf(this.store, event);
    const item = this.layout.items.find((candidate) => candidate.track === track);
    return item.top - (item.pinned ? 0 : this.scroller.scrollTop);
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
    const marker = document.createElement('button');
    marker.type = 'button';
    marker.className = `tl-marker ${side}`;
    marker.dataset.side = side;
    marker.addEventListener('click', () => this.goTo(Number(marker.dataset.event)));
    return marker;
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
    const unknown = colour('--k-other', 'gray');
    this.muted = colour('--text-muted', 'gray');
    this.pathColours = { colour: colour('--path', 'black'), halo: colour('--card', 'white') };
    const family = getComputedStyle(this.root).fontFamily;
    this.fonts = { label: `11px ${family}`, tick: `12px ${family}` };
    this.colours = this.store.kind_values.map((kind) => {
      const fill = colour(/^(idle|path)-/.test(kind) ? kind.replace(/^(idle|path)-/, '--p-') : `--k-${kind}`, unknown);
      return { rgb: parseInt(fill.slice(1), 16), ink: readableOn(fill) };
    });
    this.model('grid').grid_line_color = colour('--grid', 'gray');
    const accent = this.accent = colour('--text', 'black');
    this.model('chosen-box').glyph.line_color = { value: accent };
    this.model('arrow-line').glyph.line_color = { value: accent };
    this.model('arrow-head').glyph.setv({ fill_color: { value: accent }, line_color: { value: accent } });
    this.model('overview-area').glyph.fill_color = { value: colour('--k-matmul', 'blue') };
    this.model('overview-box').setv({ fill_color: accent, line_color: accent });
    for (const kind of Object.keys(CURVES)) {
      const area = this.model(`${kind}-area`);
      if (area) area.glyph.fill_color = { value: colour('--queue', 'gray') };
    }
    this.schedule(true);
  }

  // ---- tracks -----------------------------------------------------------------------------------------

  relayout() {
    const focused = [...this.element('labels').querySelectorAll('[data-track]')].find((label) => label.contains(document.activeElement))?.dataset.track;
    const room = PINNED_SHARE * (this.isFull ? innerHeight - FULL_FRAME_PX : Math.max(this.rowsHeight ?? 0, ROWS_PX, ROWS_SHARE * innerHeight));
    const { heights, lanes, hidden } = this;
    this.pinned = pinnedTracks(this.store, this.folded, room, { heights, hidden });
    this.layout = layOut(this.store, this.folded, { pinned: this.pinned, heights, lanes, hidden });
    this.root.style.setProperty('--tl-height', `${this.layout.height}px`);
    this.root.style.setProperty('--tl-pinned', `${this.layout.pinnedHeight}px`);
    this.labels = this.layout.items.map((item) => ({ item, element: this.trackLabel(item), y: null, isStuck: false }));
    const part = (isPinned) => this.labels.filter(({ item }) => item.pinned === isPinned).map(({ element }) => element);
    this.element('pinned-labels').replaceChildren(...part(true));
    this.element('flow-labels').replaceChildren(...part(false));
    if (focused !== undefined) this.element('labels').querySelector(`[data-track="${focused}"]`)?.focus();
    if (this.isFull) this.root.style.setProperty('--tl-full', `${this.scroller.clientHeight}px`);
    this.element('grip').setAttribute('aria-valuenow', String(this.scroller.clientHeight));
    this.root.style.setProperty('--tl-bar', `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
    this.plotWidth = Math.max(this.element('canvas').clientWidth, 1); // asking each time would cost a layout each
    this.schedule(true);
  }

  // Lanes that the view needs and that were put away are back at once; those that it does not need go when it rests.
  openLanes() {
    const needed = lanesInView(this.store, this.view.from, this.view.to);
    if (![...needed].some(([track, count]) => count > (this.lanes.get(track) ?? 0))) return;
    for (const [track, count] of needed) this.lanes.set(track, Math.max(count, this.lanes.get(track) ?? 0));
    this.relayout();
  }

  closeLanes() {
    const needed = lanesInView(this.store, this.view.from, this.view.to);
    if (![...needed].some(([track, count]) => count < this.lanes.get(track))) return;
    this.lanes = needed;
    this.relayout();
  }

  placeLabels() {
    const { scrollTop } = this.scroller;
    for (const label of this.labels) {
      const { item, element } = label;
      const top = labelTop(item, scrollTop, this.ceiling);
      const isStuck = !item.pinned && top > item.top - scrollTop;
      if (isStuck !== label.isStuck) element.classList.toggle('stuck', isStuck);
      const y = top - (item.pinned ? 0 : this.ceiling) + item.shift;
      if (y !== label.y) element.style.transform = `translateY(${y}px)`;
      Object.assign(label, { y, isStuck });
    }
  }

  trackLabel(item) {
    const label = document.createElement(item.foldable ? 'button' : 'span');
    label.className = item.heading === undefined ? 'track' : 'heading';
    label.textContent = item.heading ?? item.label;
    label.title = label.textContent;
    const height = item.heading === undefined ? Math.max(LABEL_HEIGHT_PX.least, Math.min(item.height, LABEL_HEIGHT_PX.most)) : item.height;
    item.shift = Math.min(item.height - height, 0) / 2; // the label of a folded track is higher than its row
    label.style.lineHeight = label.style.height = `${height}px`;
    if (item.track !== undefined) {
      label.dataset.track = item.track;
      const grip = document.createElement('i');
      grip.className = 'tl-grip';
      grip.dataset.track = item.track;
      grip.title = 'Drag to make its rows higher or lower';
      label.append(grip);
    }
    if (item.foldable) {
      label.type = 'button';
      label.setAttribute('aria-expanded', String(!item.folded));
      label.addEventListener('click', (event) => event.target === label && this.fold(item.track, !item.folded));
    }
    return label;
  }

  // Grips: of a track its rows' height, of the whole the height of the part that scrolls.
  listenToGrips() {
    const drag = (element, begin, move) => element.addEventListener('pointerdown', (event) => {
      const start = begin(event);
      if (start === null) return;
      event.preventDefault();
      const onMove = (moved) => move(start, moved.clientY - event.clientY);
      addEventListener('pointermove', onMove);
      addEventListener('pointerup', () => removeEventListener('pointermove', onMove), { once: true });
    });
    drag(this.element('labels'), (event) => {
      const grip = event.target.closest('.tl-grip');
      return grip && this.layout.items.find(({ track }) => track === Number(grip.dataset.track));
    }, (item, down) => {
      const rows = Math.max(1, Math.round(item.height / item.row));
      this.heights.set(item.track, Math.max(ROW_LIMITS.least, Math.min(ROW_LIMITS.most, Math.round(item.row + down / rows))));
      this.relayout();
    });
    drag(this.element('grip'), () => this.scroller.clientHeight, (height, down) => this.setRowsHeight(height + down));
    this.element('grip').addEventListener('keydown', (event) => {
      const step = { ArrowDown: 40, ArrowUp: -40 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.setRowsHeight(this.scroller.clientHeight + step);
    });
  }

  setRowsHeight(px) {
    this.rowsHeight = Math.max(ROWS_LEAST_PX, Math.round(px));
    this.root.style.setProperty('--tl-most', `${this.rowsHeight}px`);
    this.relayout();
  }

  get isFull() {
    return this.root.classList.contains('full');
  }

  // The timeline alone in the window, as high as that is.
  setFull(isFull) {
    this.root.classList.toggle('full', isFull);
    document.documentElement.classList.toggle('tl-alone', isFull);
    this.element('full').setAttribute('aria-pressed', String(isFull));
    this.relayout();
    if (!isFull) this.root.scrollIntoView({ behavior: 'instant', block: 'start' });
  }

  fold(track, folded) {
    if (folded) this.folded.add(track);
    else this.folded.delete(track);
    this.relayout();
  }

  // ---- events -----------------------------------------------------------------------------------------

  eventUnder(pointer) {
    const { top } = this.element('canvas').getBoundingClientRect();
    const row = rowAt(this.shown ?? [], pointer.clientY - top);
    if (!row) return -1;
    const { from, to } = this.view;
    return eventAt(this.store, row, this.timeAt(pointer.clientX), (HOVER_PX * (to - from)) / this.plotWidth);
  }

  select(event) {
    this.selected = event;
    if (event >= 0) this.reveal(event);
    this.drawDetails();
    if (event >= 0) this.uncover(event);
    this.schedule();
  }

  // Escape takes back the last thing chosen.
  clear() {
    if (this.interval && this.selected < 0) this.chooseInterval(null);
    else if (this.selected >= 0) this.select(-1);
    else if (this.advice) this.chooseAdvice(null);
    else if (this.isFull) this.setFull(false);
    else this.setMode('pan');
  }

  // Unfolds the event's track and scrolls to its row.
  reveal(event) {
    const { track } = rowOf(this.store, event);
    if (this.hidden.has(track)) this.showPath(true);
    if (this.folded.has(track) && !this.layout.rows.some(({ first, count }) => event >= first && event < first + count)) {
      this.fold(track, false);
    }
    const row = this.rowInLayout(event) ?? this.afterOpening(event);
    if (row.pinned) return;
    const { clientHeight } = this.scroller;
    if (row.top < this.ceiling || row.bottom > clientHeight) this.scroller.scrollTop += row.top - (this.ceiling + clientHeight) / 2;
  }

  // The row of an event in a lane that was put away.
  afterOpening(event) {
    const { track, depth } = rowOf(this.store, event);
    this.lanes.set(track, Math.max(depth + 1, this.lanes.get(track) ?? 0));
    this.relayout();
    return this.rowInLayout(event);
  }

  // The panel with the details must not lie on the row that they are about.
  uncover(event) {
    const hidden = () => this.scroller.getBoundingClientRect().top + this.rowInLayout(event).bottom - this.element('details').getBoundingClientRect().top;
    if (hidden() > 0 && !this.rowInLayout(event).pinned) this.scroller.scrollTop += hidden() + PANEL_GAP_PX;
    if (hidden() > 0 && !this.isFull) scrollBy({ top: hidden() + PANEL_GAP_PX, behavior: 'instant' });
  }

  goTo(event) {
    const { start, duration } = this.store;
    this.show(around(start[event], start[event] + duration[event], 1.5));
    this.select(event);
  }

  // What a place did at an instant; where its queue was empty, how it idled then: that leads on to what had emptied it.
  showInstant(place, time) {
    const event = eventAtInstant(this.store, this.curves.find((curve) => curve.kind === 'queue' && curve.place === place), time);
    if (event >= 0) this.goTo(event);
  }

  // The selected event with everything that its arrows lead to.
  showArrow() {
    const ends = [this.selected, ...otherEnds(this.store, this.selected).slice(0, ARROW_BUDGET)];
    const starts = ends.map((event) => this.store.start[event]);
    this.show(around(Math.min(...starts), Math.max(...ends.map((event) => endOf(this.store, event))), 0.2));
  }

  drawDetails() {
    const panel = this.element('details');
    panel.hidden = this.selected < 0;
    if (panel.hidden) return;
    const name = this.element('details-name');
    const titles = { idle: 'Idle: ', path: 'Critical path: ' };
    const title = titles[trackOf(this.store, this.selected).family];
    name.textContent = name.title = title ? title + eventLabel(this.store, this.words, this.selected) : eventName(this.store, this.selected);
    const facts = describe(this.store, this.words, this.selected).filter(([term]) => term !== 'Inside' && term !== 'Host was in');
    const [duration, start, ...rest] = facts;
    const exact = [...exactTimes(this.store, this.selected), ...rest];
    this.element('details-facts').replaceChildren(...[duration, start, ...exact].map(factElement));
    const story = [...idleStory(this.store, this.words, this.curves, this.selected), ...pathStory(this.store, this.selected)];
    this.element('story').hidden = !story.length;
    this.element('story').replaceChildren(...story.map((step) => this.storyElement(step)));
    this.drawStack();
    this.element('show-arrow').hidden = !otherEnds(this.store, this.selected).length;
    this.element('go-other').hidden = this.element('show-arrow').hidden;
  }

  // A sentence on idle time, with a way to the event that it names.
  storyElement({ text, event }) {
    const item = document.createElement('li');
    item.textContent = text;
    if (event === undefined || event < 0) return item;
    const way = document.createElement('button');
    way.type = 'button';
    way.textContent = trackOf(this.store, event).family === 'path' ? eventLabel(this.store, this.words, event) : eventName(this.store, event);
    way.addEventListener('click', () => this.goTo(event));
    item.append(' ', way);
    return item;
  }

  // What was open around the event, each frame a way to it.
  drawStack() {
    const stack = stackOf(this.store, this.selected);
    this.element('details-stack').parentElement.hidden = !stack.length;
    this.element('details-stack').replaceChildren(...stack.reverse().map((event) => {
      const item = document.createElement('li');
      const frame = document.createElement('button');
      frame.type = 'button';
      frame.textContent = eventName(this.store, event);
      frame.addEventListener('click', () => this.goTo(event));
      item.append(frame);
      return item;
    }));
  }

  // ---- advice -----------------------------------------------------------------------------------------

  // Outlines everything that an advice is about, with the launches and the modules, and opens one place of it.
  chooseAdvice(id, title = '') {
    this.advice = id === null ? null : memberEvents(this.store, id);
    if (this.advice && !this.advice.events.length) this.advice = null;
    const panel = this.element('advice-panel');
    panel.hidden = !this.advice;
    if (this.advice) {
      this.element('advice-title').textContent = title;
      this.element('advice-count').textContent = this.advice.told;
      this.element('advice-tables').replaceChildren(...memberTables(this.store, this.words, this.advice).map(tableElement));
      this.showMember(this.advice.longest);
    }
    this.schedule(true);
  }

  // One member in the middle of the view, with its launch, if it has one.
  showMember(place) {
    const { events } = this.advice;
    this.advice.place = (place + events.length) % events.length;
    const event = events[this.advice.place];
    const { source } = linked(this.store, event);
    const start = Math.min(this.store.start[event], source < 0 ? Infinity : this.store.start[source]);
    this.show(around(start, endOf(this.store, event), 0.15));
    this.element('advice-place').textContent = `${formatCount(this.advice.place + 1)} of ${formatCount(events.length)}`;
    this.root.scrollIntoView({ behavior: 'instant', block: 'start' });
  }

  // Outlines of members, launches and modules; those that would touch are one.
  drawMembers(ink) {
    if (!this.advice) return;
    const { from, to } = this.view;
    ink.strokeStyle = this.accent;
    this.drawMemberArrows(ink);
    ink.lineWidth = 1.5;
    for (const { row: { first }, events } of this.advice.outlines) {
      const row = this.shown.find((candidate) => candidate.first === first);
      if (!row) continue;
      let [left, right] = [NaN, NaN];
      const outline = () => { if (left <= right) ink.strokeRect(left + 0.5, row.top + 0.5, Math.max(2, right - left - 1), row.bottom - row.top - 1); };
      for (const event of events) {
        if (endOf(this.store, event) < from || this.store.start[event] > to) continue;
        const [begin, end] = [this.xOf(Math.max(this.store.start[event], from)), this.xOf(Math.min(endOf(this.store, event), to))];
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
    for (const [tail, head] of memberArrowEvents(this.store, this.advice, this.view, MEMBER_ARROWS)) {
      const arrow = this.arrow(tail, head);
      if (!arrow) continue;
      const [x0, x1] = [this.xOf(arrow.x0), this.xOf(arrow.x1)];
      ink.moveTo(x0, arrow.y0);
      ink.bezierCurveTo(x0, arrow.cy0, x1, arrow.cy1, x1, arrow.y1);
    }
    ink.stroke();
    ink.globalAlpha = 1;
  }

  // ---- critical path ----------------------------------------------------------------------------------

  get hasPath() {
    return Boolean(this.path) && !this.hidden.has(this.path.track);
  }

  // Shows the critical path or hides it: its own row, and a line over the rows of what it goes through.
  showPath(isShown) {
    if (!this.path || isShown === this.hasPath) return;
    if (isShown) this.hidden.delete(this.path.track);
    else this.hidden.add(this.path.track);
    if (!isShown && this.selected >= 0 && trackOf(this.store, this.selected).family === 'path') this.select(-1);
    this.element('path').setAttribute('aria-pressed', String(isShown));
    this.relayout();
  }

  drawPath(ink) {
    if (!this.hasPath) return;
    const { from, to } = this.view;
    const pieces = pathPieces(this.store, this.path, from, to, (PATH_PX * (to - from)) / this.plotWidth);
    const { scrollTop } = this.scroller;
    const placed = this.layout.rows.map((row) => this.inSight(row.pinned ? row : { ...row, top: row.top - scrollTop, bottom: row.bottom - scrollTop }));
    placed.sort((a, b) => a.first - b.first);
    const firsts = placed.map(({ first }) => first);
    const footOf = (event) => {
      const row = placed[lowerBound(firsts, event + 1, 0, firsts.length) - 1];
      return row && event < row.first + row.count ? row.bottom - 1 : undefined;
    };
    drawPath(ink, pieces, footOf, (time) => this.xOf(time), this.pathColours);
  }

  // ---- interval ---------------------------------------------------------------------------------------

  // Chooses an interval and says what happened in it; null takes the choice back.
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
    this.schedule();
  }

  drawInterval() {
    const band = this.element('interval');
    const shown = this.drawn ?? this.interval;
    if (band.hidden === Boolean(shown)) band.hidden = !shown;
    if (!shown) return;
    const [left, right] = [this.xOf(shown.from), this.xOf(shown.to)].map((x) => Math.max(-4, Math.min(x, this.plotWidth + 4)));
    band.style.left = `${left}px`;
    band.style.width = `${Math.max(1, right - left)}px`;
    band.dataset.length = formatDuration(shown.to - shown.from);
  }

  // "pan": dragging moves the view; "select": it chooses an interval, as it always does with Shift and on the axis.
  setMode(mode) {
    this.mode = mode;
    this.root.dataset.mode = mode;
    this.element('select-mode').setAttribute('aria-pressed', String(mode === 'select'));
  }

  drawTooltip(pointer) {
    const event = this.eventUnder(pointer);
    if (event < 0) this.element('tooltip').hidden = true;
    else this.placeTooltip(pointer, eventName(this.store, event), describe(this.store, this.words, event));
  }

  placeTooltip(pointer, name, facts) {
    const tooltip = this.element('tooltip');
    tooltip.hidden = false;
    const title = document.createElement('strong');
    title.textContent = shortened(name, 240);
    tooltip.replaceChildren(title, ...facts.map(factElement));
    const { width, height } = tooltip.getBoundingClientRect();
    const left = Math.max(8, Math.min(pointer.clientX + 14, innerWidth - width - 8));
    const below = pointer.clientY + 18;
    const floor = this.panelTop() - 8;
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${below + height > floor ? Math.max(8, Math.min(pointer.clientY - 14, floor) - height) : below}px`;
  }

  // Where the first open panel begins, else the window ends: what floats stays above it.
  panelTop() {
    const open = ['details', 'interval-panel', 'advice-panel'].map((name) => this.element(name)).filter(({ hidden }) => !hidden);
    return Math.min(innerHeight, ...open.map((panel) => panel.getBoundingClientRect().top));
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
    const count = search(this.store, text.trim(), this.filter);
    this.element('found').textContent = this.store.matches ? `${formatCount(count)} found` : '';
    this.schedule(true);
  }

  // What can be filtered by: the buckets and kinds of the activities, the causes of idle time.
  offerFilters() {
    const counts = new Map();
    for (let i = 0; i < this.store.activities; i++) {
      const key = bucketOf(this.store, i);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const buckets = [...counts].sort((a, b) => b[1] - a[1]).map(([key, count]) => {
      const column = this.store.bucket_values.includes(key) ? 'bucket' : 'kind';
      return { label: `${key} (${formatCount(count)})`, filter: { column, value: key } };
    });
    const causes = this.store.kind_values.filter((kind) => kind.startsWith('idle-')).map((kind) => {
      const cause = kind.replace('idle-', '');
      return { label: this.words[cause] ?? cause, filter: { column: 'kind', value: kind } };
    });
    this.filters = [{ label: 'All events', filter: null }, ...buckets, ...causes];
    const option = ({ label }, i) => new Option(label, String(i));
    const group = (label, first, entries) => {
      const element = document.createElement('optgroup');
      element.label = label;
      element.append(...entries.map((entry, i) => option(entry, first + i)));
      return element;
    };
    const groups = [group('Device work', 1, buckets), group('Idle time', 1 + buckets.length, causes)];
    this.element('filter').replaceChildren(option(this.filters[0], 0), ...groups.filter((element) => element.children.length));
    this.element('filter').hidden = this.filters.length === 1;
  }

  offerPlaces() {
    const places = [...new Set(this.curves.map(({ place }) => place))];
    this.element('place').replaceChildren(...places.map((place) => new Option(place, place)));
    this.element('place').parentElement.hidden = places.length < 2;
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
    addEventListener('hashchange', () => { if (parsesFragment(location.hash)) this.openFragment(true); });
    this.listenToPointer(this.element('canvas'));
    this.listenToAxis(this.element('axis'));
    for (const [kind, format] of Object.entries(CURVES)) this.listenToCurve(kind, format);
    this.listenToSearch();
    this.listenToButtons();
    document.addEventListener('keydown', (event) => this.onKey(event));
  }

  // Queue and runway lead from each instant to what happened then, and say how much there was of them.
  listenToCurve(kind, format) {
    const panel = this.root.querySelector(`[data-curve="${kind}"]`);
    if (!panel) return;
    const plot = panel.querySelector('.tl-plot');
    const curve = () => this.curves.find((candidate) => candidate.kind === kind && candidate.place === this.place);
    plot.addEventListener('pointermove', (event) => {
      this.drawCrosshair(event);
      const time = this.timeAt(event.clientX);
      if (!curve() || time < 0 || time > this.store.end) return this.leave();
      const value = valueAt(curve(), time);
      this.placeTooltip(event, panel.querySelector('.term').textContent, [[this.place, format(value)], ['At', formatDuration(time)]]);
    });
    plot.addEventListener('pointerleave', () => this.leave());
    if (kind === 'memory') return;
    plot.classList.add('leads');
    plot.addEventListener('click', (event) => this.showInstant(this.place, this.timeAt(event.clientX)));
  }

  listenToPointer(canvas) {
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.onPointerUp(event));
    canvas.addEventListener('pointercancel', (event) => {
      this.pointers.delete(event.pointerId);
      this.anchor = this.drawn = null;
    });
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
    if (event.target.closest('.tl-marker')) return;
    this.element('canvas').setPointerCapture(event.pointerId);
    if (event.shiftKey || this.mode === 'select') return this.startInterval(event);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, travelled: 0 });
  }

  onPointerMove(event) {
    const known = this.pointers.get(event.pointerId);
    this.drawCrosshair(event);
    if (this.anchor) return this.stretchInterval(event);
    if (!known) return this.drawTooltip(event);
    this.element('tooltip').hidden = true;
    const before = this.grip();
    known.travelled += Math.abs(event.clientX - known.x) + Math.abs(event.clientY - known.y);
    known.x = event.clientX;
    known.y = event.clientY;
    this.drag(before, this.grip());
  }

  onPointerUp(event) {
    if (this.anchor) return this.endInterval(event);
    const known = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!known || known.travelled >= CLICK_PX) return;
    this.element('tooltip').hidden = true;
    this.select(this.eventUnder(event));
  }

  startInterval(event) {
    this.anchor = { time: this.timeAt(event.clientX), x: event.clientX };
    this.element('tooltip').hidden = true;
  }

  stretchInterval(event) {
    const times = [this.anchor.time, this.timeAt(event.clientX)].sort((a, b) => a - b);
    this.drawn = { from: times[0], to: times[1] };
    this.schedule();
  }

  endInterval(event) {
    this.stretchInterval(event);
    const isClick = Math.abs(event.clientX - this.anchor.x) < CLICK_PX;
    const chosen = this.drawn;
    this.anchor = this.drawn = null;
    this.chooseInterval(isClick ? null : chosen);
    if (this.interval) this.element('interval-panel').scrollIntoView({ block: 'nearest' });
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
    this.element('filter').addEventListener('change', (event) => {
      this.filter = this.filters[Number(event.target.value)].filter;
      this.find(field.value);
    });
  }

  listenToButtons() {
    const actions = {
      next: () => this.step(1),
      previous: () => this.step(-1),
      'zoom-in': () => this.zoomBy(1 / ZOOM_STEP),
      'zoom-out': () => this.zoomBy(ZOOM_STEP),
      all: () => this.showAll(),
      path: () => this.showPath(!this.hasPath),
      full: () => this.setFull(!this.isFull),
      help: () => this.element('help-text').showModal(),
      fit: () => this.selected >= 0 && this.goTo(this.selected),
      'show-arrow': () => this.showArrow(),
      'go-other': () => this.goTo(otherEnds(this.store, this.selected)[0]),
      close: () => this.select(-1),
      'select-mode': () => this.setMode(this.mode === 'select' ? 'pan' : 'select'),
      'interval-zoom': () => this.show(around(this.interval.from, this.interval.to, 0.02)),
      'interval-copy': () => copyText(statisticsText(this.statistics, this.words), this.element('interval-copy')),
      'interval-close': () => this.chooseInterval(null),
      'advice-previous': () => this.showMember(this.advice.place - 1),
      'advice-next': () => this.showMember(this.advice.place + 1),
      'advice-all': () => this.showAll(),
      'advice-close': () => this.chooseAdvice(null),
    };
    for (const [name, action] of Object.entries(actions)) this.element(name).addEventListener('click', action);
    this.element('path').hidden = !this.path;
    this.element('place').addEventListener('change', (event) => {
      this.place = event.target.value;
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
      f: () => (this.selected >= 0 ? this.goTo(this.selected) : this.interval && this.show(around(this.interval.from, this.interval.to, 0.02))),
      0: () => this.showAll(),
      '/': () => this.element('search').focus(),
      v: () => this.setFull(!this.isFull),
      c: () => this.showPath(!this.hasPath),
      '?': () => this.element('help-text').showModal(),
      Escape: () => this.clear(),
      ...(inside && { ArrowLeft: () => step(-1), ArrowRight: () => step(1) }),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

// Whether a fragment names a place on the timeline, and not a part of the page.
function parsesFragment(fragment) {
  const { view, selected, interval } = parseFragment(fragment);
  return view !== null || selected >= 0 || interval !== null;
}

// The function with a memory: Bokeh looks models up by walking through all of them.
function remembering(find) {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, find(name));
    return known.get(name);
  };
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

function tableElement({ title, heads, rows }) {
  const table = document.createElement('table');
  const caption = table.createCaption();
  caption.textContent = title;
  const fill = (row, cells, tag) => cells.forEach((text, i) => {
    const cell = document.createElement(tag);
    cell.textContent = cell.title = text;
    if (tag === 'th') cell.scope = 'col';
    if (i > 0) cell.className = 'n';
    row.append(cell);
  });
  fill(table.createTHead().insertRow(), heads, 'th');
  const body = table.createTBody();
  for (const cells of rows) fill(body.insertRow(), cells, 'td');
  return table;
}

function shortened(text, characters) {
  return text.length <= characters ? text : `${text.slice(0, Math.max(characters - 1, 0))}…`;
}

// 0xRRGGBB with an opacity, as the one number that Bokeh need not parse.
function packed(rgb, alpha) {
  return rgb * 256 + Math.round(alpha * 255);
}
