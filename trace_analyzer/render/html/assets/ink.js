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
