"""The graph of components: its order, its dominators, and the streams that attention reads from other sources."""

from __future__ import annotations

from collections.abc import Callable

from ._components import Attention, Component, Linear, Refusal


class Unplaced(Refusal):
    """A component whose place in the graph stacks cannot describe."""

    def __init__(self, component: Component, text: str) -> None:
        super().__init__(text, component.path, component.code)


class Graph:
    """The components of a module. Attention to another source has an arrow to its queries alone: its keys end another stream."""

    def __init__(self, end: Component) -> None:
        everything = _ordered([end], lambda component: component.inputs)
        # Attentions to other streams, by the sources of those streams, which come first.
        self._readers = _readers(everything)
        self._cut = {attention for group in self._readers for attention in group}
        keys = [part for group in self._readers for attention in group for part in attention.inputs[1:]]
        self.order = _ordered([*keys, end], self.inputs)
        self._dominators: dict[Component, Component | None] = {}
        self._depths: dict[Component, int] = {}
        for component in self.order:
            self._place(component)
        self._users: dict[Component, int] = {}
        for component in self.order:
            for part in component.inputs:
                self._users[part] = self._users.get(part, 0) + 1
        self.end = end
        # The ends of all streams; that of the module's output is the last.
        self.ends = [*(self._common([part for one in group for part in one.inputs[1:]]) for group in self._readers), end]

    def inputs(self, component: Component) -> list[Component]:
        return component.inputs[:1] if component in self._cut else component.inputs

    def memory(self, attention: Component) -> int | None:
        """The number of the stream that an attention reads; None if it is its own."""
        return next((number for number, group in enumerate(self._readers) if attention in group), None)

    def users(self, component: Component) -> int:
        return self._users.get(component, 0)

    def dominator(self, component: Component) -> Component | None:
        """The nearest component that all ways from the source pass through; None for a source."""
        return self._dominators[component]

    def chain(self, base: Component | None, end: Component) -> list[Component]:
        """The components after `base` that all ways to the end pass through. With None it starts with the source."""
        found: list[Component] = []
        at: Component | None = end
        while at is not base:
            if at is None:
                raise Unplaced(end, "a signal from another source than its neighbours; expected one source per stream")
            found.append(at)
            at = self._dominators[at]
        return found[::-1]

    def between(self, base: Component, end: Component) -> set[Component]:
        """All components on the ways from `base` to the end, without `base`."""
        return set(_ordered([end], lambda component: [] if component is base else self.inputs(component))) - {base}

    def _place(self, component: Component) -> None:
        common: Component | None = None
        for number, part in enumerate(self.inputs(component)):
            common = part if number == 0 else self._meet(component, common, part)
        if component in self._cut:
            # The map of the queries is a part of the attention, as it is where keys have the same source.
            at = common
            while at is not None and not isinstance(at, Linear):
                at = self._dominators[at]
            common = common if at is None or self._dominators[at] is None else self._dominators[at]
        self._dominators[component] = common
        self._depths[component] = 0 if common is None else self._depths[common] + 1

    def _meet(self, component: Component, one: Component | None, other: Component | None) -> Component:
        while one is not other:
            if one is None or other is None:
                break
            if self._depths[one] >= self._depths[other]:
                one = self._dominators[one]
            else:
                other = self._dominators[other]
        if one is None or other is None:
            raise Unplaced(
                component,
                "signals of several inputs meet here (a second reading of the ids, or conditioning); "
                "expected attention as the only place where streams meet",
            )
        return one

    def _common(self, ends: list[Component]) -> Component:
        """The last component that all ways to these ends pass through."""
        common = ends[0]
        for end in ends[1:]:
            common = self._meet(end, common, end)
        return common


def _ordered(ends: list[Component], inputs: Callable[[Component], list[Component]]) -> list[Component]:
    """The components that lead to the ends, inputs first."""
    done: set[Component] = set()
    order: list[Component] = []
    pending = [(end, False) for end in reversed(ends)]
    while pending:
        component, is_ready = pending.pop()
        if is_ready:
            order.append(component)
        elif component not in done:
            done.add(component)
            pending.append((component, True))
            pending.extend((part, False) for part in reversed(inputs(component)))
    return order


def _readers(order: list[Component]) -> list[list[Attention]]:
    """Attentions whose keys come from other sources than their queries, grouped by those sources."""
    sources: dict[Component, frozenset[Component]] = {}
    groups: dict[frozenset[Component], list[Attention]] = {}
    for component in order:
        parts = [sources[part] for part in component.inputs]
        sources[component] = frozenset().union(*parts) if parts else frozenset([component])
        if isinstance(component, Attention):
            query, key, value = parts
            if key == value and (key.isdisjoint(query) or key < query):
                groups.setdefault(key, []).append(component)
    return list(groups.values())
