// Format quantities for people, like trace_analyzer/units.py.

const TIME_UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
const PREFIXES = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];

export function formatDuration(ns) {
  const [factor, unit] = TIME_UNITS.find(([size]) => Math.abs(ns) >= size) ?? TIME_UNITS.at(-1);
  return `${threeDigits(ns / factor)} ${unit}`;
}

export function formatQuantity(value, unit) {
  const [factor, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= size) ?? PREFIXES.at(-1);
  return `${threeDigits(value / factor)} ${prefix}${unit}`;
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
