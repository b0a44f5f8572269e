// Tables that sort, filter and unfold. The rows are in the page already; this only orders and hides them.

// Numbers by value, texts by alphabet, what is missing last; either way round.
export function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
  return descending ? -order : order;
}

// Whether the text holds every word of the query, whatever the case.
export function matches(text, query) {
  const low = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

// How many rows stand where, in words; none where all of them do.
export function status({ shown, found, total, leftOut }) {
  const parts = found < total ? [`${shown} of ${found} found`] : shown < total || leftOut ? [`${shown} of ${total} rows`] : [];
  if (leftOut) parts.push(`${leftOut.toLocaleString('en-US')} smaller ones are not on this page`);
  return parts.join(' · ');
}

// Numbers carry their value, texts sort by what is shown; a dash is what is missing.
export function sortValue(cell) {
  if (cell.classList.contains('n')) return cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  const text = cell.textContent.trim();
  return text === '–' ? null : text;
}

export class Listing {
  constructor(root) {
    this.root = root;
    this.body = root.querySelector('tbody');
    this.rows = [...this.body.rows].map((row) => ({
      row,
      text: [row.textContent, ...[...row.querySelectorAll('[data-tip]')].map((named) => named.dataset.tip)].join(' '),
    }));
    this.few = Number(root.dataset.shown);
    this.query = '';
    this.unfolded = false;
    this.heads = [...root.querySelectorAll('th')];
    this.heads.forEach((head, place) => head.querySelector('button')?.addEventListener('click', () => this.sort(place)));
    root.querySelector('input')?.addEventListener('input', (event) => this.filter(event.target.value));
    this.more = root.querySelector('[data-more]');
    this.more?.addEventListener('click', () => this.unfold());
    this.draw();
  }

  // Numbers go down first, texts up; a second click turns the order round.
  sort(place) {
    const head = this.heads[place];
    const before = head.getAttribute('aria-sort');
    const descending = before ? before === 'ascending' : head.classList.contains('n');
    for (const other of this.heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    this.rows.sort((a, b) => compare(sortValue(a.row.cells[place]), sortValue(b.row.cells[place]), descending));
    this.body.append(...this.rows.map(({ row }) => row));
    this.draw();
  }

  filter(query) {
    this.query = query.trim();
    this.draw();
  }

  unfold() {
    this.unfolded = !this.unfolded;
    this.draw();
  }

  draw() {
    const found = this.rows.filter(({ text }) => matches(text, this.query));
    const visible = new Set(this.unfolded ? found : found.slice(0, this.few));
    for (const entry of this.rows) entry.row.hidden = !visible.has(entry);
    const leftOut = Number(this.root.dataset.leftOut);
    this.root.querySelector('output').textContent = status({
      shown: visible.size, found: found.length, total: this.rows.length, leftOut,
    });
    if (!this.more) return;
    this.more.hidden = found.length <= this.few;
    this.more.textContent = this.unfolded ? 'Show fewer' : `Show all ${found.length}`;
    this.more.setAttribute('aria-expanded', String(this.unfolded));
  }
}

export function startTables(page = document) {
  return [...page.querySelectorAll('.listing:has(tbody)')].map((root) => new Listing(root));
}
