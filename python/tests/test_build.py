"""Networks of `build`, compared with those of the engine and of transformers; they can be trained."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import sigprop
import sigprop.torch
from stacks import differences

transformers.logging.set_verbosity_error()

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96}
# Together they have every component and every operation of stacks.
NETWORKS: dict[str, dict[str, Any]] = {
    "dropout everywhere": {"train": True, "dropout": 0.2, "attention_dropout": 0.3, "drop_path": 0.3},
    "gates, grouped, rotary": {
        "positions": "rotary", "kv_heads": 2, "norm": "rmsnorm", "activation": "swiglu", "qk_norm": "head", "causal": True,
    },
    "orthogonal": {"scheme": "orthogonal:1.2", "positions": "none"},
    "slopes in a window": {"positions": "alibi", "window": 3, "causal": True, "norm_placement": "sandwich"},
    "sinusoids, one norm": {"positions": "sinusoidal", "parallel": "shared_norm", "norm": "dyt"},
    "correlated": {"grad_correlation": 0.5, "positions": "none", "norm_placement": "post"},
    "batch norms": {"model": "mlp", "layers": 3, "width": 32, "norm": "batchnorm", "residual": True, "train": True},
    "batch norms at evaluation": {"model": "mlp", "layers": 3, "width": 32, "norm": "batchnorm", "activation": "tanh"},
    "vit": {"model": transformers.ViTConfig(**SIZES, image_size=16, patch_size=4)},
    "t5": {"model": transformers.T5Config(d_model=32, d_ff=64, num_layers=2, num_heads=4, d_kv=8, vocab_size=96)},
    "bert": {"model": transformers.BertConfig(**SIZES)},
    "albert": {"model": transformers.AlbertConfig(**SIZES, embedding_size=16)},
    "deberta": {"model": transformers.DebertaV2Config(
        **SIZES, type_vocab_size=0, relative_attention=True, position_buckets=8, max_position_embeddings=16,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
    )},
    "mixtral": {"model": transformers.MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4)},
    "gpt-oss": {"model": transformers.GptOssConfig(
        **SIZES, num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4,
    )},
    "lfm2": {"model": transformers.Lfm2Config(
        **SIZES, num_key_value_heads=2, block_multiple_of=16, layer_types=["conv", "full_attention"],
    )},
    "deepseek": {"model": transformers.DeepseekV3Config(
        **SIZES, moe_intermediate_size=32, num_key_value_heads=4, n_routed_experts=4, n_group=1, topk_group=1,
        num_experts_per_tok=2, kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8,
        first_k_dense_replace=1,
    )},
}
SMALL = {"layers": 2, "width": 32, "heads": 4, "vocab": 96}


def generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def small(**flags: Any) -> Any:
    return sigprop.torch.build(**SMALL, seq_len=8, generator=generator(), **flags)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_those_of_the_engine(name: str, tmp_path: Any) -> None:
    """Forty networks of each kind: two samples of one distribution, α as in `stacks`."""
    flags = NETWORKS[name] if "model" in NETWORKS[name] else {**SMALL, **NETWORKS[name]}
    length = {} if name == "vit" else {"seq_len": 8}
    path = tmp_path / "stack.json"
    sigprop.predict(**flags, **length, theory="mean-field", dump_stack=path)
    assert differences(path, 40) == []


def linear(name: str, fan_out: int) -> dict[str, Any]:
    weight = {"name": f"{name}.weight", "init": {"normal": {"std": 24**-0.5}}}
    return {"name": name, "op": {"apply": {"linear": {"fan_in": 24, "fan_out": fan_out, "weight": weight}}}}


def recurrent(**kind: Any) -> dict[str, Any]:
    """A stack of one recurrence: four heads of values of width 5, two heads of queries and keys of width 6."""
    parts = {"query": [linear("query", 12)], "key": [linear("key", 12)], "value": [linear("value", 20)]}
    sizes = {"n_heads": 4, "n_key_heads": 2, "d_key": 6, "d_value": 5, "scale": 0.4}
    source = {"gaussian": {"width": 24, "mean": 0.0, "variance": 1.0, "correlation": 0.3}}
    node = {"name": "mixer", "op": {"recurrence": {**sizes, **parts, **kind}}}
    stream = {"name": "main", "seq_len": 8, "source": source, "body": [node]}
    return {"name": "recurrence", "streams": [stream], "gradient": {"stream": 0, "correlation": 0.2}}


STRENGTH = {"sigmoid": {"factor": 2.0, "strength": [linear("strength", 4)]}}
SLOW = {"log_uniform": {"low": 0.001, "high": 0.1}}
# The mixers of lightning attention, Mamba-2, gated DeltaNet, Kimi delta attention, and a rate per channel as in Mamba-1.
RECURRENCES: dict[str, dict[str, Any]] = {
    "fixed decay": {"decay": {"fixed": {"rates": [0.0, 0.1, 0.5, 1.0]}}, "write": "one"},
    "steps that write": {
        "decay": {"stepped": {"step": [linear("step", 4)], "bias": SLOW, "rates": "counted"}}, "write": "step", "skip": 1.0,
    },
    "delta rule": {
        "decay": {"stepped": {
            "step": [linear("step", 4)], "bias": {"value": -1.0}, "rates": {"uniform": {"low": 0.5, "high": 4.0}},
        }},
        "write": STRENGTH, "delta": True,
    },
    "steps per channel": {
        "decay": {"stepped": {
            "step": [linear("step", 24)], "step_per_channel": True, "bias": SLOW, "rates": {"uniform": {"low": 1.0, "high": 16.0}},
        }},
        "write": STRENGTH,
    },
    "rates per channel": {
        "decay": {"stepped": {"step": [linear("step", 4)], "bias": SLOW, "rates": "counted", "rate_per_channel": True}},
        "write": "step", "skip": 0.5,
    },
}


@pytest.mark.parametrize("name", RECURRENCES)
def test_recurrences_are_those_of_the_engine(name: str, tmp_path: Any) -> None:
    """Forty networks of each kind, α as in `stacks`."""
    path = tmp_path / "stack.json"
    path.write_text(json.dumps(recurrent(**RECURRENCES[name])))
    assert differences(path, 40) == []


def test_the_delta_rule_is_that_of_transformers() -> None:
    """The recurrent form of Qwen3-Next, whose queries are divided by √`d_key` there."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

    network = sigprop.torch.build(recurrent(**RECURRENCES["delta rule"]), generator=generator())
    [x] = network.sample(3, generator())
    tensors = network.tensors()
    query, key, value, step, strength = (
        torch.nn.functional.linear(x, tensors[f"{name}.weight"]) for name in ("query", "key", "value", "step", "strength")
    )
    steps = torch.nn.functional.softplus(step + tensors["mixer.step_bias"])
    query, key, value = 0.4 * 6**0.5 * query.view(3, 8, 2, 6), key.view(3, 8, 2, 6), value.view(3, 8, 4, 5)
    decay = -tensors["mixer.log_rate"].exp() * steps
    expected, _ = torch_recurrent_gated_delta_rule(query, key, value, decay, 2.0 * strength.sigmoid())
    assert torch.allclose(network(x), expected.flatten(-2), atol=1e-5)


