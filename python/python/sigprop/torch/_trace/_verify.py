"""Compares a stack that has the parameters of the module with the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx

from .._network import Network
from .._network._node import in_heads
from ._components import Component, Rotary, Tokens, Vectors
from ._parts import Part
from ._read import Read, Refused
from ._run import Run
from ._structure import Structure

# Modules with fewer parameters are compared in f64.
_WIDE = 50_000_000
# The largest difference, relative to the largest entry, in f64 and in f32.
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}


@torch.no_grad()
def difference(read: Read, found: Structure) -> Refused | None:
    """The first site of a stream where the stack is another function than the module; None if they are one function.

    Args:
        found: With fixed positions as tables.
    """
    end = [found.logits or found.end]
    components = [found.sites[site] for site in found.stream_sites] + end
    if sum(weight.value.numel() for weight in found.parts.weights.values()) < _WIDE:
        try:
            expected = _of_module(read, components, torch.float64)
            return _compared(read, found, expected, torch.float64)
        except RuntimeError:
            # An operation without f64.
            pass
    return _compared(read, found, _of_module(read, components, torch.float32), torch.float32)


def _of_module(read: Read, components: list[Component], dtype: torch.dtype) -> dict[Component, Tensor]:
    """The values of components in a run of the module, shape (rows, width)."""
    places = {component: read.places[component] for component in components if component in read.places}
    seen: dict[Component, Tensor] = {}

    def at(node: fx.Node, value: Tensor) -> Tensor:
        for component, place in places.items():
            if place.node is node:
                seen[component] = value.flatten()[place.order]
        return value

    run = Run(read.captured, {place.node for place in places.values()}, at, dtype == torch.float64, has_dropout=False)
    run.with_state({})
    return seen


def _compared(read: Read, found: Structure, expected: dict[Component, Tensor], dtype: torch.dtype) -> Refused | None:
    values = {name: weight.value for name, weight in found.parts.weights.items()}
    built = network(found, found.stack, values, dtype)
    assert built is not None, "tensors have the shapes of the stack"
    got: dict[str, Tensor] = {}

    def keep(site: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Tensor) -> None:
            got[site] = output

        return hook

    for site in found.stream_sites:
        built.get_submodule(site).register_forward_hook(keep(site))
    end = built(*(_input(source, read.sequences, dtype) for source in found.sources))
    checked = [(site, found.sites[site], got[site]) for site in found.stream_sites]
    if found.logits is not None:
        checked.append(("the logits", found.logits, built.logits(end)))
    worst = _off(checked[-1][1], checked[-1][2], expected, dtype)
    if worst is None:
        return None
    for site, component, value in checked:
        off = _off(component, value, expected, dtype)
        if off is not None:
            text = f"the stack computes {off[0]:.6g} at {site} where the module computes {off[1]:.6g}; expected one function"
            return Refused(component.path or "(root)", component.code, text)
    return None


def _off(
    component: Component, value: Tensor, expected: dict[Component, Tensor], dtype: torch.dtype
) -> tuple[float, float] | None:
    """Both values of the entry that differs most; None if the difference is rounding, or the value of the module unknown."""
    if component not in expected:
        return None
    want = expected[component]
    value = value.reshape(want.shape)
    differences = (value - want).abs()
    largest = float(want.abs().max())
    if bool((differences <= _TOLERANCE[dtype] * largest).all()):
        return None
    entry = int(differences.nan_to_num(torch.inf).argmax())
    return float(value.flatten()[entry]), float(want.flatten()[entry])


def network(found: Structure, stack: Part, values: Mapping[str, Tensor], dtype: torch.dtype) -> Network | None:
    """The stack as a module, with the parameters of the traced one; None if a value has another shape."""
    built = Network(stack).to(dtype).eval()
    for name, parameter in built.tensors().items():
        if name not in values:
            # Norms without gains and biases.
            parameter.fill_(1.0 if name.endswith(".gain") else 0.0)
        elif values[name].numel() == parameter.numel():
            parameter.copy_(values[name].reshape(parameter.shape))
        else:
            return None
    for site, component in found.sites.items():
        if isinstance(component, Rotary):
            _reorder(built.get_submodule(site), component)
    for (site, branch), gains in found.parts.gains_of.items():
        module, gains = built.get_submodule(site), gains.to(dtype)
        # Stacks have one number for all features.
        if branch is None:
            cast(Any, module)._factor *= gains
        else:
            cast(Any, module)._scales[branch] *= gains
    return built


def _reorder(module: torch.nn.Module, rotary: Rotary) -> None:
    """Makes a rotation act on features in the order that the traced module has."""
    order = torch.tensor(rotary.order)

    def move(x: Tensor, to: Tensor) -> Tensor:
        return in_heads(x, x.shape[-1] // rotary.d_head)[..., to].flatten(-2)

    module.register_forward_pre_hook(lambda _, args: (move(args[0], order), *args[1:]))
    module.register_forward_hook(lambda _, args, output: move(output, order.argsort()))


def _input(source: Component, sequences: int, dtype: torch.dtype) -> Tensor:
    if isinstance(source, Tokens):
        return source.ids
    assert isinstance(source, Vectors)
    return source.value.reshape(sequences, -1, source.width).to(dtype)
