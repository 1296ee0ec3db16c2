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

// What a reader can save is gzip in base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json, { headers: { "Content-Type": "application/json" } }).blob();
}
for (const link of document.querySelectorAll("a[data-from]")) {
  unpacked(dataOf(link.dataset.from)).then((json) => (link.href = URL.createObjectURL(json)));
}
