"""Compares a stack with its module for sequences that are longer than those of the trace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ._capture import is_ids
from ._components import DropPath, Dropout, Tokens, Weight
from ._structure import Structure
from ._verify import network

# Longer sequences are compared at this length.
LONGEST = 1024
# The largest difference, relative to the largest entry, in f32.
_TOLERANCE = 1e-3


@torch.no_grad()
def holds_at_length(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], found: Structure) -> bool | None:
    """True if the stack is the function of the module at the length of the given ids, as windows of attention decide.

    None if that is not known: for several streams, with dropout, for outputs after the stream.

    Args:
        found: With fixed positions as tables.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    has_dropout = module.training and any(isinstance(component, (Dropout, DropPath)) for component in found.sites.values())
    source = found.sources[0]
    if not all(map(is_ids, tensors)) or has_dropout or not isinstance(source, Tokens):
        return None
    args, given = pytree.tree_map_only(Tensor, lambda leaf: leaf[:1, :LONGEST].cpu(), (args, dict(kwargs)))
    ids = next((leaf.cpu() for leaf in tensors if len(tensors) == 1 or _begins(leaf.cpu(), source.ids)), None)
    if ids is None:
        return None
    ids = ids[:1, :LONGEST]
    if "use_cache" in inspect.signature(module.forward).parameters:
        given.setdefault("use_cache", False)
    traced = found.stack["streams"][0]["seq_len"]
    values = {name: _whole(weight, module, traced, ids.shape[1]) for name, weight in found.parts.weights.items()}
    try:
        outputs = pytree.tree_leaves(module(*args, **given))
    except Exception:
        # Code that needs the whole sequence.
        return None
    expected = next((leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.dim() >= 2), None)
    stream = {**found.stack["streams"][0], "seq_len": ids.shape[1]}
    built = network(found, {**found.stack, "streams": [stream]}, values, torch.float32)
    if expected is None or len(found.stack["streams"]) > 1 or built is None:
        return None
    end = built(ids)
    got = end if found.logits is None else built.logits(end)
    if got.shape != expected.shape:
        return None
    return bool((got - expected).abs().max() <= _TOLERANCE * expected.abs().max())


def _begins(given: Tensor, ids: Tensor) -> bool:
    """True if a tensor has these ids at its beginning."""
    return given.dtype == ids.dtype and torch.equal(given[:1, : ids.shape[1]], ids[:1])


def _whole(weight: Weight, module: nn.Module, traced: int, tokens: int) -> Tensor:
    """The value of a weight; of a table by position, which has as many rows as traced tokens, its rows for more tokens."""
    origin = weight.origin
    if origin is None or origin.indices is None or origin.axis != 0 or len(origin.indices) != traced:
        return weight.value
    first = origin.indices[0]
    parameter = module.get_parameter(origin.parameter)
    is_cut = origin.indices == tuple(range(first, first + traced)) and weight.value.shape == (traced, *parameter.shape[1:])
    return parameter.detach()[first : first + tokens] if is_cut else weight.value
