"""Attention heads by the features that they read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._components import PADDING, Component, Refusal, Scale
from ._layout import Given, Layout, Signal


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values. Heads that share keys and values are neighbours."""

    query: Component
    key: Component
    value: Component
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_value: int
    # The factor of scales on queries and keys.
    factor: float
    # For every product of a batch (a head of a sequence): the sequence, and the place of the head among heads.
    sequence: Tensor
    place: Tensor
    length: int
    # The token of every query and key: where tokens were put between others, components have them in another order.
    query_order: Tensor
    key_order: Tensor
    # The axes of the batch.
    lead: tuple[int, ...]

    def entries(self) -> Tensor:
        """Entries of the output, shape (…, tokens, features of a head)."""
        rows = self.sequence[:, None] * self.length + self.query_order
        features = self.place[:, None] * self.d_value + torch.arange(self.d_value)
        entries = rows[..., None] * (self.n_heads * self.d_value) + features[:, None]
        return entries.reshape(*self.lead, self.length, self.d_value)

    def by_head(self, scores: Tensor) -> Tensor:
        """What scores have in common in all sequences, shape (heads, queries, keys)."""
        scores = scores[:, self.query_order.argsort()][:, :, self.key_order.argsort()]
        found = torch.empty(self.n_heads, *scores.shape[1:], dtype=scores.dtype)
        found[self.place] = scores
        if not torch.equal(found[self.place], scores):
            raise Refusal(PADDING)
        return found


def heads(layout: Layout, query: Signal, key: Signal, value: Signal) -> Heads:
    """Finds the heads of signals with entries of shape (…, tokens, features of a head)."""
    one, two, three = (each.entries[..., 0, 0] for each in (query, key, value))
    lead = tuple((one + two + three).shape)
    expanded = ((each, each.entries.expand(*lead, *each.entries.shape[-2:])) for each in (query, key, value))
    query, key, value = (Signal(each.component, entries) for each, entries in expanded)
    (q, q_factor), (k, k_factor) = _without_scale(query), _without_scale(key)
    signals = (q, k, value)
    lists, sequences, orders = zip(*(_lists(layout, signal) for signal in signals))
    sequence = sequences[0]
    if any(not torch.equal(sequence, other) for other in sequences) or not torch.equal(orders[1], orders[2]):
        raise Refusal("queries, keys and values of different sequences; expected the same")
    order = sequence.argsort(stable=True).reshape(layout.sequences, -1)
    of_first = [features[order[0]] for features in lists]
    for features, first in zip(lists, of_first, strict=True):
        if not bool((features[order] == first).all()):
            raise Refusal("heads that differ between sequences; expected the same in all")
    # Scores do not depend on the order of features that queries and keys have in common.
    natural = of_first[0][0].argsort()
    of_first[:2] = [features[:, natural] for features in of_first[:2]]
    pairs = [(*x, -1, *y) for x, y in zip(of_first[1].tolist(), of_first[2].tolist(), strict=True)]
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    group = torch.tensor([numbers[pair] for pair in pairs])
    n_heads, n_kv_heads = len(pairs), len(numbers)
    if bool((torch.bincount(group) != n_heads // n_kv_heads).any()):
        group, n_kv_heads = torch.arange(n_heads), n_heads
    by_group = group.argsort(stable=True)
    shared = by_group[:: n_heads // n_kv_heads]
    place = torch.empty_like(by_group)
    place[by_group] = torch.arange(n_heads)
    places = torch.empty_like(sequence)
    places[order] = place.expand(layout.sequences, -1)
    picked = [
        layout.pick(signal.component, first[chosen].flatten())
        for signal, first, chosen in zip(signals, of_first, (by_group, shared, shared), strict=True)
    ]
    return Heads(
        query=picked[0],
        key=picked[1],
        value=picked[2],
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=of_first[0].shape[1],
        d_value=of_first[2].shape[1],
        factor=q_factor * k_factor,
        sequence=sequence,
        place=places,
        length=query.entries.shape[-2],
        query_order=orders[0],
        key_order=orders[1],
        lead=lead,
    )


def _without_scale(signal: Signal) -> tuple[Signal, float]:
    component: Component = signal.component
    factor = 1.0
    while isinstance(component, Scale) and component.parameter is None:
        factor *= component.factor
        component = component.inputs[0]
    return Signal(component, signal.entries), factor


def _lists(layout: Layout, signal: Signal) -> tuple[Tensor, Tensor, Tensor]:
    """Features and sequence of every product of the batch, shapes (batch, features of a head) and (batch,), and its tokens."""
    if isinstance(signal.component, Given):
        raise Refusal("attention on an input; expected a linear map before it")
    entries = signal.entries.reshape(-1, *signal.entries.shape[-2:])
    row, feature = entries // signal.component.width, entries % signal.component.width
    length = layout.length(signal.component)
    sequence = row[:, 0, 0] // length
    order = row[0, :, 0] % length
    expected = sequence[:, None] * length + order
    if not torch.equal(order.sort().values, torch.arange(length)) or not bool((row == expected[..., None]).all()):
        raise Refusal("attention between groups of tokens (windows, axes, heads as tokens); expected all of a sequence")
    if not bool((feature == feature[:, :1]).all()):
        raise Refusal("heads whose features differ between tokens; expected the same features of all")
    return feature[:, 0], sequence, order
