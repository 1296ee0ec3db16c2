"""Draws the parameters of a PyTorch module as sigprop plans them.

    from init import initialise
    report = initialise(model, seed=0)      # writes into model, in place
    optimizer = torch.optim.Adam(parameter_groups(model, lr=1e-3))      # or SGD, with optimizer="sgd"
    python init.py config.json              # builds the transformers model of a config and tells what it got

Parameters are found by name, whatever stands before that of the base model (`transformer.h.0.…`). What the plan
does not know is left as it is and told, as is what the model does not have. Weights that the plan standardises are
parametrised (torch.nn.utils.parametrize), so that every forward pass does. Needs torch alone.
"""

import functools
import json
import math
import re
import sys

import torch
from torch.nn.utils import parametrize

PLAN = json.loads(r"""
@PLAN@
""")


PLANNED = [(re.compile(re.escape(planned["name"]).replace(r"\*", r"\d+")), planned) for planned in PLAN["parameters"]]


@functools.cache
def _find(name):
    """Index of the entry of a name relative to the base model."""
    return next((index for index, (pattern, _) in enumerate(PLANNED) if pattern.fullmatch(name)), None)


def _beginnings(name):
    """What a name begins with, up to one of its dots, the longest first, nothing last."""
    return [name[:dot.end()] for dot in re.finditer(r"\.", name)][::-1] + [""]


def _prefix(names):
    """What stands before the names of the base model: the shortest with which most of the plan is found."""
    found = {}
    for name in names:
        for front in _beginnings(name):
            if _find(name[len(front):]) is not None:
                found.setdefault(front, set()).add(name[len(front):])
    known = {prefix: len(set().union(*(found.get(front, ()) for front in _beginnings(prefix)))) for prefix in found}
    return max(known, key=lambda prefix: (known[prefix], -len(prefix)), default="")


def _index(name, prefix):
    """Index of the entry of a parameter, before whose planned name the prefix stands, or its beginning, or nothing."""
    found = (_find(name[len(front):]) for front in _beginnings(prefix) if name.startswith(front))
    return next((index for index in found if index is not None), None)


def _named(model):
    """All parameters, those that are parametrised under the names they had before."""
    original = re.compile(r"parametrizations\.(\w+)\.original$")
    return [(original.sub(r"\1", name), parameter) for name, parameter in model.named_parameters()]


def _draw(tensor, part, generator):
    kind = part["distribution"]
    if kind == "constant":
        tensor.fill_(part["value"])
    elif kind == "normal":
        tensor.normal_(0.0, part["std"], generator=generator)
    elif kind == "uniform":
        tensor.uniform_(*part["bounds"], generator=generator)
    elif kind == "truncated_normal":
        low, high = part["bounds"]
        torch.nn.init.trunc_normal_(tensor, 0.0, part["untruncated_std"], low, high, generator=generator)
    elif kind == "orthogonal":
        matrices = tensor.flatten(end_dim=-3) if tensor.dim() > 2 else tensor[None]
        for matrix in matrices:
            # QR decompositions need at least float32.
            full = torch.empty_like(matrix, dtype=torch.promote_types(matrix.dtype, torch.float32))
            gain = part["std"] * math.sqrt(max(matrix.shape))
            matrix.copy_(torch.nn.init.orthogonal_(full, gain, generator=generator))
    elif kind == "log_count":
        counts = torch.arange(1, tensor.shape[-1] + 1, dtype=tensor.dtype, device=tensor.device)
        tensor.copy_(counts.log().expand_as(tensor))
    elif kind == "log_uniform":
        tensor.uniform_(*part["bounds"], generator=generator).log_()
    elif kind == "inverse_softplus":
        low, high = part["bounds"]
        tensor.uniform_(math.log(low), math.log(high), generator=generator).exp_().expm1_().log_()
    else:
        raise ValueError(f"unknown distribution {kind!r}")


def _pieces(parameter, planned):
    """Every part of a parameter: what it is, and the indices along the axis that it has."""
    parts = planned["parts"]
    size = parameter.shape[planned["axis"]] if parameter.dim() else 1
    if any("indices" in part for part in parts):
        return [(part, part.get("indices", range(size))) for part in parts]
    if len(parts) == 1:
        return [(parts[0], range(size))]
    if sum(part["size"] for part in parts) != size:
        raise ValueError(f"{planned['name']}: expected {[part['size'] for part in parts]} along axis "
                         f"{planned['axis']}, got {size}: is the plan of this model?")
    pieces, start = [], 0
    group = size // planned["groups"]
    for part in parts:
        share = part["size"] // planned["groups"]
        indices = [g * group + start + i for g in range(planned["groups"]) for i in range(share)]
        pieces.append((part, indices))
        start += share
    return pieces


