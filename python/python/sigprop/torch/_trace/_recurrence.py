"""Linear recurrences that are written as products of queries and keys, with a mask of decays and without a softmax."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from ._components import Recurrence, Refusal
from ._heads import heads
from ._islands import Islands
from ._layout import Signal
from ._step import close

_EXPECTED = "expected a softmax, or a linear recurrence: scale · e^(−rate · distance) for the query itself and keys before it, zero else"


def recurrence(islands: Islands, node: fx.Node, weights: fx.Node, value: Signal) -> tuple[Recurrence, Tensor]:
    """The product of weights that are linear in the scores with values, and its entries, shape (…, tokens, features)."""
    anchor = islands.base[weights]
    scores, shape, nodes = islands.scores[anchor], anchor.meta["val"].shape, islands.between(anchor, weights)
    sample = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    factors, replayed = islands.replay(anchor, nodes, torch.ones(shape)), islands.replay(anchor, nodes, sample)
    is_linear = factors.shape == shape and close(replayed, factors * sample)
    if not is_linear or scores.added is not None:
        raise Refusal(f"scores without a softmax that are more than multiplied by numbers; {_EXPECTED}")
    found = heads(islands.layout, scores.query, scores.key, value)
    decays = found.by_head(factors.reshape(-1, *shape[-2:]))
    length = decays.shape[-1]
    if decays.shape[-2] != length or length < 3 or found.n_kv_heads != found.n_heads:
        raise Refusal("linear attention to another sequence, of less than three tokens, or with values that heads share; expected neither")
    scale, rates = float(decays[0, 0, 0]), (decays[:, 0, 0] / decays[:, 1, 0]).log()
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    expected = scale * torch.exp(-rates[:, None, None] * distance.clamp_min(0)) * (distance >= 0)
    if not bool(rates.isfinite().all()) or not close(decays, expected, 1e-5):
        raise Refusal(f"scores without a softmax, times a mask that is no decay; {_EXPECTED}")
    made = islands.layout.make(
        Recurrence,
        inputs=[found.query, found.key, found.value],
        width=found.n_heads * found.d_value,
        rows=found.query.rows,
        n_heads=found.n_heads,
        d_key=found.d_head,
        d_value=found.d_value,
        scale=scale * scores.alpha * found.factor,
        rates=_exact(rates, length),
        **islands.where(node),
    )
    return made, found.entries()


def _exact(rates: Tensor, length: int) -> list[float]:
    """Rates without rounding errors: those of no decay are zero."""
    return [0.0 if abs(rate) * length < 1e-5 else rate for rate in rates.double().tolist()]
