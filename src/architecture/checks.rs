//! The requirements on an architecture.

use std::ops::RangeInclusive;

use super::{
    Activation, Architecture, ArchitectureError, DropPathSchedule, Head, Kind, Mixer, NormChoice, NormPlacement,
    Parallel, Positions, QkNorm, Stem, TensorInit,
};

/// Largest value of any size except the depth. Products of three sizes still fit easily in 64 bits, and the
/// probabilities of this many ids are summed in under a second.
const MAX_SIZE: usize = 1 << 20;
/// Largest depth; a block takes a few kilobytes.
const MAX_LAYERS: usize = 100_000;

const RATE: RangeInclusive<f64> = 0.0..=1.0 - f64::EPSILON;
const POSITIVE: RangeInclusive<f64> = f64::MIN_POSITIVE..=f64::MAX;
const FINITE: RangeInclusive<f64> = f64::MIN..=f64::MAX;

impl Architecture {
    /// Checks all fields, except those of a decoder, which is checked as an architecture of its own.
    pub(super) fn check(&self) -> Result<(), ArchitectureError> {
        self.check_sizes()?;
        self.check_numbers()?;
        self.check_structure()?;
        self.check_heads()?;
        self.check_positions()?;
        self.check_experts()?;
        self.check_stem()?;
        self.check_init()?;
        self.check_decoder()
    }

    fn check_sizes(&self) -> Result<(), ArchitectureError> {
        size("n_layers", self.n_layers, MAX_LAYERS)?;
        size("branch_depth", self.branch_depth, 2)?;
        let sizes = [
            ("d_model", Some(self.d_model)),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("d_value", self.d_value),
            ("d_head", self.d_head),
            ("global_heads.n_kv_heads", self.global_heads.map(|heads| heads.n_kv_heads)),
            ("global_heads.d_head", self.global_heads.map(|heads| heads.d_head)),
            ("d_ff", self.d_ff),
            ("seq_len", self.seq_len.into()),
            ("vocab_size", self.vocab_size.into()),
            ("embedding_width", self.embedding_width),
            ("token_types", (self.token_types > 0).then_some(self.token_types)),
            ("convolution_taps", Some(self.convolution_taps)),
            ("recurrence.n_heads", self.recurrence.map(|mixer| mixer.n_heads)),
            ("recurrence.n_key_heads", self.recurrence.map(|mixer| mixer.n_key_heads)),
            ("recurrence.d_key", self.recurrence.map(|mixer| mixer.d_key)),
            ("recurrence.d_value", self.recurrence.map(|mixer| mixer.d_value)),
            ("recurrence.width", self.recurrence.map(|mixer| mixer.width())),
            ("recurrence.taps", self.recurrence.map(|mixer| mixer.taps)),
            ("latent.query_rank", self.latent.and_then(|latent| latent.query_rank)),
            ("latent.kv_rank", self.latent.map(|latent| latent.kv_rank)),
            ("latent.d_nope", self.latent.map(|latent| latent.d_nope)),
            ("latent.d_rope", self.latent.map(|latent| latent.d_rope)),
            ("latent.d_value", self.latent.map(|latent| latent.d_value)),
        ];
        sizes.into_iter().try_for_each(|(field, got)| got.map_or(Ok(()), |got| size(field, got, MAX_SIZE)))
    }

