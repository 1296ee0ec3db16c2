"""Maps: operations that mix features or tokens, each of which is a component."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from . import _attention as attention
from ._components import PADDING, Component, Convolution, DropPath, Dropout, Linear, Norm, Refusal, Scale, Tokens, Weight
from ._constants import operation
from ._islands import SOFTMAX, Islands
from ._layout import Given, Signal, entries_of
from ._recurrence import recurrence


def _argument(node: fx.Node, place: int, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else default


def _weight(islands: Islands, node: fx.Node | None, arrange: Callable[[Tensor], Tensor] = lambda value: value) -> Weight | None:
    if node is None:
        return None
    if not islands.constants.is_constant(node):
        raise Refusal("weights that are computed from the input; expected parameters")
    return islands.constants.weight(node, arrange)


def _linear(
    islands: Islands, node: fx.Node, signal: Signal, weight: Weight | None, bias: Weight | None = None
) -> tuple[Linear, Tensor]:
    """A linear map of the features along the last axis, and its entries, with features last."""
    assert weight is not None
    component, rows, order = islands.layout.permuted_tokens(signal)
    if order is not None:
        columns = torch.empty_like(order)
        columns[order] = torch.arange(len(order))
        weight = replace(weight, value=weight.value[:, columns])
    width = len(weight.value)
    if bias is not None and bias.value.shape != (width,):
        raise Refusal("a bias that is no vector of features; expected one entry per output")
    made = islands.layout.make(
        Linear, inputs=[component], width=width, rows=component.rows, weight=weight, bias=bias, **islands.where(node)
    )
    return made, entries_of(rows, width)


def linear(islands: Islands, node: fx.Node) -> None:
    x, weight = node.args[:2]
    bias = _weight(islands, _argument(node, 2))
    islands.start(node, *_linear(islands, node, islands.signal(x), _weight(islands, weight), bias))  # type: ignore[arg-type]


def addmm(islands: Islands, node: fx.Node) -> None:
    bias, x, weight = node.args[:3]
    if node.kwargs:
        raise Refusal("addmm with factors; expected x W + b")
    before = islands.signal(x)  # type: ignore[arg-type]
    weights = _weight(islands, weight, Tensor.t), _weight(islands, bias)  # type: ignore[arg-type]
    islands.start(node, *_linear(islands, node, before, *weights))


def matmul(islands: Islands, node: fx.Node) -> None:
    """A linear map, scores, or averages of values."""
    x, y = node.args[:2]
    assert isinstance(x, fx.Node) and isinstance(y, fx.Node)
    _product(islands, node, x, y)


def _product(islands: Islands, node: fx.Node, x: fx.Node, y: fx.Node, alpha: float = 1.0, added: Tensor | None = None) -> None:
    constants = islands.constants
    if constants.is_constant(y):
        if constants.values[y].dim() != 2:
            raise Refusal("a product with matrices of heads or of positions; expected one for all tokens")
        islands.start(node, *_linear(islands, node, islands.signal(x), _weight(islands, y, Tensor.t)))
    elif constants.is_constant(x):
        raise Refusal("a constant matrix times a signal, which mixes tokens; expected maps over features")
    elif _is_of_scores(islands, x):
        islands.start(node, *_averaged(islands, node, x, islands.signal(y)))
    else:
        key = islands.signal(y)
        key = Signal(key.component, key.entries.transpose(-1, -2))
        attention.scores(islands, node, islands.signal(x), key, alpha, added)


def _averaged(islands: Islands, node: fx.Node, weights: fx.Node, value: Signal) -> tuple[Component, Tensor]:
    """The product of values with a softmax of scores, or with scores times decays."""
    between = islands.between(islands.base[weights], weights)
    has_softmax = any(operation(each) in SOFTMAX for each in between)
    return attention.average(islands, node, weights, value) if has_softmax else recurrence(islands, node, weights, value)


def _is_of_scores(islands: Islands, node: fx.Node) -> bool:
    return node in islands.base and islands.base[node] in islands.scores


def baddbmm(islands: Islands, node: fx.Node) -> None:
    """Scores with a constant added."""
    added, x, y = node.args[:3]
    assert isinstance(added, fx.Node) and isinstance(x, fx.Node) and isinstance(y, fx.Node)
    if islands.constants.is_of_ids(added):
        raise Refusal(PADDING)
    if not islands.constants.is_constant(added) or islands.constants.is_constant(y):
        raise Refusal("a product of batches with something computed added; expected queries, keys and a constant")
    beta, alpha = float(node.kwargs.get("beta", 1.0)), float(node.kwargs.get("alpha", 1.0))  # type: ignore[arg-type]
    _product(islands, node, x, y, alpha, beta * islands.constants.values[added])


def einsum(islands: Islands, node: fx.Node) -> None:
    """A product over one index: of signals, or of a signal and a matrix."""
    operands, constants = node.args[1], islands.constants
    assert isinstance(operands, Sequence) and len(operands) == 2
    x, y = operands
    assert isinstance(x, fx.Node) and isinstance(y, fx.Node)
    left, right, out = _letters(str(node.args[0]), x, y)
    if constants.is_constant(x) or _is_of_scores(islands, y) or (out[-1:] in left and not _is_of_scores(islands, x)):
        x, y, left, right = y, x, right, left
    if constants.is_constant(y):
        _contracted(islands, node, islands.signal(x), y, (left, right, out))
        return
    is_average = _is_of_scores(islands, x)
    *batch, row, column = list(left if is_average else out.rjust(2))
    summed = column if is_average else next((letter for letter in left if letter in right and letter not in out), "")
    # Features of values, or keys.
    [last, *others] = [letter for letter in right if letter not in left] or [""]
    is_plain = set(left + right) == {*batch, row, summed, last} and row not in right and not others
    if not is_plain or not summed or summed in out or (last != column and not is_average) or last not in out:
        raise Refusal(f"einsum {left},{right}->{out}; expected scores with keys along the last axis, or averages of values")
    second = _arranged(islands.signal(y), right, [*batch, *((summed, last) if is_average else (last, summed))])
    if is_average:
        made, entries = _averaged(islands, node, x, second)
        islands.start(node, made, entries.permute([[*batch, row, last].index(letter) for letter in out]))
    else:
        attention.scores(islands, node, _arranged(islands.signal(x), left, [*batch, row, summed]), second)


def _letters(equation: str, x: fx.Node, y: fx.Node) -> tuple[str, str, str]:
    """The indices of both operands and of the result, with letters in place of dots.

    Operands with fewer axes have the last ones of those that the dots stand for.
    """
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    out = out if arrow else "".join(sorted(letter for letter in inputs if letter.isalpha() and inputs.count(letter) == 1))
    sides = inputs.split(",")
    counts = [each.meta["val"].dim() - len(side.replace("...", "")) for side, each in zip(sides, (x, y), strict=True)]
    dots = "ABCDEFGH"[: max(counts) if "..." in equation else 0]
    left, right = (side.replace("...", dots[len(dots) - count :]) for side, count in zip(sides, counts, strict=True))
    return left, right, out.replace("...", dots)


def _arranged(signal: Signal, letters: str, wanted: Sequence[str]) -> Signal:
    """A signal whose axes have these letters, with the wanted ones. Those that it does not have are of length 1."""
    entries = signal.entries.permute([letters.index(letter) for letter in wanted if letter in letters])
    for axis, letter in enumerate(wanted):
        entries = entries if letter in letters else entries.unsqueeze(axis)
    return Signal(signal.component, entries)


def _contracted(islands: Islands, node: fx.Node, signal: Signal, matrix: fx.Node, letters: tuple[str, str, str]) -> None:
    """A linear map, whose features may have several indices."""
    left, right, out = letters
    summed = [letter for letter in right if letter in left and letter not in out]
    new = [letter for letter in out if letter not in left]
    if sorted(right) != sorted([*summed, *new]) or not summed:
        text = "a product with matrices of heads or of positions"
        raise Refusal(f"{text}, einsum {left},{right}->{out}; expected one for all tokens")
    kept = [letter for letter in left if letter not in summed]
    entries = signal.entries.permute([left.index(letter) for letter in [*kept, *summed]])
    sizes = [entries.shape[: len(kept)], islands.constants.values[matrix].shape]
    shape = dict(zip(kept, sizes[0], strict=True)) | dict(zip(right, sizes[1], strict=True))

    def arrange(value: Tensor) -> Tensor:
        return value.permute([right.index(letter) for letter in [*new, *summed]]).flatten(len(new)).flatten(0, len(new) - 1)

    weight = _weight(islands, matrix, arrange)
    made, result = _linear(islands, node, Signal(signal.component, entries.flatten(len(kept))), weight)
    result = result.reshape([shape[letter] for letter in [*kept, *new]])
    islands.start(node, made, result.permute([[*kept, *new].index(letter) for letter in out]))


def embedding(islands: Islands, node: fx.Node) -> None:
    table, ids = node.args[:2]
    if isinstance(ids, (list, tuple)):
        # table[ids]
        (ids,) = ids
    assert isinstance(ids, fx.Node) and isinstance(table, fx.Node)
    value = islands.constants.values.get(ids)
    if not islands.constants.is_of_ids(ids) or not islands.constants.is_constant(table):
        raise Refusal("rows of a table by something else than token ids; expected ids")
    if not isinstance(value, Tensor) or value.dim() != 2 or len(value) != islands.layout.sequences:
        raise Refusal("ids that are no sequence (a label or a time); expected shape (batch, tokens)")
    weight = _weight(islands, table)
    assert weight is not None
    width = weight.value.shape[1]
    made = islands.layout.make(Tokens, width=width, rows=value.numel(), table=weight, ids=value, **islands.where(node))
    islands.start(node, made, torch.arange(made.rows * width).reshape(*value.shape, width))


def dropout(islands: Islands, node: fx.Node) -> None:
    _dropped(islands, node, islands.signal(node.args[0]), Dropout, float(node.args[1]))  # type: ignore[arg-type]


def _dropped(
    islands: Islands, node: fx.Node, before: Signal, kind: type[Dropout] | type[DropPath], rate: float, factor: float = 1.0
) -> None:
    """Dropout of the entries or of the sequences of a signal, and multiplication by a number."""
    if isinstance(before.component, Given):
        vectors, rows = islands.layout.tokens(before)
        before = Signal(vectors, entries_of(rows, vectors.width))
    before = islands.layout.narrow(before)
    component = before.component
    sizes = {"width": component.width, "rows": component.rows}
    if before.entries.numel() != component.rows * component.width:
        raise Refusal("dropout of a part of the tokens; expected dropout of all")
    made: Component = islands.layout.make(kind, inputs=[component], rate=rate, **sizes, **islands.where(node))
    if abs(factor - 1.0) > 1e-6:
        made = islands.layout.make(Scale, inputs=[made], factor=factor, **sizes, **islands.where(node))
    islands.start(node, made, before.entries)


def masked(islands: Islands, node: fx.Node) -> None:
    """The product of a signal and a random mask: dropout of entries, or stochastic depth."""
    x, y = node.args[:2]
    assert isinstance(x, fx.Node) and isinstance(y, fx.Node)
    signal, random = (y, x) if islands.constants.is_random(x) else (x, y)
    if random in islands.constants.masks:
        raise Refusal("a random mask at several places; expected a mask of its own at each")
    before, mask = islands.signal(signal), islands.constants.mask(random)
    if mask is None:
        raise Refusal("random numbers that are no mask; expected dropout or stochastic depth, or evaluation mode")
    sizes = [1] * (before.entries.dim() - len(mask.shape)) + list(mask.shape)
    sequence = before.entries // before.component.width // islands.layout.length(before.component)
    count = islands.layout.sequences
    numbers = torch.arange(count).expand(sequence.numel() // count, -1)
    if sizes == list(before.entries.shape):
        _dropped(islands, node, before, Dropout, mask.rate, mask.mean)
    elif math.prod(sizes[1:]) == 1 and sizes[0] in (1, count) and torch.equal(sequence.reshape(count, -1).T, numbers):
        _dropped(islands, node, before, DropPath, mask.rate, mask.mean)
    else:
        raise Refusal(f"a random mask of shape {mask.shape}; expected one entry per sequence, or one per feature and token")


def _geometry(node: fx.Node) -> tuple[Any, Any, Any, int]:
    """Stride, padding, dilation and groups of a convolution."""
    return _argument(node, 3, [1]), _argument(node, 4, [0]), _argument(node, 5, [1]), _argument(node, 6, 1)


def conv1d(islands: Islands, node: fx.Node) -> None:
    """A convolution over tokens."""
    x, kernel = node.args[:2]
    stride, padding, dilation, groups = _geometry(node)
    if any(each != 1 for each in dilation) or isinstance(padding, str):
        raise Refusal("a convolution with dilation or with named padding; expected a plain one over tokens")
    before = islands.signal(x)  # type: ignore[arg-type]
    component, rows = islands.layout.tokens(Signal(before.component, before.entries.transpose(1, 2)))
    if not torch.equal(rows.flatten(), torch.arange(component.rows)) or rows.dim() != 2 or len(rows) != islands.layout.sequences:
        raise Refusal("a convolution over something else than the tokens of a sequence; expected these")
    weight = _weight(islands, kernel, lambda value: value.permute(0, 2, 1).flatten(1))  # type: ignore[arg-type]
    shape = islands.constants.values[kernel].shape  # type: ignore[index]
    whole, width = node.meta["val"].shape[-1], shape[0]
    causal = _is_cut(node, islands.layout.length(component), [int(each) for each in (*stride, *padding)], shape[2])
    length = islands.layout.length(component) if causal else whole
    made = islands.layout.make(
        Convolution,
        inputs=[component],
        width=width,
        rows=len(rows) * length,
        weight=weight,
        bias=_weight(islands, _argument(node, 2)),
        fan_in=shape[1] * groups,
        kernel=shape[2],
        stride=int(stride[0]),
        padding=int(padding[0]),
        groups=groups,
        causal=causal,
        **islands.where(node),
    )
    entries = torch.arange(made.rows * width).reshape(len(rows), length, width)
    # Tokens that are cut off have numbers that no component has.
    rest = torch.full((len(rows), whole - length, width), made.rows * width)
    islands.start(node, made, torch.cat([entries, rest], 1).transpose(1, 2))


def _is_cut(node: fx.Node, length: int, geometry: list[int], kernel: int) -> bool:
    """True if only the first tokens of a convolution are read, as many as there are before it: then it is causal."""
    reads_first = [
        operation(user) == "slice" and user.args[1] in (-1, 2) and not _argument(user, 2) and user.meta["val"].shape[-1] == length
        for user in node.users
    ]
    return geometry == [1, kernel - 1] and kernel > 1 and bool(reads_first) and all(reads_first)


def batch_norm(islands: Islands, node: fx.Node) -> None:
    x, gain, bias, _, _, _, _, eps = node.args[:8]
    before = islands.signal(x)  # type: ignore[arg-type]
    if before.entries.dim() == 3:
        raise Refusal("BatchNorm of sequences in training; expected one vector per sample, images, or evaluation mode")
    last = before.entries.movedim(1, -1)
    component, rows = islands.layout.tokens(Signal(before.component, last))
    made = islands.layout.make(
        Norm,
        inputs=[component],
        width=component.width,
        rows=component.rows,
        kind={"batchnorm": {"training": True}},
        eps=float(eps),  # type: ignore[arg-type]
        gain=_weight(islands, gain),  # type: ignore[arg-type]
        bias=_weight(islands, bias),  # type: ignore[arg-type]
        **islands.where(node),
    )
    islands.start(node, made, entries_of(rows, component.width).movedim(-1, 1))


def attend(islands: Islands, node: fx.Node) -> None:
    attention.scaled_dot_product_attention(islands, node)


MAPS: dict[str, Callable[[Islands, fx.Node], None]] = {
    "linear": linear,
    "addmm": addmm,
    "matmul": matmul,
    "mm": matmul,
    "bmm": matmul,
    "baddbmm": baddbmm,
    "einsum": einsum,
    "embedding": embedding,
    "dropout": dropout,
    "dropout_": dropout,
    "conv1d": conv1d,
    "batch_norm": batch_norm,
    "scaled_dot_product_attention": attend,
}
