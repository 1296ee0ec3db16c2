"""Predictions and initialisations of live modules."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from .. import _commands
from .._results import Comparison, PhaseMap, Prediction, Recommendation
from ._apply import Applied, apply_
from ._held import as_one, held
from ._trace import Traced, trace
from ._wrappers import on_meta


def predict(module: nn.Module, *args: Any, seq_len: int | None = None, **flags: Any) -> Prediction:
    """Predicts the signals and gradients of a live module, whatever its code, with the weights that it holds.

    >>> import torch
    >>> module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    >>> predict(module, torch.randn(32, 64))["site"].tolist()
    ['embeddings', '0', '1', '2']
    >>> round(float(predict(module, torch.randn(32, 64), scheme="xavier")["variance"][1]), 2)
    1.0

    If the module returns the cross-entropy of its logits, because it was given targets, then gradients are those of this loss
    (`head="own"`, `loss="cross-entropy"`).

    Args:
        module: Any module that `trace` reads.
        args: The arguments of the module.
        seq_len: Tokens of a sequence of ids [default: as many as are given].
        flags: Tensors are arguments of the module, by name. All others are flags of `sigprop.predict`: `sites="all"`,
            `weights=True`, `head="own"`. `scheme="gpt2"` predicts the module as that scheme would initialise it. Flags that
            describe a network are refused.

    Warns:
        UserWarning: For every note of the trace, and for every finding of `audit` that the weights are not an initialisation:
            copies, means, gains that differ, heavy tails. The caveats of the prediction say where it is wrong for this reason.

    Raises:
        ValueError: If stacks cannot describe the module (`TraceError`), or if the command refuses the flags.
    """
    traced, others = _read(module, args, flags, stacklevel=3)
    if traced.has_loss:
        others = {"head": "own", "loss": "cross-entropy", **others}
    flags = {"stack": traced.at_length(seq_len), **others}
    if others.get("scheme") is not None or on_meta(module):
        return _commands.predict(**flags)
    weights = held(module, traced)
    for text in weights.texts:
        warnings.warn(text, stacklevel=2)
    prediction = _commands.predict(**{**flags, "stack": as_one(flags["stack"], weights.copies)})
    document = prediction.to_dict()
    known = {caveat["kind"] for caveat in document["caveats"]}
    caveats = [caveat for caveat in weights.caveats if caveat["kind"] not in known]
    return Prediction({**document, "caveats": [*caveats, *document["caveats"]]}, prediction.svg, prediction._given)


def _read(
    module: nn.Module, args: tuple[Any, ...], flags: dict[str, Any], stacklevel: int
) -> tuple[Traced, dict[str, Any]]:
    """The trace of a module, and the flags of the command among the flags. Warns of the notes of the trace."""
    given = {name: value for name, value in flags.items() if isinstance(value, Tensor)}
    traced = trace(module, *args, **given)
    for note in traced.notes:
        warnings.warn(note, stacklevel=stacklevel)
    return traced, {name: value for name, value in flags.items() if name not in given}


def compare(module: nn.Module, *args: Any, seq_len: int | None = None, **flags: Any) -> Comparison:
    """Predicts a live module as several schemes would initialise it.

    >>> module = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())))
    >>> compare(module, torch.randn(32, 64), schemes=["kaiming", "normal:1"]).rows[1]["verdict"]
    'not trainable: forward explodes, backward explodes'

    Arguments and errors are those of `predict`; flags are those of `sigprop.compare`, such as `schemes`.
    """
    return _commands.compare(**_flags(module, args, seq_len, flags))


def recommend(module: nn.Module, *args: Any, seq_len: int | None = None, **flags: Any) -> Recommendation:
    """Finds gains for a live module that meet demands. `init_(module, …, scheme=recommendation.scheme)` applies them.

    Arguments and errors are those of `predict`; flags are those of `sigprop.recommend`, such as `max_correlation`.
    """
    return _commands.recommend(**_flags(module, args, seq_len, flags))


def phase(module: nn.Module, *args: Any, seq_len: int | None = None, **flags: Any) -> PhaseMap:
    """Maps where a live module can be trained, over two numbers of its initialisation.

    Arguments and errors are those of `predict`; flags are those of `sigprop.phase`, such as `x`, `y` and `scheme`.
    """
    return _commands.phase(**_flags(module, args, seq_len, flags))


def _flags(module: nn.Module, args: tuple[Any, ...], seq_len: int | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of the command for a module whose weights it replaces."""
    traced, others = _read(module, args, flags, stacklevel=4)
    return {"stack": traced.at_length(seq_len), **others}


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
        generator, strict, dry_run: As for `apply_`.
        tensors: Arguments of the module by name.

    Raises:
        ValueError: If stacks cannot describe the module, if it is on the meta device, if the command refuses the scheme, or if
            `strict` refuses the module.
    """
    if missing := on_meta(module):
        raise ValueError(f"{missing[0]}: expected a parameter with memory, got one on the meta device; module.to_empty() first")
    return apply_(module, scheme, generator, strict, dry_run, trace(module, *args, **tensors))
