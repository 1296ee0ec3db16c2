//! Kinds of caveats: the numbers that they concern, when they apply, and advice.

/// A kind of caveat.
#[derive(Debug, PartialEq, Eq)]
pub struct CaveatKind {
    /// Name of the kind in JSON and CSV, which does not change between releases.
    pub name: &'static str,
    /// The numbers that are less certain.
    pub quantity: &'static str,
    /// The quantity of [`Condition::size`](super::Condition::size); empty if caveats of this kind have no size.
    pub size: &'static str,
    /// The condition under which the caveat applies.
    pub about: &'static str,
    /// Advice to the user.
    pub advice: &'static str,
}

pub(super) static SHARP_ATTENTION: CaveatKind = CaveatKind {
    name: "sharp_attention",
    quantity: "gradients of queries and keys",
    size: "variance of scores before the softmax",
    about: "Scores have a variance above 16; the rules of attention were checked up to there.",
    advice: "Initialise queries and keys smaller or normalise them (--qk-norm); measure with `sigprop validate`.",
};

pub(super) static SMOOTH_SCORES: CaveatKind = CaveatKind {
    name: "smooth_scores",
    quantity: "gradients before the attention, weights of queries and keys",
    size: "score variance of the common part of neighbouring keys, times its share",
    about: "Scores of causal attention are sharp, and tokens are mostly averages over earlier tokens.",
    advice: "Initialise queries and keys, or values and outputs, smaller; measure with `sigprop validate`.",
};

pub(super) static MEAN_AT_ACTIVATION: CaveatKind = CaveatKind {
    name: "mean_at_activation",
    quantity: "second moments after the activation, and gradients before it",
    size: "mean over root mean square of the input",
    about: "The input of an activation has a mean above a thousandth of its size; the rules assume a Gaussian with mean 0.",
    advice: "Put a linear map or a norm between the two activations; measure with `sigprop validate`.",
};

pub(super) static MEAN_OF_PIXELS: CaveatKind = CaveatKind {
    name: "mean_of_pixels",
    quantity: "second moments after the activation, gradients before it, and gradients of gains before the sum",
    size: "mean over root mean square of the input",
    about: "The input of an activation of pixels has a mean, as a sum that contains a ReLU; the rules assume a Gaussian with this mean.",
    advice: "Expect 10 % for signals and gradients in a residual network of ReLUs; measure gains with `sigprop validate`.",
};

pub(super) static AVERAGED_BRANCHES: CaveatKind = CaveatKind {
    name: "averaged_branches",
    quantity: "gradients",
    size: "variance of ln |y|² by one mask",
    about: "Stochastic depth drops more large branches than 64 passes can follow one by one.",
    advice: "Predict without --train, or measure with `sigprop validate --train`.",
};

pub(super) static WEIGHED_INPUTS: CaveatKind = CaveatKind {
    name: "weighed_inputs",
    quantity: "±",
    size: "standard deviation of E f² of an expert by its weight, relative to the mean",
    about: "The weights of experts multiply their inputs (Llama 4). Variances are averages over these weights.",
    advice: "Measure ± with `sigprop validate`.",
};

pub(super) static RARE_SEQUENCES: CaveatKind = CaveatKind {
    name: "rare_sequences",
    quantity: "gradients",
    size: "number of networks that an average needs",
    about: "With stochastic depth, the few sequences that drop all large branches have most of the gradients.",
    advice: "Compare logarithms or medians of gradients, or drop less.",
};

pub(super) static SECOND_ORDER: CaveatKind = CaveatKind {
    name: "second_order",
    quantity: "second moments, gradients and their ±",
    size: "standard deviation of ln |x|² between networks",
    about: "ln |x|² has a variance above 0.25 between networks of one initialisation; the expansion has second order.",
    advice: "Read ± as a factor; measure with `sigprop validate`, or add norms or width.",
};

pub(super) static INFINITE_WIDTH: CaveatKind = CaveatKind {
    name: "infinite_width",
    quantity: "second moments, gradients and their ±",
    size: "standard deviation of ln |x|² between networks",
    about: "ln |x|² has a variance above 1 between networks of one initialisation: no expansion about the mean holds.",
    advice: "Measure with `sigprop validate`; norms, more width or less depth reduce the fluctuations.",
};

