// Flame graphs: trees of merged stacks, the outermost frame on top, as wide as their time or memory.

import { cleared, decode, formatCount, formatDuration, formatMemory, formatShare, made, placeTip, readableOn, shortened } from './common.js';

const ROW_PX = 19;
const LEAST_PX = 0.6; // narrower boxes are not drawn
const LABEL_PX = 28;
const PADDING_PX = 4;
const DIM = 0.22;

// The trees of a payload: { key, title, leftOut, written (how values are written), nodes: [{ frame, label, colour, value, caller, callees, depth }] }.
export function buildFlames({ header, columns }) {
  let offset = 0;
  return header.flames.map(([key, title, count, leftOut, unit]) => {
    const root = { frame: 'all', label: 'all', colour: '', value: 0, caller: null, callees: [], depth: 0 };
    const nodes = [];
    for (let i = offset; i < offset + count; i++) {
      const caller = columns.caller[i] < 0 ? root : nodes[columns.caller[i]];
      const node = {
        frame: columns.frame_values[columns.frame[i]], label: columns.label_values[columns.label[i]], note: columns.note ? columns.note_values[columns.note[i]] : '', colour: columns.colour_values[columns.colour[i]],
        value: columns.value[i], caller, callees: [], depth: caller.depth + 1,
      };
      caller.callees.push(node);
      if (caller === root) root.value += node.value;
      nodes.push(node);
    }
    offset += count;
    return { key, title, leftOut, root, written: unit === 'bytes' ? formatMemory : formatDuration };
  });
}

// Boxes of a tree below a node that fills the width, and above it its callers: { node, x, width, row }.
export function flameBoxes(node, width) {
  const boxes = [];
  for (let caller = node.caller; caller; caller = caller.caller) boxes.push({ node: caller, x: 0, width, row: caller.depth });
  const add = (current, x, across) => {
    boxes.push({ node: current, x, width: across, row: current.depth });
    let left = x;
    for (const callee of current.callees) {
      const part = (across * callee.value) / current.value;
      if (part >= LEAST_PX) add(callee, left, part);
      left += part;
    }
  };
  add(node, 0, width);
  return boxes;
}

// Nodes whose frame contains the text, and their time, without counting nested matches twice.
export function flameMatches(root, text) {
  const wanted = text.toLowerCase();
  const matched = new Set();
  let value = 0;
  const visit = (node, inside) => {
    const isMatch = node.caller !== null && (node.frame.toLowerCase().includes(wanted) || node.label.toLowerCase().includes(wanted));
    if (isMatch) matched.add(node);
    if (isMatch && !inside) value += node.value;
    for (const callee of node.callees) visit(callee, inside || isMatch);
  };
  if (wanted) visit(root, false);
  return { matched, value };
}

class FlameGraph {
  constructor(flames, root) {
    this.flames = flames;
    this.root = root;
    this.element = (name) => root.querySelector(`[data-flame="${name}"]`);
    this.canvas = this.element('canvas');
    this.query = '';
    this.boxes = [];
    this.listen();
    this.choose(0);
  }

  choose(place) {
    this.flame = this.flames[place];
    this.focus = this.flame.root;
    [...this.root.querySelectorAll('[data-flame-view]')].forEach((button, i) => button.setAttribute('aria-pressed', String(i === place)));
    this.find(this.query);
  }

  find(text) {
    this.query = text.trim();
    this.matches = flameMatches(this.flame.root, this.query);
    const { matched, value } = this.matches;
    this.element('match-count').textContent = this.query ? `${formatCount(matched.size)} frames, ${this.flame.written(value)} (${formatShare(value, this.flame.root.value)})` : '';
    this.draw();
  }

