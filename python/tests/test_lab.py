"""Shortened experiments."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

pytest.importorskip("torch")

from sigprop import lab
from sigprop.lab._drawn import drawn
from sigprop.lab._outcome import came_true, claims, happened, matrix, thresholds
from sigprop.lab._trainability import main, trainability
from sigprop.lab._trial import train


def test_what_is_looked_at_comes_true(tmp_path: Any) -> None:
    lines: list[str] = []
    claims = lab.run("rank-collapse", str(tmp_path), tell=lines.append)
    assert len(claims) == 7 and all(claim.came_true for claim in claims)
    assert sum(line.startswith("came true") for line in lines) == 7
    with open(tmp_path / "rank-collapse.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["network"] for row in rows} == {"with skips", "without", "without, no mask"}
    assert float(rows[-1]["token_correlation"]) > 0.999
    summary = json.loads((tmp_path / "rank-collapse.json").read_text())
    assert [network["steps"] for network in summary["networks"]] == [1, 1, 1]
    assert (tmp_path / "rank-collapse.png").exists()


def test_what_has_not_learned_yet_did_not_come_true() -> None:
    """After three steps the first network has learned nothing, and the loss of the other one is not finite."""
    claims = lab.run("textbook", steps=3, tell=lambda line: None)
    assert [claim.came_true for claim in claims] == [True, True, True, False, True]


def test_unknown_labs_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of textbook"):
        lab.run("alchemy")


def test_encoders_with_decoders_train() -> None:
    """The last network of the Fixup lab, for three steps: its loss starts at that of guessing and falls."""
    *_, course = train(lab.LABS["fixup"].trials[-1], 3, 0, "cpu")
    assert len(course.losses) == 3 and course.losses[-1] < course.losses[0] < 6.0
    assert {row["site"].split(".")[0] for row in course.rows} == {"encoder", "decoder"}


def test_matrices_alone_move() -> None:
    """The step of matrices, which DeepNorm's theorem is about, is smaller than that of all parameters."""
    trials = [trial for trial in lab.LABS["deepnorm"].trials if "deepnorm, 8" in trial.name]
    matrices, everything = (list(train(trial, 1, 0, "cpu"))[-1].moved for trial in trials)
    assert matrices is not None and everything is not None and 0.0 < matrices < everything


def test_networks_follow_from_seed_and_number() -> None:
    first, second = (drawn(1, 3, 10)[0] for _ in range(2))
    assert first == second
    assert len({drawn(seed, index, 10)[0].name for seed in (1, 2) for index in range(4)}) > 4


def test_parts_are_gathered(tmp_path: Any) -> None:
    """Two shards and a run that gathers write the same files as one run. A network whose line is incomplete is trained again."""
    lines: list[str] = []
    known = {"networks": 3, "steps": 2, "tell": lines.append}
    whole = trainability(output=str(tmp_path / "whole"), **known)  # type: ignore[arg-type]
    parts = str(tmp_path / "parts")
    for number in (1, 2):
        assert trainability(output=parts, shard=(number, 2), resume=True, **known) == []  # type: ignore[arg-type]
    with open(tmp_path / "parts" / "trainability.journal.1-of-2", "r+") as file:
        file.truncate(len(file.read()) - 9)
    assert trainability(output=parts, resume=True, **known) == whole  # type: ignore[arg-type]
    for kind in ("csv", "json"):
        one, other = (tmp_path / folder / f"trainability.{kind}" for folder in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes()
    assert (tmp_path / "parts" / "trainability.png").exists()
    with pytest.raises(ValueError, match="there is a journal"):
        trainability(output=parts, **known)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a journal of another run: expected seed 2, got 1"):
        trainability(output=parts, seed=2, resume=True, **known)  # type: ignore[arg-type]


def test_networks_of_one_grade_are_drawn(tmp_path: Any) -> None:
    lines: list[str] = []
    found = trainability(4, steps=2, output=str(tmp_path), only="not_trainable", rates=(1.0,), tell=lines.append)
    assert [" not trainable networks " in claim.text for claim in found] == [True] * 3
    records = json.loads((tmp_path / "trainability.json").read_text())["networks"]
    assert all(record["grade"] == "not_trainable" and len(record["trainings"]) == 1 for record in records)
    for wrong in ({"only": "bad"}, {"rates": (0.5,)}, {"rates": ()}):
        with pytest.raises(ValueError, match="expected"):
            trainability(4, output=str(tmp_path), **wrong)  # type: ignore[arg-type]


def test_parts_are_told_as_such(capsys: Any) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--shard", "3/2"])
    assert exit.value.code == 2 and "expected a part of how many, as 2/4, got 3/2" in capsys.readouterr().err


def record(index: int, grade: str, failures: list[str], learned: list[bool], seen: list[str]) -> dict[str, Any]:
    trainings = [{"has_learned": one, "seen": seen} for one in learned]
    signs = {"forward": 0.1, "backward": -30.0 if "vanishing" in failures else None}
    return {"index": index, "grade": grade, "failures": failures, "trainings": trainings, "signs": signs}


def test_verdicts_are_counted() -> None:
    records = [
        record(0, "healthy", [], [True], []),
        record(1, "healthy", [], [False, True], ["explosion"]),
        record(2, "not_trainable", ["vanishing"], [False, False, False], ["explosion", "vanishing"]),
        record(3, "not_trainable", ["collapse"], [False, False, False], []),
        record(5, "trainable_with_care", [], [True], []),
    ]
    assert [happened(one) for one in records] == ["learned", "explosion", "vanishing", "nothing seen", "learned"]
    assert [came_true(one) for one in records] == [True, False, True, False, None]
    counts = matrix(records)
    assert counts["healthy"] == {**dict.fromkeys(counts["healthy"], 0), "learned": 1, "explosion": 1}
    found = [(claim.text.split(" (")[0], claim.came_true) for claim in claims(records)]
    assert ("all: healthy networks learn at the scheme's rate: 1 of 2, 50.0%", False) in found
    assert ("first half: not trainable networks fail as named: 1 of 1, 100.0%", True) in found
    assert "1 learn at another rate alone" in claims(records)[0].text
    assert thresholds(records)[-1] == "fall by 1e+08 to inf: learned all 0 of 1, first half 0 of 1, second half 0 of 0"
