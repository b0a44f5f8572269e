// Format quantities for people, like trace_analyzer/units.py.

const TIME_UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
const MEMORY_UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
const PREFIXES = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];

export function formatDuration(ns) {
  return scaled(ns, TIME_UNITS, '');
}

export function formatMemory(bytes) {
  return scaled(bytes, MEMORY_UNITS, '');
}

export function formatQuantity(value, unit) {
  return scaled(value, PREFIXES, unit);
}

// 999.6 us is written as 1 ms, not as 1,000 us.
function scaled(value, units, name) {
  const reaches = ([size], at) => {
    const finer = units[at + 1]?.[0] ?? 1;
    return Math.round(Math.abs(value) / finer) * finer >= size;
  };
  const [factor, unit] = units.find(reaches) ?? units.at(-1);
  return `${threeDigits(value / factor)} ${unit}${name}`;
}

export function formatCount(n) {
  return n.toLocaleString('en-US');
}

export function formatShare(value, whole) {
  return whole ? `${((100 * value) / whole).toFixed(1)} %` : '–';
}

// A time for an axis with ticks `step` apart, with as many decimals as two ticks differ in.
export function formatTick(ns, step) {
  const [factor, unit] = TIME_UNITS.find(([size]) => Math.max(Math.abs(ns), step) >= size) ?? TIME_UNITS.at(-1);
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9));
  return `${(ns / factor).toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals })} ${unit}`;
}

function threeDigits(value) {
  const size = Math.abs(value);
  const decimals = size >= 99.95 || Number.isInteger(value) ? 0 : size >= 9.995 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

// Decode the format of trace_analyzer/render/html/codec.py: byte planes, deflated, in base64.

const LENGTH_BYTES = 4;

export async function decode(base64) {
  return unpack(new Uint8Array(await inflated(base64).arrayBuffer()));
}

// Deflated base64 text, as a response that can be read as bytes or text.
export function inflated(base64) {
  return new Response(new Blob([bytesOf(base64.trim())]).stream().pipeThrough(new DecompressionStream('deflate-raw')));
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // faster, where the browser supports it
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// Header and columns of an inflated payload. Columns become typed arrays; text columns keep their table.
export function unpack(bytes) {
  const headLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + headLength)));
  const columns = {};
  let offset = LENGTH_BYTES + headLength;
  for (const [name, { encoding, length, width, values }] of Object.entries(header.columns)) {
    const integers = joinPlanes(bytes.subarray(offset, offset + length * width), length, width);
    columns[name] = encoding === 'delta' ? undoDelta(integers) : integers;
    if (encoding === 'text') columns[`${name}_values`] = values;
    offset += length * width;
  }
  return { header, columns };
}

function joinPlanes(planes, length, width) {
  const integers = new (arrayType(width))(length);
  for (let place = 0; place < width; place++) {
    const plane = planes.subarray(place * length, (place + 1) * length);
    const factor = 256 ** place;
    for (let i = 0; i < length; i++) integers[i] += plane[i] * factor;
  }
  return integers;
}

function arrayType(width) {
  return width <= 1 ? Uint8Array : width <= 2 ? Uint16Array : width <= 4 ? Uint32Array : Float64Array;
}

function undoDelta(zigzag) {
  const numbers = new Float64Array(zigzag.length);
  let previous = 0;
  for (let i = 0; i < zigzag.length; i++) {
    const step = zigzag[i];
    previous += step % 2 ? -(step + 1) / 2 : step / 2;
    numbers[i] = previous;
  }
  return numbers;
}

// Copy text to the clipboard.

const COPIED_MS = 1500;

// Copies a text and shows the result on the button that was clicked; a sandboxed frame may not write to the clipboard.
export async function copyText(text, button) {
  const label = button.dataset.label ??= button.textContent; // of a second click, too
  button.textContent = await written(text) ? 'Copied' : 'Copying is not allowed here';
  setTimeout(() => { button.textContent = label; }, COPIED_MS);
}

async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// Small elements of the timeline's panels, of plain text.

const MOST_CELL = 160; // characters

