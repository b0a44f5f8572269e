// Small elements of the timeline's panels, of plain text.

export function factElement([name, value]) {
  const row = document.createElement('div');
  const [term, text] = [document.createElement('span'), document.createElement('span')];
  term.textContent = name;
  text.textContent = value;
  row.append(term, text);
  return row;
}

export function tableElement({ title, heads, rows }) {
  const table = document.createElement('table');
  const caption = table.createCaption();
  caption.textContent = title;
  const fill = (row, cells, tag) => cells.forEach((text, i) => {
    const cell = document.createElement(tag);
    cell.textContent = cell.title = text;
    if (tag === 'th') cell.scope = 'col';
    if (i > 0) cell.className = 'n';
    row.append(cell);
  });
  fill(table.createTHead().insertRow(), heads, 'th');
  const body = table.createTBody();
  for (const cells of rows) fill(body.insertRow(), cells, 'td');
  return table;
}

export function shortened(text, characters) {
  return text.length <= characters ? text : `${text.slice(0, Math.max(characters - 1, 0))}…`;
}
