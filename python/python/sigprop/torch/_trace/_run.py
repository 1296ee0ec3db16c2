"""Runs of a captured graph, with the values of components."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from ._capture import Captured
from ._constants import operation
from ._layout import Place

_MOVEMENTS = frozenset(
    ["transpose", "permute", "t", "movedim", "view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"]
    + ["contiguous", "clone", "alias", "detach"]
)


def first(place: Place) -> Place:
    """The first node with these entries: the gradients of later ones, which not all others read, are parts of its gradient."""
    node, order = place.node, place.order
    while operation(node) in _MOVEMENTS and isinstance(before := node.args[0], fx.Node):
        value = before.meta["val"]
        if value.numel() != order.numel():
            break
        indices = torch.arange(value.numel()).reshape(value.shape)
        moved: Tensor = node.target(indices, *node.args[1:], **node.kwargs)  # type: ignore[operator]
        node, order = before, moved.flatten()[order]
    return Place(node, order)


class Run(fx.Interpreter):
    """Runs a graph. `at` is called with the values of some nodes, and returns those with which the run continues.

    With the means of random masks, it runs with these in place of the masks, and without dropout.
    """

    def __init__(
        self, captured: Captured, nodes: set[fx.Node], at: Callable[[fx.Node, Tensor], Tensor], is_wide: bool,
        masks: Mapping[fx.Node, float] | None = None,
    ) -> None:
        super().__init__(captured.graph_module)
        self._captured, self._nodes, self._at = captured, nodes, at
        self._is_wide, self._masks = is_wide, masks

    def with_state(self, state: Mapping[str, Tensor], inputs: Sequence[Tensor] = ()) -> None:
        """Runs with these parameters and buffers where given, and with these inputs in place of those of the example."""
        captured, given = self._captured, iter(inputs)
        arguments = []
        placeholders = [node for node in captured.nodes if node.op == "placeholder"]
        for node, argument in zip(placeholders, captured.arguments(state), strict=True):
            if isinstance(captured.inputs.get(node), Tensor):
                argument = next(given, argument)
            elif node in captured.names and captured.names[node] not in captured.parameters:
                # Norms write to buffers.
                argument = argument.clone()
            arguments.append(self._widened(argument))
        self.run(*arguments)

    def run_node(self, node: fx.Node) -> Any:
        value = self._widened(super().run_node(node))
        if self._masks is not None and node in self._masks:
            value = self._widened(torch.full(value.shape, self._masks[node]))
        return self._at(node, value) if node in self._nodes else value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(target)
        if name.startswith(("aten.view.default", "aten._unsafe_view")):
            # Gradients have other strides.
            target = torch.ops.aten.reshape.default
        if self._masks is not None and name.startswith("aten.dropout"):
            return args[0]
        if self._masks is not None and name.startswith("aten.scaled_dot_product_attention"):
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = {key: 0.0 if key == "dropout_p" else value for key, value in kwargs.items()}
        if name.startswith("aten.copy."):
            # It has no derivative.
            return args[1].expand(args[0].shape).to(args[0].dtype)
        if self._is_wide:
            args, kwargs = pytree.tree_map(_double, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def _widened(self, value: Any) -> Any:
        is_single = isinstance(value, Tensor) and value.dtype == torch.float32
        return value.double() if self._is_wide and is_single else value


def _double(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument
