"""One network: its prediction, and its training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from .. import Prediction, predict
from ..torch import Network, Traced, build
from ._tasks import CLASSES, Classes, Continuation, NextByte, Task

# The measurements of a step at one site of the stream.
Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A network to be trained."""

    name: str
    # Arguments of `sigprop.predict`. The model may be a traced module with a head.
    flags: Mapping[str, Any]
    steps: int = 100
    lr: float = 1e-3
    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    # True if only the weight matrices of blocks learn.
    learns_matrices: bool = False
    # True if the change of the output of the last site by the first step is measured.
    follows_update: bool = False

    def whole(self) -> dict[str, Any]:
        """The arguments with the head of the task."""
        model = self.flags.get("model")
        if isinstance(model, Traced):
            return {"head": "own", **self.flags, "model": None, "stack": model.at_length()}
        task: dict[str, Any] = {"vocab": 256, "causal": True}
        if model == "mlp":
            task = {"vocab": CLASSES}
        elif isinstance(model, Mapping):
            task = {}
        return {"head": "untied", **task, **self.flags}

    def task(self) -> Task:
        model = self.flags.get("model")
        if isinstance(model, Traced):
            *encoders, last = model.at_length()["streams"]
            if "gaussian" in last["source"]:
                return Classes.of(last["source"]["gaussian"]["width"])
            text = NextByte.of(last["seq_len"])
            return Continuation(text) if encoders else text
        if model == "mlp":
            return Classes.of(self.flags["width"])
        if isinstance(model, Mapping):
            return Continuation(NextByte.of(model["seq_len"]))
        return NextByte.of(self.flags["seq_len"])


@dataclass
class Course:
    """The course of a training."""

    trial: Trial
    prediction: Prediction
    target: float
    losses: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    # The root mean square of the change of the last site by the first step, for the same batch.
    moved: float | None = None

    def at(self, step: int) -> list[Row]:
        """The measurements of a step."""
        return [row for row in self.rows if row["step"] == step]

    @property
    def is_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.losses)

    @property
    def final(self) -> float:
        """The mean loss of the last tenth of the steps; NaN before the first step."""
        last = self.losses[-max(self.trial.steps // 10, 1) :]
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
            "moved": self.moved,
        }


def failures(prediction: Prediction) -> list[str]:
    """The kinds of failure that the verdict names."""
    return [finding["kind"] for finding in prediction.findings if finding["severity"] == "failure"]


def train(trial: Trial, steps: int, seed: int, device: str) -> Iterator[Course]:
    """Yields the course after every step, so that results are kept if the training is interrupted."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = build(generator=generator, **trial.whole()).to(device)
    task = trial.task()
    course = Course(trial, predict(**trial.whole()), task.target)
    optimizer = _optimizer(network, trial)
    every = max(steps // 20, 1)
    yield course
    for step in range(steps):
        is_looked_at = step % every == 0 or step == steps - 1
        look, state = Look(), generator.get_state()
        with _watched(network, look) if is_looked_at else nullcontext():
            loss = task.loss(network, generator)
        course.losses.append(loss.item())
        optimizer.zero_grad()
        if math.isfinite(course.losses[-1]):
            loss.backward()  # type: ignore[no-untyped-call]
        course.rows += [{"network": trial.name, "step": step, "loss": course.losses[-1], **row,
                         "grad_norm": _norm(network, row["site"])} for row in look.told()]
        yield course
        if not math.isfinite(course.losses[-1]):
            return
        optimizer.step()
        if trial.follows_update and step == 0:
            course.moved = _moved(network, task, state, look)


def _optimizer(network: Network, trial: Trial) -> torch.optim.Optimizer:
    groups = network.parameter_groups(trial.lr, "sgd" if trial.optimizer == "sgd" else "adam")
    if trial.learns_matrices:
        for name, tensor in network.tensors().items():
            tensor.requires_grad_("blocks." in name and tensor.dim() > 1)
    if trial.optimizer == "sgd":
        return torch.optim.SGD(groups)
    return torch.optim.Adam(groups) if trial.optimizer == "adam" else torch.optim.AdamW(groups)


def _moved(network: Network, task: Task, state: Tensor, before: Look) -> float:
    """The change of the output for the same batch. `state` is the state of the generator before the batch was sampled."""
    generator, after = torch.Generator(), Look()
    generator.set_state(state)
    with torch.no_grad(), _watched(network, after):
        task.loss(network, generator)
    return float((after.outputs[-1] - before.outputs[-1].detach()).double().square().mean().sqrt())


def _norm(network: Network, site: str) -> float | None:
    """The norm of the gradients of all parameters of a block; `None` if there are no gradients."""
    squares = [
        tensor.grad.double().square().sum()
        for name, tensor in network.tensors().items()
        if name.startswith(f"{site}.") and tensor.grad is not None
    ]
    return math.sqrt(float(sum(squares))) if squares else None


@dataclass
class Look:
    """Records the signals of the stream in one step."""

    rows: list[Row] = field(default_factory=list)
    # The stream at the site of each row.
    outputs: list[Tensor] = field(default_factory=list)
    # Of the attention in the block that ends next: the largest standard deviation of scores, the fewest attended tokens.
    score_std: float = 0.0
    attended: float | None = None

    def at_scores(self, module: torch.nn.Module, args: tuple[Tensor, Any], weights: Tensor) -> None:
        seen = args[0].detach()[args[0].isfinite()].double()
        if seen.numel() > 1:
            self.score_std = max(self.score_std, float(seen.std()))
        attended = 1.0 / float(weights.detach().double().square().sum(-1).mean())
        self.attended = attended if self.attended is None else min(self.attended, attended)

    def at_site(self, module: torch.nn.Module, args: Any, output: Tensor) -> None:
        variance, correlation = _moments(output.detach())
        self.rows.append({"site": module.site, "variance": variance, "token_correlation": correlation,
                          "score_std": self.score_std, "attended": self.attended})
        if output.requires_grad:
            output.retain_grad()
        self.outputs.append(output)
        self.score_std, self.attended = 0.0, None

    def told(self) -> Iterator[Row]:
        """The rows, with gradients after a backward pass."""
        for row, output in zip(self.rows, self.outputs, strict=True):
            yield {**row, "grad_variance": None if output.grad is None else _moments(output.grad)[0]}


def _moments(x: Tensor) -> tuple[float, float | None]:
    """The variance of an entry and the correlation of two tokens of one sequence of x, shape (batch, tokens, features)."""
    x = x.double()
    tokens, mean = x.shape[1], x.mean()
    square = x.square().mean()
    cross = (x.sum(1).square().mean() / tokens - square) / max(tokens - 1, 1)
    variance = float(square - mean**2)
    return variance, float(cross - mean**2) / variance if variance > 0.0 and tokens > 1 else None


@contextmanager
def _watched(network: Network, look: Look) -> Iterator[None]:
    """Records the signals at the sites of the stream, and the scores inside blocks."""
    sites, hooks = set(network.stream_sites()), []
    for site, module in network.sites().items():
        if site in sites:
            hooks.append(module.register_forward_hook(look.at_site))
        elif site.endswith("softmax"):
            hooks.append(module.register_forward_hook(look.at_scores))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
