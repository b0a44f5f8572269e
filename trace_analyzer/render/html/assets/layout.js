// Arithmetic of the visible time range: all functions take and return { from, to } in ns.

import { made, Part } from './common.js';
import { firstEndingAfter, holds, rowOf } from './store.js';

const SHORTEST = 20;

// The range moved and shrunk into the trace, with a small margin at both ends.
export function clampView({ from, to }, end) {
  const air = Math.max(end, 1) * 0.02;
  const length = Math.min(Math.max(to - from, SHORTEST), Math.max(end, SHORTEST) + 2 * air);
  const start = Math.min(Math.max(from, -air), Math.max(end + air - length, -air));
  return { from: start, to: start + length };
}

// A range with [start, end) in its middle and space on both sides.
export function around(start, end, room = 0.6) {
  const margin = Math.max((end - start) * room, SHORTEST);
  return { from: start - margin, to: end + margin };
}

// Round times to label, about `count` of them.
export function ticks({ from, to }, count) {
  const rough = (to - from) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, power * [1, 2, 5, 10].find((multiple) => power * multiple >= rough));
  const first = Math.ceil(Math.max(from, 0) / step);
  const times = [];
  for (let i = first; i * step <= to; i++) times.push(i * step);
  return { step, times };
}

// `#t=start,end&sel=event&iv=start,end&path=1`: a place on the timeline, a selected event and a selected interval, and whether
// the critical path is shown.
export function parseFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ''));
  const selected = fields.has('sel') ? Number(fields.get('sel')) : -1;
  return {
    view: parseRange(fields.get('t')),
    selected: Number.isInteger(selected) ? selected : -1,
    interval: parseRange(fields.get('iv')),
    hasPath: fields.get('path') === '1',
  };
}

