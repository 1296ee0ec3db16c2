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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
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
    """Predict the size of signals and gradients at every block, with a verdict.

    Columns, averaged over initialisations, masks, inputs, positions and features:
      mean                    mean of an entry
      variance                variance of an entry: E x² − mean²
      token_correlation       (E x_a x_b − mean²)/variance over tokens a ≠ b
      grad_variance           E g², where g is the gradient with respect to this
                              site of independent N(0, 1) gradients at the end
                              (--grad-correlation correlates them); with --head,
                              of the mean loss over the tokens of a sequence
      grad_token_correlation  E g_a g_b/E g² over pairs of tokens
      ln_…                    natural logarithm, finite where the number leaves f64
      …_first, …_last         at the first and the last position
      ln_…_std (±)            standard deviation, across networks, of the ln of a
                              network's own value

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` draws a config as that release of transformers does [default: the
            model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        head: Add the output head: gradients are then of the mean loss over the tokens of a
            sequence. It is the model's own head, with its distribution, scale, soft cap and the map
            and norm before it; or the same tied to the token embedding, or untied. The head of
            --stack is the key "head" of the file
        loss: Loss to minimise; its targets have the distribution of the input
        first_update: Report, from one sequence, the first step of every tensor, how far it moves
            the output of its linear map on that sequence (not for keys, nor by adam near
            activations), and how much lower the loss gets to first order: in a second table; in
            rows, instead of the sites
        lr: Learning rate, which schemes like mup multiply by a factor per tensor; every scheme
            takes layer-decay=D
        export: Also write the initialisation of every parameter: *.json is a plan by name pattern,
            *.py a PyTorch function that draws it, *.safetensors the drawn parameters (--seed). For
            configs of transformers the names are the library's
        names: Your module's own names of parameters, for --export: lines `name = parameter`, as
            --names of `sigprop inspect`
        sites: Which sites to report
        weights: Report the weights and their gradients: in a second table; in rows, instead of the
            sites
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows offline: verdict, curves to zoom and read,
            tables to filter and sort, formulas with their sources, and command, stack and plan to
            save as JSON
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Seed of the exported parameters: the same seed gives the same parameters
        theory: Which terms to include
        grading: How many positions to follow, where they differ [default: so many that more would
            change little; -v reports the number]

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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
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
    """Sample the network and compare its signals and gradients with the prediction.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` draws a config as that release of transformers does [default: the
            model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        replicates: Networks to sample
        batch: Sequences per network
        seed: Seed of the samples: the same seed gives the same numbers, at any number of threads
        threads: Threads: a number, or `all`
        memory: Memory that the sampling may take, as 4GiB or 500MiB; beyond it blocks are computed
            twice [default: three quarters of the free memory, 4GiB if that is unknown]
        sampler: How to sample linear maps
        target_error: Continue until the standard errors of variances (relative) and token
            correlations are below this, as `0.01` or `1%`
        max_replicates: Largest number of networks to sample for --target-error [default: 100000],
            and for a case of a suite [default: the case's own]
        observed: Compare with measurements of your own instead of sampling: CSV with the columns
            site,quantity,observed,std_error, as --format csv writes them. With --suite, the results
            of earlier runs: the folder of one or of several; may be given several times
        resume: Write the report as --output does, but continue a run with the same arguments that
            was ended early, from its replicates (for a suite: its cases); the report is the same as
            without the interruption
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows offline: verdict, curves to zoom and read,
            tables to filter and sort, formulas with their sources, and command, stack and plan to
            save as JSON
        sites: Which sites to compare; the summary covers only the sites on the stream
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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
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

    Sample the network and compare its signals and gradients with the prediction.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` draws a config as that release of transformers does [default: the
            model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        dump_stack: Also write the network as JSON, every number resolved; `-` writes it to standard
            output instead of everything else
        replicates: Networks to sample
        batch: Sequences per network
        seed: Seed of the samples: the same seed gives the same numbers, at any number of threads
        threads: Threads: a number, or `all`
        memory: Memory that the sampling may take, as 4GiB or 500MiB; beyond it blocks are computed
            twice [default: three quarters of the free memory, 4GiB if that is unknown]
        sampler: How to sample linear maps
        target_error: Continue until the standard errors of variances (relative) and token
            correlations are below this, as `0.01` or `1%`
        max_replicates: Largest number of networks to sample for --target-error [default: 100000],
            and for a case of a suite [default: the case's own]
        observed: Compare with measurements of your own instead of sampling: CSV with the columns
            site,quantity,observed,std_error, as --format csv writes them. With --suite, the results
            of earlier runs: the folder of one or of several; may be given several times
        resume: Write the report as --output does, but continue a run with the same arguments that
            was ended early, from its replicates (for a suite: its cases); the report is the same as
            without the interruption
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows offline: verdict, curves to zoom and read,
            tables to filter and sort, formulas with their sources, and command, stack and plan to
            save as JSON
        sites: Which sites to compare; the summary covers only the sites on the stream
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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
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

    Columns (--format csv; the table has shorter names):
      forward, backward       factor on the variance of the stream over all
                              blocks, and on that of its gradient
      …_per_block             this factor per block
      token_correlation       after the last block; 1: all tokens are the same
      score_std               √(E s²) of the largest scores before a softmax
      attended_tokens         1/ΣA² of the sharpest attention weights A
      gradient_ratio          largest over smallest gradient norm of one weight
                              matrix over the blocks
      worst_tensor            the tensor with the largest gradient norm;
                              …_ratio: this norm over the median of all tensors
      fp16_margin …           doublings or halvings of the stream that the format
                              allows; negative: it is exceeded
      verdict, rule           the verdict of `sigprop predict`, and its rule
      caveat                  why a scheme is not meant for the network

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        schemes: Schemes with their arguments, separated by commas, as
            `gpt2,normal:0.02,dslm:k=2,alpha=1`, or `all` schemes that need no argument [default:
            from every family, one that is meant for the network]
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Seed of the exported parameters: the same seed gives the same parameters
        theory: Which terms to include
        grading: How many positions to follow, where they differ [default: so many that more would
            change little; -v reports the number]
        plot: Also draw the stream over depth: variance and token correlation, forward and backward,
            with the band of one initialisation, and where float formats overflow; *.svg, *.png or
            *.pdf
        report: Also write a report that a browser shows offline: verdict, curves to zoom and read,
            tables to filter and sort, formulas with their sources, and command, stack and plan to
            save as JSON
        resume: Keep every prediction in a journal in this folder until all are done. After Ctrl-C,
            a kill or a power failure the same command continues from there, and its output is the
            same as without the interruption
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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
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

    Five numbers are searched: gains on the stds 1/√fan_in of queries and keys, of
    values and attention output, and of the feed-forward network; the std of the
    embeddings; and the ratio of branch to skip, whose squares sum to 1. Of all
    that meet the demands, the nearest to gains of 1 and equal shares is taken.
    The search uses the mean-field theory; --theory decides which theory judges
    the result, and which numbers are printed.

    Rows (--format csv) are the stds of all tensors. `without` is the result
    without a demand that is at its limit. Exit status 1: the demands exclude each
    other, and the output says which one is relaxed.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Seed of the exported parameters: the same seed gives the same parameters
        theory: Which terms to include
        grading: How many positions to follow, where they differ [default: so many that more would
            change little; -v reports the number]
        max_forward_growth: Largest factor on the variance of the stream over all blocks, or its
            inverse; `none` sets no limit
        max_gradient_ratio: Largest ratio of the gradient norms of one weight matrix over the blocks
        max_correlation: Largest correlation between tokens after the last block
        max_score_std: Largest standard deviation of attention scores
        dtype: Float format that the stream must fit, in its tails and in its precision
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
    activation: Literal["identity", "relu", "leaky_relu", "relu2", "gelu", "gelu_tanh", "silu", "quick_gelu", "mish", "hard_swish", "relu6", "tanh", "sigmoid", "erf", "softplus", "elu", "selu", "xielu", "swiglu", "geglu", "geglu_tanh", "reglu", "glu", "quick_geglu_plus_one"] | str | None = None,
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
    qk_norm: Literal["none", "head", "projection", "head_and_value", "rotated"] | None = None,
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
    stack: Path | None = None,
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

    Numbers that can be varied:
      weight-gain             factor on the weights of all linear maps of the blocks
      embedding-gain          factor on the tables of embeddings
      score-gain              factor on attention scores before the softmax
      branch-scale            factor on the output of branches, as --branch-scale
      skip-scale              factor on skip connections, as --skip-scale
      bias-std                standard deviation of the biases of the blocks
      layers                  number of blocks; not with --stack
      an argument of --scheme, in place of the given one: k and alpha of dslm, std
                              of normal, qk, value, ffn, embedding, ratio of gains
    Gains multiply the scheme's weights: with --scheme lecun a weight-gain is σ_w
    of σ_w²/fan_in.

    Columns per cell (--format csv):
      x, y                    values of --x and --y
      forward_depth           number of blocks over which the variance of the
                              stream grows by e, in the deeper half; negative: it
                              falls; blank: it does not change
      backward_depth          this number for the gradient, from the output on
      correlation_depth       number of blocks over which the token correlation
                              comes e times closer to its limit; blank: it does
                              not change, or does not converge
      token_correlation       after the last block
      failures, verdict       as in `sigprop predict --fail-on`
      rule                    the rule of the verdict
    Edges are the places where a failure begins. They are found by bisection
    between cells once all cells are known; with shards, by the run that gathers.

    Args:
        model: A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop
            models`), a TOML or JSON model file (docs/model-files.md lists its keys), JSON itself
            ('{"n_layers": 24}'), or `mlp`; without MODEL the flags describe a plain encoder
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        layers: Number of blocks, or of linear layers of an MLP [default: 12]
        width: Width of the stream [default: 1024]
        heads: Attention heads [default: as many as leave a width of 64 or more per head]
        kv_heads: Key and value heads of grouped-query attention [default: as many as heads]
        ffn: Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch
            of two maps [default: width]
        seq_len: Tokens of a sequence, also of a decoder's [default: 256, or the length of given
            ids]
        decoder_seq_len: Tokens of a decoder's sequence [default: as many as the encoder's]
        vocab: Number of different token ids [default: 32000]
        activation: Activation of the feed-forward network: a name, or a formula in x such as
            'x*sigmoid(1.3*x)'; swiglu, geglu and reglu gate it [default: gelu]
        norm: Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for
            MLPs alone [default: layernorm; of an MLP, none]
        dyt_alpha: Factor inside the function of --norm dyt or derf [default: 0.5]
        dyt_attention_alpha: Factor inside dyt or derf at the start of attention; the paper's
            LLaMA-7B has 0.8 here and 0.2 elsewhere [default: --dyt-alpha]
        norm_placement: Where blocks normalise [default: pre]
        final_norm: Put a norm after the last block [default: true unless post]
        positions: How positions are encoded [default: learned]
        residual: Give an MLP residual connections [default: false]; encoders always have them
        branch_depth: Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂
            φ(W₁ x) of width --ffn inside [default: 1]
        skip_scale: Factor on skip connections [default: the scheme's]
        branch_scale: Factor on the output of branches [default: the scheme's]
        causal: Let tokens attend only to themselves and earlier tokens
        window: Let a token attend to N tokens on each side that it may attend to, itself included
            [default: all]
        qk_norm: Normalise queries and keys, per head or as a whole [default: none]
        parallel: Put attention and feed-forward network in parallel, after one norm or one norm
            each [default: none]
        dropout: Dropout on the embedding sum and on every branch output; acts with --train
            [default: 0]
        attention_dropout: Dropout on attention weights; acts with --train [default: 0]
        drop_path: Stochastic depth: probability of dropping a branch; acts with --train [default:
            0]
        drop_path_schedule: Schedule of stochastic depth: equal in all blocks, or in equal steps up
            to --drop-path in the last [default: constant]
        train: Training mode: dropout and stochastic depth act
        zipf: Token ids from Zipf's law over the vocabulary: the default
        uniform: Token ids that are all equally likely
        token_repeat: Random token ids; two positions have the same id with probability P
        input_correlation: No ids: Gaussian tokens with correlation R at the site `embeddings`
        tokens: Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one
            sequence per line; a .json
        text: A text, cut into sequences; its bytes are the ids unless there is a --tokenizer
        tokenizer: A tokenizer.json for --text; without one, ids are bytes
        sequences: Number of sequences to read from --text, evenly spaced; `all` reads every one
        decoder_tokens: Token ids of a decoder (npy, csv, json); by default they have the
            distribution of the encoder's input
        grad_correlation: Correlation between the gradients of two tokens where the backward pass
            starts [default: 0]
        loss_at: Stream of an encoder–decoder at whose end the gradient starts [default: decoder]
        stack: Read the whole network from a dumped stack; `-` is standard input. A scheme
            initialises it anew, if the file has the roles of its maps (docs/formats.md)
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` draws a config as that release of transformers does [default: the
            model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        x: Number varied to the right: its name, its range, how many values [default: 17];
            logarithmic if LOW is above zero, unless `:linear`
        y: Number varied upwards, in the same form
        batch: Sequences over which the loss is averaged [default: 16]
        seed: Seed of the exported parameters: the same seed gives the same parameters
        theory: Which terms to include
        grading: How many positions to follow, where they differ [default: so many that more would
            change little; -v reports the number]
        resume: Keep every prediction in a journal in this folder until all are done. After Ctrl-C,
            a kill or a power failure the same command continues from there, and its output is the
            same as without the interruption
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
    stack: Path | None = None,
    tower: Literal["text", "vision"] | None = None,
    as_: str | None = None,
    names: Path | None = None,
    scheme: str | None = None,
    dslm_k: float | None = None,
    dslm_alpha: float | None = None,
    dump_stack: Path | None = None,
) -> Inspection:
    """Measure the tensors of a checkpoint, compare them with an initialisation, predict signals and
    gradients.

    Columns:
      mean, std, kurtosis     of the entries; kurtosis is 3 for a normal and 1.8
                              for a uniform distribution
      singular_value          estimate of the largest singular value
      random_singular_value   std · (√rows + √columns), that of a random matrix
      scheme_…, ratio         the scheme's values; measured std over them
      z                       deviation of std (or of the mean) in standard errors
                              of independent entries
      largest                 largest absolute value of an entry
      deviates                |z| is above 5 and the deviation above 1 %, or the
                              scheme's distribution excludes the kurtosis or the
                              largest entry, or entries are not finite

    Copies are reported too: tensors of several blocks, tensors of one block, and
    rows or columns of one tensor that are equal or correlated.

    The prediction is that of the network of the config with the weights of the
    checkpoint; scales of residual connections are the model's, never those of
    --scheme. It uses the measured sizes of weights, gains and biases and assumes
    independent entries: other effects of training are not included.

    Args:
        checkpoint: A safetensors file, the index of several, or a folder with model.safetensors,
            its index, or adapter_model.safetensors
        config: Model of the checkpoint: a config.json, a preset, or an architecture file, as MODEL
            of `sigprop predict` [default: config.json next to the checkpoint, if there is one; else
            tensors are only measured]. For an adapter, the config.json in the folder of its base
            model, to whose weights it is added
        stack: Stack file of the network, in place of --config. Tensors have the names of the stack,
            gains and biases of norms those of their sites: `blocks.0.ffn.norm.gain`. They are
            compared with the distributions of the file, or with --scheme by the roles of its maps
        tower: Half of a text-and-image model to read
        as_: Read the config as one of this family, whatever its `model_type`: names, initialisation
            and the layout of blocks are the family's
        names: The checkpoint's own names of parameters: lines `name = parameter`. `name` has a *
            for the number of a block (and a second one for the number of an expert); `parameter` is
            the name in transformers, in another known convention, or in a plan (--export
            plan.json). `a + b`: b is below a in one matrix. # begins a comment
        scheme: A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop
            schemes`); `hf@5.0` draws a config as that release of transformers does [default: the
            model's own, else xavier]
        dslm_k: The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2]
        dslm_alpha: The alpha of the scheme dslm [default: 1]
        dump_stack: Also write the network with the measured weights, for --stack of other commands

    Raises:
        ValueError: What the command refuses, in its words.
    """
    return call("inspect", Inspection, locals(), _SWITCHES)
