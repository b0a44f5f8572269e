// The timeline: the view and the selection; its parts draw them, and listen to pointer and keyboard.

import { Panels } from './describe.js';
import { Finder, Input } from './input.js';
import { Ruler } from './interval.js';
import { around, clampView, parseFragment, rowAt, Tracks, writeAddress, writeFragment } from './layout.js';
import { ARROW_BUDGET, Arrows, Overlays } from './overlays.js';
import { Painter } from './painter.js';
import { endOf, eventAt, eventAtInstant } from './store.js';

const HOVER_PX = 4;
const FRAGMENT_DELAY_MS = 300;

export class Timeline {
  constructor(bokehDocument, store, words, root) {
    this.store = store;
    this.words = words;
    this.root = root;
    root.timeline = this; // for the console, and for tests
    this.model = remembering((name) => bokehDocument.get_model_by_name(name));
    this.element = (name) => root.querySelector(`[data-tl="${name}"]`);
    this.scroller = this.element('rows');
    this.range = this.model('view');
    this.selected = -1;
    this.curves = store.curves;
    this.place = this.curves[0]?.place;
    this.tracks = new Tracks(this);
    this.painter = new Painter(this);
    this.arrows = new Arrows(this);
    this.panels = new Panels(this);
    this.overlays = new Overlays(this);
    this.ruler = new Ruler(this);
    this.finder = new Finder(this);
    this.input = new Input(this);
    this.offerPlaces();
    this.painter.readColours();
    this.tracks.relayout();
    this.input.listen();
    this.tracks.listenToGrips();
    this.openFragment(performance.getEntriesByType('navigation')[0]?.type === 'navigate');
  }

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

  // A link to a part of the timeline scrolls to the timeline; reloading the page and Back keep the position.
  openFragment(arrives) {
    const { view, selected, interval, hasPath } = parseFragment(location.hash);
    this.overlays.showPath(hasPath);
    if (view) this.show(view);
    else this.showAll();
    this.painter.drawAxis(); // what it writes above the rows takes a line on a phone: before anything is scrolled to
    const isPart = this.view.to - this.view.from < 0.999 * this.store.end || selected >= 0 || interval;
    if (arrives && isPart) this.root.scrollIntoView({ behavior: 'instant', block: 'start' });
    this.overlays.chooseAdvice(null);
    this.select(selected < this.store.start.length ? selected : -1);
    this.ruler.chooseInterval(interval);
  }

  rememberFragment() {
    clearTimeout(this.fragmentTimer);
    this.fragmentTimer = setTimeout(() => {
      this.tracks.closeLanes();
      writeAddress('replaceState', writeFragment(this.view, this.selected, this.ruler.interval, this.overlays.hasPath));
    }, FRAGMENT_DELAY_MS);
  }

  // One redraw per frame, however many changes request it.
  schedule(stale = false) {
    if (stale) this.painter.fetched = null;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (!this.painter.isFetched()) {
      this.tracks.openLanes();
      this.painter.fetch();
    }
    this.tracks.placeLabels();
    this.painter.drawLabels();
    this.painter.drawAxis();
    this.arrows.drawSelection();
    this.ruler.drawInterval();
    this.rememberFragment();
  }

  // A time clamped to one view length beyond the view: screen coordinates are float32.
  clipped(time) {
    const { from, to } = this.view;
    return Math.max(from - (to - from), Math.min(time, to + (to - from)));
  }

  eventUnder(pointer) {
    const { top } = this.element('canvas').getBoundingClientRect();
    const row = rowAt(this.painter.shown ?? [], pointer.clientY - top);
    if (!row) return -1;
    const { from, to } = this.view;
    return eventAt(this.store, row, this.timeAt(pointer.clientX), (HOVER_PX * (to - from)) / this.plotWidth);
  }

  select(event) {
    this.selected = event;
    if (event >= 0) this.tracks.reveal(event);
    this.panels.drawDetails();
    if (event >= 0) this.panels.uncover(event);
    this.schedule();
  }

  // Escape clears the last selection.
  clear() {
    if (this.ruler.interval && this.selected < 0) this.ruler.chooseInterval(null);
    else if (this.selected >= 0) this.select(-1);
    else if (this.overlays.advice) this.overlays.chooseAdvice(null);
    else if (this.tracks.isFull) this.tracks.setFull(false);
    else this.input.setMode('pan');
  }

  goTo(event) {
    const { start, duration } = this.store;
    this.show(around(start[event], start[event] + duration[event], 1.5));
    this.select(event);
  }

  // The event of a place at a time; where its queue was empty, the idle time then, which shows what emptied it.
  showInstant(place, time) {
    const event = eventAtInstant(this.store, this.curves.find((curve) => curve.kind === 'queue' && curve.place === place), time);
    if (event >= 0) this.goTo(event);
  }

  // The selected event with all events that its arrows lead to.
  showArrow() {
    const ends = [this.selected, ...otherEnds(this.store, this.selected).slice(0, ARROW_BUDGET)];
    const starts = ends.map((event) => this.store.start[event]);
    this.show(around(Math.min(...starts), Math.max(...ends.map((event) => endOf(this.store, event))), 0.2));
  }

  offerPlaces() {
    const places = [...new Set(this.curves.map(({ place }) => place))];
    this.element('place').replaceChildren(...places.map((place) => new Option(place, place)));
    this.element('place').parentElement.hidden = places.length < 2;
  }
}

// The function with a cache: Bokeh finds models by walking through all of them.
function remembering(find) {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, find(name));
    return known.get(name);
  };
}
