// Search and filter: matches are highlighted, and can be stepped through.

import { copyText, formatCount, formatDuration, Hold, made, pan, Part, zoom } from './common.js';
import { otherEnds } from './describe.js';
import { bucketOf, CLICK_PX, statisticsText } from './interval.js';
import { around, parseFragment } from './layout.js';
import { CURVES } from './painter.js';
import { neighbourMatch, rowOf, search, valueAt } from './store.js';

export class Finder extends Part {
  constructor(timeline) {
    super(timeline);
    this.filter = null;
    this.offerFilters();
  }

  find(text) {
    const count = search(this.store, text.trim(), this.filter);
    this.element('match-count').textContent = this.store.matches ? `${formatCount(count)} found` : '';
    this.timeline.schedule(true);
  }

  // Filter values: buckets and kinds of activities, and causes of idle time.
  offerFilters() {
    const counts = new Map();
    for (let i = 0; i < this.store.activities; i++) {
      const key = bucketOf(this.store, i);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const buckets = [...counts].sort((a, b) => b[1] - a[1]).map(([key, count]) => {
      const column = this.store.bucket_values.includes(key) ? 'bucket' : 'kind';
      return { label: `${this.words[key] ?? key} (${formatCount(count)})`, filter: { column, value: key } };
    });
    const causes = this.store.kind_values.filter((kind) => kind.startsWith('idle-')).map((kind) => {
      const cause = kind.replace('idle-', '');
      return { label: this.words[cause] ?? cause, filter: { column: 'kind', value: kind } };
    });
    this.filters = [{ label: 'All events', filter: null }, ...buckets, ...causes];
    const option = ({ label }, i) => new Option(label, String(i));
    const group = (label, first, entries) => {
      const element = made('optgroup', { label });
      element.append(...entries.map((entry, i) => option(entry, first + i)));
      return element;
    };
    const groups = [group('Device work', 1, buckets), group('Idle time', 1 + buckets.length, causes)];
    this.element('filter').replaceChildren(option(this.filters[0], 0), ...groups.filter((element) => element.children.length));
    this.element('filter').hidden = this.filters.length === 1;
  }

  step(direction) {
    if (!this.store.matches) return;
    const { event, place, count } = neighbourMatch(this.store, this.timeline.selected, direction);
    if (event < 0) return;
    this.timeline.goTo(event);
    this.element('match-count').textContent = `${formatCount(place)} of ${formatCount(count)}`;
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
}

// Pointer, wheel, keys and buttons.

const PAN_STEP = 0.15;
const ZOOM_STEP = 1.4;

export class Input extends Part {
  constructor(timeline) {
    super(timeline);
    this.mode = 'pan';
    this.hold = new Hold();
  }

  // "pan": dragging moves the view; "select": it selects an interval, as always with Shift and on the axis.
  setMode(mode) {
    this.mode = mode;
    this.root.dataset.mode = mode;
    this.element('select-mode').setAttribute('aria-pressed', String(mode === 'select'));
  }

  listen() {
    this.timeline.range.change.connect(() => this.timeline.schedule());
    this.scroller.addEventListener('scroll', () => this.timeline.schedule(true), { passive: true });
    new ResizeObserver(() => this.timeline.tracks.relayout()).observe(this.scroller);
    // before the browser scrolls to where the reader was
    addEventListener('popstate', () => { if (parsesFragment(location.hash)) this.timeline.openFragment(history.state === null); });
    this.listenToPointer(this.element('canvas'));
    this.timeline.ruler.listenToAxis(this.element('axis'));
    for (const [kind, format] of Object.entries(CURVES)) this.listenToCurve(kind, format);
    this.timeline.finder.listenToSearch();
    this.listenToButtons();
    document.addEventListener('keydown', (event) => this.onKey(event));
  }

  // A click on queue depth or queued work leads to the events at that time; the tooltip shows the values.
  listenToCurve(kind, format) {
    const panel = this.root.querySelector(`[data-curve="${kind}"]`);
    if (!panel) return;
    const plot = panel.querySelector('.tl-plot');
    const curve = () => this.timeline.curves.find((candidate) => candidate.kind === kind && candidate.place === this.timeline.place);
    plot.addEventListener('pointermove', (event) => {
      this.timeline.panels.drawCrosshair(event);
      const time = this.timeline.timeAt(event.clientX);
      if (!curve() || time < 0 || time > this.store.end) return this.timeline.panels.leave();
      const value = valueAt(curve(), time);
      this.timeline.panels.placeTooltip(event, panel.querySelector('.term').textContent, [[this.timeline.place, format(value)], ['At', formatDuration(time)]]);
    });
    plot.addEventListener('pointerleave', () => this.timeline.panels.leave());
    if (kind === 'memory') return;
    plot.classList.add('leads');
    plot.addEventListener('click', (event) => this.timeline.showInstant(this.timeline.place, this.timeline.timeAt(event.clientX)));
  }

  listenToPointer(canvas) {
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.onPointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.onPointerUp(event));
    canvas.addEventListener('pointercancel', (event) => {
      this.hold.release(event);
      this.timeline.ruler.anchor = this.timeline.ruler.drawn = null;
    });
    canvas.addEventListener('pointerleave', () => this.timeline.panels.leave());
    canvas.addEventListener('dblclick', () => this.timeline.selected >= 0 && this.timeline.goTo(this.timeline.selected));
  }

  onWheel(event) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      this.timeline.show(zoom(this.timeline.view, this.timeline.timeAt(event.clientX), Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.timeline.show(pan(this.timeline.view, (sideways / this.timeline.plotWidth) * (this.timeline.view.to - this.timeline.view.from)));
    } else return; // plain wheel scrolls
    event.preventDefault();
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    if (event.target.closest('.tl-marker')) return;
    this.element('canvas').setPointerCapture(event.pointerId);
    if (event.shiftKey || this.mode === 'select') return this.timeline.ruler.startInterval(event);
    this.hold.take(event);
  }

  onPointerMove(event) {
    this.timeline.panels.drawCrosshair(event);
    if (this.timeline.ruler.anchor) return this.timeline.ruler.stretchInterval(event);
    const { left } = this.element('canvas').getBoundingClientRect();
    const moved = this.hold.drag(event, this.timeline.view, left, this.timeline.plotWidth);
    if (!moved) return this.timeline.panels.drawTooltip(event);
    this.element('tooltip').hidden = true;
    this.timeline.show(moved);
  }

  onPointerUp(event) {
    if (this.timeline.ruler.anchor) return this.timeline.ruler.endInterval(event);
    if ((this.hold.release(event) ?? CLICK_PX) >= CLICK_PX) return; // no click: dragged, or not held
    this.element('tooltip').hidden = true;
    this.timeline.select(this.timeline.eventUnder(event));
  }

  listenToButtons() {
    const actions = {
      next: () => this.timeline.finder.step(1),
      previous: () => this.timeline.finder.step(-1),
      'zoom-in': () => this.zoomBy(1 / ZOOM_STEP),
      'zoom-out': () => this.zoomBy(ZOOM_STEP),
      all: () => this.timeline.showAll(),
      path: () => this.timeline.overlays.showPath(!this.timeline.overlays.hasPath),
      full: () => this.timeline.tracks.setFull(!this.timeline.tracks.isFull),
      help: () => this.element('help-text').showModal(),
      fit: () => this.timeline.selected >= 0 && this.timeline.goTo(this.timeline.selected),
      'show-arrow': () => this.timeline.showArrow(),
      'go-other': () => this.timeline.goTo(otherEnds(this.store, this.timeline.selected)[0]),
      close: () => this.timeline.select(-1),
      'select-mode': () => this.setMode(this.mode === 'select' ? 'pan' : 'select'),
      'interval-zoom': () => this.timeline.show(around(this.timeline.ruler.interval.from, this.timeline.ruler.interval.to, 0.02)),
      'interval-copy': () => copyText(statisticsText(this.timeline.ruler.statistics, this.words), this.element('interval-copy')),
      'interval-close': () => this.timeline.ruler.chooseInterval(null),
      'advice-previous': () => this.timeline.overlays.showMember(this.timeline.overlays.advice.place - 1),
      'advice-next': () => this.timeline.overlays.showMember(this.timeline.overlays.advice.place + 1),
      'advice-all': () => this.timeline.showAll(),
      'advice-close': () => this.timeline.overlays.chooseAdvice(null),
    };
    for (const [name, action] of Object.entries(actions)) this.element(name).addEventListener('click', action);
    this.element('path').hidden = !this.timeline.overlays.path;
    this.element('place').addEventListener('change', (event) => {
      this.timeline.place = event.target.value;
      this.timeline.schedule(true);
    });
  }

  zoomBy(factor) {
    const { from, to } = this.timeline.view;
    this.timeline.show(zoom(this.timeline.view, (from + to) / 2, factor));
  }

  // Keys act while no other element has the focus; arrow keys only inside the timeline, elsewhere they scroll.
  onKey(event) {
    const inside = this.root.contains(event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    if (!inside && event.target !== document.body) return;
    const length = this.timeline.view.to - this.timeline.view.from;
    const step = (direction) => this.timeline.show(pan(this.timeline.view, direction * PAN_STEP * length));
    const actions = {
      w: () => this.zoomBy(1 / ZOOM_STEP),
      s: () => this.zoomBy(ZOOM_STEP),
      a: () => step(-1),
      d: () => step(1),
      f: () => (this.timeline.selected >= 0 ? this.timeline.goTo(this.timeline.selected) : this.timeline.ruler.interval && this.timeline.show(around(this.timeline.ruler.interval.from, this.timeline.ruler.interval.to, 0.02))),
      0: () => this.timeline.showAll(),
      '/': () => this.element('search').focus(),
      v: () => this.timeline.tracks.setFull(!this.timeline.tracks.isFull),
      p: () => this.timeline.selected >= 0 && this.timeline.tracks.pin(rowOf(this.store, this.timeline.selected).track),
      c: () => this.timeline.overlays.showPath(!this.timeline.overlays.hasPath),
      '?': () => this.element('help-text').showModal(),
      Escape: () => this.timeline.clear(),
      ...(inside && { ArrowLeft: () => step(-1), ArrowRight: () => step(1) }),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

// Whether a fragment names a place on the timeline instead of a part of the page.
function parsesFragment(fragment) {
  const { view, selected, interval } = parseFragment(fragment);
  return view !== null || selected >= 0 || interval !== null;
}

function isField(element) {
  return element.matches('input, select, textarea') || element.closest('dialog') !== null;
}
