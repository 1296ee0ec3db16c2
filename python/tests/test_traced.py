"""Traced modules in place of configurations: initialised, measured, inspected, trained, predicted with their loss."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.nn.functional as F
from torch import nn

import sigprop
import sigprop.torch
from sigprop.lab._trial import Trial, train

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

WIDTH, VOCABULARY = 64, 256


class ByHand(nn.Module):
    """A language model whose residual sums are in one `forward`, with the loss that nanoGPT returns."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH)) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.reduction = reduction

    def forward(self, ids: Any, targets: Any = None) -> Any:
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(F.layer_norm(x, (WIDTH,)))
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=self.reduction)
        return loss if self.reduction == "mean" else (logits, loss)


def gpt2(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        n_layer=3, n_embd=WIDTH, n_head=4, n_positions=64, vocab_size=VOCABULARY, bos_token_id=None, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config).eval()


def mlp(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)))


def normalised(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def by_hand(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return ByHand()


def generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def ids(*shape: int, seed: int = 0) -> Any:
    return torch.randint(VOCABULARY, shape, generator=generator(seed))


def values(observed: Any) -> dict[tuple[str, str], float]:
    return {(row["site"], row["quantity"]): row["observed"] for row in observed.rows}


def test_plans_name_the_places_of_parts() -> None:
    """Parts of a fused parameter, along the axis of the module's own layout."""
    traced = sigprop.torch.trace(gpt2(), ids(2, 13))
    plan = json.loads(json.dumps(sigprop.torch.plan(traced, scheme="gpt2")))
    [fused] = [entry for entry in plan["parameters"] if entry["name"] == "transformer.h.1.attn.c_attn.weight"]
    assert fused["axis"] == 1 and sorted(part["indices"][0] for part in fused["parts"]) == [0, WIDTH, 2 * WIDTH]
    assert all(len(part["indices"]) == WIDTH and part["std"] == 0.02 for part in fused["parts"])
    assert plan["residual"] == []
    assert len(sigprop.torch.plan(traced, scheme="dslm")["residual"]) == 6


def test_a_traced_module_is_a_configuration() -> None:
    """The scheme is drawn as for the config of the model, in all rows of positions, in any module of the structure."""
    traced = sigprop.torch.trace(gpt2(), ids(2, 13))
    model = gpt2(1)
    applied = sigprop.torch.apply_(model, "gpt2", generator(), config=traced)
    stds = dict(zip(applied["tensor"].tolist(), applied["planned_std"].tolist(), strict=True))
    described = sigprop.torch.apply_(gpt2(1), "gpt2", generator())
    for name, planned in zip(described["name"], described["planned_std"], strict=True):
        assert name not in stds or stds[name] == pytest.approx(planned, rel=1e-6)
    assert float(model.transformer.wpe.weight.detach()[40:].std()) == pytest.approx(stds["transformer.wpe.weight"], rel=0.1)
    again = gpt2(2)
    sigprop.torch.init_(again, ids(2, 13), scheme="gpt2", generator=generator())
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))


VECTORS = torch.randn(32, WIDTH, generator=generator())


@pytest.mark.parametrize(("made", "batch"), [(gpt2, ids(2, 13)), (mlp, VECTORS), (normalised, VECTORS)])
def test_hooks_measure_what_the_graph_does(made: Callable[[], Any], batch: Any) -> None:
    """Sites are inputs and outputs of modules, by values and gradients. Looking for them does not change a module."""
    traced = sigprop.torch.trace(made(), batch)
    module = made(3)  # type: ignore[call-arg]
    before = copy.deepcopy(module.state_dict())
    assert set(traced.places(module)) == set(traced.stream_sites)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    hooked = values(sigprop.torch.probe(module, batch, traced, generator=generator(5)))
    replayed = values(traced.observe(module, generator(5), [batch]))
    assert hooked.keys() == replayed.keys() and ("embeddings", "grad_variance") in hooked
    assert any(quantity == "weight_grad_second_moment" for _, quantity in hooked)
    for key, value in replayed.items():
        assert hooked[key] == pytest.approx(value, rel=1e-4, abs=1e-9), key


