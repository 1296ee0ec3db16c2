"""Formulas as activations: as functions of tensors, and read from the operations of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sigprop.torch
from sigprop.torch._network._components import ACTIVATIONS
from sigprop.torch._network._expression import expression


class Network(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 8)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("relu2", "relu(x)^2"),
        ("gelu", "x*(1 + erf(x/sqrt(2)))/2"),
        ("gelu_tanh", "x/2*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"),
        ("mish", "x*tanh(softplus(x))"),
        ("hard_swish", "x*min(max(x + 3, 0), 6)/6"),
        ("elu", "max(x, 0) + expm1(min(x, 0))"),
        ("sigmoid", "1/(1 + e^-x)"),
    ],
)
def test_formulas_of_activations_have_their_values(name: str, text: str) -> None:
    x = torch.linspace(-6.0, 6.0, 101, dtype=torch.float64)
    torch.testing.assert_close(expression(text)(x), ACTIVATIONS[name](x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", ["y", "x if x else 1", "__import__('os')", "x.abs()", "sin(x=x)", "x and x", "(1).real"])
def test_other_code_is_no_formula(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        expression(text)(torch.zeros(1))


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (lambda x: F.relu(x) ** 3, ["relu(x) ^ 3"]),
        (lambda x: x * torch.sigmoid(1.3 * x), ["x * sigmoid(x * 1.3)"]),
        (lambda x: x + torch.sin(x) ** 2, ["x + sin(x) ^ 2"]),
        (lambda x: torch.exp(-(x**2)), ["exp(-x ^ 2)"]),
        (lambda x: x / (1 + x.abs()), ["x / (abs(x) + 1)"]),
        # The factor is a scale, and x sigmoid(x) is SiLU.
        (lambda x: torch.sin(30.0 * x), ["sin(x)"]),
        (lambda x: x * torch.sigmoid(x), []),
    ],
)
def test_operations_become_a_formula(function: Callable[[Tensor], Tensor], texts: list[str]) -> None:
    traced = sigprop.torch.trace(Network(function), torch.randn(4, 16))
    assert list(_formulas(traced.stack)) == texts


def _formulas(part: Any) -> Any:
    if isinstance(part, dict):
        for name, inner in part.items():
            if name == "expression":
                yield inner
            else:
                yield from _formulas(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _formulas(inner)
