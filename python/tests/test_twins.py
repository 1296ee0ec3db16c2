"""Modules that are copied before they are traced: without values, too large, in low precision, or in wrappers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn

import sigprop
import sigprop.torch
from sigprop.torch._trace import _twin
from test_trace import HEADS, NONE, VOCABULARY, ByHand, inputs, made, parts

transformers.logging.set_verbosity_error()

DEPTH, WIDTH = 12, 128
# Half of the entries of a copy of `gpt2` in bytes, so that only some of its blocks fit.
HALF = 4 * 1_200_000


@pytest.fixture
def is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of modules without values have fewer blocks, however small the modules are."""
    monkeypatch.setattr(_twin, "_WIDE", 1000)


def gpt2(**changes: Any) -> nn.Module:
    sizes = {"n_layer": DEPTH, "n_embd": WIDTH, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **NONE, **changes)).eval()


def gemma2() -> nn.Module:
    sizes = {**HEADS, "num_hidden_layers": 8, "hidden_size": WIDTH, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 6}
    torch.manual_seed(0)
    return transformers.Gemma2Model(transformers.Gemma2Config(**sizes, **NONE, num_key_value_heads=2)).eval()


def t5() -> nn.Module:
    sizes = {"d_model": WIDTH, "d_kv": 32, "d_ff": 256, "num_layers": 6, "num_heads": 4, "vocab_size": VOCABULARY}
    torch.manual_seed(0)
    return transformers.T5Model(transformers.T5Config(**sizes)).eval()


def without_values(make: Any) -> nn.Module:
    with torch.device("meta"):
        module: nn.Module = make()
    return module


