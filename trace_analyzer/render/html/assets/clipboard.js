// Text onto the clipboard.

const COPIED_MS = 1500;

// Copies a text and says on the button that asked for it whether that worked; a sandboxed frame may not write there.
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
