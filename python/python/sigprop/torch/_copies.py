"""Tensors of a module that have the values of others, as if layers were copies."""

from __future__ import annotations

from typing import Any

import torch

from ._trace import Traced
from ._trace._parts import renamed


def copies(traced: Traced) -> dict[str, str]:
    """The names of tensors in the stack that equal an earlier tensor, with the name of that one. Constant tensors do not count."""
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


def as_one(stack: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A stack in which copies have the name of their first, so that they are one tensor. It has no roles."""
    found: dict[str, Any] = renamed(stack, lambda name: names.get(name, name))
    return {key: part for key, part in found.items() if key != "roles"}
