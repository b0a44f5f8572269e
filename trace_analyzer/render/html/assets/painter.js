// Level of detail: which events of the visible rows get a box of their own at this zoom.

import { cleared, formatCount, formatDuration, formatMemory, formatTick, made, Part, readableOn, shortened } from './common.js';
import { eventLabel } from './describe.js';
import { onScreen, ticks } from './layout.js';
import { firstEndingAfter, isMatch, kindTimes, lowerBound } from './store.js';

const LEVELS = 8;
const FAINTEST = 3 / LEVELS;
const LEAST_SHARE = 0.5 / LEVELS; // of a row's height: a line
const NARROW_GAP = 0.5; // of a quantum: a smaller gap between two blocks is invisible

// Boxes for the rows between two times. Events wider than `quantum` get a box; runs of narrower ones share
// one whose opacity is their busy share, in few levels, and whose kind is the one with most time; on a row of idle time
// its height is that share, so that a busy device looks busy from afar. Neighbouring runs that look the same are one. When there are more than `budget`, the quantum is doubled.
export function visibleBoxes(store, rows, from, to, quantum, budget) {
  const limit = Math.max(budget, rows.length * 2);
  const boxes = emptyBoxes(Math.min(limit, rows.reduce((sum, { first, last }) => sum + last - first, 0)));
  for (let width = quantum; ; width *= 2) {
    boxes.count = 0;
    if (rows.every((row) => collectRow(store, row, from, to, width, boxes))) return { ...filled(boxes), quantum: width };
  }
}

// Typed arrays: Bokeh uses them directly, and frames leave no thousands of numbers to the garbage collector.
function emptyBoxes(capacity) {
  const [left, right, top, bottom, alpha] = Array.from({ length: 5 }, () => new Float64Array(capacity));
  const [kind, hit] = [new Uint8Array(capacity), new Uint8Array(capacity)];
  return { left, right, top, bottom, alpha, kind, hit, event: new Int32Array(capacity), count: 0, capacity };
}

function filled({ count, capacity, ...arrays }) {
  return Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, array.subarray(0, count)]));
}

// Adds the boxes of one row; false if there is no room for them.
function collectRow(store, row, from, to, quantum, boxes) {
  const { start, duration, kind } = store;
  const { last } = row;
  const times = new Float64Array(store.kind_values.length);
  let i = firstEndingAfter(store, row, from);
  let block = -1; // the last box, if it is a run that may continue
  while (i < last && start[i] < to) {
    const isWide = duration[i] >= quantum;
    let next = i + 1;
    if (!isWide) {
      next = lowerBound(start, start[i] + quantum, next, last);
      if (next - 1 > i && duration[next - 1] >= quantum) next -= 1; // only the last of a run can be a wide one
    }
    const isHit = Number(store.matches === null || isMatch(store, i, next));
    if (isWide) {
      if (!push(boxes, row, Math.max(start[i], from), Math.min(start[i] + duration[i], to), kind[i], 1, i, isHit)) return false;
      block = -1;
    } else {
      const right = Math.max(start[next - 1] + duration[next - 1], Math.min(start[i] + quantum, next < last ? start[next] : Infinity));
      const { dominant, total } = strongest(kindTimes(store, i, next, times), kind[i]);
      const level = Math.min(1, Math.round((LEVELS * total) / quantum) / LEVELS);
      const isShare = row.family === 'idle';
      const alpha = isShare ? 1 : Math.max(FAINTEST, level);
      const top = isShare ? row.bottom - Math.max(LEAST_SHARE, level) * (row.bottom - row.top) : row.top;
      if (goesOn(boxes, block, start[i] - NARROW_GAP * quantum, dominant, alpha, isHit, top)) {
        boxes.right[block] = right;
        boxes.event[block] = -1;
      } else if (push(boxes, { top, bottom: row.bottom }, start[i], right, dominant, alpha, next - i === 1 ? i : -1, isHit)) block = boxes.count - 1;
      else return false;
    }
    i = next;
  }
  return true;
}

function goesOn({ right, kind, alpha, hit, top }, block, since, newKind, newAlpha, newHit, newTop) {
  return block >= 0 && right[block] >= since && kind[block] === newKind && alpha[block] === newAlpha && hit[block] === newHit && top[block] === newTop;
}

function strongest(times, fallback) {
  let [dominant, most, total] = [fallback, 0, 0];
  for (let k = 0; k < times.length; k++) {
    total += times[k];
    if (times[k] > most) [dominant, most] = [k, times[k]];
  }
  return { dominant, total };
}

function push(boxes, row, left, right, kind, alpha, event, hit) {
  if (boxes.count === boxes.capacity) return false;
  const at = boxes.count++;
  boxes.left[at] = left;
  boxes.right[at] = right;
  boxes.top[at] = row.top;
  boxes.bottom[at] = row.bottom;
  boxes.kind[at] = kind;
  boxes.alpha[at] = alpha;
  boxes.event[at] = event;
  boxes.hit[at] = hit;
  return true;
}

