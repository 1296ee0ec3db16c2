"""Sums and products of signals."""

from __future__ import annotations

import torch
from torch import fx

from ._components import Activation, Concat, Linear, Mixture, Product, Refusal, Sum
from ._constants import operation, pieces
from ._layout import Given, Layout, Signal, entries_of

_SUMS = {"add": 1.0, "add_": 1.0, "sub": -1.0, "sub_": -1.0}
_PRODUCTS = ("mul", "mul_", "multiply")
JOINS = (*_SUMS, *_PRODUCTS)


def join(layout: Layout, node: fx.Node, parts: list[Signal], where: dict[str, str]) -> Signal:
    """The sum or product of two signals, token by token and feature by feature."""
    name = operation(node)
    if pieces(node):
        return _concatenated(layout, parts, where)
    if name in ("cat", "concat", "concatenate", "stack"):
        raise Refusal("tokens of several signals side by side; expected sums or products of them, or features side by side")
    if name not in JOINS or len(parts) != 2:
        raise Refusal(f"{name} of several signals; expected their sum or product")
    gated = _gated(layout, parts, where) if name in _PRODUCTS else None
    if gated is not None:
        return gated
    # Parts of one map may have their features along any axis.
    one, other = [part if isinstance(part.component, Given) else layout.narrow(part) for part in parts]
    entries = one.entries
    components = [one.component, other.component]
    sizes = {(component.width, component.rows) for component in components}
    if len(sizes) > 1 or entries.shape != other.entries.shape or not torch.equal(entries, other.entries):
        (x, rows), (y, others) = layout.tokens(one), layout.tokens(other)
        if x.width != y.width or rows.shape != others.shape or not torch.equal(rows, others):
            shapes = f"{tuple(entries.shape)} and {tuple(other.entries.shape)}"
            raise Refusal(f"{name} of signals of different shapes {shapes}; expected the same tokens and features (none broadcast)")
        components, entries = [x, y], entries_of(rows, x.width)
    width, rows_count = components[0].width, components[0].rows
    if name in _PRODUCTS:
        product = layout.make(Product, inputs=components, width=width, rows=rows_count, **where)
        return Signal(product, entries)
    factor = _SUMS[name] * float(node.kwargs.get("alpha", 1))  # type: ignore[arg-type]
    total = layout.make(Sum, inputs=components, width=width, rows=rows_count, scales=[1.0, factor], **where)
    return Signal(total, entries)


def _concatenated(layout: Layout, parts: list[Signal], where: dict[str, str]) -> Signal:
    """The features of signals side by side."""
    components = list(dict.fromkeys(part.component for part in parts))
    rows = [part.entries // part.component.width for part in parts]
    if any(each.rows != components[0].rows or isinstance(each, Given) for each in components):
        raise Refusal("features side by side of inputs, or of signals with other tokens; expected signals of the same tokens")
    if not all(torch.equal(each, rows[0][..., :1].expand_as(each)) for each in rows):
        raise Refusal("features side by side of different tokens; expected the same tokens")
    sizes = [each.width for each in components]
    width = sum(sizes)
    starts = {each: sum(sizes[:number]) for number, each in enumerate(components)}
    parts_of_one = {"n_heads": 1, "shared": [False] * len(components)}
    made = layout.make(Concat, inputs=components, width=width, rows=components[0].rows, **parts_of_one, **where)
    features = torch.cat([part.entries % part.component.width + starts[part.component] for part in parts], dim=-1)
    return Signal(made, rows[0][..., :1] * width + features)


def _gated(layout: Layout, parts: list[Signal], where: dict[str, str]) -> Signal | None:
    """A signal times the sigmoid of a score of the token: a mixture of one expert."""
    gate, signal = sorted(parts, key=lambda part: part.component.width)
    score = gate.component.inputs[0] if isinstance(gate.component, Activation) and gate.component.function == "sigmoid" else None
    if not isinstance(score, Linear) or score.bias is not None or (score.width, gate.entries.shape[-1]) != (1, 1):
        return None
    component, rows = layout.tokens(signal)
    if not torch.equal(layout.tokens(gate)[1], rows):
        return None
    weighting = {"n_experts": 1, "top_k": 1, "weighting": "sigmoid", "weights_multiply": "outputs", "normalised": False, "scale": 1.0}
    made = layout.make(
        Mixture,
        inputs=[score.inputs[0], component],
        width=component.width,
        rows=component.rows,
        router=score.weight,
        router_path=score.path,
        **weighting,
        **where,
    )
    return Signal(made, entries_of(rows, component.width))
