"""Maps of images: convolutions and pooling over their pixels, which are the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ._components import Activation, Component, Convolution, Gains, Norm, Pool, Refusal, Scale, Shift
from ._islands import Islands
from ._layout import Given, Signal
from ._maps import _argument, _geometry, _linear, _weight


def conv2d(islands: Islands, node: fx.Node) -> None:
    """A linear map of pixels, or of the patches of a given image, which do not overlap; or a convolution over pixels."""
    x, kernel = node.args[:2]
    stride, padding, dilation, groups = _geometry(node)
    _, channels, height, width = islands.constants.values[kernel].shape  # type: ignore[index]
    if isinstance(padding, str) or any(each != 1 for each in dilation):
        raise Refusal("a convolution with dilation or with named padding; expected a plain one over pixels")
    before = islands.signal(x)  # type: ignore[arg-type]
    is_of_patches = _pair(stride) == [height, width] and groups == 1 and not any(padding)
    if not is_of_patches or not (isinstance(before.component, Given) or height == width == 1):
        _over_pixels(islands, node, before)
        return
    down, across = before.entries.shape[-2] // height, before.entries.shape[-1] // width
    images = before.entries[..., : down * height, : across * width]
    patches = images.reshape(*images.shape[:2], down, height, across, width).permute(0, 2, 4, 1, 3, 5).flatten(3)
    weight = _weight(islands, kernel, lambda value: value.flatten(1))  # type: ignore[arg-type]
    made, entries = _linear(islands, node, Signal(before.component, patches), weight, _weight(islands, _argument(node, 2)))
    islands.start(node, made, entries.permute(0, 3, 1, 2))


def _pair(value: Any) -> list[int]:
    """A number per axis of images, from one number or two."""
    numbers = [value] if isinstance(value, int) else [int(each) for each in value]
    return numbers * 2 if len(numbers) == 1 else numbers


def _pixels(islands: Islands, signal: Signal) -> tuple[Component, tuple[int, int]]:
    """The component whose tokens are the pixels of images, and the size of these."""
    component, rows = islands.layout.tokens(Signal(signal.component, signal.entries.permute(0, 2, 3, 1)))
    if not torch.equal(rows.flatten(), torch.arange(component.rows)):
        raise Refusal("a map over something else than whole images; expected all pixels, row by row")
    return component, (rows.shape[1], rows.shape[2])


def _square(node: fx.Node, *arguments: Any) -> list[int]:
    """Numbers per axis of images, which must be equal for both axes."""
    pairs = [_pair(argument) for argument in arguments]
    if any(height != width for height, width in pairs):
        raise Refusal(f"windows with different numbers along the two axes ({pairs}); expected square windows")
    return [height for height, _ in pairs]


def _over_pixels(islands: Islands, node: fx.Node, before: Signal) -> None:
    """A convolution over the pixels of images."""
    kernel = node.args[1]
    stride, padding, _, groups = _geometry(node)
    shape = islands.constants.values[kernel].shape  # type: ignore[index]
    size, step, added = _square(node, shape[2:], stride, padding)
    component, image = _pixels(islands, before)
    weight = _weight(islands, kernel, lambda value: value.permute(0, 2, 3, 1).flatten(1))  # type: ignore[arg-type]
    images, width, down, across = node.meta["val"].shape
    made = islands.layout.make(
        Convolution,
        inputs=[component],
        width=width,
        rows=images * down * across,
        weight=weight,
        bias=_weight(islands, _argument(node, 2)),
        fan_in=shape[1] * groups,
        kernel=size,
        stride=step,
        padding=added,
        groups=groups,
        image=image,
        **islands.where(node),
    )
    _start_images(islands, node, made)


def _start_images(islands: Islands, node: fx.Node, made: Component) -> None:
    images, width, down, across = node.meta["val"].shape
    entries = torch.arange(made.rows * width).reshape(images, down, across, width)
    islands.start(node, made, entries.permute(0, 3, 1, 2))


def _pooled(
    islands: Islands, node: fx.Node, kind: str | dict[str, Any], before: tuple[Component, tuple[int, int]], geometry: list[int]
) -> None:
    (component, image), (kernel, stride, padding) = before, geometry
    images, width, down, across = node.meta["val"].shape
    sizes = {"width": width, "rows": images * down * across, "kernel": kernel, "stride": stride, "padding": padding}
    made = islands.layout.make(Pool, inputs=[component], kind=kind, image=image, **sizes, **islands.where(node))
    _start_images(islands, node, made)


def average_pool(islands: Islands, node: fx.Node) -> None:
    kernel, padding = node.args[1], _argument(node, 3, 0)
    geometry = _square(node, kernel, _argument(node, 2) or kernel, padding)
    _pooled(islands, node, "average", _pixels(islands, islands.signal(node.args[0])), geometry)  # type: ignore[arg-type]


def adaptive_average_pool(islands: Islands, node: fx.Node) -> None:
    component, image = _pixels(islands, islands.signal(node.args[0]))  # type: ignore[arg-type]
    if _pair(node.args[1]) != [1, 1] or image[0] != image[1]:
        raise Refusal(f"an average of {image[0]} × {image[1]} pixels to {node.args[1]}; expected one of all pixels of square images")
    _pooled(islands, node, "average", (component, image), [image[0], image[0], 0])


def max_pool(islands: Islands, node: fx.Node) -> None:
    """The largest value of windows: of a ReLU of a Gaussian signal, or of a Gaussian signal."""
    kernel, padding, dilation = node.args[1], _argument(node, 3, 0), _argument(node, 4, 1)
    geometry = _square(node, kernel, _argument(node, 2) or kernel, padding)
    component, image = _pixels(islands, islands.signal(node.args[0]))  # type: ignore[arg-type]
    function = "identity"
    if isinstance(component, Activation) and component.function == "relu":
        component, function = component.inputs[0], "relu"
    if _pair(dilation) != [1, 1] or not isinstance(component, (Norm, Convolution, Gains, Shift, Scale)):
        raise Refusal("a maximum of pixels that are not Gaussian; expected it after a convolution or norm, with or without a ReLU")
    _pooled(islands, node, {"max": {"activation": function}}, (component, image), geometry)


PIXELS: dict[str, Callable[[Islands, fx.Node], None]] = {
    "conv2d": conv2d,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_average_pool,
    "max_pool2d": max_pool,
}
