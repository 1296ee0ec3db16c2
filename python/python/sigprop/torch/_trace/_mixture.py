"""Mixtures of experts: everything between the input of a router and the weighted sum of the experts, named by its values.

torch.export has to record the experts as products with their stacked weights, as transformers writes them for
experts_implementation="grouped_mm" (its default) and "batched_mm". "eager" loops over the experts that were chosen, which
torch.export cannot record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, fx

from .._network._components import ACTIVATIONS
from ._components import Activation, Component, Linear, Mixture, Product, Refusal, Weight
from ._constants import MOVEMENT, operands, operation
from ._experts import Experts, arrangements
from ._islands import Islands
from ._layout import entries_of

# Tokens that values are compared for, and the largest difference, relative to the largest entry.
_COMPARED, _TOLERANCE = 6, 1e-4
# Functions that are not tried.
_OTHER = ("identity", "leaky_relu", "xielu", "plus_one")
_TRIED = (
    "tried experts W_out (φ(W_gate x) ∘ W_up x), W_out (φ(W_gate x) ∘ (W_up x + 1)) and W_out φ(W_in x) with biases of zero or "
    "none, from parameters of shape (experts, …), "
    "with softmax or sigmoid weights of outputs or inputs, normalised or not, times a number; expected one of these"
)


@dataclass(frozen=True)
class _Probe:
    """A test of a mixture: some tokens, the output of the module for them, and the experts that they go to."""

    x: Tensor
    target: Tensor
    # Shape (tokens, experts).
    scores: Tensor
    # Shape (tokens, top_k).
    chosen: Tensor

    def weights(self, weighting: str, is_normalised: bool) -> Tensor:
        weights = self.scores.softmax(-1) if weighting == "softmax" else self.scores.sigmoid()
        weights = weights.gather(-1, self.chosen)
        return weights / weights.sum(-1, keepdim=True) if is_normalised else weights

    def mapped(self, weight: Weight, x: Tensor) -> Tensor:
        """The outputs of a map of the chosen experts for x, shape (tokens, top_k or 1, fan_in)."""
        # Weights of a few experts at a time.
        return torch.stack([(weight.value[experts] @ each[..., None])[..., 0] for experts, each in zip(self.chosen, x)])


@dataclass(frozen=True)
class _Found:
    """A mixture, and the largest difference of its values from those of the module."""

    error: float
    experts: Experts
    function: str
    # The number that is added to W_up x.
    added: float
    weighting: str
    weights_multiply: str
    is_normalised: bool
    scale: float


def mixture(islands: Islands, topk: fx.Node, live: list[fx.Node]) -> list[fx.Node]:
    """The mixture that a choice of experts belongs to: makes its output an anchor, and returns its nodes.

    Args:
        live: The nodes that the output of the module depends on, in order.
    """
    scores = topk.args[0]
    start = islands.base.get(scores) if isinstance(scores, fx.Node) else None
    router = None if start is None or start in islands.scores else islands.signal(start).component
    if start is None or not isinstance(router, Linear):
        raise Refusal("the largest of features that are no scores of a router; expected a linear map before them")
    has_bias = router.bias is not None and bool(router.bias.value.any())
    if has_bias or float(router.weight.value.std()) == 0.0:
        raise Refusal("a router with a bias, or with equal weights; expected a bias of zero or none, and weights drawn at random")
    for end in _common_ends(topk, live):
        closed = _closed(islands, start, end)
        if closed is None:
            break
        before, nodes = closed
        shape = end.meta["val"].shape
        if math.prod(shape[:-1]) == router.rows and len(nodes) > 1:
            found = _found(islands, router, before, nodes)
            if found is not None:
                _make(islands, router, before, end, found, _top_k(nodes))
                return nodes
    raise Refusal(f"a choice of experts whose mixture was not recognised: {_TRIED}")


def _common_ends(node: fx.Node, live: list[fx.Node]) -> Iterator[fx.Node]:
    """Tensors through which every way from a node to the output goes."""
    known, pending = set(live), {node}
    for each in live[live.index(node) :]:
        if pending == {each} and each is not node and isinstance(each.meta.get("val"), Tensor):
            yield each
        if each in pending:
            pending.remove(each)
            pending |= {user for user in each.users if user in known and each in operands(user)}


def _closed(islands: Islands, router: fx.Node, end: fx.Node) -> tuple[fx.Node, list[fx.Node]] | None:
    """The input of the router, before some movements, and the nodes after it, if these read no other signal."""
    before = router.args[0]
    while isinstance(before, fx.Node):
        nodes = islands.between(before, end)
        if not any(node in islands.captured.inputs for node in nodes):
            return before, nodes
        before = before.args[0] if operation(before) in MOVEMENT else None
    return None


def _top_k(nodes: list[fx.Node]) -> int:
    """Experts per token, by the last choice: those before it choose groups."""
    return [int(node.args[1]) for node in nodes if operation(node) == "topk"][-1]  # type: ignore[arg-type]


def _found(islands: Islands, router: Linear, before: fx.Node, nodes: list[fx.Node]) -> _Found | None:
    """The mixture with the values of the nodes."""
    read = dict.fromkeys(each for node in nodes for each in operands(node) if islands.constants.is_constant(each))
    names = dict.fromkeys(name for each in read for name in islands.constants.parameters.get(each, ()))
    state, count, top_k = islands.captured.state, router.width, _top_k(nodes)
    stacked = {name: state[name] for name in names if state[name].dim() == 3 and len(state[name]) == count}

    def probe(size: float) -> _Probe:
        x = size * torch.randn(before.meta["val"].shape, generator=torch.Generator().manual_seed(0))
        target = islands.replay(before, nodes, x.to(before.meta["val"].dtype)).flatten(0, -2)[:_COMPARED]
        x = x.flatten(0, -2)[:_COMPARED]
        scores = x @ router.weight.value.T
        return _Probe(x, target.float(), scores, scores.topk(top_k, dim=-1).indices)

    usual = probe(1.0)
    for added in (0.0, 1.0):
        best = None
        for experts in arrangements(stacked, router.inputs[0].width, usual.target.shape[-1]):
            # Activations differ where their inputs are not small. Clamps of GPT-OSS are at 7.
            reach = float(experts.up.value.square().mean().sqrt()) * math.sqrt(router.inputs[0].width)
            for found in _fits(experts, added, [usual, probe(1.5 / max(reach, 1e-6))]):
                best = found if best is None or found.error < best.error else best
        if best is not None and best.error < _TOLERANCE:
            return best
    return None


def _fits(experts: Experts, added: float, probes: list[_Probe]) -> Iterator[_Found]:
    """Mixtures of these experts, with all activations and kinds of weights."""
    first = [probe.mapped(experts.gate or experts.up, probe.x[:, None]) for probe in probes]
    up = None if experts.gate is None else [probe.mapped(experts.up, probe.x[:, None]) for probe in probes]
    for name in (each for each in ACTIVATIONS if each not in _OTHER):
        phi = ACTIVATIONS[name]

        def hidden(weights: list[Tensor] | None) -> list[Tensor]:
            """The input of the last map. Both maps before it multiply by the weights."""
            xs = first if weights is None else [weight * x for weight, x in zip(weights, first)]
            if up is None:
                return [phi(x) for x in xs]
            factors = up if weights is None else [weight * x for weight, x in zip(weights, up)]
            return [phi(x) * (factor + added) for x, factor in zip(xs, factors)]

        outputs = [probe.mapped(experts.down, x) for probe, x in zip(probes, hidden(None))]
        for weights_multiply, weighting, is_normalised in product(("outputs", "inputs"), ("softmax", "sigmoid"), (True, False)):
            weights = [probe.weights(weighting, is_normalised)[..., None] for probe in probes]
            if weights_multiply == "outputs":
                sums = [(weight * y).sum(1) for weight, y in zip(weights, outputs)]
            else:
                sums = [probe.mapped(experts.down, x).sum(1) for probe, x in zip(probes, hidden(weights))]
            scale = float(f"{float((sums[0] * probes[0].target).sum() / sums[0].square().sum()):.5g}")
            errors = [float((scale * y - probe.target).abs().max() / probe.target.abs().max()) for probe, y in zip(probes, sums)]
            if all(map(math.isfinite, [scale, *errors])):
                yield _Found(max(errors), experts, name, added, weighting, weights_multiply, is_normalised, scale)


def _make(islands: Islands, router: Linear, before: fx.Node, end: fx.Node, found: _Found, top_k: int) -> None:
    """The component of a mixture, and those of an expert."""
    source, rows = islands.tokens(before)
    if source is not router.inputs[0]:
        raise Refusal("experts that read other features than the router; expected one input")
    make, where, experts = islands.layout.make, islands.where(end), found.experts

    def linear(x: Component, weight: Weight) -> Component:
        return make(Linear, inputs=[x], width=weight.value.shape[1], rows=x.rows, weight=weight, bias=None, **where)

    hidden = linear(source, experts.gate or experts.up)
    sizes = {"width": hidden.width, "rows": hidden.rows}
    hidden = make(Activation, inputs=[hidden], function=found.function, **sizes, **where)
    if experts.gate is not None:
        up: Component = linear(source, experts.up)
        up = make(Activation, inputs=[up], function="plus_one", **sizes, **where) if found.added else up
        hidden = make(Product, inputs=[hidden, up], **sizes, **where)
    made = make(
        Mixture,
        inputs=[source, linear(hidden, experts.down)],
        width=experts.down.value.shape[1],
        rows=router.rows,
        n_experts=router.width,
        top_k=top_k,
        weighting=found.weighting,
        weights_multiply=found.weights_multiply,
        normalised=found.is_normalised,
        scale=found.scale,
        router=router.weight,
        router_path=router.path,
        **where,
    )
    islands.start(end, made, entries_of(rows.reshape(end.meta["val"].shape[:-1]), made.width))
