"""Stacks of attention and ReLU blocks beside their limit of infinite width, sampled without any closed formula for a softmax.

    cargo build --release
    python tests/infinite_width.py [target/release/sigprop] [--theory THEORY] [--draws N] [case …]

Needs torch. At infinite width the scores of a head are jointly Gaussian given the kernel K of its inputs (E x_a x_b of
single entries of tokens a and b),

    Cov(s_ab, s_cd) = v K_ac K_bd κ((a − c) − (b − d))        κ(x): the mean cosine of x · frequency, 1 without rotation

so that matrices of scores are drawn, A = softmax(s), and with J_a = diag A_a − A_a A_aᵀ and the kernel G of the gradient at
the output averages over draws are

    outputs  A K Aᵀ            gradients at values   Aᵀ G A
    queries  v G_ac tr J_a K J_c K                keys  v Σ_ac G_ac K_ac J_a K J_c          (K times κ where rotated)

Everything else, residual sums, norms, ReLU layers, is exact. Token ids, where there are some, are drawn anew with every
matrix; of stacks they are given. Networks predicted with --theory finite-width are widened 2¹⁷ times. A number fits if it is
within 4 standard errors or the tolerance of its case: relative for second moments, absolute for correlations.
"""

import argparse
import csv
import io
import json
import math
import subprocess
import sys

import torch

LARGEST_Z = 4
BATCHES, DRAWS = 20, 100
WIDER, MORE_HEADS = 2 ** 17, 2 ** 8
FREQUENCIES = [10_000 ** (-i / 8) for i in range(8)]
WIDTH, HEADS = 64, 4
ZIPF = {"power_law": {"vocab_size": 1000, "exponent": 1.0}}


class Case:
    """Blocks on Gaussian tokens of a correlation, or on ids that are drawn by Zipf's law, or given."""

    def __init__(self, length, score, correlation=0.0, ids=None, is_causal=True, is_rotary=False, blocks=0, own=0.0,
                 tolerance=0.01):
        self.length, self.score, self.correlation, self.ids, self.own = length, score, correlation, ids, own
        self.is_causal, self.is_rotary, self.blocks, self.tolerance = is_causal, is_rotary, blocks, tolerance

    def drawn_ids(self, draws, generator):
        if self.ids == "zipf":
            law = 1 / torch.arange(1, 1001, dtype=torch.float64)
            return torch.multinomial(law, draws * self.length, True, generator=generator).view(draws, self.length)
        return torch.tensor(self.ids) if self.ids else None

    def kernel(self, draws, generator):
        """Of the embeddings: variance 1, `own` of it from learned positions."""
        ids = self.drawn_ids(draws, generator)
        same = self.correlation if ids is None else (ids[..., :, None] == ids[..., None, :]).float()
        one = torch.eye(self.length)
        return (1 - self.own) * torch.maximum(one, torch.as_tensor(same)) + self.own * one


GIVEN = [3, 0, 7, 0, 1, 2, 9, 0, 4, 1, 0, 5, 12, 3, 0, 8, 1, 0, 2, 30, 0, 6, 1, 11]
CASES = {
    **{f"causal, score variance {score}, correlation {r}": Case(48, score, r)
       for score in (0.3, 1, 2.7) for r in (0, 0.3, 0.6)},
    **{f"rotary, score variance {score}, correlation {r}": Case(32, score, r, is_rotary=True)
       for score in (1, 2.7) for r in (0, 0.3)},
    "given ids": Case(24, 0.1, ids=GIVEN, own=0.5),
    "Zipf, all see all": Case(48, 0.1, ids="zipf", is_causal=False, own=0.5),
    "Zipf, causal": Case(48, 0.1, ids="zipf", own=0.5),
    # Ids alone: how often they happen to repeat moves sharp rows by more than the mean over sequences.
    **{f"Zipf {kind}, score variance {score}": Case(48, score, ids="zipf", is_causal=kind == "causal", tolerance=0.02)
       for kind in ("all see all", "causal") for score in (0.3, 1, 2.7)},
    "Zipf rotary, score variance 1": Case(32, 1, ids="zipf", is_rotary=True, tolerance=0.02),
    "three causal blocks": Case(32, 1, 0.3, blocks=3),
    "three rotary blocks": Case(32, 2.7, 0, is_rotary=True, blocks=3, tolerance=0.03),
}


