// Fills a report with what its data say.

const dataOf = (id) => document.getElementById(id).textContent;

const { chart, tables } = JSON.parse(dataOf("data"));
const charts = document.getElementById("charts");
if (chart.panels.length) {
  const controls = chartsOf(chart, charts, document.getElementById("legend"));
  const act = { "zoom-in": () => controls.zoom(0.5), "zoom-out": () => controls.zoom(2), whole: controls.whole };
  for (const [id, action] of Object.entries(act)) document.getElementById(id).addEventListener("click", action);
}
for (const table of tables) tableOf(table, document.getElementById("tables"));
for (const link of document.querySelectorAll("a[data-from]")) {
  link.href = URL.createObjectURL(new Blob([dataOf(link.dataset.from)], { type: "application/json" }));
}
