"""The commands as functions. Written from the command's own flags by a test: change those, not this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ._call import Observed, Path, Tokens, call
from ._model import Model
from ._results import (
    Comparison,
    Inspection,
    Measurement,
    PhaseMap,
    Prediction,
    Recommendation,
    Validation,
)

# Flags without a value.
_SWITCHES = frozenset(
    {
        "causal",
        "train",
        "uniform",
        "weights",
        "zipf",
    }
)


def predict(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    stack: Path | None = None,
    dump_stack: Path | None = None,
    head: Literal["own", "tied", "untied"] | None = None,
    loss: Literal["cross-entropy"] | None = None,
    first_update: Literal["sgd", "adam"] | None = None,
    lr: float | None = None,
    export: Path | Sequence[Path] | None = None,
    names: Path | None = None,
    sites: Literal["stream", "all"] | None = None,
    weights: bool = False,
    plot: Path | None = None,
    report: Path | None = None,
    batch: int | None = None,
    seed: int | None = None,
    theory: Literal["finite-width", "mean-field"] | None = None,
    grading: Literal["coarse", "fine", "finest", "all"] | None = None,
) -> Prediction:
    """Predict the size of signals and gradients at every block, and what it means.

    Columns, averaged over initialisations, masks, inputs, positions and features:
      mean                    of one entry
      variance                of one entry: E x² − mean²
      token_correlation       (E x_a x_b − mean²)/variance over pairs of tokens a ≠ b
      grad_variance           E g², g the gradient with respect to this site for independent N(0, 1)
                              gradients at the end (--grad-correlation correlates them), or with --head
                              that of the mean loss over the tokens of a sequence
      grad_token_correlation  E g_a g_b/E g² over pairs of tokens
      ln_…                    natural logarithm, finite where the number leaves f64
      …_first, …_last         at the first and the last position
      ln_…_std (±)            standard deviation over networks of the ln of one network's own value

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` is what that release of transformers draws for a config [default:
            the model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        stack: Read the whole network from a dumped stack; `-` is standard input
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        head: Add the output head, so that gradients are those of the mean loss over the tokens of a
            sequence: the model's own, with its distribution, scale, soft cap and the map and norm
            before it; the same tied to the token embedding, or untied. The head of --stack is the
            key "head" of the file
        loss: What is minimised, the targets having the law of the input
        first_update: Tell the first step of every tensor from one sequence, how far it moves the
            output of its linear map on that sequence (not of keys, nor by adam near activations),
            and how much lower the loss gets to first order: a second table; in rows instead of the
            sites
        lr: Learning rate, which schemes like mup multiply by a factor per tensor; every scheme
            takes layer-decay=D
        export: Also write what every parameter starts with: *.json is a plan by name pattern, *.py
            a PyTorch function that draws it, *.safetensors the drawn parameters (--seed). Names are
            those of transformers for its configs
        names: What your module calls its parameters, for --export: lines `name = parameter`, as
            --names of `sigprop inspect`
        sites: Which sites to tell
        weights: Tell the weights and their gradients: a second table; in rows instead of the sites
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows without any network: verdict, curves to be
            zoomed and read, tables to be filtered and sorted, formulas with their sources, and
            command, stack and plan to be saved as JSON
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Same seed, same exported parameters
        theory: Which terms are followed
        grading: How many positions are followed, where they differ [default: so many that more of
            them change little; -v tells]

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("predict", Prediction, locals(), _SWITCHES)


def validate(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    stack: Path | None = None,
    dump_stack: Path | None = None,
    replicates: int | None = None,
    batch: int | None = None,
    seed: int | None = None,
    threads: int | Literal["all"] | None = None,
    memory: float | str | None = None,
    sampler: Literal["direct", "conditional"] | None = None,
    target_error: float | str | None = None,
    max_replicates: int | None = None,
    observed: Observed | None = None,
    resume: Path | None = None,
    plot: Path | None = None,
    report: Path | None = None,
    sites: Literal["stream", "all"] | None = None,
    weights: bool = False,
    progress: bool = False,
) -> Validation:
    """Sample the network and compare what flows through it with the prediction.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` is what that release of transformers draws for a config [default:
            the model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        stack: Read the whole network from a dumped stack; `-` is standard input
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        replicates: Networks to sample
        batch: Sequences per network
        seed: Same seed, same numbers, at any number of threads
        threads: Threads: a number, or `all`
        memory: Memory the sampling may take, as 4GiB or 500MiB; beyond it blocks are computed twice
            [default: three quarters of what is free, 4GiB where that is not known]
        sampler: How to sample linear maps
        target_error: Go on until the standard errors of variances (relative) and token correlations
            are below, as `0.01` or `1%`
        max_replicates: Networks to sample at most for --target-error [default: 100000], and for a
            case of a suite [default: as many as it says]
        observed: Compare with measurements of your own instead of sampling: CSV with the columns
            site,quantity,observed,std_error, as --format csv writes them. With --suite, what
            earlier runs wrote: a folder of one or of several, as often as there are some
        resume: As --output, but go on with the replicates (of a suite: the cases) of a run with the
            same arguments that was ended early; the report is the same as if it had not been
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows without any network: verdict, curves to be
            zoomed and read, tables to be filtered and sorted, formulas with their sources, and
            command, stack and plan to be saved as JSON
        sites: Which sites to compare; the summary is of those on the stream
        weights: Compare the gradients of weights too
        progress: Show how far it is, with tqdm.

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("validate", Validation, locals(), _SWITCHES)


def measure(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    stack: Path | None = None,
    dump_stack: Path | None = None,
    replicates: int | None = None,
    batch: int | None = None,
    seed: int | None = None,
    threads: int | Literal["all"] | None = None,
    memory: float | str | None = None,
    sampler: Literal["direct", "conditional"] | None = None,
    target_error: float | str | None = None,
    max_replicates: int | None = None,
    observed: Observed | None = None,
    resume: Path | None = None,
    plot: Path | None = None,
    report: Path | None = None,
    sites: Literal["stream", "all"] | None = None,
    weights: bool = False,
    progress: bool = False,
) -> Measurement:
    """What sampled networks do: `validate` without the prediction.

    Sample the network and compare what flows through it with the prediction.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` is what that release of transformers draws for a config [default:
            the model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        stack: Read the whole network from a dumped stack; `-` is standard input
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        replicates: Networks to sample
        batch: Sequences per network
        seed: Same seed, same numbers, at any number of threads
        threads: Threads: a number, or `all`
        memory: Memory the sampling may take, as 4GiB or 500MiB; beyond it blocks are computed twice
            [default: three quarters of what is free, 4GiB where that is not known]
        sampler: How to sample linear maps
        target_error: Go on until the standard errors of variances (relative) and token correlations
            are below, as `0.01` or `1%`
        max_replicates: Networks to sample at most for --target-error [default: 100000], and for a
            case of a suite [default: as many as it says]
        observed: Compare with measurements of your own instead of sampling: CSV with the columns
            site,quantity,observed,std_error, as --format csv writes them. With --suite, what
            earlier runs wrote: a folder of one or of several, as often as there are some
        resume: As --output, but go on with the replicates (of a suite: the cases) of a run with the
            same arguments that was ended early; the report is the same as if it had not been
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows without any network: verdict, curves to be
            zoomed and read, tables to be filtered and sorted, formulas with their sources, and
            command, stack and plan to be saved as JSON
        sites: Which sites to compare; the summary is of those on the stream
        weights: Compare the gradients of weights too
        progress: Show how far it is, with tqdm.

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("validate", Measurement, locals(), _SWITCHES)


def compare(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    schemes: str | Sequence[str] | None = None,
    batch: int | None = None,
    seed: int | None = None,
    theory: Literal["finite-width", "mean-field"] | None = None,
    grading: Literal["coarse", "fine", "finest", "all"] | None = None,
    plot: Path | None = None,
    report: Path | None = None,
    resume: Path | None = None,
    progress: bool = False,
) -> Comparison:
    """Compare initialisation schemes on one network.

    Columns (--format csv; the table shows them under shorter names):
      forward, backward       factor on the variance of the stream, and of its gradient on the way back
      …_per_block             the same per block
      token_correlation       after the last block; 1: tokens are copies
      score_std               √(E s²) of the largest scores before a softmax
      attended_tokens         1/ΣA² of the sharpest attention weights A
      gradient_ratio          largest over smallest gradient norm of one weight matrix over the blocks
      worst_tensor            the one with the largest gradient norm; …_ratio: over the median of all tensors
      fp16_margin …           doublings or halvings of the stream until the format is left; below 0 it is
      verdict, rule           what `sigprop predict` says, and what triggered it
      caveat                  why a scheme is not meant for the network

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        schemes: Schemes with their arguments, separated by commas, as
            `gpt2,normal:0.02,dslm:k=2,alpha=1`, or `all` that need no argument [default: of every
            family one that is meant for the network]
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Same seed, same exported parameters
        theory: Which terms are followed
        grading: How many positions are followed, where they differ [default: so many that more of
            them change little; -v tells]
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows without any network: verdict, curves to be
            zoomed and read, tables to be filtered and sorted, formulas with their sources, and
            command, stack and plan to be saved as JSON
        resume: Keep every prediction in a journal in this folder until all are done. After Ctrl-C,
            a kill or a power failure the same command goes on with what is there, and its output is
            the same as if it had not been ended
        progress: Show how far it is, with tqdm.

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("compare", Comparison, locals(), _SWITCHES)


def recommend(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    batch: int | None = None,
    seed: int | None = None,
    theory: Literal["finite-width", "mean-field"] | None = None,
    grading: Literal["coarse", "fine", "finest", "all"] | None = None,
    max_forward_growth: str | None = None,
    max_gradient_ratio: str | None = None,
    max_correlation: str | None = None,
    max_score_std: str | None = None,
    dtype: Literal["fp16", "bf16", "e4m3", "e5m2"] | None = None,
    dump_stack: Path | None = None,
    progress: bool = False,
) -> Recommendation:
    """Recommend an initialisation that meets demands on the network.

    Searched are five numbers: gains on the stds 1/√fan_in of queries and keys, of values and attention
    output, and of the feed-forward network; the std of the embeddings; the ratio of branch to skip, whose
    squares sum to 1. Of all that meet the demands the one nearest to gains of 1 and equal shares is taken.
    The search predicts candidates in the mean-field theory; --theory decides which theory judges them, and which numbers are printed.
    Rows (--format csv) are the stds of all tensors. `without` tells what it would be if a demand at its limit were dropped. Exit status 1: the demands
    exclude each other, and what gives way is told.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Same seed, same exported parameters
        theory: Which terms are followed
        grading: How many positions are followed, where they differ [default: so many that more of
            them change little; -v tells]
        max_forward_growth: Factor on the variance of the stream over all blocks, or its inverse;
            `none` asks for nothing
        max_gradient_ratio: Ratio of the gradient norms of one weight matrix over the blocks
        max_correlation: Correlation between tokens after the last block
        max_score_std: Standard deviation of attention scores
        dtype: Float format that the stream is to fit, tails and precision
        dump_stack: Also write the network with the recommended numbers as JSON; `-` writes it to
            standard output instead of everything else
        progress: Show how far it is, with tqdm.

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("recommend", Recommendation, locals(), _SWITCHES)


def phase(
    model: Model | None = None,
    *,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    seq_len: int | None = None,
    decoder_seq_len: int | None = None,
    vocab: int | None = None,
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu"] | None = None,
    norm: Literal["layernorm", "rmsnorm", "batchnorm", "dyt", "derf", "none"] | None = None,
    dyt_alpha: float | None = None,
    dyt_attention_alpha: float | None = None,
    norm_placement: Literal["pre", "post", "sandwich", "reordered", "sub"] | None = None,
    final_norm: bool | None = None,
    positions: Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative"] | None = None,
    residual: bool | None = None,
    branch_depth: str | None = None,
    skip_scale: float | None = None,
    branch_scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    qk_norm: Literal["none", "head", "projection"] | None = None,
    parallel: Literal["none", "shared_norm", "own_norms"] | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    drop_path: float | None = None,
    drop_path_schedule: Literal["constant", "linear"] | None = None,
    train: bool = False,
    zipf: bool = False,
    uniform: bool = False,
    token_repeat: float | None = None,
    input_correlation: float | None = None,
    tokens: Tokens | None = None,
    text: Path | None = None,
    tokenizer: Path | None = None,
    sequences: str | None = None,
    decoder_tokens: Tokens | None = None,
    grad_correlation: float | None = None,
    loss_at: Literal["encoder", "decoder"] | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    x: str,
    y: str,
    batch: int | None = None,
    seed: int | None = None,
    theory: Literal["finite-width", "mean-field"] | None = None,
    grading: Literal["coarse", "fine", "finest", "all"] | None = None,
    resume: Path | None = None,
    plot: Path | None = None,
    progress: bool = False,
) -> PhaseMap:
    """Map where a network can be trained, over two of its numbers.

    What can be varied:
      weight-gain             factor on the weights of all linear maps of the blocks
      embedding-gain          factor on the tables of embeddings
      score-gain              factor on attention scores before the softmax
      branch-scale            factor on the output of branches, as --branch-scale
      skip-scale              factor on skip connections, as --skip-scale
      bias-std                standard deviation of the biases of the blocks
      layers                  number of blocks
      any argument of --scheme, in place of the given one: k and alpha of dslm, std of normal,
                              qk, value, ffn, embedding and ratio of gains
    Gains multiply what the scheme draws: with --scheme lecun a weight-gain is σ_w of σ_w²/fan_in.

    Per cell (--format csv):
      x, y                    values of what --x and --y vary
      forward_depth           blocks over which the variance of the stream grows by e, over the deeper
                              half; negative: falls; blank: does not change
      backward_depth          the same of the gradient, going back
      correlation_depth       blocks over which the token correlation comes e times closer to where it
                              goes; blank: stands still, or does not settle
      token_correlation       after the last block
      failures, verdict       what `sigprop predict --fail-on` knows; rule: what triggered it
    Edges lie where a failure begins. They are found by bisection between cells once all cells are known:
    the run that gathers shards finds them.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without it the flags describe a plain encoder
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        layers: Number of blocks; of an MLP, of linear layers [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: the most that leave heads of 64]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside a branch of two
            maps of an MLP [default: width]
        seq_len: Tokens of a sequence, of a decoder's too [default: 256, or the length of given ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network; swiglu, geglu and reglu gate it
            [default: gelu]
        norm: Which norm, or the function in place of one (dyt, derf); batchnorm, over the batch, in
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: The same at the start of attention; the paper's LLaMA-7B has 0.8 here
            and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Whether a norm follows the last block [default: true unless post]
        positions: How tokens know where they are [default: learned]
        residual: Whether an MLP has residual connections [default: false]; encoders always have
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens see only themselves and those before them
        window: Let a token see N tokens on each side it looks to, itself included [default: all]
        qk_norm: Normalise queries and keys, per head or whole [default: none]
        parallel: Attention and feed-forward network side by side, behind one norm or each its own
            [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Stochastic depth alike in all blocks, or in equal steps up to
            --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Token ids of which two positions carry the same one with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape, the sequence last; a .csv, one sequence per
            line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Sequences of the --text that are read, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default it reads what the
            encoder's law gives
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: At the end of which stream of an encoder–decoder the gradient starts [default:
            decoder]
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` is what that release of transformers draws for a config [default:
            the model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        x: What is varied to the right: a name, the range, how many values [default: 17];
            logarithmic where LOW is above zero, unless `:linear`
        y: What is varied upwards
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Same seed, same exported parameters
        theory: Which terms are followed
        grading: How many positions are followed, where they differ [default: so many that more of
            them change little; -v tells]
        resume: Keep every prediction in a journal in this folder until all are done. After Ctrl-C,
            a kill or a power failure the same command goes on with what is there, and its output is
            the same as if it had not been ended
        plot: Also draw the map: where failures are, and the edges where they begin; *.svg, *.png or
            *.pdf
        progress: Show how far it is, with tqdm.

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("phase", PhaseMap, locals(), _SWITCHES)


def inspect(
    checkpoint: Path,
    *,
    config: Model | None = None,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    names: Path | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    dump_stack: Path | None = None,
) -> Inspection:
    """Measure the tensors of a checkpoint, compare them with an initialisation, predict what
    follows.

    Columns:
      mean, std, kurtosis     of the entries; kurtosis is 3 for a normal, 1.8 for a uniform distribution
      singular_value          estimate of the largest one; random_singular_value is that of a random
                              matrix of this size with independent entries: std · (√rows + √columns)
      scheme_…, ratio         what the scheme draws; measured std over it
      z                       deviation of std (or of the mean) in standard errors of independent draws
      largest                 largest absolute value of an entry
      deviates                |z| above 5 and more than 1 % off, or kurtosis or largest entry are not what the
                              scheme's distribution allows, or entries are not finite

    Beside the tensors one by one it finds copies: equal or correlated tensors of several blocks, or of one
    block, and equal or correlated rows or columns within one.

    The prediction is that of the network of the config with the weights of the checkpoint: scales of
    residual connections are the model's, never those of --scheme. It takes the measured sizes of
    weights, gains and biases for independent draws: what training has put into them beyond their size
    is not seen.

    Args:
        checkpoint: A safetensors file, the index of several, or a folder with model.safetensors,
            its index, or adapter_model.safetensors
        config: The model it is of: a config.json, a preset, or an architecture file, as MODEL of
            `sigprop predict` [default: config.json beside the checkpoint, if there is one; else
            tensors are only measured]. For an adapter, the config.json in the folder of its base
            model, whose weights it is added to
        tower: Which half of a model of texts and images
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are those of the family
        names: What the checkpoint calls parameters that have names of their own: lines `name =
            parameter`. `name` has a * for the number of a block (and a second one for that of an
            expert); `parameter` is the name in transformers, in another known convention, or in a
            plan (--export plan.json). `a + b`: b lies below a in one matrix. # begins a comment
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` is what that release of transformers draws for a config [default:
            the model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        dump_stack: Also write the network with the measured weights, as `--stack` of other commands
            reads it

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("inspect", Inspection, locals(), _SWITCHES)
