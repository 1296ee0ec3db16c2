"""Values that do not depend on the inputs, and the parameters that they are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx

from ._capture import Captured, table_of
from ._components import Origin, Weight

# Scores below this are masked.
MASKED = -1e4
# Operations that move, repeat or drop entries and compute nothing.
MOVEMENT = frozenset(
    """view reshape _unsafe_view transpose permute t slice select split split_with_sizes chunk unbind getitem unsqueeze
    squeeze expand expand_as repeat repeat_interleave flatten unflatten contiguous clone detach alias cat stack to
    _to_copy type_as roll flip movedim swapaxes swapdims index_select view_as numpy_T mT lift_fresh_copy detach_ index
    narrow float pad constant_pad_nd view_as_complex view_as_real slice_scatter select_scatter copy unsafe_chunk
    unsafe_split squeeze_ gather concat concatenate moveaxis reshape_as tensor_split ravel hstack vstack
    dropout_of_nothing""".split()
)
# Operations after which all entries are those of one value before.
_CHOICES = (MOVEMENT | {"embedding"}) - {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "pad", "constant_pad_nd"}
# The position of the argument of which only shape and type matter.
_SHAPE_ONLY = dict.fromkeys("type_as expand_as view_as reshape_as".split(), 1) | dict.fromkeys(
    """copy zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty
    new_empty_strided sym_size size""".split(),
    0,
)
# Operations whose value is another in every run, and those of them that are functions of uniform numbers on [0, 1).
_RANDOM = frozenset(
    """rand rand_like uniform uniform_ bernoulli bernoulli_ randn randn_like normal normal_ randint randint_like randperm
    exponential_ random_ multinomial poisson binomial""".split()
)
_UNIFORM = frozenset(("rand", "rand_like", "bernoulli", "bernoulli_"))
# Operations whose entries are whatever memory holds, until others are written to them.
_EMPTY = ("empty", "empty_like", "new_empty", "new_empty_strided")
_ASSERTIONS = frozenset(("_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size"))


def operation(node: fx.Node) -> str:
    """The name of the operation of a node: "linear", "layer_norm", "dropout_of_nothing" and "running_batch_norm" in evaluation."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return str(getattr(node.target, "__name__", None) or getattr(node.target, "_name", node.target))
    name = node.target._schema.name.split("::")[1]
    if name == "einsum" and isinstance(node.args[1], Sequence) and len(node.args[1]) == 1:
        return "permute"
    if name.rstrip("_") in ("dropout", "feature_dropout", "alpha_dropout") and not (node.args[2] and node.args[1]):
        return "dropout_of_nothing"
    return "running_batch_norm" if name == "batch_norm" and not node.args[5] else name


def pieces(node: fx.Node) -> list[fx.Node]:
    """The nodes that one node has side by side along its last axis; none if it is something else."""
    shape, args = node.meta["val"].shape, cast(Any, node.args)
    last = len(shape) - 1
    if operation(node) in ("cat", "concat", "concatenate"):
        return [*args[0]] if (args[1:] or [0])[0] in (-1, last) else []
    found: list[fx.Node] = []
    end = shape[-1]
    while operation(node) == "slice_scatter" and end:
        base, piece, dim, start, stop = (*cast(Any, node.args), 0, 0, None, None)[:5]
        if dim != last or min(shape[-1] if stop is None else stop, shape[-1]) != end:
            return []
        found, end, node = [piece, *found], start or 0, base
    return [] if end else found


