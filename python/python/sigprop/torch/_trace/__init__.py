"""Live modules as stacks: nobody has to describe them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._wrappers import uncompiled
from ._capture import capture
from ._components import Attention, Recurrence, Refusal
from ._loss import loss_of, until
from ._length import LONGEST, holds_at_length
from ._read import Read, Refused, read
from ._repeat import with_all_blocks
from ._structure import Structure, structure
from ._traced import SitePlace, Traced
from ._twin import Twin, readable
from ._verify import difference

# The number of tokens below which the mean over all but the last differs from the mean over all.
_SHORT = 50

__all__ = ["TraceError", "Traced", "trace"]


class TraceError(ValueError):
    """A module that stacks cannot describe, with a line for every place of its code that they cannot."""

    def __init__(self, refusals: list[Refused]) -> None:
        self.refusals = refusals
        places: dict[tuple[str, str], list[str]] = {}
        for at in refusals:
            places.setdefault((at.text, at.code), []).append(at.path or "(root)")
        lines = [_line(list(dict.fromkeys(paths)), text, code) for (text, code), paths in places.items()]
        super().__init__("\n".join(lines))


def _line(paths: list[str], text: str, code: str) -> str:
    """The line of one refusal, which layers that are alike share."""
    more = f" (and {len(paths) - 1} more, to {paths[-1]})" if len(paths) > 1 else ""
    return f"{paths[0]}{more}: {text}" + (f" [{code}]" if code else "")


def trace(module: nn.Module, *args: Any, **kwargs: Any) -> Traced:
    """Reads a live module as a stack, from a run of `module(*args, **kwargs)`, and compares the values of both.

    >>> import torch
    >>> traced = trace(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), torch.randn(4, 8))
    >>> list(traced.sites)
    ['embeddings', '0', '1', '2']
    >>> traced.roles["0.weight"].name
    'other'

    The stack has the standard deviations of the parameters that the module holds. It starts where ids or vectors come in, and
    ends with the output, or before the last map if that is a head: a map with more outputs than inputs, or to the logits of a
    cross-entropy that the module returns for targets. Long sequences of ids are cut.
    The module, which may be compiled and on any device, does not change. One on the meta device, or one whose copy in float32
    does not fit in half of the memory, is read from a copy with fewer blocks; the notes say so.

    Raises:
        TraceError: If stacks cannot describe the module. Its `refusals` are all places where they cannot.
    """
    twin = Twin(module)
    try:
        twin = readable(uncompiled(module))
        return with_all_blocks(_traced(twin.module, args, kwargs), twin)
    except TraceError as error:
        refusals = error.refusals
    except Refusal as refusal:
        refusals = [Refused(refusal.path, refusal.code, str(refusal))]
    if twin.cuts:
        # The code may need all blocks.
        text = f"{twin.notes[-1]}; expected a module with values that fits in memory"
        refusals.append(Refused(twin.cuts[0].path, "", text))
    raise TraceError(refusals)


def _traced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    name = type(module).__name__
    captured = capture(module, args, kwargs)
    loss = loss_of(captured)
    if loss is not None:
        until(captured, loss.logits)
    found = read(captured)
    if found.refusals or found.end is None:
        nothing = Refused("", "", "an output without a signal; expected one that depends on the inputs")
        raise TraceError(found.refusals or [nothing])
    checked = structure(found.end, name, found.sequences, loss is not None, exact=True)
    made = structure(found.end, name, found.sequences, loss is not None)
    different = difference(found, checked)
    if different is not None:
        raise TraceError([different])
    sites = {site: SitePlace(made.paths.get(site, component.path), component.code) for site, component in made.sites.items()}
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    used = [value for value in captured.inputs.values() if isinstance(value, Tensor)]
    lengths = {cut.shape[-1]: whole.shape[-1] for cut, whole in zip(used, given, strict=True) if whole.dim() == 2}
    notes = _notes(found, made)
    if loss is not None and loss.is_shifted and (tokens := lengths[captured.inputs[loss.targets].shape[-1]]) <= _SHORT:
        factor = tokens / (tokens - 1)
        notes.append(f"the loss is that of {tokens - 1} of {tokens} tokens: gradients are {factor:.2f} times as large")
    cut = {traced: whole for traced, whole in lengths.items() if traced < whole}
    if cut and any(isinstance(component, (Attention, Recurrence)) for component in made.sites.values()):
        [traced, whole], *_ = cut.items()
        holds = holds_at_length(module, args, kwargs, checked)
        if holds is False:
            text = f"another function at {whole} tokens than at {traced}, such as attention with a longer window"
            raise TraceError([Refused("", "", f"{text}; expected one function, or a call with at most {traced} tokens")])
        if holds is None or whole > LONGEST:
            known = traced if holds is None else LONGEST
            notes.append(f"read at {known} of {whole} tokens: a window of attention that is longer is not seen")
    return Traced(made.stack, sites, made.parts.roles, made.parts.weights, notes, loss is not None, found, made, lengths)


def _notes(found: Read, made: Structure) -> list[str]:
    notes = [*found.notes, *made.parts.notes]
    computed = list(dict.fromkeys(weight.name for weight in made.parts.maps if weight.origin is None))
    if computed:
        notes.append(
            f"{len(computed)} weights are computed from parameters ({computed[0]}): predictions take their values as independent, "
            "and init_ does not initialise them"
        )
    return notes