def transposed(x):
    return x.transpose(-1, -2)


def phases(case):
    """cos and sin of every frequency times distances of positions."""
    at = torch.arange(case.length, dtype=torch.float64)
    distances = at[:, None] - at
    return [(torch.cos(f * distances).float(), torch.sin(f * distances).float()) for f in FREQUENCIES]


def weights(case, kernel, draws, generator):
    """Attention weights of this kernel of inputs, drawn."""
    size, unitary = torch.linalg.eigh(kernel.double())
    root = (unitary * size.clamp(min=0).sqrt()[..., None, :]).float()
    drawn = lambda: root @ torch.randn(draws, case.length, case.length, generator=generator) @ transposed(root)
    scores = drawn() if not case.is_rotary else sum(
        cosine * drawn() + sine * drawn() for cosine, sine in phases(case)) / math.sqrt(len(FREQUENCIES))
    hidden = torch.ones(case.length, case.length).triu(1).bool() & torch.tensor(case.is_causal)
    return torch.softmax((math.sqrt(case.score) * scores).masked_fill(hidden, -math.inf), -1)


def backward(case, attention, kernel, gradient):
    """Kernels of the gradients at queries, keys and values, for that at the output."""
    seen = attention @ kernel
    output = seen @ transposed(attention)

    def at_queries(key):
        rows, columns = attention @ key, attention @ transposed(key)
        return (attention @ (kernel * key) @ transposed(attention) - (seen * rows) @ transposed(attention)
                - attention @ transposed(seen * columns) + output * (rows @ transposed(attention)))

    def at_keys(query):
        rows, columns = query @ attention, transposed(query) @ attention
        return (kernel * (transposed(attention) @ rows) - transposed(attention) @ (seen * rows)
                - transposed(seen * columns) @ attention + transposed(attention) @ (query * output) @ attention)

    both = gradient * kernel
    if case.is_rotary:
        parts = [(phase, phase / len(FREQUENCIES)) for pair in phases(case) for phase in pair]
        query = gradient * sum(share * at_queries(kernel * phase) for phase, share in parts)
        key = sum(share * at_keys(both * phase) for phase, share in parts)
    else:
        query, key = gradient * at_queries(kernel), at_keys(both)
    return case.score * query, case.score * key, transposed(attention) @ gradient @ attention


def summary(kernel, name):
    """Mean square, and the mean product of two tokens."""
    square = kernel.diagonal(dim1=-2, dim2=-1).mean(-1)
    length = kernel.shape[-1]
    return {name: square.mean(), f"{name} pairs": ((kernel.sum((-1, -2)) / length - square) / (length - 1)).mean()}


def normed(kernel, stream):
    scale = stream.diagonal(dim1=-2, dim2=-1).rsqrt()
    return kernel * scale[..., :, None] * scale[..., None, :]


def relu(kernel):
    """Kernels of √2 relu(x) and of its derivative, for correlations."""
    cosine = kernel.clamp(-1, 1)
    derivative = 1 - torch.acos(cosine) / math.pi
    return (1 - cosine ** 2).sqrt() / math.pi + cosine * derivative, derivative


