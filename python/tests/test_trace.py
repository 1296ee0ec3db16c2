"""Live modules as stacks: the stack is the function of the module, and its predictions are those of sampled networks."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn

import sigprop
import sigprop.torch

transformers.logging.set_verbosity_error()

WIDTH, TOKENS, VOCABULARY = 64, 13, 128
# Probability that any cell of a sampled test fails by chance: Bonferroni over its cells, Student's t.
ALPHA = 1e-3
# Predictions are leading orders in 1/width, and weights of a stack are measured in one module.
MODEL_ERROR = 0.06
# Weights with which experts change the stream.
LARGE = 0.1
NONE = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
HEADS = {"hidden_size": WIDTH, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": VOCABULARY}


class Attention(nn.Module):
    """Causal attention by hand, with a fused map and keys that two heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.fused, self.out = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        value, query, key = self.fused(x).split([32, WIDTH, 32], dim=-1)
        query, key, value = (part.unflatten(-1, (-1, 16)).transpose(1, 2) for part in (query, key, value))
        key, value = key.repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
        scores = query @ key.transpose(-1, -2) / 4.0
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = scores.masked_fill(mask, -torch.inf).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class ByHand(nn.Module):
    """Blocks that their container adds, and norms by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.gates = nn.ParameterList(torch.full((WIDTH,), 0.5) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
            x = x + gate * layer(normed)
        return x


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_layer=3, n_embd=WIDTH, n_head=4, n_positions=64, vocab_size=VOCABULARY, **NONE)
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**HEADS, **NONE, num_key_value_heads=2))


def mixtral() -> nn.Module:
    sizes = {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    return transformers.MixtralModel(transformers.MixtralConfig(**HEADS, **NONE, **sizes, initializer_range=LARGE))


def qwen3_moe() -> nn.Module:
    sizes = {"num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
    return transformers.Qwen3MoeModel(transformers.Qwen3MoeConfig(**HEADS, **NONE, **sizes, initializer_range=LARGE))


def bert() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**HEADS))


def t5() -> nn.Module:
    config = transformers.T5Config(d_model=WIDTH, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY)
    return transformers.T5Model(config)


def encoder(layers_are_copies: bool = False) -> nn.Module:
    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True, norm_first=True)

    module = nn.TransformerEncoder(layer(), 3, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    if not layers_are_copies:
        module.layers = nn.ModuleList(layer() for _ in range(3))
    return module


def inputs(name: str, seed: int = 0) -> dict[str, Any]:
    # The weights of a module are made with the seed itself.
    generator = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(2, VOCABULARY, (2, TOKENS), generator=generator)
    if name in ("mlp", "encoder"):
        shape = (32, WIDTH) if name == "mlp" else (2, TOKENS, WIDTH)
        return {"input" if name == "mlp" else "src": torch.randn(shape, generator=generator)}
    if name == "by_hand":
        return {"ids": ids}
    return {"input_ids": ids, **({"decoder_input_ids": ids.flip(-1)[:, :11]} if name == "t5" else {})}


MODULES: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2, "llama": llama, "mixtral": mixtral, "qwen3_moe": qwen3_moe, "bert": bert, "t5": t5, "encoder": encoder,
    "by_hand": ByHand,
    "mlp": lambda: nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))),
}
BLOCKS = {
    "gpt2": "transformer.h.{}", "llama": "model.layers.{}", "bert": "encoder.layer.{}", "t5": "decoder.block.{}", "mlp": "{}",
    "encoder": "layers.{}", "by_hand": "layers.{}", "mixtral": "layers.{}", "qwen3_moe": "layers.{}",
}
GATED = ("llama", "mixtral", "qwen3_moe")


def made(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODULES[name]().eval()


def parts(stack: Any, kind: str) -> Iterator[dict[str, Any]]:
    """The parts of a stack of this kind."""
    if isinstance(stack, list):
        for inner in stack:
            yield from parts(inner, kind)
    elif isinstance(stack, dict):
        if kind in stack:
            yield stack[kind]
        for inner in stack.values():
            yield from parts(inner, kind)


@pytest.fixture(scope="module", params=MODULES)
def traced(request: pytest.FixtureRequest) -> tuple[str, nn.Module, sigprop.torch.Traced]:
    torch.set_num_threads(1)
    module = made(request.param)
    return request.param, module, sigprop.torch.trace(module, **inputs(request.param))


def test_sites_are_modules(traced: Any) -> None:
    """`trace` itself compares the function of the stack with that of the module."""
    name, module, found = traced
    blocks = [BLOCKS[name].format(number) for number in range(2 if name == "t5" else 3)]
    assert [site for site in found.sites if site in blocks] == blocks
    assert all(module.get_submodule(found.sites[block].path) is module.get_submodule(block) for block in blocks)
    assert found.notes == []
    assert found.stack == json.loads(found.to_json())["stack"]
    assert list(sigprop.torch.build(found.stack).sites())


def test_predictions_are_those_of_sampled_networks(traced: Any) -> None:
    name, _, found = traced
    assert_predicted(found, lambda seed: made(name, seed), lambda seed: inputs(name, seed), networks=24)


def assert_predicted(
    found: sigprop.torch.Traced, build: Callable[[int], nn.Module], given: Callable[[int], dict[str, Any]], networks: int
) -> None:
    """Compares predictions with networks that are initialised with the seeds 0, 1, …"""
    observed = sigprop.torch.Observed([])
    for seed in range(networks):
        observed += found.observe(build(seed), torch.Generator().manual_seed(seed), list(given(seed).values()))
    predicted = sigprop.torch.predict(build(0), **given(0))
    values = {(site, quantity): value for quantity in ("variance", "grad_variance")
              for site, value in zip(predicted["site"], predicted[quantity], strict=True)}
    rows = [row for row in observed.rows if (row["site"], row["quantity"]) in values]
    assert len(rows) >= 8
    from scipy.stats import t

    bound = t.ppf(1.0 - ALPHA / (2 * len(rows)), networks - 1)
    for row in rows:
        error = abs(values[row["site"], row["quantity"]] - row["observed"]) - MODEL_ERROR * row["observed"]
        assert error <= bound * row["std_error"], (row, values[row["site"], row["quantity"]])


def test_roles(traced: Any) -> None:
    name, _, found = traced
    roles = {(role.name, role.block) for role in found.roles.values()}
    if name == "mlp":
        assert roles == {("other", number) for number in range(3)}
        return
    for block in range(2):
        assert {("query", block), ("key", block), ("value", block), ("attention_output", block)} <= roles
        inner = "ffn_up" if name in GATED else "ffn_in"
        assert name == "by_hand" or {(inner, block), ("ffn_out", block)} <= roles
    assert (("ffn_gate", 0) in roles) == (name in GATED)
    assert (("head", None) in roles) == (name == "llama")
    assert name == "encoder" or ("embedding", None) in roles


def test_mixtures() -> None:
    """Weights of experts are parts of one parameter; a shared expert with a gate is a mixture of one."""
    found = sigprop.torch.trace(made("mixtral"), **inputs("mixtral"))
    mixtures = list(parts(found.stack, "mixture"))
    sizes = {"n_experts": 4, "top_k": 2, "weighting": "softmax", "normalised": True, "scale": 1.0}
    assert len(mixtures) == 3 and all(sizes.items() <= mixture.items() for mixture in mixtures)
    up = found.weights["layers.1.mlp.experts.gate_up_proj[128:256]"]
    assert up.value.shape == (4, 128, WIDTH) and up.origin is not None and up.origin.axis == 1
    config = transformers.Qwen2MoeConfig(
        **HEADS, **NONE, num_key_value_heads=2, moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=4,
        num_experts_per_tok=3, norm_topk_prob=True,
    )
    shared = sigprop.torch.trace(transformers.Qwen2MoeModel(config).eval(), **inputs("mixtral"))
    kinds = [(part["n_experts"], part["top_k"], part["weighting"], part["normalised"]) for part in parts(shared.stack, "mixture")]
    assert kinds == [(4, 3, "softmax", True), (1, 1, "sigmoid", False)] * 3


def test_weights_of_inputs() -> None:
    """Llama 4's experts, and the shared expert next to them."""
    config = transformers.Llama4TextConfig(
        **HEADS, **NONE, num_key_value_heads=2, head_dim=16, intermediate_size_mlp=64, num_local_experts=4, initializer_range=0.1,
    )
    found = sigprop.torch.trace(transformers.Llama4TextModel(config).eval(), **inputs("mixtral"))
    mixtures = list(parts(found.stack, "mixture"))
    sizes = {"n_experts": 4, "top_k": 1, "weighting": "sigmoid", "weights_multiply": "inputs", "normalised": False, "scale": 1.0}
    assert len(mixtures) == config.num_hidden_layers and all(sizes.items() <= mixture.items() for mixture in mixtures)


