//! The words an architecture is described with: string enums for files and flags.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sigprop_stack::{Activation as Function, Expression, ExpressionError};

use super::ArchitectureError;
use crate::nearest::nearest;

/// Defines a string enum: its words, `name`, `Display`, `FromStr` and serde all come from one list. A text that is no
/// word may be a formula.
macro_rules! words {
    ($(#[$about:meta])* $enum:ident ($field:literal) {
        $($(#[$doc:meta])* $variant:ident = $word:literal,)+
        $(; $(#[$formula_doc:meta])* $formula:ident,)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$doc])* $variant,)+
            $($(#[$formula_doc])* $formula($formula),)?
        }

        impl $enum {
            /// Every word, in the order of the documentation.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word of this variant.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                    $(Self::$formula(formula) => formula.text(),)?
                }
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $enum {
            type Err = ArchitectureError;

            fn from_str(text: &str) -> Result<Self, ArchitectureError> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    $(_ if is_formula(text) => match text.parse() {
                        Ok(formula) => Ok(Self::$formula(formula)),
                        Err(error) => Err(not_a_formula($field, &error)),
                    },)?
                    _ => Err(unknown_word($field, Self::WORDS, text)),
                }
            }
        }

        impl Serialize for $enum {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $enum {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

words! {
    /// Kind of network.
    Kind ("kind") {
        /// A Transformer.
        Encoder = "encoder",
        /// A plain multi-layer perceptron.
        Mlp = "mlp",
    }
}

words! {
    /// Activation of the feed-forward network, gated or not.
    Activation ("activation") {
        /// φ(x) = x.
        Identity = "identity",
        /// max(x, 0).
        Relu = "relu",
        /// x above zero, 0.01 x below.
        LeakyRelu = "leaky_relu",
        /// max(x, 0)².
        Relu2 = "relu2",
        /// x Φ(x).
        Gelu = "gelu",
        /// The tanh approximation of GELU.
        GeluTanh = "gelu_tanh",
        /// x σ(x).
        Silu = "silu",
        /// x σ(1.702 x).
        QuickGelu = "quick_gelu",
        /// x tanh(ln(1 + e^x)).
        Mish = "mish",
        /// x min(max(x + 3, 0), 6)/6.
        HardSwish = "hard_swish",
        /// min(max(x, 0), 6).
        Relu6 = "relu6",
        /// tanh x.
        Tanh = "tanh",
        /// 1/(1 + e^(−x)).
        Sigmoid = "sigmoid",
        /// erf x.
        Erf = "erf",
        /// ln(1 + e^x).
        Softplus = "softplus",
        /// x above zero, e^x − 1 below.
        Elu = "elu",
        /// The ELU with the factors of self-normalising networks.
        Selu = "selu",
        /// xIELU with its initial parameters: 0.8 x² + x/2 above zero, 0.8 (e^x − 1 − x) + x/2 below.
        Xielu = "xielu",
        /// A SiLU gate times a linear branch.
        Swiglu = "swiglu",
        /// A GELU gate times a linear branch.
        Geglu = "geglu",
        /// The tanh approximation of a GELU gate times a linear branch.
        GegluTanh = "geglu_tanh",
        /// A ReLU gate times a linear branch.
        Reglu = "reglu",
        /// A sigmoid gate times a linear branch.
        Glu = "glu",
        /// A QuickGELU gate times a linear branch plus 1 (GPT-OSS, whose clamps at 7 are left out).
        QuickGegluPlusOne = "quick_geglu_plus_one",
        ;
        /// A formula in x, such as `x*sigmoid(1.3*x)`.
        Expression,
    }
}

words! {
    /// Mixer of tokens in a block.
    Mixer ("mixers") {
        /// Attention.
        Attention = "attention",
        /// A short convolution of every feature over the last tokens, between two gates: `output(c ∘ conv(b ∘ x))`,
        /// where b, c, x are linear maps of the input (LFM2).
        Convolution = "convolution",
        /// The recurrence that `recurrence` describes.
        Recurrence = "recurrence",
        /// Attention and the recurrence side by side after one norm: the sum of their outputs (Falcon-H1).
        AttentionAndRecurrence = "attention_and_recurrence",
        /// No mixer: the block has a feed-forward network alone.
        None = "none",
    }
}

impl Mixer {
    /// Returns true if the mixer has a recurrence.
    pub(crate) fn has_recurrence(self) -> bool {
        match self {
            Self::Recurrence | Self::AttentionAndRecurrence => true,
            Self::Attention | Self::Convolution | Self::None => false,
        }
    }
}

words! {
    /// Form of a block around its recurrence.
    RecurrentForm ("recurrence.form") {
        /// Gated delta rule: queries and keys of length 1, a norm per head and then a gate (Qwen3-Next).
        GatedDelta = "gated_delta",
        /// Mamba-2: a gate and then a norm, if there is one.
        Mamba2 = "mamba2",
        /// Lightning attention: a fixed rate per head, SiLU on queries, keys and values, a norm and then a sigmoid gate
        /// (MiniMax-01).
        Lightning = "lightning",
        /// Mamba-1: a head per feature, whose queries, keys and steps are maps of the convolved input.
        Mamba1 = "mamba1",
    }
}

words! {
    /// Kind of norm.
    NormChoice ("norm") {
        /// Subtracts the mean over features and divides by their standard deviation.
        Layernorm = "layernorm",
        /// Divides by the root of the mean square over features.
        Rmsnorm = "rmsnorm",
        /// Normalises every feature over the batch; in MLPs only.
        Batchnorm = "batchnorm",
        /// tanh(α x) of every entry in place of a norm (DyT).
        Dyt = "dyt",
        /// erf(α x) of every entry in place of a norm (Derf).
        Derf = "derf",
        /// No norm.
        None = "none",
    }
}

words! {
    /// Places of the norms in a block.
    NormPlacement ("norm_placement") {
        /// Norm at the start of every branch (Pre-LN).
        Pre = "pre",
        /// Norm after every residual sum (Post-LN).
        Post = "post",
        /// Norms at both ends of every branch.
        Sandwich = "sandwich",
        /// Norm at the end of every branch (OLMo 2).
        Reordered = "reordered",
        /// Norms at the start of every branch and before its last linear map (Sub-LN).
        Sub = "sub",
    }
}

words! {
    /// Representation of positions.
    Positions ("positions") {
        /// No positions.
        None = "none",
        /// A learned vector per position is added to the embedding.
        Learned = "learned",
        /// Fixed sinusoids are added to the embedding.
        Sinusoidal = "sinusoidal",
        /// Queries and keys are rotated by an angle that grows with the position (RoPE).
        Rotary = "rotary",
        /// Scores fall linearly with distance (ALiBi).
        Alibi = "alibi",
        /// A learned number per distance is added to the scores (T5).
        Relative = "relative",
        /// A learned vector per position is added to the embedding, and a learned number per distance to the scores
        /// (MPNet).
        LearnedRelative = "learned_relative",
    }
}

words! {
    /// Place of the projection of an embedding of another width.
    EmbeddingProjection ("embedding_projection") {
        /// Token embeddings are projected before positions are added; the stream is projected back at its end (OPT).
        Token = "token",
        /// The sum of embeddings is projected, after its norm (ELECTRA).
        Sum = "sum",
    }
}

words! {
    /// Change of the probability of dropping a branch with depth.
    DropPathSchedule ("drop_path_schedule") {
        /// Every block has the same probability.
        Constant = "constant",
        /// The probability grows in equal steps to its full value in the last block (Huang et al. 2016, eq. 4).
        Linear = "linear",
    }
}

words! {
    /// Norm of queries and keys.
    QkNorm ("qk_norm") {
        /// No norm.
        None = "none",
        /// Every head has a norm of its own.
        Head = "head",
        /// One norm covers all heads.
        Projection = "projection",
        /// Every head of queries, keys and values has a norm of its own (Gemma 4).
        HeadAndValue = "head_and_value",
        /// Every head has a norm of its own in blocks that rotate queries and keys (Llama 4).
        Rotated = "rotated",
    }
}

words! {
    /// Arrangement of attention and feed-forward network.
    Parallel ("parallel") {
        /// The feed-forward network follows attention.
        None = "none",
        /// Both read the output of one norm, and both are added to the stream (GPT-J).
        SharedNorm = "shared_norm",
        /// Both read the stream through a norm of their own, and both are added to it (GPT-NeoX).
        OwnNorms = "own_norms",
    }
}

words! {
    /// Output head after the last block.
    Head ("head") {
        /// No head.
        None = "none",
        /// A projection to the vocabulary that shares the token embedding.
        Tied = "tied",
        /// A projection to the vocabulary with weights of its own.
        Untied = "untied",
        /// A linear map of the first token, with a bias (the pooler of BERT); it counts as parameters and is not
        /// predicted.
        Pooler = "pooler",
    }
}

impl Activation {
    /// The elementwise function; for a gated activation, the function of the gate.
    pub fn function(self) -> Function {
        match self {
            Self::Identity => Function::Identity,
            Self::Relu | Self::Reglu => Function::Relu,
            Self::LeakyRelu => Function::LeakyRelu { slope: 0.01 },
            Self::Relu2 => Function::Relu2,
            Self::Gelu | Self::Geglu => Function::Gelu,
            Self::GeluTanh | Self::GegluTanh => Function::GeluTanh,
            Self::Silu | Self::Swiglu => Function::Silu,
            Self::Tanh => Function::Tanh,
            Self::QuickGelu | Self::QuickGegluPlusOne => Function::QuickGelu,
            Self::Mish => Function::Mish,
            Self::HardSwish => Function::HardSwish,
            Self::Relu6 => Function::Relu6,
            Self::Sigmoid | Self::Glu => Function::Sigmoid,
            Self::Erf => Function::Erf,
            Self::Softplus => Function::Softplus,
            Self::Elu => Function::Elu,
            Self::Selu => Function::Selu,
            Self::Xielu => Function::Xielu,
            Self::Expression(formula) => Function::Expression(formula),
        }
    }

    /// Returns true if the activation gates a linear branch.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Swiglu | Self::Geglu | Self::GegluTanh | Self::Reglu | Self::Glu | Self::QuickGegluPlusOne)
    }
}

/// Returns true for a text that is the variable x or more than one word.
fn is_formula(text: &str) -> bool {
    text == "x" || text.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

fn not_a_formula(field: &'static str, error: &ExpressionError) -> ArchitectureError {
    ArchitectureError::Value {
        field,
        expected: "a name or a formula in x".to_owned(),
        got: format!("`{}`", error.text),
        hint: error.to_string(),
    }
}

fn unknown_word(field: &'static str, words: &[&str], text: &str) -> ArchitectureError {
    let hint = nearest(text, words.iter().copied()).map(|word| format!("did you mean {word}?"));
    ArchitectureError::Value {
        field,
        expected: format!("one of {}", words.join(", ")),
        got: text.to_owned(),
        hint: hint.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_files_and_flags() {
        for word in Activation::WORDS {
            let parsed: Activation = word.parse().unwrap();
            assert_eq!(parsed.to_string(), *word);
            assert_eq!(serde_json::to_string(&parsed).unwrap(), format!("\"{word}\""));
        }
    }

    #[test]
    fn a_misspelt_word_gets_the_nearest() {
        let error = "swigl".parse::<Activation>().unwrap_err().to_string();
        assert!(error.contains("swigl") && error.contains("did you mean swiglu?"), "{error}");
        assert!("gleu".parse::<Activation>().unwrap_err().to_string().contains("glu?"));
    }

    #[test]
    fn a_formula_is_an_activation() {
        let swish: Activation = "x*sigmoid(1.3*x)".parse().unwrap();
        assert_eq!((swish.name(), swish.is_gated()), ("x*sigmoid(1.3*x)", false));
        assert_eq!(serde_json::from_str::<Activation>("\"x*sigmoid(1.3*x)\"").unwrap(), swish);
        let error = "x*sigmod(x)".parse::<Activation>().unwrap_err().to_string();
        assert!(error.contains("column 3") && error.contains("softplus"), "{error}");
    }
}
