// Curves over depth: drawn for the depths in view, read at the cursor.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 300;
const MARGIN = { left: 62, right: 14, top: 10, bottom: 40 };
// Pixels between two observed points, and between two markers of a curve.
const POINT_ROOM = 9;
const MARKER_ROOM = 90;

function drawn(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

// Black is the colour of text.
const colourOf = (style) => (style.colour === "#000000" ? "var(--ink)" : style.colour);

const path = (places) => places.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// From coordinates to pixels, for what is in view.
function frameOf(panel, state, width) {
  const shown = panel.curves.filter((_, index) => !state.hidden.has(index));
  const withBands = shown.length <= state.chart.max_bands;
  const [from, to] = state.view;
  const whole = from === 0 && to === state.chart.depth && state.hidden.size === 0;
  const [low, high] = whole ? [panel.low, panel.high] : fitted(shown, withBands, panel.log, from, to);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const x = (depth) => MARGIN.left + ((depth - from) / (to - from)) * inner.width;
  const y = (value) => MARGIN.top + (1 - Math.min(1.05, Math.max(-0.05, (value - low) / (high - low)))) * inner.height;
  return { from, to, low, high, withBands, x, y, foot: MARGIN.top + inner.height, right: MARGIN.left + inner.width };
}

// The ends of an axis that holds what is shown between two depths.
function fitted(curves, withBands, log, from, to) {
  let [low, high] = [Infinity, -Infinity];
  const hold = (depth, values) => {
    if (depth < from || depth > to) return;
    for (const value of values.filter((value) => value !== null)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  };
  for (const curve of curves) {
    curve.vertices.forEach(([depth, value]) => hold(depth, [value]));
    curve.points.forEach(([depth, ...values]) => hold(depth, values));
    if (withBands) curve.band.forEach(([depth, ...values]) => hold(depth, values));
  }
  if (low > high) return [0, 1];
  const least = log ? 0.01 : 1e-3 * (Math.max(Math.abs(low), Math.abs(high)) || 1);
  const padding = Math.max(0.05 * (high - low), (least - (high - low)) / 2);
  return [low - padding, high + padding];
}

// A panel, new, in its SVG.
function drawPanel(svg, panel, state) {
  const width = svg.clientWidth || 480;
  const frame = frameOf(panel, state, width);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  drawRules(svg, panel, frame);
  const clip = `clip-${panel.id}`;
  // Room for the signs at both ends.
  const box = { x: MARGIN.left - 5, y: 0, width: frame.right - MARGIN.left + 10, height: HEIGHT };
  drawn("rect", box, drawn("clipPath", { id: clip }, drawn("defs", {}, svg)));
  const group = drawn("g", { "clip-path": `url(#${clip})` }, svg);
  const shown = panel.curves.map((curve, index) => [curve, index]).filter(([, index]) => !state.hidden.has(index));
  const marked = state.chart.styles.length > 1 && !panel.curves.some((curve) => curve.points.length);
  if (frame.withBands) for (const [curve, index] of shown) drawBand(group, curve, state.chart.styles[index], frame);
  for (const [curve, index] of shown) drawCurve(group, curve, index, state.chart.styles, frame, marked);
  for (const [curve, index] of shown) drawPoints(group, curve, state.chart.styles[index], frame);
  for (const [curve] of shown) drawMarks(group, curve, frame);
  drawn("g", { class: "cursor" }, svg);
  return frame;
}

function drawRules(svg, panel, frame) {
  for (const { at, label } of ticks(frame.from, frame.to, false)) {
    drawn("line", { class: "rule", x1: frame.x(at), x2: frame.x(at), y1: MARGIN.top, y2: frame.foot }, svg);
    drawn("text", { x: frame.x(at), y: frame.foot + 16, "text-anchor": "middle" }, svg).textContent = label;
  }
  for (const { at, label } of ticks(frame.low, frame.high, panel.log)) {
    drawn("line", { class: "rule", x1: MARGIN.left, x2: frame.right, y1: frame.y(at), y2: frame.y(at) }, svg);
    drawn("text", { x: MARGIN.left - 6, y: frame.y(at) + 4, "text-anchor": "end" }, svg).textContent = label;
  }
  const box = { x: MARGIN.left, y: MARGIN.top, width: frame.right - MARGIN.left, height: frame.foot - MARGIN.top };
  drawn("rect", { class: "frame", ...box }, svg);
  const title = { x: (MARGIN.left + frame.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" };
  drawn("text", title, svg).textContent = "blocks passed";
}

function drawBand(group, curve, style, frame) {
  if (!curve.band.length) return;
  const side = (end) => curve.band.map((row) => [frame.x(row[0]), frame.y(row[end])]);
  const outline = `${path([...side(1), ...side(2).reverse()])}Z`;
  drawn("path", { class: "band", d: outline, style: `fill:${colourOf(style)}` }, group);
}

function drawCurve(group, curve, index, styles, frame, marked) {
  const places = curve.vertices.map(([depth, value]) => [frame.x(depth), frame.y(value)]);
  const style = styles[index];
  const dashes = { "stroke-dasharray": style.dashes, style: `stroke:${colourOf(style)}` };
  drawn("path", { class: "curve", d: path(places), "data-curve": index, ...dashes }, group);
  if (!marked) return;
  for (let x = MARGIN.left + (MARKER_ROOM * (index + 0.5)) / styles.length; x < frame.right; x += MARKER_ROOM) {
    const next = places.findIndex((place) => place[0] >= x);
    if (next < 1) continue;
    const [before, after] = [places[next - 1], places[next]];
    const y = before[1] + ((x - before[0]) / (after[0] - before[0])) * (after[1] - before[1]);
    drawMarker(group, "marker", x, y, style, colourOf(style));
  }
}

function drawMarker(group, name, x, y, style, stroke) {
  drawn("path", { class: name, d: style.outline, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, style: `stroke:${stroke}` }, group);
}

function drawPoints(group, curve, style, frame) {
  const inView = curve.points.filter(([depth]) => depth >= frame.from && depth <= frame.to);
  const stride = Math.max(1, Math.ceil((inView.length * POINT_ROOM) / (frame.right - MARGIN.left)));
  for (const [depth, value, low, high] of inView.filter((_, index) => index % stride === 0)) {
    const x = frame.x(depth);
    // A bar that ends below what has a logarithm ends at the foot.
    const bar = { class: "bar", x1: x, x2: x, y1: low === null ? frame.foot : frame.y(low), y2: high === null ? 0 : frame.y(high) };
    if (low !== null || high !== null) drawn("line", bar, group);
    drawMarker(group, "point", x, frame.y(value), style, "var(--ink)");
  }
}

function drawMarks(group, curve, frame) {
  for (const { depth, value, label } of curve.marks) {
    const [x, y] = [frame.x(depth), frame.y(value)];
    drawn("path", { class: "mark", d: `M${x - 4.5} ${y - 4.5}l9 9m-9 0l9 -9` }, group);
    drawn("line", { class: "fall", x1: x, x2: x, y1: y, y2: frame.foot }, group);
    const end = x > 0.8 * frame.right;
    drawn("text", { x: x + (end ? -8 : 8), y: y + 14, "text-anchor": end ? "end" : "start" }, group).textContent = label;
  }
}