def test_other_mixtures_are_refused() -> None:
    """Experts in groups."""
    config = transformers.Glm4MoeConfig(
        **HEADS, **NONE, num_key_value_heads=2, head_dim=16, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2,
        n_group=4, topk_group=2, first_k_dense_replace=0, routed_scaling_factor=2.5,
    )
    with pytest.raises(sigprop.torch.TraceError, match=r"mixture was not recognised: tried experts W_out \(φ"):
        sigprop.torch.trace(transformers.Glm4MoeModel(config).eval(), **inputs("mixtral"))
    config.n_group, config.topk_group = 1, 1
    found = sigprop.torch.trace(transformers.Glm4MoeModel(config).eval(), **inputs("mixtral"))
    mixture = next(parts(found.stack, "mixture"))
    assert (mixture["weighting"], mixture["normalised"], mixture["scale"]) == ("sigmoid", True, 2.5)


def test_init_draws_experts() -> None:
    module = made("mixtral")
    applied = sigprop.torch.init_(module, **inputs("mixtral"), scheme="xavier", generator=torch.Generator().manual_seed(0))
    stds = dict(zip(applied["tensor"].tolist(), applied["std"].tolist(), strict=True))
    std = (2.0 / (128 + WIDTH)) ** 0.5
    assert stds["layers.0.mlp.experts.gate_up_proj[0:128]"] == pytest.approx(std, rel=0.05)
    assert float(module.get_parameter("layers.2.mlp.experts.down_proj").detach().std()) == pytest.approx(std, rel=0.05)


