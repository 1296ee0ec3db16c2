"""Predictions and initialisations of live modules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import _commands
from .._results import Prediction
from .._table import Table
from ._apply import Applied, refuse
from ._build import whole_stack
from ._network._node import Drawn
from ._structure import uncompiled
from ._trace import trace


def predict(module: nn.Module, *args: Any, seq_len: int | None = None, **flags: Any) -> Prediction:
    """Predicts the signals and gradients of a live module, whatever its code, with the weights that it holds.

    >>> import torch
    >>> module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    >>> predict(module, torch.randn(32, 64))["site"].tolist()
    ['embeddings', '0', '1', '2']
    >>> round(float(predict(module, torch.randn(32, 64), scheme="xavier")["variance"][1]), 2)
    1.0

    Args:
        module: Any module that `trace` reads.
        args: The arguments of the module.
        seq_len: Tokens of a sequence of ids [default: as many as are given].
        flags: Tensors are arguments of the module, by name. All others are flags of `sigprop.predict`: `sites="all"`,
            `weights=True`, `head="own"`. `scheme="gpt2"` predicts the module as that scheme would initialise it. Flags that
            describe a network are refused.

    Warns:
        UserWarning: For every note of the trace, such as weights that are equal to others.

    Raises:
        ValueError: If stacks cannot describe the module (`TraceError`), or if the command refuses the flags.
    """
    stack, others = _read(module, args, seq_len, flags)
    return _commands.predict(**{"stack": stack, **others})


def _read(
    module: nn.Module, args: tuple[Any, ...], seq_len: int | None, flags: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stack of a module, and the flags of the command among the flags. Warns of the notes of the trace."""
    given = {name: value for name, value in flags.items() if isinstance(value, Tensor)}
    traced = trace(module, *args, **given)
    for note in traced.notes:
        warnings.warn(note, stacklevel=3)
    return traced.at_length(seq_len), {name: value for name, value in flags.items() if name not in given}


class Comparison(Table):
    """Schemes on one module, the best first: scheme, grade, headline, and variance, token correlation and gradient variance."""

    __slots__ = ("predictions",)

    def __init__(self, predictions: Mapping[str, Prediction]) -> None:
        # By the name of the scheme.
        self.predictions = dict(predictions)
        order = ["healthy", "trainable_with_care", "not_trainable"]
        rows = [_row(scheme, prediction) for scheme, prediction in predictions.items()]
        super().__init__(sorted(rows, key=lambda row: order.index(row["grade"])))


def _row(scheme: str, prediction: Prediction) -> dict[str, Any]:
    """The end of the last block forward, the input of the first one backward."""
    last = max((number for number, site in enumerate(prediction["site"]) if str(site).rpartition(".")[2].isdigit()), default=-1)
    return {
        "scheme": scheme,
        "grade": prediction.grade,
        "headline": prediction.verdict,
        "variance": float(prediction["variance"][last]),
        "token_correlation": float(prediction["token_correlation"][last]),
        "grad_variance": float(prediction["grad_variance"][0]),
    }


def compare(module: nn.Module, *args: Any, schemes: Sequence[str], seq_len: int | None = None, **flags: Any) -> Comparison:
    """Predicts a live module as several schemes would initialise it.

    >>> module = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())))
    >>> compare(module, torch.randn(32, 64), schemes=["kaiming", "normal:1"])["grade"].tolist()
    ['healthy', 'not_trainable']

    Args:
        module: Any module that `trace` reads.
        args: The arguments of the module.
        schemes: Schemes as `sigprop.schemes()` lists them.
        seq_len: Tokens of a sequence of ids [default: as many as are given].
        flags: As for `predict`, without `scheme`.

    Raises:
        ValueError: If stacks cannot describe the module (`TraceError`), or if the command refuses a scheme or the flags.
    """
    stack, others = _read(module, args, seq_len, flags)
    return Comparison({scheme: _commands.predict(**{"stack": stack, "scheme": scheme, **others}) for scheme in schemes})


