"""Wrappers of PyTorch around modules."""

from __future__ import annotations

from torch import nn


def uncompiled(module: nn.Module) -> nn.Module:
    """The module without the wrappers of torch.compile and data parallelism."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def on_meta(module: nn.Module) -> list[str]:
    """The names of the parameters on the meta device, which have no values."""
    return [name for name, parameter in uncompiled(module).named_parameters() if parameter.is_meta]
