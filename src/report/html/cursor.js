// Reading and zooming: pointer, keys and buttons on the charts of a report. All panels share the depths in view, the
// cursor and the curves that are hidden.

// Curves told at the cursor.
const MAX_CURVES = 8;
// Pixels that a pointer must go before it selects depths.
const LEAST_DRAG = 6;

function chartsOf(chart, container, legend) {
  const state = { chart, view: [0, chart.depth], hidden: new Set(), cursor: null };
  const panels = chart.panels.map((panel, id) => panelOf({ ...panel, id }, state, container));
  const draw = () => panels.forEach((panel) => panel.draw());
  const point = (depth, at) => {
    state.cursor = depth;
    panels.forEach((panel) => panel.point(panel === at?.panel ? at : null));
  };
  const view = (from, to) => {
    const least = Math.min(2, chart.depth);
    const span = Math.min(chart.depth, Math.max(least, to - from));
    const start = Math.min(chart.depth - span, Math.max(0, (from + to - span) / 2));
    state.view = [start, start + span];
    draw();
    point(state.cursor);
  };
  const zoom = (factor) => {
    const [from, to] = state.view;
    const middle = state.cursor ?? (from + to) / 2;
    const half = ((to - from) * factor) / 2;
    view(middle - half, middle + half);
  };
  const controls = { draw, point, view, zoom, whole: () => view(0, chart.depth) };
  panels.forEach((panel) => listen(panel, state, controls));
  legendOf(chart, state, controls, legend);
  new ResizeObserver(draw).observe(container);
  draw();
  return controls;
}

function panelOf(panel, state, container) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = `${panel.title}${panel.log ? " (log scale)" : ""}`;
  const svg = drawn("svg", { class: "panel", tabindex: 0, role: "application", height: HEIGHT }, figure);
  svg.setAttribute("aria-label", `${panel.title}: arrow keys read values, plus and minus zoom, 0 shows the whole depth`);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  figure.prepend(caption);
  figure.append(tip);
  container.append(figure);
  let frame = null;
  const result = { svg, tip };
  result.draw = () => (frame = drawPanel(svg, panel, state));
  result.depthAt = (x) => frame.from + ((x - MARGIN.left) / (frame.right - MARGIN.left)) * (frame.to - frame.from);
  // The line at the cursor and, of the panel that is looked `at`, what it reads.
  result.point = (at) => {
    const group = svg.querySelector(".cursor");
    group.replaceChildren();
    tip.hidden = true;
    const [depth, [from, to]] = [state.cursor, state.view];
    if (depth === null || depth < from || depth > to) return;
    const x = frame.x(depth);
    drawn("line", { x1: x, x2: x, y1: MARGIN.top, y2: frame.foot }, group);
    const lines = readings(panel, state, frame, at?.y);
    for (const { y } of lines) drawn("circle", { cx: x, cy: y, r: 3 }, group);
    if (!at || !lines.length) return;
    tip.replaceChildren(...tipLines(depth, lines));
    tip.hidden = false;
    // On the side where there is room, in the half of the panel that is not looked at.
    tip.style.left = "0";
    const left = x + 14 + tip.offsetWidth > svg.clientWidth ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    const isLow = (at.y ?? lines[0].y) > HEIGHT / 2;
    const above = svg.getBoundingClientRect().top - figure.getBoundingClientRect().top;
    tip.style.top = `${above + (isLow ? MARGIN.top + 6 : frame.foot - tip.offsetHeight - 6)}px`;
  };
  return result;
}

// What the shown curves are at the cursor, those next to `y` first.
function readings(panel, state, frame, y) {
  const lines = panel.curves.flatMap((curve, index) => {
    const vertex = !state.hidden.has(index) && curve.vertices.find(([depth]) => depth === state.cursor);
    if (!vertex) return [];
    const text = (coordinate) => (coordinate === null ? "0" : coordinateText(coordinate, panel.log));
    const band = curve.band.find(([depth]) => depth === state.cursor);
    const point = curve.points.find(([depth]) => depth === state.cursor);
    const told = [`${state.chart.styles[index].name}: ${text(vertex[1])}`];
    if (band && frame.withBands) told.push(`one network: ${text(band[1])} … ${text(band[2])}`);
    if (point) told.push(`observed: ${text(point[1])}${point[3] === null ? "" : `, ${text(point[2])} … ${text(point[3])}`}`);
    return [{ told, y: frame.y(vertex[1]) }];
  });
  if (y !== undefined) lines.sort((one, other) => Math.abs(one.y - y) - Math.abs(other.y - y));
  return lines;
}

function tipLines(depth, lines) {
  const more = lines.length > MAX_CURVES ? [`… and ${lines.length - MAX_CURVES} more`] : [];
  const title = depth === 0 ? "input" : `after ${depth} ${depth === 1 ? "block" : "blocks"}`;
  const texts = [title, ...lines.slice(0, MAX_CURVES).flatMap(({ told }) => told), ...more];
  return texts.map((text) => Object.assign(document.createElement("div"), { textContent: text }));
}

