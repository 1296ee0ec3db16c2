"""Public codes on which `sigprop.torch.trace` is measured: modules that their authors wrote without knowing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# A module with its arguments. Batch, tokens and width differ, so that no axis is taken for another.
Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

# The tracer keeps two sequences of ids, and cuts those of more than 16 tokens.
BATCH, TOKENS, TARGET_TOKENS = 2, 14, 12
WIDTH, HEADS, BLOCKS, VOCABULARY = 96, 4, 4, 128

CODES: dict[str, Code] = {}


@dataclass(frozen=True)
class Code:
    """A public code, made small."""

    name: str
    # Initialises a module with torch's global generator, as its own code does, and draws its arguments.
    build: Callable[[], Built]
    # The command that makes the code importable.
    install: str
    # The way in which this code differs from the others.
    note: str
    # True for codes that the authors of the tracer have not looked at.
    held_out: bool


def code(install: str, note: str, held_out: bool = False) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Adds a function that builds a module to `CODES`, by the name of the function."""

    def add(build: Callable[[], Built]) -> Callable[[], Built]:
        CODES[build.__name__] = Code(build.__name__, build, install, note, held_out)
        return build

    return add


def pip(*packages: str) -> str:
    """The command that installs packages."""
    return f"pip install {' '.join(packages)}"


def ids(tokens: int = TOKENS) -> Tensor:
    """Random token ids, all equally likely."""
    return torch.randint(VOCABULARY, (BATCH, tokens))


def images(channels: int = 3, size: int = 32) -> Tensor:
    """Images of independent N(0, 1) pixels."""
    return torch.randn(BATCH, channels, size, size)


def vectors(tokens: int = TOKENS) -> Tensor:
    """Tokens of independent N(0, 1) features."""
    return torch.randn(BATCH, tokens, WIDTH)


from . import by_pip  # noqa: E402, F401
