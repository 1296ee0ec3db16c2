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
from ._trace import Traced
from ._traced_plan import traced_plan
from ._wrappers import uncompiled


def plan(model: Model | Traced, scheme: str | None = None, head: bool = False) -> dict[str, Any]:
    """The initialisation of every parameter by name, as `sigprop predict --export plan.json` writes it.

    Parts of parameters of a traced module have their `indices` along the axis. Its head is always in the plan.

    >>> parameters = plan("gpt2", scheme="xavier")["parameters"]
    >>> parameters[0]["name"], parameters[0]["parts"][0]["distribution"]
    ('wte.weight', 'normal')
    """
    return traced_plan(model, scheme) if isinstance(model, Traced) else planned(model, scheme, head).plan


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
        raise ValueError(
            "config: expected what describes the module, got none and a module without one of its own; "
            "`sigprop.torch.trace(module, *args)` describes any module"
        )
    return model_text(config)


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
    # True for a table of which only the rows with a gradient are meant: those of the positions that a batch has.
    has_unused_rows: bool = False


@dataclass(frozen=True)
class Tap:
    """A tensor among the inputs or outputs of a module."""

    module: nn.Module
    is_input: bool
    # Its number among the tensors.
    number: int = 0


@dataclass(frozen=True)
class Structure:
    """The sites of the streams and the tensors in a module."""

    # By site, in the order of the network.
    taps: dict[str, Tap]
    pieces: list[Piece]
    # The last site of the stream with the loss, where gradients start.
    end: str
    # The sites of the streams themselves, not inside blocks. Those of a traced module may have no tap.
    stream: tuple[str, ...]
    # True if a batch of vectors, shape (batch, features), is one sequence.
    is_one_sequence: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.taps)

    @classmethod
    def of_network(cls, network: Network) -> Structure:
        """Every site and tensor of the stack."""
        pieces = [Piece(name, parameter, 0, None) for name, parameter in network.told_tensors().items()]
        taps = {site: Tap(module, is_input=False) for site, module in network.sites().items()}
        return cls(taps, pieces, network.end_site(), tuple(network.stream_sites()))

    @classmethod
    def of_traced(cls, module: nn.Module, traced: Traced) -> Structure:
        """The sites of the streams that are inputs or outputs of modules, and every tensor."""
        places = traced.places(module)
        taps = {site: Tap(module.get_submodule(place.path), place.is_input, place.number) for site, place in places.items()}
        parameters = dict(module.named_parameters(remove_duplicate=False))
        pieces = []
        for name, origin in traced.gradient_origins().items():
            is_position = name in traced.roles and traced.roles[name].name == "positions"
            indices = None if is_position else origin.indices
            pieces.append(Piece(name, parameters[origin.parameter], origin.axis, indices, is_position))
        return cls(taps, pieces, traced.stream_sites[-1], traced.stream_sites, traced.is_one_sequence)

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
            outputs[f"{stream}blocks.{number}"] = Tap(module.get_submodule(path), is_input=False)
            if number == 0:
                inputs[f"{stream}embeddings"] = Tap(module.get_submodule(path), is_input=True)
        outputs.update({site: Tap(module.get_submodule(path), is_input=False) for site, path in norms.items()})
        if not outputs:
            raise ValueError("model: expected the parameters of its configuration, got none of them")
        # The end of the decoder, if there is one. Norms come after all blocks.
        end = ([site for site in outputs if site.startswith("decoder.")] or list(outputs))[-1]
        taps = {**inputs, **outputs}
        return cls(taps, pieces, end, tuple(taps))


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
