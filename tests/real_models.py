"""Checkpoints and plans beside real models of transformers, at random initialisation.

    cargo build --release
    python tests/real_models.py [target/release/sigprop] [--stds FILE.md] [family …]
    python tests/real_models.py --families [family …] [--networks N]
    python tests/real_models.py --held-out [family …]

Needs torch and transformers; no weights are downloaded. Of every family, a small model: (1) what the library draws is
inspected: every tensor must be known and as the scheme `hf` says; (2) an exported checkpoint must
load without missing keys, and be inspected as the scheme it was drawn from; (3) an exported init.py must draw every
parameter with the planned standard deviation: `--stds` writes both. GPT-2 without its residual
scaling must be told. `--families` measures what flows through the models of data/huggingface/families/configs and
writes it beside them, for `cargo test`; `--held-out` does so for data/huggingface/held_out, models of other sizes with
more networks and tokens.
"""

import argparse
import importlib.util
import json
import logging
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModel

from library import with_head
from measured import Size, config_of, measure

DATA = pathlib.Path(__file__).parents[1] / "data/huggingface"
MEASURED = DATA / "families"

SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=200,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = dict(SMALL, num_key_value_heads=2)
HEADS = dict(GROUPED, head_dim=16)
GPT = dict(n_embd=64, n_layer=2, n_head=4, vocab_size=200, n_positions=64)
FALCON = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=200)
OPT = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=96, vocab_size=200,
           max_position_embeddings=64)
LATENT = dict(SMALL, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=10,
              n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
              first_k_dense_replace=1, n_group=1, topk_group=1)
T5 = dict(d_model=64, num_layers=2, num_decoder_layers=3, num_heads=4, d_kv=16, d_ff=96, vocab_size=200)
BART = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=96, decoder_ffn_dim=96, vocab_size=200, max_position_embeddings=64, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
IMAGES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32,
              patch_size=8)

