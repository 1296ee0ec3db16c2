"""Predictions and initialisations of live modules."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import _commands
from .._results import Inspection, Prediction
from .._table import Table
from ._apply import Applied, apply_, audit
from ._trace import Traced, trace


# Findings about weights that are no initialisation, and the caveats of predictions that take them for one.
_NO_INITIALISATION = frozenset(("not-finite", "copies", "deviation", "tails"))
_OF_WEIGHTS = frozenset(("dependent_weights", "heavy_tails", "mean_of_weights", "uneven_gains", "uneven_rows"))


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
    traced, others = _read(module, args, flags)
    if traced.has_loss:
        others = {"head": "own", "loss": "cross-entropy", **others}
    flags = {"stack": traced.at_length(seq_len), **others}
    if others.get("scheme") is not None:
        return _commands.predict(**flags)
    weights = audit(module, traced)
    for text in weight_findings(weights):
        warnings.warn(text, stacklevel=2)
    return _with_caveats(_commands.predict(**flags), weights)


def weight_findings(weights: Inspection) -> list[str]:
    """The findings that weights are no initialisation, for which predictions take them, and the effects on a prediction."""
    findings = [finding["text"] for finding in weights.findings if finding["problem"] in _NO_INITIALISATION]
    return [*findings, *(f"{caveat['site']}: {caveat['text']}. {caveat['advice']}" for caveat in _caveats(weights))]


def _caveats(weights: Inspection) -> list[dict[str, Any]]:
    """The caveats of a prediction that follow from the weights of the module."""
    return [caveat for caveat in (weights.prediction or weights).caveats if caveat["kind"] in _OF_WEIGHTS]


def _with_caveats(prediction: Prediction, weights: Inspection) -> Prediction:
    """The prediction with the caveats that follow from the weights of the module."""
    document = prediction.to_dict()
    known = {caveat["kind"] for caveat in document["caveats"]}
    found = [caveat for caveat in _caveats(weights) if caveat["kind"] not in known]
    return Prediction({**document, "caveats": [*found, *document["caveats"]]}, prediction.svg, prediction._given)


def _read(module: nn.Module, args: tuple[Any, ...], flags: dict[str, Any]) -> tuple[Traced, dict[str, Any]]:
    """The trace of a module, and the flags of the command among the flags. Warns of the notes of the trace."""
    given = {name: value for name, value in flags.items() if isinstance(value, Tensor)}
    traced = trace(module, *args, **given)
    for note in traced.notes:
        warnings.warn(note, stacklevel=3)
    return traced, {name: value for name, value in flags.items() if name not in given}


class Comparison(Table):
    """Schemes on one module, the best first: scheme, grade, headline, and variance, token correlation and gradient variance."""

    __slots__ = ("predictions",)

    def __init__(self, predictions: Mapping[str, Prediction]) -> None:
        # By the name of the scheme.
        self.predictions = dict(predictions)
        order = ["healthy", "trainable_with_care", "not_trainable"]
        rows = [_row(scheme, prediction) for scheme, prediction in predictions.items()]
        super().__init__(sorted(rows, key=lambda row: order.index(row["grade"])))


def _row(scheme: str, prediction: Prediction) -> dict[str, Any]:
    """The end of the last block forward, the input of the first one backward."""
    last = max((number for number, site in enumerate(prediction["site"]) if str(site).rpartition(".")[2].isdigit()), default=-1)
    return {
        "scheme": scheme,
        "grade": prediction.grade,
        "headline": prediction.verdict,
        "variance": float(prediction["variance"][last]),
        "token_correlation": float(prediction["token_correlation"][last]),
        "grad_variance": float(prediction["grad_variance"][0]),
    }


def compare(module: nn.Module, *args: Any, schemes: Sequence[str], seq_len: int | None = None, **flags: Any) -> Comparison:
    """Predicts a live module as several schemes would initialise it.

    >>> module = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())))
    >>> compare(module, torch.randn(32, 64), schemes=["kaiming", "normal:1"])["grade"].tolist()
    ['healthy', 'not_trainable']

    Args:
        module: Any module that `trace` reads.
        args: The arguments of the module.
        schemes: Schemes as `sigprop.schemes()` lists them.
        seq_len: Tokens of a sequence of ids [default: as many as are given].
        flags: As for `predict`, without `scheme`.

    Raises:
        ValueError: If stacks cannot describe the module (`TraceError`), or if the command refuses a scheme or the flags.
    """
    traced, others = _read(module, args, flags)
    stack = traced.at_length(seq_len)
    return Comparison({scheme: _commands.predict(**{"stack": stack, "scheme": scheme, **others}) for scheme in schemes})


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
        ValueError: If stacks cannot describe the module, if the command refuses the scheme, or if `strict` refuses the module.
    """
    return apply_(module, scheme, generator, strict, dry_run, trace(module, *args, **tensors))
