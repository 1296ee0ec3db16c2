"""The kinds of nodes of a stack: a component, a chain, or chains on a common input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._components import Activation, Convolution, Dropout, Linear, Norm, Pool, Positions, Prepend, Rotary, Scale, Select
from ._disentangled import Disentangled
from ._node import Node, Part, Place, Run, Shape, add, in_heads, variant


class Read:
    """Another signal than the input: the output of an earlier stream or site."""

    def __init__(self, read: Part, place: Place) -> None:
        self._kind, self._of = variant(read)
        self.shape = place.memories[self._of] if self._kind == "stream" else place.sites[self._of]

    def __call__(self, run: Run) -> Tensor:
        read = run.memories[self._of] if self._kind == "stream" else run.sites[self._of]
        assert read is not None, "a checked stack reads earlier sites"
        return read


class Body:
    """A sequence of nodes, which are submodules of `owner` under their own names. The first may be a read, which is no module."""

    def __init__(self, owner: nn.Module, parts: Sequence[Part], place: Place, shape: Shape) -> None:
        self._names: list[str] = []
        self._read = None
        if parts and variant(parts[0]["op"])[0] == "read":
            self._read = Read(variant(parts[0]["op"])[1], place)
            parts, shape = parts[1:], self._read.shape
        for part in parts:
            inner = node(part["op"], place.inside(part["name"], part.get("shared_with")), shape)
            add(owner, part["name"], inner)
            self._names.append(part["name"])
            shape = place.sites[inner.site] = inner.shape
        self.sites = [place.inside(name).site for name in self._names]
        # The shape of its output.
        self.shape = shape

    def __call__(self, owner: nn.Module, x: Tensor, run: Run) -> Tensor:
        if self._read is not None:
            x = self._read(run)
        for name in self._names:
            x = owner.get_submodule(name)(x, run)
        return x


class Chain(Node):
    """A chain of nodes."""

    def __init__(self, body: list[Part], place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._body = Body(self, body, place, shape)
        self.shape = self._body.shape

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return self._body(self, x, run)


class Sum(Node):
    """Σ scale · branch(x). In training, branches with a drop rate are dropped for whole sequences, and kept ones are scaled up."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._branches = [Body(self, branch["body"], place, shape) for branch in part["branches"]]
        self._scales: list[float] = [branch["scale"] for branch in part["branches"]]
        self._learned = None
        if place.learns_scales and [bool(branch["body"]) for branch in part["branches"]] == [False, True]:
            init = {"constant": {"value": self._scales[1]}}
            self._learned = place.tensor({"name": f"{place.owner}.scale", "init": init}, is_told=False)
        self._drop_rates = [branch["drop_rate"] for branch in part["branches"]]
        self.shape = self._branches[0].shape

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        total = x.new_zeros(())
        scales: list[float | Tensor] = [*self._scales]
        if self._learned is not None:
            scales[1] = run[self._learned]
        for branch, scale, rate in zip(self._branches, scales, self._drop_rates, strict=True):
            term = scale * branch(self, x, run)
            total = total + (term * F.dropout(x.new_ones(len(x), 1, 1), rate, self.training) if rate else term)
        return total


class Product(Node):
    """The elementwise product of chains."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._factors = [Body(self, factor, place, shape) for factor in part["factors"]]
        self.shape = self._factors[0].shape

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return math.prod((factor(self, x, run) for factor in self._factors), start=x.new_ones(()))


class Concat(Node):
    """Concatenates the parts head by head. A shared part is the same in all heads."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._heads = part["n_heads"]
        self._parts = [(Body(self, each["body"], place, shape), each["shared"]) for each in part["parts"]]
        width = sum(body.shape.width * (self._heads if is_shared else 1) for body, is_shared in self._parts)
        self.shape = Shape(shape.seq_len, width)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        parts = []
        for body, is_shared in self._parts:
            heads = in_heads(body(self, x, run), 1 if is_shared else self._heads)
            parts.append(heads.expand(-1, -1, self._heads, -1))
        return torch.cat(parts, dim=-1).flatten(-2)