    fn check_numbers(&self) -> Result<(), ArchitectureError> {
        for (field, eps) in [
            ("norm_eps", Some(self.norm_eps)),
            ("recurrence.norm_eps", self.recurrence.and_then(|mixer| mixer.norm_eps)),
        ] {
            number(field, eps.unwrap_or(0.0), 0.0..=f64::MAX, "finite and not negative")?;
        }
        for (field, rate) in [
            ("dropout", self.dropout),
            ("embedding_dropout", self.embedding_dropout.unwrap_or(0.0)),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
            ("final_dropout", self.final_dropout),
            ("drop_path", self.drop_path),
        ] {
            number(field, rate, RATE, "in [0, 1)")?;
        }
        let factors = self.multipliers.unwrap_or_default();
        for (field, scale) in [
            ("norm_gain", Some(self.norm_gain)),
            ("embedding_scale", Some(self.embedding_scale)),
            ("logit_scale", Some(self.logit_scale)),
            ("attention_scale", self.attention_scale),
            ("value_scale", Some(self.value_scale)),
            ("multipliers.ffn_gate", Some(factors.ffn_gate)),
            ("multipliers.ffn_output", Some(factors.ffn_output)),
            ("multipliers.attention_output", Some(factors.attention_output)),
            ("multipliers.recurrence_output", Some(factors.recurrence_output)),
            ("multipliers.recurrence_gate", Some(factors.recurrence_gate)),
            ("multipliers.recurrence_value", Some(factors.recurrence_value)),
            ("multipliers.recurrence_key", Some(factors.recurrence_key)),
            ("multipliers.recurrence_query", Some(factors.recurrence_query)),
            ("multipliers.recurrence_step", Some(factors.recurrence_step)),
            ("skip_scale", self.skip_scale),
            ("branch_scale", self.branch_scale),
            ("rotary_scale", Some(self.rotary_scale)),
            ("rotary_window_scale", self.rotary_window_scale),
            ("alibi_scale", Some(self.alibi_scale)),
        ] {
            number(field, scale.unwrap_or(1.0), FINITE, "finite")?;
        }
        for (field, got) in [
            ("attention_softcap", self.attention_softcap),
            ("logit_softcap", self.logit_softcap),
            ("dyt_alpha", self.dyt_alpha),
            ("dyt_attention_alpha", self.dyt_attention_alpha),
            ("rotary_base", Some(self.rotary_base)),
            ("rotary_window_base", self.rotary_window_base),
        ] {
            number(field, got.unwrap_or(1.0), POSITIVE, "finite and positive")?;
        }
        Ok(())
    }

