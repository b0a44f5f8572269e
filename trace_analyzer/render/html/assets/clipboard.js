// Copy text to the clipboard.

const COPIED_MS = 1500;

// Copies a text and shows the result on the button that was clicked; a sandboxed frame may not write to the clipboard.
export async function copyText(text, button) {
  const label = button.textContent;
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
