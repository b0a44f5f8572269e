// The summary plots: drawn when they come into view, else once the page has nothing better to do, so that paper has
// them; in the colours of the theme.

import { inflated } from './common.js';

const BEFORE_PX = '400px';
const WIDE_FROM_PX = 640;
const IDLE_MS = 200; // for browsers without requestIdleCallback

// What a model takes from the theme, by the kind of model; glyphs have the name of their colour.
export function themed(model, colour) {
  const name = (model.tags ?? []).find((tag) => typeof tag === 'string' && tag.startsWith('--'));
  if (name) {
    const value = { value: colour(name) };
    return Object.fromEntries(['fill_color', 'line_color', 'text_color']
      .filter((key) => key in model.attributes && model.attributes[key]?.value != null).map((key) => [key, value]));
  }
  if ('axis_line_color' in model.attributes) {
    return {
      axis_line_color: colour('--line'),
      major_tick_line_color: colour('--text-muted'),
      axis_label_text_color: colour('--text-soft'),
      major_label_text_color: colour('--text-muted'),
    };
  }
  if ('grid_line_color' in model.attributes) return { grid_line_color: colour('--grid') };
  return {};
}

function recolour(bokehDocument, colour) {
  for (const model of bokehDocument._all_models.values()) {
    const changes = themed(model, colour);
    if (Object.keys(changes).length) model.setv(changes);
  }
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || 'gray';
}

// A tap on a point or a bar leads to its place; the selection is cleared immediately.
export function listenToTaps(bokehDocument, lead) {
  for (const model of bokehDocument._all_models.values()) {
    if (model.type !== 'GlyphRenderer') continue;
    const source = model.data_source;
    const [starts, ends] = ['start_ns', 'end_ns'].map((name) => source.get_column(name));
    if (!starts || !ends) continue;
    const { selected } = source;
    selected.change.connect(() => {
      const [point] = selected.indices;
      if (point === undefined) return;
      selected.indices = [];
      if (starts[point] >= 0) lead({ start: starts[point], end: ends[point] });
    });
  }
}

// No key does anything in a figure, which Bokeh makes a stop of the Tab key.
export function leaveToPointer({ canvas_view: canvas }) {
  if (canvas) canvas.events_el.tabIndex = -1; // Bokeh's notifications have none
}

// The time on a curve that is nearest to a point of its plot: its device, and the time.
export function instantAt(curves, x, y) {
  let nearest = null;
  for (const { xs, ys, place, unit } of curves) {
    let i = xs.length - 1; // the last value that began by then; a step is two points at one time
    while (i > 0 && xs[i] > x) i -= 1;
    const away = Math.abs(ys[i] - y);
    if (x >= 0 && (!nearest || away < nearest.away)) nearest = { place, time: Math.round(x * unit), away };
  }
  return nearest && { place: nearest.place, time: nearest.time };
}

// A tap on a curve over time leads to that instant.
function listenToInstants(place, view, lead) {
  const curves = view.model.renderers.filter(({ tags }) => tags?.[0]?.unit_ns).map(({ data_source: source, glyph, tags: [tag] }) => ({
    xs: source.get_column(glyph.x.field), ys: source.get_column(glyph.y.field), place: tag.place, unit: tag.unit_ns,
  }));
  if (!curves.length) return;
  place.classList.add('leads');
  place.addEventListener('click', (event) => {
    const { left, top } = view.el.getBoundingClientRect();
    const instant = instantAt(curves, view.frame.x_scale.invert(event.clientX - left), view.frame.y_scale.invert(event.clientY - top));
    if (instant) lead({ start: instant.time, end: instant.time, place: instant.place });
  });
}

function leadTo(place) {
  document.dispatchEvent(new CustomEvent('place', { detail: place }));
}

// A narrow plot has fewer ticks, and shows names of lines in the legend only.
function fit(place, { renderers, below: [axis] }) {
  const names = renderers.filter(({ tags }) => tags?.includes('spare'));
  const choose = () => {
    const wide = place.clientWidth >= WIDE_FROM_PX;
    for (const name of names) name.visible = wide;
    if ('desired_num_ticks' in axis.ticker.attributes) axis.ticker.desired_num_ticks = wide ? 6 : 3;
  };
  new ResizeObserver(choose).observe(place);
  choose();
}

async function draw(place, json) {
  const views = await Bokeh.embed.embed_items({ plot: json }, [{
    docid: 'plot', root_ids: [json.roots[0].id], roots: { [json.roots[0].id]: place.id },
  }]);
  const view = Array.isArray(views[0]) ? views[0][0] : [...views[0]][0];
  recolour(view.model.document, cssColour);
  listenToTaps(view.model.document, leadTo);
  listenToInstants(place, view, leadTo);
  fit(place, view.model);
  leaveToPointer(view);
  place.dataset.drawn = 'true';
  return view.model.document;
}

// BokehJS is in the page deflated, a third of its size. As an inline script it needs no more than the page's own scripts do.
export async function loadBokeh() {
  const script = document.createElement('script');
  script.textContent = await inflated(document.getElementById('bokeh').textContent).text();
  document.head.append(script);
}

export function startPlots() {
  if (!document.getElementById('plots')) return;
  const json = JSON.parse(document.getElementById('plots').textContent);
  const drawn = [];
  const waiting = new Set(document.querySelectorAll('[data-plot]'));
  const start = async (place) => {
    if (!waiting.delete(place)) return;
    seen.unobserve(place);
    drawn.push(await draw(place, json[place.dataset.plot]));
  };
  const idle = globalThis.requestIdleCallback ?? ((callback) => setTimeout(callback, IDLE_MS));
  const startRest = () => {
    if (waiting.size) idle(() => start(waiting.values().next().value ?? null).then(startRest));
  };
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) start(target);
  }, { rootMargin: BEFORE_PX });
  waiting.forEach((place) => seen.observe(place));
  addEventListener('timelineready', startRest, { once: true });
  addEventListener('themechange', () => drawn.forEach((bokehDocument) => recolour(bokehDocument, cssColour)));
}
