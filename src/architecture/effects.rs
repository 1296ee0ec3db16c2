//! Keys of a MODEL file that change nothing in the network they describe.

use std::collections::BTreeSet;

use super::{Architecture, ArchitectureError, Format, Head, Kind, Mixer, Positions, Resolved};

/// A MODEL file: the network it describes, and the keys it sets.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// The network of the file, before flags replace anything.
    pub architecture: Architecture,
    /// The keys in the file; keys of a decoder are written `decoder.KEY`.
    keys: BTreeSet<String>,
}

/// A key of a MODEL file; true if it is idle (changes nothing) in the network at hand; and the values of other keys
/// with which it has an effect.
type Rule = (&'static str, bool, &'static str);

impl ModelFile {
    /// Reads the text of a MODEL file.
    pub fn read(text: &str, format: Format) -> Result<Self, ArchitectureError> {
        Ok(Self { architecture: Architecture::from_file_text(text, format)?, keys: super::file::keys(text, format)? })
    }

    /// Returns an error if a key of the file has no effect, neither in the network of the file nor in `used`, the
    /// network after flags have replaced fields.
    ///
    /// ```
    /// use sigprop::architecture::{Architecture, Format, ModelFile, Positions};
    ///
    /// let file = ModelFile::read("alibi_scale = 0.5", Format::Toml)?;
    /// let error = file.check_effects(&file.architecture).unwrap_err().to_string();
    /// assert!(error.starts_with("`alibi_scale` has no effect without positions = \"alibi\""));
    /// let used = Architecture { positions: Positions::Alibi, ..file.architecture.clone() };
    /// assert!(file.check_effects(&used).is_ok());
    /// # Ok::<(), sigprop::architecture::ArchitectureError>(())
    /// ```
    pub fn check_effects(&self, used: &Architecture) -> Result<(), ArchitectureError> {
        // Contradictions are reported when the network is resolved.
        let Ok(idle) = self.idle(used) else { return Ok(()) };
        let alone = self.idle(&self.architecture).ok();
        let is_idle_alone = |key: &str| alone.as_ref().is_none_or(|alone| alone.iter().any(|(other, _)| other == key));
        match idle.into_iter().find(|(key, _)| is_idle_alone(key)) {
            Some((key, needs)) => Err(ArchitectureError::NoEffect { key, needs }),
            None => Ok(()),
        }
    }

    /// Returns the keys of the file that have no effect in `network`, each with the values of other keys with which it
    /// has one.
    fn idle(&self, network: &Architecture) -> Result<Vec<(String, &'static str)>, ArchitectureError> {
        let resolved = network.resolved()?;
        let scheme = network.scheme.as_deref();
        let mut idle = self.idle_side(network, &resolved, scheme, "");
        if let (Some(decoder), Some(resolved)) = (&network.decoder, &resolved.decoder) {
            idle.extend(self.idle_side(decoder, resolved, scheme, "decoder."));
        }
        Ok(idle)
    }

    /// Returns the keys of the file that have no effect on one side of the network (the encoder, or the decoder), as
    /// [`Self::idle`] does. `prefix` is put before their names.
    fn idle_side(
        &self,
        side: &Architecture,
        resolved: &Resolved,
        scheme: Option<&str>,
        prefix: &str,
    ) -> Vec<(String, &'static str)> {
        let fields = |side: &Architecture| serde_json::to_value(side).expect("an architecture is plain data");
        let (fields, default) = (fields(side), fields(&Architecture::default()));
        let own = ("hf_init", scheme != Some("hf"), "scheme = \"hf\"");
        let rules = [
            attention(side),
            positions(side),
            surroundings(side),
            blocks(side, resolved),
            decoder(resolved),
            vec![own],
        ];
        let idle = rules.into_iter().flatten().filter(|(key, idle, _)| *idle && fields[key] != default[key]);
        idle.map(|(key, _, needs)| (format!("{prefix}{key}"), needs))
            .filter(|(key, _)| self.keys.contains(key))
            .collect()
    }
}

/// The value of another key with which keys of Transformers have an effect.
const ENCODER: &str = "kind = \"encoder\"";

fn attention(side: &Architecture) -> Vec<Rule> {
    let mlp = side.kind == Kind::Mlp;
    let keys = [
        "n_heads",
        "n_kv_heads",
        "d_head",
        "d_value",
        "value_scale",
        "windows",
        "attention_scale",
        "attention_scale_by_layer",
        "attention_softcap",
        "attention_sinks",
        "disentangled",
        "attention_dropout",
        "qk_norm",
        "attention_gate",
        "latent",
        "qkv_biases",
        "attention_output_bias",
        "multipliers",
    ];
    let everywhere = !side.windows.is_empty() && side.windows.iter().all(|&window| window > 0);
    let by_window = [("global_heads", mlp, ENCODER), ("global_heads", everywhere, "a block without a window")];
    let convolutions = side.mixers.contains(&Mixer::Convolution);
    let needs_convolution = "a block with the mixer \"convolution\"";
    let of_convolutions = ["convolution_taps", "convolution_biases"].map(|key| (key, !convolutions, needs_convolution));
    let needs_recurrence = "a block with the mixer \"recurrence\"";
    let of_recurrences = [("recurrence", !side.mixers.iter().any(|mixer| mixer.has_recurrence()), needs_recurrence)];
    let of_mixers = of_convolutions.into_iter().chain(of_recurrences);
    keys.map(|key| (key, mlp, ENCODER)).into_iter().chain(by_window).chain(of_mixers).collect()
}

