"""The outcomes of training random networks, compared with their verdicts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import Prediction
from ._lab import Claim
from ._trial import Course, Row, failures

# The record of a network: its prediction, and every training.
Record = Mapping[str, Any]

MODES = ("explosion", "vanishing", "collapse", "entropy collapse")
# The outcome of a network that did not learn although nothing explodes, vanishes or collapses.
NOTHING = "nothing seen"
# Possible thresholds of the verdict, as factors on variances.
FACTORS = (1e1, 1e2, 1e4, 1e8)
# The share of predictions that must come true.
ASKED = 0.95


@dataclass(frozen=True)
class Signs:
    """The quantities that the rules of the verdict use, from a prediction or a step of training; `None` if there is none."""

    # ln of the factor over the deeper half of the blocks, in the direction in which the quantity travels.
    forward: float | None
    backward: float | None
    # The correlation of tokens after the last block.
    correlation: float | None
    # The effective number of tokens that the sharpest attention attends to.
    attended: float | None

    @classmethod
    def of_prediction(cls, prediction: Prediction) -> Signs:
        attended = [finding["value"] for finding in prediction.findings if finding["kind"] in ("attends", "entropy_collapse")]
        return cls._of(prediction, prediction.rows, attended[0] if attended else None)

    @classmethod
    def of_training(cls, course: Course, step: int) -> Signs:
        """The signs at a step that was measured."""
        rows = course.at(step)
        attended = [row["attended"] for row in rows if row["attended"] is not None]
        return cls._of(course.prediction, rows, min(attended, default=None))

    @classmethod
    def _of(cls, prediction: Prediction, rows: Sequence[Row], attended: float | None) -> Signs:
        sites = {row["site"] for row in prediction.rows if row["layer"] < 0 or "blocks." in row["site"]}
        rows = [row for row in rows if row["site"] in sites]
        middle, last = rows[(len(rows) - 1) // 2], rows[-1]
        return cls(
            _ln_ratio(last["variance"], middle["variance"]),
            _ln_ratio(middle["grad_variance"], last["grad_variance"]),
            _finite(last["token_correlation"]),
            _finite(attended),
        )

    def modes(self) -> list[str]:
        """The modes of failure: exponentials beyond ×100, tokens that are copies, queries that attend to less than two tokens."""
        exponential = math.log(100.0)
        trends = [trend for trend in (self.forward, self.backward) if trend is not None]
        found = (
            any(trend > exponential for trend in trends),
            any(trend < -exponential for trend in trends),
            self.correlation is not None and self.correlation > 0.99,
            self.attended is not None and self.attended < 2.0,
        )
        return [mode for mode, is_there in zip(MODES, found, strict=True) if is_there]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _ln_ratio(one: float | None, other: float | None) -> float | None:
    one, other = _finite(one), _finite(other)
    if one is None or other is None:
        return None
    # The smallest number of f32: smaller values became zero.
    return math.log(max(one, 1e-45) / max(other, 1e-45))


def training(course: Course) -> dict[str, Any]:
    """The record of one training. `seen` are the modes of its first step, `kept` those of them that its last step still has."""
    steps = [row["step"] for row in course.rows]
    first, last = (Signs.of_training(course, step) for step in (min(steps), max(steps)))
    seen = first.modes()
    if not course.is_finite and "explosion" not in seen:
        seen.insert(0, "explosion")
    return {
        "lr": course.trial.lr,
        "steps": len(course.losses),
        "first_loss": course.losses[0] if math.isfinite(course.losses[0]) else None,
        "final_loss": course.final if math.isfinite(course.final) else None,
        "has_learned": course.has_learned,
        "seen": seen,
        "kept": [mode for mode in seen if mode in last.modes()],
        "losses": _tenths(course),
        "first": vars(first),
        "last": vars(last),
    }


def _tenths(course: Course) -> list[float | None]:
    """The mean losses of tenths of the steps."""
    tenth = max(course.trial.steps // 10, 1)
    parts = [course.losses[start : start + tenth] for start in range(0, len(course.losses), tenth)]
    return [_finite(sum(part) / len(part)) for part in parts]


def named(prediction: Prediction) -> list[str]:
    """The modes of failure that the verdict names, in its order."""
    words = {"explodes": "explosion", "vanishes": "vanishing"}
    kinds = [kind.replace("_", " ") for kind in failures(prediction)]
    return list(dict.fromkeys(words.get(kind.split()[-1], kind) for kind in kinds))


def happened(record: Record) -> str:
    """The outcome at the scheme's rate in a word: `learned`, a mode that was named and seen, or another mode that was seen."""
    training = record["trainings"][0]
    seen = training["seen"]
    named = next((mode for mode in [*record["failures"], *seen] if mode in seen), NOTHING)
    return "learned" if training["has_learned"] else named


