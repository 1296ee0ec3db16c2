//! Flags that describe the network or override the model.

use std::str::FromStr;

use crate::architecture::{
    Activation, Architecture, DropPathSchedule, NormChoice, NormPlacement, Parallel, Positions, QkNorm,
};
use anyhow::bail;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::parse;

/// The shape of the network.
#[derive(Args, Debug)]
#[command(next_help_heading = "Shape")]
pub(crate) struct ShapeArguments {
    /// Number of blocks, or of linear layers of an MLP [default: 12].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    layers: Option<usize>,

    /// Width of the stream [default: 1024].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    width: Option<usize>,

    /// Attention heads [default: as many as leave a width of 64 or more per head].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    heads: Option<usize>,

    /// Key and value heads of grouped-query attention [default: as many as heads].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    kv_heads: Option<usize>,

    /// Width inside the feed-forward network [default: 4 × width], or inside an MLP's branch of two maps [default:
    /// width].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    ffn: Option<usize>,

    /// Tokens of a sequence, also of a decoder's [default: 256, or the length of given ids].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    seq_len: Option<usize>,

    /// Tokens of a decoder's sequence [default: as many as the encoder's].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    decoder_seq_len: Option<usize>,

    /// Number of different token ids [default: 32000].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    vocab: Option<usize>,

    /// Activation of the feed-forward network: a name, or a formula in x such as 'x*sigmoid(1.3*x)'; swiglu, geglu and
    /// reglu gate it [default: gelu].
    #[arg(long, value_name = "NAME", value_parser = parse::activation())]
    activation: Option<Activation>,

    /// Norm, or the function in place of one (dyt, derf); batchnorm, over the batch, is for MLPs alone [default:
    /// layernorm; of an MLP, none].
    #[arg(long, value_name = "NAME", value_parser = words::<NormChoice>(NormChoice::WORDS))]
    norm: Option<NormChoice>,

    /// Factor inside the function of --norm dyt or derf [default: 0.5].
    #[arg(long, value_name = "X", value_parser = parse::finite, allow_negative_numbers = true)]
    dyt_alpha: Option<f64>,

    /// Factor inside dyt or derf at the start of attention; the paper's LLaMA-7B has 0.8 here and 0.2 elsewhere
    /// [default: --dyt-alpha].
    #[arg(long, value_name = "X", value_parser = parse::finite, allow_negative_numbers = true)]
    dyt_attention_alpha: Option<f64>,

    /// Where blocks normalise [default: pre].
    #[arg(long, value_name = "WHERE", value_parser = words::<NormPlacement>(NormPlacement::WORDS))]
    norm_placement: Option<NormPlacement>,

    /// Put a norm after the last block [default: true unless post].
    #[arg(long, value_name = "BOOL")]
    final_norm: Option<bool>,

    /// How positions are encoded [default: learned].
    #[arg(long, value_name = "NAME", value_parser = words::<Positions>(Positions::WORDS))]
    positions: Option<Positions>,

    /// Give an MLP residual connections [default: false]; encoders always have them.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    residual: Option<bool>,

    /// Linear maps in a branch of an MLP with residual connections: φ(W x), or W₂ φ(W₁ x) of width --ffn inside
    /// [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    branch_depth: Option<u8>,

    /// Factor on skip connections [default: the scheme's].
    #[arg(long, value_name = "X", value_parser = parse::finite, allow_negative_numbers = true)]
    skip_scale: Option<f64>,

    /// Factor on the output of branches [default: the scheme's].
    #[arg(long, value_name = "X", value_parser = parse::finite, allow_negative_numbers = true)]
    branch_scale: Option<f64>,

    /// Let tokens attend only to themselves and earlier tokens.
    #[arg(long)]
    causal: bool,

    /// Let a token attend to N tokens on each side that it may attend to, itself included [default: all].
    #[arg(long, value_name = "N", value_parser = parse::size, allow_negative_numbers = true)]
    window: Option<usize>,

    /// Normalise queries and keys, per head or as a whole [default: none].
    #[arg(long, value_name = "HOW", value_parser = words::<QkNorm>(QkNorm::WORDS))]
    qk_norm: Option<QkNorm>,

