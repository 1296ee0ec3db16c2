"""What flows through models of transformers at random initialisation: means and standard errors over networks.

`measure(folder, size)` builds the model of every config in `folder`/configs, and writes `folder`/cases.csv and truth.csv
as docs/huggingface.md describes them: the stream before the first block, behind every block, and behind the last norm.
"""

import csv
import json
import re
import statistics
from dataclasses import dataclass

import torch
from transformers import AutoConfig

from library import base

@dataclass
class Size:
    """How much is measured: networks per model, sequences per network, and tokens per sequence."""

    networks: int = 10
    batch: int = 4
    tokens: int = 64
    decoder_tokens: int = 48


# Libraries reserve the first ids.
FIRST_ID = 4

CASES = ["case_id", "family", "seq_len", "seq_len_dec", "batch", "vocab", "seeds", "input_kind"]
TRUTH = ["case_id", "family", "mode", "input_kind", "seed_count", "layer_index", "site", "stat", "mean_over_seeds",
         "stderr_over_seeds"]
LAYERS = re.compile(r"(^|\.)(layers?|h|blocks?)$")


def config_of(file):
    values = json.loads(file.read_text())
    return AutoConfig.for_model(values["model_type"], **{k: v for k, v in values.items() if k != "model_type"})


def text_part(model):
    return getattr(model, "language_model", model)


def streams(model):
    """Blocks of every stream with what stands before its sites: nothing, or enc. and dec. A block that runs several
    times is listed as often."""
    shared = getattr(getattr(model, "encoder", None), "albert_layer_groups", None)
    if shared is not None:
        return {"": [shared[0]] * model.config.num_hidden_layers}
    lists = {name: module for name, module in text_part(model).named_modules()
             if isinstance(module, torch.nn.ModuleList) and LAYERS.search(name) and not re.search(r"\.\d+\.", name)}
    if len(lists) == 1:
        return {"": next(iter(lists.values()))}
    halves = {name.split(".")[0]: module for name, module in lists.items()}
    if set(halves) != {"encoder", "decoder"}:
        raise ValueError(f"expected the blocks of one stream or of encoder and decoder, got {sorted(lists)}")
    return {"enc.": halves["encoder"], "dec.": halves["decoder"]}


def inputs(config, size):
    """What the model reads, and the kind of input."""
    if hasattr(config, "num_patches"):
        side = int(config.num_patches ** 0.5)
        patch = config.num_channels * config.patch_size ** 2
        return {"pixel_values": torch.randn(size.batch, config.num_patches, patch),
                "pixel_attention_mask": torch.ones(size.batch, config.num_patches),
                "spatial_shapes": torch.full((size.batch, 2), side)}, "n"
    if hasattr(config, "image_size") and hasattr(config, "num_channels"):
        sides = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        return {"pixel_values": torch.randn(size.batch, config.num_channels, *sides)}, "n"
    vocabulary = config.get_text_config().vocab_size
    ids = {"input_ids": torch.randint(FIRST_ID, vocabulary, (size.batch, size.tokens))}
    if config.is_encoder_decoder:
        own = getattr(config, "decoder_vocab_size", vocabulary)
        ids["decoder_input_ids"] = torch.randint(FIRST_ID, own, (size.batch, size.decoder_tokens))
    return ids, "u"


def moments(prefix, tensor):
    """Second moment and mean product of two tokens."""
    length, width = tensor.shape[-2:]
    total = tensor.sum(1)
    cross = ((total * total).sum(-1) - (tensor * tensor).sum((1, 2))).mean() / (length * (length - 1) * width)
    return {f"{prefix}m2": (tensor * tensor).mean().item(), f"{prefix}corr_raw": cross.item()}


def sample(config, seed, size):
    """Every statistic of one network, by (layer, site, statistic), and the lengths of its streams."""
    torch.manual_seed(seed)
    model = base(config, attn_implementation="eager").eval()
    batch, _ = inputs(config, size)
    kept = {}

    def keep(key, tensor):
        if tensor.requires_grad:
            tensor.retain_grad()
        kept[key] = tensor

    def entering(stream):
        def hook(_module, args, kwargs):
            if (-1, f"{stream}embed") not in kept:
                keep((-1, f"{stream}embed"), args[0] if args else kwargs["hidden_states"])
        return hook

    def leaving(stream, passes):
        def hook(_module, _args, output):
            keep((next(passes), f"{stream}block"), output[0] if isinstance(output, (tuple, list)) else output)
        return hook

    found = streams(model)
    for stream, layers in found.items():
        layers[0].register_forward_pre_hook(entering(stream), with_kwargs=True)
        for module in dict.fromkeys(layers):
            passes = iter([layer for layer, other in enumerate(layers) if other is module])
            module.register_forward_hook(leaving(stream, passes))
    model.requires_grad_(True)
    output = model(**batch)
    last = list(found)[-1]
    keep((len(found[last]), f"{last}final"), output.last_hidden_state)
    if last == "dec.":
        keep((len(found["enc."]), "enc.final"), output.encoder_last_hidden_state)
    (output.last_hidden_state * torch.randn_like(output.last_hidden_state)).sum().backward()
    row = {}
    for (layer, site), tensor in kept.items():
        for prefix, values in (("", tensor.detach()), ("grad_", tensor.grad)):
            row |= {(layer, site, stat): value for stat, value in moments(prefix, values).items()}
    lengths = [kept[(-1, f"{stream}embed")].shape[1] for stream in found]
    return row, lengths


def measure(folder, size, names=()):
    """Measures all models, or those of these names, whose rows it replaces."""
    tables = {}
    for table in ("cases", "truth"):
        file = folder / f"{table}.csv"
        tables[table] = list(csv.DictReader(file.open())) if file.exists() else []
    for file in sorted((folder / "configs").glob("*.json")):
        if names and file.stem not in names:
            continue
        config = config_of(file)
        rows, lengths = zip(*(sample(config, 1000 + seed, size) for seed in range(size.networks)))
        kind = inputs(config, size)[1]
        for table in tables:
            tables[table] = [row for row in tables[table] if row["case_id"] != file.stem]
        vocabulary = getattr(config.get_text_config(), "vocab_size", "")
        decoder = lengths[0][1] if len(lengths[0]) > 1 else ""
        tables["cases"].append(dict(zip(CASES, [file.stem, config.model_type, lengths[0][0], decoder, size.batch,
                                                vocabulary, size.networks, kind])))
        for layer, site, stat in sorted(rows[0]):
            values = [row[layer, site, stat] for row in rows]
            error = statistics.stdev(values) / size.networks ** 0.5
            tables["truth"].append(dict(zip(TRUTH, [file.stem, config.model_type, "eval", kind, size.networks, layer,
                                                    site, stat, f"{statistics.mean(values):.7g}", f"{error:.4g}"])))
        print(f"measured {file.stem}", flush=True)
    for table, columns in (("cases", CASES), ("truth", TRUTH)):
        with (folder / f"{table}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(sorted(tables[table], key=lambda row: row["case_id"]))
