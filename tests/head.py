"""The loss and the gradient norm of the first step beside language models of transformers, at random initialisation.

    cargo build --release
    python tests/head.py [target/release/sigprop] [model …]

Needs torch and transformers; no weights are downloaded. Every network is drawn by the library itself and runs without
dropout. Tokens are drawn as `predict --uniform` and `--zipf` draw them; labels are the tokens themselves, which the
library shifts by one, so that SEQ_LEN + 1 of them give SEQ_LEN predictions and the last one neither loss nor gradient.
The loss is the model's own; the norm is what clip_grad_norm_ meets, for one sequence as its root mean square. Both are
to be within |z| < 4 of what is predicted, or the norm within what is known to be neglected: 1 % (terms of order 1/width²,
gradients of norm biases). The last column is the norm for SEQUENCES sequences over that for one.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

SEQ_LEN = 32
NETWORKS = 64
SEQUENCES = 4
VOCABULARY = 1000
NEGLECTED = 0.01

WIDTH = 128
GPT = dict(n_embd=WIDTH, n_layer=4, n_head=4, vocab_size=VOCABULARY, n_positions=64)
OPT = dict(hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=4, ffn_dim=4 * WIDTH, vocab_size=VOCABULARY,
           max_position_embeddings=64, word_embed_proj_dim=WIDTH, pad_token_id=VOCABULARY - 1)
PLAIN = dict(hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=4, intermediate_size=4 * WIDTH,
             vocab_size=VOCABULARY, max_position_embeddings=64, pad_token_id=None)

MODELS = {
    "llama": ("llama", PLAIN),
    "llama, tied": ("llama", dict(PLAIN, tie_word_embeddings=True)),
    "llama, std 0.08": ("llama", dict(PLAIN, initializer_range=0.08)),
    "llama, tied, std 0.08": ("llama", dict(PLAIN, initializer_range=0.08, tie_word_embeddings=True)),
    "gpt2": ("gpt2", GPT),
    "gpt2, untied": ("gpt2", dict(GPT, tie_word_embeddings=False)),
    "gptj": ("gptj", dict(GPT, rotary_dim=8)),
    "gpt_neox": ("gpt_neox", PLAIN),
    "opt": ("opt", OPT),
    "opt, post-norm": ("opt", dict(OPT, do_layer_norm_before=False)),
    "gemma": ("gemma", dict(PLAIN, num_key_value_heads=4, head_dim=32)),
    "qwen3": ("qwen3", dict(PLAIN, num_key_value_heads=2, head_dim=32)),
    "bloom": ("bloom", dict(hidden_size=WIDTH, n_layer=4, n_head=4, vocab_size=VOCABULARY)),
}


def predicted(config_file, law):
    """Loss and norm, of sequences drawn by `law`."""
    ran = subprocess.run([SIGPROP, "predict", config_file, "--head", "--json", f"--{law}", "--seq-len", str(SEQ_LEN),
                          "--batch", "16"], capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout)["loss"]


def sampled(config, law):
    """Losses and squared norms, a row per network: means over sequences alone, and the norm of all together."""
    ranks = torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    probabilities = {"uniform": torch.ones_like(ranks), "zipf": 1 / ranks}[law]
    rows = []
    for seed in range(NETWORKS):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        tokens = torch.multinomial(probabilities, SEQUENCES * (SEQ_LEN + 1), replacement=True)
        tokens = tokens.view(SEQUENCES, SEQ_LEN + 1)
        alone = [first_step(model, sequence[None]) for sequence in tokens]
        losses, squares = zip(*alone)
        rows.append([sum(losses) / SEQUENCES, sum(squares) / SEQUENCES, first_step(model, tokens)[1]])
    return torch.tensor(rows, dtype=torch.float64)


def first_step(model, tokens):
    model.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item() ** 2


def check(name):
    model_type, values = MODELS[name]
    config = AutoConfig.for_model(model_type, **values)
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        for law in ("uniform", "zipf"):
            told = predicted(pathlib.Path(folder) / "config.json", law)
            rows = sampled(config, law)
            loss, square, together = rows.mean(0).tolist()
            errors = (rows.std(0) / NETWORKS ** 0.5).tolist()
            norm, norm_error = square ** 0.5, errors[1] / (2 * square ** 0.5)
            z = [(loss - told["cross_entropy"]) / errors[0], (norm - told["grad_norm"]) / norm_error]
            fits = abs(z[0]) < 4 and (abs(z[1]) < 4 or abs(told["grad_norm"] / norm - 1) < NEGLECTED)
            fine &= fits
            print(f"| {name}, {law}{'' if fits else ' (OFF)'} | {told['cross_entropy']:.4f} | {loss:.4f} ± "
                  f"{errors[0]:.4f} | {z[0]:+.1f} | {told['grad_norm']:.4f} | {norm:.4f} ± {norm_error:.4f} | {z[1]:+.1f} "
                  f"| {told['grad_norm'] / norm - 1:+.1%} | {together ** 0.5 / norm:.3f} |", flush=True)
    return fine


if __name__ == "__main__":
    arguments = sys.argv[1:]
    SIGPROP = arguments.pop(0) if arguments else "target/release/sigprop"
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("| model | loss predicted | measured | z | norm predicted | measured | z | off by | together |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    fine = [check(name) for name in arguments or MODELS]
    print(f"{sum(fine)} of {len(fine)} fine")
    sys.exit(not all(fine))
