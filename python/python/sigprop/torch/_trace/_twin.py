"""Twins: copies on the CPU in float32 of modules that cannot run as they are, of large modules with fewer blocks.

A module on the meta device has no values; the code of the module initialises its twin. Blocks have their numbers in both.
"""

from __future__ import annotations

import copy
import math
import os
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from ._blocks import Cut, cuts_of
from ._capture import LOW_PRECISION
from ._components import Refusal
from ._names import joined
from ._weights import rms

# Modules without values that have more entries are copied with fewer blocks.
_WIDE = 50_000_000


@dataclass(frozen=True)
class Twin:
    """A module to run in place of another one: itself, or a copy."""

    module: nn.Module
    cuts: list[Cut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def readable(module: nn.Module) -> Twin:
    """The module itself if it is on the CPU in float32, else a twin that is.

    Raises:
        Refusal: If the module cannot be copied.
    """
    kinds = {type(each).__name__ for each in [*module.modules(), *_tensors(module)]}
    if kinds & {"DTensor", "FullyShardedDataParallel"}:
        raise Refusal("parameters in shards of several processes (FSDP); expected the module before it was sharded")
    is_double = any(parameter.dtype == torch.float64 for parameter in module.parameters())
    if not is_double and all(each.device.type == "cpu" and each.dtype not in LOW_PRECISION for each in _tensors(module)):
        return Twin(module)
    has_values, limit = not any(tensor.is_meta for tensor in _tensors(module)), _largest()
    fits = _bytes(_tensors(module)) <= (limit if has_values else min(limit, 4 * _WIDE))
    cuts = [] if fits else list(cuts_of(module, ""))
    left_out = {id(each) for cut in cuts for number in cut.equal for each in _tensors(_block(module, cut, number))}
    kept = [tensor for tensor in _tensors(module) if id(tensor) not in left_out]
    if _bytes(kept) > limit:
        where = f" with the first blocks of {cuts[0].path or 'the module'}" if cuts else ""
        got = f"{_bytes(kept) / 4e9:.3g} billion entries{where}, which take more than half of the memory in float32"
        raise Refusal(f"a copy of {got}; expected at most {limit / 4e9:.3g} billion: take smaller widths or fewer blocks")
    try:
        twin = _copied(module, cuts, kept)
    except Exception as error:
        raise Refusal(f"a module that cannot be copied to the CPU in float32 ({error}); expected one that is there") from error
    notes = [] if has_values else _initialised(module, twin)
    for cut in cuts:
        if has_values:
            _refuse_other_sizes(module, cut)
        part = f"{cut.count - len(cut.equal)} of the {cut.count} blocks of {cut.path or 'the module'}"
        notes.append(f"read from a copy with {part}, which the others repeat with the same distributions")
    return Twin(twin, cuts, notes)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _bytes(tensors: list[Tensor]) -> int:
    """The size of copies."""
    return 4 * sum(tensor.numel() for tensor in tensors)


def _largest() -> int:
    """Half of the memory of the machine, because a trace holds weights up to twice."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _block(module: nn.Module, cut: Cut, number: int) -> nn.Module:
    return module.get_submodule(joined(cut.path, str(number)))


def _copied(module: nn.Module, cuts: list[Cut], kept: list[Tensor]) -> nn.Module:
    memo: dict[int, Any] = {id(tensor): _on_cpu(tensor) for tensor in kept}
    for cut in cuts:
        container = module.get_submodule(cut.path)
        short = copy.copy(container)
        short._modules = {name: block for name, block in container._modules.items() if int(name) not in cut.equal}
        memo[id(container)] = copy.deepcopy(short, memo)
    return copy.deepcopy(module, memo)


def _on_cpu(tensor: Tensor) -> Tensor:
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    if tensor.is_meta:
        value = torch.full(tensor.shape, _unset(dtype), dtype=dtype, device="cpu")
    else:
        value = tensor.detach().to("cpu", dtype, copy=True)
    return nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


def _unset(dtype: torch.dtype) -> float:
    """A value that no initialisation leaves everywhere."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _initialised(module: nn.Module, twin: nn.Module) -> list[str]:
    """Gives a twin of a module without values those that its code initialises it with, and says how."""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"):
            torch.manual_seed(0)
            method = _initialise(cast(Any, twin))
            missing = _fill(twin)
    except Exception as error:
        text = f"parameters on the meta device that the code of the module does not initialise ({type(error).__name__}: {error})"
        raise Refusal(f"{text}; expected an initialised module") from error
    lost = [name for name, buffer in twin.named_buffers() if module.get_buffer(name).is_meta and _is_unset(buffer)]
    plain = [(path, name, value) for path, inner in twin.named_modules() for name, value in vars(inner).items()]
    lost += [joined(path, name) for path, name, value in plain if isinstance(value, Tensor) and value.is_meta]
    if lost:
        text = f"{lost[0]} on the meta device, whose values only a constructor computes"
        raise Refusal(f"{text}; expected an initialised module, perhaps with fewer blocks")
    notes = [f"parameters on the meta device have no values: a copy was initialised by {method}"]
    if missing:
        listed = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        notes.append(f"no method initialises {listed}: matrices have entries N(0, 1/fan_in), biases are 0, other vectors 1")
    return notes


def _initialise(twin: Any) -> str:
    """Runs the methods that initialise a module, and returns their names in words."""
    for inner in twin.modules():
        # transformers leaves parts with this mark as they are.
        vars(inner).pop("_is_hf_initialized", None)
        reset = getattr(inner, "reset_parameters", None) or getattr(inner, "_reset_parameters", None)
        if callable(reset):
            reset()
    if callable(getattr(twin, "init_weights", None)):
        twin.init_weights()
        return "its init_weights"
    words = "reset_parameters of its parts"
    if callable(getattr(twin, "_init_weights", None)):
        twin.apply(twin._init_weights)
        words += " and its _init_weights"
    return f"{words}, so that initialisations in constructors, such as factors for depth, are missing"


def _is_unset(tensor: Tensor) -> bool:
    unset = tensor.isnan() if tensor.is_floating_point() or tensor.is_complex() else tensor == _unset(tensor.dtype)
    return tensor.numel() > 0 and bool(unset.all())


def _fill(twin: nn.Module) -> list[str]:
    """Initialises parameters that no method does, and returns their names."""
    missing = [(name, parameter) for name, parameter in twin.named_parameters() if _is_unset(parameter)]
    for name, parameter in missing:
        if parameter.dim() > 1:
            parameter.normal_(0.0, parameter[0].numel() ** -0.5)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return [name for name, _ in missing]


def _refuse_other_sizes(module: nn.Module, cut: Cut) -> None:
    """Refuses blocks that are left out if their weights are larger or smaller than those of the blocks in their place."""
    for number, equal in cut.equal.items():
        others = dict(_block(module, cut, equal).named_parameters())
        for name, parameter in _block(module, cut, number).named_parameters():
            got, expected = rms(parameter.detach()), rms(others[name].detach())
            if abs(got - expected) > (6.0 / math.sqrt(parameter.numel()) + 1e-3) * max(got, expected):
                text = f"{joined(cut.path, f'{number}.{name}')} has the root mean square {got:.4g}, in block {equal} {expected:.4g}"
                raise Refusal(f"{text}; expected one distribution, because a copy of all blocks takes half of the memory")