    /// Refuses fields that contradict each other.
    fn check_structure(&self) -> Result<(), ArchitectureError> {
        let norm = self.norm().is_some();
        let pointwise = self.norm().is_some_and(|norm| norm.kind.pointwise().is_some());
        let alpha = self.dyt_alpha.is_some() || self.dyt_attention_alpha.is_some();
        let mlp = self.kind == Kind::Mlp;
        let placement = self.norm_placement;
        let pre = norm && placement == NormPlacement::Pre;
        let starts = matches!(placement, NormPlacement::Pre | NormPlacement::Sandwich | NormPlacement::Sub);
        let parallel = self.parallel != Parallel::None;
        let has_scales = self.skip_scale.is_some() || self.branch_scale.is_some();
        let mlp_placement = matches!(placement, NormPlacement::Pre | NormPlacement::Post);
        let batch = self.norm == Some(NormChoice::Batchnorm);
        let contradictions = [
            ("norm", batch && !mlp, "batchnorm in MLPs alone (sequences have layernorm or rmsnorm)", "batchnorm"),
            (
                "norm_placement",
                batch && placement != NormPlacement::Pre,
                "pre with batchnorm, which is between linear map and activation",
                placement.name(),
            ),
            ("seq_len", batch && self.seq_len < 4, "a batch of at least 4 with batchnorm", "fewer"),
            ("final_norm", batch && self.final_norm == Some(true), "false with batchnorm", "true"),
            ("final_norm", !norm && self.final_norm == Some(true), "false without a norm", "true"),
            ("embedding_norm", !norm && self.embedding_norm, "false without a norm", "true"),
            ("qk_norm", !norm && self.qk_norm != QkNorm::None, "none without a norm", self.qk_norm.name()),
            ("latent", !norm && self.latent.is_some(), "absent without a norm", "one"),
            ("latent", pointwise && self.latent.is_some(), "absent with norm dyt or derf", "one"),
            ("dyt_alpha, dyt_attention_alpha", alpha && !pointwise, "absent unless norm is dyt or derf", "a number"),
            (
                "dyt_attention_alpha",
                self.dyt_attention_alpha.is_some() && (mlp || !starts || self.parallel == Parallel::SharedNorm),
                "absent unless attention starts with a norm of its own",
                "a number",
            ),
            ("parallel", parallel && !pre, "none unless blocks have norms placed pre", self.parallel.name()),
            (
                "skip_from_norm",
                self.skip_from_norm && (!pre || parallel),
                "false unless norms are placed pre, one branch after the other",
                "true",
            ),
            ("first_norm", !(self.first_norm || norm && starts), "true unless branches start with a norm", "false"),
            (
                "first_norm",
                !self.first_norm && (self.skip_from_norm || parallel),
                "true with skip_from_norm or parallel",
                "false",
            ),
            (
                "drop_path_schedule",
                self.drop_path_schedule != DropPathSchedule::Constant && self.drop_path <= 0.0,
                "constant without drop_path",
                self.drop_path_schedule.name(),
            ),
            ("embedding_norm", mlp && self.embedding_norm, "false in an MLP", "true"),
            ("segments", mlp && self.segments, "false in an MLP", "true"),
            ("activation", mlp && self.activation.is_gated(), "not gated in an MLP", self.activation.name()),
            ("head_activation", self.head_activation.is_some_and(Activation::is_gated), "not gated", "a gated one"),
            ("norm_placement", mlp && !mlp_placement, "pre or post in an MLP", placement.name()),
            ("parallel", mlp && parallel, "none in an MLP", self.parallel.name()),
            ("causal", mlp && self.causal, "false in an MLP", "true"),
            ("experts", mlp && self.experts.is_some(), "absent in an MLP", "some"),
            ("stem", mlp && self.stem.is_some(), "absent in an MLP", "one"),
            ("decoder", mlp && self.decoder.is_some(), "absent in an MLP", "one"),
            ("embedding_width", mlp && self.embedding_width.is_some(), "absent in an MLP", "a number"),
            ("head", mlp && self.head != Head::None, "none in an MLP", self.head.name()),
            (
                "branch_depth",
                self.branch_depth > 1 && !(mlp && self.has_residual()),
                "1 unless an MLP has residual connections (kind = \"mlp\", residual = true)",
                "2",
            ),
            ("residual", !mlp && self.residual == Some(false), "true in an encoder", "false"),
            (
                "layer_scale",
                self.layer_scale && (parallel || !self.has_residual()),
                "false unless every branch has a residual connection of its own",
                "true",
            ),
            ("skip_scale, branch_scale", !self.has_residual() && has_scales, "absent without residual", "a number"),
        ];
        first(contradictions)?;
        self.check_blocks()
    }

    /// Refuses blocks whose mixers or sizes contradict other fields.
    fn check_blocks(&self) -> Result<(), ArchitectureError> {
        let mlp = self.kind == Kind::Mlp;
        let parallel = self.parallel != Parallel::None;
        let own_placement = self.recurrence.and_then(|mixer| mixer.block_norms);
        let uneven = !(self.block_kv_heads.is_empty() && self.block_d_ff.is_empty());
        first([
            ("mixers", mlp && !self.mixers.is_empty(), "empty in an MLP", "words"),
            (
                "mixers",
                !self.causal && self.mixers.iter().any(|mixer| *mixer == Mixer::Convolution || mixer.has_recurrence()),
                "attention without a causal mask",
                "convolution or recurrence",
            ),
            (
                "recurrence",
                self.recurrence.is_none() && self.mixers.iter().any(|mixer| mixer.has_recurrence()),
                "a table, which `mixers` needs",
                "none",
            ),
            (
                "recurrence.block_norms",
                own_placement
                    .is_some_and(|own| [self.norm_placement, own] != [NormPlacement::Reordered, NormPlacement::Pre]),
                "absent, or pre where norm_placement is reordered",
                own_placement.map_or("none", NormPlacement::name),
            ),
            (
                "block_kv_heads, block_d_ff",
                uneven && (mlp || parallel || self.shared_blocks || self.latent.is_some() || self.skip_from_norm),
                "empty in an MLP, and with parallel, shared_blocks, latent or skip_from_norm",
                "numbers",
            ),
        ])
    }

