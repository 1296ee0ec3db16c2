#!/usr/bin/env python3
"""Write the drawings of the book as SVG next to this file: python3 docs/pictures/drawings.py

Colours adapt to a dark colour scheme. Python's standard library suffices.
"""

import math
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #222; }
.small { font-size: 12px; } .forward { fill: #1a6fb5; } .back { fill: #b5481a; } .bold { font-weight: 600; }
.line { stroke: #222; fill: none; stroke-width: 1.5; } .box { stroke: #222; fill: #e8eef4; stroke-width: 1.2; }
.forward-line { stroke: #1a6fb5; fill: none; stroke-width: 2; } .back-line { stroke: #b5481a; fill: none; stroke-width: 2; }
.cell { fill: #c9d8e6; stroke: #fff; } .node { fill: #1a6fb5; } .dot { fill: #7a7a7a; } .faint { stroke: #aaa; fill: none; }
.forward-tip { fill: #1a6fb5; } .back-tip { fill: #b5481a; } .tip { fill: #222; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e6e6; } .line { stroke: #e6e6e6; } .box { stroke: #e6e6e6; fill: #24323f; } .cell { fill: #35506a; stroke: #1b1b1b; }
  .forward, .forward-tip, .node { fill: #6bb3f0; } .forward-line { stroke: #6bb3f0; }
  .back, .back-tip { fill: #f09a6b; } .back-line { stroke: #f09a6b; } .tip { fill: #e6e6e6; } .faint { stroke: #777; } .dot { fill: #b0b0b0; }
}
"""


class Drawing:
    """An SVG that grows by its parts."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        tips = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path class="{name}" d="M0 0L10 5L0 10z"/></marker>'
            for name in ("tip", "forward-tip", "back-tip")
        )
        self.parts = [f"<title>{title}</title>", f"<style>{STYLE}</style>", f"<defs>{tips}</defs>"]

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>')

    def box(self, x: float, y: float, width: float, words: str) -> None:
        """A box of this width around its centre."""
        self.parts.append(f'<rect class="box" x="{x - width / 2:g}" y="{y - 17:g}" width="{width:g}" height="34" rx="6"/>')
        self.text(x, y + 5, words)

    def line(self, points: list[tuple[float, float]], kind: str = "line", tip: str = "") -> None:
        path = "M" + "L".join(f"{x:.5g} {y:.5g}" for x, y in points)
        end = f' marker-end="url(#{tip})"' if tip else ""
        self.parts.append(f'<path class="{kind}" d="{path}"{end}/>')

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:.5g}" cy="{y:.5g}" r="{radius:g}"/>')

    def write(self, name: str) -> None:
        (FOLDER / name).write_text("\n".join([self.head, *self.parts, "</svg>"]) + "\n")


def block() -> None:
    """A Pre-LN residual branch with its moments, forward and backward."""
    drawing = Drawing(760, 300, "One residual branch of a Pre-LN block: moments forward, gradients backward")
    drawing.line([(30, 190), (610, 190)], "forward-line", "forward-tip")
    drawing.line([(110, 190), (110, 70), (170, 70)], "forward-line", "forward-tip")
    drawing.line([(250, 70), (360, 70)], "forward-line", "forward-tip")
    drawing.line([(540, 70), (625, 70), (625, 170)], "forward-line", "forward-tip")
    drawing.line([(642, 190), (740, 190)], "forward-line", "forward-tip")
    drawing.box(210, 70, 80, "norm")
    drawing.box(450, 70, 180, "attention or FFN")
    drawing.parts.append('<circle class="box" cx="625" cy="190" r="16"/>')
    drawing.text(625, 195, "+", "bold")
    drawing.text(62, 178, "q, c", "forward bold")
    drawing.text(305, 58, "1, c", "forward bold")
    drawing.text(585, 58, "a, c′", "forward bold")
    drawing.text(692, 178, "q + a", "forward bold")
    drawing.line([(740, 206), (645, 206)], "back-line", "back-tip")
    drawing.line([(606, 206), (30, 206)], "back-line", "back-tip")
    drawing.line([(640, 160), (640, 86), (545, 86)], "back-line", "back-tip")
    drawing.line([(357, 86), (255, 86)], "back-line", "back-tip")
    drawing.line([(168, 86), (126, 86), (126, 200)], "back-line", "back-tip")
    drawing.text(692, 226, "g", "back bold")
    drawing.text(592, 106, "g", "back bold")
    drawing.text(305, 106, "g F", "back bold")
    drawing.text(152, 106, "g F/q", "back bold", "start")
    drawing.text(62, 226, "g (1 + F/q)", "back bold")
    drawing.text(30, 262, "forward: q = E x², c = correlation of two tokens, a = second moment of the branch", "forward", "start")
    drawing.text(30, 284, "backward: g = E (dL/dx)², F = factor of the branch on it; the norm divides by q", "back", "start")
    drawing.write("block.svg")


def attention() -> None:
    """Values as a shared part and a remainder, averaged over n keys."""
    drawing = Drawing(760, 270, "Attention passes the shared part of the values and averages the remainder")
    for index in range(4):
        y = 50 + 42 * index
        drawing.parts.append(f'<rect class="box" x="40" y="{y}" width="90" height="26"/>')
        drawing.parts.append(f'<rect class="cell" x="130" y="{y}" width="{(60, 44, 70, 52)[index]}" height="26"/>')
        drawing.line([(215, y + 13), (375, 126)], "line", "tip")
        drawing.text(232, y + (4, 6, 32, 30)[index], f"A<tspan dy='4' class='small'>{index + 1}</tspan>")
    drawing.text(85, 38, "shared")
    drawing.text(160, 38, "remainder")
    drawing.text(105, 235, "values of n tokens", "bold")
    drawing.text(105, 255, "variance V = c V + (1 − c) V", "small")
    drawing.parts.append('<circle class="box" cx="395" cy="126" r="18"/>')
    drawing.text(395, 132, "Σ", "bold")
    drawing.line([(415, 126), (485, 126)], "line", "tip")
    drawing.parts.append('<rect class="box" x="495" y="113" width="90" height="26"/>')
    drawing.parts.append('<rect class="cell" x="585" y="113" width="22" height="26"/>')
    drawing.text(560, 95, "output of a query", "bold")
    drawing.text(560, 162, "c V + (1 − c) V · Σ A²", "forward bold")
    drawing.text(560, 184, "flat weights: Σ A² = 1/n", "small")
    drawing.text(560, 202, "one key: Σ A² = 1", "small")
    drawing.text(560, 235, "the correlation of two outputs rises", "small")
    drawing.write("attention.svg")


def graded(length: int = 64) -> None:
    """Pairs of positions of a causal network, and those that are computed."""
    drawing = Drawing(760, 400, "Pairs of positions of a causal network: all of them, and those that are computed")
    nodes = sorted({*range(8), *(round(8 * 2 ** (step / 4)) for step in range(13))} - {length})
    nodes = [*(node for node in nodes if node < length - 1), length - 1]
    left, top, size = 60, 20, 330

    def at(position: int) -> float:
        return size * position / (length - 1)

    drawing.line([(left, top), (left, top + size), (left + size, top + size), (left, top)], "line")
    for node in nodes:
        drawing.line([(left, top + at(node)), (left + at(node), top + at(node))], "faint")
        for second in [other for other in nodes if other <= node]:
            drawing.circle(left + at(second), top + at(node), 2.4, "node")
    drawing.text(left + size / 2, top + size + 26, "second position b ≤ a")
    drawing.parts.append(f'<text transform="translate({left - 18},{top + size / 2}) rotate(-90)" text-anchor="middle">first position a</text>')
    for row, words in enumerate([
        f"{length} positions have {length * (length + 1) // 2} pairs.",
        f"{len(nodes)} nodes have {len(nodes) * (len(nodes) + 1) // 2} (dots): all of the first eight,",
        "where one more key changes an average,",
        "then four per factor of two.",
        "",
        "Sums over keys run along rows, with a cubic",
        "in ln(b + 1) between the dots.",
    ]):
        drawing.text(410, 120 + 24 * row, words, "", "start")
    drawing.write("graded.svg")


def cloud() -> None:
    """A distribution over networks through a concave map: the mean of the output is below the output of the mean."""
    drawing = Drawing(760, 330, "Fluctuations of networks through a curved map shift the mean")
    left, bottom = 90, 280

    def curve(x: float) -> float:
        return 215 * (1 - math.exp(-2.2 * x))

    drawing.line([(left, bottom), (left + 390, bottom)], "line", "tip")
    drawing.line([(left, bottom), (left, 30)], "line", "tip")
    drawing.line([(left + 360 * x / 50, bottom - curve(x / 50)) for x in range(51)], "line")
    inputs = [0.5 + 0.17 * z for z in (-1.7, -1.2, -0.8, -0.5, -0.25, 0.0, 0.25, 0.5, 0.8, 1.2, 1.7)]
    for x in inputs:
        drawing.circle(left + 360 * x, bottom, 3.5, "dot")
        drawing.circle(left + 360 * x, bottom - curve(x), 3.5, "dot")
        drawing.circle(left, bottom - curve(x), 3.5, "dot")
    mean = sum(map(curve, inputs)) / len(inputs)
    middle = left + 180
    drawing.line([(middle, bottom), (middle, bottom - curve(0.5)), (left, bottom - curve(0.5))], "forward-line")
    drawing.line([(left, bottom - mean), (middle, bottom - mean)], "back-line")
    drawing.text(middle, bottom + 22, "mean of x", "forward bold")
    drawing.text(left + 250, bottom + 22, "x: one dot per network", "", "start")
    drawing.text(left + 12, bottom - curve(0.5) - 7, "f(mean of x)", "forward bold", "start")
    drawing.text(left + 12, bottom - mean + 18, "mean of f(x)", "back bold", "start")
    for row, words in enumerate([
        "f bends down, so networks below",
        "the mean lose more than those",
        "above it gain:",
    ]):
        drawing.text(500, 90 + 22 * row, words, "", "start")
    drawing.text(500, 168, "mean of f = f(mean) + ½ f″ · variance", "small bold", "start")
    drawing.text(500, 196, "The variance is about 1/width;", "", "start")
    drawing.text(500, 218, "± is the spread of f.", "", "start")
    drawing.write("cloud.svg")


def passes() -> None:
    """The two passes over a stack, and the columns that they fill."""
    drawing = Drawing(760, 330, "The forward and the backward pass, and the columns of the table that they fill")
    for x, words in [(110, "embeddings"), (260, "block 0"), (410, "…"), (560, "final norm")]:
        drawing.box(x, 110, 110, words)
    for x in (165, 315, 465):
        drawing.line([(x, 102), (x + 38, 102)], "forward-line", "forward-tip")
        drawing.line([(x + 40, 118), (x + 2, 118)], "back-line", "back-tip")
    drawing.text(30, 52, "input: ids, masks", "forward", "start")
    drawing.line([(110, 60), (110, 90)], "forward-line", "forward-tip")
    drawing.line([(695, 118), (620, 118)], "back-line", "back-tip")
    drawing.text(660, 90, "gradient 1 at", "back")
    drawing.text(660, 106, "the output", "back")
    drawing.text(110, 168, "infinite width", "bold")
    drawing.text(110, 190, "moments of every position:", "small")
    drawing.text(110, 208, "variance, correlation", "small")
    drawing.text(380, 168, "finite width", "bold")
    drawing.text(380, 190, "fluctuations of two tokens:", "small")
    drawing.text(380, 208, "corrections of order 1/width, ±", "small")
    drawing.line([(110, 222), (150, 262)], "line", "tip")
    drawing.line([(180, 222), (450, 266)], "line", "tip")
    drawing.line([(380, 222), (250, 266)], "line", "tip")
    drawing.line([(430, 222), (520, 262)], "line", "tip")
    drawing.text(200, 286, "mean · variance · ± · token corr", "forward bold")
    drawing.text(540, 286, "grad var · ± · grad corr", "back bold")
    drawing.text(200, 310, "forward pass", "small")
    drawing.text(540, 310, "backward pass", "small")
    drawing.write("passes.svg")


def reads() -> None:
    """Parts that read other signals: the first signal before every block, skips of a U, and a stream of conditions."""
    drawing = Drawing(760, 300, "Parts that read an earlier site or another stream")
    tips = {"line": ("forward-line", "forward-tip"), "read": ("back-line", "back-tip")}

    def arrow(points: list[tuple[float, float]], kind: str = "line") -> None:
        drawing.line(points, *tips[kind])

    drawing.text(120, 28, "first signal", "bold")
    for row, words in enumerate(["x₀", "block 0", "block 1", "block 2"]):
        drawing.box(90, 270 - 66 * row, 90, words)
        if row:
            arrow([(90, 319 - 66 * row), (90, 289 - 66 * row)])
            arrow([(137, 270), (200, 270), (200, 304 - 66 * row), (98, 304 - 66 * row)], "read")
    drawing.text(365, 28, "skips of a U", "bold")
    for row in range(2):
        drawing.box(310, 260 - 90 * row, 90, f"block {row}")
        drawing.box(440, 260 - 90 * row, 90, f"block {3 - row}")
        arrow([(355, 252 - 90 * row), (393, 252 - 90 * row)], "read")
    arrow([(310, 243), (310, 189)])
    arrow([(310, 153), (310, 100), (440, 100), (440, 151)])
    arrow([(440, 187), (440, 241)])
    drawing.text(640, 28, "conditions", "bold")
    drawing.line([(560, 294), (560, 60)], "forward-line", "forward-tip")
    arrow([(560, 280), (610, 280), (610, 241)])
    for row, words in enumerate(["norm", "f"]):
        drawing.box(610, 224 - 80 * row, 56, words)
    arrow([(610, 207), (610, 163)])
    arrow([(610, 127), (610, 84), (564, 84)])
    drawing.box(720, 184, 40, "c")
    arrow([(720, 167), (720, 106), (614, 106)], "read")
    arrow([(700, 184), (614, 184)], "read")
    drawing.text(672, 98, "gate", "back small")
    drawing.text(657, 176, "scale", "back small")
    drawing.text(657, 200, "shift", "back small")
    drawing.write("reads.svg")


def image() -> None:
    """Two windows of a convolution over an image, and the pixels that one tap reads."""
    drawing = Drawing(760, 300, "Two windows of three by three pixels; each tap reads two pixels at one offset")
    cell, left, top = 26, 60, 50
    for row in range(7):
        for column in range(9):
            drawing.parts.append(
                f'<rect class="cell" x="{left + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}"/>'
            )
    outputs = left + 400
    for row in range(7):
        for column in range(9):
            drawing.parts.append(
                f'<rect class="cell" x="{outputs + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}"/>'
            )
    for row, column, words in [(1, 1, "a"), (4, 6, "c")]:
        x, y = left + (column - 1) * cell, top + (row - 1) * cell
        drawing.line([(x, y), (x + 3 * cell, y), (x + 3 * cell, y + 3 * cell), (x, y + 3 * cell), (x, y)], "line")
        read = (left + (column + 1.5) * cell, top + (row - 0.5) * cell)
        end = (outputs + (column + 0.5) * cell, top + (row + 0.5) * cell)
        drawing.circle(*read, 6, "node")
        drawing.line([read, (end[0] - 12, end[1])], "forward-line", "forward-tip")
        drawing.text(end[0], end[1] + 5, words, "bold")
    drawing.text(left + 4.5 * cell, 30, "input x", "forward")
    drawing.text(outputs + 4.5 * cell, 30, "output y", "forward")
    drawing.text(380, 262, "E y_a y_c is a sum over taps of E x x of the two pixels that one tap reads.", "small")
    drawing.text(380, 282, "At the edges, windows lack taps.", "small")
    drawing.write("image.svg")


if __name__ == "__main__":
    for draw in (block, attention, graded, cloud, passes, reads, image):
        draw()
