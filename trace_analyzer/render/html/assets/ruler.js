// The axis as a ruler: dragging on it selects an interval, whose statistics are shown.

import { tableElement } from './elements.js';
import { formatDuration } from './format.js';
import { statistics, statisticsTables } from './interval.js';
import { Part } from './part.js';

export const CLICK_PX = 4;

export class Ruler extends Part {
  constructor(timeline) {
    super(timeline);
    this.interval = this.statistics = null;
    this.anchor = this.drawn = null; // while an interval is dragged
  }

  // Selects an interval and shows its statistics; null clears the selection.
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
    this.timeline.schedule();
  }

  drawInterval() {
    const band = this.element('interval');
    const shown = this.drawn ?? this.interval;
    if (band.hidden === Boolean(shown)) band.hidden = !shown;
    if (!shown) return;
    const [left, right] = [this.timeline.xOf(shown.from), this.timeline.xOf(shown.to)].map((x) => Math.max(-4, Math.min(x, this.timeline.plotWidth + 4)));
    band.style.left = `${left}px`;
    band.style.width = `${Math.max(1, right - left)}px`;
    band.dataset.length = formatDuration(shown.to - shown.from);
  }

  startInterval(event) {
    this.anchor = { time: this.timeline.timeAt(event.clientX), x: event.clientX };
    this.element('tooltip').hidden = true;
  }

  stretchInterval(event) {
    const times = [this.anchor.time, this.timeline.timeAt(event.clientX)].sort((a, b) => a - b);
    this.drawn = { from: times[0], to: times[1] };
    this.timeline.schedule();
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
}
