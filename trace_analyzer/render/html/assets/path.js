// The critical path over the rows: a line along the work, the calls and the code that the steps waited for, one after the other.

import { endOf, firstEndingAfter, lowerBound } from './store.js';

const LOOKED_AT = 256; // intervals within one piece: more are too narrow to distinguish

// The row with the intervals of the critical path; undefined without a replay.
export function pathRow(store) {
  return store.rows.find(({ track }) => store.tracks[track].family === 'path');
}

// The path between two times as pieces { from, to, event } of at least `quantum`: a wide stretch is its own piece, a run of
// narrow ones is one that stands where the longest of them belongs (`event`, -1 where no event is recorded for it).
export function pathPieces(store, row, from, to, quantum) {
  const { start, duration, link } = store;
  const last = row.first + row.count;
  const pieces = [];
  for (let i = firstEndingAfter(store, row, from); i < last && start[i] < to;) {
    const next = duration[i] >= quantum ? i + 1 : Math.max(i + 1, lowerBound(start, start[i] + quantum, i + 1, last));
    let longest = i;
    for (let j = i + 1; j < Math.min(next, i + LOOKED_AT); j++) if (duration[j] > duration[longest]) longest = j;
    pieces.push({ from: Math.max(start[i], from), to: Math.min(endOf(store, next - 1), to), event: link[longest] });
    i = next;
  }
  return pieces;
}

// Draws pieces as one line: along the foot of each piece's row, thinner from row to row where the path goes on elsewhere.
// `footOf` gives the height for an event, undefined where its row is not shown; `xOf` the place of a time.
export function drawPath(ink, pieces, footOf, xOf, { colour, halo }) {
  const [along, across] = [[], []];
  let height;
  for (const { from, to, event } of pieces) {
    const foot = event < 0 ? height : footOf(event) ?? height;
    if (foot === undefined) continue;
    if (height !== undefined && height !== foot) across.push([xOf(from), height, xOf(from), foot]);
    along.push([xOf(from), foot, xOf(to), foot]);
    height = foot;
  }
  for (const [lines, width, style] of [[along, 5, halo], [across, 1, colour], [along, 2.5, colour]]) {
    ink.lineWidth = width;
    ink.strokeStyle = style;
    ink.beginPath();
    for (const [x0, y0, x1, y1] of lines) {
      ink.moveTo(x0, y0);
      ink.lineTo(x1, y1);
    }
    ink.stroke();
  }
}

const EDGES = {
  thread: 'work of the CPU',
  call: 'call of the runtime',
  'launch-latency': 'from launch to start',
  execution: 'work of the device',
  'stream-order': 'gap between neighbours on a stream',
  'stream-wait': 'wait for another stream',
  contention: 'wait for room on the device',
  synchronization: 'wait of the CPU for the device',
  polling: 'wait of the CPU that polls the device',
  'hand-over': 'wait for another thread',
  'queue-room': 'wait for room in the launch queue',
};

export function edgeText(edge) {
  return EDGES[edge] ?? edge;
}

// The event of an interval of the path, and the intervals before and after it: sentences, each with a link.
export function pathStory(store, event) {
  const row = pathRow(store);
  if (!row || event < row.first || event >= row.first + row.count) return [];
  const place = event - row.first;
  return [
    store.link[event] < 0 ? { text: 'No event is recorded for it.' } : { text: 'It belongs to', event: store.link[event] },
    place > 0 ? { text: 'Before it, the path goes through', event: event - 1 } : null,
    place + 1 < row.count ? { text: 'After it, through', event: event + 1 } : null,
  ].filter(Boolean);
}
