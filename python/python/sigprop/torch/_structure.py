"""The parts of the described network in a module: parameters, blocks, norms."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from .. import _sigprop
from .._model import Model, model_text
from .._commands import predict
from ._network import Network


def plan(model: Model, scheme: str | None = None, head: bool = False) -> dict[str, Any]:
    """The initialisation of every parameter by name, as `sigprop predict --export plan.json` writes it.

    >>> parameters = plan("gpt2", scheme="xavier")["parameters"]
    >>> parameters[0]["name"], parameters[0]["parts"][0]["distribution"]
    ('wte.weight', 'normal')
    """
    return planned(model, scheme, head).plan


@dataclass(frozen=True)
class Planned:
    """A plan, and the tensors whose gradients are predicted."""

    plan: dict[str, Any]
    tensors: frozenset[str]


def planned(model: Model, scheme: str | None, head: bool) -> Planned:
    """Makes a plan, and lists the tensors whose gradients are predicted."""
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "plan.json")
        own: Literal["own"] | None = "own" if head else None
        prediction = predict(model, scheme=scheme, head=own, theory="mean-field", export=path, weights=True)
        with open(path) as file:
            return Planned(json.load(file), frozenset(prediction.weights["tensor"].tolist()))


def described(module: nn.Module, config: Model | None) -> Model:
    """The description of a module: the given configuration, or its own if none is given."""
    if config is None:
        config = getattr(uncompiled(module), "config", None)
    if config is None:
        raise ValueError("config: expected what describes the module, got none and a module without one of its own")
    return model_text(config)


def uncompiled(module: nn.Module) -> nn.Module:
    """The module without the wrappers of torch.compile and data parallelism."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def planned_for(module: nn.Module, config: Model | None, scheme: str | None = None) -> Planned:
    """The plan of a module, with its head if it has one that is in the description."""
    text = described(module, config)
    getter = getattr(uncompiled(module), "get_output_embeddings", None)
    if getter is not None and getter() is not None:
        try:
            return planned(text, scheme, head=True)
        except ValueError:
            # Heads that have no prediction are left as they are.
            pass
    return planned(text, scheme, head=False)


def initialiser(plan: Mapping[str, Any]) -> types.ModuleType:
    """The module that `sigprop predict --export init.py` writes, with this plan."""
    return _initialiser(json.dumps(plan))


def _executed(plan: str) -> types.ModuleType:
    module = types.ModuleType("sigprop_init")
    exec(_sigprop.INIT_PY.replace("@PLAN@", plan), module.__dict__)
    return module


# Not used as a decorator, because tools that compare types with modules would not see the signature.
_initialiser = functools.lru_cache(maxsize=8)(_executed)


@dataclass(frozen=True)
class Piece:
    """A tensor of sigprop within a parameter of a module."""

    tensor: str
    parameter: nn.Parameter
    axis: int
    # Indices along the axis; None means the whole axis.
    indices: tuple[int, ...] | None


@dataclass(frozen=True)
class Structure:
    """The sites of the streams and the tensors in a module."""

    # Modules by site: those whose input is the site, and those whose output is the site.
    inputs: dict[str, nn.Module]
    outputs: dict[str, nn.Module]
    pieces: list[Piece]
    # The last site of the stream with the loss, where gradients start.
    end: str
    # The sites of the streams themselves, not inside blocks.
    stream: tuple[str, ...]

    @property
    def sites(self) -> tuple[str, ...]:
        return (*self.inputs, *self.outputs)

    @classmethod
    def of_network(cls, network: Network) -> Structure:
        """Every site and tensor of the stack."""
        pieces = [Piece(name, parameter, 0, None) for name, parameter in network.told_tensors().items()]
        return cls({}, network.sites(), pieces, network.end_site(), tuple(network.stream_sites()))

    @classmethod
    def of(cls, module: nn.Module, of: Planned) -> Structure:
        """Finds sites and tensors by the names of the parameters in the plan."""
        init = initialiser(of.plan)
        parameters = init._named(module)
        prefix = init._prefix([name for name, _ in parameters])
        blocks: dict[tuple[str, int], str] = {}
        norms: dict[str, str] = {}
        pieces = []
        for name, parameter in parameters:
            index = init._index(name, prefix)
            if index is None:
                continue
            _, planned = init.PLANNED[index]
            numbers = _stars(planned["name"], name)
            for part, indices in init._pieces(parameter, planned):
                tensor = part["parameter"]
                for number in numbers:
                    tensor = tensor.replace("*", str(number), 1)
                if tensor in of.tensors:
                    within = None if len(planned["parts"]) == 1 else tuple(indices)
                    pieces.append(Piece(tensor, parameter, planned["axis"], within))
                stream, is_block, _ = tensor.partition("blocks.")
                if is_block:
                    number, path = _block(name)
                    blocks[stream, number] = path
                if tensor.endswith("final_norm.gain"):
                    norms[tensor.removesuffix(".gain")] = name.rpartition(".")[0]
        inputs, outputs = {}, {}
        for (stream, number), path in sorted(blocks.items()):
            outputs[f"{stream}blocks.{number}"] = module.get_submodule(path)
            if number == 0:
                inputs[f"{stream}embeddings"] = module.get_submodule(path)
        outputs.update({site: module.get_submodule(path) for site, path in norms.items()})
        if not outputs:
            raise ValueError("model: expected the parameters of its configuration, got none of them")
        # The end of the decoder, if there is one. Norms come after all blocks.
        end = ([site for site in outputs if site.startswith("decoder.")] or list(outputs))[-1]
        return cls(inputs, outputs, pieces, end, (*inputs, *outputs))


def _stars(pattern: str, name: str) -> list[int]:
    """The numbers that match the stars of a pattern at the end of a name.

    >>> _stars("h.*.attn.weight", "transformer.h.11.attn.weight")
    [11]
    """
    wanted, found = pattern.split(".")[::-1], name.split(".")[::-1]
    return [int(part) for star, part in zip(wanted, found, strict=False) if star == "*"][::-1]


def _block(name: str) -> tuple[int, str]:
    """Number and name of the block of a parameter.

    >>> _block("encoder.block.3.layer.0.layer_norm.weight")
    (3, 'encoder.block.3')
    """
    parts = name.split(".")
    at = next(index for index, part in enumerate(parts) if part.isdigit())
    return int(parts[at]), ".".join(parts[: at + 1])
