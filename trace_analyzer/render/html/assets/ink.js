// Canvases for what changes with every frame: text of the page would be laid out anew with each.

// The canvas as sharp as the screen and empty; its context draws in CSS pixels.
export function cleared(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio ?? 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  const ink = canvas.getContext('2d');
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, width, height);
  return ink;
}
