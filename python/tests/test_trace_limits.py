"""Modules that are read up to a place, for one value of an input, or not at all, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import sigprop.torch

WIDTH, TOKENS, VOCABULARY, SEGMENTS = 24, 13, 50, 3


def layer() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 4, 48, dropout=0.0, batch_first=True, norm_first=True)


class Unknown(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cumsum(x, -1)


class Encoder(nn.Module):
    """Two blocks and a norm, then `end(self, x, ids)`."""

    def __init__(self, end: Callable[[Encoder, Any, Any], Any]) -> None:
        super().__init__()
        self.table, self.segments = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0), nn.Embedding(SEGMENTS, WIDTH)
        self.layers, self.norm = nn.ModuleList(layer() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.query, self.pool = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.head = nn.Sequential(nn.Linear(WIDTH, 30), nn.GELU(), nn.Linear(30, 5))
        self.other, self._end = nn.Linear(WIDTH, 5), end

    def forward(self, ids: Any, segments: Any = None) -> Any:
        x = self.table(ids) if segments is None else self.table(ids) + self.segments(segments)
        for each in self.layers:
            x = each(x)
        return self._end(self, self.norm(x), ids)


def tokens() -> Any:
    return torch.randint(1, VOCABULARY, (2, TOKENS))


def mean_of_visible(module: Encoder, x: Any, ids: Any) -> Any:
    visible = (ids > 9).float()[..., None]
    return module.head((x * visible).sum(1) / visible.sum(1).clamp(min=1.0))


ENDS: dict[str, Callable[[Encoder, Any, Any], Any]] = {
    "mean": lambda module, x, ids: module.head(x.mean(1)),
    "largest": lambda module, x, ids: module.head(x.amax(1)),
    "first": lambda module, x, ids: module.head(x[:, 0]),
    "last": lambda module, x, ids: module.head(x[:, -1]),
    "two_heads": lambda module, x, ids: (module.head(x[:, 0]) + module.other(x[:, 1])) / 2.0,
    "by_id": lambda module, x, ids: module.head(x[torch.arange(len(ids)), ids.argmax(-1)]),
    "mean_of_visible": mean_of_visible,
    "read_by_a_query": lambda module, x, ids: module.head(module.pool(module.query.expand(len(x), -1, -1), x, x)[0][:, 0]),
    "normalised": lambda module, x, ids: nn.functional.normalize(x.mean(1), dim=-1),
}


@pytest.mark.parametrize("name", ENDS)
def test_pooled_tokens_end_the_network(name: str) -> None:
    torch.manual_seed(0)
    traced = sigprop.torch.trace(Encoder(ENDS[name]).eval(), tokens())
    assert list(traced.sites)[-1] == "norm" and traced.sites["layers.1"].path == "layers.1"
    assert [note for note in traced.notes if "reads some tokens or their average, so the network ends before it" in note]


def test_a_refused_block_is_not_taken_for_pooling() -> None:
    """All places are named, those of blocks that are alike in one line; the pooling after them is none."""
    torch.manual_seed(0)
    module = Encoder(ENDS["mean"]).eval()
    for each in module.layers:
        each.activation = Unknown()
    words = r"^layers\.0.* \(and 1 more, to layers\.1.*test_trace_limits\.py:\d+: "
    with pytest.raises(sigprop.torch.TraceError, match=words) as raised:
        sigprop.torch.trace(module, tokens())
    assert len(str(raised.value).splitlines()) == 1 and len(raised.value.refusals) == 2


def test_fewer_features_are_no_pooling() -> None:
    class Maxout(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.unflatten(-1, (-1, 2)).amax(-1)

    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Maxout(), nn.Linear(WIDTH // 2, WIDTH), Maxout(), nn.Linear(WIDTH // 2, 10))
    with pytest.raises(sigprop.torch.TraceError, match="^1: operations that are no known function"):
        sigprop.torch.trace(module, torch.randn(32, WIDTH))


def test_code_that_decides_by_values() -> None:
    class Decides(Encoder):
        def forward(self, ids: Any, segments: Any = None) -> Any:
            return super().forward(ids) if not (ids == 0).any() else super().forward(ids, segments) * 2.0

    torch.manual_seed(0)
    traced = sigprop.torch.trace(Decides(lambda module, x, ids: x).eval(), tokens())
    [note] = traced.notes
    assert "decides by values of the input" in note and "if not (ids == 0).any()" in note
    assert list(traced.sites)[-1] == "norm"


def test_ids_that_are_equal_are_constants() -> None:
    torch.manual_seed(0)
    module = Encoder(lambda module, x, ids: x).eval()
    traced = sigprop.torch.trace(module, tokens(), torch.ones(2, TOKENS, dtype=torch.long))
    assert traced.notes == ["segments: the same id everywhere, so the row that it chooses is a constant"]
    assert [next(iter(term)) for term in traced.stack["streams"][0]["source"]["embedding"]["terms"]] == ["token", "constant"]
    with pytest.raises(sigprop.torch.TraceError, match="a second reading of the ids"):
        sigprop.torch.trace(module, tokens(), torch.randint(SEGMENTS, (2, TOKENS)))


def test_ids_that_are_written_in_place() -> None:
    class Shifts(Encoder):
        def forward(self, ids: Any, segments: Any = None) -> Any:
            shifted = torch.ones_like(ids)
            shifted[:, 1:] = ids[:, :-1]
            return super().forward(shifted)

    torch.manual_seed(0)
    assert list(sigprop.torch.trace(Shifts(lambda module, x, ids: x).eval(), tokens()).sites)[-1] == "norm"


def test_rows_of_padding_are_no_part_of_a_table() -> None:
    torch.manual_seed(0)
    module = Encoder(lambda module, x, ids: x).eval()
    stack = sigprop.torch.trace(module, tokens()).stack
    [term] = stack["streams"][0]["source"]["embedding"]["terms"]
    std = float(module.table.weight[1:].detach().square().mean().sqrt())
    assert term["token"]["table"]["init"]["normal"]["std"] == pytest.approx(std, rel=1e-6)


def test_two_dimensional_rotations_are_refused_in_words() -> None:
    class Rotates(nn.Linear):
        def forward(self, x: Any) -> Any:
            query = super().forward(x).unflatten(-1, (4, -1)).transpose(1, 2)
            place = torch.arange(16)
            angle = torch.stack([place // 4, place % 4], -1) * torch.tensor([1.0, 0.3])
            one, two = query[..., :2], query[..., 2:4]
            turned = torch.cat([one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()], -1)
            return x + nn.functional.scaled_dot_product_attention(turned, turned, query).transpose(1, 2).flatten(2)

    words = "such as rotary positions over two dimensions; expected a frequency per pair"
    with pytest.raises(sigprop.torch.TraceError, match=words):
        sigprop.torch.trace(Rotates(16, 16), torch.randn(2, 16, 16))
