"""Parts of a measurement, for several processes or machines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _commands, _sigprop
from ._call import call, files, words
from ._model import Model, model_text
from ._results import Validation


@dataclass(frozen=True)
class Shard:
    """A part of a measurement: the arguments and the sampled networks. It can be pickled."""

    number: int
    count: int
    given: Mapping[str, Any] = field(repr=False)
    journal: bytes = field(repr=False)


def measure_shard(number: int, count: int, model: Model | None = None, **flags: Any) -> Shard:
    """Samples one of several parts of the networks that `validate` samples with the same arguments.

    >>> shards = [measure_shard(number, 2, layers=2, width=32, seq_len=8, replicates=6) for number in (1, 2)]
    >>> whole = _commands.validate(layers=2, width=32, seq_len=8, replicates=6)
    >>> merge(shards) == whole
    True

    Args:
        number: The number of the part, from 1.
        count: The number of parts.
        model: As for `validate`.
        flags: As for `validate`, without `resume`, `observed` and `target_error`.

    Raises:
        ValueError: If the command refuses the arguments.
    """
    known = _commands.validate.__kwdefaults__ or {}
    unknown = [name for name in flags if name not in known or name in ("resume", "observed")]
    if unknown:
        raise ValueError(f"measure_shard: expected arguments of validate, got {', '.join(unknown)}")
    text = None if model is None else model_text(model)
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder, files(dict(flags)) as given:
        arguments = ["validate", *([] if text is None else [text]), *words(given, _commands._SWITCHES)]
        _sigprop.run([*arguments, f"--resume={folder}", f"--shard={number}/{count}"])
        with open(os.path.join(folder, f"replicates.journal.{number}-of-{count}"), "rb") as file:
            return Shard(number, count, {"model": text, **flags}, file.read())


def merge(shards: Iterable[Shard]) -> Validation:
    """The result of `validate` from its parts. Networks that are in no part are sampled.

    Raises:
        ValueError: If there are no shards, or if they are not of one measurement.
    """
    parts = list(shards)
    if not parts:
        raise ValueError("merge: expected at least one shard, got none")
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        for part in parts:
            with open(os.path.join(folder, f"replicates.journal.{part.number}-of-{part.count}"), "wb") as file:
                file.write(part.journal)
        return call("validate", Validation, {**parts[0].given, "resume": folder}, _commands._SWITCHES)
