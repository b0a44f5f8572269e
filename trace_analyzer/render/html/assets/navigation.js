// Arithmetic of the visible time range: all functions take and return { from, to } in ns.

const SHORTEST = 20;

// The range moved and shrunk into the trace, with a small margin at both ends.
export function clampView({ from, to }, end) {
  const air = Math.max(end, 1) * 0.02;
  const length = Math.min(Math.max(to - from, SHORTEST), Math.max(end, SHORTEST) + 2 * air);
  const start = Math.min(Math.max(from, -air), Math.max(end + air - length, -air));
  return { from: start, to: start + length };
}

// The range scaled by `factor` around a fixed time.
export function zoom({ from, to }, time, factor) {
  return { from: time - (time - from) * factor, to: time + (to - time) * factor };
}

export function pan({ from, to }, ns) {
  return { from: from + ns, to: to + ns };
}

// A range with [start, end) in its middle and space on both sides.
export function around(start, end, room = 0.6) {
  const margin = Math.max((end - start) * room, SHORTEST);
  return { from: start - margin, to: end + margin };
}

// Round times to label, about `count` of them.
export function ticks({ from, to }, count) {
  const rough = (to - from) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, power * [1, 2, 5, 10].find((multiple) => power * multiple >= rough));
  const first = Math.ceil(Math.max(from, 0) / step);
  const times = [];
  for (let i = first; i * step <= to; i++) times.push(i * step);
  return { step, times };
}

// `#t=start,end&sel=event&iv=start,end&path=1`: a place on the timeline, a selected event and a selected interval, and whether
// the critical path is shown.
export function parseFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ''));
  const selected = fields.has('sel') ? Number(fields.get('sel')) : -1;
  return {
    view: parseRange(fields.get('t')),
    selected: Number.isInteger(selected) ? selected : -1,
    interval: parseRange(fields.get('iv')),
    hasPath: fields.get('path') === '1',
  };
}

function parseRange(text) {
  const [from, to] = (text ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && from < to ? { from, to } : null;
}

export function writeFragment(view, selected, interval, hasPath = false) {
  const range = ({ from, to }) => `${Math.floor(from)},${Math.ceil(to)}`;
  return [`#t=${range(view)}`, ...(selected < 0 ? [] : [`sel=${selected}`]), ...(interval ? [`iv=${range(interval)}`] : []), ...(hasPath ? ['path=1'] : [])].join('&');
}
