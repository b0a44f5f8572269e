// Describe an event: the panel of the selected one, and the card under the pointer.

import { describe, eventLabel, eventName, exactTimes, otherEnds } from './describe.js';
import { factElement, shortened } from './elements.js';
import { idleStory } from './idle_story.js';
import { Part } from './part.js';
import { pathStory } from './path.js';
import { stackOf, trackOf } from './store.js';

const PANEL_GAP_PX = 12;

export class Panels extends Part {
  // The details panel must not cover the row of its event.
  uncover(event) {
    const hidden = () => this.scroller.getBoundingClientRect().top + this.timeline.tracks.rowInLayout(event).bottom - this.element('details').getBoundingClientRect().top;
    if (hidden() > 0 && !this.timeline.tracks.rowInLayout(event).pinned) this.scroller.scrollTop += hidden() + PANEL_GAP_PX;
    if (hidden() > 0 && !this.timeline.tracks.isFull) scrollBy({ top: hidden() + PANEL_GAP_PX, behavior: 'instant' });
  }

  drawDetails() {
    const panel = this.element('details');
    panel.hidden = this.timeline.selected < 0;
    if (panel.hidden) return;
    const name = this.element('details-name');
    const titles = { idle: 'Idle: ', path: 'Critical path: ' };
    const title = titles[trackOf(this.store, this.timeline.selected).family];
    name.textContent = name.title = title ? title + eventLabel(this.store, this.words, this.timeline.selected) : eventName(this.store, this.timeline.selected);
    const facts = describe(this.store, this.words, this.timeline.selected).filter(([term]) => term !== 'Inside' && term !== 'Host was in');
    const [duration, start, ...rest] = facts;
    const exact = [...exactTimes(this.store, this.timeline.selected), ...rest];
    this.element('details-facts').replaceChildren(...[duration, start, ...exact].map(factElement));
    const story = [...idleStory(this.store, this.words, this.timeline.curves, this.timeline.selected), ...pathStory(this.store, this.timeline.selected)];
    this.element('story').hidden = !story.length;
    this.element('story').replaceChildren(...story.map((step) => this.storyElement(step)));
    this.drawStack();
    this.element('show-arrow').hidden = !otherEnds(this.store, this.timeline.selected).length;
    this.element('go-other').hidden = this.element('show-arrow').hidden;
  }

  // A sentence on idle time, with a link to the event that it names.
  storyElement({ text, event }) {
    const item = document.createElement('li');
    item.textContent = text;
    if (event === undefined || event < 0) return item;
    const way = document.createElement('button');
    way.type = 'button';
    way.textContent = trackOf(this.store, event).family === 'path' ? eventLabel(this.store, this.words, event) : eventName(this.store, event);
    way.addEventListener('click', () => this.timeline.goTo(event));
    item.append(' ', way);
    return item;
  }

  // The open frames around the event, each with a link.
  drawStack() {
    const stack = stackOf(this.store, this.timeline.selected);
    this.element('details-stack').parentElement.hidden = !stack.length;
    this.element('details-stack').replaceChildren(...stack.reverse().map((event) => {
      const item = document.createElement('li');
      const frame = document.createElement('button');
      frame.type = 'button';
      frame.textContent = eventName(this.store, event);
      frame.addEventListener('click', () => this.timeline.goTo(event));
      item.append(frame);
      return item;
    }));
  }

  drawTooltip(pointer) {
    const event = this.timeline.eventUnder(pointer);
    if (event < 0) this.element('tooltip').hidden = true;
    else this.placeTooltip(pointer, eventName(this.store, event), describe(this.store, this.words, event));
  }

  placeTooltip(pointer, name, facts) {
    const tooltip = this.element('tooltip');
    tooltip.hidden = false;
    const title = document.createElement('strong');
    title.textContent = shortened(name, 240);
    tooltip.replaceChildren(title, ...facts.map(factElement));
    const { width, height } = tooltip.getBoundingClientRect();
    const left = Math.max(8, Math.min(pointer.clientX + 14, innerWidth - width - 8));
    const below = pointer.clientY + 18;
    const floor = this.panelTop() - 8;
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${below + height > floor ? Math.max(8, Math.min(pointer.clientY - 14, floor) - height) : below}px`;
  }

  // Where the first open panel begins, else the window ends: floating elements stay above it.
  panelTop() {
    const open = ['details', 'interval-panel', 'advice-panel'].map((name) => this.element(name)).filter(({ hidden }) => !hidden);
    return Math.min(innerHeight, ...open.map((panel) => panel.getBoundingClientRect().top));
  }

  drawCrosshair(pointer) {
    const line = this.element('crosshair');
    line.hidden = pointer === null;
    if (pointer === null) return;
    const { left } = this.element('canvas').getBoundingClientRect();
    line.style.left = `${pointer.clientX - left}px`;
  }

  leave() {
    this.element('tooltip').hidden = true;
    this.drawCrosshair(null);
  }
}