def test_heads_end_the_stream() -> None:
    module = made("gpt2")
    found = sigprop.torch.trace(module, **inputs("gpt2"))
    assert found.stack["head"]["weight"]["name"] == "transformer.wte.weight"
    assert list(found.sites)[-1] == "transformer.ln_f"
    assert sigprop.torch.predict(module, **inputs("gpt2"), head="own", loss="cross-entropy").loss is not None
    validation = sigprop.torch.predict(module, **inputs("gpt2")).against(found.observe())
    assert np.median(np.abs(validation["relative_error"])) < 0.2


def test_lengths() -> None:
    """Long sequences are cut for the trace, and predicted whole."""
    module = made("llama")
    ids = torch.randint(VOCABULARY, (1, 40))
    found = sigprop.torch.trace(module, ids)
    assert found.stack["streams"][0]["seq_len"] < 20
    assert found.at_length()["streams"][0]["seq_len"] == 40
    assert found.at_length(99)["streams"][0]["seq_len"] == 99
    assert sigprop.torch.predict(module, ids, seq_len=8, theory="mean-field")["variance"][1] > 0.0


def test_copied_layers_are_reported() -> None:
    """torch.nn.TransformerEncoder makes deep copies of its layer."""
    with pytest.warns(UserWarning, match=r"^blocks 0–2 of 3 are equal in .*layers\.\*\.linear1\.weight"):
        prediction = sigprop.torch.predict(encoder(layers_are_copies=True).eval(), **inputs("encoder"))
    assert {caveat["kind"] for caveat in prediction.caveats} & {"dependent_weights", "shared_tensor"} == set()


def test_shared_blocks_share_gains() -> None:
    """ALBERT runs one block several times. Its later norms have the gains of the first, and it is predicted as its config."""
    config = transformers.AlbertConfig(**HEADS, **NONE, embedding_size=32)
    module = transformers.AlbertModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(0, VOCABULARY, (2, TOKENS))
    traced = sigprop.torch.trace(module, input_ids=ids)
    assert json.dumps(traced.stack).count('"shared_with"') == 4
    flags: dict[str, Any] = {"scheme": "normal:0.08", "theory": "mean-field"}
    of_module = sigprop.torch.predict(module, input_ids=ids, **flags)
    of_config = sigprop.predict(config, seq_len=TOKENS, uniform=True, **flags)
    for column, row in (("token_correlation", -1), ("grad_variance", 0)):
        np.testing.assert_allclose(of_module[column][row], of_config[column][row], rtol=2e-3)