class Standardised(torch.nn.Module):
    """Weight standardisation: γ (w − mean w)/|w − mean w| of every row w, which lie along `axis`; `lengths` has a γ per
    row, 0 of those that stay as they are."""

    def __init__(self, axis, lengths):
        super().__init__()
        self.inputs = 1 - axis if lengths.dim() == 2 else -1
        self.register_buffer("lengths", lengths, persistent=False)

    def forward(self, weight):
        centred = weight - weight.mean(self.inputs, keepdim=True)
        length = centred.norm(dim=self.inputs, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
        return torch.where(self.lengths > 0, centred * (self.lengths / length), weight)


def _standardise(model, name, parameter, planned):
    """Parametrises a weight that has parts to standardise, unless it is already; whether it has."""
    if not any("standardised" in part for part in planned["parts"]):
        return False
    module, _, attribute = name.rpartition(".")
    module = model.get_submodule(module)
    if not parametrize.is_parametrized(module, attribute):
        axis = planned["axis"]
        lengths = torch.zeros(parameter.shape[axis], dtype=parameter.dtype, device=parameter.device)
        for part, indices in _pieces(parameter, planned):
            lengths[list(indices)] = part.get("standardised", 0.0)
        lengths = lengths.view([-1 if place == axis else 1 for place in range(parameter.dim())])
        parametrize.register_parametrization(module, attribute, Standardised(axis, lengths))
    return True


@torch.no_grad()
def initialise(model, seed=0, generator=None, dry_run=False):
    """Draws all parameters that the plan knows, and parametrises those it standardises; `dry_run` only looks. Returns a
    dict: `drawn`, a list of (name, part, planned std, measured std); `unmatched`, parameters that the plan does not know; `missing`, planned
    names without a parameter; `standardised`, names of standardised weights; `residual`, multipliers of residual
    connections that the module itself must apply."""
    device = next(model.parameters()).device
    if generator is None:
        generator = torch.Generator(device=device).manual_seed(seed)
    drawn, unmatched, standardised, held = [], [], [], set()
    parameters = _named(model)
    prefix = _prefix([name for name, _ in parameters])
    for name, parameter in parameters:
        index = _index(name, prefix)
        if index is None:
            unmatched.append(name)
            continue
        _, planned = PLANNED[index]
        for part, indices in _pieces(parameter, planned):
            places = torch.as_tensor(list(indices), device=device)
            piece = parameter.index_select(planned["axis"], places)
            if not dry_run:
                drawn_piece = torch.empty_like(piece, device=generator.device)
                _draw(drawn_piece, part, generator)
                piece.copy_(drawn_piece)
                parameter.index_copy_(planned["axis"], places, piece)
            std = piece.float().std(correction=0).item()
            # Rates and biases of steps have a range and no planned std: the measured one stands for both.
            planned_std = part.get("std", 0.0 if part["distribution"] == "constant" else std)
            drawn.append((name, part["parameter"], planned_std, std))
            held.add(part["parameter"])
        if not dry_run and _standardise(model, name, parameter, planned):
            standardised.append(name)
    missing = [planned["name"] for planned in PLAN["parameters"]
               if not any(part["parameter"] in held for part in planned["parts"])]
    return {"drawn": drawn, "unmatched": unmatched, "missing": missing, "standardised": standardised,
            "residual": PLAN["residual"]}


def parameter_groups(model, lr, optimizer="adam"):
    """Parameters by learning rate, for an optimiser of torch: `lr` times what the plan says for "adam" or "sgd".
    Parameters that the plan does not know have `lr`."""
    if optimizer not in ("adam", "sgd"):
        raise ValueError(f"optimizer: expected 'adam' or 'sgd', got {optimizer!r}")
    groups = {}
    parameters = _named(model)
    prefix = _prefix([name for name, _ in parameters])
    for name, parameter in parameters:
        index = _index(name, prefix)
        parts = [] if index is None else PLANNED[index][1]["parts"]
        factors = {part["learning_rates"][optimizer] for part in parts} or {1.0}
        if len(factors) > 1:
            raise ValueError(f"{name}: expected one learning rate, got factors {sorted(factors)} of "
                             f"{[part['parameter'] for part in parts]}: split the parameter")
        groups.setdefault(factors.pop(), []).append(parameter)
    return [{"params": parameters, "lr": factor * lr} for factor, parameters in groups.items()]


def _tell(report):
    groups = {}
    for name, part, planned, measured in report["drawn"]:
        key = (re.sub(r"\d+", "*", name), part)
        groups.setdefault(key, []).append((planned, measured))
    for (name, part), stds in groups.items():
        planned, measured = (sum(numbers) / len(numbers) for numbers in zip(*stds))
        print(f"{name:60} {part.rsplit('.', 2)[-2] if '.' in part else part:12} x{len(stds):<4} "
              f"planned {planned:.6f}  measured {measured:.6f}")
    for what in ("unmatched", "missing", "standardised"):
        print(f"{what}: {', '.join(report[what]) or 'none'}")
    if report["residual"]:
        print(f"{len(report['residual'])} residual connections have multipliers that the module must apply: "
              f"{report['residual'][0]} …")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python init.py config.json")
    import transformers

    config = transformers.AutoConfig.from_pretrained(sys.argv[1])
    named = (config.architectures or [None])[0]
    built = getattr(transformers, named)(config) if named else transformers.AutoModel.from_config(config)
    _tell(initialise(built))
