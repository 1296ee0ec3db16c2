"""Values that do not depend on the inputs, and the parameters that they are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ._capture import Captured
from ._components import Origin, Weight

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
    "zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty new_empty_strided sym_size size".split(), 0
)
_ASSERTIONS = frozenset(("_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size"))


def operation(node: fx.Node) -> str:
    """The name of the operation of a node: "linear", "layer_norm", "dropout_of_nothing" in evaluation."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return str(getattr(node.target, "__name__", None) or getattr(node.target, "_name", node.target))
    name = node.target._schema.name.split("::")[1]
    if name == "einsum" and isinstance(node.args[1], Sequence) and len(node.args[1]) == 1:
        return "permute"
    if name.rstrip("_") in ("dropout", "feature_dropout", "alpha_dropout") and not (node.args[2] and node.args[1]):
        return "dropout_of_nothing"
    return name


def operands(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node computes with, not those of which only the shape matters."""
    place = _SHAPE_ONLY.get(operation(node)) if node.op == "call_function" else None
    if place is None:
        return node.all_input_nodes
    return [arg for index, arg in enumerate(node.args) if isinstance(arg, fx.Node) and index != place]


def evaluate(node: fx.Node, values: Callable[[fx.Node], Any]) -> Any:
    """The value of a node, given those of its operands. Dropout does nothing."""
    name = operation(node)
    if name in _ASSERTIONS:
        return None
    place = _SHAPE_ONLY.get(name)

    def shape(inner: fx.Node) -> Any:
        described = inner.meta["val"]
        return torch.empty((), dtype=described.dtype).expand(described.shape)

    args: Any = tuple(fx.node.map_arg(arg, shape if index == place else values) for index, arg in enumerate(node.args))
    kwargs: Any = fx.node.map_arg(node.kwargs, values)
    if name in ("dropout", "dropout_", "dropout_of_nothing"):
        return args[0]
    if name in ("view", "_unsafe_view"):
        # Test tensors have other strides.
        return torch.reshape(args[0], args[1])
    if name == "type_as" and not args[0].is_floating_point() and args[0].dtype != torch.bool:
        return args[0]
    if name.endswith("_") and not name.startswith("__") and isinstance(args[0], Tensor):
        args = (args[0].clone(), *args[1:])
    return node.target(*args, **kwargs)  # type: ignore[operator]


class Constants:
    """The values of nodes that do not depend on the inputs, and of functions of token ids."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.values: dict[fx.Node, Any] = {}
        # Names of the parameters that values are computed from.
        self.parameters: dict[fx.Node, tuple[str, ...]] = {}
        # Values of functions of ids, for other ids.
        self._others: dict[fx.Node, Any] = {}
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
        if not isinstance(given, Tensor):
            self.values[node] = given
        elif not given.is_floating_point():
            self.values[node] = given
            if not bool((given == given.flatten()[:1]).all()):
                self._others[node] = given.flip(-1).roll(1, 0)

    def is_constant(self, node: fx.Node) -> bool:
        return node in self.values and node not in self._others

    def is_of_ids(self, node: fx.Node) -> bool:
        """True if the value is a function of token ids (or of masks, labels) and of nothing else."""
        return node in self._others

    def try_evaluate(self, node: fx.Node) -> bool:
        """Evaluates a node if all operands have values. Functions of ids that are equal for other ids are constants."""
        given = operands(node)
        if node.op == "get_attr":
            self.values[node] = getattr(self.captured.graph_module, str(node.target))
            return True
        if not all(each in self.values for each in given):
            return False
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
        if not self.is_constant(node) or not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() == 0:
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
    return values.stride(axis) == 0 or bool((values == values.narrow(axis, 0, 1)).all())


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
    chosen = rows.tolist()
    value, origin = weight.value[rows], weight.origin
    if origin is None or (origin.indices is not None and len(origin.indices) != len(weight.value)):
        return Weight(value, weight.name + ranges(chosen), None)
    kept = chosen if origin.indices is None else [origin.indices[row] for row in chosen]
    origin = Origin(origin.parameter, origin.axis, tuple(kept))
    return Weight(value, name_of(origin), origin)