pub(super) static COARSE_POSITIONS: CaveatKind = CaveatKind {
    name: "coarse_positions",
    quantity: "all numbers",
    size: "largest relative change from half as many positions",
    about: "Numbers still change by more than a tenth between the two finest subsets of positions.",
    advice: "Follow every position with --grading all.",
};

pub(super) static SAMPLED_TEXT: CaveatKind = CaveatKind {
    name: "sampled_text",
    quantity: "all numbers, where sequences of the text differ",
    size: "number of sequences that are read",
    about: "The prediction reads some of the sequences of a text, evenly spaced.",
    advice: "Read more with --sequences N, or all of them with --sequences all.",
};

pub(super) static TOKEN_JUST_READ: CaveatKind = CaveatKind {
    name: "token_just_read",
    quantity: "norm of the gradient, loss",
    size: "share of the softmax",
    about: "Under a tied head, the input token has much of the softmax.",
    advice: "Initialise embeddings or the head smaller, or untie them.",
};

pub(super) static SCHEME: CaveatKind = CaveatKind {
    name: "scheme",
    quantity: "none: the network is not the one that the scheme was made for",
    size: "",
    about: "The scheme was derived for another kind of network, or has a part that is not initialised.",
    advice: "Change the network as the scheme requires, or choose a scheme that fits: `sigprop compare`.",
};

pub(super) static SCHEME_SCALE: CaveatKind = CaveatKind {
    name: "scheme_scale",
    quantity: "all numbers",
    size: "",
    about: "The scheme has a factor in the forward pass. Checkpoints do not store it, and the model does not have it.",
    advice: "Give the scheme that the model was trained with.",
};

pub(super) static CONFIG: CaveatKind = CaveatKind {
    name: "config",
    quantity: "numbers of the named part",
    size: "",
    about: "A key of the config changes the network and is not supported.",
    advice: "See `--explain-import` for all that was read.",
};

pub(super) static DEPENDENT_WEIGHTS: CaveatKind = CaveatKind {
    name: "dependent_weights",
    quantity: "token correlations and gradients",
    size: "",
    about: "Tensors of the checkpoint are copies of each other or correlated; predictions assume independent tensors.",
    advice: "Initialise the copies again.",
};

pub(super) static HEAVY_TAILS: CaveatKind = CaveatKind {
    name: "heavy_tails",
    quantity: "second moments after activations and norms",
    size: "excess kurtosis of outputs",
    about: "Weights have heavy tails and are few per output, so that outputs are not Gaussian.",
    advice: "Use a normal or uniform distribution.",
};

pub(super) static UNREAD_TYPE: CaveatKind = CaveatKind {
    name: "unread_type",
    quantity: "all numbers after the tensor",
    size: "",
    about: "The entries have a type that cannot be read; the prediction uses the initialisation.",
    advice: "Convert them to F32, F16 or BF16.",
};

pub(super) static NO_PLACE: CaveatKind = CaveatKind {
    name: "no_place",
    quantity: "all numbers",
    size: "√(E w²)",
    about: "The network of the config has no parameter of a name that the checkpoint has.",
    advice: "Check that the config is that of this checkpoint.",
};

pub(super) static MEAN_OF_WEIGHTS: CaveatKind = CaveatKind {
    name: "mean_of_weights",
    quantity: "second moments and correlations after the tensor",
    size: "share of E w² that is (E w)²",
    about: "The mean of the entries of a tensor is not zero; predictions count it as variance.",
    advice: "Subtract it, or allow for this error in the numbers after it.",
};

pub(super) static UNEVEN_GAINS: CaveatKind = CaveatKind {
    name: "uneven_gains",
    quantity: "gradients",
    size: "features that carry the gradient",
    about: "Gains of norms vary so much between features that a few features carry the gradient.",
    advice: "Compare with medians; one network's gradient is typically smaller.",
};

pub(super) static UNEVEN_ROWS: CaveatKind = CaveatKind {
    name: "uneven_rows",
    quantity: "the stream where tokens have large rows, correlations of the loss's gradient",
    size: "largest standard deviation of rows over the smallest",
    about: "Rows of a table or of a head have standard deviations that differ by more than a factor of 1.5.",
    advice: "Initialise the rows again with the standard deviation of the others.",
};

pub(super) static SHARED_TENSOR: CaveatKind = CaveatKind {
    name: "shared_tensor",
    quantity: "second moments, token correlations, gradients of the tensor",
    size: "largest share by which second moments may be larger",
    about: "Several sites use one tensor (other than embeddings with a tied head); predictions treat each use as independent.",
    advice: "Measure with `sigprop validate --stack`, whose networks share the tensor.",
};

