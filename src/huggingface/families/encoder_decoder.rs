//! Encoder–decoders.

use serde_json::Map;

use super::super::init::{base, normal};
use super::super::names::Axes;
use super::super::{ImportError, Version};
use super::{DEFAULT_TOKENS, Keys, activation, named_activation, skipped_layers, tied};
use crate::architecture::{Architecture, Head, InitTable, NormChoice, NormPlacement, Positions, Stem};

/// T5, mT5, UMT5: unscaled scores, learned relative positions, RMSNorm, dropout everywhere.
pub(super) fn t5(keys: &Keys) -> Result<Architecture, ImportError> {
    let multilingual = keys.family() != "t5";
    let d_model = keys.size("d_model", &["d_model", "hidden_size"], 512)?;
    let n_heads = keys.size("n_heads", &["num_heads", "num_attention_heads"], if multilingual { 6 } else { 8 })?;
    let d_kv = keys.size("d_head", &["d_kv", "head_dim"], 64)?;
    let d_ff = keys.size("d_ff", &["d_ff"], if multilingual { 1024 } else { 2048 })?;
    let layers = keys.depth(&["num_layers", "num_hidden_layers"], if multilingual { 8 } else { 6 })?;
    let decoder_layers = keys.maybe_size("n_layers of the decoder", &["num_decoder_layers"])?.unwrap_or(layers);
    let words = keys.word("feed-forward", &["feed_forward_proj"], if multilingual { "gated-gelu" } else { "relu" })?;
    let (gated, word) = match words.strip_prefix("gated-") {
        Some(word) => (true, word),
        None => (false, words.as_str()),
    };
    // The library maps gated-gelu to gelu_new.
    let word = if gated && word == "gelu" { "gelu_new" } else { word };
    for key in ["dense_act_fn", "is_gated_act", "scale_decoder_outputs"] {
        keys.raw(key);
    }
    let factor = keys.number("init factor", &["initializer_factor"], 1.0)?;
    let dropout = keys.rate("dropout", &["dropout_rate"], 0.1)?;
    let root = |x: usize| (x as f64).powf(-0.5);
    let std = |std: f64| normal((factor * std).abs().min(1e6));
    let init = InitTable {
        token: std(1.0),
        head: Some(std(1.0)),
        query: std(root(d_model) * root(d_kv)),
        attention_output: std(root(n_heads * d_kv)),
        ffn_out: std(root(d_ff)),
        ..InitTable::everywhere(std(root(d_model)))
    };
    let encoder = Architecture {
        n_layers: layers,
        d_model,
        n_heads: Some(n_heads),
        d_head: Some(d_kv),
        d_ff: Some(d_ff),
        vocab_size: keys.size("vocab_size", &["vocab_size"], if multilingual { 250_112 } else { 32128 })?,
        seq_len: keys.size("positions", &["n_positions"], 512)?.min(DEFAULT_TOKENS),
        activation: named_activation("feed_forward_proj", word, gated)?,
        norm: Some(NormChoice::Rmsnorm),
        norm_eps: keys.number("norm_eps", &["layer_norm_epsilon"], 1e-6)?,
        norm_gain: factor,
        biases: false,
        positions: Positions::Relative,
        relative_buckets: keys.size("relative_buckets", &["relative_attention_num_buckets"], 32)?,
        relative_max_distance: keys.size("relative_max_distance", &["relative_attention_max_distance"], 128)?,
        relative_shared: keys.family() != "umt5",
        attention_scale: Some(1.0),
        dropout,
        attention_dropout: dropout,
        activation_dropout: dropout,
        final_dropout: dropout,
        hf_init: Some(init),
        ..Architecture::default()
    };
    let (mt5, four) = (keys.family() == "mt5", keys.options.version == Version::V4);
    let head = tied(keys, !(mt5 && four))?;
    // Since release 5.0 the library does not apply the factor d_model^(−1/2) to the logits of mT5.
    let logit_scale = if head == Head::Tied && (four || !mt5) { root(d_model) } else { 1.0 };
    keys.note("logit_scale", logit_scale, "1/√d_model of a tied head");
    Ok(pair(encoder.clone(), Architecture { n_layers: decoder_layers, head, logit_scale, ..encoder }))
}

