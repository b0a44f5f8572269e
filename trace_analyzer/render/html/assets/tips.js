// Tooltips for pointer and keyboard alike: definitions (`data-term` names an entry of the glossary) and full texts
// (`data-tip`). Escape hides them, as WCAG 1.4.13 asks.

const MARGIN = 8;

// Next to the anchor, below it if there is room, and always inside the window.
export function tipPlace(anchor, tip, window) {
  const left = Math.max(MARGIN, Math.min(anchor.left, window.width - tip.width - MARGIN));
  const below = anchor.bottom + MARGIN;
  const fits = below + tip.height <= window.height - MARGIN;
  return { left, top: fits ? below : Math.max(MARGIN, anchor.top - tip.height - MARGIN) };
}

export function tipText(element, page = document) {
  if (element.dataset.tip) return element.dataset.tip;
  return page.getElementById(element.dataset.term)?.textContent ?? '';
}

export function startTips(page = document) {
  const tip = page.createElement('div');
  tip.className = 'tip';
  tip.setAttribute('role', 'presentation'); // read out through aria-describedby already
  tip.hidden = true;
  page.body.append(tip);

  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const element = event.target.closest?.('[data-term], [data-tip]');
    const text = element && tipText(element, page);
    if (!text) return hide();
    tip.textContent = text;
    tip.hidden = false;
    const { left, top } = tipPlace(element.getBoundingClientRect(), tip.getBoundingClientRect(), { width: innerWidth, height: innerHeight });
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  };
  page.addEventListener('pointerover', (event) => event.pointerType !== 'touch' && show(event));
  page.addEventListener('focusin', show);
  page.addEventListener('focusout', hide);
  page.addEventListener('scroll', hide, { passive: true });
  page.addEventListener('keydown', (event) => event.key === 'Escape' && hide());
}