function parseRange(text) {
  const [from, to] = (text ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? { from, to } : null;
}

export function writeFragment(view, selected, interval, hasPath = false) {
  const range = ({ from, to }) => `${Math.floor(from)},${Math.ceil(to)}`;
  return [`#t=${range(view)}`, ...(selected < 0 ? [] : [`sel=${selected}`]), ...(interval ? [`iv=${range(interval)}`] : []), ...(hasPath ? ['path=1'] : [])].join('&');
}

// Writes a place on the timeline into the address. Its entry of history has a state: that of a link to follow has none.
export function writeAddress(method, fragment) {
  try {
    history[method](true, '', fragment);
  } catch {
    // a sandboxed frame has no address
  }
}

// Positions of tracks and rows, in pixels from the top: pinned tracks first, which stay visible, then scrolling ones.

const HEADING = 28;
const HEADING_GAP = 6;
const GAP = 8;
const FOLDED = 9;
const ROW_HEIGHT = {
  path: 20, stream: 24, exposed: 16, sync: 16, idle: 22,
  phases: 18, annotations: 18, calls: 16, operators: 18, modules: 18, overhead: 14, python: 16, other: 14,
};
const ROW_SPACE = 1;
const ROW_LIMITS = { least: 7, most: 72 };

// Headings and tracks from top to bottom, and the rows that are shown; a folded track shows its first row. `heights` holds
// the heights of rows that the reader chose, `lanes` how many rows of a track hold anything in the view: both by track;
// tracks that are `hidden` take no room.
export function layOut(store, folded, { pinned = new Set(), heights = new Map(), lanes = new Map(), hidden = new Set() } = {}) {
  const layout = { items: [], rows: [], height: 0, pinnedHeight: 0 };
  const ids = store.tracks.map((_, id) => id).filter((id) => !hidden.has(id));
  const options = { folded, heights, lanes };
  addTracks(store, layout, ids.filter((id) => pinned.has(id)), true, options);
  layout.pinnedHeight = layout.height;
  addTracks(store, layout, ids.filter((id) => !pinned.has(id)), false, options);
  return layout;
}

function addTracks(store, layout, ids, pinned, { folded, heights, lanes }) {
  let heading = null;
  for (const id of ids) {
    const track = store.tracks[id];
    if (track.group !== heading?.heading) {
      heading = { heading: track.group, top: layout.height, height: HEADING, pinned, end: layout.height };
      layout.items.push(heading);
      layout.height += HEADING + HEADING_GAP;
    }
    const rows = store.rows.filter((row) => row.track === id);
    const isFolded = folded.has(id);
    const height = heights.get(id) ?? (isFolded ? FOLDED : ROW_HEIGHT[track.family]);
    const shown = rows.slice(0, isFolded ? 1 : Math.max(1, lanes.get(id) ?? rows.length));
    const foldable = rows.length > 1 || track.collapsed;
    const item = { track: id, label: track.label, top: layout.height, height: shown.length * height, row: height, folded: isFolded, foldable, pinned };
    layout.items.push(item);
    for (const row of shown) {
      layout.rows.push({ ...row, pinned, top: layout.height, bottom: layout.height + height - ROW_SPACE });
      layout.height += height;
    }
    item.end = heading.end = layout.height;
    layout.height += GAP;
  }
}

// The `chosen` tracks, and those of devices from the top, as many as fit in `room` px with them; those after the first
// device only with all tracks of their device.
export function pinnedTracks(store, folded, room, { heights, hidden = new Set(), chosen = new Set() }) {
  const devices = store.tracks.flatMap(({ thread }, id) => (thread === null && !hidden.has(id) ? [id] : []));
  if (store.tracks.every(({ thread }) => thread === null)) return new Set(); // nothing to scroll below them
  const groupAt = (place) => store.tracks[devices[place]]?.group;
  for (let count = devices.length; count > 0; count--) {
    if (groupAt(count - 1) !== groupAt(0) && groupAt(count) === groupAt(count - 1)) continue;
    const pinned = new Set([...chosen, ...devices.slice(0, count)]);
    if (layOut(store, folded, { pinned, heights, hidden }).pinnedHeight <= room) return pinned;
  }
  return chosen;
}

// The number of rows of each track up to the last one with an event between two times.
export function lanesInView(store, from, to) {
  const lanes = new Map();
  for (const row of store.rows) {
    const event = firstEndingAfter(store, row, from);
    if (event < row.last && store.start[event] < to) lanes.set(row.track, Math.max(lanes.get(row.track) ?? 1, row.depth + 1));
    else if (!lanes.has(row.track)) lanes.set(row.track, 1);
  }
  return lanes;
}

// Rows as shown on the screen: scrolling rows are moved up, and cut at the pinned rows and at the edge of the view.
export function onScreen({ rows, pinnedHeight }, scrolled, height) {
  return rows.flatMap((row) => {
    if (row.pinned) return row.top < height ? [row] : [];
    const [top, bottom] = [Math.max(row.top - scrolled, pinnedHeight), row.bottom - scrolled];
    return bottom > top && top < height ? [{ ...row, top, bottom }] : [];
  });
}

// Position of a label: next to its track's first row, but visible while any part of the track is.
export function labelTop(item, scrolled, pinnedHeight) {
  if (item.pinned) return item.top;
  const least = pinnedHeight + (item.heading === undefined ? HEADING : 0);
  return Math.max(item.top - scrolled, Math.min(least, item.end - scrolled - Math.min(item.height, HEADING)));
}

// The row at a height, or the nearest one in the space between two rows.
export function rowAt(rows, y) {
  return rows.find((row) => y >= row.top && y < row.bottom + ROW_SPACE);
}

// The timeline's rows and their labels: which are shown, folded and pinned, and their heights.

const LABEL_HEIGHT_PX = { least: 18, most: 24 }; // next to the rows
const ROWS_PX = 288; // least height of the rows in a low window; as --tl-most in style.css
const ROWS_SHARE = 0.6; // of the window's height
const ROWS_LEAST_PX = 160;
const PINNED_SHARE = 0.55; // of the rows' height, at most
const FULL_FRAME_PX = 320; // height of everything around the rows in a separate window

export class Tracks extends Part {
  constructor(timeline) {
    super(timeline);
    this.heights = new Map();
    this.lanes = lanesInView(this.store, 0, this.store.end);
    this.folded = new Set(this.store.tracks.flatMap((track, id) => (track.collapsed ? [id] : [])));
    this.hidden = new Set(); // until requested
    this.chosen = new Set(); // pinned by the reader
    this.labels = [];
  }

  // The row of an event on the screen, visible or not; undefined in a folded track.
  rowInLayout(event) {
    const row = this.layout.rows.find((candidate) => holds(candidate, event));
    if (!row || row.pinned) return row;
    const { scrollTop } = this.scroller;
    return { ...row, top: row.top - scrollTop, bottom: row.bottom - scrollTop };
  }

  // The height at which the scrolling part begins.
  get ceiling() {
    return this.layout.pinnedHeight;
  }

  isHidden({ pinned, top, bottom }) {
    return !pinned && (bottom <= this.ceiling || top >= this.scroller.clientHeight);
  }

  // A row outside the view is placed at the edge where it left: arrows end there.
  inSight(row) {
    if (!row || !this.isHidden(row)) return row;
    const y = row.bottom <= this.ceiling ? this.ceiling : this.scroller.clientHeight;
    return { ...row, top: y, bottom: y };
  }

  trackTop(event) {
    const { track } = rowOf(this.store, event);
    const item = this.layout.items.find((candidate) => candidate.track === track);
    return item.top - (item.pinned ? 0 : this.scroller.scrollTop);
  }

  relayout() {
    const focused = [...this.element('labels').querySelectorAll('[data-track]')].find((label) => label.contains(document.activeElement))?.dataset.track;
    const room = PINNED_SHARE * (this.isFull ? innerHeight - FULL_FRAME_PX : Math.max(this.rowsHeight ?? 0, ROWS_PX, ROWS_SHARE * innerHeight));
    const { heights, lanes, hidden, chosen } = this;
    this.pinned = pinnedTracks(this.store, this.folded, room, { heights, hidden, chosen });
    this.layout = layOut(this.store, this.folded, { pinned: this.pinned, heights, lanes, hidden });
    this.root.style.setProperty('--tl-height', `${this.layout.height}px`);
    this.root.style.setProperty('--tl-pinned', `${this.layout.pinnedHeight}px`);
    this.labels = this.layout.items.flatMap((item) => [this.trackLabel(item), ...this.pinOf(item)].map((element) => ({ item, element, y: null, isStuck: false })));
    const part = (isPinned) => this.labels.filter(({ item }) => item.pinned === isPinned).map(({ element }) => element);
    this.element('pinned-labels').replaceChildren(...part(true));
    this.element('flow-labels').replaceChildren(...part(false));
    if (focused !== undefined) this.element('labels').querySelector(`[data-track="${focused}"]`)?.focus();
    if (this.isFull) this.root.style.setProperty('--tl-full', `${this.scroller.clientHeight}px`);
    this.element('grip').setAttribute('aria-valuenow', String(this.scroller.clientHeight));
    this.root.style.setProperty('--tl-bar', `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
    this.timeline.plotWidth = Math.max(this.element('canvas').clientWidth, 1); // reading it each time would cost a layout each
    this.timeline.schedule(true);
  }

  // Hidden lanes that the view needs are shown at once; lanes that it does not need are hidden when it rests.
  openLanes() {
    const needed = lanesInView(this.store, this.timeline.view.from, this.timeline.view.to);
    if (![...needed].some(([track, count]) => count > (this.lanes.get(track) ?? 0))) return;
    for (const [track, count] of needed) this.lanes.set(track, Math.max(count, this.lanes.get(track) ?? 0));
    this.relayout();
  }

  closeLanes() {
    const needed = lanesInView(this.store, this.timeline.view.from, this.timeline.view.to);
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
    const text = item.heading ?? item.label;
    const label = made(item.foldable ? 'button' : 'span', { className: item.heading === undefined ? 'track' : 'heading', textContent: text, title: text });
    const height = item.heading === undefined ? Math.max(LABEL_HEIGHT_PX.least, Math.min(item.height, LABEL_HEIGHT_PX.most)) : item.height;
    item.shift = Math.min(item.height - height, 0) / 2; // the label of a folded track is higher than its row
    label.style.lineHeight = label.style.height = `${height}px`;
    if (item.track !== undefined) {
      label.dataset.track = item.track;
      const grip = made('i', { className: 'tl-grip', title: 'Drag to make its rows higher or lower' });
      grip.dataset.track = item.track;
      label.append(grip);
    }
    if (item.foldable) {
      label.type = 'button';
      label.setAttribute('aria-expanded', String(!item.folded));
      label.addEventListener('click', (event) => event.target === label && this.fold(item.track, !item.folded));
    }
    return label;
  }

  // The pin beside the label of a thread's track; the tracks of devices are pinned while there is room.
  pinOf({ track, shift }) {
    if (track === undefined || this.store.tracks[track].thread === null) return [];
    const title = 'Keep it in sight above the others (P, for the track of what is selected)';
    const pin = made('button', { type: 'button', className: 'tl-pin', title, tabIndex: -1 }); // the key does the same
    pin.style.height = `${LABEL_HEIGHT_PX.least}px`;
    pin.setAttribute('aria-pressed', String(this.chosen.has(track)));
    pin.setAttribute('aria-label', `Pin ${this.store.tracks[track].label}`);
    pin.addEventListener('click', () => this.pin(track));
    return [pin];
  }

  pin(track) {
    if (this.store.tracks[track].thread === null) return;
    if (!this.chosen.delete(track)) this.chosen.add(track);
    this.relayout();
  }

  // Grips: for the row height of a track, and for the height of the scrolling part.
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

  // The timeline alone in the window, at full height.
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

  // Unfolds the event's track and scrolls to its row.
  reveal(event) {
    const { track } = rowOf(this.store, event);
    if (this.hidden.has(track)) this.timeline.overlays.showPath(true);
    if (this.folded.has(track) && !this.layout.rows.some((row) => holds(row, event))) {
      this.fold(track, false);
    }
    const row = this.rowInLayout(event) ?? this.afterOpening(event);
    if (row.pinned) return;
    const { clientHeight } = this.scroller;
    if (row.top < this.ceiling || row.bottom > clientHeight) this.scroller.scrollTop += row.top - (this.ceiling + clientHeight) / 2;
  }

  // The row of an event in a hidden lane.
  afterOpening(event) {
    const { track, depth } = rowOf(this.store, event);
    this.lanes.set(track, Math.max(depth + 1, this.lanes.get(track) ?? 0));
    this.relayout();
    return this.rowInLayout(event);
  }
}