def test_networks_are_those_of_transformers() -> None:
    """Networks with the same parameters have the same outputs."""
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2)
    network = sigprop.torch.build(config, generator=generator(), seq_len=8)
    model = transformers.LlamaModel(config).eval()
    held, tensors = dict(model.named_parameters()), network.tensors()
    with torch.no_grad():
        for planned in sigprop.torch.plan(config)["parameters"]:
            [part] = planned["parts"]
            for layer in "01":
                parameter = held.get(planned["name"].replace("*", layer))
                if parameter is not None:
                    parameter.copy_(tensors[part["parameter"].replace("*", layer)])
        ids = torch.randint(96, (3, 8), generator=generator())
        assert torch.allclose(network(ids), model(ids).last_hidden_state, atol=1e-5)


def test_stacks_say_where_everything_is() -> None:
    """Sites and tensors are found under their names, and tied tensors are one."""
    network = small(head="tied")
    prediction = sigprop.predict(**SMALL, seq_len=8, sites="all", weights=True)
    assert set(prediction["site"]) == set(network.sites())
    assert set(prediction.weights["tensor"]) == set(network.told_tensors())
    for site, module in network.sites().items():
        assert site.endswith("softmax") or network.get_submodule(site) is module
    assert network.logits(network(*network.sample(2))).shape == (2, 8, 96)
    assert sum(parameter.shape == (96, 32) for parameter in network.parameters()) == 1
    with pytest.raises(ValueError, match="expected a stack with a head"):
        small().logits(torch.zeros(1, 8, 32))


