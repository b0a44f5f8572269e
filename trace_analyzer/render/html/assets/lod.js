// Level of detail: what of the visible rows is worth a box of its own at this zoom.

import { firstEndingAfter, isMatch, kindTimes, lowerBound } from './store.js';

const FAINTEST = 0.35;

// Boxes for the rows between two times. Events wider than `quantum` get a box; runs of narrower ones share
// one whose opacity is their busy share and whose kind is the one with most time. When there are more than
// `budget`, the quantum is doubled.
export function visibleBoxes(store, rows, from, to, quantum, budget) {
  for (let width = quantum; ; width *= 2) {
    const boxes = collect(store, rows, from, to, width, budget);
    if (boxes) return { ...boxes, quantum: width };
  }
}

function collect(store, rows, from, to, quantum, budget) {
  const boxes = { left: [], right: [], top: [], bottom: [], kind: [], alpha: [], event: [], hit: [] };
  const limit = Math.max(budget, rows.length * 2);
  for (const row of rows) {
    collectRow(store, row, from, to, quantum, boxes);
    if (boxes.left.length > limit) return null;
  }
  return boxes;
}

function collectRow(store, row, from, to, quantum, boxes) {
  const { start, duration, kind } = store;
  const last = row.first + row.count;
  const times = new Float64Array(store.kind_values.length);
  let i = firstEndingAfter(store, row, from);
  while (i < last && start[i] < to) {
    if (duration[i] >= quantum) {
      const left = Math.max(start[i], from);
      push(store, boxes, row, left, Math.min(start[i] + duration[i], to), kind[i], 1, i, i + 1);
      i += 1;
      continue;
    }
    let next = lowerBound(start, start[i] + quantum, i + 1, last);
    if (next - 1 > i && duration[next - 1] >= quantum) next -= 1; // only the last of a run can be a wide one
    const right = Math.max(start[next - 1] + duration[next - 1], Math.min(start[i] + quantum, next < last ? start[next] : Infinity));
    const { dominant, total } = strongest(kindTimes(store, i, next, times), kind[i]);
    const alpha = Math.max(FAINTEST, Math.min(1, total / quantum));
    push(store, boxes, row, start[i], right, dominant, alpha, i, next);
    i = next;
  }
}

function strongest(times, fallback) {
  let [dominant, most, total] = [fallback, 0, 0];
  for (let k = 0; k < times.length; k++) {
    total += times[k];
    if (times[k] > most) [dominant, most] = [k, times[k]];
  }
  return { dominant, total };
}

function push(store, boxes, row, left, right, kind, alpha, from, to) {
  boxes.left.push(left);
  boxes.right.push(right);
  boxes.top.push(row.top);
  boxes.bottom.push(row.bottom);
  boxes.kind.push(kind);
  boxes.alpha.push(alpha);
  boxes.event.push(to - from === 1 ? from : -1);
  boxes.hit.push(store.matches === null || isMatch(store, from, to));
}

// A step function between two times as at most one step per `quantum`, the highest value of each.
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
