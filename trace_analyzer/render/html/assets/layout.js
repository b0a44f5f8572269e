// Positions of tracks and rows, in pixels from the top: pinned tracks first, which stay visible, then scrolling ones.

import { firstEndingAfter } from './store.js';

const HEADING = 28;
const HEADING_GAP = 6;
const GAP = 8;
const FOLDED = 9;
const ROW_HEIGHT = {
  path: 20, stream: 24, exposed: 16, sync: 16, idle: 22,
  annotations: 18, calls: 16, operators: 18, modules: 18, overhead: 14, python: 16, other: 14,
};
const ROW_SPACE = 1;
export const ROW_LIMITS = { least: 7, most: 72 };

// Headings and tracks from top to bottom, and the rows that are shown; a folded track shows its first row. `heights` holds
// the heights of rows that the reader chose, `lanes` how many rows of a track hold anything in the view: both by track;
// tracks that are `hidden` take no room.
export function layOut(store, folded, { pinned = new Set(), heights = new Map(), lanes = new Map(), hidden = new Set() } = {}) {
  const layout = { items: [], rows: [], height: 0, pinnedHeight: 0 };
  const ids = store.tracks.map((_, id) => id).filter((id) => !hidden.has(id));
  const options = { folded, heights, lanes };
  addTracks(store, layout, ids.filter((id) => pinned.has(id)), true, options);
  layout.pinnedHeight = layout.height;
  addTracks(store, layout, ids.filter((id) => !pinned.has(id)), false, options);
  return layout;
}

function addTracks(store, layout, ids, pinned, { folded, heights, lanes }) {
  let heading = null;
  for (const id of ids) {
    const track = store.tracks[id];
    if (track.group !== heading?.heading) {
      heading = { heading: track.group, top: layout.height, height: HEADING, pinned, end: layout.height };
      layout.items.push(heading);
      layout.height += HEADING + HEADING_GAP;
    }
    const rows = store.rows.filter((row) => row.track === id);
    const isFolded = folded.has(id);
    const height = heights.get(id) ?? (isFolded ? FOLDED : ROW_HEIGHT[track.family]);
    const shown = rows.slice(0, isFolded ? 1 : Math.max(1, lanes.get(id) ?? rows.length));
    const foldable = rows.length > 1 || track.collapsed;
    const item = { track: id, label: track.label, top: layout.height, height: shown.length * height, row: height, folded: isFolded, foldable, pinned };
    layout.items.push(item);
    for (const row of shown) {
      layout.rows.push({ ...row, family: track.family, pinned, top: layout.height, bottom: layout.height + height - ROW_SPACE });
      layout.height += height;
    }
    item.end = heading.end = layout.height;
    layout.height += GAP;
  }
}

// The tracks of devices from the top, as many as fit in `room` px; those after the first
// device only with all tracks of their device.
export function pinnedTracks(store, folded, room, { heights, hidden = new Set() }) {
  const devices = store.tracks.flatMap(({ thread }, id) => (thread === null && !hidden.has(id) ? [id] : []));
  if (store.tracks.every(({ thread }) => thread === null)) return new Set(); // nothing to scroll below them
  const groupAt = (place) => store.tracks[devices[place]]?.group;
  for (let count = devices.length; count > 0; count--) {
    if (groupAt(count - 1) !== groupAt(0) && groupAt(count) === groupAt(count - 1)) continue;
    const pinned = new Set(devices.slice(0, count));
    if (layOut(store, folded, { pinned, heights, hidden }).pinnedHeight <= room) return pinned;
  }
  return new Set();
}

// The number of rows of each track up to the last one with an event between two times.
export function lanesInView(store, from, to) {
  const lanes = new Map();
  for (const row of store.rows) {
    const event = firstEndingAfter(store, row, from);
    if (event < row.first + row.count && store.start[event] < to) lanes.set(row.track, Math.max(lanes.get(row.track) ?? 1, row.depth + 1));
    else if (!lanes.has(row.track)) lanes.set(row.track, 1);
  }
  return lanes;
}

// Rows as shown on the screen: scrolling rows are moved up, and cut at the pinned rows and at the edge of the view.
export function onScreen({ rows, pinnedHeight }, scrolled, height) {
  return rows.flatMap((row) => {
    if (row.pinned) return row.top < height ? [row] : [];
    const [top, bottom] = [Math.max(row.top - scrolled, pinnedHeight), row.bottom - scrolled];
    return bottom > top && top < height ? [{ ...row, top, bottom }] : [];
  });
}

// Position of a label: next to its track's first row, but visible while any part of the track is.
export function labelTop(item, scrolled, pinnedHeight) {
  if (item.pinned) return item.top;
  const least = pinnedHeight + (item.heading === undefined ? HEADING : 0);
  return Math.max(item.top - scrolled, Math.min(least, item.end - scrolled - Math.min(item.height, HEADING)));
}

// The row at a height, or the nearest one in the space between two rows.
export function rowAt(rows, y) {
  return rows.find((row) => y >= row.top && y < row.bottom + ROW_SPACE);
}