def test_modules_do_not_change() -> None:
    module = made("gpt2").train()
    state, attributes = copy.deepcopy(module.state_dict()), {name: set(vars(inner)) for name, inner in module.named_modules()}
    sigprop.torch.trace(module, **inputs("gpt2")).observe(made("gpt2", 1))
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert {name: set(vars(inner)) for name, inner in module.named_modules()} == attributes
    assert module.training and all(parameter.grad is None for parameter in module.parameters())


class Odd(nn.Linear):
    def forward(self, x: Any) -> Any:
        return torch.cumsum(super().forward(x), -1)


def test_refusals_name_module_and_line() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Odd(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    with pytest.raises(sigprop.torch.TraceError, match=r"^1: .*test_trace\.py:\d+: return torch\.cumsum") as raised:
        sigprop.torch.trace(module, torch.randn(32, WIDTH))
    assert isinstance(raised.value, ValueError) and raised.value.refusals[0].path == "1"


def test_shared_maps_are_refused() -> None:
    class Skips(nn.ModuleList):
        def forward(self, x: Any) -> Any:
            one = torch.relu(self[0](x))
            return torch.tanh(one + x) + torch.relu(self[2](torch.relu(self[1](one)) + x))

    with pytest.raises(sigprop.torch.TraceError, match="share 0; expected parts that have no map in common"):
        sigprop.torch.trace(Skips(nn.Linear(WIDTH, WIDTH) for _ in range(3)), torch.randn(32, WIDTH))


def test_another_function_is_refused() -> None:
    """The comparison names the first site that differs."""
    from sigprop.torch._trace import _verify, capture, read, structure

    module = made("gpt2")
    found = read(capture(module, (), inputs("gpt2")))
    assert found.end is not None
    checked = structure(found.end, "gpt2", found.sequences, exact=True)
    assert _verify.difference(found, checked) is None
    checked.parts.weights["transformer.h.1.mlp.c_fc.weight"].value = torch.randn(128 * 2, WIDTH)
    different = _verify.difference(found, checked)
    assert different is not None and "at transformer.h.1 where" in different.text


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "network.py"
    file.write_text("import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())\n")
    words = [sys.executable, "-m", "sigprop.torch", f"{file}:build", "--shape", "32,64", "predict", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == ["site", "embeddings", "0", "1"]


def test_a_model_file() -> None:
    """Its table of positions has more rows than the trace has tokens."""
    file = Path(__file__).parents[1] / "examples" / "handwritten_gpt.py"
    words = [sys.executable, "-m", "sigprop.torch", f"{file}:CharacterModel", "--tokens", "2,64:96", "predict", "--scheme", "xavier"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "24 blocks" in done.stdout and "64 tokens" in done.stdout and "tokens collapse" in done.stdout
    assert done.stderr == ""


def test_schemes_by_role_are_those_of_the_config() -> None:
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=32)
    model, tokens = transformers.GPT2Model(config).eval(), torch.randint(128, (2, 12))
    for scheme in ("xavier", "gpt2", "kaiming"):
        traced = sigprop.torch.predict(model, tokens, scheme=scheme)
        described = sigprop.predict(config, scheme=scheme, seq_len=12, uniform=True)
        for quantity in ("variance", "grad_variance"):
            assert traced[quantity] == pytest.approx(described[quantity], rel=1e-3), scheme


def test_init_draws_what_the_scheme_says() -> None:
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=32)
    model, tokens = transformers.GPT2Model(config).eval(), torch.randint(128, (2, 12))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    planned = sigprop.torch.init_(model, tokens, scheme="gpt2", dry_run=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    applied = sigprop.torch.init_(model, tokens, scheme="gpt2", generator=torch.Generator().manual_seed(0))
    assert planned["planned_std"].tolist() == applied["planned_std"].tolist()
    stds = dict(zip(applied["tensor"].tolist(), applied["std"].tolist(), strict=True))
    assert stds["h.1.mlp.c_proj.weight"] == pytest.approx(0.02 / 2, rel=0.05)
    assert stds["h.1.attn.c_attn.weight[0:64]"] == pytest.approx(0.02, rel=0.05)
    assert float(model.h[1].ln_1.weight.detach().min()) == 1.0
    with pytest.raises(ValueError, match="scales that the module must apply itself"):
        sigprop.torch.init_(model, tokens, scheme="dslm")


def test_long_windows_are_refused() -> None:
    """Ids are cut for the trace, so that a longer window has no effect in it."""
    sizes = {**HEADS, **NONE, "num_key_value_heads": 2}
    tokens = torch.randint(VOCABULARY, (2, 48))
    for window, is_refused in ((8, False), (24, True), (64, False)):
        module = transformers.MistralModel(transformers.MistralConfig(**sizes, sliding_window=window)).eval()
        if is_refused:
            with pytest.raises(ValueError, match="another function at 48 tokens"):
                sigprop.torch.trace(module, tokens)
        else:
            traced = sigprop.torch.trace(module, tokens)
            assert traced.notes == [] and traced.at_length()["streams"][0]["seq_len"] == 48


class MultiQuery(nn.Module):
    """One key for all heads, by einsum, with T5's biases times a number."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.biases = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.randn(16, 4))
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(WIDTH, size) for size in (WIDTH, 32, WIDTH)) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        from sigprop.torch._network._operations import bucket

        x, places = self.table(ids), torch.arange(ids.shape[1])
        bias = 0.5 * self.biases[bucket(places[None] - places[:, None], 16, 128, True)].permute(2, 0, 1)
        for query, shared, out in self.layers:
            key, value = shared(x).chunk(2, dim=-1)
            scores = torch.einsum("b q h d, b k d -> b h q k", query(x).unflatten(-1, (4, 16)), key) / 4.0
            x = x + out(torch.einsum("...hqk,...kd->...qhd", (scores + bias).softmax(-1), value).flatten(2))
        return x


class Drops(nn.Module):
    """Dropout and stochastic depth, as libraries write them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        x = nn.functional.dropout(self.table(ids), 0.2)
        shape = (len(ids), 1, 1)
        x = x + self.layers[0](x) * x.new_empty(shape).bernoulli_(0.7).div_(0.7)
        x = x + self.layers[1](x).div(0.8) * (0.8 + torch.rand(shape)).floor_() * 2.0
        y = self.layers[2](x)
        return x + y * (torch.rand_like(y) > 0.4) / 0.6


class Standardised(nn.Linear):
    """Rows of its weight have mean zero and length 1.5."""

    def forward(self, x: Any) -> Any:
        centred = self.weight - self.weight.mean(1, keepdim=True)
        return nn.functional.linear(x, 1.5 * centred / centred.norm(dim=1, keepdim=True), self.bias)


class SideBySide(nn.Module):
    """Features of two maps side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 32), nn.Linear(WIDTH + 32, WIDTH)

    def forward(self, x: Any) -> Any:
        both = torch.cat([torch.tanh(self.left(x)), 2.0 * self.right(x)], dim=-1)
        return x + self.out(nn.functional.layer_norm(both, both.shape[-1:]))


def batch_norms() -> nn.Module:
    """BatchNorm in evaluation. The first has the running moments with which it starts, the others have different ones."""
    norms = [nn.BatchNorm1d(WIDTH, eps=0.1) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    for norm in norms[1:]:
        norm.running_mean.normal_(0.0, 0.3, generator=generator)
        norm.running_var.uniform_(0.6, 1.8, generator=generator)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), norm, nn.GELU()) for norm in norms)).eval()


def gpt2_training() -> nn.Module:
    rates = {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attn_pdrop": 0.4, "attn_implementation": "eager"}
    config = transformers.GPT2Config(
        n_layer=2, n_embd=WIDTH, n_head=4, n_positions=64, vocab_size=VOCABULARY, initializer_range=LARGE, **rates, **NONE
    )
    return transformers.GPT2Model(config).train()


def registers() -> nn.Module:
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=32, patch_size=8,
        num_register_tokens=3, initializer_range=LARGE,
    )
    return transformers.Dinov2WithRegistersModel(config).eval()


def deepseek() -> nn.Module:
    ranks = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24, "v_head_dim": 20}
    experts = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
    config = transformers.DeepseekV3Config(
        **{**HEADS, "num_hidden_layers": 2}, **NONE, **ranks, **experts, num_key_value_heads=4, first_k_dense_replace=1,
        initializer_range=LARGE,
    )
    return transformers.DeepseekV3Model(config).eval()


def weight_norms() -> nn.Module:
    def layer() -> nn.Module:
        normed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        normed.parametrizations.weight.original0.data.mul_(2.0)
        return normed

    return nn.Sequential(*(nn.Sequential(layer(), nn.Tanh()) for _ in range(3))).eval()


def images(seed: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1000 + seed))}


VARIANTS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], dict[str, Any]]]] = {
    "copies": (lambda: encoder(layers_are_copies=True).eval(), lambda seed: inputs("encoder", seed)),
    "multi_query": (lambda: MultiQuery().eval(), lambda seed: inputs("by_hand", seed)),
    "drops": (lambda: Drops().train(), lambda seed: inputs("by_hand", seed)),
    "gpt2_training": (gpt2_training, lambda seed: inputs("gpt2", seed)),
    "registers": (registers, images),
    "deepseek": (deepseek, lambda seed: inputs("gpt2", seed)),
    "batch_norms": (batch_norms, lambda seed: inputs("mlp", seed)),
    "weight_norms": (weight_norms, lambda seed: inputs("mlp", seed)),
    "side_by_side": (
        lambda: nn.Sequential(*(SideBySide() for _ in range(3))).eval(),
        lambda seed: inputs("mlp", seed),
    ),
    "standardised": (
        lambda: nn.Sequential(*(nn.Sequential(Standardised(WIDTH, WIDTH), nn.ReLU()) for _ in range(3))).eval(),
        lambda seed: inputs("mlp", seed),
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_predicted(name: str) -> None:
    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return VARIANTS[name][0]()

    torch.set_num_threads(1)
    given = VARIANTS[name][1]
    assert_predicted(sigprop.torch.trace(build(0), **given(0)), build, given, networks=96 if name == "drops" else 32)


def test_one_key_for_all_heads() -> None:
    found = sigprop.torch.trace(MultiQuery().eval(), **inputs("by_hand"))
    assert [(part["n_heads"], part["n_kv_heads"]) for part in parts(found.stack, "attention")] == [(4, 1)] * 3
    # The table times one half.
    std = float(found.weights["biases"].value.square().mean().sqrt())
    assert next(parts(found.stack, "relative"))["table"]["init"] == {"normal": {"std": pytest.approx(std)}}


def test_dropout_is_read() -> None:
    found = sigprop.torch.trace(Drops().train(), **inputs("by_hand"))
    rates = [branch["drop_rate"] for sum_ in parts(found.stack, "sum") for branch in sum_["branches"]]
    assert rates == pytest.approx([0.0, 0.3, 0.0, 0.2, 0.0, 0.0], abs=1e-5)
    assert [part["rate"] for part in parts(found.stack, "dropout")] == pytest.approx([0.2, 0.4], abs=1e-5)
    for implementation in ("eager", "sdpa"):
        module = gpt2_training()
        module.set_attn_implementation(implementation)
        stack = sigprop.torch.trace(module, **inputs("gpt2")).stack
        assert [part["dropout_rate"] for part in parts(stack, "attention")] == [0.4, 0.4]
        assert [part["rate"] for part in parts(stack, "dropout")] == [0.3, *[0.2] * 4]


def test_random_choices_are_refused() -> None:
    class Chosen(nn.Linear):
        def forward(self, x: Any) -> Any:
            kept = torch.rand(x.shape[:2]).argsort(1)[:, :8, None].expand(-1, -1, WIDTH)
            return super().forward(x.gather(1, kept))

    class Dropped(nn.Linear):
        def forward(self, x: Any) -> Any:
            return torch.tanh(super().forward(x) * x.new_empty(len(x), 1, 1).bernoulli_(0.5))

    for kind, text in ((Chosen, "a signal and random numbers"), (Dropped, "at the end of a residual branch")):
        with pytest.raises(sigprop.torch.TraceError, match=text):
            sigprop.torch.trace(kind(WIDTH, WIDTH).train(), torch.randn(2, TOKENS, WIDTH))


def test_running_moments_are_gains_and_shifts() -> None:
    found = sigprop.torch.trace(batch_norms(), **inputs("mlp"))
    assert [site for site in found.sites if site.startswith("1")] == ["1.0", "1.1", "1.1_2", "1.2", "1"]
    factors = [part["factor"] for part in parts(found.stack, "scale")]
    assert factors[0] == pytest.approx(1.1**-0.5, rel=1e-6)
    assert len(found.notes) == 2 and "1.1: gains differ by" in found.notes[0]
    fresh = nn.Sequential(*(layer for _ in range(40) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH))))
    factors = [part["factor"] for part in parts(sigprop.torch.trace(fresh.eval(), **inputs("mlp")).stack, "scale")]
    assert factors == pytest.approx([(1.0 + 1e-5) ** -0.5] * 40, rel=1e-6)


def test_tokens_before_others() -> None:
    tokens = list(parts(sigprop.torch.trace(registers(), **images(0)).stack, "prepend"))
    assert len(tokens) == 4


def test_latent_attention() -> None:
    found = sigprop.torch.trace(deepseek(), **inputs("gpt2"))
    concats = list(parts(found.stack, "concat"))
    assert [(part["n_heads"], [each["shared"] for each in part["parts"]]) for part in concats] == [(4, [False, True])] * 2
    assert found.notes == [] and "layers.1.self_attn.kv_a_proj_with_mqa.weight[32:40]" in found.weights
    settings: dict[str, Any] = {"scheme": "normal:0.1", "theory": "mean-field"}
    traced = sigprop.predict(stack=found.stack, **settings)
    described = sigprop.predict(deepseek().config, seq_len=TOKENS, uniform=True, **settings)
    for quantity in ("variance", "grad_variance"):
        assert traced[quantity] == pytest.approx(described[quantity], rel=2e-3)


def test_means_side_by_side_are_refused() -> None:
    class Both(nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return torch.cat([y.relu(), (-y).relu()], dim=-1)

    with pytest.raises(sigprop.torch.TraceError, match="side by side that may have a mean"):
        sigprop.torch.trace(nn.Sequential(Both(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)), **inputs("mlp"))


class Sinks(Attention):
    """Causal attention with a learned logit per head, whose weight is dropped, as GPT-OSS computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.sinks = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.linspace(-0.5, 0.7, 4))

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        value, query, key = self.fused(x).split([32, WIDTH, 32], dim=-1)
        query, key, value = (part.unflatten(-1, (-1, 16)).transpose(1, 2) for part in (query, key, value))
        key, value = key.repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
        scores = (query @ key.transpose(-1, -2) / 4.0).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -torch.inf)
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(len(x), -1, x.shape[1], -1)
        logits = torch.cat([scores, sinks], dim=-1)
        weights = (logits - logits.max(dim=-1, keepdim=True).values).softmax(-1)[..., :-1]
        return x + self.out((weights @ value).transpose(1, 2).flatten(2))


