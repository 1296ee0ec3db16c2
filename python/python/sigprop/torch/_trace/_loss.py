"""The loss that a module returns for targets: the cross-entropy of its logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ._capture import Captured
from ._components import Refusal
from ._constants import operation

# The largest difference from the cross-entropy, relative to it.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Loss:
    """The cross-entropy of logits that the module returns."""

    logits: fx.Node
    targets: fx.Node
    # True if the targets of a token are those of the next one.
    is_shifted: bool


def loss_of(captured: Captured) -> Loss | None:
    """The loss among the outputs, if there is one: a number that depends on inputs which the logits do not depend on.

    Raises:
        Refusal: If it is not the mean cross-entropy of the logits.
    """
    numbers = [node for node in captured.outputs if _is_signal(node) and node.meta["val"].numel() == 1]
    logits = [node for node in captured.outputs if _is_signal(node) and node.meta["val"].dim() >= 2]
    for number in numbers:
        before = _before(number)
        # A module that returns the loss alone gives its logits to a function of PyTorch.
        inner = [node.args[0] for node in before if operation(node) == "cross_entropy_loss"]
        end = next((node for node in [*logits, *inner] if isinstance(node, fx.Node)), None)
        if end is None:
            continue
        of_logits = _before(end)
        targets = [node for node in before if node not in of_logits and isinstance(captured.inputs.get(node), Tensor)]
        if not targets:
            continue
        found = _cross_entropy(captured, number, end, targets)
        if found is None:
            text = "a loss that is not the mean cross-entropy of the logits, of each token or of the next"
            place = captured.path(number), captured.code(number)
            raise Refusal(f"{text}; expected that, or a call without targets", *place)
        return found
    return None


def until(captured: Captured, logits: fx.Node) -> None:
    """Makes the logits the only output."""
    graph = captured.graph_module.graph
    graph.output_node().args = ((logits,),)
    graph.eliminate_dead_code()
    captured.graph_module.recompile()
    captured.nodes[:] = graph.nodes
    captured.outputs[:] = [logits]


def _is_signal(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


def _before(node: fx.Node) -> dict[fx.Node, None]:
    """A node and all that it depends on."""
    seen: dict[fx.Node, None] = {}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen[one] = None
            waiting += one.all_input_nodes
    return seen


def _cross_entropy(captured: Captured, number: fx.Node, logits: fx.Node, targets: list[fx.Node]) -> Loss | None:
    """The loss that has the value of a node, for targets among these inputs."""
    values = _values(captured, [number, logits])
    value, scores = values[number], values[logits]
    for target in targets:
        for is_shifted, kept, wanted in _pairs(scores, captured.inputs[target]):
            expected = F.cross_entropy(kept, wanted.masked_fill(wanted < 0, -100))
            if bool((value - expected).abs() <= _TOLERANCE * expected.abs()):
                return Loss(logits, target, is_shifted)
    return None


def _pairs(logits: Tensor, targets: Tensor) -> Iterator[tuple[bool, Tensor, Tensor]]:
    """Logits of shape (tokens, classes) and the target of each, after True if targets are those of the next token."""
    flat = logits.flatten(0, -2)
    if targets.is_floating_point() or targets.numel() != len(flat):
        return
    yield False, flat, targets.flatten().long()
    if logits.dim() == 3 and targets.dim() == 2:
        yield True, logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten().long()


@torch.no_grad()
def _values(captured: Captured, nodes: list[fx.Node]) -> dict[fx.Node, Tensor]:
    seen: dict[fx.Node, Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, node: fx.Node) -> object:
            value = super().run_node(node)
            if node in nodes:
                seen[node] = value
            return value

    with torch.random.fork_rng(devices=[]):
        Recorder(captured.graph_module).run(*captured.arguments())
    return seen
