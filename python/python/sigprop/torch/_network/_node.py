"""What all modules of a network have in common: a place in the stack, and what they are run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

# A part of a stack, as its file has it.
Part = Mapping[str, Any]


def variant(value: str | Part) -> tuple[str, Any]:
    """Which of several things a part of a stack is, and what it has.

    >>> variant({"leaky_relu": {"slope": 0.1}}), variant("relu")
    (('leaky_relu', {'slope': 0.1}), ('relu', {}))
    """
    if isinstance(value, str):
        return value, {}
    [(kind, inner)] = value.items()
    return kind, inner


@dataclass(frozen=True)
class Drawn:
    """What a parameter starts with: of experts as many as there are, along the first axis."""

    shape: tuple[int, ...]
    # As stacks have it, or {"constant": {"value": ...}}.
    init: str | Part
    # Whether predictions have its gradient.
    is_told: bool = True

    @torch.no_grad()
    def into(self, parameter: Tensor, generator: torch.Generator | None) -> None:
        """Draws the parameter in place, on the device of the generator."""
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
        else:
            raise ValueError(f"init: expected a distribution of stacks, got {kind}")
        if drawn is not parameter:
            parameter.copy_(drawn)


@dataclass(frozen=True)
class Shape:
    """Of the tokens of one sequence."""

    seq_len: int
    width: int


@dataclass(frozen=True)
class Place:
    """Where a node stands, and where it says what parameters it has."""

    site: str
    # By name, of the whole network.
    drawn: dict[str, Drawn]
    # Of the ends of the streams before.
    memories: tuple[Shape, ...] = ()
    # Of mixtures around the node, the outermost first.
    experts: tuple[int, ...] = ()
    # Whether factors on residual branches are parameters.
    learns_scales: bool = False

    def inside(self, name: str) -> Place:
        return replace(self, site=f"{self.site}.{name}" if self.site else name)

    def of_experts(self, count: int) -> Place:
        return replace(self, experts=(*self.experts, count))

    def tensor(self, tensor: Part, *shape: int, is_told: bool = True) -> str:
        """Takes down a tensor; those of one name are one. Returns the name."""
        name: str = tensor["name"]
        drawn = Drawn((*self.experts, *shape), tensor["init"], is_told)
        if self.drawn.setdefault(name, drawn) != drawn:
            raise ValueError(f"{self.site}: {name}: expected one shape and one distribution per name, got several")
        return name

    def bias(self, tensor: Part | None, width: int) -> str | None:
        return None if tensor is None else self.tensor(tensor, width)


@dataclass
class Run:
    """What the modules of a network share while it runs."""

    # By the name that the stack has for it.
    parameter: Callable[[str], Tensor]
    # Something of the type and on the device of the network.
    like: Tensor
    # The outputs of the streams before.
    memories: list[Tensor] = field(default_factory=list)
    # Which expert is running, of the outermost mixture first.
    expert: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> Tensor:
        parameter = self.parameter(name)
        return parameter[self.expert] if self.expert else parameter

    def get(self, name: str | None) -> Tensor | None:
        return None if name is None else self[name]


class Node(nn.Module):
    """A node of a stack: tokens to tokens, shape (batch, tokens, features)."""

    def __init__(self, site: str, shape: Shape) -> None:
        super().__init__()
        self.site = site
        # Of what it puts out.
        self.shape = shape

    def forward(self, x: Tensor, run: Run) -> Tensor:
        y = self.apply_to(x, run)
        # A tensor of its own, so that hooks see the gradient that reaches this node alone.
        return y.view_as(y) if y is x else y

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"width={self.shape.width}"

    def is_told(self, x: Tensor, run: Run) -> bool:
        """Whether what it was called with is to be measured: of experts only the first is."""
        return not any(run.expert)


class Group(nn.Module):
    """What has names that begin alike: `network.blocks[1]` is `network.get_submodule("blocks.1")`."""

    def __getitem__(self, number: int) -> nn.Module:
        return self.get_submodule(str(number))

    def __len__(self) -> int:
        return len(self._modules)


def in_heads(x: Tensor, count: int) -> Tensor:
    """The features of a signal cut into so many heads, shape (…, heads, features of one)."""
    return x.reshape(*x.shape[:-1], count, -1)


def add(module: nn.Module, name: str, value: nn.Module | nn.Parameter) -> None:
    """Gives a module a part whose name may have dots."""
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
