"""Softmax attention: one operation, or a softmax between two products, whose scores are replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .._network._operations import bucket
from ._components import PADDING, Attention, Origin, Refusal, Weight
from ._constants import MASKED, Constants, operation
from ._heads import Heads, heads
from ._islands import SOFTMAX, Islands, Scores
from ._layout import Signal
from ._step import close


@dataclass(frozen=True)
class _Added:
    """Attention weights: softmax(cap · tanh(scale · q · k / cap) + constant). A sink is one more score of zero."""

    scale: float
    # Shape (batch, queries, keys); masked entries are below −10⁴.
    constant: Tensor
    # Parameters that the constant is computed from.
    parameters: Sequence[str] = ()
    softcap: float | None = None
    dropout: float = 0.0
    has_sink: bool = False


def scaled_dot_product_attention(islands: Islands, node: fx.Node) -> None:
    """The operation of torch."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = dict(zip(names, node.args)) | node.kwargs
    query, key, value = (islands.signal(given[name]) for name in names[:3])
    if given.get("enable_gqa"):
        repeats = query.entries.shape[-3] // key.entries.shape[-3]
        key, value = (Signal(each.component, each.entries.repeat_interleave(repeats, dim=-3)) for each in (key, value))
    shape = (query.entries[..., :1] + key.entries[..., :1].transpose(-1, -2)).shape
    scale = given.get("scale")
    scale = query.entries.shape[-1] ** -0.5 if scale is None else float(scale)
    mask, constant = given.get("attn_mask"), torch.zeros(shape)
    parameters: tuple[str, ...] = ()
    if given.get("is_causal"):
        constant = constant.masked_fill(~torch.ones(shape[-2:]).tril().bool(), -math.inf)
    elif mask is not None:
        _refuse_computed(islands.constants, mask)
        added = islands.constants.values[mask]
        constant = constant.masked_fill(~added, -math.inf) if added.dtype == torch.bool else constant + added
        parameters = islands.constants.parameters.get(mask, ())
    weights = _Added(scale, constant.reshape(-1, *shape[-2:]), parameters, dropout=float(given.get("dropout_p") or 0.0))
    islands.start(node, *_attention(islands, node, Scores(query, key), value, weights))


def _refuse_computed(constants: Constants, node: fx.Node) -> None:
    if constants.is_of_ids(node):
        raise Refusal(PADDING)
    if not constants.is_constant(node):
        raise Refusal("a mask or bias of scores that is computed from signals; expected one of positions")


def scores(islands: Islands, node: fx.Node, query: Signal, key: Signal, alpha: float = 1.0, added: Tensor | None = None) -> None:
    """Makes a node the anchor of scores. Entries of queries and keys have the shape (…, tokens, features)."""
    if query.entries.dim() < 3 or query.entries.shape[-1] != key.entries.shape[-1]:
        raise Refusal("a product of two signals that is no attention; expected queries and keys of heads")
    islands.base[node] = node
    islands.scores[node] = Scores(query, key, alpha, added)


def average(islands: Islands, node: fx.Node, weights: fx.Node, value: Signal) -> tuple[Attention, Tensor]:
    """The product of attention weights and values, and its entries, shape (…, tokens, features)."""
    anchor = islands.base[weights]
    product = islands.scores[anchor]
    softmax = _softmax(islands, anchor, weights)
    after = islands.between(softmax, weights)
    before = softmax.args[0]
    assert isinstance(before, fx.Node)
    nodes = islands.between(anchor, before)
    parameters = dict.fromkeys(
        name for each in nodes for operand in each.all_input_nodes for name in islands.constants.parameters.get(operand, ())
    )
    rates = [float(each.args[1]) for each in after if operation(each) == "dropout"]  # type: ignore[arg-type]
    found = _replayed(islands, anchor, nodes, product, _Added(1.0, torch.zeros(()), tuple(parameters), dropout=sum(rates[:1])))
    visible = found.constant > MASKED
    sample = torch.rand(softmax.meta["val"].shape, generator=torch.Generator().manual_seed(0))
    # The weight of a sink is the last, and is dropped.
    weights_of_keys = sample[..., :-1] if found.has_sink else sample
    weights_of_keys.masked_fill_(~visible.reshape(weights_of_keys.shape), 0.0)
    replayed = islands.replay(softmax, after, sample)
    if replayed.numel() != weights_of_keys.numel() or not close(replayed.flatten(), weights_of_keys.flatten()):
        raise Refusal(f"operations between softmax and values ({' '.join(map(operation, after))}); expected dropout at most")
    return _attention(islands, node, product, value, found)


def _softmax(islands: Islands, anchor: fx.Node, weights: fx.Node) -> fx.Node:
    found = [node for node in islands.cuts(anchor, weights) if operation(node) in SOFTMAX]
    if len(found) != 1:
        raise Refusal("attention weights without one softmax of scores; expected one")
    dim, value = found[0].args[1], found[0].meta["val"]
    keys = anchor.meta["val"].shape[-1]
    rows = anchor.meta["val"].numel() // keys
    if dim not in (-1, value.dim() - 1) or value.numel() not in (rows * keys, rows * (keys + 1)):
        raise Refusal("a softmax of more or other than the scores of all keys and a sink; expected one over keys")
    return found[0]


