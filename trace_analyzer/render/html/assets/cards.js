// Advice: its code can be copied.

import { copyText } from './clipboard.js';

export function startCards(page = document) {
  page.addEventListener('click', (event) => {
    const button = event.target.closest('[data-copy]');
    if (button) copyText(button.parentElement.querySelector('code').textContent, button);
  });
}
