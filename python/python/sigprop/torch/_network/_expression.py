"""Formulas in one variable, such as `x*sigmoid(1.3*x)`, as functions of tensors."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_CONSTANTS = {"pi": math.pi, "e": math.e}
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "min": torch.minimum,
    "max": torch.maximum,
}
_OPERATIONS: dict[type[ast.operator] | type[ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def expression(text: str) -> Callable[[Tensor], Tensor]:
    """The function of a formula, whose operators have the precedence that they have in Python.

    >>> expression("-x^2 + relu(x)")(torch.tensor([-1.0, 3.0])).tolist()
    [-1.0, -6.0]
    """
    tree = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    return lambda x: _value(tree, x)


def _value(tree: ast.expr, x: Tensor) -> Tensor:
    """The value of a part of a formula, with the shape of x."""
    match tree:
        case ast.Name("x"):
            return x
        case ast.Name(name) if name in _CONSTANTS:
            return torch.full_like(x, _CONSTANTS[name])
        case ast.Constant(int() | float() as number):
            return torch.full_like(x, number)
        case ast.UnaryOp(operation, inner) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(inner, x))  # type: ignore[no-any-return]
        case ast.BinOp(base, ast.Pow(), ast.Constant(int() | float() as power)):
            return _value(base, x) ** power
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(left, x), _value(right, x))  # type: ignore[no-any-return]
        case ast.Call(ast.Name(name), [_, *_] as arguments, []) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, x) for argument in arguments))
    raise ValueError(f"activation: expected a formula of x, numbers, + - * / ^, pi, e and {', '.join(_FUNCTIONS)}, got {ast.unparse(tree)}")