/// T5Gemma: an encoder and a decoder of Gemma 2's blocks, each with its own keys and its own table of embeddings.
pub(super) fn t5gemma(keys: &Keys) -> Result<Architecture, ImportError> {
    // The vocabulary is that of each side.
    keys.same(&["vocab_size"]);
    let dropout = keys.rate("dropout", &["dropout_rate"], 0.0)?;
    if dropout > 0.0 {
        keys.warn(format!(
            "dropout_rate = {dropout}: the library drops entries after the norm of a branch, the prediction before it"
        ));
    }
    let attention_dropout = keys.rate("attention_dropout", &["attention_dropout"], 0.0)?;
    let side = |name: &'static str| {
        let none = Map::new();
        let inner = keys.inside(keys.nested(name)?.unwrap_or(&none));
        let architecture = super::gemma::gemma(&inner)?;
        keys.absorb(name, inner);
        Ok(Architecture { dropout, final_dropout: dropout, attention_dropout, ..architecture })
    };
    let (encoder, decoder) = (side("encoder")?, side("decoder")?);
    // In the encoder, the library places the whole window before the query and once more after it.
    let windows = encoder.windows.iter().map(|window| 2 * window).collect();
    let head = tied(keys, true)?;
    let std = (decoder.vocab_size as f64).powf(-0.5);
    let init = decoder.hf_init.map(|init| InitTable { head: Some(init.projection.scaled(std)), ..init });
    let encoder = Architecture { causal: false, windows, logit_softcap: None, ..encoder };
    Ok(Architecture { shared_embedding: false, ..pair(encoder, Architecture { head, hf_init: init, ..decoder }) })
}

/// The layout of a descendant of BART, and its defaults.
struct Translator {
    placement: NormPlacement,
    embedding_norm: bool,
    sinusoidal: bool,
    scaled: bool,
    activation: &'static str,
    vocab: usize,
    width: usize,
    /// The numbers of blocks of the encoder and of the decoder.
    layers: [usize; 2],
    heads: usize,
    ffn: usize,
    positions: usize,
    attention_dropout: f64,
    /// The rate at which training skips layers.
    layerdrop: f64,
}

impl Translator {
    fn of(family: &str) -> Self {
        let bart = Self {
            placement: NormPlacement::Post,
            embedding_norm: true,
            sinusoidal: false,
            scaled: false,
            activation: "gelu",
            vocab: 50265,
            width: 1024,
            layers: [12, 12],
            heads: 16,
            ffn: 4096,
            positions: 1024,
            attention_dropout: 0.0,
            layerdrop: 0.0,
        };
        match family {
            "mbart" => Self { placement: NormPlacement::Pre, ..bart },
            "plbart" => Self {
                scaled: true,
                vocab: 50005,
                width: 768,
                layers: [6, 6],
                heads: 12,
                ffn: 3072,
                attention_dropout: 0.1,
                ..bart
            },
            "m2m_100" => Self {
                placement: NormPlacement::Pre,
                embedding_norm: false,
                sinusoidal: true,
                scaled: true,
                activation: "relu",
                vocab: 128_112,
                attention_dropout: 0.1,
                layerdrop: 0.05,
                ..bart
            },
            "marian" => Self { embedding_norm: false, sinusoidal: true, vocab: 58101, ..bart },
            "pegasus" => Self { placement: NormPlacement::Pre, embedding_norm: false, sinusoidal: true, ..bart },
            "blenderbot" => Self {
                placement: NormPlacement::Pre,
                embedding_norm: false,
                vocab: 8008,
                width: 2560,
                layers: [2, 24],
                heads: 32,
                ffn: 10240,
                positions: 128,
                ..bart
            },
            _ => bart,
        }
    }
}

