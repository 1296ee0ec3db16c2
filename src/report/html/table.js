// Tables that can be filtered and sorted. Cells are text, numbers beyond f64 too.

// More rows are shown on demand only: a browser is slow with many.
const MAX_ROWS = 200;

// What a cell is sorted by: sign and log₁₀ of a number, itself of a text.
function rankOf(text) {
  const [, minus, digits, exponent] = /^(-?)(\d[\d.]*)(?:e([+-]?\d+))?$/.exec(text) ?? [];
  if (digits === undefined) return text;
  const size = Math.log10(Number(digits)) + Number(exponent ?? 0);
  return size === -Infinity ? [0, 0] : [minus ? -1 : 1, size];
}

// Numbers before texts; `site.9` before `site.10`.
function compared(one, other) {
  const numbers = [one, other].map(Array.isArray);
  if (numbers[0] && numbers[1]) return one[0] - other[0] || one[0] * (one[1] - other[1]);
  if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
  return one.localeCompare(other, "en", { numeric: true });
}

// `variance>10` of a column, or a text that some cell holds.
function conditionOf(word, columns) {
  const [, name, sign, bound] = /^([^<>]+)([<>])(.+)$/.exec(word) ?? [];
  const column = columns.indexOf(name);
  if (column < 0) return (row) => row.some((cell) => cell.toLowerCase().includes(word));
  const limit = rankOf(bound);
  return (row) => row[column] !== "" && Math.sign(compared(rankOf(row[column]), limit)) === (sign === "<" ? -1 : 1);
}

function cellText(text) {
  const rank = rankOf(text);
  if (!Array.isArray(rank)) return text;
  return rank[0] === 0 ? "0" : `${rank[0] < 0 ? "-" : ""}${/^-?\d+$/.test(text) ? text.replace("-", "") : sizeText(rank[1])}`;
}

function tableOf({ title, columns, rows }, container) {
  const numeric = columns.map((_, column) => rows.some((row) => Array.isArray(rankOf(row[column]))));
  const state = { filter: [], column: null, ascending: true, limit: MAX_ROWS };
  const element = (name, parent, properties = {}) => {
    const made = Object.assign(document.createElement(name), properties);
    parent.append(made);
    return made;
  };
  element("h3", container, { textContent: title });
  const bar = element("div", container, { className: "bar" });
  const label = element("label", bar, { textContent: "Filter " });
  const numbers = columns.filter((_, column) => numeric[column]);
  const input = element("input", label, { type: "search", placeholder: `text, or ${numbers[1] ?? numbers[0]}>10` });
  const count = element("output", bar);
  const all = element("button", bar, { textContent: "Show all rows" });
  const table = element("table", element("div", container, { className: "scroll", tabIndex: 0 }));
  table.parentElement.setAttribute("role", "region");
  table.parentElement.setAttribute("aria-label", title);
  const head = element("tr", element("thead", table));
  const body = element("tbody", table);
  columns.forEach((name, column) => {
    const cell = element("th", head, { scope: "col", className: numeric[column] ? "number" : "" });
    element("button", cell, { textContent: name }).addEventListener("click", () => {
      state.ascending = state.column === column ? !state.ascending : true;
      state.column = column;
      show();
    });
  });
  input.addEventListener("input", () => {
    state.filter = input.value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => conditionOf(word, columns));
    show();
  });
  all.addEventListener("click", () => {
    state.limit = Infinity;
    show();
  });

  function show() {
    let found = rows.filter((row) => state.filter.every((holds) => holds(row)));
    if (state.column !== null) {
      const ranked = found.map((row) => [rankOf(row[state.column]), row]);
      // What is blank comes last, whatever the direction.
      const blank = ([rank]) => rank === "";
      const sign = state.ascending ? 1 : -1;
      ranked.sort((one, other) => blank(one) - blank(other) || sign * compared(one[0], other[0]));
      found = ranked.map(([, row]) => row);
    }
    [...head.children].forEach((cell, column) => {
      const direction = state.ascending ? "ascending" : "descending";
      cell.setAttribute("aria-sort", column === state.column ? direction : "none");
    });
    const shown = found.slice(0, state.limit);
    body.replaceChildren(
      ...shown.map((row) => {
        const line = document.createElement("tr");
        row.forEach((text, column) => {
          element("td", line, { textContent: cellText(text), title: text, className: numeric[column] ? "number" : "" });
        });
        return line;
      }),
    );
    count.textContent = `${shown.length} of ${rows.length} rows`;
    all.hidden = shown.length === found.length;
  }
  show();
}
