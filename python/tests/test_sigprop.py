"""The package from the view of a user."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sigprop

SMALL = {"layers": 2, "width": 32, "seq_len": 8}


def test_columns_are_those_of_the_command() -> None:
    prediction = sigprop.predict(scheme="dslm", **SMALL)
    command = [sys.executable, "-m", "sigprop", "predict", "--layers=2", "--width=32", "--seq-len=8"]
    text = subprocess.check_output([*command, "--scheme=dslm", "--json", "--isolated", "-q"])
    document = json.loads(text)
    assert prediction.to_dict() == document
    assert prediction["grad_variance"].tolist() == [row["grad_variance"] for row in document["sites"]]
    assert prediction["site"].tolist() == [row["site"] for row in document["sites"]]
    assert prediction.grade == document["verdict"]["grade"]


def test_flags_are_keywords() -> None:
    """Switches, booleans with a value, Python keywords, numpy numbers."""
    prediction = sigprop.predict(
        "gpt2", layers=np.int64(2), seq_len=8, train=True, final_norm=False, dropout=np.float64(0.1), sites="all", weights=True
    )
    assert "final_norm" not in prediction["site"]
    assert prediction.weights["weight_variance"].min() >= 0
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2}
    assert sigprop.predict(config, as_="gpt2", seq_len=8)["site"].tolist()[-1] == "final_norm"


def test_models_are_what_describes_one(tmp_path: Path) -> None:
    """A dict, its JSON, a file, and a live configuration give the same network."""
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 100}

    class Live:
        model_type = "gpt2"

        def to_dict(self) -> dict[str, object]:
            return config

    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    ways = [config, json.dumps(config), path, str(path), Live()]
    columns = [sigprop.predict(way, seq_len=8)["variance"].tolist() for way in ways]
    assert columns[1:] == columns[:-1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sigprop.predict("gpt3"), "did you mean gpt2?"),
        (lambda: sigprop.predict(layers=0), "expected a whole number from 1"),
        (lambda: sigprop.predict(scheme="dslmm"), "did you mean"),
        (lambda: sigprop.predict(3), "expected a preset, a path, JSON"),
        (lambda: sigprop.predict({"n_layerz": 2}), "n_layerz"),
        (lambda: sigprop.predict(uniform=True, zipf=True), "cannot be used with"),
        (lambda: sigprop.inspect("/nowhere"), "/nowhere"),
        (lambda: sigprop.predict(**SMALL).weights, "weights=True"),
    ],
)
def test_errors_are_the_commands(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as error:
        call()
    assert words in str(error.value)
    assert "Usage" not in str(error.value)


def test_results_are_read_only_and_travel() -> None:
    class Live:
        model_type = "gpt2"

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def to_dict(self) -> dict[str, object]:
            return {"n_layer": 2, "n_embd": 32, "n_head": 2}

    for result in (
        sigprop.predict(Live(), seq_len=8),
        sigprop.validate(replicates=2, **SMALL),
        sigprop.compare(schemes=["xavier", "dslm:k=2,alpha=1"], **SMALL),
        sigprop.recommend(**SMALL),
        sigprop.phase(x="weight-gain=0.5..2:3", y="branch-scale=0.5..2:3", **SMALL),
        sigprop.schemes(),
        sigprop.models(),
    ):
        again = pickle.loads(pickle.dumps(result))
        assert again == result
        assert repr(again) == repr(result)
        assert again.svg == result.svg
        assert "<table>" in result._repr_html_()
        assert len(result.to_pandas()) == len(result.rows) == len(result.to_polars())
        with pytest.raises(ValueError, match="read-only"):
            result[next(iter(result))][0] = result[next(iter(result))][0]
        with pytest.raises(AttributeError, match="read-only"):
            result.extra = 1  # type: ignore[attr-defined]
    prediction = sigprop.predict(**SMALL)
    prediction.to_dict()["sites"].clear()
    assert len(prediction.rows) == 4


def test_tokens_are_arrays() -> None:
    ids = np.arange(32).reshape(4, 8)
    given = sigprop.predict(tokens=ids, vocab=32, layers=1, width=32)
    repeated = sigprop.predict(tokens=np.zeros_like(ids), vocab=32, layers=1, width=32, positions="none")
    assert given["token_correlation"][0] < 0.1
    assert repeated["token_correlation"][0] == pytest.approx(1.0)


def test_measured_numbers_are_compared() -> None:
    """A comparison accepts a measurement as columns and as a DataFrame."""
    measured = sigprop.measure(replicates=16, seed=3, **SMALL)
    validation = sigprop.validate(replicates=16, seed=3, **SMALL)
    prediction = sigprop.predict(**SMALL)
    for observed in (measured, measured.to_pandas()):
        against = prediction.against(observed)
        assert against.r2 == pytest.approx(validation.r2)
    assert validation.r2 is not None and validation.r2 > 0.99
    with pytest.raises(ValueError, match="head"):
        sigprop.predict("gpt2", layers=1, head="own", loss="cross-entropy").against(measured)


def test_seeds_are_reproducible() -> None:
    one, other = (sigprop.measure(replicates=4, threads=threads, **SMALL) for threads in (1, 2))
    assert one == other


IDS = {"tokens": np.arange(32).reshape(4, 8), "vocab": 32, "layers": 1, "width": 32}


def _shard(number: int) -> sigprop.Shard:
    return sigprop.measure_shard(number, 3, replicates=9, seed=5, **IDS)


def test_shards_of_several_processes_are_one_run() -> None:
    whole = sigprop.validate(replicates=9, seed=5, **IDS)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        shards = pool.map_async(_shard, [3, 1, 2]).get(60)
    assert sigprop.merge(shards) == whole
    assert sigprop.merge(shards[:1]) == whole
    other = sigprop.measure_shard(1, 2, replicates=9, seed=6, **IDS)
    with pytest.raises(ValueError, match="another seed"):
        sigprop.merge([shards[0], other])
    with pytest.raises(ValueError, match="expected a part"):
        sigprop.measure_shard(3, 2, **SMALL)
    with pytest.raises(ValueError, match="expected arguments of validate, got replicate"):
        sigprop.measure_shard(1, 2, replicate=3)


def test_python_goes_on_meanwhile() -> None:
    """The interpreter is free while a command runs."""
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    sigprop.predict("gpt2", seq_len=256)
    done.set()
    thread.join()
    assert ticks > 5


def _repeated(ids: list[list[int]]) -> float:
    return float(sigprop.predict(tokens=ids, vocab=64, layers=1, width=32)["token_correlation"][0])


def test_processes_may_fork() -> None:
    """Several sequences use several threads, in a parent process and in its children."""
    ids = np.arange(64).reshape(8, 8).tolist()
    here = _repeated(ids)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_repeated, [ids, ids]).get(60) == [here, here]


def test_interruption_is_heard() -> None:
    """Ctrl-C ends a command that would take minutes."""
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sigprop.validate(layers=4, width=64, replicates=100_000)
    assert time.monotonic() - start < 10


def test_progress_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    sigprop.validate(replicates=4, progress=True, **SMALL)
    assert "4/4" in capfd.readouterr().err


def test_pictures() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    prediction = sigprop.predict(sites="all", **SMALL)
    ax = prediction.plot()
    assert [int(x) for x in ax.lines[0].get_xdata()] == [-1, 0, 1, 2]
    assert prediction.plot(ax, "token_correlation") is ax
    validation = sigprop.validate(replicates=2, **SMALL)
    assert len(validation.plot().lines) >= 2
    assert len(sigprop.compare(schemes="xavier,dslm", **SMALL).plot().patches) == 4
    sigprop.phase(x="weight-gain=0.5..2:3", y="branch-scale=0.5..2:3", **SMALL).plot()
    plt.close("all")
    assert prediction.svg is not None and prediction.svg.startswith("<svg")


def test_the_command_line() -> None:
    command = [sys.executable, "-m", "sigprop"]
    run = subprocess.run([*command, "predict", "gpt3"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "did you mean gpt2?" in run.stderr
    gate = [*command, "predict", "mlp", "--layers=30", "--width=64", "--scheme=uniform:1", "--fail-on=explosion"]
    assert subprocess.run(gate, capture_output=True).returncode == 1