def came_true(record: Record) -> bool | None:
    """True if the verdict came true; `None` if it claims nothing."""
    claimed = {"healthy": ["learned"], "not_trainable": record["failures"]}.get(record["grade"])
    return None if claimed is None else happened(record) in claimed


def learns_otherwise(record: Record) -> bool:
    """True if the network learned at another rate than the scheme's."""
    return any(training["has_learned"] for training in record["trainings"][1:])


def verdict_of(record: Record) -> str:
    """The first failure that is named, or the grade if there is none."""
    return record["failures"][0] if record["failures"] else str(record["grade"]).replace("_", " ")


def matrix(records: Sequence[Record]) -> dict[str, dict[str, int]]:
    """The numbers of networks by verdict and outcome."""
    rows = ["healthy", "trainable with care", *MODES]
    columns = ["learned", *MODES, NOTHING]
    counts = {row: dict.fromkeys(columns, 0) for row in rows}
    for record in records:
        counts[verdict_of(record)][happened(record)] += 1
    return counts


def interval(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927).

    >>> tuple(round(end, 3) for end in interval(19, 20))
    (0.764, 0.991)
    """
    z, share = 1.959964, hits / of
    centre, spread = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + (z / (2 * of)) ** 2)
    return (centre - spread) / (1 + z * z / of), (centre + spread) / (1 + z * z / of)


HALVES: Mapping[str, Callable[[Record], bool]] = {
    "all": lambda record: True,
    "first half": lambda record: record["index"] % 2 == 0,
    "second half": lambda record: record["index"] % 2 == 1,
}


def thresholds(records: Sequence[Record]) -> list[str]:
    """The numbers of networks that learn, by the growth or fall over the deeper half of the blocks, for each half of the networks."""
    lines = []
    for direction, sign in (("grow", 1.0), ("fall", -1.0)):
        for low, high in itertools.pairwise([*FACTORS, math.inf]):
            counts = []
            for half, is_in in HALVES.items():
                group = [record for record in records if is_in(record) and math.log(low) <= _change(record, sign) < math.log(high)]
                counts.append(f"{half} {sum(happened(record) == 'learned' for record in group)} of {len(group)}")
            lines.append(f"{direction} by {low:.0e} to {high:.0e}: learned {', '.join(counts)}")
    return lines


def _change(record: Record, sign: float) -> float:
    """The larger of forward and backward."""
    return max((sign * record["signs"][name] for name in ("forward", "backward") if record["signs"][name] is not None), default=-math.inf)


def claims(records: Sequence[Record]) -> list[Claim]:
    """The claims that healthy networks learn, and that networks that are not trainable fail as named. Empty groups have no claim."""
    found = []
    for half, is_in in HALVES.items():
        for grade, what in (("healthy", "learn at the scheme's rate"), ("not_trainable", "fail as named")):
            group = [record for record in records if is_in(record) and record["grade"] == grade]
            if not group:
                continue
            hits = sum(bool(came_true(record)) for record in group)
            low, high = interval(hits, len(group))
            share = f"{hits} of {len(group)}, {hits / len(group):.1%} (95 % interval {low:.1%} to {high:.1%})"
            otherwise = sum(not record["trainings"][0]["has_learned"] and learns_otherwise(record) for record in group)
            share += f"; {otherwise} learn at another rate alone" if otherwise else ""
            found.append(Claim(f"{half}: {grade.replace('_', ' ')} networks {what}: {share}", hits >= ASKED * len(group)))
    return found
