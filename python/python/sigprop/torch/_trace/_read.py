"""Reads the graph of operations of a module as a graph of components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from ._capture import Captured
from ._components import PADDING, Attention, Component, Refusal, Tokens, Vectors
from ._constants import Constants, operands, operation, pieces
from ._islands import LOCAL, Islands
from ._joins import join
from ._layout import Given, Layout, Place, ordered
from ._maps import MAPS, embedding, masked
from ._mixture import mixture
from ._pixels import PIXELS

# Operations that are components.
_COMPONENTS = MAPS | PIXELS
# Operations of heads, after tokens were chosen or averaged.
_HEAD = LOCAL | frozenset(("linear", "addmm", "mm", "matmul", "dropout", "dropout_", "batch_norm", "topk"))
# Operations by which a query that is no signal reads tokens.
_AVERAGES = ("scaled_dot_product_attention", "bmm", "baddbmm", "matmul", "einsum")


@dataclass(frozen=True)
class Refused:
    """An operation that stacks cannot describe, or that was not recognised."""

    path: str
    code: str
    text: str


@dataclass(eq=False)
class Read:
    """The components of a module."""

    captured: Captured
    # The component of the first output with at least two axes; None if it was refused.
    end: Component | None
    # The number of sequences in the example input. Each has rows / sequences tokens in every component.
    sequences: int
    # Where the entries of components are in a run of the graph. Components inside a step that was recognised whole have none.
    places: dict[Component, Place] = field(default_factory=dict)
    # All refusals. Operations after one are not reported again.
    refusals: list[Refused] = field(default_factory=list)
    # Sources in the order of the inputs of the module.
    sources: list[Component] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # The means of random masks.
    masks: dict[fx.Node, float] = field(default_factory=dict)


def read(captured: Captured) -> Read:
    """Reads the operations before the first output with at least two axes."""
    found = _Reader(captured, skips_zero_maps=False).read()
    if found.refusals:
        # Maps that start at zero may hide what cannot be read.
        other = _Reader(captured, skips_zero_maps=True).read()
        if not other.refusals and other.end is not None:
            found = other
    return found


class _Reader:
    def __init__(self, captured: Captured, skips_zero_maps: bool) -> None:
        self._captured, self._skips = captured, skips_zero_maps
        self._constants = Constants(captured)
        tensors = [node for node, value in captured.inputs.items() if isinstance(value, Tensor) and value.dim() > 0]
        first = next((node for node in tensors if not self._constants.is_constant(node)), None)
        self._batch_axis = 0 if first is None else _batch_axis(captured, first)
        sequences = 1 if first is None else captured.inputs[first].shape[self._batch_axis]
        if any(_mixes_images(node) for node in captured.nodes):
            sequences = 1
        self._islands = Islands(captured, self._constants, Layout(sequences, first))
        self._opaque: set[fx.Node] = set()
        # Nodes of mixtures, which were recognised as a whole.
        self._inside: set[fx.Node] = set()
        self._refusals: dict[fx.Node, Refused] = {}
        self._notes: list[str] = []

    def read(self) -> Read:
        tensors = [node for node in self._captured.outputs if isinstance(node.meta.get("val"), Tensor)]
        outputs = [node for node in tensors if node.meta["val"].dim() >= 2]
        if not outputs:
            raise Refusal("no output with the features of tokens; expected a tensor with at least two axes")
        self._output = outputs[0]
        self._live = self._before(self._output)
        for node in self._live:
            if node not in self._inside:
                self._node(node)
        end = self._end(outputs[0])
        reached = set(self._before(outputs[0], self._constants.is_constant))
        refusals = {node: refused for node, refused in self._refusals.items() if node in reached}
        for node in reversed(list(refusals) if end is None else []):
            pooled = self._before_pooling(outputs[0], node)
            if pooled is None:
                break
            end = pooled
            del refusals[node]
        layout = self._islands.layout
        sources: list[Component] = [] if end is None else [each for each in ordered(end) if isinstance(each, (Tokens, Vectors))]
        return Read(
            captured=self._captured,
            end=end,
            sequences=layout.sequences,
            places=layout.places,
            refusals=list(refusals.values()),
            sources=self._by_input(sources),
            notes=list(dict.fromkeys([*self._captured.notes, *self._notes])),
            masks={node: mask.mean for node, mask in self._constants.masks.items()},
        )

    def _before(self, end: fx.Node, is_left_out: Callable[[fx.Node], bool] = lambda node: False) -> list[fx.Node]:
        """Nodes that a node depends on, in order."""
        seen: set[fx.Node] = set()
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if node not in seen and (node is end or not is_left_out(node)):
                seen.add(node)
                waiting += operands(node)
        return [node for node in self._captured.nodes if node in seen]

    def _node(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._given(node)
            return
        given = operands(node)
        if self._hides(node, given):
            value = node.meta["val"]
            self._constants.values[node] = torch.zeros(value.shape, dtype=value.dtype)
        elif not any(each in self._opaque for each in given) and not self._constants.try_evaluate(node):
            try:
                self._signal(node, given)
            except Refusal as refusal:
                self._refuse(node, refusal)
        elif any(each in self._opaque for each in given) and not self._resumes(node, given):
            self._opaque.add(node)

    def _resumes(self, node: fx.Node, given: list[fx.Node]) -> bool:
        """True for the sum of a signal and a branch that was refused: later blocks are read as if the branch was zero."""
        known = [each for each in given if each in self._islands.base and each not in self._opaque]
        if operation(node) not in ("add", "add_") or len(known) != 1 or len(given) != 2:
            return False
        try:
            signal = self._islands.signal(known[0])
        except Refusal:
            return False
        if signal.entries.shape != node.meta["val"].shape:
            return False
        self._islands.start(node, signal.component, signal.entries)
        return True

    def _given(self, node: fx.Node) -> None:
        value = self._captured.inputs.get(node)
        if isinstance(value, Tensor) and value.is_floating_point() and not self._constants.is_constant(node):
            axis = self._batch_axis if value.dim() == 3 else 0
            given = Given(width=value.numel(), rows=1, value=value, node=node, batch_axis=axis)
            self._islands.start(node, given, torch.arange(value.numel()).reshape(value.shape))

    def _hides(self, node: fx.Node, given: list[fx.Node]) -> bool:
        """True if the value is zero for all inputs: a product with zero, or a map whose weights are zero."""
        name, constants = operation(node), self._constants
        known = [each for each in given if constants.is_constant(each)]
        if len(known) == len(given) or not isinstance(node.meta.get("val"), Tensor):
            return False
        is_unread = any(each in self._opaque for each in given)
        if name in ("mul", "mul_"):
            is_zero = any(constants.is_zero(each) for each in known)
        else:
            is_zero = name in ("linear", "addmm", "mm", "matmul") and bool(known) and all(constants.is_zero(each) for each in known)
        if not is_zero or not (is_unread or (self._skips and self._is_in_branch(node))):
            return False
        path = self._captured.path(node) or "(root)"
        self._notes.append(f"{path}: zero at initialisation, so the branch before it is left out [{self._captured.code(node)}]")
        return True

    def _is_in_branch(self, node: fx.Node) -> bool:
        """True if the output depends on inputs in other ways than through a node."""
        others = self._before(self._output, lambda other: other is node)
        return node is not self._output and any(each in self._captured.inputs for each in others)

    def _signal(self, node: fx.Node, given: list[fx.Node]) -> None:
        name, islands, constants = operation(node), self._islands, self._constants
        signals = [each for each in given if not constants.is_constant(each)]
        of_ids = [each for each in signals if constants.is_of_ids(each)]
        random = [each for each in given if constants.is_random(each)]
        if random and name in ("mul", "mul_", "multiply"):
            masked(islands, node)
        elif random:
            raise Refusal(f"{name} of a signal and random numbers; expected a product with a mask, or evaluation mode")
        elif name == "index" and len(given) == 2 and constants.is_constant(given[0]) and constants.is_of_ids(given[1]):
            embedding(islands, node)
        elif name.startswith("dropout") and signals[0] in islands.base and islands.base[signals[0]] in islands.scores:
            islands.base[node] = islands.base[signals[0]]
        elif name == "topk":
            self._choice(node)
        elif name in _COMPONENTS:
            _COMPONENTS[name](islands, node)
        elif name not in LOCAL:
            raise Refusal(f"aten.{name}, which no component is; expected maps, attention, norms and activations")
        elif of_ids and any(islands.base.get(each) in islands.scores for each in signals):
            raise Refusal(PADDING)
        elif of_ids:
            raise Refusal(f"{name} of a signal and something that depends on the ids; expected constants")
        else:
            bases = {islands.base[each] for each in signals}
            if len(bases) == 1:
                islands.base[node] = bases.pop()
            elif bases & set(islands.scores):
                raise Refusal("a mask or bias of scores that is computed from signals; expected one of positions")
            else:
                parts = [islands.signal(each) for each in pieces(node) or signals]
                joined = join(islands.layout, node, parts, islands.where(node))
                islands.start(node, joined.component, joined.entries)

    def _choice(self, node: fx.Node) -> None:
        inside = mixture(self._islands, node, self._live)
        self._inside.update(inside)
        self._opaque.difference_update(inside)
        for each in inside:
            self._refusals.pop(each, None)
        clamps = [each for each in inside if operation(each).startswith("clamp") and each.meta["val"].is_floating_point()]
        if clamps:
            path, code = self._captured.path(clamps[0]) or "(root)", self._captured.code(clamps[0])
            self._notes.append(f"{path}: the example does not reach the limits of the clamps, so they are left out [{code}]")

    def _end(self, node: fx.Node) -> Component | None:
        if node in self._opaque:
            return None
        try:
            if node not in self._islands.base:
                raise Refusal("an output that does not depend on the inputs; expected a signal")
            return self._islands.tokens(node)[0]
        except Refusal as refusal:
            self._refuse(node, refusal)
            return None

    def _refuse(self, node: fx.Node, refusal: Refusal) -> None:
        path, code = refusal.path or self._captured.path(node), refusal.code or self._captured.code(node)
        self._refusals[node] = Refused(path or "(root)", code, str(refusal))
        self._opaque.add(node)

    def _before_pooling(self, output: fx.Node, refused: fx.Node) -> Component | None:
        """The last component with all tokens, if a refused operation reads some of them or their average, and a head follows."""
        islands, place = self._islands, self._refusals[refused]
        if any(self._constants.is_random(each) for each in operands(refused)):
            return None
        after = self._before(output, lambda node: node is refused or node in islands.base or node in self._constants.values)
        after = [node for node in after if node is not refused and node.op == "call_function"]
        if any(operation(node) not in _HEAD and not self._is_pool(self._captured.path(node), place.path) for node in after):
            return None
        read = [refused, *(node for node in operands(refused) if node in islands.base)]
        if any(self._constants.is_of_ids(node) for node in operands(refused)):
            # Averages of the tokens that are no padding.
            read += takewhile(lambda node: operation(node) in LOCAL, after)
        for cut in reversed(islands.passed(refused)):
            try:
                component, _ = islands.tokens(cut)
            except Refusal:
                continue
            if not component.inputs or self._is_pool(component.path, place.path):
                continue
            others = self._before(output, lambda node, cut=cut: node is cut)  # type: ignore[misc]
            if any(islands.base.get(node) is node and not any(each in islands.base for each in operands(node)) for node in others):
                return None
            small = [node.meta["val"].shape for node in read if node.meta["val"].numel() < cut.meta["val"].numel()]
            # Fewer features are no fewer tokens, except inside attention.
            is_attention = operation(refused) in _AVERAGES and self._is_pool(place.path, place.path)
            if any(is_attention or component.width in shape or shape[-1] == 1 for shape in small):
                does = "reads some tokens or their average"
            elif refused is output:
                does = "moves features between tokens"
            else:
                return None
            self._notes.append(f"{place.path}: {does}, so the network ends before it [{place.code}]")
            return component
        return None

    def _is_pool(self, path: str, module: str) -> bool:
        """True for paths in a module that averages tokens by attention, which is the only one in it."""
        attentions = [each for each in self._islands.layout.places if isinstance(each, Attention)]
        return f"{path}.".startswith(f"{module}.") and not any(f"{each.path}.".startswith(f"{module}.") for each in attentions)

    def _by_input(self, sources: list[Component]) -> list[Component]:
        """Sources in the order of the inputs."""
        order = {node: number for number, node in enumerate(self._captured.nodes)}

        def first(source: Component) -> int:
            place = self._islands.layout.places[source]
            seen, waiting = set(), [place.node]
            while waiting:
                node = waiting.pop()
                seen.add(node)
                waiting += [each for each in operands(node) if each not in seen]
            return min((order[node] for node in seen if node in self._captured.inputs), default=0)

        return sorted(sources, key=first)


def _mixes_images(node: fx.Node) -> bool:
    """True for a norm over a batch of images, which are one sequence then."""
    return operation(node) == "batch_norm" and node.meta["val"].dim() == 4


def _batch_axis(captured: Captured, node: fx.Node) -> int:
    """The first axis of vectors along which outputs depend on none but their own input: that of sequences."""
    if not captured.inputs[node].is_floating_point() or captured.inputs[node].dim() != 3:
        return 0
    place = [each for each in captured.nodes if each.op == "placeholder"].index(node)

    def output(value: Tensor) -> Tensor:
        arguments = captured.arguments()
        arguments[place] = value
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results = pytree.tree_leaves(fx.Interpreter(captured.graph_module).run(*arguments))
        leaves = [result for result in results if isinstance(result, Tensor)]
        return next(result for result in leaves if result.dim() >= 2 and result.is_floating_point())

    before = output(captured.inputs[node])
    for axis in (0, 1):
        changed = captured.inputs[node].clone()
        changed.select(axis, 0).add_(1.0)
        after = output(changed)
        difference = (after - before).narrow(axis, 1, before.shape[axis] - 1)
        if difference.numel() and float(difference.abs().max()) <= 1e-5 * float(before.abs().max()):
            return axis
    return 0
