// Overlays on request: the members of an advice, and the critical path.

import { memberArrowEvents, memberEvents, memberTables } from './advice.js';
import { tableElement } from './elements.js';
import { formatCount } from './format.js';
import { around } from './navigation.js';
import { Part } from './part.js';
import { drawPath, pathPieces, pathRow } from './path.js';
import { endOf, linked, lowerBound, trackOf } from './store.js';

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
      this.element('advice-title').textContent = title;
      this.element('advice-count').textContent = this.advice.summary;
      this.element('advice-tables').replaceChildren(...memberTables(this.store, this.words, this.advice).map(tableElement));
      this.showMember(this.advice.longest);
    }
    this.timeline.schedule(true);
  }

  // One member in the middle of the view, with its launch, if it has one.
  showMember(place) {
    const { events } = this.advice;
    this.advice.place = (place + events.length) % events.length;
    const event = events[this.advice.place];
    const { source } = linked(this.store, event);
    const start = Math.min(this.store.start[event], source < 0 ? Infinity : this.store.start[source]);
    this.timeline.show(around(start, endOf(this.store, event), 0.15));
    this.element('advice-place').textContent = `${formatCount(this.advice.place + 1)} of ${formatCount(events.length)}`;
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
    if (!isShown && this.timeline.selected >= 0 && trackOf(this.store, this.timeline.selected).family === 'path') this.timeline.select(-1);
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
      return row && event < row.first + row.count ? row.bottom - 1 : undefined;
    };
    drawPath(ink, pieces, footOf, (time) => this.timeline.xOf(time), this.timeline.painter.pathColours);
  }
}