class Softmax(Node):
    """The softmax of scores, shape (batch, heads, queries, keys). A sink is one more score, whose weight is dropped."""

    def __init__(self, site: str, shape: Shape, sink: str | None) -> None:
        super().__init__(site, shape)
        self._sink = sink

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        if self._sink is None:
            return x.softmax(-1)
        sinks = run[self._sink].reshape(-1, 1, 1).expand(*x.shape[:-1], 1)
        return torch.cat([x, sinks], dim=-1).softmax(-1)[..., :-1]


class Attention(Node):
    """Softmax attention. Several query heads may share a head of keys and values."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, Shape(shape.seq_len, part["n_heads"] * part["d_value"]))
        self._part = part
        self._memory = part.get("memory")
        read = shape if self._memory is None else place.memories[self._memory]
        self._query = Body(self, part["query"], place, shape)
        self._key, self._value = (Body(self, part[name], place, read) for name in ("key", "value"))
        # A site of its own, next to the attention.
        sink = place.tensor(part["sink"], part["n_heads"]) if "sink" in part else None
        self.softmax = Softmax(".".join([*place.site.split(".")[:-1], "softmax"]), shape, sink)
        kind, self._bias = variant(part.get("bias") or "none")
        self._slopes: list[float] | None = self._bias.get("slopes")
        self._table = None
        if kind == "relative":
            self._table = place.tensor(self._bias["table"], self._bias["buckets"], part["n_heads"], is_told=False)
        self._disentangled = Disentangled(self._bias, place) if kind == "disentangled" else None

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        part, read = self._part, x if self._memory is None else run.memories[self._memory]
        group = part["n_heads"] // part["n_kv_heads"]
        q = _heads(self._query(self, x, run), part["n_heads"])
        k, v = (_heads(body(self, read, run), part["n_kv_heads"]) for body in (self._key, self._value))
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores: Tensor = part["scale"] * q @ k.transpose(-1, -2)
        if self._disentangled is not None:
            scores = scores + part["scale"] * self._disentangled.scores(q, k, self._images, run, self.training)
        if part.get("softcap") is not None:
            scores = part["softcap"] * torch.tanh(scores / part["softcap"])
        # The position of the key less that of the query.
        offsets = (torch.arange(k.shape[2])[None] - torch.arange(q.shape[2])[:, None]).to(x.device)
        weights = self.softmax(self._masked(scores + self._positions(offsets, run), offsets), run)
        averages: Tensor = F.dropout(weights, part["dropout_rate"], self.training) @ v
        return averages.transpose(1, 2).flatten(-2)

    def _images(self, name: str, images: Tensor) -> Tensor:
        """The queries or keys of positions in heads, a head of keys for every head of queries."""
        heads = self._part["n_kv_heads"] if name == "key" else self._part["n_heads"]
        return _heads(images, heads).repeat_interleave(self._part["n_heads"] // heads, dim=1)

    def _masked(self, scores: Tensor, offsets: Tensor) -> Tensor:
        mask = self._part["mask"]
        before, after = mask.get("before"), mask.get("after")
        if before is not None:
            scores = scores.masked_fill(offsets < -before, -math.inf)
        return scores if after is None else scores.masked_fill(offsets > after, -math.inf)

    def _positions(self, offsets: Tensor, run: Run) -> Tensor | float:
        """The position bias of the scores, shape (heads, queries, keys)."""
        if self._slopes is not None:
            slopes = torch.tensor(self._slopes, device=offsets.device)
            return -slopes[:, None, None] * offsets.abs()
        if self._table is not None:
            bias = self._bias
            buckets = bucket(offsets, bias["buckets"], bias["max_distance"], bias["bidirectional"])
            return F.embedding(buckets, run[self._table]).permute(2, 0, 1)
        return 0.0


def _heads(x: Tensor, count: int) -> Tensor:
    """Splits x into heads, shape (batch, heads, tokens, features of a head)."""
    return in_heads(x, count).transpose(1, 2)


def bucket(offsets: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The buckets of T5 (Raffel et al. 2020): half of them hold one distance each, the others grow up to `max_distance`.

    >>> bucket(torch.tensor([0, -1, -8, -128, 1]), 32, 128, True).tolist()
    [0, 1, 8, 15, 17]
    """
    if bidirectional:
        buckets //= 2
        base, distances = torch.where(offsets > 0, buckets, 0), offsets.abs()
    else:
        base, distances = torch.zeros_like(offsets), (-offsets).clamp_min(0)
    exact = buckets // 2
    ratio = (distances.clamp_min(1).double() / exact).log() / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp_max(buckets - 1)
    return base + torch.where(distances < exact, distances, far)


