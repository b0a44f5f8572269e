// The page of a job: a heat map of ranks by steps, and the collectives of a step over aligned clocks.

import { cleared, decode, formatDuration, Hold, pan, zoom } from './common.js';

const LEFT = 64;
const MOST_HEIGHT = 560;
const LANE = 14;
const MOST_LANES = 48;
const AXIS = 18;

const byId = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Rows of pixels for ranks: with more ranks than pixels, several share one, which shows the latest of them.
export function rowsOf(ranks, height) {
  const count = Math.min(ranks, height);
  return Array.from({ length: count }, (_, row) => [Math.floor((row * ranks) / count), Math.floor(((row + 1) * ranks) / count)]);
}

// Ranks to show as lanes: the chosen one, the late ones, then the nearest, in order.
export function lanesOf(chosen, late, count, most) {
  const lanes = new Set([chosen, ...late.slice(0, Math.floor(most / 2))]);
  for (let away = 1; lanes.size < Math.min(most, count) && away < count; away++) {
    if (chosen - away >= 0) lanes.add(chosen - away);
    if (lanes.size < most && chosen + away < count) lanes.add(chosen + away);
  }
  return [...lanes].sort((a, b) => a - b);
}

// The first number from `first` up to `end` with the greatest value.
function greatest(first, end, valueOf) {
  let best = first;
  for (let i = first + 1; i < end; i++) if (valueOf(i) > valueOf(best)) best = i;
  return best;
}

