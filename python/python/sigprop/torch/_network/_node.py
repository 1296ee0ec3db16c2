"""Common parts of all modules of a network: their place in the stack, and the state while they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

# A part of a stack, in the format of its file.
Part = Mapping[str, Any]


def variant(value: str | Part) -> tuple[str, Any]:
    """The kind of a part of a stack, and its content.

    >>> variant({"leaky_relu": {"slope": 0.1}}), variant("relu")
    (('leaky_relu', {'slope': 0.1}), ('relu', {}))
    """
    if isinstance(value, str):
        return value, {}
    [(kind, inner)] = value.items()
    return kind, inner


@dataclass(frozen=True)
class Drawn:
    """The shape and distribution of a parameter. Parameters of experts are stacked along the first axis."""

    shape: tuple[int, ...]
    # A distribution of stacks, {"constant": {"value": ...}}, or {"log_rate": ...} and {"step_bias": ...} of recurrences.
    init: str | Part
    # True if predictions have its gradient.
    is_told: bool = True

    @torch.no_grad()
    def into(self, parameter: Tensor, generator: torch.Generator | None) -> None:
        """Samples the parameter in place, on the device of the generator."""
        drawn = parameter if generator is None else torch.empty_like(parameter, device=generator.device)
        kind, init = variant(self.init)
        if kind == "zero":
            drawn.zero_()
        elif kind == "constant":
            drawn.fill_(init["value"])
        elif kind == "normal":
            drawn.normal_(0.0, init["std"], generator=generator)
        elif kind == "uniform":
            drawn.uniform_(-init["bound"], init["bound"], generator=generator)
        elif kind == "truncated_normal":
            std, bound = init["std"], init["std"] * init["cutoff"]
            nn.init.trunc_normal_(drawn, 0.0, std, -bound, bound, generator=generator)
        elif kind == "orthogonal":
            for matrix in drawn.view(-1, *drawn.shape[-2:]):
                # QR decompositions need at least float32.
                full = torch.empty_like(matrix, dtype=torch.promote_types(matrix.dtype, torch.float32))
                gain = init["std"] * math.sqrt(max(matrix.shape))
                matrix.copy_(nn.init.orthogonal_(full, gain, generator=generator))
        elif kind == "log_rate":
            _into_log_rates(drawn, *variant(init), generator)
        elif kind == "step_bias":
            _into_step_biases(drawn, *variant(init), generator)
        else:
            raise ValueError(f"init: expected a distribution of stacks, got {kind}")
        if drawn is not parameter:
            parameter.copy_(drawn)


def _into_log_rates(drawn: Tensor, kind: str, rates: Part, generator: torch.Generator | None) -> None:
    """ln A, with A = 1, 2, … over the last axis, or uniform."""
    if kind == "counted":
        drawn.copy_(torch.arange(1, drawn.shape[-1] + 1).log().expand_as(drawn))
    else:
        drawn.uniform_(rates["low"], rates["high"], generator=generator).log_()


def _into_step_biases(drawn: Tensor, kind: str, bias: Any, generator: torch.Generator | None) -> None:
    """b, which is a number, or has a log-uniform softplus(b)."""
    if kind == "value":
        drawn.fill_(bias)
    else:
        steps = drawn.uniform_(math.log(bias["low"]), math.log(bias["high"]), generator=generator).exp()
        drawn.copy_(steps + steps.neg().expm1().neg().log())


@dataclass(frozen=True)
class Shape:
    """The shape of the tokens of one sequence."""

    seq_len: int
    width: int


@dataclass(frozen=True)
class Place:
    """The place of a node in the stack, where it registers its parameters."""

    site: str
    # The path of the site that owns the parameters without names of their own: gains and biases of norms, scales.
    owner: str
    # The parameters of the whole network, by name.
    drawn: dict[str, Drawn]
    # The shapes of the ends of the streams before, and of the sites so far.
    memories: tuple[Shape, ...] = ()
    sites: dict[str, Shape] = field(default_factory=dict)
    # The numbers of experts of the mixtures around the node, the outermost first.
    experts: tuple[int, ...] = ()
    # True if factors on residual branches are parameters.
    learns_scales: bool = False

    def inside(self, name: str, shared_with: str | None = None) -> Place:
        site, owner = (f"{path}.{name}" if path else name for path in (self.site, self.owner))
        return replace(self, site=site, owner=shared_with or owner)

    def of_experts(self, count: int) -> Place:
        return replace(self, experts=(*self.experts, count))

    def tensor(self, tensor: Part, *shape: int, is_told: bool = True) -> str:
        """Registers a tensor and returns its name. Tensors with one name are one tensor."""
        name: str = tensor["name"]
        drawn = Drawn((*self.experts, *shape), tensor["init"], is_told)
        if self.drawn.setdefault(name, drawn) != drawn:
            raise ValueError(f"{self.site}: {name}: expected one shape and one distribution per name, got several")
        return name

    def bias(self, tensor: Part | None, width: int) -> str | None:
        return None if tensor is None else self.tensor(tensor, width)


@dataclass
class Run:
    """The state that the modules of a network share while it runs."""

    # Returns a parameter by its name in the stack.
    parameter: Callable[[str], Tensor]
    # A tensor with the type and device of the network.
    like: Tensor
    # The outputs of the streams before.
    memories: list[Tensor] = field(default_factory=list)
    # The outputs of the sites that parts read; None before they have run.
    sites: dict[str, Tensor | None] = field(default_factory=dict)
    # The indices of the running experts, the outermost mixture first.
    expert: tuple[int, ...] = ()
    # True inside experts whose inputs are multiplied by their weights.
    is_weighed: bool = False

    def __getitem__(self, name: str) -> Tensor:
        parameter = self.parameter(name)
        return parameter[self.expert] if self.expert else parameter

    def get(self, name: str | None) -> Tensor | None:
        return None if name is None else self[name]


class Node(nn.Module):
    """A node of a stack. It maps tokens to tokens, shape (batch, tokens, features)."""

    def __init__(self, site: str, shape: Shape) -> None:
        super().__init__()
        self.site = site
        # The shape of its output.
        self.shape = shape

    def forward(self, x: Tensor, run: Run) -> Tensor:
        y = self.apply_to(x, run)
        # A tensor of its own, so that hooks see the gradient that reaches this node alone.
        y = y.view_as(y) if y is x else y
        if self.site in run.sites:
            run.sites[self.site] = y
        return y

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"width={self.shape.width}"

    def is_told(self, x: Tensor, run: Run) -> bool:
        """True if the call is to be measured. Of the experts of a mixture only the first is, and none with weighed inputs."""
        return not any(run.expert) and not run.is_weighed


class Group(nn.Module):
    """Modules whose names begin with the same prefix: `network.blocks[1]` is `network.get_submodule("blocks.1")`."""

    def __getitem__(self, number: int) -> nn.Module:
        return self.get_submodule(str(number))

    def __len__(self) -> int:
        return len(self._modules)


def in_heads(x: Tensor, count: int) -> Tensor:
    """Splits the features of a signal into this number of heads, shape (…, heads, features of one)."""
    return x.reshape(*x.shape[:-1], count, -1)


def add(module: nn.Module, name: str, value: nn.Module | nn.Parameter) -> None:
    """Adds a submodule or parameter to a module, under a name that may have dots."""
    *path, last = name.split(".")
    for step in path:
        if step not in module._modules:
            _refuse_taken(module, step, name)
            module.add_module(step, Group())
        module = module.get_submodule(step)
    _refuse_taken(module, last, name)
    if isinstance(value, nn.Parameter):
        module.register_parameter(last, value)
    else:
        module.add_module(last, value)


def _refuse_taken(module: nn.Module, step: str, name: str) -> None:
    if hasattr(module, step):
        raise ValueError(f"{name}: expected a name that modules of PyTorch do not have themselves, got {step}")
