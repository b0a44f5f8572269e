// The summary plots: drawn when they come into view, else once the page has nothing better to do, so that paper has
// them; in the colours of the theme.

const BEFORE_PX = '400px';
const IDLE_MS = 200; // for browsers that do not tell when they are idle

// What a model takes from the theme, by the kind of model; glyphs carry the name of their colour.
export function themed(model, colour) {
  const name = (model.tags ?? []).find((tag) => typeof tag === 'string' && tag.startsWith('--'));
  if (name) {
    const value = { value: colour(name) };
    return Object.fromEntries(['fill_color', 'line_color']
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
  if ('text_color' in model.attributes && 'text_font_size' in model.attributes) return { text_color: { value: colour('--text-muted') } };
  if ('grid_line_color' in model.attributes) return { grid_line_color: colour('--grid') };
  return {};
}

export function recolour(bokehDocument, colour) {
  for (const model of bokehDocument._all_models.values()) {
    const changes = themed(model, colour);
    if (Object.keys(changes).length) model.setv(changes);
  }
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || 'gray';
}

// A tap on a point or a bar leads to the place that it speaks for: a selection is taken back as soon as it is made.
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

function leadTo(place) {
  document.dispatchEvent(new CustomEvent('place', { detail: place }));
}

async function draw(place, json) {
  const views = await Bokeh.embed.embed_items({ plot: json }, [{
    docid: 'plot', root_ids: [json.roots[0].id], roots: { [json.roots[0].id]: place.id },
  }]);
  const view = Array.isArray(views[0]) ? views[0][0] : [...views[0]][0];
  recolour(view.model.document, cssColour);
  listenToTaps(view.model.document, leadTo);
  place.dataset.drawn = 'true';
  return view.model.document;
}

export function startPlots() {
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