export function made(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

export function factElement(fact) {
  const row = document.createElement('div');
  row.append(...fact.map((textContent) => made('span', { textContent })));
  return row;
}

export function tableElement({ title, heads, rows }) {
  const table = document.createElement('table');
  table.createCaption().textContent = title;
  const fill = (row, cells, tag) => cells.forEach((text, i) => {
    const cell = made(tag, { title: text, textContent: shortened(text, MOST_CELL) });
    if (tag === 'th') cell.scope = 'col';
    if (i > 0) cell.className = 'n';
    row.append(cell);
  });
  fill(table.createTHead().insertRow(), heads, 'th');
  const body = table.createTBody();
  for (const cells of rows) fill(body.insertRow(), cells, 'td');
  return table;
}

export function shortened(text, characters) {
  return text.length <= characters ? text : `${text.slice(0, Math.max(characters - 1, 0))}…`;
}

const TIP_MARGIN = 8;

// The place of a tip next to its anchor, below it if there is room, and always inside the window.
export function tipPlace(anchor, tip, window) {
  const left = Math.max(TIP_MARGIN, Math.min(anchor.left, window.width - tip.width - TIP_MARGIN));
  const below = anchor.bottom + TIP_MARGIN;
  const fits = below + tip.height <= window.height - TIP_MARGIN;
  return { left, top: fits ? below : Math.max(TIP_MARGIN, anchor.top - tip.height - TIP_MARGIN) };
}

export function placeTip(tip, anchor, height = innerHeight) {
  const { left, top } = tipPlace(anchor, tip.getBoundingClientRect(), { width: innerWidth, height });
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

// Canvases for content that changes with every frame, as page text would cause a new layout each time.

// The canvas, cleared, at the screen's resolution; its context draws in CSS pixels.
export function cleared(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio ?? 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  const ink = canvas.getContext('2d');
  ink.resetTransform();
  if (canvas.width !== across || canvas.height !== down) {
    [canvas.width, canvas.height] = [across, down]; // empties it
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  } else ink.clearRect(0, 0, across, down);
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ink;
}

// Dark or light text, whichever has more contrast with a #rrggbb fill.
export function readableOn(fill) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16) / 255);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 ? '#14181f' : '#ffffff';
}

// The range scaled by `factor` around a fixed place.
export function zoom({ from, to }, place, factor) {
  return { from: place - (place - from) * factor, to: place + (to - place) * factor };
}

export function pan({ from, to }, by) {
  return { from: from + by, to: to + by };
}

// The pointers that hold a view: one pans it, two fingers zoom it as well.
export class Hold {
  pointers = new Map();

  take({ pointerId, clientX, clientY }) {
    this.pointers.set(pointerId, { x: clientX, y: clientY, travelled: 0 });
  }

  // The view after a held pointer's move, drawn `width` px wide from `left` on; null for a pointer that holds nothing.
  drag({ pointerId, clientX, clientY }, view, left, width) {
    const known = this.pointers.get(pointerId);
    if (!known) return null;
    const before = this.grip();
    known.travelled += Math.abs(clientX - known.x) + Math.abs(clientY - known.y);
    Object.assign(known, { x: clientX, y: clientY });
    const after = this.grip();
    const scale = (view.to - view.from) / width;
    const moved = pan(view, (before.middle - after.middle) * scale);
    return this.pointers.size > 1 ? zoom(moved, moved.from + (after.middle - left) * scale, before.spread / after.spread) : moved;
  }

  // How far the pointer travelled; undefined where it held nothing.
  release({ pointerId }) {
    const known = this.pointers.get(pointerId);
    this.pointers.delete(pointerId);
    return known?.travelled;
  }

  // Middle and spread of the fingers, or of the one pointer.
  grip() {
    const xs = [...this.pointers.values()].map(({ x }) => x);
    const [least, most] = [Math.min(...xs), Math.max(...xs)];
    return { middle: (least + most) / 2, spread: Math.max(most - least, 1) };
  }
}

// One topic of the timeline, with the state that all topics share.
export class Part {
  constructor(timeline) {
    this.timeline = timeline;
    const { store, words, root, model, element, scroller } = timeline;
    Object.assign(this, { store, words, root, model, element, scroller });
  }
}