/// BART and its descendants.
pub(super) fn bart(keys: &Keys) -> Result<Architecture, ImportError> {
    let usual = Translator::of(keys.family());
    let d_model = keys.size("d_model", &["d_model", "hidden_size"], usual.width)?;
    let scaled = keys.flag("scaled embeddings", &["scale_embedding"], usual.scaled)?;
    for key in ["encoder_layerdrop", "decoder_layerdrop"] {
        skipped_layers(keys, key, usual.layerdrop)?;
    }
    let shared = Architecture {
        d_model,
        norm_placement: usual.placement,
        embedding_norm: usual.embedding_norm,
        embedding_scale: if scaled { (d_model as f64).sqrt() } else { 1.0 },
        positions: if usual.sinusoidal { Positions::Sinusoidal } else { Positions::Learned },
        activation: activation(keys, &["activation_function"], usual.activation, false)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], usual.attention_dropout)?,
        ..speech_and_text(keys, usual.vocab, usual.positions)?
    };
    let encoder = side(keys, &shared, "encoder", usual.layers[0], usual.heads, usual.ffn)?;
    let decoder = side(keys, &shared, "decoder", usual.layers[1], usual.heads, usual.ffn)?;
    let head = tied(keys, true)?;
    let apart =
        keys.family() == "marian" && !keys.flag("shared_embedding", &["share_encoder_decoder_embeddings"], true)?;
    let vocab_size = match apart.then(|| keys.maybe_size("vocab_size of the decoder", &["decoder_vocab_size"])) {
        Some(own) => own?.unwrap_or(shared.vocab_size),
        None => shared.vocab_size,
    };
    let paired = pair(encoder, Architecture { vocab_size, head, ..decoder });
    Ok(Architecture { shared_embedding: !apart, ..paired })
}

/// Whisper: audio to text. Key projections have no biases.
pub(super) fn whisper(keys: &Keys) -> Result<Architecture, ImportError> {
    let d_model = keys.size("d_model", &["d_model", "hidden_size"], 384)?;
    let targets = keys.size("positions of the decoder", &["max_target_positions"], 448)?;
    let shared = Architecture {
        d_model,
        activation: activation(keys, &["activation_function"], "gelu", false)?,
        attention_dropout: keys.rate("attention_dropout", &["attention_dropout"], 0.0)?,
        ..speech_and_text(keys, 51865, targets)?
    };
    keys.axes.set(Axes { positions: Some(targets), ..keys.axes.get() });
    let scaled = keys.flag("scaled embeddings", &["scale_embedding"], false)?;
    let encoder = Architecture {
        stem: Some(Stem::Audio { n_mels: keys.size("n_mels", &["num_mel_bins"], 80)? }),
        positions: Positions::Sinusoidal,
        seq_len: keys.size("positions", &["max_source_positions"], 1500)?,
        ..side(keys, &shared, "encoder", 4, 6, 1536)?
    };
    let decoder = Architecture {
        embedding_scale: if scaled { (d_model as f64).sqrt() } else { 1.0 },
        seq_len: targets,
        ..side(keys, &shared, "decoder", 4, 6, 1536)?
    };
    let head = tied(keys, true)?;
    let paired = pair(encoder, Architecture { head, ..decoder });
    Ok(Architecture { shared_embedding: false, ..paired })
}

/// Reads the properties that both streams of BART and Whisper share.
fn speech_and_text(keys: &Keys, vocab: usize, positions: usize) -> Result<Architecture, ImportError> {
    Ok(Architecture {
        vocab_size: keys.size("vocab_size", &["vocab_size"], vocab)?,
        seq_len: keys.positions(&["max_position_embeddings"], positions)?.min(DEFAULT_TOKENS),
        dropout: keys.rate("dropout", &["dropout"], if keys.family() == "whisper" { 0.0 } else { 0.1 })?,
        activation_dropout: keys.rate("activation_dropout", &["activation_dropout"], 0.0)?,
        hf_init: Some(base(keys, 0.02)?),
        ..Architecture::default()
    })
}

/// Reads one of the two streams, by its own keys.
fn side(
    keys: &Keys,
    shared: &Architecture,
    name: &str,
    layers: usize,
    heads: usize,
    ffn: usize,
) -> Result<Architecture, ImportError> {
    let own: [&[&'static str]; 3] = if name == "encoder" {
        [&["encoder_layers", "num_hidden_layers"], &["encoder_attention_heads"], &["encoder_ffn_dim"]]
    } else {
        [&["decoder_layers"], &["decoder_attention_heads"], &["decoder_ffn_dim"]]
    };
    Ok(Architecture {
        n_layers: keys.depth(own[0], layers)?,
        n_heads: Some(keys.size(&format!("n_heads of the {name}"), own[1], heads)?),
        d_ff: Some(keys.size(&format!("d_ff of the {name}"), own[2], ffn)?),
        ..shared.clone()
    })
}

fn pair(encoder: Architecture, decoder: Architecture) -> Architecture {
    let decoder = Architecture { causal: true, ..decoder };
    Architecture { decoder: Some(Box::new(decoder)), shared_embedding: true, head: Head::None, ..encoder }
}
