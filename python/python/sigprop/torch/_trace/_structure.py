"""Components as a stack: streams, blocks, and chains on a common input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ._components import (
    Activation,
    Attention,
    Component,
    Concat,
    Convolution,
    DropPath,
    Dropout,
    Gains,
    Linear,
    Mixture,
    Norm,
    Positions,
    Product,
    Recurrence,
    Rotary,
    Scale,
    Shift,
    Sum,
    Tokens,
    Vectors,
)
from ._graph import Graph, Unplaced
from ._names import Names, blocks, common_path, joined, place, relative
from ._parts import Part, Parts, kind_of
from ._roles import roles_of, roles_part
from ._weights import moments


@dataclass
class Structure:
    """A stack, and the parts of the module that its sites and tensors are."""

    stack: Part
    # The end of the stream where gradients start, and the logits after it; None without a head.
    end: Component
    logits: Component | None
    parts: Parts
    # The sources of the streams, in their order.
    sources: list[Component] = field(default_factory=list)
    # The components whose values the sites have, in the order of the stack.
    sites: dict[str, Component] = field(default_factory=dict)
    # The paths of blocks, by site.
    paths: dict[str, str] = field(default_factory=dict)
    # The sites of the streams themselves, not inside blocks.
    stream_sites: list[str] = field(default_factory=list)


def structure(end: Component, name: str, sequences: int, ends_in_logits: bool = False, exact: bool = False) -> Structure:
    """The stack of the components that lead to the end, for a batch with this number of sequences.

    Args:
        ends_in_logits: The last map is a head.
        exact: For a network that gets the values of all tensors: without distributions, and with fixed positions as tables.

    Raises:
        Unplaced: If the components are not chains and fans.
    """
    last, head = _head(end, ends_in_logits)
    return _Builder(Graph(last), name, sequences, exact).build(head, end)


def _head(end: Component, is_head: bool) -> tuple[Component, Part | None]:
    """The end of the stream, and the head if the last map is one, has more outputs than inputs, or the token table: map, scale,
    cap."""
    part: Part = {"scale": 1.0}
    at = end
    while isinstance(at, Scale):
        part["scale"], at = part["scale"] * at.factor, at.inputs[0]
    if isinstance(at, Activation) and at.function == "tanh":
        part["softcap"], part["scale"], at = part["scale"], 1.0, at.inputs[0]
        while isinstance(at, Scale):
            part["scale"], at = part["scale"] * at.factor, at.inputs[0]
        part["scale"] *= part["softcap"]
    if not isinstance(at, Linear) or not at.inputs[0].inputs:
        return end, None
    tables = {source.table.name for source in Graph(at.inputs[0]).order if isinstance(source, Tokens)}
    if not is_head and at.width <= at.inputs[0].width and at.weight.name not in tables:
        return end, None
    return at.inputs[0], {**part, "map": at}


class _Builder:
    def __init__(self, graph: Graph, name: str, sequences: int, exact: bool) -> None:
        self._graph, self._sequences = graph, sequences
        self._names, self._parts = Names(graph.order), Parts(exact)
        # The number of the block whose nodes are built.
        self._block: int | None = None
        streams = self._stream_names()
        part: Part = {"schema_version": 1, "name": name}
        self._made = Structure(part, graph.end, None, self._parts)
        part["streams"] = [self._stream(stream, end) for stream, end in zip(streams, graph.ends, strict=True)]
        part["gradient"] = {"stream": len(streams) - 1, "correlation": 0.0}

    def build(self, head: Part | None, end: Component) -> Structure:
        made = self._made
        if head is not None:
            last: Linear = head.pop("map")
            sizes = {"vocab_size": last.width, "width": last.inputs[0].width}
            made.stack["head"] = {**sizes, **self._parts.map(last, "head", None), **head}
            made.logits = end
        made.stack["roles"] = roles_part(made.parts.roles)
        return made

    def _stream_names(self) -> list[str]:
        """The common paths of the modules of the streams if these differ, else encoder and decoder."""
        if len(self._graph.ends) == 1:
            return [""]
        paths = [common_path(part.path for part in self._graph.chain(None, end)[1:]) for end in self._graph.ends]
        clear = all(paths) and not any(joined(one, "").startswith(other) for one in paths for other in paths if one is not other)
        if clear:
            return paths
        count = len(paths) - 1
        return [*(["encoder"] if count == 1 else [f"encoder_{number}" for number in range(count)]), "decoder"]

    def _stream(self, name: str, end: Component) -> Part:
        source, *chain = self._graph.chain(None, end)
        self._made.sources.append(source)
        tokens = source.rows // self._sequences
        if isinstance(source, Tokens):
            ids = {"power_law": {"vocab_size": len(source.table.value), "exponent": 0.0}}
            terms: list[Part] = [{"token": {"table": self._parts.tensor(source.table, "embedding", None)}}]
            json: Part = {"embedding": {"width": source.width, "ids": ids, "terms": terms}}
            while chain and isinstance(term := chain[0], (Positions, Shift)):
                terms.append(self._parts.term(term))
                source, *chain = chain
        elif isinstance(source, Vectors):
            json = {"gaussian": {"width": source.width, **moments(source.value, self._sequences)}}
        else:
            raise Unplaced(source, f"a {kind_of(source)} without an input; expected ids or vectors as the source of a signal")
        return {"name": name or "main", "seq_len": tokens, "source": json, "body": self._stream_body(name, source, chain)}

    def _stream_body(self, name: str, source: Component, chain: list[Component]) -> list[Part]:
        """The node `embeddings`, with everything before the first block, and a node for every block and everything after."""
        labels = blocks([place(component, self._graph) for component in chain])
        first = next((index for index, label in enumerate(labels) if label is not None), 0)
        embeddings = self._names.take(name, "embeddings")
        site = joined(name, embeddings)
        self._made.stream_sites.append(site)
        parts = [{"name": embeddings, "op": {"chain": self._nodes(chain[:first], site)}}]
        self._made.sites[site] = chain[first - 1] if first else source
        index = first
        while index < len(chain):
            label, stop = labels[index], index + 1
            while label is not None and stop < len(chain) and labels[stop] == label:
                stop += 1
            parts.append(self._stream_node(name, label, chain[index:stop]))
            index = stop
        return parts

    def _stream_node(self, name: str, label: str | None, chain: list[Component]) -> Part:
        self._block = None if label is None else int(label.rpartition(".")[2])
        if label is None or (len(chain) == 1 and place(chain[0], self._graph) == label):
            [part] = self._nodes(chain, name)
            site = joined(name, part["name"])
        else:
            own = self._names.take(name, relative(label, name))
            site = joined(name, own)
            part = {"name": own, "op": {"chain": self._nodes(chain, site)}}
            self._made.sites[site] = chain[-1]
        self._made.paths[site] = chain[-1].path if label is None else label
        self._block = None
        self._made.stream_sites.append(site)
        return part

    def _nodes(self, chain: Sequence[Component], owner: str, branch: str = "") -> list[Part]:
        """The nodes of a chain inside the owner. The chain is that of queries, keys or values, a branch, or part of a stream."""
        roles = roles_of(chain, branch)
        parts = []
        for component, role in zip(chain, roles, strict=True):
            name = self._names.take(owner, self._wanted(component, owner, role))
            site = joined(owner, name)
            owner_of_gains = self._parts.owner(component, site)
            shared = {} if owner_of_gains == site else {"shared_with": owner_of_gains}
            parts.append({"name": name, **shared, "op": self._op(component, site, role)})
            self._made.sites[site] = component
        return parts

    def _wanted(self, component: Component, owner: str, role: str) -> str:
        if isinstance(component, Sum):
            return self._name_of_sum(component, owner)
        name = self._names.wanted(component, owner, kind_of(component))
        is_part = isinstance(component, Linear) and role in ("query", "key", "value") and self._names.is_shared(component)
        return joined(name, role) if is_part else name

    def _name_of_sum(self, component: Component, owner: str) -> str:
        """The module of the sum if it is inside the owner, else that of the last map of the branch."""
        base = self._graph.dominator(component)
        assert base is not None
        own = relative(place(component, self._graph), owner)
        if own:
            return own
        between = self._graph.between(base, component)
        inside = [part for part in self._graph.order if part in between]
        maps = [part for part in inside if isinstance(part, (Linear, Convolution))]
        steps = relative(maps[-1].path, owner).split(".") if maps else []
        if len(steps) > 1 and not any(isinstance(part, Mixture) for part in inside):
            # A number belongs to the container before it.
            return ".".join(steps[: 2 if steps[1].isdigit() and len(steps) > 2 else 1])
        if any(isinstance(part, Attention) for part in inside):
            return "attention"
        return "ffn" if len(maps) > 1 else "sum"

    def _op(self, component: Component, site: str, role: str) -> Part:
        base = self._graph.dominator(component)
        if isinstance(component, Sum):
            terms = [(self._graph.chain(base, part), scale) for part, scale in self._terms(component, base, 1.0)]
            # Stacks have the skip connection first.
            terms.sort(key=lambda term: bool(term[0]))
            self._refuse_shared(component, base, [chain for chain, _ in terms])
            return {"sum": {"branches": [self._branch(chain, scale, site, number) for number, (chain, scale) in enumerate(terms)]}}
        if isinstance(component, Product):
            chains = [self._graph.chain(base, part) for part in component.inputs]
            self._refuse_shared(component, base, chains)
            return {"product": {"factors": [self._nodes(chain, site, "factor") for chain in chains]}}
        if isinstance(component, Concat):
            chains = [self._graph.chain(base, part) for part in component.inputs]
            self._refuse_shared(component, base, chains)
            if not all(map(_is_centred, component.inputs)):
                raise Unplaced(component, "features side by side that may have a mean; expected outputs of linear maps and LayerNorm")
            pairs = zip(component.shared, chains, strict=True)
            parts = [{"shared": is_shared, "body": self._nodes(chain, site, role)} for is_shared, chain in pairs]
            return {"concat": {"n_heads": component.n_heads, "parts": parts}}
        if isinstance(component, Attention):
            return {"attention": self._attention(component, site)}
        if isinstance(component, Recurrence):
            return {"recurrence": self._recurrence(component, site)}
        if isinstance(component, Mixture):
            return {"mixture": self._mixture(component, site)}
        return {"apply": self._parts.component(component, site, role, self._block)}

    def _terms(self, component: Sum, base: Component | None, factor: float) -> list[tuple[Component, float]]:
        """The summands. Inner sums without another use are parts of it."""
        found: list[tuple[Component, float]] = []
        for part, scale in zip(component.inputs, component.scales, strict=True):
            is_inner = isinstance(part, Sum) and part is not base and self._graph.dominator(part) is base
            if is_inner and self._graph.users(part) == 1:
                assert isinstance(part, Sum)
                found += self._terms(part, base, factor * scale)
            else:
                found.append((part, factor * scale))
        return found

    def _branch(self, chain: list[Component], scale: float, site: str, number: int) -> Part:
        """A branch whose last scales are the factor of the branch."""
        chain, parameter, kept = list(chain), "constant", 1.0
        while chain and isinstance(last := chain[-1], (Scale, Gains, DropPath)):
            chain.pop()
            if isinstance(last, DropPath):
                kept *= 1.0 - last.rate
            elif isinstance(last, Scale):
                scale *= last.factor
                parameter = "scalar" if last.parameter and parameter == "constant" else parameter
            else:
                scale *= self._parts.gains(last, site, number)
                parameter = "per_feature"
        learned = {} if parameter == "constant" else {"scale_parameter": parameter}
        return {"scale": scale, **learned, "drop_rate": 1.0 - kept, "body": self._nodes(chain, site, "branch")}

    def _attention(self, attention: Attention, site: str) -> Part:
        part: Part = {name: getattr(attention, name) for name in ("n_heads", "n_kv_heads", "d_head", "d_value", "scale")}
        part |= {"mask": attention.mask, "dropout_rate": attention.dropout}
        if attention.softcap is not None:
            part["softcap"] = attention.softcap
        if attention.sink is not None:
            part["sink"] = self._parts.tensor(attention.sink, "sink", self._block)
        if attention.bias is not None:
            part["bias"] = attention.bias
            if attention.table is not None:
                table = self._parts.tensor(attention.table, "positions", self._block)
                part["bias"] = {"relative": {**attention.bias["relative"], "table": table}}
        base = self._graph.dominator(attention)
        bases = [base, base, base]
        memory = self._graph.memory(attention)
        if memory is not None:
            part["memory"] = memory
            bases[1:] = [self._graph.ends[memory]] * 2
        chains = [self._graph.chain(at, end) for at, end in zip(bases, attention.inputs, strict=True)]
        for other in chains[1:] if memory is None else []:
            self._refuse_shared(attention, base, [chains[0], other])
        self._refuse_shared(attention, bases[1], chains[1:], is_value=True)
        for kind, chain in zip(("query", "key", "value"), chains, strict=True):
            part[kind] = self._nodes(chain, site, kind)
        return part

    def _recurrence(self, recurrence: Recurrence, site: str) -> Part:
        part: Part = {name: getattr(recurrence, name) for name in ("n_heads", "d_key", "d_value", "scale")}
        part |= {"n_key_heads": recurrence.n_heads, "decay": {"fixed": {"rates": recurrence.rates}}, "write": "one"}
        base = self._graph.dominator(recurrence)
        chains = [self._graph.chain(base, end) for end in recurrence.inputs]
        self._refuse_shared(recurrence, base, chains)
        return part | {kind: self._nodes(chain, site, kind) for kind, chain in zip(("query", "key", "value"), chains, strict=True)}

    def _mixture(self, mixture: Mixture, site: str) -> Part:
        source, end = mixture.inputs
        if self._graph.dominator(mixture) is not source:
            raise Unplaced(mixture, "experts that read another signal than their router; expected one input")
        names = ("n_experts", "top_k", "weighting", "weights_multiply", "normalised", "scale")
        part: Part = {name: getattr(mixture, name) for name in names}
        part["router"] = self._parts.tensor(mixture.router, "router", self._block, is_map=True)
        return {**part, "expert": self._nodes(self._graph.chain(source, end), site, "branch")}

    def _refuse_shared(
        self, join: Component, base: Component | None, chains: list[list[Component]], is_value: bool = False
    ) -> None:
        """Refuses parts that share a map below them. Sharing what has no weights and no randomness is the same as repeating it.

        Keys and values may share the maps before a latent, if both have maps of their own after it.
        """
        assert base is not None
        parts = [self._graph.between(base, chain[-1]) if chain else set() for chain in chains]
        for one, other in combinations(parts, 2):
            shared = [part for part in self._graph.order if part in one & other and _is_heavy(part)]
            own = [any(isinstance(part, Linear) for part in each - (one & other)) for each in (one, other)]
            is_latent = is_value and all(own) and all(isinstance(part, Linear) for part in shared)
            if shared and not is_latent:
                text = f"the parts of a {kind_of(join)} share {shared[-1].path or kind_of(shared[-1])}"
                raise Unplaced(join, f"{text}; expected parts that have no map in common after the input of all")


def _is_centred(component: Component) -> bool:
    """True if features have no mean over random weights."""
    if isinstance(component, (Linear, Convolution)) or (isinstance(component, Norm) and component.kind == "layernorm"):
        return True
    is_odd = isinstance(component, Activation) and component.function in ("tanh", "erf")
    return (is_odd or isinstance(component, (Scale, Gains, Rotary, Norm, Dropout))) and _is_centred(component.inputs[0])


def _is_heavy(component: Component) -> bool:
    return isinstance(component, (Linear, Convolution, Attention, Recurrence, Dropout, DropPath))
