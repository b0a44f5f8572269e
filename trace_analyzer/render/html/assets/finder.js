// Search and filter: matches are highlighted, and can be stepped through.

import { formatCount } from './format.js';
import { bucketOf } from './interval.js';
import { Part } from './part.js';
import { neighbourMatch, search } from './store.js';

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
      const element = document.createElement('optgroup');
      element.label = label;
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
