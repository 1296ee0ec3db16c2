"""One network: what is predicted of it, and what becomes of it in training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from .. import Prediction, predict
from ..torch import Network, build
from ._tasks import CLASSES, Classes, NextByte, Task

# What is looked at of a network, of the stream of every block.
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A network to be trained."""

    name: str
    # Of `sigprop.predict`.
    flags: Mapping[str, Any]
    steps: int = 100
    lr: float = 1e-3
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    learn_scales: bool = False

    @property
    def is_mlp(self) -> bool:
        return self.flags.get("model") == "mlp"

    def whole(self) -> dict[str, Any]:
        """With the head that its task has."""
        task = {"vocab": CLASSES} if self.is_mlp else {"vocab": 256, "causal": True}
        return {"head": "untied", **task, **self.flags}

    def task(self) -> Task:
        return Classes.of(self.flags["width"]) if self.is_mlp else NextByte.of(self.flags["seq_len"])


@dataclass
class Course:
    """What became of it."""

    trial: Trial
    prediction: Prediction
    target: float
    losses: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def is_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.losses)

    @property
    def final(self) -> float:
        """The mean of the last tenth; not a number before there is one."""
        last = self.losses[-max(len(self.losses) // 10, 1) :]
        return sum(last) / len(last) if last else math.nan

    @property
    def has_learned(self) -> bool:
        return self.is_finite and self.final < self.target

    def summary(self) -> dict[str, Any]:
        return {
            "network": self.trial.name,
            "grade": self.prediction.grade,
            "failures": failures(self.prediction),
            "steps": len(self.losses),
            "first_loss": self.losses[0] if self.losses else None,
            "final_loss": self.final if math.isfinite(self.final) else None,
            "target": self.target,
            "has_learned": self.has_learned,
        }


def failures(prediction: Prediction) -> list[str]:
    """What kinds of failure the verdict names."""
    return [finding["kind"] for finding in prediction.findings if finding["severity"] == "failure"]


def train(trial: Trial, steps: int, seed: int, device: str) -> Iterator[Course]:
    """Yields the course after every step, so that what is done is kept when it is ended."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = build(generator=generator, learn_scales=trial.learn_scales, **trial.whole()).to(device)
    task = trial.task()
    course = Course(trial, predict(**trial.whole()), task.target)
    optimizer = _optimizer(network, trial)
    every = max(steps // 20, 1)
    yield course
    for step in range(steps):
        is_looked_at = step % every == 0 or step == steps - 1
        rows: list[Row] = []
        with _watched(network, rows) if is_looked_at else nullcontext():
            loss = task.loss(network, generator)
        course.losses.append(loss.item())
        if math.isfinite(course.losses[-1]):
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        course.rows += [{"network": trial.name, "step": step, "loss": course.losses[-1], **row,
                         "grad_norm": _norm(network, row["site"])} for row in rows]
        yield course
        if not math.isfinite(course.losses[-1]):
            return
        optimizer.step()


def _optimizer(network: Network, trial: Trial) -> torch.optim.Optimizer:
    if trial.optimizer == "sgd":
        return torch.optim.SGD(network.parameter_groups(trial.lr, "sgd"))
    kind = torch.optim.Adam if trial.optimizer == "adam" else torch.optim.AdamW
    return kind(network.parameter_groups(trial.lr))


def _norm(network: Network, site: str) -> float:
    """Of the gradients of all parameters of a block."""
    squares = [
        tensor.grad.double().square().sum()
        for name, tensor in network.tensors().items()
        if name.startswith(f"{site}.") and tensor.grad is not None
    ]
    return math.sqrt(float(sum(squares)))


@contextmanager
def _watched(network: Network, rows: list[Row]) -> Iterator[None]:
    """Takes down what flows through the sites of the stream, and the scores inside blocks."""
    sites, scores = set(network.stream_sites()), [0.0]

    def at_scores(module: torch.nn.Module, args: tuple[Tensor, Any]) -> None:
        seen = args[0].detach()[args[0].isfinite()].double()
        scores[0] = max(scores[0], float(seen.std())) if seen.numel() > 1 else scores[0]

    def at_site(module: torch.nn.Module, args: Any, output: Tensor) -> None:
        x = output.detach().double()
        tokens, mean = x.shape[1], x.mean()
        square = x.square().mean()
        cross = (x.sum(1).square().mean() / tokens - square) / max(tokens - 1, 1)
        variance = float(square - mean**2)
        correlation = float(cross - mean**2) / variance if variance > 0.0 and tokens > 1 else None
        row: Row = {"site": module.site, "variance": variance, "token_correlation": correlation, "score_std": scores[0]}
        rows.append(row)
        scores[0] = 0.0

    hooks = []
    for site, module in network.sites().items():
        if site in sites:
            hooks.append(module.register_forward_hook(at_site))
        elif site.endswith("softmax"):
            hooks.append(module.register_forward_pre_hook(at_scores))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
