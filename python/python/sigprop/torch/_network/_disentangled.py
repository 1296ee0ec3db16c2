"""Scores of contents with relative positions (DeBERTa)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ._components import Linear, Norm
from ._node import Part, Place, Run, Shape


class Disentangled:
    """Scores of queries with keys of positions, and of queries of positions with keys.

    It has no site of its own, and its parameters are those of the network.
    """

    def __init__(self, part: Part, place: Place) -> None:
        self._part = part
        maps = {name: part[name] for name in ("key", "query") if part.get(name) is not None}
        shape = Shape(2 * part["span"], next(iter(maps.values()))["fan_in"])
        self._table = place.tensor(part["table"], shape.seq_len, shape.width)
        self._norm = None
        if part.get("norm") is not None:
            self._norm = Norm(part["norm"], replace(place, owner=f"{self._table}.norm"), shape)
        self._maps = {name: Linear(of, place, shape) for name, of in maps.items()}

    def scores(self, q: Tensor, k: Tensor, heads: Callable[[str, Tensor], Tensor], run: Run, training: bool) -> Tensor:
        """The scores without their common factor, from queries and keys of all heads. `heads` splits images into heads."""
        embeddings = run[self._table]
        if self._norm is not None:
            embeddings = self._norm.apply_to(embeddings, run)
        embeddings = F.dropout(embeddings, self._part.get("dropout_rate", 0.0), training)[None]
        images = {name: heads(name, map_.apply_to(embeddings, run)) for name, map_ in self._maps.items()}
        distances = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None]).to(q.device)
        index = row(distances, self._part["span"], self._part.get("max_distance")).expand(*q.shape[:2], -1, -1)
        scores = q.new_zeros(())
        if "key" in images:
            scores = scores + (q @ images["key"].transpose(-1, -2)).gather(-1, index)
        if "query" in images:
            scores = scores + (k @ images["query"].transpose(-1, -2)).gather(-1, index.transpose(-1, -2)).transpose(-1, -2)
        return scores


def row(distances: Tensor, span: int, max_distance: int | None) -> Tensor:
    """The row of the table of positions for queries that are `distances` positions behind a key (He et al. 2021).

    >>> row(torch.tensor([-20, -3, -2, 0, 2, 3, 15, 20]), 4, 16).tolist()
    [0, 1, 2, 4, 6, 7, 7, 7]
    """
    offsets = distances
    if max_distance is not None:
        middle = span // 2
        share = (distances.abs().clamp_min(1).double() / middle).log() / math.log((max_distance - 1) / middle)
        far = distances.sign() * ((share * (middle - 1)).ceil().long() + middle)
        offsets = torch.where(distances.abs() > middle, far, distances)
    return (offsets + span).clamp(0, 2 * span - 1)