def sample(case, draws, generator):
    """Moments by name, means of one batch."""
    stream = case.kernel(draws, generator)
    gradient = 0.8 * torch.eye(case.length) + 0.2
    if not case.blocks:
        attention = weights(case, stream, draws, generator)
        query, key, value = backward(case, attention, stream, gradient)
        moments = {**summary(attention @ stream @ transposed(attention), "heads"),
                   **summary(query + key + value, "embeddings gradient")}
        for name, part in dict(query=query, key=key, value=value).items():
            moments[f"{name}.weight"] = (part * stream).sum((-1, -2)).mean()
            moments |= summary(part, f"heads.{name} gradient")
        return moments
    mean = lambda kernel: kernel.mean(0)
    moments, tape = {}, []
    for block in range(case.blocks):
        inputs = normed(stream, stream)
        attention = weights(case, inputs, draws, generator)
        middle = stream + mean(attention @ inputs @ transposed(attention))
        hidden, derivative = relu(normed(middle, middle))
        tape.append((stream, inputs, middle, derivative))
        stream = middle + hidden
        moments |= summary(stream, f"blocks.{block}")
    for block in reversed(range(case.blocks)):
        before, inputs, middle, derivative = tape[block]
        moments |= summary(gradient, f"blocks.{block} gradient")
        gradient = gradient + normed(derivative * gradient, middle)
        attention = weights(case, inputs, draws, generator)
        parts = [mean(part) for part in backward(case, attention, inputs, gradient)]
        for name, part in zip(("query", "key", "value"), parts):
            moments[f"blocks.{block}.heads.{name}.weight"] = (part * inputs).sum()
        gradient = gradient + normed(sum(parts), before)
    return moments | summary(gradient, "embeddings gradient")


def sampled(case, draws, seed=0):
    """Means and standard errors by name, correlations in place of mean products."""
    generator = torch.Generator().manual_seed(seed)
    rows = [sample(case, draws, generator) for _ in range(BATCHES)]
    table = torch.tensor([[float(row[name]) for name in rows[0]] for row in rows], dtype=torch.float64)

    def quantities(means):
        values = dict(zip(rows[0], means.tolist()))
        pair = lambda name: values[name] / values[name.removesuffix(" pairs")]
        return torch.tensor([pair(name) if name.endswith(" pairs") else value for name, value in values.items()])
    without = torch.stack([quantities((table.sum(0) - row) / (BATCHES - 1)) for row in table])
    errors = ((BATCHES - 1) * without.var(0, correction=0)).sqrt()
    names = [name.replace(" pairs", " correlation") for name in rows[0]]
    return {name: pair for name, *pair in zip(names, quantities(table.mean(0)).tolist(), errors.tolist())}


def named(name, op):
    return {"name": name, "op": op}


def linear(name, fan_in, fan_out, gain=1.0, wider=1):
    weight = {"name": f"{name}.weight", "init": {"normal": {"std": math.sqrt(gain / (fan_in * wider))}}}
    return {"apply": {"linear": {"fan_in": fan_in * wider, "fan_out": fan_out * wider, "weight": weight}}}