def test_other_lengths_are_measured() -> None:
    """Eight networks at 40 tokens, traced at a shorter length."""
    batch = ids(8, 40)
    traced = sigprop.torch.trace(gpt2(), batch)
    observed = sigprop.torch.Observed([])
    for seed in range(8):
        observed += sigprop.torch.probe(gpt2(seed), batch, traced, generator=generator(seed))
    validation = sigprop.torch.predict(gpt2(), batch).against(observed)
    errors = {kind: np.abs(validation["relative_error"][validation["quantity"] == kind]) for kind in set(validation["quantity"])}
    assert validation.r2 is not None and validation.r2 > 0.999
    assert max(errors["variance"]) < 0.05 and max(errors["grad_variance"]) < 0.05
    weights = errors["weight_grad_second_moment"]
    assert len(weights) > 40 and np.median(weights) < 0.1
    [positions] = [row for row in validation.rows if row["site"] == "transformer.wpe.weight"]
    assert abs(positions["relative_error"]) < 0.1


def test_sums_inside_a_forward_are_measured_in_the_graph() -> None:
    module, batch = by_hand(), ids(2, 13)
    traced = sigprop.torch.trace(module, batch)
    observed = sigprop.torch.probe(module, batch, traced, generator=generator())
    validation = sigprop.torch.predict(module, batch).against(observed)
    assert {"layers.0", "layers.1", "norm"} <= set(validation["site"])
    assert np.median(np.abs(validation["relative_error"])) < 0.2
    assert set(observed["site"]) > set(sigprop.torch.probe(module, batch, traced, sites=["norm"], weights=False)["site"])
    with pytest.raises(ValueError, match=r"expected the shapes of the trace, \[\(2, 13\)\], because layers"):
        sigprop.torch.probe(module, ids(2, 14), traced)
    with pytest.raises(ValueError, match="inside the code"), sigprop.torch.probe(module, config=traced):
        pass
    with sigprop.torch.probe(module, config=traced, sites=["embeddings", "norm"]) as probe:
        module(ids(4, 20))
        probe.backward()
    assert {"embeddings", "norm"} <= set(probe.observed["site"])


def uneven_gains(model: Any) -> None:
    for seed, block in enumerate(model.transformer.h):
        block.ln_1.weight.data *= torch.exp(0.5 * torch.randn(WIDTH, generator=generator(seed)))


def means(model: Any) -> None:
    weight = model.transformer.h[1].mlp.c_proj.weight.data
    weight += 0.1 * weight.std()


def heavy_tails(model: Any) -> None:
    torch.manual_seed(0)
    weight = model.transformer.h[2].mlp.c_fc.weight.data
    weight.copy_(0.02 * torch.distributions.StudentT(3.0).sample(weight.shape))


def copied_layers(model: Any) -> None:
    model.transformer.h[2].load_state_dict(model.transformer.h[1].state_dict())


