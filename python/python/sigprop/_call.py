"""Runs a command in this process: keyword arguments become its flags."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike

from . import _sigprop
from ._model import model_text
from ._results import Result

if TYPE_CHECKING:
    import pandas


Path: TypeAlias = Union[str, "os.PathLike[str]"]
# A CSV file, or a DataFrame, dict or measurement with the columns site, quantity, observed and std_error.
Observed: TypeAlias = Union[str, "os.PathLike[str]", Mapping[str, Any], "pandas.DataFrame"]
# A file, or an array of ids whose last axis is the sequence.
Tokens: TypeAlias = Union[str, "os.PathLike[str]", ArrayLike]

R = TypeVar("R", bound=Result)

_TEXTS = (str, os.PathLike)
# Flags whose values are separated by commas.
_LISTS = ("schemes",)


def words(flags: Mapping[str, Any], switches: frozenset[str]) -> Iterator[str]:
    """The flags as words of the command line. A flag with the value None is left out."""
    for name, value in flags.items():
        if value is None or name == "progress":
            continue
        flag = "--" + name.rstrip("_").replace("_", "-")
        if name in switches:
            if value:
                yield flag
        elif name == "config":
            yield f"{flag}={model_text(value)}"
        elif isinstance(value, Sequence) and not isinstance(value, str):
            parts = [_word(part) for part in value]
            yield from [f"{flag}={','.join(parts)}"] if name in _LISTS else (f"{flag}={part}" for part in parts)
        else:
            yield f"{flag}={_word(value)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(float(value))
    return os.fspath(value) if isinstance(value, _TEXTS) else str(value)


def call(command: str, result: type[R], given: Mapping[str, Any], switches: frozenset[str]) -> R:
    """Runs a command and returns its result."""
    flags = dict(given)
    arguments = [command]
    for name in ("model", "checkpoint"):
        value = flags.pop(name, None)
        if value is not None:
            arguments.append(model_text(value) if name == "model" else os.fspath(value))
    with files(flags) as flags, _progress(flags.pop("progress", False)) as progress:
        arguments += words(flags, switches)
        output, picture = _sigprop.run([*arguments, "--json"], progress)
    svg = None if picture is None else picture.decode()
    return result(json.loads(output), svg, given)


@contextmanager
def files(flags: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The flags with data replaced by temporary files, for flags whose data the command reads from files."""
    writers = {"observed": _write_observed, "tokens": _write_tokens, "decoder_tokens": _write_tokens, "stack": _write_stack}
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        for name, write in writers.items():
            value = flags.get(name)
            if not (value is None or isinstance(value, _TEXTS)):
                flags = {**flags, name: write(os.path.join(folder, name), value)}
        yield flags


def _write_tokens(path: str, ids: Any) -> str:
    path += ".npy"
    np.save(path, np.asarray(ids))
    return path


def _write_stack(path: str, stack: Any) -> str:
    path += ".json"
    with open(path, "w") as file:
        json.dump(stack, file)
    return path


def _write_observed(path: str, table: Any) -> str:
    columns = [list(table[name]) for name in ("site", "quantity", "observed")]
    errors = table["std_error"] if "std_error" in table else [None] * len(columns[0])
    path += ".csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", "quantity", "observed", "std_error"])
        for site, quantity, value, error in zip(*columns, errors, strict=True):
            if not _is_missing(value):
                writer.writerow([site, quantity, value, "" if _is_missing(error) else error])
    return path


def _is_missing(value: Any) -> bool:
    return value is None or value != value


@contextmanager
def _progress(is_wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    if not is_wanted:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'sigprop[progress]'") from None
    with tqdm() as bar:

        def tell(done: int, of: int) -> None:
            bar.total = of
            bar.update(done - bar.n)

        yield tell
