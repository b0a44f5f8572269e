// The class that a Python frame is a method of, where the trace tells: PyTorch records a call of a module as an event around
// the frames that make it, of which only `forward` is the module's own.

import { stackOf, trackOf } from './store.js';

const MODULE = /^nn\.Module: (.+?)(?:_\d+)?$/;
const MACHINERY = /(?:^|[/\\])torch[/\\]nn[/\\]modules[/\\]module\.py\(/;
const METHOD = /^<(?:built-in )?method '?([\w.]+)'? of '?(?:type )?([\w.]+)'?(?: objects?)?/;

const MOST_KNOWN = 20_000;

// The class of a frame; '' for a function, and where it is not recorded. Cached, as labels need it in every frame drawn.
export function classOf(store, event) {
  if (trackOf(store, event).family !== 'python') return '';
  store.classes ??= new Map();
  if (store.classes.size > MOST_KNOWN) store.classes.clear();
  if (!store.classes.has(event)) store.classes.set(event, innermostModule(store, event));
  return store.classes.get(event);
}

function innermostModule(store, event) {
  const inner = stackOf(store, event).findLast((open) => !MACHINERY.test(nameOf(store, open)) && open !== event);
  return inner === undefined ? '' : MODULE.exec(nameOf(store, inner))?.[1] ?? '';
}

// The label of a frame with its class: `Linear.forward · linear.py`; a method of a built-in type as `Tensor.item`.
export function frameLabel(store, event, label) {
  if (trackOf(store, event).family !== 'python') return label;
  const method = METHOD.exec(nameOf(store, event));
  if (method) return method[2] === 'type' || method[2] === 'object' ? method[1] : `${method[2].split('.').at(-1)}.${method[1]}`;
  const owner = label.includes(' · ') ? classOf(store, event) : '';
  return owner ? `${owner}.${label}` : label;
}

function nameOf(store, event) {
  return store.name_values[store.name[event]];
}
