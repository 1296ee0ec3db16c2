"""The modules whose inputs or outputs are the sites of the streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ._measure import Measured, measured, state_of
from ._read import Read
from ._structure import Structure
from ._twin import readable

# The largest difference, relative to the largest entry, in f32.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class ModulePlace:
    """A tensor among the inputs or outputs of a module."""

    path: str
    is_input: bool
    # Its number among the tensors.
    number: int


@dataclass(eq=False)
class _Seen:
    """A tensor that a module was given or returned."""

    place: ModulePlace
    tensor: Tensor
    # A copy, because later operations may write to the tensor.
    value: Tensor
    gradient: Tensor | None = None


def places(read: Read, found: Structure, module: nn.Module) -> dict[str, ModulePlace]:
    """The inputs and outputs of modules that have the values and the gradients of sites, by site.

    The module and the captured graph run on the example inputs. Sites inside the code of one module, such as sums that no module
    returns, have no place, and neither have those of modules that run several times.
    """
    module = readable(module).module
    state = state_of(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        of_graph = measured(read, found, state, torch.Generator().manual_seed(0))
        torch.manual_seed(0)
        seen = _seen(read, module, state)
    end = found.stream_sites[-1]
    ends = [each for each in seen if _is_at(each.value, of_graph.signals[end])]
    if not ends or not ends[0].tensor.requires_grad:
        return {}
    tensor = ends[0].tensor
    _send_back(tensor, torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)), seen)
    known = {site: next((each.place for each in seen if _is_site(each, site, of_graph)), None) for site in found.stream_sites}
    return {site: place for site, place in known.items() if place is not None}


def _is_site(seen: _Seen, site: str, of_graph: Measured) -> bool:
    if site not in of_graph.signals or not _is_at(seen.value, of_graph.signals[site]):
        return False
    gradient = of_graph.gradients.get(site)
    return gradient is not None and seen.gradient is not None and _is_at(seen.gradient, gradient)


def _is_at(value: Tensor, expected: Tensor) -> bool:
    """True for values of shape (sequences, tokens, features), of which vectors (batch, features) have one of the first two."""
    if value.dim() == 2:
        value = value[None] if expected.shape[0] == 1 else value[:, None]
    return value.shape == expected.shape and bool(
        ((value - expected).abs() <= _TOLERANCE * expected.abs().max()).all()
    )


def _send_back(end: Tensor, seed: Tensor, seen: list[_Seen]) -> None:
    def keep(one: _Seen) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            one.gradient = gradient.detach().clone()

        return hook

    for one in seen:
        if one.tensor.requires_grad:
            one.tensor.register_hook(keep(one))  # type: ignore[no-untyped-call]
    end.backward(seed)  # type: ignore[no-untyped-call]


def _seen(read: Read, module: nn.Module, state: dict[str, Tensor]) -> list[_Seen]:
    """All inputs and outputs of modules in a run on the example inputs, those of outer modules first."""
    captured = read.captured
    leaves = [_with_gradients(leaf) for leaf in captured.inputs.values()]
    args, kwargs = pytree.tree_unflatten(leaves, captured.spec)
    seen: list[_Seen] = []
    calls: Counter[str] = Counter()
    hooks = []
    for path, inner in module.named_modules():
        hooks.append(inner.register_forward_pre_hook(_keep_inputs(path, seen, calls), with_kwargs=True))
        hooks.append(inner.register_forward_hook(_keep_outputs(path, seen)))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.enable_grad():
            torch.func.functional_call(module, state, args, kwargs, tie_weights=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for hook in hooks:
            hook.remove()
    return [one for one in seen if calls[one.place.path] == 1]


def _with_gradients(leaf: Any) -> Any:
    is_signal = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return leaf.detach().clone().requires_grad_() if is_signal else leaf


def _keep_inputs(path: str, seen: list[_Seen], calls: Counter[str]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
        calls[path] += 1
        seen.extend(_each((args, kwargs), path, is_input=True))

    return hook


def _keep_outputs(path: str, seen: list[_Seen]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        seen.extend(_each(output, path, is_input=False))

    return hook


def _each(values: Any, path: str, is_input: bool) -> list[_Seen]:
    return [
        _Seen(ModulePlace(path, is_input, number), tensor, tensor.detach().clone())
        for number, tensor in enumerate(tensors_of(values))
        if tensor.is_floating_point()
    ]


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors among arguments or results of a module."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
