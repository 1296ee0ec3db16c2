"""Islands: all operations between maps and joins, which are replayed on test tensors and named by their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ._capture import Captured
from ._components import Component, Prepend, Refusal
from ._constants import MOVEMENT, Constants, evaluate, operands, operation, pieces
from ._expression import expression
from ._functions import activation, affine
from ._joins import JOINS, join
from ._layout import Given, Layout, Signal, entries_of
from ._norms import norm
from ._rotary import rotary
from ._step import EXACT, Found, Step, recognised

LOCAL = (
    MOVEMENT
    | frozenset(
        """mul add sub rsub div neg pow rsqrt sqrt exp exp2 log log2 tanh sigmoid relu relu_ gelu silu softplus mish
        hardtanh hardswish hardsigmoid elu leaky_relu selu celu erf abs clamp clamp_min clamp_max where square sin cos
        masked_fill masked_fill_ reciprocal maximum minimum relu6 atan add_ mul_ div_ silu_ sub_ tanh_ sigmoid_ log1p expm1
        logsigmoid log_sigmoid addcmul addcdiv threshold lerp gelu_ leaky_relu_ elu_ multiply divide true_divide
        subtract negative sign nan_to_num hardtanh_ clamp_ rrelu glu polar view_as_complex conj""".split()
    )
    | frozenset(
        """mean var std var_mean sum layer_norm rms_norm native_layer_norm _fused_rms_norm linalg_vector_norm norm softmax
        _softmax running_batch_norm logsumexp amax amin max min linalg_norm log_softmax normalize""".split()
    )
)
SOFTMAX = ("softmax", "_softmax")
_HALF = 1 << 20


@dataclass(frozen=True)
class Scores:
    """Products of queries and keys: alpha · query · key + added."""

    # Entries have the shape (…, tokens, features of a head).
    query: Signal
    key: Signal
    alpha: float = 1.0
    added: Tensor | None = None


class Islands:
    """The signals of a graph. Anchors are nodes whose component is known; every other node is read when a map needs it."""

    def __init__(self, captured: Captured, constants: Constants, layout: Layout) -> None:
        self.captured, self.constants, self.layout = captured, constants, layout
        self._number = {node: number for number, node in enumerate(captured.nodes)}
        # The anchor before a node.
        self.base: dict[fx.Node, fx.Node] = {}
        self._signals: dict[fx.Node, Signal] = {}
        # Products of queries and keys, which are anchors, too.
        self.scores: dict[fx.Node, Scores] = {}

    def start(self, node: fx.Node, component: Component, entries: Tensor) -> None:
        """Makes a node an anchor."""
        self.base[node] = node
        self._remember(node, Signal(component, entries))

    def _remember(self, node: fx.Node, signal: Signal) -> None:
        self._signals[node] = signal
        self.layout.place(node, signal)

    def where(self, node: fx.Node) -> dict[str, str]:
        """The fields of a component that say where it is in the module."""
        return {"path": self.captured.path(node), "code": self.captured.code(node)}

    def tokens(self, node: fx.Node) -> tuple[Component, Tensor]:
        """The component whose features are along the last axis of a node, and the row of each token."""
        return self.layout.tokens(self.signal(node))

    def signal(self, node: fx.Node) -> Signal:
        """The component that the entries of a node belong to.

        Raises:
            Refusal: If operations before it are not recognised.
        """
        if node in self._signals:
            return self._signals[node]
        if node not in self.base:
            kind = "something computed from the ids" if self.constants.is_of_ids(node) else "a constant"
            raise Refusal(f"{kind} in place of a signal; expected features of tokens")
        start = self.base[node]
        if start not in self._signals:
            raise Refusal("products of two signals that no softmax follows, or a map of scores between heads; expected a softmax")
        ways = _Way(self, [start, *self.cuts(start, node)])
        if not ways.walk(0, self._signals[start]):
            raise ways.failure
        return self._signals[node]

    def between(self, start: fx.Node, node: fx.Node) -> list[fx.Node]:
        """Nodes after an anchor that lead to a node, in order."""
        seen, waiting = {start}, [node]
        while waiting:
            each = waiting.pop()
            if each not in seen and not self.constants.is_constant(each):
                seen.add(each)
                waiting += operands(each)
        return sorted(seen - {start}, key=self._number.__getitem__)

    def cuts(self, start: fx.Node, node: fx.Node) -> list[fx.Node]:
        """Nodes through which every way from an anchor to a node goes, in order."""
        return [each for each in _passed(self.between(start, node), {start: []})[node] if isinstance(each.meta.get("val"), Tensor)]

    def passed(self, node: fx.Node) -> list[fx.Node]:
        """Nodes of signals through which every way from the inputs to a node goes, in order."""
        read = [each for each in self.base if each is not node]
        ways = _passed([*sorted(read, key=self._number.__getitem__), node], {})
        return [each for each in ways[node] if each in self.base and isinstance(each.meta["val"], Tensor)]

    def replay(self, start: fx.Node, nodes: list[fx.Node], value: Tensor) -> Any:
        """The value of the last of these nodes, given that of an anchor before them."""
        values: dict[fx.Node, Any] = {start: value}
        with torch.no_grad():
            for node in nodes:
                values[node] = evaluate(node, lambda inner: values[inner] if inner in values else self.constants.values[inner])
        return values[nodes[-1]] if nodes else value

    def step(self, start: fx.Node, signal: Signal, end: fx.Node) -> Found | None:
        """The signal at a node, if it is recognised from that at another."""
        nodes = self.between(start, end)
        kinds = {operation(node) for node in nodes}

        def run(value: Tensor) -> Any:
            return self.replay(start, nodes, value)

        if kinds <= MOVEMENT:
            moved = _moved(run, signal.entries)
            if moved is None or not bool((moved == 0).any()):
                return None if moved is None else Found(Signal(signal.component, moved - 1), EXACT)
            return self._prepended(signal, moved, run, nodes)
        if tuple(end.meta["val"].shape) != tuple(signal.entries.shape):
            return None
        if isinstance(signal.component, Given):
            return self._transformed(start, signal, run, end)
        computing = [node for node in nodes if operation(node) not in MOVEMENT]
        # The deepest module, because scales before a norm may belong to another.
        main = max(computing, key=lambda node: self.captured.path(node).count(".") + bool(self.captured.path(node)))
        constants = dict.fromkeys(each for node in nodes for each in operands(node) if self.constants.is_constant(each))
        step = Step(self.layout, self.layout.narrow(signal), run, nodes, list(constants), self.constants, self.where(main))
        for rule in (affine, activation, norm, rotary, expression):
            found = rule(step)
            if found is not None:
                return found
        return None

    def _transformed(self, start: fx.Node, signal: Signal, run: Callable[[Tensor], Any], end: fx.Node) -> Found | None:
        """An input as it is after operations on its entries: images are given to the first map as they are there."""
        given = signal.component
        assert isinstance(given, Given)
        if signal.entries.dim() in (2, 3):
            vectors, rows = self.layout.tokens(signal)
            return self.step(start, Signal(vectors, entries_of(rows, vectors.width)), end)
        value = run(given.value.flatten()[signal.entries])
        new = Given(width=value.numel(), rows=1, value=value, node=end, batch_axis=0)
        return Found(Signal(new, torch.arange(value.numel()).reshape(value.shape)), EXACT)

    def _prepended(self, signal: Signal, moved: Tensor, run: Callable[[Tensor], Any], nodes: list[fx.Node]) -> Found | None:
        """Learned tokens, which are before all others in the component. `moved` is zero where entries are theirs."""
        sequences = self.layout.sequences
        is_new = (moved == 0)[0, ..., 0]
        cats = [node for node in nodes if operation(node) in ("cat", "concat", "concatenate")]
        if moved.dim() != 3 or len(moved) != sequences or len(cats) != 1 or bool(((moved == 0) != is_new[:, None]).any()):
            return None
        component, rows = self.layout.tokens(Signal(signal.component, moved[:, ~is_new] - 1))
        length = self.layout.length(component)
        if not torch.equal(rows // length, torch.arange(sequences)[:, None].expand_as(rows)):
            return None
        parts = [each for each in cats[0].all_input_nodes if self.constants.is_constant(each)]
        tokens = [(part, row) for part in parts for row in range(self.constants.values[part].shape[-2])]
        for part, row in reversed(tokens):
            token = self.constants.weight(part, lambda value, row=row: value[0, row])  # type: ignore[misc]
            rows_now = component.rows + sequences
            component = self.layout.make(
                Prepend, inputs=[component], width=component.width, rows=rows_now, token=token, **self.where(cats[0])
            )
        if len(tokens) + length != len(is_new):
            return None
        order = torch.empty(moved.shape[:2], dtype=torch.long)
        order[:, is_new] = torch.arange(len(tokens))
        order[:, ~is_new] = len(tokens) + rows % length
        numbers = torch.arange(sequences)[:, None] * len(is_new) + order
        return Found(Signal(component, entries_of(numbers, component.width)), EXACT)

    def joined(self, start: fx.Node, node: fx.Node) -> Signal | None:
        """A sum or product of two signals from one anchor, or such signals side by side."""
        parts = pieces(node) or [each for each in operands(node) if not self.constants.is_constant(each)]
        is_join = bool(pieces(node)) or (operation(node) in JOINS and len(parts) == 2)
        if not is_join or any(each not in self.base for each in parts):
            return None
        try:
            return join(self.layout, node, [self.signal(part) for part in parts], self.where(node))
        except Refusal:
            return None


def _passed(nodes: list[fx.Node], ways: dict[fx.Node, list[fx.Node]]) -> dict[fx.Node, list[fx.Node]]:
    """The dominators of each of these nodes: the nodes among them through which every way to it goes, and itself."""
    for each in nodes:
        before = [ways[inner] for inner in operands(each) if inner in ways]
        common = before[0] if before else []
        for other in before[1:]:
            length = next((k for k, (x, y) in enumerate(zip(common, other)) if x is not y), min(len(common), len(other)))
            common = common[:length]
        ways[each] = [*common, each]
    return ways


class _Way:
    """A way through the cuts of an island, in steps as long as can be recognised, with backtracking."""

    def __init__(self, islands: Islands, cuts: list[fx.Node]) -> None:
        self._islands, self._cuts = islands, cuts
        self._dead: set[int] = set()
        self.failure = Refusal("")

    def walk(self, place: int, signal: Signal) -> bool:
        """True if the rest of the way is recognised; the signals on it are remembered then."""
        if place == len(self._cuts) - 1:
            return True
        if place in self._dead:
            return False
        islands, later = self._islands, []
        for end in range(len(self._cuts) - 1, place, -1):
            known = islands._signals.get(self._cuts[end])
            try:
                found = Found(known, EXACT) if known is not None else islands.step(self._cuts[place], signal, self._cuts[end])
            except Refusal as refusal:
                self._fail(refusal, self._cuts[place + 1 : end + 1])
                continue
            if found is not None and found.rank == EXACT and self._go(end, found.signal):
                return True
            if found is not None and found.rank != EXACT:
                later.append((found.rank, -end, found.signal))
        if any(self._go(-end, found) for _, end, found in sorted(later, key=lambda step: step[:2])):
            return True
        joined = islands.joined(self._cuts[place], self._cuts[place + 1])
        if joined is not None and self._go(place + 1, joined):
            return True
        self._dead.add(place)
        self._fail(self._reason(place, signal), self._cuts[place + 1 : place + 2])
        return False

    def _go(self, end: int, signal: Signal) -> bool:
        if not self.walk(end, signal):
            return False
        self._islands._remember(self._cuts[end], signal)
        return True

    def _fail(self, refusal: Refusal, nodes: list[fx.Node]) -> None:
        """Keeps the first refusal, with the place of the first of these nodes that computes."""
        if not self.failure.args[0]:
            node = next((node for node in nodes if operation(node) not in MOVEMENT), nodes[0])
            self.failure = Refusal(str(refusal), **self._islands.where(node))

    def _reason(self, place: int, signal: Signal) -> Refusal:
        names = [operation(node) for node in self._islands.between(self._cuts[place], self._cuts[place + 1])]
        if any(name in SOFTMAX for name in names):
            return Refusal("a softmax over features that no attention reads; expected scores of queries and keys")
        if isinstance(signal.component, Given):
            return Refusal(f"numbers of an input as signals ({' '.join(names[:8])}); expected ids, images or vectors of tokens")
        return Refusal(f"operations that are no known function ({' '.join(names[:8])}); expected {recognised()}")


def _moved(run: Callable[[Tensor], Any], entries: Tensor) -> Tensor | None:
    """Entries of a node that moves others, plus one; zero where there are constants instead. None if entries are computed."""
    indices = entries + 1
    found = torch.zeros((), dtype=torch.long)
    for factor in (1, _HALF) if int(indices.max()) >= _HALF else (1,):
        # float32 holds integers up to 2²⁴.
        part = (indices // factor) % _HALF
        once, twice = run(part.float() + 1), run(2 * (part.float() + 1))
        if not isinstance(once, Tensor) or once.is_complex():
            return None
        is_constant = once == twice
        if not bool((is_constant | (twice == 2 * once)).all()):
            return None
        found = found + factor * torch.where(is_constant, 0, once.round().long() - 1)
    return found
