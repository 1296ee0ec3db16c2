"""The plan of a traced module: the initialisation of every parameter, by its name in the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ._network import Network
from ._network._node import Part, variant
from ._trace import Traced

_EQUAL_RATES = {"sgd": 1.0, "adam": 1.0}


def traced_plan(traced: Traced, initialised: Mapping[str, Any], scheme: str | None) -> dict[str, Any]:
    """The plan of a traced module, whose stack has the distributions of the scheme in `initialised`. Without a scheme, they are
    those that the module holds."""
    before, after = Network(traced.stack), Network(initialised)
    inits = after.initialisations()
    if scheme is not None:
        # Gains start at 1, times the factor of the scheme.
        for name, init in before.initialisations().items():
            kind, old = variant(init)
            if kind == "constant":
                inits[name] = {"constant": {"value": variant(inits[name])[1]["value"] / (old["value"] or 1.0)}}
    rates = after.stack.get("learning_rates", {})
    return {"parameters": _parameters(traced, inits, rates), "residual": _changed(before, after)}


def _parameters(
    traced: Traced, inits: Mapping[str, str | Part], rates: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """An entry for every parameter with parts that are tensors of the stack, all along one axis."""
    found: dict[str, dict[str, Any]] = {}
    several_axes = set()
    for name, weight in traced.weights.items():
        origin = weight.origin
        if origin is None:
            continue
        # Norms have biases of zero that no stack has.
        part = {"parameter": name, **_distribution(inits.get(name, "zero")), "learning_rates": rates.get(name, _EQUAL_RATES)}
        is_position = name in traced.roles and traced.roles[name].name == "positions"
        # Rows of positions after the traced length belong to the table.
        if origin.indices is not None and not is_position:
            part["indices"] = list(origin.indices)
        entry = found.setdefault(origin.parameter, {"name": origin.parameter, "axis": origin.axis, "groups": 1, "parts": []})
        entry["parts"].append(part)
        if entry["axis"] != origin.axis:
            several_axes.add(origin.parameter)
    return [entry for parameter, entry in found.items() if parameter not in several_axes]


def _distribution(init: str | Part) -> dict[str, Any]:
    """A distribution of stacks, or a constant, as plans have it."""
    kind, of = variant(init)
    if kind in ("zero", "constant"):
        return {"distribution": "constant", "value": of.get("value", 0.0)}
    if kind == "uniform":
        return {"distribution": kind, "std": of["bound"] / 3**0.5, "bounds": [-of["bound"], of["bound"]]}
    if kind == "truncated_normal":
        cut = torch.tensor(of["cutoff"], dtype=torch.float64)
        density = torch.exp(-(cut**2) / 2) / (2 * torch.pi) ** 0.5
        std = float(of["std"] * (1 - 2 * cut * density / torch.erf(cut / 2**0.5)).sqrt())
        bound = of["std"] * of["cutoff"]
        return {"distribution": kind, "std": std, "untruncated_std": of["std"], "bounds": [-bound, bound]}
    return {"distribution": kind, "std": of["std"]}


def _changed(before: Network, after: Network) -> list[dict[str, Any]]:
    """The residual connections whose factors a scheme changes, which the module must apply itself."""
    old = before.scales()
    return [
        {"site": site, "skip": scales[0], "branches": scales[1:]}
        for site, scales in after.scales().items()
        if any(abs(new - one) > 1e-6 * abs(one) for new, one in zip(scales, old[site], strict=True))
    ]
