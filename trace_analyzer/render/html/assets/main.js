// Start what needs the page's data: the timeline, everything that leads to a place on it, plots and flame graphs.

import { decode } from './common.js';
import { startFlames } from './flame.js';
import { around, writeAddress } from './layout.js';
import { buildStore, eventOf } from './store.js';
import { loadBokeh, leaveToPointer, startPlots } from './plots.js';
import { Timeline } from './timeline.js';

const PAPER_PX = 690; // width of A4 and Letter

// The verdict is painted before the events are inflated; a hidden tab paints nothing and does not wait.
function firstPaint() {
  if (document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const observer = new PerformanceObserver((entries) => {
      if (entries.getEntriesByName('first-contentful-paint').length) resolve(observer.disconnect());
    });
    observer.observe({ type: 'paint', buffered: true });
    document.addEventListener('visibilitychange', resolve, { once: true });
  });
}

async function startTimeline(root) {
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const { documents, items } = json('figures');
  const [store, views] = await Promise.all([
    decode(document.getElementById('events').textContent).then(buildStore),
    loadBokeh().then(() => Bokeh.embed.embed_items(documents, items)),
  ]);
  for (const view of Bokeh.index.roots) leaveToPointer(view);
  const bokehDocument = (Array.isArray(views[0]) ? views[0][0] : [...views[0]][0]).model.document;
  return new Timeline(bokehDocument, store, json('words'), root);
}

// Every element with `data-start` and `data-end` (ns on the timeline) leads there when clicked; so do
// the points of the plots.
function listenToJumps(timeline) {
  document.addEventListener('click', (event) => {
    const jump = event.target.closest('[data-start]');
    if (!jump || getSelection().toString()) return;
    depart(timeline);
    if (jump.dataset.advice) timeline.overlays.chooseAdvice(jump.dataset.advice, jump.closest('.card').querySelector('h3').textContent);
    if (!jump.dataset.advice || !timeline.overlays.advice) jumpTo(timeline, Number(jump.dataset.start), Number(jump.dataset.end));
  });
  document.addEventListener('place', ({ detail: { start, end, place } }) => {
    depart(timeline);
    if (place === undefined) return jumpTo(timeline, start, end);
    timeline.root.scrollIntoView({ behavior: 'instant', block: 'start' });
    timeline.showInstant(place, start);
  });
}

// Before the reader is taken to the timeline: Back leads to where they were, and the timeline's keys act from now on.
function depart(timeline) {
  writeAddress('pushState', location.hash);
  timeline.scroller.focus({ preventScroll: true });
}

// Shows the place, and selects its event; where it is no event, like a gap of several causes, its interval.
function jumpTo(timeline, start, end) {
  const event = eventOf(timeline.store, start, end);
  timeline.show(around(start, end, 0.15));
  timeline.root.scrollIntoView({ behavior: 'instant', block: 'start' });
  timeline.ruler.chooseInterval(event < 0 ? { from: start, to: end } : null);
  timeline.select(event);
}

// Canvases follow neither the width of paper nor its colours: figures keep the layout of the screen, scaled to fit, and
// are painted in the light theme (theme.js) before the page is printed.
function listenToPrinter(timeline) { // undefined on a page without one
  addEventListener('beforeprint', () => {
    for (const place of document.querySelectorAll('.timeline, .plot-place')) {
      place.style.setProperty('--screen-width', `${place.offsetWidth}px`);
      place.style.setProperty('--paper-zoom', Math.min(1, PAPER_PX / place.offsetWidth));
    }
    timeline?.root.style.setProperty('--screen-height', `${timeline.scroller.clientHeight}px`);
    timeline?.painter.drawForPaper();
  });
  // Figures update data and colours in separate tasks, which finish before the next listener is called.
  addEventListener('beforeprint', () => {
    for (const figure of Bokeh.index.roots) {
      figure.invalidate_painters?.();
      figure.paint?.();
      if (figure.model.name !== 'rows' || !figure.canvas_view?.primary) continue;
      const { ctx, pixel_ratio: ratio } = figure.canvas_view.primary;
      ctx.save();
      ctx.scale(ratio, ratio);
      timeline.painter.drawLabels(ctx);
      ctx.restore();
    }
  });
}

async function main() {
  const root = document.getElementById('timeline');
  let timeline;
  await firstPaint();
  if (root) {
    performance.mark('timeline-start');
    timeline = await startTimeline(root);
    performance.mark('timeline-ready');
    addEventListener('themechange', () => timeline.painter.readColours());
    listenToJumps(timeline);
  } else if (document.getElementById('bokeh')) await loadBokeh();
  startPlots();
  if (globalThis.Bokeh) listenToPrinter(timeline);
  await startFlames();
  document.documentElement.dataset.ready = 'true';
  dispatchEvent(new Event('timelineready'));
}

main().catch((error) => {
  const place = document.querySelector('[data-tl="trouble"]');
  if (place) {
    place.hidden = false;
    place.textContent = `The timeline could not be drawn in this browser: ${error.message}`;
  }
  throw error;
});