def test_attention_sinks() -> None:
    torch.manual_seed(0)
    module = Sinks()
    ids = torch.randint(0, VOCABULARY, (2, TOKENS))
    traced = sigprop.torch.trace(module, ids)
    assert '"sink": {"name": "sinks"' in json.dumps(traced.stack)
    assert torch.equal(traced.values(module)["sinks"].flatten(), module.sinks.detach())


def test_given_masks_are_part_of_the_network() -> None:
    """Masks of ones, positions, segments of zeros and causal masks change nothing; padding is refused."""
    ones, ids = torch.ones(2, TOKENS, dtype=torch.long), inputs("llama")["input_ids"]
    plain = sigprop.torch.trace(made("llama"), ids).stack
    causal = torch.ones(TOKENS, TOKENS).tril().bool().expand(2, 1, -1, -1)
    hidden = torch.zeros(causal.shape).masked_fill(~causal, -torch.inf)
    positions = torch.arange(TOKENS).expand(2, -1)
    for given in ({"attention_mask": ones}, {"attention_mask": causal}, {"attention_mask": hidden}, {"position_ids": positions}):
        assert sigprop.torch.trace(made("llama"), ids, **given).stack == plain
    segments = sigprop.torch.trace(made("bert"), ids, token_type_ids=0 * ones, attention_mask=ones)
    assert segments.stack == sigprop.torch.trace(made("bert"), ids).stack
    padded = ones.clone()
    padded[1, -3:] = 0
    with pytest.raises(sigprop.torch.TraceError, match=r"differs between sequences \(padding\)"):
        sigprop.torch.trace(made("llama"), ids, attention_mask=padded)


def test_computed_weights() -> None:
    found = sigprop.torch.trace(VARIANTS["standardised"][0](), **inputs("mlp"))
    assert [part["standardised"] for part in parts(found.stack, "linear")] == pytest.approx([1.5] * 3, rel=1e-5)
    assert len(found.notes) == 1 and found.notes[0].startswith("3 weights are computed from parameters (0.0.weight)")
    found = sigprop.torch.trace(weight_norms(), **inputs("mlp"))
    stds = [part["weight"]["init"] for part in parts(found.stack, "linear")]
    assert "standardised" not in json.dumps(found.stack) and len(stds) == 3
