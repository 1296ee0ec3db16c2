"""Compares a stack with its module for sequences that are longer than those of the trace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._wrappers import uncompiled
from ._capture import is_ids
from ._components import Dropout, Tokens, Weight
from ._structure import Structure
from ._verify import network

# Longer sequences are compared at this length.
LONGEST = 1024
# The largest difference, relative to the largest entry, in f32.
_TOLERANCE = 1e-3


@torch.no_grad()
def holds_at_length(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], found: Structure, has_targets: bool
) -> bool | None:
    """True if the stack is the function of the module at the length of the given ids, as windows of attention decide.

    None if that is not known: for several inputs, with dropout, for outputs after the stream, on other devices.

    Args:
        found: With fixed positions as tables.
        has_targets: One of the inputs is the targets of a loss.
    """
    module = uncompiled(module)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    is_plain = all(each.device.type == "cpu" and each.dtype == torch.float32 for each in module.parameters())
    has_dropout = module.training and any(isinstance(component, Dropout) for component in found.sites.values())
    is_one = len(tensors) == 1 + has_targets and all(is_ids(each) for each in tensors)
    if not is_one or not is_plain or has_dropout or not isinstance(found.sources[0], Tokens):
        return None
    ids = tensors[0][:1, :LONGEST]
    # Logits do not depend on targets.
    args, given = pytree.tree_map_only(Tensor, lambda _: ids, (args, dict(kwargs)))
    if "use_cache" in inspect.signature(module.forward).parameters:
        given.setdefault("use_cache", False)
    values = {name: _whole(weight, module, ids.shape[1]) for name, weight in found.parts.weights.items()}
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


def _whole(weight: Weight, module: nn.Module, tokens: int) -> Tensor:
    """The value of a weight; of a table by position, its rows for this number of tokens."""
    origin = weight.origin
    if origin is None or origin.indices is None or origin.axis != 0 or weight.value.dim() != 2:
        return weight.value
    first, count = origin.indices[0], len(origin.indices)
    parameter = module.get_parameter(origin.parameter)
    is_cut = origin.indices == tuple(range(first, first + count)) and weight.value.shape[0] == count
    return parameter.detach()[first : first + tokens] if is_cut and parameter.shape[1] == weight.value.shape[1] else weight.value
