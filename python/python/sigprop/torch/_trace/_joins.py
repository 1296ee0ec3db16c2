"""Sums and products of signals."""

from __future__ import annotations

import torch
from torch import fx

from ._components import Product, Refusal, Sum
from ._constants import operation
from ._layout import Layout, Signal, entries_of

_SUMS = {"add": 1.0, "add_": 1.0, "sub": -1.0, "sub_": -1.0}
_PRODUCTS = ("mul", "mul_", "multiply")
JOINS = (*_SUMS, *_PRODUCTS)


def join(layout: Layout, node: fx.Node, parts: list[Signal], where: dict[str, str]) -> Signal:
    """The sum or product of two signals, token by token and feature by feature."""
    name = operation(node)
    if name in ("cat", "concat", "concatenate", "stack"):
        raise Refusal("features or tokens of several signals side by side; expected sums or products of them")
    if name not in JOINS or len(parts) != 2:
        raise Refusal(f"{name} of several signals; expected their sum or product")
    one, other = parts
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