  zoom(node) {
    this.focus = node;
    this.draw();
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return; // folded: drawn when opened
    this.boxes = flameBoxes(this.focus, width);
    const rows = 1 + this.boxes.reduce((most, { row }) => Math.max(most, row), 0);
    const ink = cleared(this.canvas, width, rows * ROW_PX);
    const style = getComputedStyle(document.documentElement);
    const colours = new Map();
    const colour = (name) => {
      if (!colours.has(name)) colours.set(name, style.getPropertyValue(`--${name}`).trim() || style.getPropertyValue('--k-other').trim() || 'gray');
      return colours.get(name);
    };
    ink.font = `11px ${getComputedStyle(this.root).fontFamily}`;
    ink.textBaseline = 'middle';
    for (const box of this.boxes) this.drawBox(ink, box, colour);
    const whole = this.flame.root.value;
    const left = this.flame.leftOut ? ` ${formatCount(this.flame.leftOut)} smaller frames are not on this page.` : '';
    this.element('flame-summary').textContent = `${this.flame.title}: ${this.flame.written(whole)}${this.focus.caller ? `, ${formatShare(this.focus.value, whole)} of it in ${this.focus.label}` : ''}.${left}`;
    this.element('reset').disabled = this.focus.caller === null;
  }

  drawBox(ink, { node, x, width, row }, colour) {
    const fill = node.caller === null ? colour('sunken') : colour(node.colour);
    const isDim = this.query && !this.matches.matched.has(node) && node.caller !== null;
    ink.globalAlpha = isDim ? DIM : 1;
    ink.fillStyle = fill;
    ink.fillRect(x, row * ROW_PX, Math.max(width - (width > 3 ? 1 : 0.2), 0.4), ROW_PX - 1);
    if (width < LABEL_PX) return;
    ink.save();
    ink.beginPath();
    ink.rect(x, row * ROW_PX, width - PADDING_PX, ROW_PX);
    ink.clip();
    ink.fillStyle = node.caller === null || isDim ? colour('text') : readableOn(fill);
    ink.fillText(node.caller === null ? this.flame.title : node.label, x + PADDING_PX, row * ROW_PX + ROW_PX / 2);
    ink.restore();
  }

  boxAt(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, row] = [event.clientX - left, Math.floor((event.clientY - top) / ROW_PX)];
    return this.boxes.find((box) => box.row === row && x >= box.x && x < box.x + box.width);
  }

  showTip(event) {
    const box = this.boxAt(event);
    const tip = this.element('tip');
    tip.hidden = !box;
    this.canvas.style.cursor = box ? 'pointer' : '';
    if (!box) return;
    const { node } = box;
    const lines = [
      node.caller === null ? this.flame.title : node.frame,
      `${this.flame.written(node.value)} · ${formatShare(node.value, this.flame.root.value)} of all`,
      ...[node.note, node.caller?.caller && `${formatShare(node.value, node.caller.value)} of ${node.caller.label}`].filter(Boolean),
    ];
    tip.replaceChildren(...lines.map((text, i) => made(i ? 'span' : 'strong', { textContent: shortened(text, 301) })));
    placeTip(tip, { left: event.clientX + 14, top: event.clientY - 4, bottom: event.clientY + 10 });
  }

  listen() {
    [...this.root.querySelectorAll('[data-flame-view]')].forEach((button, i) => button.addEventListener('click', () => this.choose(i)));
    this.canvas.addEventListener('pointermove', (event) => this.showTip(event));
    this.canvas.addEventListener('pointerleave', () => { this.element('tip').hidden = true; });
    this.canvas.addEventListener('click', (event) => {
      const box = this.boxAt(event);
      if (box) this.zoom(box.node);
    });
    // Keys walk the tree: in, out, and from callee to callee.
    this.canvas.addEventListener('keydown', (event) => {
      const { caller, callees } = this.focus;
      const beside = (step) => caller && caller.callees[(caller.callees.indexOf(this.focus) + step + caller.callees.length) % caller.callees.length];
      const next = { ArrowDown: callees[0], ArrowUp: caller, ArrowLeft: beside(-1), ArrowRight: beside(1), Escape: this.flame.root }[event.key];
      if (!next) return;
      event.preventDefault();
      this.zoom(next);
    });
    this.element('search').addEventListener('input', (event) => this.find(event.target.value));
    this.element('reset').addEventListener('click', () => this.zoom(this.flame.root));
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.canvas.parentElement);
    addEventListener('themechange', () => this.draw());
    addEventListener('beforeprint', () => this.draw());
  }
}

export async function startFlames() {
  const root = document.getElementById('flame');
  if (root) root.graph = new FlameGraph(buildFlames(await decode(document.getElementById('stacks').textContent)), root);
}
