"""Importers of configurations beside traced modules: both stacks of one model, with one scheme, must have equal moments.

    python python/tests/families.py [TYPE…] [--seeds 3]

Every model type gets small random configurations. A disagreement is a wrong importer or a wrong trace: sample the module
(`sigprop.torch.trace(…).observe`) to decide. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from typing import Any

import sigprop
import sigprop.torch
import torch
import transformers
from torch import Tensor

TOKENS, SEQUENCES, VOCABULARY = 14, 2, 128
# One distribution for all weights, so that only the structure decides; large enough for scores to matter.
SCHEME = "normal:0.08"
# The largest relative difference of second moments at blocks. Both predictions are of one network, up to ε of norms.
TOLERANCE = 2e-3
TYPES = (
    "gpt2 gpt_neo gptj codegen gpt_neox gpt_bigcode bloom opt mpt falcon llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 olmo olmo2 "
    "cohere glm granite lfm2 stablelm starcoder2 nemotron smollm3 mixtral llama4_text gpt_oss qwen3_moe olmoe deepseek_v3 bert roberta distilbert electra modernbert t5 bart"
).split()
NO_DROPOUT = (
    "hidden_dropout_prob attention_probs_dropout_prob resid_pdrop embd_pdrop attn_pdrop dropout attention_dropout activation_dropout "
    "hidden_dropout dropout_rate"
).split()


def sizes(kind: str, draw: random.Random) -> dict[str, Any]:
    """The sizes of a small random network, under all names that types have for them."""
    heads, blocks = draw.choice([2, 4]), draw.choice([2, 3])
    width = 16 * heads * draw.choice([1, 2])
    inner, head = draw.choice([2, 3]) * width, width // heads
    groups = draw.choice([1, heads])
    found = {
        **dict.fromkeys(["hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim"], width),
        **dict.fromkeys(["num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"], blocks),
        **dict.fromkeys(
            ["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"], heads
        ),
        **dict.fromkeys(["num_key_value_heads", "num_kv_heads"], groups),
        **dict.fromkeys(["intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"], inner),
        **dict.fromkeys(["head_dim", "d_kv", "query_pre_attn_scalar"], head),
        **dict.fromkeys(["max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"], 64),
        **dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id"], None),
        **dict.fromkeys(NO_DROPOUT, 0.0),
        **dict.fromkeys(["num_experts", "num_local_experts"], 4),
        **dict.fromkeys(["num_experts_per_tok", "experts_per_token"], draw.choice([1, 2])),
        **dict.fromkeys(["q_lora_rank", "kv_lora_rank"], width // 2),
        **{"qk_nope_head_dim": head, "v_head_dim": head, "qk_rope_head_dim": head, "first_k_dense_replace": 1},
        **{"n_routed_experts": 4, "n_group": 1, "topk_group": 1},
        "moe_intermediate_size": inner // 2,
        "vocab_size": VOCABULARY,
        "sliding_window": 8,
        "rotary_dim": head // 2,
        "attention_types": [[["global"], blocks]],
        "decoder_start_token_id": 0,
    }
    if kind == "deepseek_v3":
        found["num_key_value_heads"] = heads
    if kind == "lfm2":
        found["full_attn_idxs"] = [1]
    if kind in ("roberta",):
        found["pad_token_id"] = 1
    return found


def moments(prediction: Any) -> list[list[float]]:
    """Second moments of signals and gradients at blocks, in the order of the stream."""
    rows = zip(prediction["site"], prediction["mean"], prediction["variance"], prediction["grad_variance"], strict=True)
    return [[mean**2 + variance, gradient] for site, mean, variance, gradient in rows if str(site).rpartition(".")[2].isdigit()]


def difference(kind: str, seed: int) -> float:
    """The largest relative difference between both stacks of a random network."""
    family = transformers.CONFIG_MAPPING[kind]
    known = set(family().to_dict()) | set(getattr(family, "attribute_map", {}))
    config = family(**{name: value for name, value in sizes(kind, random.Random(seed)).items() if name in known})
    config.use_cache = False
    torch.manual_seed(seed)
    module = transformers.AutoModel.from_config(config).eval()
    for name, parameter in module.named_parameters():
        if name.endswith("router.bias"):
            # Stacks have routers without biases.
            torch.nn.init.zeros_(parameter)
    ids = torch.randint(3, VOCABULARY, (SEQUENCES, TOKENS))
    given: dict[str, Tensor] = {"input_ids": ids}
    flags: dict[str, Any] = {}
    if config.is_encoder_decoder:
        given["decoder_input_ids"], flags["decoder_seq_len"] = ids.flip(0), TOKENS
    traced = sigprop.torch.predict(module, scheme=SCHEME, theory="mean-field", **given)
    described = sigprop.predict(config, scheme=SCHEME, theory="mean-field", seq_len=TOKENS, uniform=True, **flags)
    pairs = list(zip(moments(traced), moments(described), strict=True))
    return max(abs(one / other - 1.0) for pair in pairs for one, other in zip(*pair, strict=True) if other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", default=TYPES, help="model types of transformers")
    parser.add_argument("--seeds", type=int, default=3, help="random configurations of each")
    arguments = parser.parse_args()
    wrong = False
    for kind in arguments.types:
        for seed in range(arguments.seeds):
            try:
                found = difference(kind, seed)
            except (ValueError, TypeError) as error:
                print(f"{kind:15} seed {seed}: {str(error)[:200]}", flush=True)
                continue
            wrong |= found > TOLERANCE
            print(f"{kind:15} seed {seed}: {'DIFFERS by ' if found > TOLERANCE else ''}{found:.1e}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    sys.exit(main())
