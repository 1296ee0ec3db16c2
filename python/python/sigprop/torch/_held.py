"""The weights that a module holds, as far as they are no initialisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ._apply import audit
from ._trace import Traced
from ._trace._parts import renamed

# Findings about weights that are no initialisation, and the caveats of predictions that take them for one.
_NO_INITIALISATION = frozenset(("not-finite", "copies", "deviation", "tails"))
_OF_WEIGHTS = frozenset(("dependent_weights", "heavy_tails", "mean_of_weights", "uneven_gains", "uneven_rows"))


@dataclass(frozen=True)
class Held:
    """Deviations of the weights of a module from an initialisation."""

    findings: list[str]
    # The caveats of a prediction that follow from them.
    caveats: list[dict[str, Any]]
    # The names of tensors in the stack that equal an earlier tensor, with the name of that one.
    copies: dict[str, str]

    @property
    def texts(self) -> list[str]:
        """The findings, and their effects on a prediction."""
        return [*self.findings, *(f"{each['site']}: {each['text']}. {each['advice']}" for each in self.caveats)]


def held(module: nn.Module, traced: Traced) -> Held:
    """Compares the weights of a module with independent entries of the same sizes.

    Raises:
        ValueError: If the command refuses them.
    """
    weights, copies = audit(module, traced), _copies(traced)
    findings = [finding["text"] for finding in weights.findings if finding["problem"] in _NO_INITIALISATION]
    # Copies that are one tensor have rules or a caveat of their own.
    kinds = _OF_WEIGHTS - ({"dependent_weights"} if copies else set())
    caveats = [caveat for caveat in (weights.prediction or weights).caveats if caveat["kind"] in kinds]
    return Held(findings, caveats, copies)


def as_one(stack: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A stack in which copies have the name of their first, so that they are one tensor."""
    found: dict[str, Any] = renamed(stack, lambda name: names.get(name, name))
    return {**found, "roles": {name: role for name, role in stack["roles"].items() if name not in names}}


def _copies(traced: Traced) -> dict[str, str]:
    """The names of tensors that equal an earlier one, with the name of that one. Constant tensors do not count."""
    firsts: dict[Any, list[str]] = {}
    found: dict[str, str] = {}
    for name, weight in traced.weights.items():
        value = weight.value
        if value.numel() < 2 or bool((value == value.flatten()[0]).all()):
            continue
        # Few tensors agree in these numbers, so that few are compared.
        alike = firsts.setdefault((tuple(value.shape), float(value.sum()), float(value.abs().max())), [])
        first = next((other for other in alike if torch.equal(traced.weights[other].value, value)), None)
        if first is None:
            alike.append(name)
        else:
            found[name] = first
    return found