    fn check_heads(&self) -> Result<(), ArchitectureError> {
        let n_heads = self.heads();
        let n_kv_heads = self.n_kv_heads.unwrap_or(n_heads);
        divides("n_kv_heads", "n_heads", n_kv_heads, n_heads)?;
        if let Some(global) = self.global_heads {
            divides("global_heads.n_kv_heads", "n_heads", global.n_kv_heads, n_heads)?;
            size("n_heads · global_heads.d_head", n_heads * global.d_head, MAX_SIZE)?;
        }
        if self.latent.is_some() {
            first([
                ("global_heads", self.global_heads.is_some(), "absent with latent", "some"),
                ("d_head", self.d_head.is_some(), "absent with latent, which has widths of its own", "a number"),
                ("d_value", self.d_value.is_some(), "absent with latent, which has widths of its own", "a number"),
                ("value_scale", (self.value_scale - 1.0).abs() > 0.0, "1 with latent", "another number"),
                ("qk_norm", self.qk_norm != QkNorm::None, "none with latent", self.qk_norm.name()),
                ("n_kv_heads", n_kv_heads != n_heads, "n_heads with latent", "another number"),
            ])?;
        } else if self.d_head.is_none() {
            divides("n_heads", "d_model", n_heads, self.d_model)?;
        }
        let (d_head, d_value) = self.head_widths();
        size("n_heads · d_head", n_heads * d_head.max(d_value), MAX_SIZE)?;
        for heads in self.block_kv_heads.iter().copied().filter(|heads| *heads > 0) {
            divides("block_kv_heads", "n_heads", heads, n_heads)?;
        }
        for width in self.block_d_ff.iter().copied().filter(|width| *width > 0) {
            size("block_d_ff", width, MAX_SIZE)?;
        }
        for (field, got) in [
            ("windows", self.windows.len()),
            ("rotated", self.rotated.len()),
            ("attention_sinks", self.attention_sinks.len()),
            ("mixers", self.mixers.len()),
            ("block_kv_heads", self.block_kv_heads.len()),
            ("block_d_ff", self.block_d_ff.len()),
        ] {
            if got != 0 && got != self.n_layers {
                let expected = format!("empty or one per block, {} values", self.n_layers);
                return Err(value(field, expected, format!("{got} values"), ""));
            }
        }
        Ok(())
    }

    fn check_positions(&self) -> Result<(), ArchitectureError> {
        let in_window = self.rotated_width();
        let width = self.global_heads.map_or(in_window, |heads| heads.d_head);
        let narrowest = if self.rotary_window_frequencies.is_some() { width } else { width.min(in_window) };
        if let Some(dim) = self.rotary_dim.filter(|dim| *dim > narrowest || !dim.is_multiple_of(2)) {
            return Err(value("rotary_dim", format!("even and at most {narrowest}"), dim.to_string(), ""));
        }
        for (field, frequencies, width) in [
            ("rotary_frequencies", &self.rotary_frequencies, width),
            ("rotary_window_frequencies", &self.rotary_window_frequencies, in_window),
        ] {
            let frequencies = frequencies.as_deref().unwrap_or_default();
            if 2 * frequencies.len() > width {
                let expected = format!("at most {} numbers, half the width of a head", width / 2);
                return Err(value(field, expected, format!("{} numbers", frequencies.len()), ""));
            }
            frequencies.iter().try_for_each(|&frequency| number(field, frequency, FINITE, "finite"))?;
        }
        self.check_disentangled()?;
        if !matches!(self.positions, Positions::Relative | Positions::LearnedRelative) {
            return Ok(());
        }
        if !(4..=MAX_SIZE).contains(&self.relative_buckets) {
            return Err(value("relative_buckets", "at least 4", self.relative_buckets.to_string(), ""));
        }
        if self.relative_max_distance <= self.relative_buckets {
            let expected = format!("more than relative_buckets = {}", self.relative_buckets);
            return Err(value("relative_max_distance", expected, self.relative_max_distance.to_string(), ""));
        }
        Ok(())
    }

