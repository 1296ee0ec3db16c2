"""Builds stacks and architectures as PyTorch modules."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from .._model import Model
from .._commands import predict
from ._network import Network
from ._trace import Traced


def build(
    model: Model | Traced | None = None,
    scheme: str | None = None,
    generator: torch.Generator | None = None,
    learn_scales: bool = False,
    **flags: Any,
) -> Network:
    """Builds the network that `sigprop.predict` predicts: a module whose parameters are initialised by the scheme.

    >>> network = build(layers=2, width=32, heads=2, vocab=64, seq_len=8, scheme="xavier", causal=True)
    >>> network.blocks[1].attention.heads.query
    Linear(width=32)
    >>> network(*network.sample(batch=4)).shape
    torch.Size([4, 8, 32])

    `sigprop.torch.probe(network, network.sample(batch=4))` measures it.

    Args:
        model: As for `sigprop.predict`, or the stack that `dump_stack` writes, as a dict, or a module as `trace` reads it.
        scheme: As for `sigprop.predict`.
        generator: The generator of the parameters, which are on its device [default: that of torch].
        learn_scales: Make the factor on every residual branch a scalar parameter `<site>.scale`, as in ReZero and SkipInit.
        flags: As for `sigprop.predict`: `layers=48`, `train=True`, `stack="stack.json"`, `head="tied"`.

    Raises:
        ValueError: If the command refuses the arguments.
    """
    device = nullcontext() if generator is None else torch.device(generator.device)
    with device:
        network = Network(whole_stack(model, scheme, flags), learn_scales)
    network.reset_parameters(generator)
    return network


def whole_stack(model: Model | Traced | None, scheme: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The whole stack of a model or of another stack, with every number resolved and checked."""
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "stack.json")
        if isinstance(model, Traced):
            model = model.at_length()
        if isinstance(model, Mapping) and "streams" in model:
            model, flags = None, {**flags, "stack": model}
        predict(model, scheme=scheme, dump_stack=path, theory="mean-field", **flags)
        with open(path) as file:
            stack: dict[str, Any] = json.load(file)
            return stack