class Mixture(Node):
    """scale · Σ weight · expert(x), or scale · Σ expert(weight · x), over the experts with the largest scores.

    All experts are computed on all tokens.
    """

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._part = part
        self._scale: float = part["scale"]
        self._router = place.tensor(part["router"], part["n_experts"], shape.width)
        self._expert = Body(self, part["expert"], place.of_experts(part["n_experts"]), shape)
        self.shape = self._expert.shape

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        part = self._part
        scores = F.linear(x, run[self._router])
        weights = _WEIGHTS[part["weighting"]](scores, part["top_k"])
        chosen = scores.topk(part["top_k"], dim=-1).indices
        is_chosen = torch.zeros_like(weights).scatter(-1, chosen, 1.0)
        weights = weights * is_chosen
        if part["normalised"]:
            weights = weights / weights.sum(-1, keepdim=True)
        of_inputs = part["weights_multiply"] == "inputs"
        before, after = (weights, is_chosen) if of_inputs else (torch.ones_like(weights), weights)
        outer, total = (run.expert, run.is_weighed), x.new_zeros(())
        run.is_weighed |= of_inputs
        for number in range(part["n_experts"]):
            run.expert = (*outer[0], number)
            total = total + after[..., number, None] * self._expert(self, before[..., number, None] * x, run)
        run.expert, run.is_weighed = outer
        return self._scale * total


def _sparsemixer(scores: Tensor, top_k: int) -> Tensor:
    """Weights of one chosen expert after the other: its share of the softmax over near scores of experts that are left."""
    weights, left = torch.zeros_like(scores), scores
    for _ in range(top_k):
        largest, expert = left.max(-1, keepdim=True)
        is_far = largest - scores > _MARGIN * torch.maximum(scores.abs(), largest)
        shares = left.masked_fill(is_far, -math.inf).softmax(-1)
        weights = weights.scatter(-1, expert, shares.gather(-1, expert))
        left = left.scatter(-1, expert, -math.inf)
    return weights


# The largest difference of near scores, relative to the scores.
_MARGIN = 0.02
# The function from scores and the number of chosen experts to weights, before the choice.
_WEIGHTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": lambda scores, _: scores.softmax(-1),
    "sigmoid": lambda scores, _: scores.sigmoid(),
    "sparsemixer": _sparsemixer,
}


