"""What networks are trained on: the next byte of a text, or the class of a vector."""

from __future__ import annotations

import argparse as _text
import inspect
import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..torch import Network

BATCH = 16
VECTORS = 256
CLASSES = 8


class Task(Protocol):
    """Batches, the loss on them, and what the loss is below which something was learned."""

    @property
    def target(self) -> float: ...

    def loss(self, network: Network, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class NextByte:
    """The next byte of a text, the source of a module of Python; below the entropy of single bytes more is known."""

    text: Tensor
    seq_len: int
    target: float

    @classmethod
    def of(cls, seq_len: int) -> NextByte:
        text = torch.tensor(list(inspect.getsource(_text).encode("ascii", "replace")))
        counts = torch.bincount(text).double()
        shares = counts[counts > 0] / counts.sum()
        return cls(text, seq_len, float(-(shares * shares.log()).sum()))

    def loss(self, network: Network, generator: torch.Generator) -> Tensor:
        starts = torch.randint(len(self.text) - self.seq_len, (BATCH,), generator=generator)
        windows = torch.stack([self.text[start : start + self.seq_len + 1] for start in starts.tolist()])
        device = next(network.parameters()).device
        return _cross_entropy(network, windows[:, :-1].to(device), windows[:, 1:].to(device))


@dataclass(frozen=True)
class Classes:
    """Which of several fixed directions a Gaussian vector has most of; half of what guessing costs is learned."""

    directions: Tensor
    target: float = 0.5 * math.log(CLASSES)

    @classmethod
    def of(cls, width: int) -> Classes:
        return cls(torch.randn(width, CLASSES, generator=torch.Generator().manual_seed(1)))

    def loss(self, network: Network, generator: torch.Generator) -> Tensor:
        vectors = torch.randn(1, VECTORS, len(self.directions), generator=generator)
        device = next(network.parameters()).device
        return _cross_entropy(network, vectors.to(device), (vectors @ self.directions).argmax(-1).to(device))


def _cross_entropy(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = network.logits(network(inputs))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
