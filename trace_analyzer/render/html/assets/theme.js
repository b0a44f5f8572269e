// The colour theme, set before the first paint: the reader's choice, else the system's.

const KEY = 'trace-analyzer-theme';
const SYSTEM_IS_DARK = matchMedia('(prefers-color-scheme: dark)');

let choice = stored() ?? 'system';

function apply() {
  const system = SYSTEM_IS_DARK.matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = choice === 'system' ? system : choice;
  dispatchEvent(new Event('themechange'));
}

// Sandboxed frames have no storage; the choice then lasts as long as the page.
function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

apply();
SYSTEM_IS_DARK.addEventListener('change', apply);
addEventListener('beforeprint', () => { // paper is light, and so are the figures on it
  document.documentElement.dataset.theme = 'light';
  dispatchEvent(new Event('themechange'));
});
addEventListener('afterprint', apply);
document.addEventListener('change', (event) => {
  if (event.target.name !== 'theme') return;
  choice = event.target.value;
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // see above
  }
  apply();
});
document.addEventListener('DOMContentLoaded', () => {
  document.querySelector(`input[name=theme][value=${choice}]`).checked = true;
});
