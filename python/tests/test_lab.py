"""Experiments, cut short."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

pytest.importorskip("torch")

from sigprop import lab


def test_what_is_looked_at_comes_true(tmp_path: Any) -> None:
    lines: list[str] = []
    claims = lab.run("rank-collapse", str(tmp_path), tell=lines.append)
    assert len(claims) == 4 and all(claim.came_true for claim in claims)
    assert sum(line.startswith("came true") for line in lines) == 4
    with open(tmp_path / "rank-collapse.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["network"] for row in rows} == {"with skips", "without"}
    assert float(rows[-1]["token_correlation"]) > 0.999
    summary = json.loads((tmp_path / "rank-collapse.json").read_text())
    assert [network["steps"] for network in summary["networks"]] == [1, 1]
    assert (tmp_path / "rank-collapse.png").exists()


def test_what_has_not_learned_yet_did_not_come_true() -> None:
    """After three steps a healthy network has learned nothing, and the other one is not a number."""
    claims = lab.run("textbook", steps=3, tell=lambda line: None)
    assert [claim.came_true for claim in claims] == [True, False, True, True, True]


def test_unknown_labs_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of textbook"):
        lab.run("alchemy")