def test_draws_are_those_of_the_generator() -> None:
    network = small(scheme="dslm")
    assert all(torch.equal(one, other) for one, other in zip(network.parameters(), small(scheme="dslm").parameters()))
    before = copy.deepcopy(network)
    network.reset_parameters(generator(1))
    assert not torch.equal(before.tensors()["blocks.0.ffn.in.weight"], network.tensors()["blocks.0.ffn.in.weight"])
    before.load_state_dict(network.state_dict())
    [ids] = network.sample(2, generator())
    assert torch.equal(network.eval()(ids), before.eval()(ids))


def test_scales_are_learned_where_asked() -> None:
    """ReZero starts as the identity, where only its factors have gradients."""
    network = small(scheme="rezero", learn_scales=True)
    network(*network.sample(2)).square().sum().backward()
    gradients = {name: tensor.grad for name, tensor in network.tensors().items()}
    assert network.blocks[0].ffn.scale.item() == 0.0 and gradients["blocks.0.ffn.scale"].abs() > 0.0
    assert gradients["blocks.0.ffn.in.weight"].abs().max() == 0.0
    assert not any(name.endswith(".scale") for name in small(scheme="rezero").tensors())


def test_stacks_are_taken_as_they_are(tmp_path: Any) -> None:
    """Stacks are read as a dict and as a file. An invalid one is refused with the message of the command."""
    path = tmp_path / "stack.json"
    sigprop.predict(**SMALL, seq_len=8, dump_stack=path)
    stack = json.loads(path.read_text())
    one, other = sigprop.torch.build(stack, generator=generator()), sigprop.torch.build(stack=path, generator=generator())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    stack["streams"][0]["body"][1]["op"]["chain"][0]["op"]["sum"]["branches"] = []
    with pytest.raises(ValueError, match="the stack cannot be walked"):
        sigprop.torch.build(stack)
    with pytest.raises(ValueError, match="expected one for each of 1 streams, got 2"):
        one(torch.zeros(1, 8), torch.zeros(1, 8))


def test_measurements_are_predicted() -> None:
    """Build, probe and compare, on thirty-two networks without dropout."""
    network = small(scheme="xavier")
    observed = []
    for seed in range(32):
        network.reset_parameters(generator(seed))
        observed += sigprop.torch.probe(network, network.sample(4, generator(seed)), generator=generator(seed)).networks
    validation = sigprop.predict(**SMALL, seq_len=8, scheme="xavier").against(sigprop.torch.Observed(observed))
    assert validation.r2 is not None and validation.r2 > 0.999


def test_networks_train() -> None:
    """A causal model learns a periodic text at the learning rates of its scheme."""
    network = small(scheme="mup", causal=True, head="untied")
    groups = network.parameter_groups(lr=1e-2)
    assert len(groups) > 1 and sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    optimizer = torch.optim.Adam(groups)
    ids = torch.arange(9).repeat(4, 1) * 7 % 96
    losses = []
    for _ in range(40):
        logits = network.logits(network(ids[:, :-1]))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
