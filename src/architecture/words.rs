//! The words an architecture is described with: string enums for files and flags.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sigprop_stack::Activation as Function;

use super::ArchitectureError;
use crate::nearest::nearest;

/// A string enum: its words, `name`, `Display`, `FromStr` and serde all from one list.
macro_rules! words {
    ($(#[$about:meta])* $enum:ident ($field:literal) { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $enum {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $enum {
            /// Every word, in the order of the documentation.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word of this variant.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
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
                    _ => Err(unknown_word($field, Self::WORDS, text)),
                }
            }
        }
    };
}

words! {
    /// What kind of network it is.
    Kind ("kind") {
        /// A Transformer encoder.
        Encoder = "encoder",
        /// A plain multi-layer perceptron.
        Mlp = "mlp",
    }
}

words! {
    /// The activation of the feed-forward network, gated or not.
    Activation ("activation") {
        /// φ(x) = x.
        Identity = "identity",
        /// max(x, 0).
        Relu = "relu",
        /// Slope 0.01 below zero.
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
        /// e^x − 1 below zero.
        Elu = "elu",
        /// The self-normalising ELU.
        Selu = "selu",
        /// xIELU as it starts: 0.8 x² + x/2 above zero, 0.8 (e^x − 1 − x) + x/2 below.
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
    }
}

words! {
    /// Which norm there is.
    NormChoice ("norm") {
        /// Over mean and variance.
        Layernorm = "layernorm",
        /// Over the mean square.
        Rmsnorm = "rmsnorm",
        /// Of every feature over mean and variance of the batch, in MLPs.
        Batchnorm = "batchnorm",
        /// A tanh of every entry in place of a norm (DyT).
        Dyt = "dyt",
        /// An erf of every entry in place of a norm (Derf).
        Derf = "derf",
        /// No norm at all.
        None = "none",
    }
}

words! {
    /// Where a block normalises.
    NormPlacement ("norm_placement") {
        /// At the start of every branch.
        Pre = "pre",
        /// After every residual sum.
        Post = "post",
        /// At both ends of every branch.
        Sandwich = "sandwich",
        /// At the end of every branch.
        Reordered = "reordered",
        /// At the start of every branch and before its last linear map.
        Sub = "sub",
    }
}

words! {
    /// How tokens know where they are.
    Positions ("positions") {
        /// They do not.
        None = "none",
        /// A learned vector per position is added.
        Learned = "learned",
        /// Fixed sinusoids are added.
        Sinusoidal = "sinusoidal",
        /// Queries and keys are rotated.
        Rotary = "rotary",
        /// Scores fall with distance.
        Alibi = "alibi",
        /// Scores get a learned number per distance (T5).
        Relative = "relative",
        /// Both: a learned vector per position is added, and scores get a learned number per distance (MPNet).
        LearnedRelative = "learned_relative",
    }
}

words! {
    /// Where an embedding of another width than the stream's is projected.
    EmbeddingProjection ("embedding_projection") {
        /// Before anything is added to it; the stream is projected back at its end (OPT).
        Token = "token",
        /// Behind the norm of the sum of embeddings (ELECTRA).
        Sum = "sum",
    }
}

words! {
    /// How the probability of dropping a branch changes with depth.
    DropPathSchedule ("drop_path_schedule") {
        /// It does not.
        Constant = "constant",
        /// It grows in equal steps from block to block, to its full value in the last (Huang et al. 2016, eq. 4).
        Linear = "linear",
    }
}

words! {
    /// Whether queries and keys are normalised.
    QkNorm ("qk_norm") {
        /// They are not.
        None = "none",
        /// Every head by itself.
        Head = "head",
        /// All heads together.
        Projection = "projection",
    }
}

words! {
    /// Whether attention and feed-forward network work side by side.
    Parallel ("parallel") {
        /// One after the other.
        None = "none",
        /// Side by side behind one norm.
        SharedNorm = "shared_norm",
        /// Side by side, each behind a norm of its own.
        OwnNorms = "own_norms",
    }
}

words! {
    /// What follows the last block.
    Head ("head") {
        /// Nothing.
        None = "none",
        /// A projection to the vocabulary that shares the token embedding.
        Tied = "tied",
        /// A projection to the vocabulary with weights of its own.
        Untied = "untied",
        /// A linear map with bias of the first token, BERT's pooler.
        Pooler = "pooler",
    }
}

impl Activation {
    /// The elementwise function; of the gate, if there is one.
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
            Self::QuickGelu => Function::QuickGelu,
            Self::Mish => Function::Mish,
            Self::HardSwish => Function::HardSwish,
            Self::Relu6 => Function::Relu6,
            Self::Sigmoid | Self::Glu => Function::Sigmoid,
            Self::Erf => Function::Erf,
            Self::Softplus => Function::Softplus,
            Self::Elu => Function::Elu,
            Self::Selu => Function::Selu,
            Self::Xielu => Function::Xielu,
        }
    }

    /// Whether it gates a linear branch.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Swiglu | Self::Geglu | Self::GegluTanh | Self::Reglu | Self::Glu)
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
}