@pytest.mark.parametrize(
    ("change", "finding", "caveat"),
    [
        (uneven_gains, "transformer.h.*.attn.ln_1.gain in all 3 blocks: mean", None),
        (means, "transformer.h.*.mlp.c_proj.weight in block 1 of 3: std", "mean_of_weights"),
        (heavy_tails, "transformer.h.*.mlp.c_fc.weight in block 2 of 3: kurtosis", "heavy_tails"),
        (copied_layers, "blocks 1–2 of 3 are equal in transformer.h.*.attn.c_attn.weight", "shared_tensor"),
    ],
)
def test_weights_that_are_no_initialisation_are_reported(
    change: Callable[[Any], None], finding: str, caveat: str | None
) -> None:
    model = gpt2()
    change(model)
    with pytest.warns(UserWarning) as warned:
        prediction = sigprop.torch.predict(model, ids(2, 13))
    assert any(finding in str(each.message) for each in warned), [str(each.message) for each in warned]
    # Copies are one tensor to the prediction, which has a caveat of its own for it.
    effects = [each["text"] for each in prediction.caveats if each["kind"] == caveat != "shared_tensor"]
    assert all(any(effect in str(each.message) for each in warned) for effect in effects)
    kinds = {each["kind"] for each in prediction.caveats} & {"mean_of_weights", "heavy_tails", "shared_tensor", "uneven_gains"}
    assert kinds == ({caveat} if caveat else set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A scheme replaces the weights.
        sigprop.torch.predict(model, ids(2, 13), scheme="gpt2")


def test_initialisations_are_not_reported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module, batch in ((gpt2(), ids(2, 13)), (by_hand(), ids(2, 13)), (mlp(), torch.randn(32, WIDTH))):
            sigprop.torch.predict(module, batch)


def test_audits_compare_with_a_scheme_by_roles() -> None:
    module = by_hand()
    traced = sigprop.torch.trace(module, ids(2, 13))
    assert sigprop.torch.audit(module, traced).findings == []
    deviating = sigprop.torch.audit(module, traced, scheme="xavier").findings
    assert "layers.*.0.weight" in {name for found in deviating for name in found["tensors"]}
    sigprop.torch.apply_(module, "xavier", config=traced)
    assert sigprop.torch.audit(module, traced, scheme="xavier").findings == []


def test_losses_are_those_of_sampled_networks() -> None:
    """The loss and its gradients, of twelve networks with independent targets."""
    batch, targets = ids(2, 13), ids(2, 13, seed=1)
    traced = sigprop.torch.trace(by_hand(), batch, targets)
    assert traced.has_loss
    prediction = sigprop.torch.predict(by_hand(), batch, targets)
    assert prediction.loss is not None
    observed, losses = sigprop.torch.Observed([]), []
    for seed in range(12):
        module = by_hand(seed)
        with sigprop.torch.probe(module, config=traced, sites=["embeddings", "norm"], loss=True) as probe:
            loss = module(ids(2, 13, seed=seed), ids(2, 13, seed=100 + seed))
            # Predictions are those of one sequence, not of the mean over two.
            (2 * loss).backward()
        losses.append(loss.item())
        observed += probe.observed
    assert prediction.loss["cross_entropy"] == pytest.approx(sum(losses) / 12, rel=0.01)
    expected = dict(zip(prediction["site"], prediction["grad_variance"], strict=True))
    measured = values(observed)
    for site in ("embeddings", "norm"):
        assert measured[site, "grad_variance"] == pytest.approx(expected[site], rel=0.06)


def test_losses_of_transformers_are_recognised() -> None:
    """Targets are the next ids: the loss leaves out the last token, which matters for short sequences."""
    long = ids(2, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction = sigprop.torch.predict(gpt2(), input_ids=long, labels=long)
    assert prediction.loss is not None and prediction.loss["uniform"] == pytest.approx(math.log(VOCABULARY))
    with pytest.warns(UserWarning, match="of 12 of 13 tokens: gradients are 1.08 times as large"):
        sigprop.torch.predict(gpt2(), input_ids=ids(2, 13), labels=ids(2, 13))


def test_other_losses_are_refused() -> None:
    with pytest.raises(sigprop.torch.TraceError, match=r"not the mean cross-entropy .*test_traced\.py:\d+: loss = F"):
        sigprop.torch.trace(ByHand("sum"), ids(2, 13), ids(2, 13, seed=1))


def test_traced_modules_are_trained() -> None:
    for model in (by_hand(), gpt2()):
        traced = sigprop.torch.trace(model, ids(2, 13))
        *_, course = train(Trial("traced", {"model": traced, "scheme": "xavier"}), 4, 0, "cpu")
        assert course.losses[-1] < course.losses[0] < 7.0
        assert sorted(sigprop.torch.build(traced).tensors()) == sorted(sigprop.torch.build(traced.stack).tensors())