def operands(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node computes with, not those of which only the shape matters."""
    place = _SHAPE_ONLY.get(operation(node)) if node.op == "call_function" else None
    if place is None:
        return node.all_input_nodes
    return [arg for index, arg in enumerate(node.args) if isinstance(arg, fx.Node) and index != place]


def evaluate(node: fx.Node, values: Callable[[fx.Node], Any], uniform: float = 0.5) -> Any:
    """The value of a node, given those of its operands. Dropout does nothing. All random numbers are one, uniform on [0, 1)."""
    name = operation(node)
    if name in _ASSERTIONS:
        return None
    place = _SHAPE_ONLY.get(name)

    def shape(inner: fx.Node) -> Any:
        described = inner.meta["val"]
        return torch.empty((), dtype=described.dtype).expand(described.shape)

    if name in _EMPTY:
        described = node.meta["val"]
        return torch.zeros(described.shape, dtype=described.dtype)
    args: Any = tuple(fx.node.map_arg(arg, shape if index == place else values) for index, arg in enumerate(node.args))
    kwargs: Any = fx.node.map_arg(node.kwargs, values)
    if name in ("dropout", "dropout_", "dropout_of_nothing"):
        return args[0]
    if name in _RANDOM:
        return _drawn(node, args, uniform)
    if name in ("view", "_unsafe_view"):
        # Test tensors have other strides.
        return torch.reshape(args[0], args[1])
    if name == "type_as" and not args[0].is_floating_point() and args[0].dtype != torch.bool:
        return args[0]
    if name.endswith("_") and not name.startswith("__") and isinstance(args[0], Tensor):
        args = (args[0].clone(), *args[1:])
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _drawn(node: fx.Node, args: Any, uniform: float) -> Tensor:
    name, described = operation(node), node.meta["val"]
    drawn = torch.full(described.shape, uniform)
    if name.startswith("bernoulli"):
        drawn = drawn < (args[1] if len(args) > 1 else args[0] if name == "bernoulli" else 0.5)
    return drawn.to(described.dtype)


@dataclass(frozen=True)
class Mask:
    """A random value that is zero with a probability, and one number else. Its entries are independent."""

    rate: float
    mean: float
    shape: tuple[int, ...]


class Constants:
    """The values of nodes that do not depend on the inputs, and of functions of token ids."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.values: dict[fx.Node, Any] = {}
        # Names of the parameters that values are computed from.
        self.parameters: dict[fx.Node, tuple[str, ...]] = {}
        # Values of functions of ids, for other ids.
        self._others: dict[fx.Node, Any] = {}
        self._random: set[fx.Node] = set()
        # Masks that the signals are multiplied by.
        self.masks: dict[fx.Node, Mask] = {}
        for node in captured.nodes:
            if node.op == "placeholder":
                self._placeholder(node)

    def _placeholder(self, node: fx.Node) -> None:
        if node in self.captured.names:
            name = self.captured.names[node]
            self.values[node] = self.captured.state.get(name)
            if name in self.captured.parameters:
                self.parameters[node] = (self.captured.canonical[name],)
            return
        given = self.captured.inputs[node]
        if not isinstance(given, Tensor) or self._is_part_of_network(node, given):
            self.values[node] = given
        elif not given.is_floating_point():
            self.values[node] = given
            if not bool((given == given.flatten()[:1]).all()):
                self._others[node] = given.flip(-1).roll(1, 0)

    def _is_part_of_network(self, node: fx.Node, given: Tensor) -> bool:
        """True for an input that is a mask, the position of each token, or the segment of tokens that all have one."""
        others = [value for other, value in self.captured.inputs.items() if other is not node and isinstance(value, Tensor)]
        if given.dtype == torch.bool or given.dim() < 2 or not others:
            return given.dtype == torch.bool
        if given.is_floating_point():
            hidden = given <= MASKED
            return bool(hidden.any()) and bool((hidden | (given == 0.0)).all())
        positions = torch.arange(given.shape[-1]).expand_as(given)
        is_regular = bool((given == given.flatten()[0]).all() | (given == positions).all())
        table, tables = self._table(node), {self._table(other) for other in self.captured.inputs if other is not node} - {None}
        if table is None:
            return is_regular or bool((given.long() == given.bool()).all())
        return is_regular and bool(tables) and table not in tables

    def _table(self, node: fx.Node) -> str | None:
        """The parameter of which an input chooses rows."""
        table = table_of(node)
        return None if table is None else self.captured.canonical.get(self.captured.names.get(table, ""))

    def is_constant(self, node: fx.Node) -> bool:
        return node in self.values and node not in self._others

    def is_of_ids(self, node: fx.Node) -> bool:
        """True if the value is a function of token ids (or of masks, labels) and of nothing else."""
        return node in self._others

    def is_random(self, node: fx.Node) -> bool:
        """True if the value is another in every run."""
        return node in self._random

    def mask(self, node: fx.Node) -> Mask | None:
        """A random value as a mask; None if it is something else."""
        nodes = self._random_before(node)
        if any(operation(each) in _RANDOM - _UNIFORM for each in nodes):
            return None

        def at(uniform: float) -> Tensor:
            values: dict[fx.Node, Any] = {}
            for each in nodes:
                values[each] = evaluate(each, lambda inner: values[inner] if inner in values else self.values[inner], uniform)
            return cast(Tensor, values[node].float())

        low, high = 0.0, 1.0
        ends = [at(low), at(1.0 - 1e-7)]
        zero = 0 if not bool(ends[0].any()) else 1
        size = float(ends[1 - zero].max())
        if bool(ends[zero].any()) or size == 0.0 or not bool((ends[1 - zero] == size).all()):
            return None
        while high - low > 1e-7:
            middle = (low + high) / 2.0
            low, high = (middle, high) if torch.equal(at(middle), ends[0]) else (low, middle)
        rate = float(f"{low if zero == 0 else 1.0 - low:.6f}")
        self.masks[node] = Mask(rate, size * (1.0 - rate), tuple(ends[0].shape))
        return self.masks[node]

    def _random_before(self, node: fx.Node) -> list[fx.Node]:
        """The random values that a node is computed from, and itself, in order."""
        found = {node}
        for each in reversed(self.captured.nodes):
            if each in found:
                found.update(inner for inner in operands(each) if inner in self._random)
        return [each for each in self.captured.nodes if each in found]

    def try_evaluate(self, node: fx.Node) -> bool:
        """Evaluates a node if all operands have values. Functions of ids that are equal for other ids are constants."""
        given = operands(node)
        if node.op == "get_attr":
            self.values[node] = getattr(self.captured.graph_module, str(node.target))
            return True
        if not all(each in self.values for each in given):
            return False
        if operation(node) in _RANDOM or any(each in self._random for each in given):
            self._random.add(node)
        of_ids = any(each in self._others for each in given)
        if of_ids and any(each in self.parameters for each in given) and operation(node) not in ("where", "masked_fill"):
            return False
        with torch.no_grad():
            self.values[node] = evaluate(node, self.values.__getitem__)
            if of_ids:
                other = evaluate(node, lambda inner: self._others.get(inner, self.values[inner]))
                if not _equal(self.values[node], other):
                    self._others[node] = other
        names = dict.fromkeys(itertools.chain.from_iterable(self.parameters.get(each, ()) for each in given))
        if names:
            self.parameters[node] = tuple(names)
        return True

    def is_zero(self, node: fx.Node) -> bool:
        value = self.values.get(node)
        if not self.is_constant(node) or node in self._random or not isinstance(value, Tensor):
            return False
        if not value.is_floating_point() or value.numel() == 0:
            return False
        return not bool(value.flatten()[:8].any()) and not bool(value.any())

    def weight(self, node: fx.Node, arrange: Callable[[Tensor], Tensor] = lambda value: value) -> Weight:
        """The weight with the value of a node, arranged as its component uses it."""
        value = arrange(self.values[node])
        origin = self._origin(node, value, arrange)
        names = "+".join(self.parameters.get(node, ())) or self.captured.names.get(node, node.name)
        return Weight(value.float(), names if origin is None else name_of(origin), origin)

    def _origin(self, node: fx.Node, value: Tensor, arrange: Callable[[Tensor], Tensor]) -> Origin | None:
        names = self.parameters.get(node, ())
        if len(names) != 1:
            return None
        shape = self.captured.state[names[0]].shape
        coordinates = self._coordinates(node) if len(shape) > 0 else None
        if coordinates is None:
            return None
        arranged = [arrange(axis).reshape(len(value), -1) for axis in coordinates]
        return _origin(names[0], shape, arranged)

    def _coordinates(self, node: fx.Node) -> list[Any] | None:
        """Where in a parameter the entries of a value are, axis by axis. None if they are more than moved."""
        if node.op == "placeholder":
            shape = self.values[node].shape
            return [
                torch.arange(size).reshape([-1 if other == axis else 1 for other in range(len(shape))]).expand(shape)
                for axis, size in enumerate(shape)
            ]
        trained = [each for each in operands(node) if each in self.parameters]
        if operation(node) not in _CHOICES or len(trained) != 1:
            return None
        inner = self._coordinates(trained[0])
        if inner is None:
            return None
        moved = [evaluate(node, {**self.values, trained[0]: axis}.__getitem__) for axis in inner]
        return [axis.long() if isinstance(axis, Tensor) else axis for axis in moved]


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, Tensor):
        return torch.equal(x, y)
    if isinstance(x, (tuple, list)):
        return all(_equal(each, other) for each, other in zip(x, y, strict=True))
    return bool(x == y)


