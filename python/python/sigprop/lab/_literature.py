"""Statements of the literature as experiments. Each names its statement and reports if it came true here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._lab import SMALL, Claim, Lab, mlp, transformer
from ._trial import Course, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (64, 128, 256, 512)
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
DEPTHS = (8, 32, 96)


def _first(course: Course, quantity: str) -> list[float]:
    """The quantity of every block at the first step."""
    return [row[quantity] for row in course.at(0) if "blocks." in row["site"]]


def _updates() -> list[Trial]:
    def trial(scheme: str, layers: int, matrices: bool) -> Trial:
        flags = {**SMALL, "layers": layers, "norm_placement": "post", "scheme": scheme}
        name = f"{scheme}, {layers} layers, {'matrices' if matrices else 'all'}"
        return Trial(name, flags, 1, 0.01, "sgd", learns_matrices=matrices, follows_update=True)

    cases = (("deepnorm", True), ("xavier", True), ("deepnorm", False))
    return [trial(scheme, layers, matrices) for scheme, matrices in cases for layers in DEPTHS]


def _bounded(courses: Sequence[Course]) -> list[Claim]:
    """The theorem is about matrices. Gains and biases, which it leaves out, move the network further the deeper it is."""
    moved = [course.moved or math.nan for course in courses]
    deepnorm, xavier, everything = (moved[start : start + len(DEPTHS)] for start in range(0, len(moved), len(DEPTHS)))
    depths = _listed(DEPTHS)
    return [
        Claim(f"DeepNorm: matrices of {depths} layers move it by {_listed(deepnorm)}, twice the least at most", max(deepnorm) <= 2.0 * min(deepnorm)),
        Claim(f"Xavier: they move it by {_listed(xavier)}, a hundred times as far at least", min(xavier) >= 100.0 * max(deepnorm)),
        Claim(f"DeepNorm: gains and biases too, by {_listed(everything)}: further the deeper", everything == sorted(everything)),
    ]


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _pair(encoder: int, decoder: int, **flags: Any) -> dict[str, Any]:
    each = {"kind": "encoder", "d_model": 64, "n_heads": 4, "seq_len": 32, "vocab_size": 256, **flags}
    return {**each, "n_layers": encoder, "decoder": {**each, "n_layers": decoder, "causal": True}}


def _hyperbolic(courses: Sequence[Course]) -> list[Claim]:
    """Gradients fall as the inverse of the stream grows, so their product is constant."""
    [course] = courses
    stream, gradient = _first(course, "variance"), _first(course, "grad_variance")
    products = [one * other for one, other in zip(stream, gradient, strict=True)]
    fall, spread = gradient[0] / gradient[-1], max(products) / min(products)
    return [Claim(f"gradients fall {fall:.3g} times over the blocks, times the variance of the stream {spread:.3g} times", spread < math.sqrt(fall))]


def _flattened(courses: Sequence[Course]) -> list[Claim]:
    """The claim about the growth of the stream over the second half of the blocks."""
    plain, scaled = ((ends := _first(course, "variance"))[-1] / ends[len(ends) // 2 - 1] for course in courses)
    text = f"the deeper half of the blocks multiplies the variance by {plain:.3g} plain, {scaled:.3g} scaled"
    return [Claim(text, scaled < math.sqrt(plain))]


def _tokens_collapse(courses: Sequence[Course]) -> list[Claim]:
    claims = []
    for course in courses:
        seen, predicted = _first(course, "token_correlation")[-1], float(course.prediction["token_correlation"][-1])
        text = f"{course.trial.name}: token correlation at the end {seen:.4f}, predicted {predicted:.4f}"
        claims.append(Claim(text, abs(seen - predicted) < 0.1))
    first, second = (1.0 - correlation for correlation in _first(courses[-1], "token_correlation")[:2])
    text = f"doubly exponential: 1 - correlation of the first two blocks {first:.2g}, {second:.2g}, the second below the square of the first"
    return [*claims, Claim(text, second < first**2)]


def _rates() -> list[Trial]:
    return [
        Trial(
            f"{scheme.split(':')[0]}, width {width}, rate {rate:g}",
            {"layers": 2, "width": width, "heads": width // 16, "seq_len": 32, "scheme": scheme}, 40, rate,
        )
        for scheme in ("pytorch", f"mup:width={WIDTHS[0]}") for width in WIDTHS for rate in RATES
    ]


def _of(courses: Sequence[Course], scheme: str, width: int) -> list[Course]:
    """The courses of this scheme and width at all rates."""
    return [course for course in courses if course.trial.name.startswith(f"{scheme}, width {width},")]


def _transfers(courses: Sequence[Course]) -> list[Claim]:
    def best(scheme: str, width: int) -> float:
        some = [course for course in _of(courses, scheme, width) if course.is_finite]
        return min(some, key=lambda course: course.final).trial.lr

    claims = []
    rules: Mapping[str, Callable[[float], bool]] = {"mup": lambda ratio: 0.5 <= ratio <= 2.0, "pytorch": lambda ratio: ratio <= 0.25}
    for scheme, rule in rules.items():
        rates = [best(scheme, width) for width in WIDTHS]
        what = "the best rate stays within a factor of two" if scheme == "mup" else "the best rate falls to a quarter or less"
        claims.append(Claim(f"{scheme}: {what} (widths {WIDTHS[0]} to {WIDTHS[-1]}: {_listed(rates)})", rule(rates[-1] / rates[0])))
    return claims


def _over_rates(figure: Figure, courses: Sequence[Course]) -> None:
    """Plots the final losses of every width, one panel for each scheme."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, scheme in zip(panels, ("pytorch", "mup"), strict=True):
        for width in WIDTHS:
            some = _of(courses, scheme, width)
            axes.plot([course.trial.lr for course in some], [course.final for course in some], "o-", label=f"width {width}")
        axes.set(title=scheme, xlabel="learning rate", xscale="log", yscale="log")
    panels[0].set_ylabel("final loss")
    panels[0].legend()


