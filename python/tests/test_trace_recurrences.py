"""Linear attention, retention and gates of x + 1: read by their values, and predicted as sampled networks are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_trace import HEADS, NONE, TOKENS, VOCABULARY, WIDTH, assert_predicted, inputs, parts
from torch import nn

import sigprop.torch

N_HEADS, D_HEAD = 4, WIDTH // 4


def decay(rates: Any) -> Any:
    """e^(−rate · distance) for the query itself and keys before it, zero else, shape (heads, queries, keys)."""
    distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)[None]
    return torch.exp(-rates[:, None, None] * distance.clamp_min(0)) * (distance >= 0)


class Retention(nn.Module):
    """Queries and keys without a softmax, times a mask; with the feature map elu + 1 for linear attention."""

    def __init__(self, mask: Any, has_feature_map: bool = False) -> None:
        super().__init__()
        self.norm, self.fused, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", mask)
        self.has_feature_map = has_feature_map

    def forward(self, x: Any) -> Any:
        query, key, value = (each.unflatten(-1, (N_HEADS, D_HEAD)).transpose(1, 2) for each in self.fused(self.norm(x)).chunk(3, -1))
        if self.has_feature_map:
            query, key = (nn.functional.elu(each) + 1.0 for each in (query, key))
        weights = D_HEAD**-0.5 * (query @ key.transpose(-1, -2)) * self.mask
        return x + self.out((weights @ value).transpose(1, 2).flatten(2))


def retention() -> nn.Module:
    # Sun et al. 2023: decays 1 − 2⁻⁵, 1 − 2⁻⁶, …
    rates = -torch.log1p(-(2.0 ** -(5.0 + torch.arange(N_HEADS))))
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *(Retention(decay(rates)) for _ in range(3)))


def linear_attention() -> nn.Module:
    layers = (Retention(decay(torch.zeros(N_HEADS)), has_feature_map=True) for _ in range(3))
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers)


def given(seed: int) -> dict[str, Any]:
    return {"input": inputs("by_hand", seed)["ids"]}


def fresh(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return make()


@pytest.mark.parametrize("make", [retention, linear_attention])
def test_recurrences(make: Callable[[], nn.Module]) -> None:
    found = sigprop.torch.trace(fresh(make, 0), **given(0))
    assert [role.name for name, role in found.roles.items() if name.endswith("out.weight")] == ["attention_output"] * 3
    powers = torch.arange(5, 5 + N_HEADS)
    rates = [0.0] * N_HEADS if make is linear_attention else (-torch.log1p(-(2.0**-powers))).tolist()
    for part in parts(found.stack, "recurrence"):
        assert (part["n_heads"], part["n_key_heads"], part["d_key"], part["d_value"], part["write"]) == (4, 4, 16, 16, "one")
        assert part["scale"] == pytest.approx(0.25)
        assert part["decay"]["fixed"]["rates"] == pytest.approx(rates, rel=1e-4)
    kinds = str(list(parts(found.stack, "recurrence")))
    assert kinds.count("relu(x) + expm1(min(x, 0)) + 1") == (6 if make is linear_attention else 0)
    assert_predicted(found, lambda seed: fresh(make, seed), given, networks=24)


def test_other_products_without_softmax_are_refused() -> None:
    rates = torch.full((N_HEADS,), 0.1)
    uneven = decay(rates) / decay(rates).sum(-1, keepdim=True).sqrt()
    with pytest.raises(sigprop.torch.TraceError, match=r"a mask that is no decay; expected a softmax, or a linear recurrence.*test_trace_rec"):
        sigprop.torch.trace(nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Retention(uneven)), **given(0))


def gpt_oss() -> Any:
    sizes = {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "initializer_range": 0.1}
    return transformers.GptOssModel(transformers.GptOssConfig(**HEADS, **NONE, **sizes)).eval()


def test_gates_of_one_more() -> None:
    """GPT-OSS: sinks, and experts W_out (φ(W_gate x) ∘ (W_up x + 1)). Biases of routers that are not zero are refused."""
    module = gpt_oss()
    with pytest.raises(sigprop.torch.TraceError, match="a router with a bias, .* expected a bias of zero or none"):
        sigprop.torch.trace(module, **inputs("mixtral"))
    for layer in module.layers:
        nn.init.zeros_(layer.mlp.router.bias)
    found = sigprop.torch.trace(module, **inputs("mixtral"))
    assert len(found.notes) == 3 and all("does not reach the limits of the clamps" in note for note in found.notes)
    mixtures = list(parts(found.stack, "mixture"))
    assert [(part["n_experts"], part["top_k"], part["normalised"]) for part in mixtures] == [(4, 2, True)] * 3
    kinds = [str(factor[-1]["op"]) for factor in next(parts(mixtures, "product"))["factors"]]
    assert kinds == ["{'apply': {'activation': 'quick_gelu'}}", "{'apply': {'activation': 'plus_one'}}"]
    assert all("sink" in part for part in parts(found.stack, "attention"))


class OneMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.out = nn.Linear(WIDTH, 96), nn.Linear(WIDTH, 96), nn.Linear(96, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.out(nn.functional.silu(self.gate(x)) * (self.up(x) + 1.0))


def test_one_more_is_no_parameter() -> None:
    found = sigprop.torch.trace(OneMore(), torch.randn(32, WIDTH))
    assert "plus_one" in str(found.stack) and "constant" not in str(next(parts(found.stack, "product")))
