"""Predicts a module that a function of a Python file returns: `python -m sigprop.torch model.py:build predict --sites all`.

The commands compare, recommend and phase replace its weights by those of schemes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..__main__ import main as run
from ._held import as_one, held
from ._trace import TraceError, trace
from ._wrappers import on_meta


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sigprop.torch", description=__doc__)
    parser.add_argument("module", metavar="FILE:FUNCTION", help="function that returns a module, or (module, args[, kwargs])")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--shape", metavar="2,64", help="run the module on N(0, 1) entries of this shape")
    given.add_argument("--tokens", metavar="2,64:50257", help="run the module on uniform ids of this shape, below this number")
    parser.add_argument("command", choices=["predict", "compare", "recommend", "phase"])
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="flags of the command of sigprop")
    arguments = parser.parse_args(words)
    module, args, kwargs = _built(parser, arguments.module)
    if arguments.shape:
        args = (torch.randn(_sizes(parser, arguments.shape)),)
    elif arguments.tokens:
        shape, _, vocabulary = arguments.tokens.partition(":")
        args = (torch.randint(_sizes(parser, vocabulary)[0], _sizes(parser, shape)),)
    elif not args and not kwargs:
        parser.error("--shape or --tokens: expected one, or a function that returns (module, args)")
    try:
        traced = trace(module, *args, **kwargs)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    has_scheme = any(flag.partition("=")[0] == "--scheme" for flag in arguments.flags)
    stack, notes = traced.at_length(), traced.notes
    if arguments.command == "predict" and not has_scheme and not on_meta(module):
        weights = held(module, traced)
        stack, notes = as_one(stack, weights.copies), [*notes, *weights.texts]
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="sigprop") as folder:
        path = os.path.join(folder, "stack.json")
        with open(path, "w") as file:
            json.dump(stack, file)
        sys.argv[1:] = [arguments.command, "--stack", path, *arguments.flags]
        return run()


def _built(parser: argparse.ArgumentParser, place: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    path, _, function = place.rpartition(":")
    spec = importlib.util.spec_from_file_location("traced", path) if os.path.exists(path) else None
    if spec is None or spec.loader is None:
        parser.error(f"FILE:FUNCTION: expected a Python file and a function in it, got {place}")
    file = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(file)
    built = getattr(file, function, None)
    if built is None:
        parser.error(f"FILE:FUNCTION: expected a function of {path}, got {function}")
    result = built()
    module, args, kwargs, *_ = (*(result if isinstance(result, tuple) else (result,)), (), {}, None)[:4]
    if isinstance(args, dict):
        args, kwargs = (), args
    return module, args if isinstance(args, tuple) else (args,), kwargs or {}


def _sizes(parser: argparse.ArgumentParser, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        parser.error(f"expected sizes such as 2,64, and for ids 2,64:50257, got {text}")


if __name__ == "__main__":
    sys.exit(main())
