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
