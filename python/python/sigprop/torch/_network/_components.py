"""Components that act on the tokens of one signal."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ._expression import expression
from ._node import Node, Part, Place, Run, Shape, in_heads, variant


class Linear(Node):
    """y = W x + b. The rows of a standardised weight have mean zero and one length."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, Shape(shape.seq_len, part["fan_out"]))
        self._weight = place.tensor(part["weight"], part["fan_out"], part["fan_in"])
        self._bias = place.bias(part.get("bias"), part["fan_out"])
        self._length = part.get("standardised")

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        weight = run[self._weight]
        if self._length is not None:
            weight = weight - weight.mean(1, keepdim=True)
            weight = self._length * F.normalize(weight, dim=1, eps=torch.finfo(weight.dtype).tiny)
        return F.linear(x, weight, run.get(self._bias))


class Convolution(Node):
    """y_a = Σ_k W_k x_(a·stride + k − padding) + b, over positions or over the pixels of images."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        self._kernel, self._stride, self._padding = part["kernel"], part["stride"], part["padding"]
        self._groups, sides = part.get("groups", 1), 1 if part.get("causal") else 2
        self._image, taps = part.get("image"), self._kernel
        self._length = (shape.seq_len + sides * self._padding - self._kernel) // self._stride + 1
        if self._image is not None:
            taps, self._length = self._kernel**2, _windows(part, shape.seq_len)
        super().__init__(place.site, Shape(self._length, part["fan_out"]))
        self._weight = place.tensor(part["weight"], part["fan_out"], taps * part["fan_in"] // self._groups)
        self._bias = place.bias(part.get("bias"), part["fan_out"])

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        # A row of W has the taps one after the other, each with its features.
        if self._image is not None:
            taps = in_heads(run[self._weight], self._kernel**2).transpose(1, 2)
            weight = taps.reshape(*taps.shape[:2], self._kernel, self._kernel)
            pixels = _as_images(x, self._image)
            y = F.conv2d(pixels, weight, run.get(self._bias), self._stride, self._padding, groups=self._groups)
            return _as_tokens(y, len(x))
        weight = in_heads(run[self._weight], self._kernel).transpose(1, 2)
        y = F.conv1d(x.transpose(1, 2), weight, run.get(self._bias), self._stride, self._padding, groups=self._groups)
        # Padding is on both sides; a causal convolution has none after the last token.
        return y[..., : self._length].transpose(1, 2)


class Pool(Node):
    """The mean of x, or the largest φ(x), over windows of pixels."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, Shape(_windows(part, shape.seq_len), shape.width))
        self._image, self._geometry = part["image"], (part["kernel"], part["stride"], part["padding"])
        self._kind, kind = variant(part["kind"])
        self._activation = Activation(kind["activation"], place, shape) if self._kind == "max" else None

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        if self._activation is None:
            return _as_tokens(F.avg_pool2d(_as_images(x, self._image), *self._geometry), len(x))
        values = self._activation.apply_to(x, run)
        return _as_tokens(F.max_pool2d(_as_images(values, self._image), *self._geometry), len(x))