    /// Put attention and feed-forward network in parallel, after one norm or one norm each [default: none].
    #[arg(long, value_name = "HOW", value_parser = words::<Parallel>(Parallel::WORDS))]
    parallel: Option<Parallel>,

    /// Dropout on the embedding sum and on every branch output; acts with --train [default: 0].
    #[arg(long, value_name = "P", value_parser = parse::dropout_rate, allow_negative_numbers = true)]
    dropout: Option<f64>,

    /// Dropout on attention weights; acts with --train [default: 0].
    #[arg(long, value_name = "P", value_parser = parse::dropout_rate, allow_negative_numbers = true)]
    attention_dropout: Option<f64>,

    /// Stochastic depth: probability of dropping a branch; acts with --train [default: 0].
    #[arg(long, value_name = "P", value_parser = parse::dropout_rate, allow_negative_numbers = true)]
    drop_path: Option<f64>,

    /// Schedule of stochastic depth: equal in all blocks, or in equal steps up to --drop-path in the last [default:
    /// constant].
    #[arg(long, value_name = "HOW", value_parser = words::<DropPathSchedule>(DropPathSchedule::WORDS))]
    drop_path_schedule: Option<DropPathSchedule>,

    /// Training mode: dropout and stochastic depth act.
    #[arg(long)]
    pub(crate) train: bool,
}

impl ShapeArguments {
    /// Returns true if a flag that `sigprop phase` may vary is given.
    pub(crate) fn gives(&self, flag: &str) -> bool {
        match flag {
            "layers" => self.layers.is_some(),
            "skip-scale" => self.skip_scale.is_some(),
            "branch-scale" => self.branch_scale.is_some(),
            _ => false,
        }
    }

    /// Returns the number of tokens of a sequence, if it is given.
    pub(crate) fn seq_len(&self) -> Option<usize> {
        self.seq_len
    }

    /// Replaces the fields of the architecture for which a flag is given.
    pub(crate) fn override_fields(&self, architecture: &mut Architecture) -> anyhow::Result<()> {
        fn set<T>(field: &mut T, flag: Option<T>) {
            if let Some(value) = flag {
                *field = value;
            }
        }
        fn set_open<T>(field: &mut Option<T>, flag: Option<T>) {
            if flag.is_some() {
                *field = flag;
            }
        }
        if let Some(layers) = self.layers {
            architecture.set_layers(layers);
        }
        set(&mut architecture.d_model, self.width);
        set_open(&mut architecture.n_heads, self.heads);
        set_open(&mut architecture.n_kv_heads, self.kv_heads);
        set_open(&mut architecture.d_ff, self.ffn);
        set(&mut architecture.seq_len, self.seq_len);
        set(&mut architecture.vocab_size, self.vocab);
        set(&mut architecture.activation, self.activation);
        set_open(&mut architecture.norm, self.norm);
        set_open(&mut architecture.dyt_alpha, self.dyt_alpha);
        set_open(&mut architecture.dyt_attention_alpha, self.dyt_attention_alpha);
        set(&mut architecture.norm_placement, self.norm_placement);
        set_open(&mut architecture.final_norm, self.final_norm);
        set(&mut architecture.positions, self.positions);
        set_open(&mut architecture.residual, self.residual);
        set(&mut architecture.branch_depth, self.branch_depth.map(usize::from));
        set_open(&mut architecture.skip_scale, self.skip_scale);
        set_open(&mut architecture.branch_scale, self.branch_scale);
        set(&mut architecture.dropout, self.dropout);
        set(&mut architecture.attention_dropout, self.attention_dropout);
        set(&mut architecture.drop_path, self.drop_path);
        set(&mut architecture.drop_path_schedule, self.drop_path_schedule);
        set(&mut architecture.qk_norm, self.qk_norm);
        set(&mut architecture.parallel, self.parallel);
        architecture.causal |= self.causal;
        if let Some(window) = self.window {
            architecture.windows = vec![window; architecture.n_layers];
        }
        match (&mut architecture.decoder, self.decoder_seq_len) {
            (Some(decoder), own) => set(&mut decoder.seq_len, own.or(self.seq_len)),
            (None, None) => {}
            (None, Some(own)) => bail!("--decoder-seq-len {own}: expected a model with a decoder, got one without"),
        }
        Ok(())
    }
}

/// Parses one of the words of a string enum.
fn words<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}
