"""The plan of a traced module: the initialisation of every parameter, by its name in the module."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from typing import Any

from .._commands import predict
from ._trace import Traced

_Part = dict[str, Any]


def traced_plan(traced: Traced, scheme: str | None) -> dict[str, Any]:
    """The plan of a traced module for a scheme, or with the distributions of its present parameters.

    Parts of a parameter have their `indices` along its axis. Parameters that tensors of the stack hold along several axes are left
    out. The residual connections are those whose scales the scheme changes.
    """
    before, after = _of_stack(traced, None), _of_stack(traced, scheme)
    old, new = _by_name(before), _by_name(after)
    found: dict[str, dict[str, Any]] = {}
    several_axes = set()
    for name, weight in traced.weights.items():
        origin = weight.origin
        if origin is None:
            continue
        part = {**new(name), "parameter": name}
        if scheme is not None and name.endswith(".gain") and part["distribution"] == "constant":
            # Gains start at 1, times the factor of the scheme.
            part["value"] /= old(name)["value"] or 1.0
        is_position = name in traced.roles and traced.roles[name].name == "positions"
        # Rows of positions after the traced length belong to the table.
        if origin.indices is not None and not is_position:
            part["indices"] = list(origin.indices)
        entry = found.setdefault(origin.parameter, {"name": origin.parameter, "axis": origin.axis, "groups": 1, "parts": []})
        entry["parts"].append(part)
        if entry["axis"] != origin.axis:
            several_axes.add(origin.parameter)
    return {
        **after,
        "parameters": [entry for parameter, entry in found.items() if parameter not in several_axes],
        "residual": [scales for scales in after["residual"] if scales not in before["residual"]],
    }


def _of_stack(traced: Traced, scheme: str | None) -> dict[str, Any]:
    """The plan with the names of the stack."""
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "plan.json")
        flags: dict[str, Any] = {"stack": traced.stack, "scheme": scheme, "theory": "mean-field", "export": path}
        predict(**flags)
        with open(path) as file:
            plan: dict[str, Any] = json.load(file)
            return plan


def _by_name(plan: dict[str, Any]) -> Callable[[str], _Part]:
    """Returns the part of a plan that is a tensor, by the name of the tensor."""
    patterns = [re.compile(re.escape(planned["name"]).replace(r"\*", r"\d+")) for planned in plan["parameters"]]

    def part(name: str) -> _Part:
        places = (place for place, pattern in enumerate(patterns) if pattern.fullmatch(name))
        [found] = plan["parameters"][next(places)]["parts"]
        return {**found}

    return part