// A step function between two times with at most one step per `quantum`, the highest value of each.
export function visibleSteps({ time, value }, from, to, quantum) {
  const steps = { x: [from], y: [0] };
  let i = lowerBound(time, from, 0, time.length);
  let current = i > 0 ? value[i - 1] : 0;
  steps.y[0] = current;
  while (i < time.length && time[i] < to) {
    const begin = time[i];
    let highest = 0;
    for (; i < time.length && time[i] < begin + quantum; i++) highest = Math.max(highest, (current = value[i]));
    steps.x.push(begin);
    steps.y.push(highest);
    if (highest !== current) {
      steps.x.push(begin + quantum);
      steps.y.push(current);
    }
  }
  steps.x.push(to);
  steps.y.push(current);
  return steps;
}

// Draw the view: boxes and curves into Bokeh's sources, labels and axis onto canvases of the page.

const BOX_BUDGET = 4000;
const MARGIN = 0.25;
const LABEL_BUDGET = 200;
const LABEL_MIN_PX = 34;
const LABEL_MIN_HEIGHT_PX = 12;
const LABEL_PADDING_PX = 4;
const LONGEST_LABEL = 300; // characters: more than a screen is wide
const AXIS_PX = 26;
const TELL_DELAY_MS = 100;
const CHARACTER_PX = 7;
const TICK_PX = { least: 64, most: 110, padding: 14, gap: 6 };
const DIMMED = 0.15;
export const CURVES = { queue: formatCount, queued_work: formatDuration, memory: formatMemory };

export class Painter extends Part {
  constructor(timeline) {
    super(timeline);
    this.fetched = null;
    this.widths = new Map(); // of labels
    this.pending = new Map(); // texts that the page shows soon
  }

  // What is drawn before printing Chromium prints as vectors, and scales each canvas differently: so the axis is text
  // of the page on paper, and labels go onto the rows' own canvas.
  drawForPaper() {
    this.fetched = null;
    this.timeline.draw();
    const ticks = this.labelledTicks().filter(({ isLabelled }) => isLabelled).map(({ x, label }) => {
      const tick = made('span', { textContent: label });
      tick.style.left = `${x}px`;
      return tick;
    });
    this.element('axis').replaceChildren(this.element('axis-ink'), ...ticks);
  }

  // While a view moves, boxes are taken for a part of it more on both sides, so that most of moving needs no new ones;
  // zooming needs new ones anyway, and then those outside would be drawn for nobody.
  fetch() {
    const { from, to } = this.timeline.view;
    const margin = this.isMoved() ? (to - from) * MARGIN : 0;
    const height = this.scroller.clientHeight;
    this.shown = onScreen(this.timeline.tracks.layout, this.scroller.scrollTop, height);
    const rows = this.shown;
    const quantum = (to - from) / this.timeline.plotWidth;
    const boxes = visibleBoxes(this.store, rows, from - margin, to + margin, quantum, BOX_BUDGET);
    this.fetched = { from: from - margin, to: to + margin, length: to - from, boxes };
    this.model('rows-y').setv({ start: height, end: 0 });
    this.model('boxes').data = {
      left: boxes.left,
      right: boxes.right,
      top: boxes.top,
      bottom: boxes.bottom,
      fill: Uint32Array.from(boxes.kind, (kind, i) => packed(this.colours[kind].rgb, boxes.alpha[i] * (boxes.hit[i] ? 1 : DIMMED))),
    };
    this.drawCurves(quantum);
  }

  isFetched() {
    const { from, to } = this.timeline.view;
    return this.isMoved() && from >= this.fetched.from && to <= this.fetched.to;
  }

  // Whether the view has the same length as the one that the boxes were computed for.
  isMoved() {
    const { from, to } = this.timeline.view;
    return this.fetched !== null && Math.abs(to - from - this.fetched.length) < 1e-6 * this.fetched.length;
  }

  // The chosen place's step functions; each panel shows the value of its top.
  drawCurves(quantum) {
    for (const [kind, format] of Object.entries(CURVES)) {
      const panel = this.root.querySelector(`[data-curve="${kind}"]`);
      if (!panel) continue;
      const curve = this.timeline.curves.find((candidate) => candidate.kind === kind && candidate.place === this.timeline.place);
      panel.hidden = !curve;
      if (!curve) continue;
      const steps = visibleSteps(curve, this.fetched.from, this.fetched.to, quantum);
      const highest = steps.y.reduce((a, b) => Math.max(a, b), 1);
      this.model(`${kind}-y`).setv({ start: 0, end: highest * 1.15 });
      this.model(`${kind}-source`).data = steps;
      this.tell(panel.querySelector('small'), `max ${format(highest)}`);
    }
  }