@pytest.mark.parametrize(("make", "kept"), [(gpt2, "2 of the 12"), (gemma2, "4 of the 8"), (t5, "3 of the 6")])
def test_modules_without_values_are_predicted_whole(make: Any, kept: str, is_short: None) -> None:
    """Equal blocks are read once, and every one of them is a part of the stack. Gemma-2 has windows in every other block."""
    given = inputs("t5" if make is t5 else "gpt2")
    whole, short = sigprop.torch.trace(make(), **given), sigprop.torch.trace(without_values(make), **given)
    assert whole.notes == [] and any(kept in note for note in short.notes)
    assert list(short.sites.items()) == list(whole.sites.items())
    assert short.roles == whole.roles and short.stack["roles"].items() == whole.stack["roles"].items()
    assert {name: weight.origin for name, weight in short.weights.items()} == {
        name: weight.origin for name, weight in whole.weights.items()
    }
    masks = [[part["mask"] for part in parts(traced.stack, "attention")] for traced in (short, whole)]
    assert masks[0] == masks[1]
    one, other = (sigprop.predict(stack=traced.at_length(11)) for traced in (short, whole))
    # Five standard errors of the second moment of the smallest matrices.
    error = 5.0 * (2.0 / (WIDTH * WIDTH // 2)) ** 0.5
    for quantity in ("variance", "grad_variance"):
        assert np.max(np.abs(one[quantity] / other[quantity] - 1.0)) < error


def test_factors_for_depth_are_those_of_the_module(is_short: None) -> None:
    short = sigprop.torch.trace(without_values(gpt2), **inputs("gpt2"))
    stds = {weight["name"]: weight["init"]["normal"]["std"] for weight in parts(short.stack, "weight")}
    assert stds["transformer.h.11.mlp.c_proj.weight"] == pytest.approx(0.02 / (2 * DEPTH) ** 0.5, rel=0.02)


def test_modules_without_values_have_nothing_to_measure(is_short: None) -> None:
    module = without_values(gpt2)
    with pytest.raises(ValueError, match="observe: expected a module that was read whole"):
        sigprop.torch.trace(module, **inputs("gpt2")).observe()
    with pytest.raises(ValueError, match="one on the meta device"):
        sigprop.torch.init_(module, **inputs("gpt2"), scheme="gpt2")
    with pytest.raises(sigprop.torch.TraceError, match="arguments on the meta device"):
        sigprop.torch.trace(made("gpt2"), inputs("gpt2")["input_ids"].to("meta"))


def test_small_modules_without_values_are_read_whole() -> None:
    [note] = sigprop.torch.trace(without_values(gpt2), **inputs("gpt2")).notes
    assert note.endswith("a copy was initialised by its init_weights")


class Damped(nn.ModuleList):
    """Branches with a factor that depends on the number of the block."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for number, layer in enumerate(self, 1):
            x = x + layer(x) / number
        return x


def test_blocks_that_depend_on_their_number(is_short: None) -> None:
    """Blocks with other attributes are all read; factors that the code of the module has are refused."""
    module = without_values(lambda: gpt2(scale_attn_by_inverse_layer_idx=True))
    assert len(sigprop.torch.trace(module, **inputs("gpt2")).notes) == 1
    with pytest.raises(sigprop.torch.TraceError, match="blocks 0 and 1 of the module, .* differ: scale: 1 and 0.5"):
        sigprop.torch.trace(without_values(Damped), torch.randn(2, 13, 64))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: Any) -> Any:
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def test_parameters_that_no_method_initialises() -> None:
    module = without_values(lambda: nn.Sequential(nn.Linear(64, 64), Norm(), nn.Linear(64, 64)))
    traced = sigprop.torch.trace(module, torch.randn(32, 64))
    assert "factors for depth, are missing" in traced.notes[0]
    assert traced.notes[1].startswith("no method initialises 1.weight: ")
    assert next(parts(traced.stack, "norm"))["gain"] == 1.0


class Drawn(nn.Sequential):
    """Initialised by a method that `apply` gets, as in nanoGPT."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.apply(self._init_weights)

    def _init_weights(self, part: nn.Module) -> None:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.5)


def test_parameters_that_apply_initialises() -> None:
    traced = sigprop.torch.trace(without_values(Drawn), torch.randn(32, 64))
    assert "reset_parameters of its parts and its _init_weights" in traced.notes[0]
    assert [part["init"]["normal"]["std"] for part in parts(traced.stack, "weight")] == pytest.approx([0.5, 0.5], rel=0.05)


def test_copies_that_cannot_be_are_refused(is_short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Table(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 64)
            self.register_buffer("table", torch.arange(64.0))

        def forward(self, x: Any) -> Any:
            return super().forward(x) + self.table

    with pytest.raises(sigprop.torch.TraceError, match="table on the meta device, whose values only a constructor computes"):
        sigprop.torch.trace(without_values(Table), torch.randn(32, 64))
    # Gates are zipped with all layers.
    with pytest.raises(sigprop.torch.TraceError, match=r"zip\(\) .*\nlayers: read from a copy with 2 of the 3 blocks of layers"):
        sigprop.torch.trace(without_values(ByHand), **inputs("by_hand"))
    monkeypatch.setattr(_twin, "_largest", lambda: HALF // 10)
    with pytest.raises(sigprop.torch.TraceError, match="more than half of the memory in float32; expected at most 0.00012 billion"):
        sigprop.torch.trace(without_values(gpt2), **inputs("gpt2"))


def test_large_modules_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some blocks of a module in low precision fit in memory as a copy in float32."""
    monkeypatch.setattr(_twin, "_largest", lambda: HALF)
    module = gpt2().bfloat16()
    traced = sigprop.torch.trace(module, **inputs("gpt2"))
    [note] = traced.notes
    assert note.startswith("read from a copy with 2 of the 12 blocks of transformer.h")
    applied = sigprop.torch.init_(module, **inputs("gpt2"), scheme="xavier", generator=torch.Generator().manual_seed(0))
    stds = dict(zip(applied["tensor"].tolist(), applied["std"].tolist(), strict=True))
    assert stds["transformer.h.11.mlp.c_fc.weight"] == pytest.approx((2.0 / (5 * WIDTH)) ** 0.5, rel=0.03)
    module.get_parameter("transformer.h.7.mlp.c_fc.weight").data *= 2
    with pytest.raises(sigprop.torch.TraceError, match=r"transformer.h.7.mlp.c_fc.weight has the root mean square .* in block 1 "):
        sigprop.torch.trace(module, **inputs("gpt2"))


def numbers(part: Any) -> Iterator[float]:
    """The numbers of a stack in their order."""
    if isinstance(part, dict):
        for inner in part.values():
            yield from numbers(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from numbers(inner)
    elif isinstance(part, (int, float)):
        yield float(part)


def test_precisions_and_wrappers(tmp_path: Path) -> None:
    """Copies in float32, compiled modules and parts, and data parallelism are the same stack; shards are refused."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.nn.parallel import DistributedDataParallel

    given, expected = inputs("gpt2"), sigprop.torch.trace(made("gpt2"), **inputs("gpt2"))
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        traced = sigprop.torch.trace(made("gpt2").to(dtype), **given)
        assert list(traced.sites) == list(expected.sites) and traced.notes == []
        assert list(numbers(traced.stack)) == pytest.approx(list(numbers(expected.stack)), rel=2e-3)
    compiled = made("gpt2")
    for number, block in enumerate(compiled.transformer.h):
        compiled.transformer.h[number] = torch.compile(block)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        wrapped = [torch.compile(made("gpt2")), compiled, nn.DataParallel(made("gpt2")), DistributedDataParallel(made("gpt2"))]
        for module in wrapped:
            assert sigprop.torch.trace(module, **given).stack == expected.stack
        sharded = made("gpt2")
        fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
        flat = FullyShardedDataParallel(made("gpt2"), device_id=torch.device("cpu"))
        for module in (sharded, flat):
            with pytest.raises(sigprop.torch.TraceError, match="expected the module before it was sharded"):
                sigprop.torch.trace(module, **given)
    finally:
        torch.distributed.destroy_process_group()


def test_old_versions_of_torch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    with pytest.raises(sigprop.torch.TraceError, match=r"torch 2\.5\.1.*; expected 2\.6 or newer"):
        sigprop.torch.trace(made("mlp"), **inputs("mlp"))
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    assert sigprop.torch.trace(made("mlp"), **inputs("mlp")).notes == []


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "network.py"
    file.write_text(
        "import torch\nfrom torch import nn\ndef build():\n    with torch.device('meta'):\n"
        "        return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))\n"
    )
    words = [sys.executable, "-m", "sigprop.torch", f"{file}:build", "--shape", "32,64", "predict", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == ["site", "embeddings", "0", "1", "2"]
    assert "note: parameters on the meta device have no values" in done.stderr
