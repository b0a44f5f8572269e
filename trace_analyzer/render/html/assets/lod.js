// Level of detail: which events of the visible rows get a box of their own at this zoom.

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
  const boxes = emptyBoxes(Math.min(limit, rows.reduce((sum, { count }) => sum + count, 0)));
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
  const last = row.first + row.count;
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
