"""The result of a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from .._probe import Moments, Observed, moments_of, sums_of
from .._structure import uncompiled
from ._read import Read
from ._components import Weight
from ._roles import Role
from ._run import Run, first
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

        Args:
            module: A module of the structure that was traced, such as a freshly initialised one [default: the traced one].
            generator: The generator of the gradients [default: that of torch].
            inputs: Tensors with the shapes of the example inputs, to run with in their place.

        Raises:
            ValueError: If the module was too large or without values, so that a copy with fewer blocks was read.
        """
        if not self.is_whole:
            raise ValueError("observe: expected a module that was read whole, got a copy with fewer blocks (see `notes`)")
        state: dict[str, Tensor] = {}
        if module is not None:
            module = uncompiled(module)
            named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
            state = {name: value.detach().cpu() for name, value in named}
            state = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
        return _Measurement(self._read, self._structure).run(state, generator, inputs)


class _Measurement:
    """Sums over the signals and gradients of a run of the captured graph."""

    def __init__(self, read: Read, found: Structure) -> None:
        self._read = read
        places = {site: read.places.get(found.sites[site]) for site in found.stream_sites}
        self._sites = {site: first(place) for site, place in places.items() if place is not None}
        self._end_node = first(read.places[found.end]).node
        self._signals: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._end: Tensor | None = None

    def run(self, state: dict[str, Tensor], generator: torch.Generator | None, inputs: Sequence[Tensor]) -> Observed:
        nodes = {place.node for place in self._sites.values()} | {self._end_node}
        with torch.enable_grad():
            Run(self._read.captured, nodes, self._at, is_wide=False).with_state(state, inputs)
            assert self._end is not None
            seed = torch.randn(self._end.shape, generator=generator)
            self._end.backward(seed)  # type: ignore[no-untyped-call]
        found: dict[str, Moments] = {}
        for site, sums in self._signals.items():
            gradient = self._gradients.get(site)
            found[site] = moments_of(sums.tolist(), None if gradient is None else gradient.tolist())
        return Observed([found])

    def _at(self, node: fx.Node, value: Tensor) -> Tensor:
        if not value.requires_grad:
            # A copy, because a leaf cannot be written to.
            value = value.detach().requires_grad_().clone()
        for site, place in self._sites.items():
            if place.node is node:
                self._measure(site, value, place.order)
        if node is self._end_node:
            self._end = value
        return value

    def _measure(self, site: str, value: Tensor, order: Tensor) -> None:
        def sums(of: Tensor) -> Tensor:
            return sums_of(of.flatten()[order].reshape(self._read.sequences, -1, order.shape[1]))

        def at_gradient(gradient: Tensor) -> None:
            self._gradients[site] = sums(gradient)

        self._signals[site] = sums(value.detach())
        value.register_hook(at_gradient)  # type: ignore[no-untyped-call]
