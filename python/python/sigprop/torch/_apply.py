"""Draws the parameters of a module, and looks at them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._call import Model
from .._commands import inspect
from .._results import Inspection
from .._table import Table
from ._structure import described, initialiser, planned_for, uncompiled


class Applied(Table):
    """What was drawn, parameter by parameter: name, tensor, planned_std, std."""

    __slots__ = ("missing", "residual", "standardised", "unmatched")

    def __init__(self, report: Mapping[str, Any]) -> None:
        names = ("name", "tensor", "planned_std", "std")
        super().__init__([dict(zip(names, drawn, strict=True)) for drawn in report["drawn"]])
        # Parameters that the plan does not know; planned names without a parameter; weights that are parametrised.
        self.unmatched: list[str] = report["unmatched"]
        self.missing: list[str] = report["missing"]
        self.standardised: list[str] = report["standardised"]
        # Scales of residual connections, which the module must apply itself.
        self.residual: list[dict[str, Any]] = report["residual"]


def apply_(
    model: nn.Module,
    plan_or_scheme: Mapping[str, Any] | str,
    generator: torch.Generator | None = None,
    strict: bool = True,
    dry_run: bool = False,
    config: Model | None = None,
) -> Applied:
    """Draws the parameters of a module in place, as a scheme or a plan says.

    Args:
        model: Any module whose parameters have the names of its configuration, behind any prefix.
        plan_or_scheme: A scheme as `sigprop.schemes()` lists them, or a plan (`sigprop.torch.plan`).
        generator: Of the random numbers; none is one with the seed 0.
        strict: Refuse, before anything is drawn, a module with parameters that the plan does not know, one that lacks
            some that it has, and a plan whose residual connections have scales that the module must apply itself.
        dry_run: Draw nothing; `std` is then that of the parameters as they are.
        config: What describes the module, as MODEL of `sigprop.predict` [default: `model.config`].

    Raises:
        ValueError: What `strict` refuses, and what the command does.
    """
    if isinstance(plan_or_scheme, str):
        plan_or_scheme = planned_for(model, config, plan_or_scheme).plan
    init = initialiser(plan_or_scheme)
    module = uncompiled(model)
    if strict:
        _refuse(Applied(init.initialise(module, dry_run=True)))
    return Applied(init.initialise(module, generator=generator, dry_run=dry_run))


def _refuse(found: Applied) -> None:
    def listed(names: list[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    if found.unmatched:
        raise ValueError(f"strict: the plan does not know {listed(found.unmatched)}; strict=False leaves them as they are")
    if found.missing:
        raise ValueError(f"strict: the module does not have {listed(found.missing)}; strict=False leaves them out")
    if found.residual:
        sites = listed([scales["site"] for scales in found.residual])
        raise ValueError(
            f"strict: {sites} have scales that the module must apply itself (`.residual` of the result); "
            "strict=False draws the rest"
        )


def audit(model: nn.Module, config: Model | None = None, scheme: str | None = None) -> Inspection:
    """What `sigprop.inspect` finds in the parameters that a module has now.

    Raises:
        ValueError: What the command refuses.
    """
    from safetensors.torch import save_file

    # Tied parameters are one; files have no two names for one tensor.
    held = {name: parameter.detach().cpu().contiguous() for name, parameter in uncompiled(model).named_parameters()}
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "model.safetensors")
        save_file(held, path)
        return inspect(path, config=described(model, config), scheme=scheme)