    fn check_disentangled(&self) -> Result<(), ArchitectureError> {
        let Some(positions) = self.disentangled else { return Ok(()) };
        if !(2..=MAX_SIZE).contains(&positions.span) {
            return Err(value("disentangled.span", "at least 2", positions.span.to_string(), ""));
        }
        if let Some(most) = positions.max_distance.filter(|&most| most < positions.span / 2 + 2) {
            let expected = format!("at least disentangled.span / 2 + 2 = {}", positions.span / 2 + 2);
            return Err(value("disentangled.max_distance", expected, most.to_string(), ""));
        }
        if positions.scores() == 0 {
            return Err(value("disentangled", "keys or queries true", "neither".to_owned(), ""));
        }
        if self.attention_softcap.is_some() {
            return Err(value("attention_softcap", "absent with disentangled", "a cap".to_owned(), ""));
        }
        if !matches!(self.positions, Positions::None | Positions::Learned | Positions::Sinusoidal) {
            let got = self.positions.name().to_owned();
            return Err(value("positions", "none, learned or sinusoidal with disentangled", got, ""));
        }
        Ok(())
    }

    fn check_experts(&self) -> Result<(), ArchitectureError> {
        let Some(experts) = self.experts else { return Ok(()) };
        size("experts.n_experts", experts.n_experts, MAX_SIZE)?;
        size("experts.top_k", experts.top_k, experts.n_experts)?;
        size("experts.d_ff", experts.d_ff, MAX_SIZE)?;
        size("experts.every", experts.every, MAX_LAYERS)?;
        if experts.shared_d_ff > 0 {
            size("experts.shared_d_ff", experts.shared_d_ff, MAX_SIZE)?;
        }
        number("experts.scale", experts.scale, FINITE, "finite")?;
        number("experts.router_scale", experts.router_scale, POSITIVE, "finite and positive")?;
        if experts.own_norms && (experts.shared_d_ff == 0 || self.norm_placement != NormPlacement::Sandwich) {
            let expected = "false unless there are shared experts and norm_placement is sandwich";
            return Err(value("experts.own_norms", expected, "true", ""));
        }
        if experts.shared_gate && experts.shared_d_ff == 0 {
            return Err(value("experts.shared_gate", "false without shared experts", "true", ""));
        }
        Ok(())
    }

    /// Checks the stem and refuses fields that need token ids in a network with a stem.
    fn check_stem(&self) -> Result<(), ArchitectureError> {
        let scaled = (self.embedding_scale - 1.0).abs() > 0.0;
        let projected = self.embedding_width.is_some_and(|width| width != self.d_model);
        if self.segments && (scaled || projected) {
            let hint = "token_types gives every token the first segment";
            return Err(value("segments", "false with a scaled or projected token embedding", "true", hint));
        }
        let Some(stem) = self.stem else { return Ok(()) };
        first([
            ("segments", self.segments, "false with a stem", "true"),
            ("token_types", self.token_types > 0, "0 with a stem", "another number"),
            ("embedding_scale", scaled, "1 with a stem", "another number"),
            ("embedding_width", projected, "d_model with a stem", "another number"),
            ("shared_embedding", self.shared_embedding, "false with a stem, which embeds no ids", "true"),
        ])?;
        match stem {
            Stem::Patches { patch_width, class_token, distillation_token, registers, norm, .. } => {
                let learned = usize::from(class_token) + usize::from(distillation_token) + registers;
                size("stem.patch_width", patch_width, MAX_SIZE)?;
                first([
                    ("seq_len", self.seq_len <= learned, "more than the learned tokens before the patches", "no more"),
                    ("stem.norm", norm && self.norm().is_none(), "false without a norm", "true"),
                ])
            }
            Stem::Audio { n_mels } => size("stem.n_mels", n_mels, MAX_SIZE),
        }
    }

