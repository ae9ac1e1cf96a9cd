// Without this script everything is on the page; with it, tables can be sorted, filtered and folded.
(function () {
  "use strict";
  const all = (selector, from) => Array.from((from || document).querySelectorAll(selector));
  const make = (tag, text, attributes) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.textContent = text;
    return made;
  };

  // Filter: rows of technique tables that have every word, in whatever case, or what it is called
  // here; parts without any row go too.
  const parts = [];
  const collect = () => {
    for (const part of all(".part")) {
      const about = part.dataset.about.toLowerCase();
      const rows = all(":is(table.t, table.index) tbody tr", part).map((row) =>
        ({ row, text: `${about} ${row.dataset.about || ""} ${[...row.cells].slice(0, 3).map((cell) => cell.textContent).join(" ")}`.toLowerCase() }));
      parts.push({ part, rows });
    }
  };
  const filter = (wanted, said) => {
    if (!parts.length) collect();
    let shown = 0, total = 0;
    for (const { part, rows } of parts) {
      let here = 0;
      for (const { row, text } of rows) {
        const hide = !wanted.every((is) => is(text));
        if (row.hidden !== hide) row.hidden = hide;
        here += !hide;
      }
      part.hidden = here === 0;
      const run = part.querySelector("details.run");
      if (run && here && wanted.length) run.open = true;
      shown += here;
      total += rows.length;
    }
    said.textContent = wanted.length ? `${shown} of ${total} rows` : "";
  };
  const place = document.getElementById("filter");
  if (place && document.querySelector(".part :is(table.t, table.index)")) {
    const box = make("input", "", { type: "search", id: "words", autocomplete: "off" });
    const said = make("output", "");
    said.htmlFor.add("words");
    place.append(make("label", "Show only rows with ", { htmlFor: "words" }), box, said);
    const field = Object.entries(JSON.parse(place.dataset.words)).map(([word, ours]) => [new RegExp(`^(${word})$`), new RegExp(ours)]);
    const test = (word) => {
      const known = field.find(([theirs]) => theirs.test(word));
      return known ? (text) => known[1].test(text) : (text) => text.includes(word);
    };
    box.addEventListener("input", () => filter(box.value.toLowerCase().split(/\s+/).filter(Boolean).map(test), said));
    box.addEventListener("keydown", (event) => {
      const first = all(".part tbody tr:not([hidden]) a")[0];
      if (event.key === "Enter" && first) first.focus();
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === box) return;
      event.preventDefault();
      box.focus();
    });
  }

  // Sorting: a button in each head; numbers by their value, texts by their letters.
  const key = (row, index) => {
    const cell = row.cells[index];
    const value = cell ? cell.dataset.v : undefined;
    return value === undefined ? (cell ? cell.textContent.trim() : "") : value === "" ? NaN : Number(value);
  };
  const order = (a, b) => {
    if (typeof a === "number" || typeof b === "number") return (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b);
    return a.localeCompare(b, "en", { numeric: true });
  };
  const sort = (head, table) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const keyed = all("tbody tr", table).map((row) => [key(row, head.cellIndex), row]);
    keyed.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])));
    body.append(...keyed.map((pair) => pair[1]));
  };
  for (const table of all("table.sort")) {
    for (const head of all("thead th:not(.plot)", table)) {
      const button = make("button", "", { type: "button" });
      head.dataset.name = head.textContent;  // for print: no control is painted in a repeated head
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(head, table));
    }
  }

  // Folding, and opening what a link or a printer needs.
  const folds = all("details");
  const fold = document.getElementById("fold");
  if (fold && folds.length) {
    for (const [text, open] of [["Unfold all", true], ["Fold all", false]]) {
      const button = make("button", text, { type: "button" });
      button.addEventListener("click", () => folds.forEach((one) => { one.open = open; }));
      fold.append(button);
    }
  }
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  let closed = [];
  addEventListener("beforeprint", () => { closed = folds.filter((one) => !one.open); closed.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));

  // Only a table that scrolls needs to be reached by keyboard.
  if ("IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
        else target.removeAttribute("tabindex");
      }
    });
    all(".wide").forEach((one) => seen.observe(one));
  }
})();
