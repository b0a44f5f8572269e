// Starts the timeline, and everything that leads to a place on it.

import { decode } from './codec.js';
import { around } from './navigation.js';
import { buildStore } from './store.js';
import { Timeline } from './timeline.js';

async function startTimeline() {
  const root = document.getElementById('timeline');
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const { documents, items } = json('figures');
  const [store, views] = await Promise.all([
    decode(document.getElementById('events').textContent).then(buildStore),
    Bokeh.embed.embed_items(documents, items),
  ]);
  const bokehDocument = (Array.isArray(views[0]) ? views[0][0] : [...views[0]][0]).model.document;
  return new Timeline(bokehDocument, store, json('words'), root);
}

function listenToJumps(timeline) {
  document.addEventListener('click', (event) => {
    const jump = event.target.closest('[data-start]');
    if (!jump || getSelection().toString()) return;
    timeline.show(around(Number(jump.dataset.start), Number(jump.dataset.end), 0.15));
    timeline.root.scrollIntoView({ behavior: motion(), block: 'start' });
  });
}

function motion() {
  return matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth';
}

async function main() {
  if (!document.getElementById('timeline')) return;
  const timeline = await startTimeline();
  addEventListener('themechange', () => timeline.readColours());
  listenToJumps(timeline);
  document.documentElement.dataset.ready = 'true';
}

main().catch((error) => {
  const place = document.querySelector('[data-tl="trouble"]');
  place.hidden = false;
  place.textContent = `The timeline could not be drawn in this browser: ${error.message}`;
  throw error;
});