fn positions(side: &Architecture) -> Vec<Rule> {
    let mlp = side.kind == Kind::Mlp;
    let rotary = side.positions == Positions::Rotary && !mlp;
    let relative = matches!(side.positions, Positions::Relative | Positions::LearnedRelative) && !mlp;
    let windows = side.windows.iter().any(|&window| window > 0);
    let everywhere = windows && side.windows.iter().all(|&window| window > 0);
    let own_window = side.rotary_window_base.is_some() || side.rotary_window_frequencies.is_some();
    let needs_rotary = "positions = \"rotary\"";
    let needs_windows = "positions = \"rotary\" and a block with a window";
    let needs_relative = "positions = \"relative\" or \"learned_relative\"";
    let needs_powers = "frequencies that are powers of a base; `rotary_frequencies` replaces them";
    let needs_window_powers = "frequencies that are powers of a base; `rotary_window_frequencies` replaces them";
    let needs_block = "a block without a window; blocks with one have values of their own";
    vec![
        ("positions", mlp, ENCODER),
        ("rotary_dim", !rotary, needs_rotary),
        ("rotary_dim", side.rotary_frequencies.is_some() && !windows, needs_powers),
        ("rotary_base", !rotary, needs_rotary),
        ("rotary_base", side.rotary_frequencies.is_some(), needs_powers),
        ("rotary_base", everywhere && own_window, needs_block),
        ("rotary_frequencies", !rotary, needs_rotary),
        ("rotary_frequencies", everywhere && own_window, needs_block),
        ("rotary_scale", !rotary, needs_rotary),
        ("rotary_scale", everywhere && side.rotary_window_scale.is_some(), needs_block),
        ("rotated", !rotary, needs_rotary),
        ("rotary_window_base", !(rotary && windows), needs_windows),
        ("rotary_window_base", side.rotary_window_frequencies.is_some(), needs_window_powers),
        ("rotary_window_frequencies", !(rotary && windows), needs_windows),
        ("rotary_window_scale", !(rotary && windows), needs_windows),
        ("alibi_scale", mlp || side.positions != Positions::Alibi, "positions = \"alibi\""),
        ("relative_buckets", !relative, needs_relative),
        ("relative_max_distance", !relative, needs_relative),
        ("relative_shared", !relative, needs_relative),
    ]
}

/// Rules for embeddings and head.
fn surroundings(side: &Architecture) -> Vec<Rule> {
    let mlp = side.kind == Kind::Mlp;
    let head = matches!(side.head, Head::Tied | Head::Untied);
    let projected = side.embedding_width.is_some_and(|width| width != side.d_model);
    let needs_head = "head = \"tied\" or \"untied\"";
    vec![
        ("vocab_size", mlp, ENCODER),
        ("vocab_size", side.stem.is_some() && !head, "token ids or a head over the vocabulary"),
        ("token_types", mlp, ENCODER),
        ("embedding_scale", mlp, ENCODER),
        ("embedding_dropout", mlp, ENCODER),
        ("embedding_projection", !projected, "an `embedding_width` other than `d_model`"),
        ("head_activation", !head, needs_head),
        ("head_bias", !head, needs_head),
        ("logit_scale", !head, needs_head),
        ("logit_softcap", !head, needs_head),
    ]
}

/// Rules for norms, feed-forward networks and residual connections.
fn blocks(side: &Architecture, resolved: &Resolved) -> Vec<Rule> {
    let mlp = side.kind == Kind::Mlp;
    let norm = side.norm();
    let pointwise = norm.as_ref().is_some_and(|norm| norm.kind.pointwise().is_some());
    let mixtures = (0..side.n_layers).filter(|&index| resolved.experts_of(index).is_some()).count();
    let needs_plain = "a block with a plain feed-forward network";
    vec![
        ("norm_eps", norm.is_none() || pointwise, "a norm that takes a root"),
        ("norm_gain", norm.is_none(), "a norm"),
        ("norm_placement", norm.is_none(), "a norm"),
        ("first_norm", mlp, ENCODER),
        ("skip_from_norm", mlp, ENCODER),
        ("d_ff", mlp && side.branch_depth < 2, "kind = \"encoder\" or branch_depth = 2"),
        ("d_ff", mixtures == side.n_layers, needs_plain),
        ("ffn_biases", mlp, ENCODER),
        ("activation_dropout", mlp, ENCODER),
        (
            "experts",
            mixtures == 0,
            "a block that is a mixture; see `experts.first_dense`, `experts.every`, `dense_blocks`",
        ),
        ("d_ff", !side.block_d_ff.is_empty(), "blocks of one width; `block_d_ff` replaces it"),
        ("n_kv_heads", !side.block_kv_heads.is_empty(), "blocks with as many heads; `block_kv_heads` replaces it"),
        ("shared_blocks", side.n_layers == 1, "more than one block"),
        ("dense_blocks", side.experts.is_none(), "experts"),
        ("drop_path", !resolved.residual, "residual = true"),
    ]
}

/// Rules for keys that act only in the decoder, or only outside it.
fn decoder(resolved: &Resolved) -> Vec<Rule> {
    let (is_encoder, is_decoder) = (resolved.decoder.is_some(), resolved.memory_width.is_some());
    let keys = ["head", "head_activation", "head_bias", "logit_scale", "logit_softcap"];
    let at_end = "a place in the table `decoder`, which has the head";
    let outside = "a place outside the table `decoder`";
    let heads = keys.map(|key| (key, is_encoder, at_end));
    heads.into_iter().chain(["name", "scheme"].map(|key| (key, is_decoder, outside))).collect()
}