def _origin(parameter: str, shape: Sequence[int], coordinates: list[Tensor]) -> Origin | None:
    """The origin of a value with these coordinates, shape (rows, columns) each: whole columns of the parameter are its columns."""
    rows, columns, fixed = [], [], []
    for axis, along in enumerate(coordinates):
        if _is_constant_along(along, 0) and _is_constant_along(along, 1):
            if shape[axis] > 1:
                fixed.append(axis)
        elif _is_constant_along(along, 1):
            rows.append(axis)
        elif _is_constant_along(along, 0):
            columns.append(axis)
        else:
            return None
    count = coordinates[0].shape[1] if coordinates else 1
    if math.prod(shape[axis] for axis in columns) != count:
        return None
    if len(columns) == 1 and not torch.equal(coordinates[columns[0]][0], torch.arange(count)):
        return None
    axes = rows + fixed
    if len(axes) == 2 and rows and fixed:
        # A vector that is one row of a table.
        along = coordinates[rows[0]][:, 0]
        whole = count == 1 and torch.equal(along, torch.arange(shape[rows[0]]))
        return Origin(parameter, fixed[0], (int(coordinates[fixed[0]][0, 0]),)) if whole else None
    if len(axes) > 1:
        return None
    axis = axes[0] if axes else 0
    along = coordinates[axis][:, 0]
    return Origin(parameter, axis, None if torch.equal(along, torch.arange(shape[axis])) else tuple(along.tolist()))


