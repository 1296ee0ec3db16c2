"""The result of a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._network import Network
from .._observed import Moments, Observed, moments_of, sums_of
from .._wrappers import uncompiled
from ._components import Origin, Weight
from ._measure import measured, state_of
from ._places import ModulePlace, places
from ._read import Read
from ._roles import Role
from ._structure import Structure


@dataclass(frozen=True)
class SitePlace:
    """The part of the module that a site is."""

    path: str
    # File, line and text of its code.
    code: str


@dataclass
class Traced:
    """A live module as a stack, the complete input of `sigprop predict --stack`. See `trace`."""

    stack: dict[str, Any]
    # By the name of the site, in the order of the stack. The last one of a stream is where gradients start.
    sites: dict[str, SitePlace]
    # By the name of the tensor in the stack.
    roles: dict[str, Role]
    # The parts of parameters that the tensors of the stack are, with gains and biases of norms, by the name in the stack.
    weights: dict[str, Weight]
    # Facts about the module that limit predictions.
    notes: list[str]
    # True if the module returned the cross-entropy of its logits, for targets.
    has_loss: bool
    _read: Read = field(repr=False)
    _structure: Structure = field(repr=False)
    # The lengths of the given sequences of ids, by the lengths in the stack.
    _lengths: dict[int, int] = field(repr=False)
    # False if a copy with fewer blocks was read.
    is_whole: bool = field(default=True, repr=False)

    def at_length(self, seq_len: int | None = None) -> dict[str, Any]:
        """The stack for sequences of this number of ids [default: as many as the module was given, before they were cut]."""
        stack = {**self.stack, "streams": [{**stream} for stream in self.stack["streams"]]}
        for stream in stack["streams"]:
            if "embedding" in stream["source"]:
                stream["seq_len"] = seq_len or self._lengths.get(stream["seq_len"], stream["seq_len"])
        return stack

    def to_json(self) -> str:
        """The stack, sites, roles and notes as JSON. The stack alone is the attribute `stack`."""
        roles = {}
        for name, role in self.roles.items():
            origin = self.weights[name].origin
            roles[name] = {"role": role.name, "block": role.block, "parameter": origin and origin.parameter}
        sites = {site: {"path": place.path, "code": place.code} for site, place in self.sites.items()}
        return json.dumps({"stack": self.stack, "sites": sites, "roles": roles, "notes": self.notes}, indent=1)

    def observe(
        self, module: nn.Module | None = None, generator: torch.Generator | None = None, inputs: Sequence[Tensor] = ()
    ) -> Observed:
        """Measures one network at the sites of the streams: its signals, and N(0, 1) gradients that are sent back from the end.

        The captured graph runs, so that every site is measured, at the shapes of the trace. See `probe` for other shapes.

        Args:
            module: A module of the structure that was traced, such as a freshly initialised one [default: the traced one].
            generator: The generator of the gradients [default: that of torch].
            inputs: Tensors with the shapes of the example inputs, to run with in their place.

        Raises:
            ValueError: If the module was too large or without values, so that a copy with fewer blocks was read.
        """
        self._require_whole("observe")
        state = self._read.captured.leaves() if module is None else state_of(uncompiled(module))
        run = measured(self._read, self._structure, state, generator, inputs)
        found: dict[str, Moments] = {}
        for site, signal in run.signals.items():
            gradient = run.gradients.get(site)
            found[site] = moments_of(sums_of(signal).tolist(), None if gradient is None else sums_of(gradient).tolist())
        for name, origin in self.gradient_origins().items():
            weight = state[origin.parameter].grad
            if weight is not None:
                # Per sequence, as predictions are.
                square = float(origin.within(weight).double().square().mean()) / self._read.sequences
                found.setdefault(name, {})["weight"] = square
        return Observed([found])

    @property
    def stream_sites(self) -> tuple[str, ...]:
        """The sites of the streams themselves. Gradients start at the last one."""
        return tuple(self._structure.stream_sites)

    @property
    def is_one_sequence(self) -> bool:
        """True if a batch of vectors, shape (batch, features), is one sequence."""
        return self._read.sequences == 1

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs of the captured graph."""
        return [value for value in self._read.captured.inputs.values() if isinstance(value, Tensor)]

    def gradient_origins(self) -> dict[str, Origin]:
        """The places in parameters of the tensors whose gradients are predicted, by name in the stack."""
        told = Network(self.stack).told_tensors()
        return {name: weight.origin for name, weight in self.weights.items() if weight.origin is not None and name in told}

    def values(self, module: nn.Module) -> dict[str, Tensor]:
        """The tensors of the stack that a module holds, on the CPU, by their names in the stack."""
        parameters = dict(module.named_parameters(remove_duplicate=False))
        found: dict[str, Tensor] = {}
        for name, tensor in Network(self.stack).tensors().items():
            weight = self.weights.get(name)
            if weight is None:
                # Norms without gains and biases.
                value = torch.ones_like(tensor) if name.endswith(".gain") else torch.zeros_like(tensor)
            elif weight.origin is None:
                value = weight.value
            else:
                part = weight.origin.within(parameters[weight.origin.parameter])
                # Outputs come before inputs, and experts before outputs.
                value = part.movedim(weight.origin.axis, 1 if weight.value.dim() == 3 else 0)
            # A copy, because some tensors are parts of one.
            found[name] = value.detach().cpu().reshape(tensor.shape).clone(memory_format=torch.contiguous_format)
        return found

    def places(self, module: nn.Module) -> dict[str, ModulePlace]:
        """The inputs and outputs of the module that are sites of the streams, by site."""
        self._require_whole("probe")
        return places(self._read, self._structure, uncompiled(module))

    def _require_whole(self, function: str) -> None:
        if not self.is_whole:
            raise ValueError(f"{function}: expected a module that was read whole, got a copy with fewer blocks (see `notes`)")