class Recurrence(Node):
    """S_t = diag(α_t) S_(t−1) + η_t k_t u_tᵀ and y_t = scale · S_tᵀ q_t + D v_t in every head, one position after the other."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        self._part, self._heads, self._d_key = part, part["n_heads"], part["d_key"]
        super().__init__(place.site, Shape(shape.seq_len, self._heads * part["d_value"]))
        self._query, self._key, self._value = (Body(self, part[name], place, shape) for name in ("query", "key", "value"))
        kind, self._decay = variant(part["decay"])
        self._step = None
        if kind == "stepped":
            self._step = Body(self, self._decay["step"], place, shape)
            rates, steps = (self._channels(f"{name}_per_channel") for name in ("rate", "step"))
            self._log_rate = self._own(place, "log_rate", self._decay["rates"], *rates)
            self._step_bias = self._own(place, "step_bias", self._decay["bias"], math.prod(steps))
        self._write, write = variant(part["write"])
        self._factor: float = write.get("factor", 1.0)
        self._strength = Body(self, write["strength"], place, shape) if "strength" in write else None
        self._skip = None
        if part.get("skip") is not None:
            skip = {"name": f"{place.site}.skip", "init": {"constant": {"value": part["skip"]}}}
            self._skip = place.tensor(skip, self._heads)

    def _channels(self, flag: str) -> tuple[int, ...]:
        """The shape of a parameter per head, or per head and channel of the keys."""
        return (self._heads, self._d_key) if self._decay.get(flag) else (self._heads,)

    def _own(self, place: Place, kind: str, init: str | Part, *shape: int) -> str:
        """Registers a parameter that is named after the site."""
        return place.tensor({"name": f"{place.site}.{kind}", "init": {kind: init}}, *shape, is_told=False)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        part, group = self._part, self._heads // self._part["n_key_heads"]
        q, k = (in_heads(body(self, x, run), part["n_key_heads"]) for body in (self._query, self._key))
        q, k = q.repeat_interleave(group, dim=-2), k.repeat_interleave(group, dim=-2)
        v = in_heads(self._value(self, x, run), self._heads)
        decay, strength = self._gates(x, run)
        state = x.new_zeros(len(x), self._heads, self._d_key, part["d_value"])
        outputs = []
        for t in range(v.shape[1]):
            state = decay[:, t, :, :, None] * state
            update = v[:, t] - (k[:, t, :, :, None] * state).sum(-2) if part.get("delta") else v[:, t]
            state = state + (strength[:, t] * k[:, t])[..., None] * update[..., None, :]
            outputs.append(part["scale"] * (q[:, t, :, :, None] * state).sum(-2))
        y = torch.stack(outputs, dim=1)
        if self._skip is not None:
            y = y + run[self._skip][:, None] * v
        return y.flatten(-2)

    def _gates(self, x: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """α and η, shape (batch, tokens, heads, channels of the keys or 1)."""
        ones = x.new_ones(*x.shape[:2], self._heads, 1)
        if self._step is None:
            rates, steps = x.new_tensor(self._decay["rates"])[:, None], ones
        else:
            rates = in_heads(run[self._log_rate].exp().flatten(), self._heads)
            bias = in_heads(run[self._step_bias], self._heads)
            steps = F.softplus(in_heads(self._step(self, x, run), self._heads) + bias)
        if self._strength is not None:
            strength = self._factor * self._strength(self, x, run).sigmoid()[..., None]
        else:
            strength = steps if self._write == "step" else ones
        return torch.exp(-rates * steps), strength


_NODES: dict[str, Callable[[Any, Place, Shape], Node]] = {
    "linear": Linear,
    "norm": Norm,
    "activation": Activation,
    "dropout": Dropout,
    "scale": Scale,
    "rotary": Rotary,
    "embedding": Positions,
    "convolution": Convolution,
    "prepend": Prepend,
    "pool": Pool,
    "select": Select,
    "chain": Chain,
    "sum": Sum,
    "product": Product,
    "concat": Concat,
    "attention": Attention,
    "mixture": Mixture,
    "recurrence": Recurrence,
}


def node(op: Part, place: Place, shape: Shape) -> Node:
    """The module of a node whose input has this shape."""
    kind, part = variant(op)
    if kind == "apply":
        kind, part = variant(part)
    if kind not in _NODES:
        raise ValueError(f"{place.site}: expected one of {', '.join(_NODES)}, got {kind}")
    return _NODES[kind](part, place, shape)
