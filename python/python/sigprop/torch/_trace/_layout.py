"""Where the entries of a component are, and components with a part of the features of others."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, fx

from ._components import (
    Activation,
    Attention,
    Component,
    Concat,
    DropPath,
    Dropout,
    Gains,
    Linear,
    Norm,
    Positions,
    Product,
    Recurrence,
    Refusal,
    Rotary,
    Scale,
    Shift,
    Sum,
    Vectors,
    Weight,
)
from ._constants import rows_of

AnyComponent = TypeVar("AnyComponent", bound=Component)
# Weights with more entries than this are equal if their names are.
_COMPARED = 100_000


@dataclass(eq=False, kw_only=True)
class Given(Component):
    """A tensor that the module was given, before it is known which axis has its features."""

    value: Tensor
    node: fx.Node
    # The axis along which sequences are.
    batch_axis: int


@dataclass(frozen=True)
class Signal:
    """The value of a node: entries of a component."""

    component: Component
    # For every entry of the node: row · width + feature.
    entries: Tensor


@dataclass(frozen=True)
class Place:
    """Where the entries of a component are in a run of the graph."""

    node: fx.Node
    # Indices into the flattened value of the node, shape (rows, width).
    order: Tensor


class Layout:
    """All components of a module. Equal operations on equal inputs are one component."""

    def __init__(self, sequences: int, first: fx.Node | None) -> None:
        # The number of sequences in the example input, and the first input.
        self.sequences, self._first = sequences, first
        self.places: dict[Component, Place] = {}
        self._made: dict[Any, Component] = {}
        self._parts: dict[tuple[Component, bytes], Component] = {}

    def make(self, kind: type[AnyComponent], /, **values: Any) -> AnyComponent:
        """A component, or the one made before that is equal to it."""
        new = kind(**values)
        if isinstance(new, (Dropout, DropPath)) or (isinstance(new, Attention) and new.dropout):
            return new
        described = [each.name for each in fields(new) if each.name not in ("inputs", "path", "code")]
        key = (kind, tuple(map(id, new.inputs)), *(_key(getattr(new, name)) for name in described))
        made = self._made.setdefault(key, new)
        assert isinstance(made, kind)
        return made

    def place(self, node: fx.Node, signal: Signal) -> None:
        """Remembers where a component is, if the node has exactly its entries."""
        component, entries = signal.component, signal.entries
        if component in self.places or entries.numel() != component.rows * component.width:
            return
        order = torch.full((entries.numel(),), -1)
        order[entries.flatten()] = torch.arange(entries.numel())
        if bool((order >= 0).all()):
            self.places[component] = Place(node, order.reshape(component.rows, component.width))

    def length(self, component: Component) -> int:
        """The number of tokens of a sequence."""
        return component.rows // self.sequences

    def tokens(self, signal: Signal) -> tuple[Component, Tensor]:
        """The component with the features along the last axis, in this order, and the row of each token."""
        component, rows, order = self.permuted_tokens(signal)
        if order is not None:
            raise Refusal(f"features in another order after {type(component).__name__.lower()}; expected a linear map to read them")
        return component, rows

    def permuted_tokens(self, signal: Signal) -> tuple[Component, Tensor, Tensor | None]:
        """A component, the row of each token, and the features along the last axis; None if these are all in order."""
        component, entries = signal.component, signal.entries
        if isinstance(component, Given):
            return *self._vectors(component, entries), None
        row, feature = entries // component.width, entries % component.width
        if not bool((row == row[..., :1]).all()):
            raise Refusal("a map over tokens; expected a map over the features of each token")
        features = feature.reshape(-1, feature.shape[-1])
        if not bool((features == features[0]).all()):
            raise Refusal("different features of different tokens; expected the same of all")
        rows = row[..., 0]
        if rows.numel() != component.rows or len(set(rows.flatten().tolist())) != component.rows:
            raise Refusal(f"{rows.numel()} tokens chosen from {component.rows}; expected all")
        if isinstance(component, (Attention, Recurrence)) and torch.equal(features[0].sort().values, torch.arange(component.width)):
            # Heads in another order.
            is_same = torch.equal(features[0], torch.arange(component.width))
            return component, rows, None if is_same else features[0]
        return self.pick(component, features[0]), rows, None

    def _vectors(self, given: Given, entries: Tensor) -> tuple[Component, Tensor]:
        if entries.dim() < 2:
            raise Refusal("an input that is no sequence of vectors (a time or a label); expected ids or vectors of tokens")
        order = entries.reshape(-1, entries.shape[-1])
        if given.node is self._first and entries.dim() == 2 and (given.value.dim() == 2 or len(order) == self.sequences):
            # Samples of a batch are the tokens of one sequence.
            self.sequences = 1
        else:
            apart = math.prod(given.value.shape[given.batch_axis + 1 :])
            sequence = order[:, 0] // apart % self.sequences
            order = order[(sequence * given.value.numel() + order[:, 0]).argsort()]
        number = torch.empty(given.value.numel(), dtype=torch.long)
        number[order[:, 0]] = torch.arange(len(order))
        vectors = self.make(Vectors, width=order.shape[1], rows=len(order), value=given.value.flatten()[order])
        self.places.setdefault(vectors, Place(given.node, order))
        return vectors, number[entries[..., 0]]

    def narrow(self, signal: Signal) -> Signal:
        """The component with only those features that the node has, in their order."""
        component, entries = signal.component, signal.entries
        feature = entries % component.width
        used = torch.zeros(component.width, dtype=torch.bool)
        used[feature.flatten()] = True
        if bool(used.all()):
            return signal
        features = used.nonzero().flatten()
        return self._renumbered(signal, features)

    def aligned(self, signal: Signal) -> Signal:
        """The component whose features are in groups as they are along the last axis of the node."""
        component, entries = signal.component, signal.entries
        row, feature = entries // component.width, entries % component.width
        if not bool((row == row[..., :1]).all()):
            raise Refusal("an operation over tokens; expected one over the features of each token")
        groups = torch.tensor(sorted(set(map(tuple, feature.reshape(-1, feature.shape[-1]).tolist()))))
        if int(torch.bincount(groups.flatten()).max()) > 1:
            raise Refusal("groups of features that overlap; expected features of heads")
        if torch.equal(groups.flatten(), torch.arange(component.width)):
            return signal
        return self._renumbered(signal, groups.flatten())

    def _renumbered(self, signal: Signal, features: Tensor) -> Signal:
        component, entries = signal.component, signal.entries
        number = torch.full((component.width,), -1)
        number[features] = torch.arange(len(features))
        part = self.pick(component, features)
        return Signal(part, entries // component.width * len(features) + number[entries % component.width])

    def pick(self, component: Component, features: Tensor) -> Component:
        """The component with these features only, in this order: rows of the weights of the maps before it."""
        if torch.equal(features, torch.arange(component.width)):
            return component
        key = (component, features.numpy().tobytes())
        if key not in self._parts:
            part = self._parts[key] = self._picked(component, features)
            if component in self.places:
                place = self.places[component]
                self.places.setdefault(part, Place(place.node, place.order[:, features]))
        return self._parts[key]

    def _picked(self, component: Component, features: Tensor) -> Component:
        width = len(features)
        changes: dict[str, Any] = {"width": width}
        if isinstance(component, Linear):
            changes["weight"] = rows_of(component.weight, features)
            changes["bias"] = None if component.bias is None else rows_of(component.bias, features)
            return replace(component, **changes)
        if isinstance(component, Norm):
            per_group = component.width // component.groups
            order = _order(features, per_group)
            if order is None:
                raise Refusal("a part of the features of a norm; expected all of them")
            changes["groups"] = width // per_group
            changes["gain"], changes["bias"] = (each and rows_of(each, order) for each in (component.gain, component.bias))
        elif isinstance(component, Rotary):
            order = _order(features, component.d_head)
            if order is None:
                raise Refusal("a part of rotated features; expected whole heads")
            changes["order"] = order.argsort()[torch.tensor(component.order)].tolist()
        elif isinstance(component, Concat):
            return self._picked_parts(component, features)
        elif isinstance(component, Gains):
            changes["gain"] = rows_of(component.gain, features)
        elif isinstance(component, Shift):
            changes["vector"] = rows_of(component.vector, features)
        elif isinstance(component, Positions):
            changes["table"] = Weight(component.table.value[:, features], component.table.name, None)
        elif not isinstance(component, (Activation, Scale, Dropout, DropPath, Product, Sum)):
            name = type(component).__name__.lower()
            raise Refusal(f"{width} of {component.width} features after {name}; expected all, in their order")
        changes["inputs"] = [self.pick(each, features) for each in component.inputs]
        return replace(component, **changes)


    def _picked_parts(self, concat: Concat, features: Tensor) -> Component:
        """Features of components side by side, in every head those of the same components."""
        starts = torch.tensor([0, *(each.width for each in concat.inputs)]).cumsum(0)
        source = torch.bucketize(features, starts[1:], right=True)
        count = len(set(source.tolist()))
        first = [0, *((source[1:] != source[:-1]).nonzero().flatten() + 1).tolist()]
        runs = torch.tensor_split(features - starts[source], torch.tensor(first[1:], dtype=torch.long))
        order, lengths = source[first].tolist(), [len(run) for run in runs]
        n_heads = len(runs) // count
        if concat.n_heads > 1 or (order, lengths) != (order[:count] * n_heads, lengths[:count] * n_heads):
            raise Refusal("features of several signals in different orders in each head; expected one order in all")
        inputs, shared = [], []
        for number in range(count):
            heads = torch.stack(runs[number::count])
            shared.append(n_heads > 1 and bool((heads == heads[0]).all()))
            inputs.append(self.pick(concat.inputs[order[number]], heads[0] if shared[-1] else heads.flatten()))
        return inputs[0] if count == 1 else replace(concat, inputs=inputs, width=len(features), n_heads=n_heads, shared=shared)


def _order(features: Tensor, size: int) -> Tensor | None:
    """The order in groups of this size, if features are whole groups with one order."""
    if len(features) % size:
        return None
    group, place = (features // size).reshape(-1, size), (features % size).reshape(-1, size)
    is_whole = bool((group == group[:, :1]).all() & (place == place[0]).all()) and len(set(place[0].tolist())) == size
    return place[0] if is_whole else None


def entries_of(rows: Tensor, width: int) -> Tensor:
    """Entries of a node with these rows that has all features along its last axis."""
    return rows[..., None] * width + torch.arange(width)


def ordered(end: Component) -> Iterable[Component]:
    """All components before the end and itself, inputs first."""
    seen: set[Component] = set()
    waiting: list[tuple[Component, bool]] = [(end, False)]
    while waiting:
        component, is_done = waiting.pop()
        if is_done:
            yield component
        elif component not in seen:
            seen.add(component)
            waiting.append((component, True))
            waiting += [(each, False) for each in component.inputs]


def _key(value: Any) -> Any:
    if isinstance(value, Weight):
        return (value.name, *(_key(value.value) if value.value.numel() <= _COMPARED else tuple(value.value.shape)))
    if isinstance(value, Tensor):
        return tuple(value.shape), value.contiguous().numpy().tobytes()
    return repr(value)