pub(super) static SHARED_WIDTH: CaveatKind = CaveatKind {
    name: "shared_width",
    quantity: "±, terms of order 1/width, effects of first steps",
    size: "number of sites that use the tensor",
    about: "Several sites use one tensor, and predictions follow this at infinite width alone.",
    advice: "Measure with `sigprop validate --stack`, whose networks share the tensor.",
};

pub(super) static READ_WIDTH: CaveatKind = CaveatKind {
    name: "read_width",
    quantity: "±, terms of order 1/width",
    size: "number of parts that read other signals",
    about: "Parts of sums, products or concatenations read an earlier site or another stream, at infinite width alone.",
    advice: "Measure with `sigprop validate --stack`, whose networks have a finite width.",
};

pub(super) static RECURRENCE_WIDTH: CaveatKind = CaveatKind {
    name: "recurrence_width",
    quantity: "±, token correlations of gradients of steps and strengths",
    size: "",
    about: "Recurrences (state-space models, linear attention) are predicted at infinite width, but for the cosine of tokens.",
    advice: "Measure with `sigprop validate`.",
};

pub(super) static IDLE_STATE: CaveatKind = CaveatKind {
    name: "idle_state",
    quantity: "none: the state of a recurrence has almost no effect at initialisation",
    size: "share of the second moment of the output that the state has",
    about: "The skip of a recurrence has more than 99 % of its output.",
    advice: "Initialise the maps before queries, keys and values larger if the state is to be used from the start.",
};

pub(super) static FEW_HEADS: CaveatKind = CaveatKind {
    name: "few_heads",
    quantity: "second moments after the norm of a recurrence, gradients before it",
    size: "share by which numbers may be off",
    about: "A norm divides by the scores of few heads of a recurrence, and the rule by their mean square.",
    advice: "Measure with `sigprop validate`, or use one norm for more heads.",
};

pub(super) static LONG_ERASING: CaveatKind = CaveatKind {
    name: "long_erasing",
    quantity: "second moments after a delta rule, gradients before it",
    size: "share of a value that later writes erase",
    about: "Keys of a delta rule are correlated and remain long in the state; the rule has one product for all keys.",
    advice: "Measure with `sigprop validate`.",
};

pub(super) static SINK_WIDTH: CaveatKind = CaveatKind {
    name: "sink_width",
    quantity: "±, gradients of queries and keys",
    size: "share by which numbers may be off",
    about: "Attention has sinks, and terms of order 1/width are those of the same attention without them.",
    advice: "Measure with `sigprop validate`.",
};

pub(super) static ORTHOGONAL_ATTENTION: CaveatKind = CaveatKind {
    name: "orthogonal_attention",
    quantity: "± of the output of an attention, gradients of queries and keys",
    size: "standard deviation of ln |y|² that Gaussian values cause",
    about: "Queries, keys or values are orthogonal. Terms of order 1/width are those of Gaussian ones, which fluctuate more.",
    advice: "Measure ± with `sigprop validate`.",
};

impl CaveatKind {
    /// All kinds.
    pub const ALL: [&'static Self; 31] = [
        &SHARP_ATTENTION,
        &SMOOTH_SCORES,
        &MEAN_AT_ACTIVATION,
        &MEAN_OF_PIXELS,
        &AVERAGED_BRANCHES,
        &WEIGHED_INPUTS,
        &RARE_SEQUENCES,
        &SECOND_ORDER,
        &INFINITE_WIDTH,
        &COARSE_POSITIONS,
        &SAMPLED_TEXT,
        &TOKEN_JUST_READ,
        &SCHEME,
        &SCHEME_SCALE,
        &CONFIG,
        &DEPENDENT_WEIGHTS,
        &HEAVY_TAILS,
        &UNREAD_TYPE,
        &NO_PLACE,
        &MEAN_OF_WEIGHTS,
        &UNEVEN_GAINS,
        &UNEVEN_ROWS,
        &SHARED_TENSOR,
        &SHARED_WIDTH,
        &READ_WIDTH,
        &RECURRENCE_WIDTH,
        &IDLE_STATE,
        &FEW_HEADS,
        &LONG_ERASING,
        &SINK_WIDTH,
        &ORTHOGONAL_ATTENTION,
    ];
}