    /// Checks the distributions of single tensors.
    fn check_init(&self) -> Result<(), ArchitectureError> {
        for (name, TensorInit { std, cutoff, uniform }) in &self.init {
            let numbers = [*std, *uniform].into_iter().flatten();
            let fits = std.is_some() != uniform.is_some()
                && (cutoff.is_none() || std.is_some())
                && numbers.chain(*cutoff).all(|number| number.is_finite() && number >= 0.0)
                && cutoff.is_none_or(|cutoff| cutoff > 0.0);
            if !fits {
                let got = serde_json::to_string(&self.init[name]).expect("numbers are plain data");
                let expected =
                    "{std = x}, {std = x, cutoff = c} or {uniform = bound} with numbers that are finite, not negative";
                return Err(value("init", expected, format!("{name} = {got}"), "docs/model-files.md has examples"));
            }
        }
        Ok(())
    }

    fn check_decoder(&self) -> Result<(), ArchitectureError> {
        let Some(decoder) = &self.decoder else {
            return first([("shared_embedding", self.shared_embedding, "false without a decoder", "true")]);
        };
        let width = |side: &Self| side.embedding_width.unwrap_or(side.d_model);
        let same_table = decoder.vocab_size == self.vocab_size && width(decoder) == width(self);
        first([
            ("decoder.kind", decoder.kind != Kind::Encoder, "encoder: a Transformer", decoder.kind.name()),
            ("decoder.decoder", decoder.decoder.is_some(), "absent", "another decoder"),
            ("decoder.stem", decoder.stem.is_some(), "absent: decoders read ids", "one"),
            ("decoder.parallel", decoder.parallel != Parallel::None, "none", decoder.parallel.name()),
            (
                "decoder.init",
                !decoder.init.is_empty(),
                "absent: names of its tensors in `init` of the whole file begin with decoder.",
                "a table",
            ),
            ("decoder.latent", decoder.latent.is_some(), "absent with cross-attention", "one"),
            (
                "shared_embedding",
                self.shared_embedding && !same_table,
                "false unless both sides have the same vocab_size and embedding width",
                "true",
            ),
        ])
    }
}

/// Returns the error of the first field that contradicts another one. Each of the `contradictions` has the name of a
/// field, true if it contradicts, and in words the expected and the present state.
fn first<const N: usize>(
    contradictions: [(&'static str, bool, &'static str, &'static str); N],
) -> Result<(), ArchitectureError> {
    match contradictions.into_iter().find(|(_, contradictory, ..)| *contradictory) {
        Some((field, _, expected, got)) => Err(value(field, expected, got, "")),
        None => Ok(()),
    }
}

fn size(field: &'static str, got: usize, most: usize) -> Result<(), ArchitectureError> {
    if (1..=most).contains(&got) {
        Ok(())
    } else {
        Err(value(field, format!("between 1 and {most}"), got.to_string(), ""))
    }
}

fn number(
    field: &'static str,
    got: f64,
    range: RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), ArchitectureError> {
    if range.contains(&got) { Ok(()) } else { Err(value(field, expected, got.to_string(), "")) }
}

fn divides(field: &'static str, whole: &'static str, part: usize, total: usize) -> Result<(), ArchitectureError> {
    if total.is_multiple_of(part) {
        return Ok(());
    }
    let divisors = || (1..=total).filter(|candidate| total.is_multiple_of(*candidate));
    let below = divisors().filter(|divisor| *divisor < part).max();
    let above = divisors().find(|divisor| *divisor > part);
    let near: Vec<String> = below.into_iter().chain(above).map(|divisor| divisor.to_string()).collect();
    let hint = format!("nearest divisors: {}", near.join(", "));
    Err(value(field, format!("a divisor of {whole} = {total}"), part.to_string(), hint))
}

fn value(
    field: &'static str,
    expected: impl Into<String>,
    got: impl Into<String>,
    hint: impl Into<String>,
) -> ArchitectureError {
    ArchitectureError::Value { field, expected: expected.into(), got: got.into(), hint: hint.into() }
}
