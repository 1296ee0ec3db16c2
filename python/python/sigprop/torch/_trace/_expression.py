"""Elementwise functions that are none of the known ones, as formulas of the operations that were traced."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from .._network._expression import expression as function_of
from ._components import Activation
from ._constants import MOVEMENT, operation
from ._layout import Signal
from ._step import EXACT, Found, Step, close

# The formula of an operation, given those of its arguments. Missing arguments have the values of torch.
_FORMULAS: dict[str, Callable[..., str]] = {
    **{name: lambda u, name=name: f"{name}({u})" for name in "abs sqrt exp expm1 log log1p sin cos atan tanh erf sigmoid relu silu".split()},
    "add": lambda u, v, alpha="1": f"({u} + {_times(alpha, v)})",
    "sub": lambda u, v, alpha="1": f"({u} - {_times(alpha, v)})",
    "rsub": lambda u, v, alpha="1": f"({v} - {_times(alpha, u)})",
    "mul": lambda u, v: f"({u}*{v})",
    "div": lambda u, v: f"({u}/{v})",
    "neg": lambda u: f"(-{u})",
    "pow": lambda u, v: f"({u}**{v})",
    "square": lambda u: f"({u}**2)",
    "reciprocal": lambda u: f"(1/{u})",
    "rsqrt": lambda u: f"(1/sqrt({u}))",
    "exp2": lambda u: f"(2**{u})",
    "maximum": lambda u, v: f"max({u}, {v})",
    "minimum": lambda u, v: f"min({u}, {v})",
    "clamp": lambda u, low=None, high=None: _clamped(u, low, high),
    "clamp_min": lambda u, low: _clamped(u, low, None),
    "clamp_max": lambda u, high: _clamped(u, None, high),
    "hardtanh": lambda u, low="(-1)", high="1": _clamped(u, low, high),
    "relu6": lambda u: _clamped(u, "0", "6"),
    "gelu": lambda u, approximate="none": f"gelu({u})" if approximate == "none" else _gelu_tanh(u),
    "softplus": lambda u, beta="1": f"(softplus({_times(beta, u)})/{beta})",
    "log_sigmoid": lambda u: f"(-softplus(-{u}))",
    "mish": lambda u: f"({u}*tanh(softplus({u})))",
    "hardsigmoid": lambda u: f"({_clamped(f'({u} + 3)', '0', '6')}/6)",
    "hardswish": lambda u: f"({u}*{_clamped(f'({u} + 3)', '0', '6')}/6)",
    "elu": lambda u, alpha="1": f"(relu({u}) + {_times(alpha, f'expm1(min({u}, 0))')})",
    "leaky_relu": lambda u, slope="0.01": f"(relu({u}) + {slope}*min({u}, 0))",
}
_SAME = {"logsigmoid": "log_sigmoid", "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub", "negative": "neg"}
# Operations whose result is the last argument that they move, if it has the shape of the step.
_UNCHANGED = MOVEMENT & frozenset("clone detach alias to _to_copy contiguous float dropout_of_nothing lift_fresh_copy".split())
_AFFINE = ("add", "sub", "rsub", "mul", "div", "neg")
_TOLERANCE = 5e-5


def expression(step: Step) -> Found | None:
    """φ(x), a formula of the operations of the step."""
    formulas: dict[fx.Node, str] = {}
    for node in step.nodes:
        if operation(node) in _UNCHANGED:
            formulas[node] = _formula(step, formulas, node.args[0])
            continue
        name = operation(node).removesuffix("_")
        formula = _FORMULAS.get(_SAME.get(name, name))
        arguments = [_formula(step, formulas, argument) for argument in node.args]
        named = {key: _formula(step, formulas, value) for key, value in node.kwargs.items()}
        if formula is None or not all([*arguments, *named.values()]):
            return None
        try:
            formulas[node] = formula(*(each for each in arguments if each != "None"), **named)
        except TypeError:
            return None
        # A factor or a shift before a function is a step of its own.
        if node is step.nodes[0] and len(step.nodes) > 1 and name in _AFFINE and _readers(step, node) == 1:
            return None
    text = ast.unparse(ast.parse(formulas[step.nodes[-1]], mode="eval")).replace("**", "^")
    if not _agrees(step, text):
        return None
    return Found(Signal(step.make(Activation, step.signal.component, function={"expression": text}), step.signal.entries), EXACT)


def _readers(step: Step, node: fx.Node) -> int:
    """The number of operations of a step that read the signal before it."""
    start = next(each for each in node.all_input_nodes if not step.constants.is_constant(each))
    return sum(start in each.all_input_nodes for each in step.nodes)


def _agrees(step: Step, text: str) -> bool:
    function = function_of(text)
    for x in (step.random(seed=4), step.random(4.0, seed=5)):
        y = step.run(x)
        if not isinstance(y, Tensor) or not bool(torch.isfinite(y).all()) or not close(y, function(x), _TOLERANCE):
            return False
    return True


def _formula(step: Step, formulas: dict[fx.Node, str], argument: Any) -> str:
    """The formula of an argument; empty if it is none."""
    if isinstance(argument, fx.Node):
        if argument in formulas:
            return formulas[argument]
        if not step.constants.is_constant(argument):
            return "x"
        argument = step.constants.values[argument]
        if isinstance(argument, Tensor):
            if not argument.numel() or not bool((argument == argument.flatten()[0]).all()):
                return ""
            argument = float(argument.flatten()[0])
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return f"{argument:.9g}" if argument >= 0 else f"(-{-argument:.9g})"
    return str(argument) if argument is None or isinstance(argument, str) else ""


def _times(factor: str, formula: str) -> str:
    return formula if factor == "1" else f"({factor}*{formula})"


def _clamped(formula: str, low: str | None, high: str | None) -> str:
    above = formula if low is None else f"max({formula}, {low})"
    return above if high is None else f"min({above}, {high})"


def _gelu_tanh(u: str) -> str:
    return f"({u}/2*(1 + tanh(sqrt(2/pi)*({u} + 0.044715*{u}**3))))"