def _replayed(islands: Islands, anchor: fx.Node, nodes: list[fx.Node], product: Scores, known: _Added) -> _Added:
    """Scale, soft cap and constants between products and softmax."""
    shape = anchor.meta["val"].shape

    def replay(value: Tensor) -> Tensor:
        result: Tensor = islands.replay(anchor, nodes, value)
        return result.reshape(-1, shape[-2], result.shape[-1])

    has_sink = replay(torch.zeros(shape)).shape[-1] > shape[-1]

    def run(value: Tensor) -> Tensor:
        """Scores relative to the sink, if there is one: a softmax does not depend on a part that all have in common."""
        result = replay(value)
        return result[..., :-1] - result[..., -1:] if has_sink else result

    constant = run(torch.zeros(shape))
    visible = constant > MASKED
    small = (run(torch.full(shape, 1e-2)) - constant)[visible]
    large = (run(torch.full(shape, 1e5)) - constant)[visible]
    scale = float(small.mean()) / 1e-2
    cap = float(large.mean()) if abs(float(large.mean())) < 0.9 * abs(scale) * 1e5 else None
    if cap is not None:
        scale = cap * math.atanh(float(small.mean()) / cap) / 1e-2
    x = 3.0 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = scale * x if cap is None else cap * torch.tanh(scale * x / cap)
    if not close((run(x) - constant)[visible], expected.reshape(constant.shape)[visible], 2e-3):
        raise Refusal("scores that are more than scaled, capped, shifted and masked before softmax; expected these")
    if product.added is not None:
        constant = constant + scale * product.added.expand(shape).reshape(constant.shape)
    return _Added(scale * product.alpha, constant, known.parameters, cap, known.dropout, has_sink)


def _attention(islands: Islands, node: fx.Node, product: Scores, value: Signal, weights: _Added) -> tuple[Attention, Tensor]:
    found = heads(islands.layout, product.query, product.key, value)
    constant = found.by_head(weights.constant)
    visible = constant > MASKED
    if not bool((visible == visible[0]).all()):
        raise Refusal("masks that differ between heads; expected the same for all")
    sink = _sink(islands.constants, weights.parameters, constant, visible[0]) if weights.has_sink else None
    if sink is not None:
        constant = constant + sink.value[:, None, None]
    bias, table = _bias(islands.constants, weights.parameters, constant, visible[0])
    attention = islands.layout.make(
        Attention,
        inputs=[found.query, found.key, found.value],
        width=found.n_heads * found.d_value,
        rows=found.query.rows,
        n_heads=found.n_heads,
        n_kv_heads=found.n_kv_heads,
        d_head=found.d_head,
        d_value=found.d_value,
        scale=weights.scale * found.factor,
        mask=_band(visible[0]),
        softcap=weights.softcap,
        bias=bias,
        table=table,
        sink=sink,
        dropout=weights.dropout,
        **islands.where(node),
    )
    return attention, found.entries()


def _sink(constants: Constants, parameters: Sequence[str], constant: Tensor, visible: Tensor) -> Weight:
    """The logits of sinks, one per head, from the scores of zero products relative to them."""
    for name in parameters:
        value = constants.captured.state[name].float().flatten()
        if len(value) == len(constant):
            bias = torch.where(visible, constant + value[:, None, None], 0.0)
            if close(bias + 1.0, torch.ones_like(bias), 1e-5):
                return Weight(value, name, Origin(name, 0))
    raise Refusal("a sink that is no parameter of one number per head; expected one")


def _offsets(queries: int, keys: int) -> Tensor:
    """The position of the key less that of the query."""
    return torch.arange(keys)[None] - torch.arange(queries)[:, None]


def _band(visible: Tensor) -> dict[str, int]:
    """The mask that leaves these keys visible, shape (queries, keys)."""
    offsets = _offsets(*visible.shape)
    low, high = int(offsets[visible].min()), int(offsets[visible].max())
    if not torch.equal(visible, (offsets >= low) & (offsets <= high)):
        raise Refusal("a mask that is no band of positions; expected causal masks, windows or none")
    mask = {"before": -low} if low > int(offsets.min()) else {}
    return mask | ({"after": high} if high < int(offsets.max()) else {})


def _bias(
    constants: Constants, parameters: Sequence[str], constant: Tensor, visible: Tensor
) -> tuple[dict[str, Any] | None, Weight | None]:
    """The position bias of scores, shape (heads, queries, keys): none, ALiBi or T5's table."""
    offsets = _offsets(*visible.shape)
    bias = torch.where(visible, constant, 0.0)
    if float(bias.abs().max()) == 0.0:
        return None, None
    for name in parameters:
        table = constants.captured.state[name]
        if table.dim() == 2 and table.shape[1] == len(bias):
            for max_distance in (128, 64, 256, 32, 512, 20, 1024):
                for both in (False, True):
                    rows = bucket(offsets, len(table), max_distance, both)
                    found = torch.where(visible, table.float()[rows].permute(2, 0, 1), 0.0)
                    factor = float((found * bias).sum() / found.square().sum().clamp_min(1e-30))
                    if close(factor * found, bias, 1e-5):
                        part = {"buckets": len(table), "max_distance": max_distance, "bidirectional": both}
                        is_own = abs(factor - 1.0) < 1e-4
                        value = table.float() if is_own else factor * table.float()
                        return {"relative": part}, Weight(value, name, Origin(name, 0) if is_own else None)
    if visible.shape[0] == visible.shape[1]:
        # Softmax does not depend on the constants that a row has in common.
        bias = torch.where(visible, bias - bias.diagonal(dim1=-2, dim2=-1)[..., None], 0.0)
    distance = offsets.abs() * visible
    slopes = -(bias * distance).flatten(1).sum(-1) / distance.square().sum()
    if close(-slopes[:, None, None] * distance, bias, 1e-4):
        return {"alibi": {"slopes": slopes.tolist()}}, None
    raise Refusal("a bias of scores that is neither ALiBi nor T5's; expected one of these or none")
