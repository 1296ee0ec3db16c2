"""The tasks that networks are trained on: the next byte of a text, or the class of a vector."""

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
    """Batches and the loss on them. A network has learned if its loss is below `target`."""

    @property
    def target(self) -> float: ...

    def loss(self, network: Network, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class NextByte:
    """The next byte of a text, the source of a Python module. With frequencies alone, the loss is the entropy of single bytes."""

    text: Tensor
    seq_len: int
    target: float

    @classmethod
    def of(cls, seq_len: int) -> NextByte:
        text = torch.tensor(list(inspect.getsource(_text).encode("ascii", "replace")))
        counts = torch.bincount(text).double()
        shares = counts[counts > 0] / counts.sum()
        costs = -shares.log()
        entropy = (shares * costs).sum()
        # Three standard errors of ten batches below it.
        spread = (shares * (costs - entropy).square()).sum().sqrt()
        return cls(text, seq_len, float(entropy - 3.0 * spread / math.sqrt(10 * BATCH * seq_len)))

    def windows(self, length: int, generator: torch.Generator) -> Tensor:
        """Random windows of the text, shape (batch, length)."""
        starts = torch.randint(len(self.text) - length + 1, (BATCH,), generator=generator)
        return torch.stack([self.text[start : start + length] for start in starts.tolist()])

    def loss(self, network: Network, generator: torch.Generator) -> Tensor:
        windows = self.windows(self.seq_len + 1, generator).to(next(network.parameters()).device)
        return _cross_entropy(network, (windows[:, :-1],), windows[:, 1:])


@dataclass(frozen=True)
class Continuation:
    """The text after the window that an encoder reads, byte by byte."""

    text: NextByte

    @property
    def target(self) -> float:
        return self.text.target

    def loss(self, network: Network, generator: torch.Generator) -> Tensor:
        read = self.text.seq_len
        windows = self.text.windows(2 * read + 1, generator).to(next(network.parameters()).device)
        return _cross_entropy(network, (windows[:, :read], windows[:, read:-1]), windows[:, read + 1 :])


@dataclass(frozen=True)
class Classes:
    """The index of the fixed direction along which a Gaussian vector has its largest component."""

    directions: Tensor
    # Nine tenths of the loss of guessing.
    target: float = 0.9 * math.log(CLASSES)

    @classmethod
    def of(cls, width: int) -> Classes:
        return cls(torch.randn(width, CLASSES, generator=torch.Generator().manual_seed(1)))

    def loss(self, network: Network, generator: torch.Generator) -> Tensor:
        vectors = torch.randn(1, VECTORS, len(self.directions), generator=generator)
        device = next(network.parameters()).device
        return _cross_entropy(network, (vectors.to(device),), (vectors @ self.directions).argmax(-1).to(device))


def _cross_entropy(network: Network, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    logits = network.logits(network(*inputs))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