def _windows(part: Part, seq_len: int) -> int:
    """The number of windows over the images of `seq_len` pixels."""
    height, width = int(part["image"]["height"]), int(part["image"]["width"])
    along = [(length + 2 * part["padding"] - part["kernel"]) // part["stride"] + 1 for length in (height, width)]
    return int(seq_len // (height * width) * math.prod(along))


def _as_images(x: Tensor, image: Part) -> Tensor:
    """Tokens (batch, pixels, features) as images (images, features, height, width)."""
    return x.reshape(-1, image["height"], image["width"], x.shape[-1]).permute(0, 3, 1, 2)


def _as_tokens(y: Tensor, batch: int) -> Tensor:
    """Images (images, features, height, width) as tokens (batch, pixels, features)."""
    return y.permute(0, 2, 3, 1).reshape(batch, -1, y.shape[1])


class Norm(Node):
    """LayerNorm, RMSNorm or a function in their place, over all features or over groups that share gains; BatchNorm over tokens."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._kind, function = variant(part["kind"])
        self._training = function.get("training")
        self._alpha, self._eps, self._groups = function.get("alpha"), part["eps"], part["groups"]
        features = shape.width // self._groups
        gain = {"constant": {"value": part["gain"]}}
        self._gain = place.tensor({"name": f"{place.owner}.gain", "init": gain}, features, is_told=self._groups == 1)
        self._bias = None
        if self._kind != "rmsnorm" or "bias" in part:
            bias = {"name": f"{place.owner}.bias", "init": part.get("bias", "zero")}
            self._bias = place.tensor(bias, features, is_told=False)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        x = in_heads(x, self._groups)
        if self._kind == "layernorm":
            y = F.layer_norm(x, x.shape[-1:], eps=self._eps)
        elif self._kind == "rmsnorm":
            y = x * (x.square().mean(-1, keepdim=True) + self._eps).rsqrt()
        elif self._kind == "batchnorm":
            y = self._over_batch(x)
        else:
            y = {"dyt": torch.tanh, "derf": torch.erf}[self._kind](self._alpha * x)
        y = y * run[self._gain]
        bias = run.get(self._bias)
        return (y if bias is None else y + bias).flatten(-2)

    def _over_batch(self, x: Tensor) -> Tensor:
        """Normalises over the tokens as a batch. In evaluation, gradients do not pass through its statistics."""
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).square().mean(1, keepdim=True)
        if not self._training:
            mean, variance = mean.detach(), variance.detach()
        divisor: Tensor = (variance + self._eps).sqrt()
        return (x - mean) / divisor


def _xielu(x: Tensor) -> Tensor:
    return 0.5 * x + 0.8 * torch.where(x > 0, x.square(), torch.expm1(x.clamp_max(0.0)) - x)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "identity": lambda x: x,
    "plus_one": lambda x: x + 1.0,
    "relu": F.relu,
    "leaky_relu": lambda x, slope: F.leaky_relu(x, slope),
    "relu2": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "mish": F.mish,
    "hard_swish": F.hardswish,
    "relu6": F.relu6,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "softplus": F.softplus,
    "elu": F.elu,
    "selu": F.selu,
    "xielu": _xielu,
}


class Activation(Node):
    """An elementwise function."""

    def __init__(self, part: str | Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        kind, content = variant(part)
        self._function = expression(content) if kind == "expression" else partial(ACTIVATIONS[kind], **content)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return self._function(x)


class Dropout(Node):
    """In training, zeroes every entry with a probability and scales up the others."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._rate = part["rate"]

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return F.dropout(x, self._rate, self.training)


class Scale(Node):
    """Multiplication by a number."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._factor: float = part["factor"]

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return x * self._factor


class Select(Node):
    """Some of the features."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, Shape(shape.seq_len, part["width"]))
        self._features = slice(part["start"], part["start"] + part["width"])

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return x[..., self._features]


class Rotary(Node):
    """Rotates features i and i + n of every head by position · frequency i, i < n."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._d_head, self._frequencies = part["d_head"], part["frequencies"]

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        frequencies = torch.tensor(self._frequencies, dtype=torch.float64)
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * frequencies
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        n = len(self._frequencies)
        heads = in_heads(x, x.shape[-1] // self._d_head)
        a, b, rest = torch.split(heads, [n, n, self._d_head - 2 * n], dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1).flatten(-2)


class Positions(Node):
    """An embedding of positions, added after the source."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, shape)
        self._term = Term(part, place, shape, vocab_size=0)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return x + self._term(run, x.shape[1])


class Prepend(Node):
    """A learned token before all others."""

    def __init__(self, part: Part, place: Place, shape: Shape) -> None:
        super().__init__(place.site, Shape(shape.seq_len + 1, shape.width))
        self._token = place.tensor(part["token"], 1, shape.width)

    def apply_to(self, x: Tensor, run: Run) -> Tensor:
        return torch.cat([run[self._token].expand(len(x), 1, -1), x], dim=1)


class Term:
    """A summand of embeddings: rows of a table, or sinusoids."""

    def __init__(self, part: Part, place: Place, shape: Shape, vocab_size: int) -> None:
        self._kind, term = variant(part)
        self._width = shape.width
        self._scale: float | None = term.get("scale")
        rows = {"token": vocab_size, "learned_position": shape.seq_len, "segment": 2, "constant": term.get("rows")}
        self._table = None if self._scale is not None else place.tensor(term["table"], rows[self._kind], shape.width)

    def __call__(self, run: Run, seq_len: int, ids: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """The summand, shape (batch or 1, tokens or 1, features)."""
        if self._table is None:
            return self._sinusoids(seq_len).to(run.like)
        table = run[self._table]
        if self._kind == "token" and ids is not None:
            return F.embedding(ids, table)
        if self._kind == "segment" and segments is not None:
            return F.embedding(segments, table)
        return table[None, :seq_len] if self._kind == "learned_position" else table[None, :1]

    def _sinusoids(self, seq_len: int) -> Tensor:
        assert self._scale is not None
        even = torch.arange(self._width, dtype=torch.float64) // 2 * 2
        angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * torch.exp(-math.log(10000.0) * even / self._width)
        is_odd = torch.arange(self._width) % 2 == 1
        return self._scale * torch.where(is_odd, angles.cos(), angles.sin())
