"""The components that a traced module consists of: a graph whose arrows lead from a component to its inputs.

Every signal has `rows` tokens, those of one sequence after those of another, with `width` features each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """The part of a parameter that a weight is: the entries with these indices along one axis, in this order."""

    parameter: str
    axis: int
    # None means the whole axis.
    indices: tuple[int, ...] | None = None

    def within(self, parameter: Tensor) -> Tensor:
        """The part of a parameter, or of its gradient."""
        if self.indices is None:
            return parameter
        return parameter.index_select(self.axis, torch.tensor(self.indices, device=parameter.device))


@dataclass(eq=False)
class Weight:
    """A constant of the network that belongs to parameters of the module."""

    # As the component uses it: (fan_out, fan_in) for a linear map, (fan_out, kernel · fan_in) for a convolution, (rows, width)
    # for a table, (width,) for biases, gains and tokens.
    value: Tensor
    # The name in the stack: that of the parameter, with the rows if they are not all: "attn.c_attn.weight[0:64]".
    name: str
    # None if the value was computed from parameters by more than a choice of entries.
    origin: Origin | None


@dataclass(eq=False, kw_only=True)
class Component:
    """A signal, by the operation that computes it from the signals of its inputs."""

    inputs: list[Component] = field(default_factory=list)
    width: int
    rows: int
    # The path of the module, and file, line and text of its code.
    path: str = ""
    code: str = ""


@dataclass(eq=False, kw_only=True)
class Tokens(Component):
    """A source: rows of a table by token ids, shape (batch, tokens)."""

    table: Weight
    ids: Tensor


@dataclass(eq=False, kw_only=True)
class Vectors(Component):
    """A source: vectors that the module was given, shape (rows, width)."""

    value: Tensor


@dataclass(eq=False, kw_only=True)
class Linear(Component):
    """y = W x + b."""

    weight: Weight
    bias: Weight | None


@dataclass(eq=False, kw_only=True)
class Convolution(Component):
    """A convolution over tokens or pixels. A row of the weight has the taps one after the other, each with the features of its group."""

    weight: Weight
    bias: Weight | None
    fan_in: int
    kernel: int
    stride: int
    padding: int
    groups: int
    # True if the tokens after the last one, which padding adds, are cut off.
    causal: bool = False
    # Height and width of the images whose pixels are the tokens; None if tokens are those of a sequence.
    image: tuple[int, int] | None = None


@dataclass(eq=False, kw_only=True)
class Pool(Component):
    """The mean or the largest value of windows of pixels."""

    # As in stack files: "average", {"max": {"activation": "relu"}}.
    kind: str | dict[str, Any]
    kernel: int
    stride: int
    padding: int
    # Height and width of the images whose pixels are the tokens.
    image: tuple[int, int]


@dataclass(eq=False, kw_only=True)
class Norm(Component):
    """A norm over the features, or over groups of them that share gains and biases."""

    # As in stack files: "layernorm", "rmsnorm", {"batchnorm": {"training": True}}.
    kind: str | dict[str, Any]
    eps: float
    # Shape (width / groups,); None if there are none.
    gain: Weight | None
    bias: Weight | None
    groups: int = 1


@dataclass(eq=False, kw_only=True)
class Activation(Component):
    """An elementwise function, as in stack files: "gelu", {"leaky_relu": {"slope": 0.1}}."""

    function: str | dict[str, Any]


@dataclass(eq=False, kw_only=True)
class Scale(Component):
    """Multiplication by a number, which may be a parameter of one entry."""

    factor: float
    parameter: str | None = None


@dataclass(eq=False, kw_only=True)
class Gains(Component):
    """Multiplication of every feature by its own number (LayerScale)."""

    gain: Weight


@dataclass(eq=False, kw_only=True)
class Shift(Component):
    """Addition of one vector to every token."""

    vector: Weight


@dataclass(eq=False, kw_only=True)
class Positions(Component):
    """Addition of a row of a table to every token, by position."""

    table: Weight
    # The amplitude of the sinusoids of Vaswani et al. 2017, if rows are those; None if they are entries of a parameter.
    sinusoid: float | None = None


@dataclass(eq=False, kw_only=True)
class Rotary(Component):
    """Rotation of pairs of features of every head by position · frequency."""

    d_head: int
    frequencies: list[float]
    # Features of a head in the order of stacks: the first of every pair, the second of every pair, those without a rotation.
    order: list[int]


@dataclass(eq=False, kw_only=True)
class Prepend(Component):
    """A learned token before all others."""

    token: Weight


@dataclass(eq=False, kw_only=True)
class Dropout(Component):
    """Entries are zero with this probability."""

    rate: float


@dataclass(eq=False, kw_only=True)
class DropPath(Component):
    """Sequences are zero with this probability (stochastic depth)."""

    rate: float


@dataclass(eq=False, kw_only=True)
class Sum(Component):
    """Σ scale · input."""

    scales: list[float]


@dataclass(eq=False, kw_only=True)
class Product(Component):
    """The elementwise product of the inputs."""


@dataclass(eq=False, kw_only=True)
class Concat(Component):
    """The features of the inputs one after the other, in every head. An input that heads share is the same in all."""

    n_heads: int
    shared: list[bool]


@dataclass(eq=False, kw_only=True)
class Attention(Component):
    """Softmax attention. Its inputs are queries, keys and values."""

    n_heads: int
    n_kv_heads: int
    d_head: int
    d_value: int
    scale: float
    # As in stack files: {"before": 0, "after": 0}, without a key for no limit.
    mask: dict[str, int]
    softcap: float | None = None
    # As in stack files: {"alibi": {"slopes": [...]}}, or T5's table.
    bias: dict[str, Any] | None = None
    # T5's table; None if there is none.
    table: Weight | None = None
    # The logits of sinks, one per head; None if there are none.
    sink: Weight | None = None
    dropout: float = 0.0


@dataclass(eq=False, kw_only=True)
class Recurrence(Component):
    """S_t = e^(−rate) S_(t−1) + k_t v_tᵀ and y_t = scale · S_tᵀ q_t in every head. Its inputs are queries, keys and values."""

    n_heads: int
    d_key: int
    d_value: int
    scale: float
    # One per head.
    rates: list[float]


@dataclass(eq=False, kw_only=True)
class Mixture(Component):
    """scale · Σ weight · expert(x), or scale · Σ expert(weight · x), over the experts with the largest scores.

    Its inputs are x and the output of an expert, in whose maps the weights of all experts are stacked along the first axis.
    """

    n_experts: int
    top_k: int
    # As in stack files: "softmax" or "sigmoid".
    weighting: str
    # As in stack files: "outputs" or "inputs".
    weights_multiply: str
    normalised: bool
    scale: float
    # Shape (experts, width of x), and the path of its module.
    router: Weight
    router_path: str


class Refusal(Exception):
    """A place of the module that stacks cannot describe, or that was not recognised.

    Path and code are those of the place if it is known already.
    """

    def __init__(self, text: str, path: str = "", code: str = "") -> None:
        super().__init__(text)
        self.path, self.code = path, code


PADDING = "a mask that depends on the ids or differs between sequences (padding); expected sequences without padding"
