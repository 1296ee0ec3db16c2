"""Networks of convolutions over images: predictions of traced modules against freshly initialised ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

import sigprop
import sigprop.torch
from sigprop.torch._trace import trace
from torch import nn

torch.set_num_threads(1)

# A prediction agrees with a measurement within this relative error, or within this many standard errors.
RELATIVE, STANDARD_ERRORS = 0.05, 3.0
NETWORKS = 16


def resnet() -> nn.Module:
    """A ResNet with BatchNorm in training, whose branches start as the skips do."""
    return timm.create_model("resnet18", num_classes=10, zero_init_last=False).train()


def convnext() -> nn.Module:
    """A ConvNeXt, whose branches start with a factor that matters."""
    return timm.create_model("convnext_atto", num_classes=10, ls_init_value=1.0).train()


def _agreement(build: Callable[[], nn.Module], size: int, images: int) -> tuple[int, int]:
    """Numbers of second moments at sites of the stream that agree, and of all."""
    modules = []
    for seed in range(NETWORKS):
        torch.manual_seed(seed)
        modules.append((build(), torch.randn(images, 3, size, size)))
    traced = trace(*modules[0])
    predicted = {row["site"]: row for row in sigprop.predict(stack=traced.stack).rows}
    generator = torch.Generator().manual_seed(1)
    observe = [traced.observe(module, generator, [given]).networks[0] for module, given in modules]
    agree = total = 0
    for site, row in predicted.items():
        for value, name in [(row["variance"] + (row["mean"] or 0.0) ** 2, "square"), (row["grad_variance"], "grad_square")]:
            seen = [network[site][name] for network in observe if name in network.get(site, {})]
            if len(seen) == NETWORKS and value:
                mean, error = statistics.fmean(seen), statistics.stdev(seen) / math.sqrt(NETWORKS)
                agree += abs(value - mean) <= max(RELATIVE * mean, STANDARD_ERRORS * error)
                total += 1
    return agree, total


@pytest.mark.parametrize("build", [resnet, convnext])
def test_levels_of_images_are_predicted(build: Callable[[], nn.Module]) -> None:
    agree, total = _agreement(build, size=64, images=4)
    assert total >= 8
    assert agree >= 0.8 * total, f"{agree} of {total}"
