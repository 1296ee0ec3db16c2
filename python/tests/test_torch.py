"""Live modules: their initialisation, and their measurements compared with predictions."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import sigprop
import sigprop.torch

transformers.logging.set_verbosity_error()

SMALL = {"vocab_size": 512, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
HEADS = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(n_layer=4, n_embd=128, n_head=4, n_positions=64, **SMALL),
    "llama": lambda: transformers.LlamaConfig(**HEADS, **SMALL),
    "vit": lambda: transformers.ViTConfig(**HEADS, image_size=64, patch_size=8),
    "t5": lambda: transformers.T5Config(d_model=128, d_ff=256, num_layers=3, num_heads=4, d_kv=32, vocab_size=512),
    "bart": lambda: transformers.BartConfig(
        d_model=128, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=512, dropout=0.0,
    ),
    "bert": lambda: transformers.BertConfig(**HEADS, vocab_size=512, hidden_dropout_prob=0.0),
}


def generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def ids(*shape: int, seed: int = 0) -> Any:
    return torch.randint(512, shape, generator=generator(seed))


def built(name: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return transformers.AutoModel.from_config(CONFIGS[name]()).eval()


def batch(name: str, seed: int) -> dict[str, Any]:
    if name == "vit":
        return {"pixel_values": torch.randn(8, 3, 64, 64, generator=generator(seed))}
    if name in ("t5", "bart"):
        return {"input_ids": ids(8, 32, seed=seed), "decoder_input_ids": ids(8, 32, seed=seed + 1000)}
    return {"input_ids": ids(8, 64, seed=seed)}


@pytest.mark.parametrize(("name", "tokens"), [("gpt2", 64), ("llama", 64), ("vit", None), ("t5", 32), ("bart", 32)])
def test_predictions_are_those_of_live_models(name: str, tokens: int | None) -> None:
    """Sixteen models as transformers initialises them."""
    observed = sigprop.torch.probe(built(name), batch(name, 0), generator=generator())
    for seed in range(1, 16):
        observed += sigprop.torch.probe(built(name, seed), batch(name, seed), generator=generator(seed))
    input = {} if tokens is None else {"seq_len": tokens, "uniform": True}
    validation = sigprop.predict(CONFIGS[name](), **input).against(observed)
    assert validation.r2 is not None and validation.r2 >= 0.999
    weights = validation["quantity"] == "weight_grad_second_moment"
    assert weights.sum() > 30
    assert np.median(np.abs(validation["relative_error"][weights])) < 0.05


def test_schemes_are_drawn() -> None:
    """Standard deviations are the planned ones, within five standard errors of independent entries."""
    model = built("gpt2")
    applied = sigprop.torch.apply_(model, "xavier", generator(3))
    parameters = dict(model.named_parameters())
    for name, planned, std in zip(applied["name"], applied["planned_std"], applied["std"], strict=True):
        assert abs(std - planned) <= 5 * planned / np.sqrt(2 * parameters[name].numel() / 3)
    again = built("gpt2", seed=1)
    sigprop.torch.apply_(again, sigprop.torch.plan(CONFIGS["gpt2"](), scheme="xavier"), generator(3))
    assert all(torch.equal(one, other) for one, other in zip(parameters.values(), again.parameters(), strict=True))
    assert torch.allclose(model(**batch("gpt2", 0)).last_hidden_state, again(**batch("gpt2", 0)).last_hidden_state)


def test_heads_are_drawn() -> None:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(CONFIGS["llama"]())
    applied = sigprop.torch.apply_(model, "normal:0.5")
    assert "lm_head.weight" in applied["name"]
    assert model.lm_head.weight.std().item() == pytest.approx(0.5, rel=0.01)


def test_dry_runs_draw_nothing() -> None:
    model = built("gpt2")
    before = copy.deepcopy(model.state_dict())
    applied = sigprop.torch.apply_(model, "normal:0.5", dry_run=True)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert applied["planned_std"].max() == 0.5 and applied["std"].max() < 0.1


def test_strict_refuses_before_it_draws() -> None:
    model = built("vit")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="does not know pooler"):
        sigprop.torch.apply_(model, "xavier")
    with pytest.raises(ValueError, match="must apply itself"):
        sigprop.torch.apply_(built("gpt2"), "dslm")
    with pytest.raises(ValueError, match="config: expected what describes the module"):
        sigprop.torch.apply_(torch.nn.Linear(2, 2), "xavier")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert sigprop.torch.apply_(model, "xavier", strict=False).unmatched == ["pooler.dense.weight", "pooler.dense.bias"]


def test_gradients_from_elsewhere_are_refused() -> None:
    """Predictions start gradients at the output of the final norm; a loss does not."""
    model = built("gpt2")
    with sigprop.torch.probe(model) as probe:
        model(**batch("gpt2", 0)).last_hidden_state.square().sum().backward()
        with pytest.raises(ValueError, match="loss=True"):
            _ = probe.observed
    with sigprop.torch.probe(model, loss=True) as probe:
        model(**batch("gpt2", 0)).last_hidden_state.square().sum().backward()
    assert "grad_variance" in probe.observed["quantity"]
    with sigprop.torch.probe(model) as probe, pytest.raises(ValueError, match="has run"):
        probe.backward()
    with sigprop.torch.probe(model) as probe, torch.no_grad():
        model(**batch("gpt2", 0))
    assert "grad_variance" not in probe.observed["quantity"]


def test_a_probe_leaves_nothing_behind() -> None:
    model = built("gpt2")
    model(**batch("gpt2", 0)).last_hidden_state.sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    one = sigprop.torch.probe(model, batch("gpt2", 0), generator=generator())
    assert all(torch.equal(a, b.grad) for a, b in zip(gradients, model.parameters(), strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert sigprop.torch.probe(model, batch("gpt2", 0), generator=generator()) == one


def test_padding_is_left_out() -> None:
    """Tokens that a mask hides do not change the measurement."""
    model = built("bert")
    short = ids(4, 16)
    mask = torch.ones(4, 24, dtype=torch.long)
    mask[:, 16:] = 0
    padded = torch.cat([short, ids(4, 8, seed=1)], 1)
    alone = sigprop.torch.probe(model, {"input_ids": short, "attention_mask": mask[:, :16]}, weights=False)
    behind = sigprop.torch.probe(model, {"input_ids": padded, "attention_mask": mask}, weights=False)
    forward = ~np.char.startswith(alone["quantity"], "grad")
    assert np.allclose(alone["observed"][forward], behind["observed"][forward], rtol=1e-4, atol=1e-6)


def test_sites_are_chosen() -> None:
    observed = sigprop.torch.probe(built("gpt2"), ids(2, 8), sites=["blocks.1"], weights=False)
    assert set(observed["site"]) == {"blocks.1"}
    with pytest.raises(ValueError, match="expected some of embeddings, blocks.0"):
        sigprop.torch.probe(built("gpt2"), ids(2, 8), sites=["blocks.9"])


def test_lower_precision_and_compiled_modules() -> None:
    model = built("gpt2")
    exact = sigprop.torch.probe(model, ids(8, 64), generator=generator())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = sigprop.torch.probe(model, ids(8, 64), generator=generator())
    variance = exact["quantity"] == "variance"
    assert np.allclose(rounded["observed"][variance], exact["observed"][variance], rtol=0.02)
    assert sigprop.torch.probe(torch.compile(model), ids(8, 64), generator=generator()) == exact


def _rank(rank: int, port: int, folder: str, is_sharded: bool) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    # Both ranks have the same seed.
    model = built("gpt2")
    if is_sharded:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        for module in (*model.h, model):
            torch.distributed.fsdp.fully_shard(module, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    observed = sigprop.torch.probe(model, ids(8, 64)[4 * rank : 4 * rank + 4])
    torch.save(observed.rows, f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("is_sharded", [False, True])
def test_ranks_are_one_batch(is_sharded: bool, tmp_path: Any) -> None:
    """With data parallelism and with fully_shard. Gradients are different samples, so only their average is compared."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_rank, (port, str(tmp_path), is_sharded), nprocs=2)
    first, second = (torch.load(tmp_path / str(rank), weights_only=False) for rank in range(2))
    assert first == second
    alone = sigprop.torch.probe(built("gpt2"), ids(8, 64))
    logarithms = []
    for row, other in zip(first, alone.rows, strict=True):
        assert (row["site"], row["quantity"]) == (other["site"], other["quantity"])
        if "grad" not in row["quantity"]:
            assert row["observed"] == pytest.approx(other["observed"], rel=1e-5, abs=1e-7)
        elif row["quantity"] == "weight_grad_second_moment" and ".key.bias" not in row["site"]:
            logarithms.append(np.log(row["observed"] / other["observed"]))
    assert len(logarithms) > 30 and abs(np.mean(logarithms)) < 0.1


def test_audits_find_copies() -> None:
    model = built("gpt2")
    assert sigprop.torch.audit(model).findings == []
    model.h[1].load_state_dict(model.h[0].state_dict())
    found = sigprop.torch.audit(model)
    assert [finding["problem"] for finding in found.findings] == ["copies"]
    assert found.findings[0]["blocks"] == [0, 1]
    assert found.prediction is not None and "cannot be trusted" in str(found.headline)
