"""Samples 100 ordered pairs of ten components between a linear map and a norm: FOLDER/WIDTH/PAIR.csv; those that are
there are kept. tests/sigprop/accuracy/pairs.rs builds the same stacks.

    python pairs.py SIGPROP FOLDER WIDTH NETWORKS SEED
"""

import itertools
import json
import pathlib
import subprocess
import sys

binary, folder, width, networks, seed = sys.argv[1:]
width = int(width)
folder = pathlib.Path(folder, str(width))


def apply(name, component):
    return {"name": name, "op": {"apply": component}}


def norm(name, kind, eps):
    return apply(name, {"norm": {"kind": kind, "eps": eps, "gain": 1.0, "groups": 1}})


def linear(name, bias=None, standardised=None):
    map = {"fan_in": width, "fan_out": width, "weight": {"name": f"{name}.weight", "init": {"normal": {"std": width**-0.5}}}}
    if bias:
        map["bias"] = {"name": f"{name}.bias", "init": {"normal": {"std": bias}}}
    if standardised:
        map["standardised"] = standardised
    return apply(name, {"linear": map})


def branches(name):
    bodies = [[], [linear(name + "m")]]
    return {"name": name, "op": {"sum": {"branches": [{"scale": 1.0, "drop_rate": 0.0, "body": body} for body in bodies]}}}


KINDS = {
    "ln": lambda name: norm(name, "layernorm", 1e-5),
    "rms": lambda name: norm(name, "rmsnorm", 1e-5),
    "rmseps": lambda name: norm(name, "rmsnorm", 0.5),
    "map": linear,
    "bias": lambda name: linear(name, bias=1.0),
    "std": lambda name: linear(name, standardised=1.0),
    "relu": lambda name: apply(name, {"activation": "relu"}),
    "gelu": lambda name: apply(name, {"activation": "gelu"}),
    "drop": lambda name: apply(name, {"dropout": {"rate": 0.2}}),
    "sum": branches,
}


def stack(first, second):
    # The map in front makes what the first component reads random; behind the norm gradients know lengths.
    nodes = [linear("first"), KINDS[first]("a"), KINDS[second]("b"), norm("last", "rmsnorm", 1e-5)]
    body = [{"name": "embeddings", "op": {"chain": []}}, *nodes]
    source = {"gaussian": {"width": width, "variance": 1.0, "correlation": 0.3}}
    stream = {"name": "mlp", "seq_len": 6, "source": source, "body": body}
    return {"schema_version": 1, "name": "pair", "streams": [stream], "gradient": {"stream": 0, "correlation": 0.5}}


folder.mkdir(parents=True, exist_ok=True)
for first, second in itertools.product(KINDS, KINDS):
    report = folder / f"{first}-{second}.csv"
    if report.exists():
        continue
    command = [binary, "validate", "--stack", "-", "--replicates", networks, "--seed", seed, "--sites", "all", "--weights"]
    text = json.dumps(stack(first, second)).encode()
    command += ["--isolated", "-q", "--format", "csv"]
    output = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE)
    whole = report.with_suffix(".part")
    whole.write_bytes(output.stdout)
    whole.rename(report)
