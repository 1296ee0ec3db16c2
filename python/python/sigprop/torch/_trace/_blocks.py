"""Equal blocks of modules, of which some stand for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from types import FunctionType
from typing import Any

from torch import nn

from ._names import joined


@dataclass(frozen=True)
class Cut:
    """Blocks that a twin does not have."""

    # The path of their container, and the number of blocks that it has in the module.
    path: str
    count: int
    # By the number of a block, that of an equal block of the twin. Another one is `period` blocks before this.
    equal: dict[int, int]
    period: int


def cuts_of(module: nn.Module, path: str) -> Iterator[Cut]:
    """Equal blocks of the outermost containers that have any. All but the first two of a kind are left out."""
    blocks = list(module.children())
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and list(module._modules) == list(map(str, range(len(blocks)))):
        kinds = [_kind(block) for block in blocks]
        runs = [_run(kinds, period) for period in range(1, len(blocks) // 3 + 1)]
        lengths = [(length // period - 2) * period for period, (_, length) in enumerate(runs, 1)]
        if lengths and max(lengths) > 0 and not _are_tied(blocks):
            period = lengths.index(max(lengths)) + 1
            first = runs[period - 1][0] + 2 * period
            equal = {number: first - period + (number - first) % period for number in range(first, first + max(lengths))}
            yield Cut(path, len(blocks), equal, period)
        if any(_are_equal(kinds, one, other) for one in range(len(kinds)) for other in range(one)):
            return
    for name, child in module.named_children():
        yield from cuts_of(child, joined(path, name))


Kind = list[tuple[str, Any]]
_PLAIN = (bool, int, float, str, Enum, FunctionType, type(None))


def _kind(block: nn.Module) -> Kind:
    """Everything in which blocks differ, except for the values of tensors."""
    found: Kind = []
    for path, inner in block.named_modules():
        found.append((path, type(inner)))
        tensors = chain(inner._parameters.items(), inner._buffers.items())
        found += [(name, None if tensor is None else (tensor.shape, tensor.dtype)) for name, tensor in tensors]
        found += [(name, value) for name, value in vars(inner).items() if isinstance(value, _PLAIN)]
        found += [(name, repr(value)) for name, value in vars(inner).items() if isinstance(value, (tuple, list))]
    return found


def _are_equal(kinds: list[Kind], one: int, other: int) -> bool:
    """True if two blocks differ by their own numbers at most."""
    return len(kinds[one]) == len(kinds[other]) and all(
        name == same and (x == y or (type(x) is int and type(y) is int and x - y == one - other))
        for (name, x), (same, y) in zip(kinds[one], kinds[other], strict=True)
    )


def _run(kinds: list[Kind], period: int) -> tuple[int, int]:
    """Start and length of the longest run of blocks, each of which equals the one a period after it."""
    best, start = (0, 0), 0
    for number in range(len(kinds) - period + 1):
        if number == len(kinds) - period or not _are_equal(kinds, number, number + period):
            best = max(best, (start, number - start + period), key=lambda run: run[1])
            start = number + 1
    return best


def _are_tied(blocks: list[nn.Module]) -> bool:
    tensors = [id(parameter) for block in blocks for parameter in block.parameters()]
    return len(set(tensors)) < len(tensors)
