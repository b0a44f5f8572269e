// The outline of the selected event, its arrows, and the markers of ends outside the view.

import { eventLabel, eventName, otherEnds } from './describe.js';
import { shortened } from './elements.js';
import { formatCount } from './format.js';
import { Part } from './part.js';
import { endOf, linked } from './store.js';

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
    const marker = document.createElement('button');
    marker.type = 'button';
    marker.className = `tl-marker ${side}`;
    marker.dataset.side = side;
    marker.addEventListener('click', () => this.timeline.goTo(Number(marker.dataset.event)));
    return marker;
  }
}
