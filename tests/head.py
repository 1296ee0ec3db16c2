"""The loss and the gradient norm of the first step beside models of transformers, at random initialisation.

    cargo build --release
    python tests/head.py [target/release/sigprop] [model …]

Needs torch and transformers; no weights are downloaded. Every network is drawn by the library itself and runs without
dropout. Tokens are drawn as `predict --uniform` and `--zipf` draw them, the likeliest id last, because libraries
reserve the first ones. Decoders predict the next token; masked language models a target of its own at every position,
nothing being masked. The loss is the model's own; the norm is that of clip_grad_norm_ for one sequence, as its root
mean square. The loss is to be within |z| < 4 of the prediction (some hundred comparisons), the norm within 5 %. The
last column is the norm for SEQUENCES sequences over that for one.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig

from library import with_head

SEQ_LEN = 32
NETWORKS = 64
SEQUENCES = 4
VOCABULARY = 1000
LARGEST_Z = 4
TOLERANCE = 0.05

WIDTH = 128
PLAIN = dict(hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=4, intermediate_size=4 * WIDTH,
             vocab_size=VOCABULARY, max_position_embeddings=64, pad_token_id=None, bos_token_id=0, eos_token_id=0)
GROUPED = dict(PLAIN, num_key_value_heads=2, head_dim=32)
GPT = dict(n_embd=WIDTH, n_layer=4, n_head=4, vocab_size=VOCABULARY, n_positions=64)
OPT = dict(hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=4, ffn_dim=4 * WIDTH, vocab_size=VOCABULARY,
           max_position_embeddings=64, word_embed_proj_dim=WIDTH, pad_token_id=0)
BERT = dict(PLAIN, pad_token_id=0)
T5 = dict(d_model=WIDTH, d_kv=32, d_ff=4 * WIDTH, num_layers=2, num_decoder_layers=2, num_heads=4,
          vocab_size=VOCABULARY, pad_token_id=0)
BART = dict(d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=4 * WIDTH, decoder_ffn_dim=4 * WIDTH, vocab_size=VOCABULARY, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, forced_eos_token_id=None)
WHISPER = dict({key: value for key, value in BART.items() if key != "max_position_embeddings"}, num_mel_bins=16,
               max_source_positions=SEQ_LEN, max_target_positions=64)
LATENT = dict(PLAIN, q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32,
              n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=WIDTH, n_group=1,
              topk_group=1, first_k_dense_replace=1)
MIXTURE = dict(GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=WIDTH)
SIGMOID = dict(GROUPED, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=WIDTH,
               first_k_dense_replace=1, n_group=1, topk_group=1)

MODELS = {
    "gpt2": ("gpt2", GPT),
    "gpt2, untied": ("gpt2", dict(GPT, tie_word_embeddings=False)),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_neo": ("gpt_neo", dict(hidden_size=WIDTH, num_layers=4, num_heads=4, vocab_size=VOCABULARY, window_size=64,
                                attention_types=[[["global", "local"], 2]], max_position_embeddings=64)),
    "opt": ("opt", OPT),
    "opt, post-norm": ("opt", dict(OPT, do_layer_norm_before=False)),
    "opt, narrow embeddings": ("opt", dict(OPT, word_embed_proj_dim=64)),
    "bloom": ("bloom", dict(hidden_size=WIDTH, n_layer=4, n_head=4, vocab_size=VOCABULARY)),
    "mpt": ("mpt", dict(d_model=WIDTH, n_layers=4, n_heads=4, vocab_size=VOCABULARY, max_seq_len=64)),
    "gptj": ("gptj", dict(GPT, rotary_dim=8)),
    "codegen": ("codegen", dict(GPT, rotary_dim=8)),
    "gpt_neox": ("gpt_neox", PLAIN),
    "falcon": ("falcon", PLAIN),
    "phi": ("phi", PLAIN),
    "cohere": ("cohere", PLAIN),
    "cohere, logits of std 1": ("cohere", dict(PLAIN, logit_scale=4.0)),
    "cohere2": ("cohere2", dict(PLAIN, sliding_window=64, layer_types=["sliding_attention"] * 4)),
    "stablelm": ("stablelm", dict(PLAIN, num_key_value_heads=4)),
    "llama": ("llama", PLAIN),
    "llama, tied": ("llama", dict(PLAIN, tie_word_embeddings=True)),
    "llama, std 0.08": ("llama", dict(PLAIN, initializer_range=0.08)),
    "llama, tied, std 0.08": ("llama", dict(PLAIN, initializer_range=0.08, tie_word_embeddings=True)),
    "mistral": ("mistral", GROUPED),
    "smollm3": ("smollm3", dict(GROUPED, no_rope_layers=[1] * 4)),
    "ernie4_5": ("ernie4_5", GROUPED),
    "seed_oss": ("seed_oss", GROUPED),
    "mixtral": ("mixtral", dict(GROUPED, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": ("qwen3_moe", MIXTURE),
    "qwen2": ("qwen2", GROUPED),
    "qwen3": ("qwen3", GROUPED),
    "phi3": ("phi3", GROUPED),
    "starcoder2": ("starcoder2", GROUPED),
    "nemotron": ("nemotron", GROUPED),
    "arcee": ("arcee", GROUPED),
    "granite": ("granite", dict(GROUPED, logits_scaling=0.1, embedding_multiplier=12.0, attention_multiplier=0.2,
                                residual_multiplier=0.5)),
    "olmo": ("olmo", PLAIN),
    "olmo2": ("olmo2", PLAIN),
    "olmo3": ("olmo3", PLAIN),
    "gemma": ("gemma", dict(GROUPED, num_key_value_heads=4)),
    "gemma2": ("gemma2", GROUPED),
    "gemma2, capped": ("gemma2", dict(GROUPED, final_logit_softcapping=2.0)),
    "gemma2, capped, untied": ("gemma2", dict(GROUPED, final_logit_softcapping=2.0, initializer_range=0.2,
                                              tie_word_embeddings=False)),
    "gemma3_text": ("gemma3_text", GROUPED),
    "glm": ("glm", GROUPED),
    "glm4": ("glm4", GROUPED),
    "ministral3": ("ministral3", GROUPED),
    "exaone4": ("exaone4", dict(GROUPED, sliding_window=16, sliding_window_pattern=2)),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", GROUPED),
    "nanochat": ("nanochat", GROUPED),
    "apertus": ("apertus", dict(GROUPED, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    "openai-gpt": ("openai-gpt", GPT),
    "biogpt": ("biogpt", dict(PLAIN, pad_token_id=0)),
    "xglm": ("xglm", dict(d_model=WIDTH, num_layers=4, attention_heads=4, ffn_dim=4 * WIDTH, vocab_size=VOCABULARY,
                          max_position_embeddings=64, pad_token_id=0)),
    "qwen2_moe": ("qwen2_moe", dict(MIXTURE, shared_expert_intermediate_size=2 * WIDTH)),
    "olmoe": ("olmoe", MIXTURE),
    "granitemoe": ("granitemoe", dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=6.0,
                                      attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=0.1)),
    "minimax_m2": ("minimax_m2", dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, rotary_dim=16)),
    "glm4_moe": ("glm4_moe", SIGMOID),
    "dots1": ("dots1", SIGMOID),
    "ernie4_5_moe": ("ernie4_5_moe", dict(GROUPED, moe_num_experts=4, moe_k=2, moe_intermediate_size=WIDTH,
                                          moe_num_shared_experts=1, moe_layer_start_index=1)),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(GROUPED, num_experts=4, moe_topk=2)),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "bert": ("bert", BERT),
    "bert, untied": ("bert", dict(BERT, tie_word_embeddings=False)),
    "roberta": ("roberta", BERT),
    "xlm-roberta": ("xlm-roberta", BERT),
    "camembert": ("camembert", BERT),
    "data2vec-text": ("data2vec-text", BERT),
    "megatron-bert": ("megatron-bert", BERT),
    "roberta-prelayernorm": ("roberta-prelayernorm", BERT),
    "roformer": ("roformer", dict(BERT, embedding_size=64)),
    "mpnet": ("mpnet", BERT),
    "nomic_bert": ("nomic_bert", BERT),
    "gte": ("gte", BERT),
    "eurobert": ("eurobert", dict(BERT, num_key_value_heads=2)),
    "esm": ("esm", dict(BERT, position_embedding_type="rotary", token_dropout=True, mask_token_id=0)),
    "electra": ("electra", dict(BERT, embedding_size=WIDTH)),
    "distilbert": ("distilbert", dict(dim=WIDTH, n_layers=4, n_heads=4, hidden_dim=4 * WIDTH, vocab_size=VOCABULARY,
                                      max_position_embeddings=64)),
    "modernbert": ("modernbert", dict(BERT, cls_token_id=0, sep_token_id=0)),
    "t5": ("t5", T5),
    "t5, untied": ("t5", dict(T5, tie_word_embeddings=False)),
    "t5, gated": ("t5", dict(T5, feed_forward_proj="gated-gelu")),
    "mt5": ("mt5", T5),
    "umt5": ("umt5", T5),
    "bart": ("bart", BART),
    "mbart": ("mbart", BART),
    "m2m_100": ("m2m_100", BART),
    "marian": ("marian", dict(BART, scale_embedding=True)),
    "pegasus": ("pegasus", dict(BART, scale_embedding=True)),
    "plbart": ("plbart", BART),
    "blenderbot": ("blenderbot", BART),
    "whisper": ("whisper", WHISPER),
}


def predicted(config_file, law, kind):
    """Loss and norm, of sequences drawn by `law`."""
    lengths = ["--seq-len", SEQ_LEN] + (["--decoder-seq-len", SEQ_LEN] if kind == "seq2seq" else [])
    # What a decoder reads beside frames is Zipf's law by default.
    laws = [] if law == "zipf" else [f"--{law}"]
    ran = subprocess.run([SIGPROP, "predict", config_file, "--head", "--json", *laws, *map(str, lengths),
                          "--batch", "16"], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout)["loss"]


def sampled(config, law):
    """Losses and squared norms, a row per network: means over sequences alone, and the norm of all together."""
    ranks = torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    probabilities = {"uniform": torch.ones_like(ranks), "zipf": 1 / ranks}[law]
    def drawn(length):
        tokens = torch.multinomial(probabilities, SEQUENCES * length, replacement=True)
        return (VOCABULARY - 1 - tokens).view(SEQUENCES, length)
    rows = []
    for seed in range(NETWORKS):
        torch.manual_seed(seed)
        model, kind = with_head(config)
        tokens = drawn(SEQ_LEN + 1)
        if kind == "causal":
            # The library shifts labels by one: SEQ_LEN predictions, and the last token has neither loss nor gradient.
            batch = dict(input_ids=tokens, labels=tokens)
        elif kind == "masked":
            batch = dict(input_ids=tokens[:, 1:], labels=drawn(SEQ_LEN))
        elif config.model_type == "whisper":
            frames = torch.randn(SEQUENCES, config.num_mel_bins, 2 * SEQ_LEN)
            batch = dict(input_features=frames, decoder_input_ids=tokens[:, :-1], labels=tokens[:, 1:])
        else:
            batch = dict(input_ids=drawn(SEQ_LEN), decoder_input_ids=tokens[:, :-1], labels=tokens[:, 1:])
        alone = [first_step(model, {key: value[i:i + 1] for key, value in batch.items()}) for i in range(SEQUENCES)]
        losses, squares = zip(*alone)
        rows.append([sum(losses) / SEQUENCES, sum(squares) / SEQUENCES, first_step(model, batch)[1]])
    return torch.tensor(rows, dtype=torch.float64), kind


def first_step(model, batch):
    model.zero_grad()
    loss = model(**{key: value.contiguous() for key, value in batch.items()}).loss
    loss.backward()
    return loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item() ** 2


def check(name, law):
    model_type, values = MODELS[name]
    config = AutoConfig.for_model(model_type, **values)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        path = pathlib.Path(folder) / "config.json"
        if values.get("tie_word_embeddings") is False:
            # The library does not keep it of T5.
            path.write_text(json.dumps(dict(json.loads(path.read_text()), tie_word_embeddings=False)))
        rows, kind = sampled(config, law)
        told = predicted(path, law, kind)
    loss, square, together = rows.mean(0).tolist()
    errors = (rows.std(0) / NETWORKS ** 0.5).tolist()
    norm, norm_error = square ** 0.5, errors[1] / (2 * square ** 0.5)
    z = [(loss - told["cross_entropy"]) / errors[0], (norm - told["grad_norm"]) / norm_error]
    fits = abs(z[0]) < LARGEST_Z and abs(told["grad_norm"] / norm - 1) < TOLERANCE
    print(f"| {name}, {law}{'' if fits else ' (OFF)'} | {told['cross_entropy']:.4f} | {loss:.4f} ± "
          f"{errors[0]:.4f} | {z[0]:+.1f} | {told['grad_norm']:.4f} | {norm:.4f} ± {norm_error:.4f} | {z[1]:+.1f} "
          f"| {told['grad_norm'] / norm - 1:+.1%} | {together ** 0.5 / norm:.3f} |", flush=True)
    return fits


if __name__ == "__main__":
    arguments = sys.argv[1:]
    SIGPROP = arguments.pop(0) if arguments else "target/release/sigprop"
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    names = [name for name in MODELS if not arguments or {name, name.split(",")[0]} & set(arguments)]
    print("| model | loss predicted | measured | z | norm predicted | measured | z | off by | together |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    laws = {name: ("zipf",) if name == "whisper" else ("uniform", "zipf") for name in names}
    fine = [check(name, law) for name in names for law in laws[name]]
    print(f"{sum(fine)} of {len(fine)} fine")
    sys.exit(not fine or not all(fine))
