"""A whole stack: its streams with their sources, its parameters and its head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._components import Term
from ._node import Drawn, Group, Node, Part, Place, Run, Shape, add, variant
from ._operations import Body

# The input of one stream: ids (batch, tokens), ids and segments, or vectors (batch, tokens, features).
Input = Union[Tensor, tuple[Tensor, Tensor]]


class Network(nn.Module):
    """A stack as a module: submodules have the names of the sites, parameters those of the tensors.

    Called with one input per stream, it returns the end of the stream where gradients start, shape
    (batch, tokens, features). The experts of a mixture are one parameter, stacked along its first axis. In training mode, the
    initial one, it samples the masks of dropout and stochastic depth.
    """

    def __init__(self, stack: Part, learn_scales: bool = False) -> None:
        super().__init__()
        self.stack = stack
        self._drawn: dict[str, Drawn] = {}
        self._streams: list[Stream] = []
        self._read = [path for part in stack["streams"] for path in _read_sites(part["body"])]
        for part in stack["streams"]:
            # With several streams, names begin with that of the stream.
            path = part["name"] if len(stack["streams"]) > 1 else ""
            ends = tuple(stream.shape for stream in self._streams)
            self._streams.append(Stream(part, self, Place(path, path, self._drawn, ends, learns_scales=learn_scales)))
        self._end: Stream = self._streams[stack["gradient"]["stream"]]
        self._head = None
        if stack.get("head") is not None:
            self._head = Head(stack["head"], self, Place(self._end.path, self._end.path, self._drawn), self._end.shape)
        # A tensor with the name of a site is in the module of the site, and one whose name begins others is among these.
        taken = {*self.sites(), *(name[:end] for name in self._drawn for end, sign in enumerate(name) if sign == ".")}
        self._paths = {name: f"{name}.weight" if name in taken else name for name in self._drawn}
        for name, drawn in self._drawn.items():
            add(self, self._paths[name], nn.Parameter(torch.empty(drawn.shape)))

    def forward(self, *inputs: Input) -> Tensor:
        if len(inputs) != len(self._streams):
            raise ValueError(f"inputs: expected one for each of {len(self._streams)} streams, got {len(inputs)}")
        run = self._run()
        for stream, given in zip(self._streams, inputs, strict=True):
            run.memories.append(stream(self, given, run))
        return run.memories[self._streams.index(self._end)]

    def logits(self, end: Tensor) -> Tensor:
        """The logits of the head for the output of the module, shape (batch, tokens, vocabulary).

        Raises:
            ValueError: If the stack has no head.
        """
        if self._head is None:
            raise ValueError("logits: expected a stack with a head (head='own', 'tied' or 'untied'), got one without")
        return self._head(self, end, self._run())

    def _run(self) -> Run:
        like = next(self.parameters(), torch.empty(0))
        sites: dict[str, Tensor | None] = dict.fromkeys(self._read)
        return Run(lambda name: self.get_parameter(self._paths[name]), torch.empty(0).to(like), sites=sites)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> tuple[Input, ...]:
        """Samples inputs from the distributions of the stack, one per stream."""
        device = next(self.parameters(), torch.empty(0)).device
        inputs: list[Input] = []
        for stream in self._streams:
            same = stream.source.same_ids_as
            inputs.append(stream.source.sample(batch, generator, device) if same is None else inputs[same])
        return tuple(inputs)

    def gradient(self, end: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Samples the gradient that starts the backward pass: N(0, 1), with the correlation of tokens that the stack has."""
        correlation = self.stack["gradient"]["correlation"]
        return _gaussian(tuple(end.shape), correlation, generator, end.device).to(end)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialises all parameters in place, by the stack."""
        for name, tensor in self.tensors().items():
            self._drawn[name].into(tensor, generator)

    def parameter_groups(self, lr: float, optimizer: Literal["adam", "sgd"] = "adam") -> list[dict[str, Any]]:
        """Parameter groups for an optimiser of torch, by learning rate: `lr` times the factor of the scheme."""
        rates: Mapping[str, Mapping[str, float]] = self.stack.get("learning_rates", {})
        groups: dict[float, list[nn.Parameter]] = {}
        for name, parameter in self.tensors().items():
            groups.setdefault(rates[name][optimizer] if name in rates else 1.0, []).append(parameter)
        return [{"params": parameters, "lr": factor * lr} for factor, parameters in groups.items()]

    def sites(self) -> dict[str, nn.Module]:
        """The module of every site, in the order of the stack."""
        return {module.site: module for module in self.modules() if isinstance(module, Node)}

    def stream_sites(self) -> list[str]:
        """The sites on the streams themselves, not inside blocks."""
        return [site for stream in self._streams for site in stream.sites]

    def end_site(self) -> str:
        """The site where gradients start."""
        return self._end.sites[-1]

    def tensors(self) -> dict[str, nn.Parameter]:
        """The parameters by their names in the stack."""
        return {name: self.get_parameter(path) for name, path in self._paths.items()}

    def told_tensors(self) -> dict[str, nn.Parameter]:
        """The parameters whose gradients are predicted: all but biases of norms, gains that groups share, relative positions,
        and rates and biases of the steps of recurrences."""
        return {name: tensor for name, tensor in self.tensors().items() if self._drawn[name].is_told}


class Stream:
    """A stream of tokens, whose nodes are at `path` in the network."""

    def __init__(self, part: Part, network: nn.Module, place: Place) -> None:
        self.path: str = place.site
        if self.path:
            add(network, self.path, Group())
        self.source = Source(part, place)
        self._body = Body(network.get_submodule(self.path), part["body"], place, self.source.shape)
        self.shape = self._body.shape
        self.sites: list[str] = self._body.sites

    def __call__(self, network: nn.Module, given: Input, run: Run) -> Tensor:
        return self._body(network.get_submodule(self.path), self.source(given, run), run)


class Source:
    """The source of a stream."""

    def __init__(self, stream: Part, place: Place) -> None:
        kind, self._part = variant(stream["source"])
        self.shape = Shape(stream["seq_len"], self._part["width"])
        self._terms: list[Term] | None = None
        # The index of the earlier stream that has the same ids.
        self.same_ids_as: int | None = self._part.get("same_ids_as")
        if kind == "embedding":
            _, ids = variant(self._part["ids"])
            self._terms = [Term(term, place, self.shape, ids["vocab_size"]) for term in self._part["terms"]]
            self._has_segments = any("segment" in term for term in self._part["terms"])

    def __call__(self, given: Input, run: Run) -> Tensor:
        x = self._embedded(given, run)
        # Requires gradients, so that they can be measured everywhere.
        return x if x.requires_grad or not torch.is_grad_enabled() else x.detach().requires_grad_()

    def _embedded(self, given: Input, run: Run) -> Tensor:
        if self._terms is None:
            assert isinstance(given, Tensor)
            return given
        ids, segments = (given, None) if isinstance(given, Tensor) else given
        total = run.like.new_zeros((*ids.shape, self.shape.width))
        for term in self._terms:
            total = total + term(run, ids.shape[1], ids, segments)
        return total

    def sample(self, batch: int, generator: torch.Generator | None, device: torch.device) -> Input:
        tokens = (batch, self.shape.seq_len)
        if self._terms is None:
            entries = _gaussian((*tokens, self.shape.width), self._part["correlation"], generator, device)
            vectors: Tensor = self._part.get("mean", 0.0) + self._part["variance"] ** 0.5 * entries
            return vectors
        kind, ids = variant(self._part["ids"])
        if kind == "given":
            chosen = _random((batch,), generator, device).mul(len(ids["sequences"])).long()
            drawn = torch.tensor(ids["sequences"], device=device)[chosen]
            return (drawn, torch.zeros_like(drawn)) if self._has_segments else drawn
        ranks = torch.arange(1, ids["vocab_size"] + 1, dtype=torch.float64, device=device)
        cumulative = ranks.pow(-ids["exponent"]).cumsum(0)
        drawn = torch.searchsorted(cumulative / cumulative[-1], _random(tokens, generator, device))
        if not self._has_segments:
            return drawn
        splits = _random((batch, 1), generator, device).mul(tokens[1] + 1).long()
        return drawn, (torch.arange(tokens[1], device=device) >= splits).long()


class Head:
    """Maps the end of a stream to logits."""

    def __init__(self, part: Part, network: nn.Module, place: Place, shape: Shape) -> None:
        self._part, self._path = part, place.site
        self._body = Body(network.get_submodule(self._path), part.get("body", ()), place, shape)
        self._weight = place.tensor(part["weight"], part["vocab_size"], part["width"])
        self._bias = place.bias(part.get("bias"), part["vocab_size"])

    def __call__(self, network: nn.Module, end: Tensor, run: Run) -> Tensor:
        x = self._body(network.get_submodule(self._path), end, run)
        logits: Tensor = self._part["scale"] * F.linear(x, run[self._weight], run.get(self._bias))
        cap = self._part.get("softcap")
        return logits if cap is None else cap * torch.tanh(logits / cap)


def _read_sites(part: Any) -> Iterator[str]:
    """The paths of all sites that parts inside this part of a stack read."""
    if isinstance(part, list):
        for inner in part:
            yield from _read_sites(inner)
    elif isinstance(part, Mapping):
        if "site" in part.get("read", ()):
            yield part["read"]["site"]
        for inner in part.values():
            yield from _read_sites(inner)


def _random(shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Uniform numbers on [0, 1)."""
    of = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=of, dtype=torch.float64).to(device)


def _gaussian(
    shape: tuple[int, ...], correlation: float, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """N(0, 1) entries, shape (batch, tokens, features), correlated between tokens."""
    of = device if generator is None else generator.device
    own = torch.randn(shape, generator=generator, device=of)
    common = torch.randn((shape[0], 1, *shape[2:]), generator=generator, device=of)
    mixed: Tensor = math.sqrt(correlation) * common + math.sqrt(1.0 - correlation) * own
    return mixed.to(device)
