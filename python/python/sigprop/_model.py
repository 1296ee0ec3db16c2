"""A model as an argument: a preset, a path, JSON, a dict or a configuration of transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, Union


class Config(Protocol):
    """A configuration of transformers, or any object with these two members."""

    model_type: str

    def to_dict(self) -> dict[str, Any]: ...


# A preset, a path, JSON, a dict (an architecture or a config), or a config of transformers.
Model: TypeAlias = Union[str, "os.PathLike[str]", Mapping[str, Any], Config]


def model_text(model: object) -> str:
    """The argument MODEL of the command, as text."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if not isinstance(model, Mapping):
        if not (hasattr(model, "to_dict") and hasattr(model, "model_type")):
            raise ValueError(
                "model: expected a preset, a path, JSON, a dict, or a config with `to_dict` and "
                f"`model_type`, got {type(model).__name__}"
            )
        model = {"model_type": model.model_type, **model.to_dict()}
    return json.dumps(model, default=str)