function start({ header, columns }) {
  const { ranks, steps, late, regimes, regimeColours, links } = header;
  const state = { rank: late[0] ?? 0, step: worstStep(late[0] ?? 0), from: 0, to: 1 };
  const outside = steps.length > 1 ? 'Outside of steps' : 'Whole window';
  const stepNames = steps.map((step) => (step === null ? outside : `Step ${step}`));
  const map = byId('heat');
  const lanes = byId('lanes');

  function cell(rank, step) {
    return rank * steps.length + step;
  }

  function worstStep(rank) {
    return greatest(0, steps.length, (step) => columns.late[cell(rank, step)]);
  }

  function latestRank([first, end], step) {
    return greatest(first, end, (rank) => columns.late[cell(rank, step)]);
  }

  function place(canvas) {
    return Math.max(200, canvas.parentElement.clientWidth);
  }

  function drawMap() {
    const [width, tall] = [place(map), Math.min(MOST_HEIGHT, Math.max(ranks.length, Math.min(18 * ranks.length, 360)))];
    const ink = cleared(map, width, tall + AXIS);
    const byRegime = document.querySelector('input[name=shade]:checked').value === 'regime';
    const rows = rowsOf(ranks.length, tall);
    const [across, down] = [(width - LEFT) / steps.length, tall / rows.length];
    const most = columns.late.reduce((a, b) => Math.max(a, b), 1);
    const [empty, strong] = [colour('sunken'), colour('p-python')];
    const regimeInk = regimeColours.map((name) => colour(name));
    rows.forEach((range, row) => {
      for (let step = 0; step < steps.length; step++) {
        const at = cell(latestRank(range, step), step);
        const paint = (fill, alpha = 1) => {
          ink.fillStyle = fill;
          ink.globalAlpha = alpha;
          ink.fillRect(LEFT + step * across, row * down, Math.max(across - 1, 0.5), Math.max(down - (down > 4 ? 1 : 0), 0.5));
        };
        if (columns.known[at]) paint(empty);
        if (!byRegime) paint(strong, Math.sqrt(columns.late[at] / most));
        else if (columns.regime[at]) paint(regimeInk[columns.regime[at] - 1]);
      }
    });
    ink.globalAlpha = 1;
    ink.strokeStyle = colour('text');
    const row = rows.findIndex(([first, end]) => state.rank >= first && state.rank < end);
    ink.strokeRect(LEFT + state.step * across, row * down, Math.max(across - 1, 2), Math.max(down, 3));
    ink.fillStyle = colour('text-muted');
    ink.font = '12px system-ui, sans-serif';
    const every = Math.ceil(14 / down);
    for (let r = 0; r < rows.length; r += every) ink.fillText(`rank ${ranks[rows[r][0]]}`, 0, r * down + Math.max(10, Math.min(down, 14) - 2));
    const apart = Math.ceil(48 / across);
    for (let step = 0; step < steps.length; step += apart) ink.fillText(steps[step] ?? '–', LEFT + step * across, tall + 14);
    return { rows, across, down, tall };
  }

  function pointed(event) {
    const box = map.getBoundingClientRect();
    const { rows, across, down, tall } = drawn;
    const [x, y] = [event.clientX - box.left - LEFT, event.clientY - box.top];
    if (x < 0 || y < 0 || y >= tall) return null;
    const step = Math.min(steps.length - 1, Math.floor(x / across));
    return { rank: latestRank(rows[Math.min(rows.length - 1, Math.floor(y / down))], step), step };
  }

  function describeCell({ rank, step }) {
    const at = cell(rank, step);
    if (!columns.known[at]) return `rank ${ranks[rank]}, ${stepNames[step].toLowerCase()}: nothing recorded`;
    const regime = columns.regime[at] ? `, ${regimes[columns.regime[at] - 1]}` : '';
    return `rank ${ranks[rank]} (${header.hosts[rank]}), ${stepNames[step].toLowerCase()}: late by ${formatDuration(columns.late[at])}, waits ${formatDuration(columns.wait[at])}${regime}`;
  }

  // Collectives of a step lie together, those of a rank in it too.
  function ofLane(rank) {
    const collectives = [];
    for (let i = columns.offsets[state.step]; i < columns.offsets[state.step + 1]; i++) if (columns.c_rank[i] === rank) collectives.push(i);
    return collectives;
  }

  function drawLanes() {
    const shown = lanesOf(state.rank, late, ranks.length, MOST_LANES);
    const [first, end] = [columns.offsets[state.step], columns.offsets[state.step + 1]];
    let length = 1;
    for (let i = first; i < end; i++) length = Math.max(length, columns.c_start[i] + columns.c_duration[i]);
    const width = place(lanes);
    const ink = cleared(lanes, width, shown.length * LANE + AXIS);
    const [begin, until] = [state.from * length, state.to * length];
    const x = (ns) => LEFT + ((ns - begin) / (until - begin)) * (width - LEFT);
    ink.font = '11px system-ui, sans-serif';
    shown.forEach((rank, lane) => {
      const y = lane * LANE;
      ink.fillStyle = rank === state.rank ? colour('text') : colour('text-muted');
      ink.fillText(`rank ${ranks[rank]}`, 0, y + LANE - 4);
      ink.fillStyle = colour('sunken');
      ink.fillRect(LEFT, y, width - LEFT, LANE - 2);
      for (const i of ofLane(rank)) {
        const [from, to] = [Math.max(LEFT, x(columns.c_start[i])), Math.min(width, x(columns.c_start[i] + columns.c_duration[i]))];
        if (to <= LEFT || from >= width) continue;
        ink.fillStyle = colour('p-communication');
        ink.globalAlpha = columns.c_split[i] ? 1 : 0.6;
        ink.fillRect(from, y, Math.max(to - from, 1), LANE - 2);
        const waits = Math.min(width, x(columns.c_start[i] + columns.c_wait[i]));
        ink.globalAlpha = 1;
        if (columns.c_split[i] && waits > from) {
          ink.fillStyle = colour('p-latency');
          ink.fillRect(from, y, Math.max(waits - from, 0.5), LANE - 2);
        }
      }
    });
    ink.fillStyle = colour('text-muted');
    for (let tick = 0; tick < 5; tick++) {
      const at = begin + ((until - begin) * tick) / 5;
      ink.fillText(`+${formatDuration(at)}`, x(at), shown.length * LANE + 13);
    }
    byId('lanes-status').textContent = end > first
      ? `${stepNames[state.step]}: ${end - first} collectives of ${ranks.length} ranks; ${shown.length} lanes, from the first start on. Wheel with Ctrl, + and \u2212 zoom; dragging and arrow keys move.`
      : `${stepNames[state.step]}: no collective is in this file.`;
    return { shown, x, length };
  }

  let drawn = drawMap();
  let laid = drawLanes();

  function redraw() {
    drawn = drawMap();
    laid = drawLanes();
    byId('rank').value = ranks[state.rank];
    byId('step').value = state.step;
    byId('heat-status').textContent = describeCell(state);
    const link = byId('report');
    link.hidden = !links[state.rank];
    if (links[state.rank]) link.href = links[state.rank];
    byId('command').hidden = Boolean(links[state.rank]);
    const parts = header.commands[state.rank].split(/(?<=\/)/);
    byId('command').replaceChildren(...parts.flatMap((part) => [part, document.createElement('wbr')]));
  }

  function choose(rank, step) {
    Object.assign(state, { rank, step, from: 0, to: 1 });
    redraw();
  }

  // Show a range of the step, moved into it.
  function showLanes({ from, to }) {
    const length = Math.min(1, to - from);
    const first = Math.max(0, Math.min(1 - length, from));
    Object.assign(state, { from: first, to: first + length });
    laid = drawLanes();
  }

  map.addEventListener('mousemove', (event) => {
    byId('heat-status').textContent = describeCell(pointed(event) ?? state);
  });
  map.addEventListener('mouseleave', () => { byId('heat-status').textContent = describeCell(state); });
  map.addEventListener('click', (event) => {
    const at = pointed(event);
    if (at) choose(at.rank, at.step);
  });
  map.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(ranks.length - 1, state.rank + move[0])), Math.max(0, Math.min(steps.length - 1, state.step + move[1])));
  });
  lanes.addEventListener('wheel', (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = lanes.getBoundingClientRect();
    const at = state.from + ((event.clientX - box.left - LEFT) / (box.width - LEFT)) * (state.to - state.from);
    showLanes(zoom(state, at, event.deltaY < 0 ? 0.8 : 1.25));
  }, { passive: false });
  lanes.addEventListener('keydown', (event) => {
    const factor = { '+': 0.8, '=': 0.8, w: 0.8, '-': 1.25, s: 1.25 }[event.key];
    const way = { ArrowLeft: -0.2, a: -0.2, ArrowRight: 0.2, d: 0.2 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !(factor || way)) return;
    event.preventDefault();
    const { from, to } = state;
    showLanes(factor ? zoom(state, (from + to) / 2, factor) : pan(state, way * (to - from)));
  });
  const hold = new Hold();
  lanes.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    lanes.setPointerCapture(event.pointerId);
    hold.take(event);
  });
  lanes.addEventListener('pointermove', (event) => {
    const { left, width } = lanes.getBoundingClientRect();
    const moved = hold.drag(event, state, left + LEFT, width - LEFT);
    if (moved) showLanes(moved);
  });
  for (const kind of ['pointerup', 'pointercancel']) lanes.addEventListener(kind, (event) => hold.release(event));
  lanes.addEventListener('mousemove', (event) => {
    const box = lanes.getBoundingClientRect();
    const rank = laid.shown[Math.floor((event.clientY - box.top) / LANE)];
    if (rank === undefined) return;
    const hit = ofLane(rank).find((i) => {
      const x = event.clientX - box.left;
      return laid.x(columns.c_start[i]) <= x && x <= Math.max(laid.x(columns.c_start[i] + columns.c_duration[i]), laid.x(columns.c_start[i]) + 2);
    });
    if (hit === undefined) return;
    const parts = columns.c_split[hit] ? `, waits ${formatDuration(columns.c_wait[hit])}` : ', peers not found or not split';
    byId('lanes-status').textContent = `rank ${ranks[rank]}: ${columns.c_kind_values[columns.c_kind[hit]]}, +${formatDuration(columns.c_start[hit])}, ${formatDuration(columns.c_duration[hit])}${parts}`;
  });
  byId('rank').addEventListener('change', (event) => {
    const rank = ranks.indexOf(Number(event.target.value));
    if (rank >= 0) choose(rank, state.step);
  });
  byId('step').addEventListener('change', (event) => choose(state.rank, Number(event.target.value)));
  for (const input of document.querySelectorAll('input[name=shade]')) input.addEventListener('change', redraw);
  for (const button of document.querySelectorAll('button[data-rank]')) {
    button.addEventListener('click', () => {
      const rank = ranks.indexOf(Number(button.dataset.rank));
      if (rank < 0) return;
      choose(rank, worstStep(rank));
      map.scrollIntoView({ block: 'center' });
    });
  }
  addEventListener('resize', redraw);
  addEventListener('themechange', redraw);
  redraw();
}

const payload = globalThis.document?.getElementById('job');
if (payload) decode(payload.textContent).then(start);
