"""The first step of optimisers built from an exported init.py, beside models of transformers.

    cargo build --release
    python tests/first_step.py [target/release/sigprop]

Needs torch and transformers; no weights are downloaded. Of several families and schemes with learning rates of their
own: (1) parameter_groups has every parameter once, with the factor that the scheme's source says, written down here
anew; (2) Adam moves every entry that has a gradient by lr × factor; (3) SGD moves every tensor as `predict
--first-update sgd` tells, with gradients N(0, 1) at the output: the mean square over NETWORKS draws within |z| < 4, or
within WIDTH_TERMS of it, for terms of order 1/width are known but for their square. The scales of residual connections,
which the modules know nothing of, are hung behind their branches, and must be those that init.py tells.
"""

import csv
import importlib.util
import pathlib
import re
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModel

import real_models
from real_models import BESIDE, FAMILIES, sigprop

SEQ_LEN = 32
NETWORKS = 32
RATE = 0.1
WIDTH_TERMS = 0.03
WIDTH, BLOCKS, DECAY, DEEPER = 64, 3, 0.8, 2.0


def decayed(block, n_blocks, _, __):
    """Clark et al. 2020, layers counted as BEiT's: embeddings d^(L+1), block l d^(L−l), behind them 1."""
    return 1.0 if block is None else DECAY ** (n_blocks - block)


def plain(*_):
    """One rate for all."""
    return 1.0


def mup(block, _, is_matrix, optimizer):
    """Yang et al. 2022, table 3, at twice the width: Adam has 1/m for hidden matrices, SGD m for all else."""
    is_hidden = block is not None and block >= 0 and is_matrix
    return {"adam": 0.5 if is_hidden else 1.0, "sgd": 1.0 if is_hidden else 2.0}[optimizer]


def completep(alpha):
    """Dey et al. 2025, table 1, at DEEPER times the depth: in blocks Adam's rates × DEEPER^(α − 1); SGD's, which are not
    in it, as steps that act through their branch twice need: DEEPER^(2α − 1)."""
    def factor(block, n_blocks, is_matrix, optimizer):
        is_in_block = block is not None and block >= 0
        deeper = DEEPER ** {"adam": alpha - 1, "sgd": 2 * alpha - 1}[optimizer] if is_in_block else 1.0
        return mup(block, n_blocks, is_matrix, optimizer) * deeper
    return factor


# Family, scheme, factors of learning rates, scale of branches.
CASES = [*((family, "mup:width=32", mup, 1.0) for family in ("gpt2", "llama", "bert")),
         *((family, f"hf:layer-decay={DECAY}", decayed, 1.0) for family in ("gpt2", "llama", "bert")),
         *((family, f"completep:width=32,depth={BLOCKS / DEEPER},alpha={alpha}", completep(alpha), DEEPER ** -alpha)
           for family in ("gpt2", "llama") for alpha in (1.0, 0.5)),
         *((family, "standardised", plain, 1.0) for family in ("gpt2", "bert"))]


def place(name):
    """Block of a parameter, −1 in the embeddings, None behind the blocks."""
    block = re.search(r"(?:h|layer|layers)\.(\d+)\.", name)
    if block:
        return int(block[1])
    return -1 if re.search(r"wte|wpe|embed", name) else None


