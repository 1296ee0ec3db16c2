"""Traces public codes, and compares predictions of their stacks with networks that the codes initialise.

    python -m codes.measure torch_mlp hf_gpt2          # from the folder python/tests
    python -m codes.measure --all --json result.json --markdown table.md
    python -m codes.measure --list

Networks run in the captured graph, each with its own initialisation and its own N(0, 1) gradients after the final norm. Every code
has a process of its own, so that one that crashes or takes too long ends no other.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sigprop
import torch
from sigprop.torch._held import as_one, held
from sigprop.torch._trace import TraceError, trace
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from codes import CODES, Built, Code

# A prediction agrees with a measurement within this relative error, or within this many standard errors.
RELATIVE, STANDARD_ERRORS = 0.03, 3.0
# Shown lines of a refusal, and characters of a line.
LINES, CHARACTERS = 6, 220


@dataclass
class Moment:
    """A second moment at a site: the prediction, and the mean over networks with its standard error."""

    site: str
    # "forward" or "backward".
    direction: str
    predicted: float
    observed: float
    std_error: float

    @property
    def ratio(self) -> float:
        """Predicted / observed."""
        return self.predicted / self.observed

    @property
    def agrees(self) -> bool:
        """True if the prediction is close enough."""
        return abs(self.predicted - self.observed) <= max(RELATIVE * self.observed, STANDARD_ERRORS * self.std_error)


@dataclass
class Outcome:
    """The result for one code."""

    name: str
    # "predicted"; "refused" by the tracer; "unpredicted" if the command refuses the stack; "failed" if the code or the
    # tracer raised another error; "crashed"; "timeout".
    status: str
    # The refusals, or the error.
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    # Inside torch.export.
    export_seconds: float = 0.0
    # Recognition, verification and prediction.
    rest_seconds: float = 0.0
    # The peak of the whole process, with torch itself.
    peak_gib: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the codes that are named, prints a table and returns the exit code."""
    options = _options(arguments)
    if options.list:
        for each in CODES.values():
            print(f"{each.name}{' (held out)' if each.held_out else ''}: {each.note}\n    {each.install}")
        return 0
    if options.child:
        Path(options.json).write_text(json.dumps(asdict(_measured(CODES[options.names[0]], options.draws))))
        return 0
    names = options.names or [name for name, each in CODES.items() if options.held_out or not each.held_out]
    outcomes = []
    print(_header(), flush=True)
    for name in names:
        outcomes.append(_in_process(name, options.draws, options.seconds))
        print("\n".join([_row(outcomes[-1]), *_details(outcomes[-1], options.sites)]), flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
        if options.markdown:
            Path(options.markdown).write_text(_markdown(outcomes))
    print(_summary(outcomes))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a code; --list has all")
    parser.add_argument("--all", action="store_true", help="all codes that are not held out")
    parser.add_argument("--held-out", action="store_true", help="with --all: also those that are held out")
    parser.add_argument("--list", action="store_true", help="print the codes and the commands that install them")
    parser.add_argument("--draws", type=int, default=16, help="networks per code [default: 16]")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit per code [default: 600]")
    parser.add_argument("--sites", action="store_true", help="print every site")
    parser.add_argument("--json", metavar="FILE", help="also write all numbers")
    parser.add_argument("--markdown", metavar="FILE", help="also write the table of codes, as README.md has it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not (options.names or options.all or options.list):
        parser.error("expected names of codes, --all or --list")
    for name in options.names:
        if name not in CODES:
            parser.error(f"{name}: expected one of {', '.join(CODES)}")
    return options


def _in_process(name: str, draws: int, seconds: float) -> Outcome:
    """The outcome of a code, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcome.json")
        command = [sys.executable, "-m", "codes.measure", name, "--child", "--draws", str(draws), "--json", str(path)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=Path(__file__).parents[1])
        except subprocess.TimeoutExpired:
            return Outcome(name, "timeout", [f"more than {seconds:.0f} s"])
        if not path.exists():
            return Outcome(name, "crashed", [f"exit code {ended.returncode}", *ended.stderr.splitlines()[-3:]])
        document = json.loads(path.read_text())
    return Outcome(**{**document, "moments": [Moment(**moment) for moment in document["moments"]]})


def _measured(code: Code, draws: int) -> Outcome:
    """The outcome of a code, in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    outcome = Outcome(code.name, "failed")
    exports = _timed_export()
    try:
        _measure(code, draws, outcome)
    except Exception as error:  # An outcome, whatever it is.
        is_refusal = isinstance(error, TraceError)
        outcome.status = "refused" if is_refusal else outcome.status
        text = str(error).splitlines()
        outcome.lines = text if is_refusal else [f"{type(error).__name__}: {''.join(text[:1])}", *_places(error)]
    outcome.export_seconds = sum(exports)
    outcome.rest_seconds -= outcome.export_seconds
    outcome.peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return outcome


def _places(error: Exception) -> list[str]:
    """File and line of the last calls inside the package."""
    calls = [call for call in traceback.extract_tb(error.__traceback__) if "sigprop" in call.filename]
    return [f"at {Path(call.filename).name}:{call.lineno}: {call.line}" for call in calls[-3:]]


def _measure(code: Code, draws: int, outcome: Outcome) -> None:
    networks = [_built(code, seed) for seed in range(1, draws + 1)]
    module, args, kwargs = _built(code, 1)
    _average([network for network, _, _ in networks], module)

    start = time.perf_counter()
    try:
        traced = trace(module, *args, **kwargs)
        weights = held(module, traced)
        outcome.notes = [*traced.notes, *weights.findings]
        outcome.status = "unpredicted"
        prediction = sigprop.predict(stack=as_one(traced.stack, weights.copies))
    finally:
        outcome.rest_seconds = time.perf_counter() - start

    outcome.status = "failed"
    seen: list[Mapping[str, Mapping[str, float]]] = []
    for seed, (network, network_args, network_kwargs) in enumerate(networks, 1):
        generator = torch.Generator().manual_seed(seed)
        inputs = [leaf for leaf in pytree.tree_leaves((network_args, network_kwargs)) if isinstance(leaf, Tensor)]
        seen += traced.observe(network, generator, inputs).networks
    outcome.moments = _moments(prediction.rows, seen)
    outcome.status = "predicted"


def _built(code: Code, seed: int) -> Built:
    torch.manual_seed(seed)
    return code.build()


@torch.no_grad()
def _average(networks: Sequence[nn.Module], module: nn.Module) -> None:
    """Scales every parameter of a module to the mean square over networks: that of a single network deviates by 1 to 2 %."""
    parameters = [dict(network.named_parameters()) for network in networks]
    for name, parameter in module.named_parameters():
        square = float(parameter.double().square().mean())
        mean = statistics.fmean(float(each[name].double().square().mean()) for each in parameters)
        if square > 0.0 and abs(mean / square - 1.0) > 1e-6:
            parameter.mul_(math.sqrt(mean / square))


def _timed_export() -> list[float]:
    """Seconds of every later call of `torch.export.export`."""
    seconds: list[float] = []
    export = torch.export.export

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return export(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - start)

    torch.export.export = timed
    return seconds


def _moments(predicted: Sequence[dict[str, Any]], seen: Sequence[Mapping[str, Mapping[str, float]]]) -> list[Moment]:
    """Predictions with the means over networks, at the sites that both have. Sites that are zero are left out."""
    found = []
    for row in predicted:
        site = row["site"]
        if site not in seen[0]:
            continue
        expected = {"forward": row["variance"] + (row["mean"] or 0.0) ** 2, "backward": row["grad_variance"]}
        for direction, moment in (("forward", "square"), ("backward", "grad_square")):
            values = [network[site][moment] for network in seen if moment in network[site]]
            if len(values) > 1 and expected[direction] is not None and statistics.fmean(values) > 0.0:
                error = statistics.stdev(values) / math.sqrt(len(values))
                found.append(Moment(site, direction, expected[direction], statistics.fmean(values), error))
    return found


def _markdown(outcomes: Sequence[Outcome]) -> str:
    """A table with the medians and the worst ratios, or with the first reason of a refusal."""
    lines = ["| code | moments that agree | E x², predicted / observed | E g², predicted / observed |", "|---|---|---|---|"]
    for outcome in outcomes:
        cells = [f"{sum(moment.agrees for moment in outcome.moments)} of {len(outcome.moments)}"]
        for direction in ("forward", "backward"):
            ratios = [moment.ratio for moment in outcome.moments if moment.direction == direction]
            if ratios:
                worst = max(ratios, key=lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf)
                cells.append(f"{statistics.median(ratios):.3f} (worst {worst:.3f})")
        if not outcome.moments:
            place, _, reason = outcome.lines[0].partition(": ")
            cells = [f"{outcome.status}: `{place.partition(' ')[0]}`, {reason.partition(';')[0]}", "", ""]
        lines.append(f"| {outcome.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _header() -> str:
    above = "      E x², predicted/observed  E g², predicted/observed       s       s"
    below = "sites   agree  median   worst   agree  median   worst  export    rest     GiB"
    return f"{'':36} {above}\n{'code':24} {'outcome':11} {below}"


def _row(outcome: Outcome) -> str:
    cells = [f"{outcome.name:24} {outcome.status:11}"]
    for direction in ("forward", "backward"):
        moments = [moment for moment in outcome.moments if moment.direction == direction]
        if direction == "forward":
            cells.append(f"{len(moments) or '':5}")
        if moments:
            worst = max((moment.ratio for moment in moments), key=lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf)
            median = statistics.median(moment.ratio for moment in moments)
            agree = statistics.fmean(moment.agrees for moment in moments)
            cells.append(f"{100 * agree:6.0f}% {median:7.3f} {worst:7.3f}")
        else:
            cells.append(" " * 23)
    cells.append(f"{outcome.export_seconds:7.1f} {outcome.rest_seconds:7.1f} {outcome.peak_gib:7.1f}")
    return " ".join(cells)


def _details(outcome: Outcome, with_sites: bool) -> list[str]:
    """Refusals, notes, and sites that disagree, or all sites."""
    lines = outcome.lines[:LINES] + [f"… {len(outcome.lines) - LINES} more"] * (len(outcome.lines) > LINES)
    lines += [f"note: {note}" for note in outcome.notes[:LINES]]
    for moment in outcome.moments:
        if with_sites or not moment.agrees:
            error = 100 * moment.std_error / moment.observed
            observed = f"observed {moment.observed:.4g} ± {error:.1f} %, ratio {moment.ratio:.3f}"
            lines.append(f"{moment.site} {moment.direction}: predicted {moment.predicted:.4g}, {observed}")
    return [f"    {line[:CHARACTERS]}" for line in lines]


def _summary(outcomes: Sequence[Outcome]) -> str:
    moments = [moment for outcome in outcomes for moment in outcome.moments]
    predicted = sum(outcome.status == "predicted" for outcome in outcomes)
    text = f"{predicted} of {len(outcomes)} codes predicted"
    if moments:
        agree = statistics.fmean(moment.agrees for moment in moments)
        bounds = f"{100 * RELATIVE:.0f} % or {STANDARD_ERRORS:.0f} standard errors"
        text += f"; {100 * agree:.1f} % of {len(moments)} moments within {bounds}"
    return text


if __name__ == "__main__":
    sys.exit(main())
