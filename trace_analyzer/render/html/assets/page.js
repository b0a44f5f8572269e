// Folded parts of the page: they open when something in them is linked to, and those on paper that say so. The browser itself
// opens those in which its search finds something.

import { copyText, made, placeTip } from './common.js';

// Opens every fold around an element, and the one whose heading it is.
export function unfold(element) {
  for (let fold = element?.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
}

function startFolds() {
  const printed = () => [...document.querySelectorAll('main details:not(.fold > *), .fold > [data-paper]')];
  const follow = (fragment) => {
    const target = /^#[\w-]+$/.test(fragment) && document.getElementById(fragment.slice(1));
    if (!target) return;
    unfold(target);
    target.scrollIntoView({ behavior: 'instant', block: 'start' });
  };
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) follow(link.getAttribute('href'));
  });
  addEventListener('hashchange', () => follow(location.hash));
  follow(location.hash);
  const all = document.querySelector('[data-unfold]');
  all?.addEventListener('click', () => {
    const open = all.getAttribute('aria-expanded') !== 'true';
    for (const fold of document.querySelectorAll('.fold > details')) fold.open = open;
    all.setAttribute('aria-expanded', String(open));
    all.textContent = open ? 'Fold all' : 'Unfold all';
  });
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = printed().filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
  });
  addEventListener('afterprint', () => {
    for (const fold of closed) fold.open = false;
  });
}

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
  const link = made('a', { href: URL.createObjectURL(new Blob([text], { type: 'text/csv' })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

class Listing {
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
    root.querySelector('input')?.addEventListener('input', (event) => {
      this.query = event.target.value.trim();
      this.draw();
    });
    root.querySelector('[data-csv]')?.addEventListener('click', () => saved(`${root.id.replace('table-', '')}.csv`, csv(this.values())));
    this.more = root.querySelector('[data-more]');
    this.more?.addEventListener('click', () => {
      this.unfolded = !this.unfolded;
      this.draw();
    });
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

  // Headings with their units, and all rows in the shown order: numbers in these units, names in full.
  values() {
    const cellValue = (cell) => cell.scope ? heading(cell) : cell.dataset.sort ?? cell.querySelector('[data-tip]')?.dataset.tip ?? cell.textContent.trim();
    const heading = (head) => head.textContent.trim() + (head.dataset.unit ? ` (${head.dataset.unit})` : '');
    const lines = [this.heads.map(heading), ...this.rows.map(({ row }) => [...row.cells].map(cellValue))];
    return this.root.classList.contains('beside') ? turned(lines) : lines;
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

function startTables() {
  return [...document.querySelectorAll('.listing:has(tbody)')].map((root) => new Listing(root));
}

// Tooltips for pointer and keyboard alike: definitions (`data-term` names an entry of the glossary) and full texts
// (`data-tip`). Escape hides them, as WCAG 1.4.13 asks.

const MOST_TIP = 240; // characters

function tipText(element) {
  const { tip } = element.dataset;
  if (tip) return tip.length > MOST_TIP ? `${tip.slice(0, MOST_TIP)}…` : tip;
  return document.getElementById(element.dataset.term)?.textContent ?? '';
}

function startTips() {
  const tip = made('div', { className: 'tip', hidden: true });
  tip.setAttribute('role', 'presentation'); // read out through aria-describedby already
  document.body.append(tip);

  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const element = event.target.closest?.('[data-term], [data-tip]');
    const text = element && tipText(element);
    if (!text) return hide();
    tip.textContent = text;
    tip.hidden = false;
    placeTip(tip, element.getBoundingClientRect());
  };
  document.addEventListener('pointerover', (event) => event.pointerType !== 'touch' && show(event));
  document.addEventListener('focusin', show);
  document.addEventListener('focusout', hide);
  document.addEventListener('scroll', hide, { passive: true });
  document.addEventListener('keydown', (event) => event.key === 'Escape' && hide());
}

// A group of buttons is one stop of the Tab key; arrow keys go from one to the next.
function startGroups() {
  for (const group of document.querySelectorAll('[data-group]')) {
    const buttons = [...group.querySelectorAll('button')];
    const reach = (button) => buttons.forEach((each) => { each.tabIndex = each === button ? 0 : -1; });
    reach(buttons[0]);
    group.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      const next = step && buttons[buttons.indexOf(event.target) + step];
      if (!next) return;
      event.preventDefault();
      reach(next);
      next.focus();
    });
  }
}

// Advice: its code can be copied.

function startCards() {
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-copy]');
    if (button) copyText(button.parentElement.querySelector('code').textContent, button);
  });
}

if (globalThis.document) {
  startFolds();
  startCards();
  startTables();
  startTips();
  startGroups();
}
