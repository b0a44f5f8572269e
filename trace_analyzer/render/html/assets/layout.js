// Where tracks and rows stand, in pixels from the top.

const HEADING = 28;
const HEADING_GAP = 6;
const GAP = 8;
const FOLDED = 9;
const ROW_HEIGHT = {
  stream: 24, exposed: 16, sync: 16, idle: 18,
  annotations: 18, calls: 16, operators: 18, modules: 18, overhead: 14, python: 16, other: 14,
};
const ROW_SPACE = 1;

// Headings and tracks from top to bottom, and the rows that are shown; a folded track shows its first row.
export function layOut(store, folded) {
  const items = [];
  const rows = [];
  let [top, group] = [0, null];
  store.tracks.forEach((track, trackId) => {
    if (track.group !== group) {
      items.push({ heading: track.group, top, height: HEADING });
      top += HEADING + HEADING_GAP;
      group = track.group;
    }
    const trackRows = store.rows.filter((row) => row.track === trackId);
    const isFolded = folded.has(trackId);
    const height = isFolded ? FOLDED : ROW_HEIGHT[track.family];
    const shown = isFolded ? trackRows.slice(0, 1) : trackRows;
    items.push({ track: trackId, label: track.label, top, height: shown.length * height, folded: isFolded, foldable: trackRows.length > 1 || track.collapsed });
    for (const row of shown) {
      rows.push({ ...row, top, bottom: top + height - ROW_SPACE });
      top += height;
    }
    top += GAP;
  });
  return { items, rows, height: top };
}

// The row at a height, or the nearest one within the space between two rows.
export function rowAt(rows, y) {
  return rows.find((row) => y >= row.top && y < row.bottom + ROW_SPACE);
}