def exported(config_file, scheme, folder):
    sigprop("predict", config_file, "--scheme", scheme, "--export", folder / "init.py", "-o", folder / "predicted")
    spec = importlib.util.spec_from_file_location("init", folder / "init.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scaled(module, model, branch):
    """Multiplies what branches add by `branch`; what is wrong with what init.py tells of it."""
    def hung(_, __, output):
        return (output[0] * branch, *output[1:]) if isinstance(output, tuple) else output * branch

    branches = [part for name, part in model.named_modules() if re.search(r"\d\.(attn|self_attn|mlp)$", name)]
    told = module.PLAN["residual"]
    if branch == 1.0:
        return [f"residual: expected no scales, got {told}"] if told else []
    for part in branches:
        part.register_forward_hook(hung)
    got = [(site["skip"], *site["branches"]) for site in told]
    if len(got) != len(branches) or any(abs(skip - 1) + abs(scale / branch - 1) > 1e-9 for skip, scale in got):
        return [f"residual: expected {len(branches)} branches of scale {branch}, got {told}"]
    return []


def stepped(module, model, optimizer):
    """What one step changes, by name, for gradients N(0, 1) at the output."""
    tokens = torch.randint(model.config.vocab_size, (1, SEQ_LEN))
    optimizer.zero_grad()
    output = model(input_ids=tokens).last_hidden_state
    output.backward(torch.randn_like(output))
    before = {name: parameter.detach().clone() for name, parameter in module._named(model)}
    optimizer.step()
    return {name: parameter.detach() - before[name] for name, parameter in module._named(model)}


def grouped(module, model, factor, optimizer):
    """What is wrong with the groups."""
    names = {parameter: name for name, parameter in module._named(model)}
    groups = module.parameter_groups(model, lr=RATE, optimizer=optimizer)
    got = [(names[parameter], group["lr"]) for group in groups for parameter in group["params"]]
    found = [] if sorted(name for name, _ in got) == sorted(names.values()) else ["not every parameter once"]
    sizes = {name: parameter.dim() > 1 for parameter, name in names.items()}
    for name, rate in got:
        expected = RATE * factor(place(name), model.config.num_hidden_layers, sizes[name], optimizer)
        if not BESIDE.search(name) and abs(rate / expected - 1) > 1e-9:
            found.append(f"{optimizer}, {name}: expected the learning rate {expected}, got {rate}")
    return found


def adam(module, model, factor):
    groups = module.parameter_groups(model, lr=RATE)
    found = []
    for name, change in stepped(module, model, torch.optim.Adam(groups, eps=1e-30)).items():
        expected = RATE * factor(place(name), model.config.num_hidden_layers, change.dim() > 1, "adam")
        moved = change[change != 0].abs()
        if len(moved) and (moved / expected - 1).abs().max() > 1e-6:
            found.append(f"Adam, {name}: expected steps of {expected}, got {moved.min()} to {moved.max()}")
    return found


def sgd(module, model, config_file, scheme):
    """What is off, and by how much at most."""
    rows = csv.DictReader(sigprop(
        "predict", config_file, "--scheme", scheme, "--first-update", "sgd", "--lr", RATE, "--format", "csv",
        "--uniform", "--seq-len", SEQ_LEN, "--batch", 16, "-q").splitlines())
    predicted = {row["tensor"]: float(row["update_rms"]) ** 2 for row in rows}
    squares = {}
    for seed in range(NETWORKS):
        module.initialise(model, seed=seed)
        changes = stepped(module, model, torch.optim.SGD(module.parameter_groups(model, lr=RATE, optimizer="sgd")))
        for name, change in changes.items():
            index = module._find(name)
            for part, indices in module._pieces(change, module.PLANNED[index][1]) if index is not None else []:
                piece = change.index_select(module.PLANNED[index][1]["axis"], torch.as_tensor(list(indices)))
                block = place(name)
                tensor = part["parameter"].replace("blocks.*", f"blocks.{block}")
                squares.setdefault(tensor, []).append(piece.square().mean().item())
    found, worst = [], (0.0, "")
    told = {tensor for tensor in squares if predicted.get(tensor)}
    for tensor in told:
        measured = torch.tensor(squares[tensor], dtype=torch.float64)
        z = ((measured.mean() - predicted[tensor]) / (measured.std() / NETWORKS ** 0.5)).item()
        off = predicted[tensor] / measured.mean().item() - 1
        worst = max(worst, (abs(z), f"{tensor} {off:+.1%}, z {-z:+.1f}"))
        if abs(z) > 4 and abs(off) > WIDTH_TERMS:
            found.append(f"SGD, {tensor}: E ΔW² off by {off:+.1%}, z {-z:+.1f}")
    return found, f"{len(told)} tensors, worst {worst[1]}"


def check(family, scheme, factor, branch):
    model_type, values = FAMILIES[family]
    lengths = {"n_layer": BLOCKS, "n_positions": SEQ_LEN} if family == "gpt2" else {
        "num_hidden_layers": BLOCKS, "max_position_embeddings": SEQ_LEN}
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **dict(values, **lengths))
    model = AutoModel.from_config(config).eval().double()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config.save_pretrained(folder)
        module = exported(folder / "config.json", scheme, folder)
        module.initialise(model)
        found = scaled(module, model, branch) + grouped(module, model, factor, "adam") + grouped(module, model, factor, "sgd")
        found += adam(module, model, factor)
        off, told = sgd(module, model, folder / "config.json", scheme)
    found += off
    print(f"{'BAD' if found else 'ok '} {family:6} {scheme:36} {told}", flush=True)
    for problem in found:
        print(f"      {problem}")
    return not found


if __name__ == "__main__":
    real_models.SIGPROP = sys.argv[1] if len(sys.argv) > 1 else "target/release/sigprop"
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    fine = [check(*case) for case in CASES]
    print(f"{sum(fine)} of {len(fine)} fine")
    sys.exit(not all(fine))