// All depths that some curve has, in order.
function depthsOf(chart) {
  const depths = chart.panels.flatMap((panel) => panel.curves.flatMap((curve) => curve.vertices.map(([depth]) => depth)));
  return [...new Set(depths)].sort((one, other) => one - other);
}

function listen(panel, state, controls) {
  const { svg } = panel;
  const depths = depthsOf(state.chart);
  const nearest = (depth) => depths.reduce((best, next) => (Math.abs(next - depth) < Math.abs(best - depth) ? next : best));
  const placeOf = (event) => [event.clientX - svg.getBoundingClientRect().left, event.clientY - svg.getBoundingClientRect().top];
  let start = null;
  svg.addEventListener("pointerdown", (event) => {
    start = placeOf(event)[0];
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = placeOf(event);
    controls.point(nearest(panel.depthAt(x)), { panel, y });
    if (start === null) return;
    const group = svg.querySelector(".cursor");
    drawn("rect", { class: "selection", x: Math.min(x, start), y: MARGIN.top, width: Math.abs(x - start), height: HEIGHT - MARGIN.top - MARGIN.bottom }, group);
  });
  svg.addEventListener("pointerup", (event) => {
    const [x] = placeOf(event);
    const from = start;
    start = null;
    if (from === null || Math.abs(x - from) < LEAST_DRAG) return;
    const ends = [panel.depthAt(from), panel.depthAt(x)].sort((one, other) => one - other);
    controls.view(...ends);
  });
  svg.addEventListener("pointercancel", () => (start = null));
  svg.addEventListener("pointerleave", () => start === null && controls.point(null));
  svg.addEventListener("dblclick", controls.whole);
  svg.addEventListener("blur", () => controls.point(null));
  svg.addEventListener("keydown", (event) => {
    const place = depths.indexOf(state.cursor ?? nearest(state.view[0]));
    const step = { ArrowLeft: place - 1, ArrowRight: place + (state.cursor === null ? 0 : 1), Home: 0, End: depths.length - 1 }[event.key];
    const zoom = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (step !== undefined) {
      const depth = depths[Math.min(depths.length - 1, Math.max(0, step))];
      const [from, to] = state.view;
      if (depth < from || depth > to) controls.view(depth - (to - from) / 2, depth + (to - from) / 2);
      controls.point(depth, { panel });
    } else if (zoom !== undefined) controls.zoom(zoom);
    else if (event.key === "0" || event.key === "Escape") controls.whole();
    else return;
    event.preventDefault();
  });
}

// A button per curve, which hides it and shows it again; then what else there is to be seen.
function legendOf(chart, state, controls, legend) {
  const entry = (name, draw, text) => {
    const element = document.createElement(name);
    const svg = drawn("svg", { width: 30, height: 16, "aria-hidden": true }, element);
    draw(svg);
    element.append(text);
    legend.append(element);
    return element;
  };
  chart.styles.forEach((style, index) => {
    const line = { class: "curve", d: "M0 8H30", "stroke-dasharray": style.dashes, style: `stroke:${colourOf(style)}` };
    const sign = (svg) => {
      drawn("path", line, svg);
      if (chart.styles.length > 1) drawMarker(svg, "marker", 15, 8, style, colourOf(style));
    };
    const button = entry("button", sign, style.name);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!state.hidden.delete(index)) state.hidden.add(index);
      button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
      controls.draw();
    });
  });
  const curves = chart.panels.flatMap((panel) => panel.curves);
  const first = chart.styles[0];
  if (curves.some((curve) => curve.band.length)) {
    const sign = (svg) => drawn("rect", { class: "band", width: 30, height: 16, style: `fill:${colourOf(first)}` }, svg);
    const limit = chart.styles.length > chart.max_bands ? `, up to ${chart.max_bands} curves` : "";
    entry("span", sign, `one initialisation, ± one standard deviation${limit}`);
  }
  if (curves.some((curve) => curve.points.length)) {
    const points = curves.flatMap((curve) => curve.points);
    const hasBars = points.some(([, , low, high]) => low !== null || high !== null);
    const sign = (svg) => {
      if (hasBars) drawn("line", { class: "bar", x1: 15, x2: 15, y1: 0, y2: 16 }, svg);
      drawMarker(svg, "point", 15, 8, first, "var(--ink)");
    };
    entry("span", sign, hasBars ? "observed, 95 % interval" : "observed");
  }
  if (curves.some((curve) => curve.marks.length)) {
    entry("span", (svg) => drawn("path", { class: "mark", d: "M10 3l9 9m-9 0l9 -9" }, svg), "largest entry exceeds the format");
  }
}
