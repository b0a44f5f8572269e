// Folded parts of the page: they open when something in them is linked to, and those on paper that say so. The browser itself
// opens those in which its search finds something.

// Opens every fold around an element, and the one whose heading it is.
export function unfold(element) {
  for (let fold = element?.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
}

export function startFolds(page = document) {
  const printed = () => [...page.querySelectorAll('main details:not(.fold > *), .fold > [data-paper]')];
  const follow = (fragment) => {
    const target = /^#[\w-]+$/.test(fragment) && page.getElementById(fragment.slice(1));
    if (!target) return;
    unfold(target);
    target.scrollIntoView({ behavior: 'instant', block: 'start' });
  };
  page.addEventListener('click', (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) follow(link.getAttribute('href'));
  });
  addEventListener('hashchange', () => follow(location.hash));
  follow(location.hash);
  const all = page.querySelector('[data-unfold]');
  all?.addEventListener('click', () => {
    const open = all.getAttribute('aria-expanded') !== 'true';
    for (const fold of page.querySelectorAll('.fold > details')) fold.open = open;
    all.setAttribute('aria-expanded', String(open));
    all.textContent = open ? 'Fold all' : 'Unfold all';
  });
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = printed().filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
  });
  addEventListener('afterprint', () => {
    for (const fold of closed) fold.open = false;
  });
}