def network(case, wider=1):
    """The stack as a document, `wider` times as wide."""
    more = min(wider, MORE_HEADS)
    d_head = WIDTH // HEADS * (wider // more)
    frequencies = [f for f in FREQUENCIES for _ in range(wider // more)]
    rotary = {"apply": {"rotary": {"d_head": d_head, "frequencies": frequencies}}}

    def heads(prefix):
        heads_of = f"{prefix}heads." if prefix else ""
        part = lambda name: [named(name, linear(heads_of + name, WIDTH, WIDTH, wider=wider))]
        rotated = lambda name: part(name) + ([named(f"{name}_rotary", rotary)] if case.is_rotary else [])
        attention = {"n_heads": HEADS * more, "n_kv_heads": HEADS * more, "d_head": d_head, "d_value": d_head,
                     "scale": math.sqrt(case.score / d_head), "mask": {"after": 0} if case.is_causal else {},
                     "dropout_rate": 0.0, "query": rotated("query"), "key": rotated("key"), "value": part("value")}
        return named("heads", {"attention": attention})

    def residual(name, body):
        norm = named("norm", {"apply": {"norm": {"kind": "rmsnorm", "eps": 1e-12, "gain": 1.0, "groups": 1}}})
        branch = lambda body: {"scale": 1.0, "drop_rate": 0.0, "body": body}
        return named(name, {"sum": {"branches": [branch([]), branch([norm, *body])]}})

    def block(index):
        prefix = f"blocks.{index}."
        output = named("output", linear(f"{prefix}output", WIDTH, WIDTH, wider=wider))
        ffn = [named("in", linear(f"{prefix}in", WIDTH, 4 * WIDTH, wider=wider)),
               named("activation", {"apply": {"activation": "relu"}}),
               named("out", linear(f"{prefix}out", 4 * WIDTH, WIDTH, gain=2.0, wider=wider))]
        return named(prefix[:-1], {"chain": [residual("attention", [heads(prefix), output]), residual("ffn", ffn)]})

    source = {"gaussian": {"width": WIDTH * wider, "variance": 1.0, "correlation": case.correlation}}
    if case.ids:
        ids = ZIPF if case.ids == "zipf" else {"given": {"vocab_size": 1000, "sequences": [case.ids]}}
        table = lambda name, share: {"table": {"name": name, "init": {"normal": {"std": math.sqrt(share)}}}}
        terms = [{"token": table("token", 1 - case.own)}, {"learned_position": table("position", case.own)}]
        source = {"embedding": {"width": WIDTH * wider, "ids": ids, "terms": terms if case.own else terms[:1]}}
    body = [block(index) for index in range(case.blocks)] if case.blocks else [heads("")]
    stream = {"name": "encoder", "seq_len": case.length, "source": source,
              "body": [named("embeddings", {"chain": []}), *body]}
    return {"schema_version": 1, "name": "network", "streams": [stream], "gradient": {"stream": 0, "correlation": 0.2}}


def predicted(case, program, theory):
    """Numbers by the names of `sampled`."""
    def rows(*extra):
        options = ["--theory", theory, "--sites", "all", "--grading", "all", "--batch", "64", "--format", "csv"]
        ran = subprocess.run([program, "predict", "--stack", "-", *options, *extra], text=True, capture_output=True,
                             input=json.dumps(network(case, WIDER if theory == "finite-width" else 1)))
        if ran.returncode:
            sys.exit(ran.stderr)
        return list(csv.DictReader(io.StringIO(ran.stdout)))
    numbers = {row["tensor"]: float(row["weight_grad_second_moment"]) for row in rows("--weights")}
    for row in rows():
        cells = {"": "variance", " correlation": "token_correlation", " gradient": "grad_variance",
                 " gradient correlation": "grad_token_correlation"}
        numbers |= {row["site"] + suffix: float(row[cell]) for suffix, cell in cells.items() if row[cell]}
    return numbers


def check(name, case, options):
    told = predicted(case, options.program, options.theory)
    fits = True
    for quantity, (value, error) in sampled(case, options.draws).items():
        difference = told[quantity] - value
        allowed = case.tolerance * (1 if quantity.endswith("correlation") else abs(value))
        good = abs(difference) < max(allowed, LARGEST_Z * error)
        fits &= good
        relative = difference if quantity.endswith("correlation") else difference / value
        shown = f"{relative:+.4f}" if quantity.endswith("correlation") else f"{relative:+.2%}"
        print(f"| {name} | {quantity} | {value:.5g} ± {error:.2g} | {told[quantity]:.5g} "
              f"| {shown}{'' if good else ' OFF'} |", flush=True)
    return fits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="target/release/sigprop")
    parser.add_argument("cases", nargs="*", help="beginnings of names; all without")
    parser.add_argument("--theory", default="mean-field", choices=["mean-field", "finite-width"])
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each of 20 batches")
    OPTIONS = parser.parse_args()
    torch.set_num_threads(1)
    print("| case | quantity | sampled | predicted | off by |\n|---|---|---|---|---|", flush=True)
    chosen = {name: case for name, case in CASES.items() if not OPTIONS.cases or name.startswith(tuple(OPTIONS.cases))}
    fine = [check(name, case, OPTIONS) for name, case in chosen.items()]
    print(f"{sum(fine)} of {len(fine)} cases fine")
    sys.exit(not fine or not all(fine))
