"""Initialises the parameters of a module, and inspects them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._model import Model
from .._commands import inspect
from .._results import Inspection
from .._table import Table
from ._structure import described, initialiser, planned_for
from ._trace import Traced
from ._traced_plan import traced_plan
from ._wrappers import uncompiled


class Applied(Table):
    """The initialised parameters: name, tensor, planned_std, std."""

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
    config: Model | Traced | None = None,
) -> Applied:
    """Initialises the parameters of a module in place, by a scheme or a plan.

    Args:
        model: Any module whose parameters have the names of its configuration, after any prefix.
        plan_or_scheme: A scheme as `sigprop.schemes()` lists them, or a plan (`sigprop.torch.plan`).
        generator: The generator of the random numbers [default: one with seed 0].
        strict: Refuse, before anything is changed, a module with parameters that the plan does not know, a module
            that lacks parameters of the plan, and a plan with scales of residual connections that the module must apply itself.
        dry_run: Change nothing; `std` is then that of the present parameters.
        config: The description of the module, as MODEL of `sigprop.predict`, or the module as `trace` reads it
            [default: `model.config`].

    Raises:
        ValueError: If `strict` or the command refuses the module or the scheme.
    """
    if isinstance(plan_or_scheme, str):
        if isinstance(config, Traced):
            plan_or_scheme = traced_plan(config, plan_or_scheme)
        else:
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


def audit(model: nn.Module, config: Model | Traced | None = None, scheme: str | None = None) -> Inspection:
    """Runs `sigprop.inspect` on the present parameters of a module.

    Args:
        config: The description of the module, as MODEL of `sigprop.predict`, or the module as `trace` reads it
            [default: `model.config`]. Tensors of a traced module have their names in the stack. Without a scheme, they are compared
            with independent entries of the sizes that they had when the module was traced.

    Raises:
        ValueError: If the command refuses them.
    """
    from safetensors.torch import save_file

    module = uncompiled(model)
    if isinstance(config, Traced):
        flags: dict[str, Any] = {"stack": config.stack}
        held = config.values(module)
    else:
        # Tied parameters occur once, because a file cannot have two names for one tensor.
        held = {name: parameter.detach().cpu().contiguous() for name, parameter in module.named_parameters()}
        flags = {"config": described(model, config)}
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "model.safetensors")
        save_file(held, path)
        return inspect(path, scheme=scheme, **flags)
