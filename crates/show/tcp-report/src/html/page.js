"use strict";
// Search and sorting of the lists. Without scripts the page shows all of them as ranked.
for (const table of document.querySelectorAll("table.list")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);

  const line = document.createElement("div");
  line.className = "search";
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "search: address, port, word";
  box.setAttribute("aria-label", "search the list");
  const found = document.createElement("span");
  line.append(box, found);
  table.parentNode.before(line);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    found.textContent = words.length ? shown + " of " + rows.length : "";
  });

  // Numbers are in data-v. Empty cells come last in both orders.
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      // Numbers begin with the largest one, text and ranks with the first.
      const first = heading.className === "" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      for (const cell of heading.parentNode.cells) cell.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", order);
      const empty = rows.filter((row) => value(row, column) === "");
      const others = rows.filter((row) => value(row, column) !== "");
      const sign = order === "ascending" ? 1 : -1;
      others.sort((a, b) => sign * compare(value(a, column), value(b, column)));
      body.append(...others, ...empty);
    });
  });
}

// A link to a time line opens it.
const open = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target !== null) {
    if (target.tagName === "DETAILS") target.open = true;
  }
};
addEventListener("hashchange", open);
open();