LITERATURE: Mapping[str, Lab] = {
    "deepnorm": Lab(
        "DeepNorm bounds how far a step of its matrices moves the network, however deep (Wang et al. 2022); one step of SGD.", _updates(), _bounded,
    ),
    "fixup": Lab(
        "Networks without norms train if branches start small (Zhang et al. 2019, Huang et al. 2020).",
        [
            mlp("48 layers, Fixup", 48, activation="relu", norm="none", residual=True, scheme="fixup"),
            mlp("48 layers, Kaiming", 48, activation="relu", norm="none", residual=True, scheme="kaiming"),
            Trial("6 and 6 blocks, T-Fixup", {"model": _pair(6, 6, norm="none"), "scheme": "t-fixup"}),
        ],
    ),
    "admin": Lab(
        "Encoders of 60 and decoders of 12 blocks train under Admin, with the default initialisation they do not (Liu et al. 2020).",
        [Trial(scheme, {"model": _pair(60, 12, norm_placement="post"), "scheme": scheme}) for scheme in ("admin", "xavier-packed")],
    ),
    "pre-ln": Lab(
        "Gradients of Pre-LN fall hyperbolically with depth (Xiong et al. 2020; Kedia et al. 2024); nothing is trained.",
        [transformer("96 blocks", 96, 1, scheme="pytorch")], _hyperbolic,
    ),
    "dslm": Lab(
        "192 Post-LN blocks learn in a hundred steps without warm-up under DSLM, under Xavier they do not (Kedia et al. 2024).",
        [transformer(scheme, 192, scheme=scheme, norm_placement="post") for scheme in ("dslm", "xavier")],
    ),
    "ln-scaling": Lab(
        "Norms that are scaled by 1/sqrt(l) keep deep blocks from drowning in the stream (Sun et al. 2025); nothing is trained.",
        [transformer("plain", 48, 1, scheme="bert"), transformer("scaled", 48, 1, scheme="ln-scaling")], _flattened,
    ),
    "rank-collapse": Lab(
        "Tokens of attention without skip connections become one vector, doubly exponentially where all see each other (Dong et al. "
        "2021, theorem 2); nothing is trained.",
        [
            transformer("with skips", 12, 1, scheme="xavier", norm_placement="post", positions="none"),
            transformer("without", 12, 1, scheme="xavier", norm_placement="post", positions="none", skip_scale=0.0),
            transformer("without, no mask", 4, 1, scheme="xavier", norm_placement="post", positions="none", skip_scale=0.0, causal=False),
        ],
        _tokens_collapse,
    ),
    "learning-rate": Lab(
        "The best learning rate of muP is that of every width, the usual one falls with it (Yang et al. 2022); three minutes.",
        _rates(), _transfers, are_judged=False, draw=_over_rates,
    ),
}