def init_(
    module: nn.Module,
    *args: Any,
    scheme: str,
    generator: torch.Generator | None = None,
    strict: bool = True,
    dry_run: bool = False,
    **tensors: Tensor,
) -> Applied:
    """Initialises the parameters of a live module in place by a scheme, from the roles that `trace` finds for them.

    >>> module = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    >>> applied = init_(module, torch.randn(16, 64), scheme="kaiming")
    >>> applied["name"].tolist()
    ['0.weight', '0.bias', '2.weight', '2.bias']

    Args:
        module: Any module that `trace` reads.
        args: The arguments of the module, to run it once.
        scheme: A scheme as `sigprop.schemes()` lists them.
        generator: The generator of the random numbers [default: that of torch].
        strict: Refuse, before anything is changed, a module with parameters that the stack does not have, and a scheme with
            scales of residual connections that the module must apply itself.
        dry_run: Change nothing; `std` is then that of the present parameters.
        tensors: Arguments of the module by name.

    Raises:
        ValueError: If stacks cannot describe the module, if it is on the meta device, if the command refuses the scheme, or if
            `strict` refuses the module.
    """
    parameters = dict(uncompiled(module).named_parameters())
    without_values = [name for name, parameter in parameters.items() if parameter.is_meta]
    if without_values:
        raise ValueError(f"{without_values[0]}: expected a parameter with memory, got one on the meta device; module.to_empty() first")
    traced = trace(module, *args, **tensors)
    initialised = whole_stack(traced.stack, scheme, {})
    drawn, before = dict(_distributions(initialised)), dict(_distributions(traced.stack))
    for name in drawn:
        if name.endswith(".gain"):
            # Gains start at 1, times the factor of the scheme.
            drawn[name] = {"constant": {"value": drawn[name]["constant"]["value"] / (before[name]["constant"]["value"] or 1.0)}}
    reached = {weight.origin.parameter for weight in traced.weights.values() if weight.origin is not None}
    report: dict[str, Any] = {
        "drawn": [],
        "unmatched": [name for name in parameters if name not in reached],
        "missing": [],
        "standardised": [],
        "residual": [{"site": site} for site in _changed_sums(traced.stack, initialised)],
    }
    if strict:
        refuse(Applied(report))
    for name, weight in traced.weights.items():
        if weight.origin is None or weight.origin.parameter not in parameters:
            continue
        parameter = parameters[weight.origin.parameter]
        init = drawn.get(name, "zero")
        if not dry_run:
            _draw(parameter, weight.origin.axis, weight.origin.indices, init, generator)
        std = float(_part(parameter, weight.origin.axis, weight.origin.indices).detach().float().std(correction=0))
        report["drawn"].append((weight.origin.parameter, name, _std(init), std))
    return Applied(report)


def _distributions(part: Any, site: str = "") -> Iterator[tuple[str, Any]]:
    """The distributions of all tensors of a part of a stack, and the gains of norms, by name."""
    if isinstance(part, list):
        for inner in part:
            yield from _distributions(inner, site)
    elif isinstance(part, dict):
        if "init" in part and "name" in part:
            yield part["name"], part["init"]
        if "op" in part:
            site = f"{site}.{part['name']}" if site else part["name"]
        elif "body" in part and "source" in part:
            site = ""
        if "norm" in part and "gain" in part["norm"]:
            yield f"{site}.gain", {"constant": {"value": part["norm"]["gain"]}}
        for inner in part.values():
            yield from _distributions(inner, site)


def _changed_sums(before: Any, after: Any, site: str = "") -> list[str]:
    """The sites of residual connections whose scales differ."""
    if isinstance(before, list):
        return [found for one, other in zip(before, after, strict=True) for found in _changed_sums(one, other, site)]
    if not isinstance(before, dict):
        return []
    if "op" in before:
        site = f"{site}.{before['name']}" if site else before["name"]
    if "sum" in before:
        scales = [[branch["scale"] for branch in part["sum"]["branches"]] for part in (before, after)]
        if any(abs(one - other) > 1e-6 * abs(one) for one, other in zip(*scales, strict=True)):
            return [site, *_changed_sums(before["sum"], after["sum"], site)]
    return [found for name, inner in before.items() if name in after for found in _changed_sums(inner, after[name], site)]


@torch.no_grad()
def _draw(
    parameter: Tensor, axis: int, indices: tuple[int, ...] | None, init: Any, generator: torch.Generator | None
) -> None:
    part = _part(parameter, axis, indices)
    values = torch.empty_like(part)
    Drawn(tuple(part.shape), init).into(values, generator)
    if indices is None:
        parameter.copy_(values)
    else:
        parameter.index_copy_(axis, torch.tensor(indices, device=parameter.device), values)


def _part(parameter: Tensor, axis: int, indices: tuple[int, ...] | None) -> Tensor:
    return parameter if indices is None else parameter.index_select(axis, torch.tensor(indices, device=parameter.device))


def _std(init: Any) -> float:
    """The standard deviation of the entries around zero of a distribution; of gains, their value."""
    if init == "zero":
        return 0.0
    [(kind, of)] = init.items()
    if kind == "uniform":
        return float(of["bound"] / 3**0.5)
    if kind == "truncated_normal":
        cut = torch.tensor(of["cutoff"], dtype=torch.float64)
        density = torch.exp(-(cut**2) / 2) / (2 * torch.pi) ** 0.5
        return float(of["std"] * (1 - 2 * cut * density / torch.erf(cut / 2**0.5)).sqrt())
    return float(of["value"] if kind == "constant" else of["std"])
