// Tables that sort, filter and unfold. The rows are already in the page; this only orders and hides them.

// Numbers by value, texts alphabetically, missing values last; in either direction.
export function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
  return descending ? -order : order;
}

// Whether the text contains every word of the query, ignoring case.
export function matches(text, query) {
  const low = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

// The number of rows shown, in words; "" where all are shown.
export function status({ shown, matched, total, leftOut }) {
  const parts = matched < total ? [`${shown} of ${matched} found`] : shown < total || leftOut ? [`${shown} of ${total} rows`] : [];
  if (leftOut) parts.push(`${leftOut.toLocaleString('en-US')} smaller ones are not on this page`);
  return parts.join(' · ');
}

// Numbers have their value, texts sort by their shown text; a dash is a missing value.
export function sortValue(cell) {
  if (cell.classList.contains('n')) return cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  const text = cell.textContent.trim();
  return text === '–' ? null : text;
}

// Rows of texts as CSV (RFC 4180); a text that a spreadsheet would take for a formula gets an apostrophe.
export function csv(rows) {
  const cell = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((cells) => cells.map(cell).join(',')).join('\r\n') + '\r\n';
}

// Rows from columns: a file has one line per item, also where items are shown as columns on the page.
export function turned(lines) {
  return lines[0].map((_, place) => lines.map((cells) => cells[place]));
}

function saved(name, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
    this.heads = [...root.querySelectorAll('thead th')];
    this.heads.forEach((head, place) => head.querySelector('.sort')?.addEventListener('click', () => this.sort(place)));
    root.querySelector('input')?.addEventListener('input', (event) => this.filter(event.target.value));
    root.querySelector('[data-csv]')?.addEventListener('click', () => saved(`${root.id.replace('table-', '')}.csv`, csv(this.values())));
    this.more = root.querySelector('[data-more]');
    this.more?.addEventListener('click', () => this.unfold());
    this.draw();
  }

  // Numbers sort in descending order first, texts in ascending order; a second click reverses the order.
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

  // Headings, and all rows in the shown order: numbers in the units of the tables, names in full.
  values() {
    const cellValue = (cell) => cell.dataset.sort ?? cell.querySelector('[data-tip]')?.dataset.tip ?? cell.textContent.trim();
    const lines = [this.heads.map((head) => head.textContent.trim()), ...this.rows.map(({ row }) => [...row.cells].map(cellValue))];
    return this.root.classList.contains('beside') ? turned(lines) : lines;
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
    const matched = this.rows.filter(({ text }) => matches(text, this.query));
    const visible = new Set(this.unfolded ? matched : matched.slice(0, this.few));
    for (const entry of this.rows) entry.row.hidden = !visible.has(entry);
    const leftOut = Number(this.root.dataset.leftOut);
    this.root.querySelector('output').textContent = status({
      shown: visible.size, matched: matched.length, total: this.rows.length, leftOut,
    });
    if (!this.more) return;
    this.more.hidden = matched.length <= this.few;
    this.more.textContent = this.unfolded ? 'Show fewer' : `Show all ${matched.length}`;
    this.more.setAttribute('aria-expanded', String(this.unfolded));
  }
}

export function startTables(page = document) {
  return [...page.querySelectorAll('.listing:has(tbody)')].map((root) => new Listing(root));
}