FAMILIES = {
    "gpt2": ("gpt2", dict(GPT, n_layer=12)),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_bigcode, all heads": ("gpt_bigcode", dict(GPT, multi_query=False)),
    "gpt_neo": ("gpt_neo", dict(hidden_size=64, num_layers=2, num_heads=4, vocab_size=200, max_position_embeddings=64,
                                attention_types=[[["global", "local"], 1]])),
    "gptj": ("gptj", dict(GPT, rotary_dim=8)),
    "codegen": ("codegen", dict(GPT, rotary_dim=8)),
    "opt": ("opt", dict(OPT, word_embed_proj_dim=64)),
    "opt, projected": ("opt", dict(OPT, word_embed_proj_dim=32, do_layer_norm_before=False)),
    "bloom": ("bloom", dict(hidden_size=64, n_layer=2, n_head=4, vocab_size=200)),
    "mpt": ("mpt", dict(d_model=64, n_layers=2, n_heads=4, vocab_size=200, max_seq_len=64)),
    "gpt_neox": ("gpt_neox", SMALL),
    "falcon, one key": ("falcon", FALCON),
    "falcon, groups": ("falcon", dict(FALCON, num_kv_heads=2, new_decoder_architecture=True)),
    "falcon, sequential": ("falcon", dict(FALCON, multi_query=False, parallel_attn=False, alibi=True, bias=True)),
    "phi": ("phi", dict(SMALL, qk_layernorm=True)),
    "stablelm": ("stablelm", dict(GROUPED, use_qkv_bias=True)),
    "stablelm, parallel": ("stablelm", dict(GROUPED, use_parallel_residual=True)),
    "llama, biases": ("llama", dict(GROUPED, attention_bias=True, mlp_bias=True)),
    **{name: (name, GROUPED) for name in (
        "cohere", "cohere2", "llama", "mistral", "smollm3", "ernie4_5", "qwen2", "phi3", "starcoder2", "nemotron",
        "arcee", "granite", "olmo", "olmo2", "olmo3")},
    **{name: (name, HEADS) for name in ("seed_oss", "qwen3", "gemma", "gemma2", "gemma3_text", "glm", "glm4")},
    "mixtral": ("mixtral", dict(GROUPED, num_local_experts=4)),
    "qwen3_moe": ("qwen3_moe", dict(HEADS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v2, whole queries": ("deepseek_v2", dict(LATENT, q_lora_rank=None, n_shared_experts=2)),
    "deepseek_v3": ("deepseek_v3", LATENT),
    **{name: (name, SMALL) for name in ("bert", "roberta", "camembert", "xlm-roberta", "modernbert")},
    "electra": ("electra", dict(SMALL, embedding_size=64)),
    "albert": ("albert", dict(SMALL, embedding_size=32, num_hidden_layers=3)),
    # The library cuts the taps of all parts into equal thirds when it saves them: only equal widths are loaded again.
    "olmo_hybrid": ("olmo_hybrid", dict(GROUPED, num_hidden_layers=4, linear_key_head_dim=16, linear_value_head_dim=16)),
    "distilbert": ("distilbert", dict(dim=64, n_layers=2, n_heads=4, hidden_dim=96, vocab_size=200,
                                      max_position_embeddings=64)),
    "t5": ("t5", T5),
    "mt5": ("mt5", T5),
    "umt5": ("umt5", T5),
    "t5gemma": ("t5gemma", dict(encoder=dict(HEADS), decoder=dict(HEADS), vocab_size=200)),
    "mllama_text_model": ("mllama_text_model", dict(GROUPED, num_hidden_layers=3, cross_attention_layers=[1])),
    "bart": ("bart", BART),
    "mbart": ("mbart", BART),
    "whisper": ("whisper", dict(BART, max_source_positions=32, max_target_positions=32)),
    "vit": ("vit", IMAGES),
    "dinov2": ("dinov2", dict(IMAGES, layerscale_value=0.1)),
    "dinov2, gated": ("dinov2", dict(IMAGES, use_swiglu_ffn=True)),
    "dinov3_vit": ("dinov3_vit", dict(IMAGES, layerscale_value=0.1, num_register_tokens=3)),
    "dinov3_vit, gated": ("dinov3_vit", dict(IMAGES, use_gated_mlp=True, hidden_act="silu", num_register_tokens=1)),
    "beit, shared tables": ("beit", dict(IMAGES, use_relative_position_bias=True,
                                         use_shared_relative_position_bias=True)),
    "clip_text": ("clip_text_model", SMALL),
    "clip_vision": ("clip_vision_model", IMAGES),
}

# What belongs to a base model and not to the network: poolers, a norm of the class token, fixed sinusoids.
BESIDE = re.compile(r"pooler|post_layernorm|coder\.embed_positions|e_score_correction_bias|mask_token|final_logits_bias|"
                    r"indexer\.|act_fn\.|router\.(scale|per_expert_scale)$|layer_scalar$|"
                    r"^head\.(probe|attention|layernorm|mlp|weight|bias)|contact_head|inv_freq")
# Text parts of models of texts and images are built without the head of the whole.
HEADLESS = re.compile(rf"{BESIDE.pattern}|^lm_head\.")


def sigprop(*arguments):
    ran = subprocess.run([SIGPROP, *map(str, arguments)], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    return ran.stdout


def inspected(folder, *arguments):
    return json.loads(sigprop("inspect", folder, "--format", "json", "-q", *arguments))


def problems(report, scheme, beside):
    """What is not as the scheme says."""
    found = [f"{tensor['tensor']} {tensor['parameter']}: std {tensor['std']}, scheme {tensor['scheme_std']}"
             for tensor in report["tensors"] if tensor["deviates"]]
    found += [f"unknown {name}" for name in report["unknown"] if not beside.search(name)]
    found += [f"missing {name}" for name in report["missing"]]
    if report["closest"][0]["scheme"] != scheme:
        found.append(f"closest {report['closest'][:2]}")
    return found


def stds(name, report):
    """Planned and measured standard deviations, a Markdown row per kind of parameter; what starts at one value is left
    out."""
    kinds = {}
    for key, part, planned, measured in report["drawn"]:
        if planned:
            kind = (re.sub(r"\.\d+\.", ".*.", key), re.sub(r"\.\d+\.", ".*.", part), planned)
            kinds.setdefault(kind, []).append(measured)
    for (key, part, planned), measured in kinds.items():
        mean, worst = sum(measured) / len(measured), max(measured, key=lambda std: abs(std / planned - 1))
        yield (f"| {name} | `{key}` | `{part}` | {len(measured)} | {planned:.5f} | {mean:.5f} | {worst / planned - 1:+.1%} "
               "|\n")


def check(name, folder, written):
    if name in FAMILIES:
        model_type, values = FAMILIES[name]
        config = AutoConfig.for_model(model_type, **values)
    else:
        config = config_of(MEASURED / "configs" / f"{name}.json")
    torch.manual_seed(0)
    model, head = with_head(config)
    beside = BESIDE if head else HEADLESS
    for layer in getattr(config, "cross_attention_layers", None) or []:
        # Blocks that read images are empty in the network.
        beside = re.compile(rf"{beside.pattern}|layers\.{layer}\.")
    built = folder / "built"
    model.save_pretrained(built)
    found = problems(inspected(built), "hf", beside)

    config_file = built / "config.json"
    drawn = folder / "drawn"
    drawn.mkdir()
    (drawn / "config.json").write_text(config_file.read_text())
    scheme = "xavier-uniform"
    sigprop("predict", config_file, "--scheme", scheme, "--export", drawn / "model.safetensors", "--export",
            folder / "init.py", "-o", folder / "predicted")
    found += [f"exported: {problem}" for problem in problems(inspected(drawn, "--scheme", scheme), scheme, beside)]
    _, loading = type(model).from_pretrained(drawn, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        found += [f"loading: {what} {key}" for key in loading[what] if not beside.search(str(key))]

    spec = importlib.util.spec_from_file_location("init", folder / "init.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    report = module.initialise(model, seed=1)
    written.extend(stds(name, report))
    found += [f"init.py: unmatched {key}" for key in report["unmatched"] if not beside.search(key)]
    found += [f"init.py: missing {key}" for key in report["missing"] if not beside.search(key)]
    sizes = {key: parameter.numel() for key, parameter in model.named_parameters()}
    groups = [(group["lr"], len(group["params"])) for group in module.parameter_groups(model, lr=0.1)]
    if groups != [(0.1, len(sizes))]:
        found.append(f"init.py: expected one learning rate for {len(sizes)} parameters, got {groups}")
    for key, part, planned, measured in report["drawn"]:
        # Parts are at least a third of a parameter or hundreds of numbers; 6 standard errors of a normal std.
        if abs(measured - planned) > 6 * planned / max(sizes[key] / 8, 2) ** 0.5 + 1e-7:
            found.append(f"init.py: {key} {part}: planned {planned}, measured {measured}")
    worst = max(report["drawn"], key=lambda row: abs(row[3] / row[2] - 1) if row[2] else 0)
    print(f"{'ok ' if not found else 'BAD'} {name:28} init.py: {len(report['drawn'])} drawn, "
          f"worst {worst[1]} {worst[2]:.5f} → {worst[3]:.5f}", flush=True)
    for problem in found:
        print(f"      {problem}")
    return not found


def broken_gpt2(folder):
    """As transformers 5.0 to 5.14 built it: residual projections with the std of all others."""
    model = AutoModel.from_config(AutoConfig.for_model("gpt2", **dict(GPT, n_layer=12)))
    for key, parameter in model.named_parameters():
        if key.endswith("c_proj.weight"):
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder)
    report = inspected(folder)
    told = [finding for finding in report["findings"] if finding["problem"] == "deviation"]
    for finding in told:
        print(f"GPT-2 without residual scaling: {finding['text']}")
    blocks = [len(finding["blocks"]) for finding in told if "c_proj.weight" in finding["text"]]
    return blocks == [12, 12] and report["closest"][0]["scheme"] == "hf@5.0"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sigprop", nargs="?", default="target/release/sigprop")
    parser.add_argument("families", nargs="*", metavar="family")
    parser.add_argument("--stds", type=pathlib.Path, metavar="FILE.md")
    parser.add_argument("--families", dest="measured", nargs="*", metavar="family")
    parser.add_argument("--held-out", nargs="*", metavar="family")
    parser.add_argument("--networks", type=int, default=Size.networks, metavar="N")
    arguments = parser.parse_intermixed_args()
    SIGPROP = arguments.sigprop
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    if arguments.measured is not None:
        measure(MEASURED, Size(networks=arguments.networks), arguments.measured)
        sys.exit()
    if arguments.held_out is not None:
        measure(DATA / "held_out", Size(networks=40, batch=2, tokens=96), arguments.held_out)
        sys.exit()
    fine, rows = [], []
    every = dict.fromkeys([*FAMILIES, *sorted(file.stem for file in (MEASURED / "configs").glob("*.json"))])
    for family in arguments.families or every:
        with tempfile.TemporaryDirectory() as folder:
            fine.append(check(family, pathlib.Path(folder), rows))
    with tempfile.TemporaryDirectory() as folder:
        fine.append(broken_gpt2(folder))
    if arguments.stds:
        arguments.stds.write_text("| model | parameter | of it | n | std planned | measured | farthest |\n"
                                  "|---|---|---|---|---|---|---|\n" + "".join(rows))
    print(f"{sum(fine)} of {len(fine)} fine")
    sys.exit(not all(fine))
