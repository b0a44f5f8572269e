// The timeline's rows and their labels: which are shown, folded and pinned, and their heights.

import { labelTop, lanesInView, layOut, pinnedTracks, ROW_LIMITS } from './layout.js';
import { Part } from './part.js';
import { rowOf } from './store.js';

const LABEL_HEIGHT_PX = { least: 18, most: 24 }; // next to the rows
const ROWS_PX = 288; // least height of the rows in a low window; as in timeline.css
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
    this.labels = [];
  }

  // The row of an event on the screen, visible or not; undefined in a folded track.
  rowInLayout(event) {
    const row = this.layout.rows.find(({ first, count }) => event >= first && event < first + count);
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
    if (this.folded.has(track) && !this.layout.rows.some(({ first, count }) => event >= first && event < first + count)) {
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