def _is_constant_along(values: Tensor, axis: int) -> bool:
    if values.stride(axis) == 0:
        return True
    # The last entries differ from the first ones in nearly all other cases, which saves reading the rest.
    first, last = values.select(axis, 0), values.select(axis, -1)
    return torch.equal(first, last) and bool((values == first.unsqueeze(axis)).all())


def name_of(origin: Origin) -> str:
    """The name of a weight: that of the parameter, with its entries if they are not all.

    >>> name_of(Origin("qkv.weight", 0, (0, 1, 2, 6, 7, 8)))
    'qkv.weight[0:3,6:9]'
    """
    return origin.parameter if origin.indices is None else origin.parameter + ranges(origin.indices)


def ranges(indices: Sequence[int]) -> str:
    """Indices in words: runs of neighbours as slices, and many runs of one length by the first and their distance."""
    starts = [place for place, index in enumerate(indices) if place == 0 or index != indices[place - 1] + 1]
    ends = [*starts[1:], len(indices)]
    runs = [(indices[start], indices[end - 1] + 1) for start, end in zip(starts, ends, strict=True)]
    step = runs[1][0] - runs[0][0] if len(runs) > 1 else 0
    length = runs[0][1] - runs[0][0]
    if len(runs) > 3 and runs == [(runs[0][0] + k * step, runs[0][0] + k * step + length) for k in range(len(runs))]:
        return f"[{runs[0][0]}:{runs[0][1]} and every {step} to {runs[-1][1]}]"
    return "[" + ",".join(f"{start}:{end}" for start, end in runs) + "]"


def rows_of(weight: Weight, rows: Tensor) -> Weight:
    """A part of the rows of a weight."""
    if torch.equal(rows, torch.arange(len(weight.value))):
        return weight
    chosen = rows.tolist()
    value, origin = weight.value[rows], weight.origin
    if origin is None or (origin.indices is not None and len(origin.indices) != len(weight.value)):
        return Weight(value, weight.name + ranges(chosen), None)
    kept = chosen if origin.indices is None else [origin.indices[row] for row in chosen]
    origin = Origin(origin.parameter, origin.axis, tuple(kept))
    return Weight(value, name_of(origin), origin)