  // Labels stay inside the view while a part of their box is outside.
  drawLabels(ink = cleared(this.element('ink'), this.timeline.plotWidth, this.scroller.clientHeight)) {
    const { boxes } = this.fetched;
    const { from, to } = this.timeline.view;
    const nsPerPx = (to - from) / this.timeline.plotWidth;
    ink.font = this.fonts.label;
    ink.textBaseline = 'middle';
    let room = LABEL_BUDGET;
    for (let i = 0; i < boxes.left.length && room > 0; i++) {
      const left = Math.max(boxes.left[i], from);
      const width = (Math.min(boxes.right[i], to) - left) / nsPerPx;
      if (boxes.event[i] < 0 || width < LABEL_MIN_PX || boxes.bottom[i] - boxes.top[i] < LABEL_MIN_HEIGHT_PX) continue;
      const text = this.fitted(ink, eventLabel(this.store, this.words, boxes.event[i]), width - 2 * LABEL_PADDING_PX);
      ink.fillStyle = boxes.hit[i] ? this.colours[boxes.kind[i]].ink : this.muted;
      ink.fillText(text, (left - from) / nsPerPx + LABEL_PADDING_PX, (boxes.top[i] + boxes.bottom[i]) / 2 + 0.5);
      room -= 1;
    }
    this.timeline.overlays.drawPath(ink);
    this.timeline.overlays.drawMembers(ink);
  }

  // As much of a text as fits, by the mean width of its characters.
  fitted(ink, text, px) {
    if (!this.widths.has(text)) this.widths.set(text, ink.measureText(text.slice(0, LONGEST_LABEL)).width);
    const width = this.widths.get(text);
    return width <= px ? text : shortened(text, Math.floor((px / width) * Math.min(text.length, LONGEST_LABEL)) - 1);
  }

  drawAxis() {
    const ticks = this.labelledTicks();
    this.model('ticks').ticks = ticks.map(({ time }) => time);
    const ink = cleared(this.element('axis-ink'), this.timeline.plotWidth, AXIS_PX);
    ink.font = this.fonts.tick;
    ink.textBaseline = 'middle';
    ink.fillStyle = this.muted;
    for (const { x, label, isLabelled } of ticks) {
      ink.fillRect(Math.round(x), AXIS_PX / 4, 1, AXIS_PX / 2);
      if (isLabelled) ink.fillText(label, Math.round(x) + TICK_PX.gap, AXIS_PX / 2);
    }
    this.tell(this.element('span'), `${formatDuration(this.timeline.view.to - this.timeline.view.from)} shown`);
  }

  // Sets a text of the page: often enough for the eye, not with each frame, since the page is laid out anew for it.
  tell(element, text) {
    if (!element.textContent) element.textContent = text;
    this.pending.set(element, text);
    this.telling ??= setTimeout(() => {
      this.telling = null;
      for (const [place, last] of this.pending) if (place.textContent !== last) place.textContent = last;
      this.pending.clear();
    }, TELL_DELAY_MS);
  }

  // Ticks whose label would exceed the axis have none.
  labelledTicks() {
    const { times, labels } = this.ticks();
    const last = this.timeline.plotWidth - this.tickPx(labels) + TICK_PX.padding / 2;
    return times.map((time, i) => ({ time, label: labels[i], x: this.timeline.xOf(time), isLabelled: this.timeline.xOf(time) < last }));
  }

  // As many round times as there is room for labels.
  ticks() {
    for (let count = this.timeline.plotWidth / TICK_PX.least; ; count /= 1.5) {
      const { step, times } = ticks(this.timeline.view, Math.min(count, Math.max(this.timeline.plotWidth / TICK_PX.most, 4)));
      const labels = times.map((time) => formatTick(time, step));
      const apart = (step / (this.timeline.view.to - this.timeline.view.from)) * this.timeline.plotWidth;
      if (apart >= this.tickPx(labels) || times.length < 2) return { times, labels };
    }
  }

  tickPx(labels) {
    return Math.max(0, ...labels.map((label) => label.length)) * CHARACTER_PX + TICK_PX.padding;
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
    const unknown = colour('--k-other', 'gray');
    this.muted = colour('--text-muted', 'gray');
    this.pathColours = { colour: colour('--path', 'black'), halo: colour('--card', 'white') };
    const family = getComputedStyle(this.root).fontFamily;
    this.fonts = { label: `11px ${family}`, tick: `12px ${family}` };
    this.colours = this.store.kind_values.map((kind) => {
      const fill = colour(/^(idle|path)-/.test(kind) ? kind.replace(/^(idle|path)-/, '--p-') : `--k-${kind}`, unknown);
      return { rgb: parseInt(fill.slice(1), 16), ink: readableOn(fill) };
    });
    this.model('grid').grid_line_color = colour('--grid', 'gray');
    const accent = this.accent = colour('--text', 'black');
    this.model('chosen-box').glyph.line_color = { value: accent };
    this.model('arrow-line').glyph.line_color = { value: accent };
    this.model('arrow-head').glyph.setv({ fill_color: { value: accent }, line_color: { value: accent } });
    this.model('overview-area').glyph.fill_color = { value: colour('--k-matmul', 'blue') };
    this.model('overview-box').setv({ fill_color: accent, line_color: accent });
    for (const kind of Object.keys(CURVES)) {
      const area = this.model(`${kind}-area`);
      if (area) area.glyph.fill_color = { value: colour('--queue', 'gray') };
    }
    this.timeline.schedule(true);
  }
}

// 0xRRGGBB with an opacity, as the one number that Bokeh need not parse.
function packed(rgb, alpha) {
  return rgb * 256 + Math.round(alpha * 255);
}
