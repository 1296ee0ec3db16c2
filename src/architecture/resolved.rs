//! The checked form of an architecture: every field filled in, every number in range.

use std::ops::RangeInclusive;

use sigprop_stack::{Norm, NormKind};

use super::{Activation, Architecture, ArchitectureError, Head, Kind, NormChoice, NormPlacement, Positions};

/// Largest size of anything but depth: products of three still fit in 64 bits with room to spare,
/// and the probabilities of as many ids are summed in under a second.
const MAX_SIZE: usize = 1 << 20;
/// Largest depth; a block takes a few kilobytes.
const MAX_LAYERS: usize = 100_000;

/// Where a block normalises, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the start of every branch.
    Pre,
    /// After every residual sum.
    Post,
}

/// An architecture with every field filled in and checked; fields as in [`Architecture`].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "documented at the fields of Architecture")]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a network")]
pub struct Resolved {
    pub name: String,
    pub kind: Kind,
    pub n_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_ff: usize,
    pub seq_len: usize,
    pub vocab_size: usize,
    pub activation: Activation,
    /// `None` if there are no norms.
    pub norm: Option<Norm>,
    pub placement: Placement,
    pub final_norm: bool,
    pub positions: Positions,
    pub segments: bool,
    pub embedding_norm: bool,
    pub biases: bool,
    pub dropout: f64,
    pub attention_dropout: f64,
    pub drop_path: f64,
    pub decoder: bool,
    pub residual: bool,
    pub skip_scale: Option<f64>,
    pub branch_scale: Option<f64>,
    pub head: Head,
}

impl Resolved {
    /// Width of a head.
    pub fn d_head(&self) -> usize {
        self.d_model / self.n_heads
    }

    /// Number of residual connections: two per block of an encoder, one per layer of an MLP that
    /// has them.
    pub fn residual_sublayers(&self) -> usize {
        match self.kind {
            Kind::Encoder => 2 * self.n_layers,
            Kind::Mlp if self.residual => self.n_layers,
            Kind::Mlp => 0,
        }
    }
}

impl Architecture {
    /// Fills in what was left open and checks everything.
    pub fn resolved(&self) -> Result<Resolved, ArchitectureError> {
        self.check_sizes()?;
        self.check_numbers()?;
        self.check_structure()?;
        let n_heads = self.n_heads.unwrap_or_else(|| default_heads(self.d_model));
        let n_kv_heads = self.n_kv_heads.unwrap_or(n_heads);
        divides("n_heads", "d_model", n_heads, self.d_model)?;
        divides("n_kv_heads", "n_heads", n_kv_heads, n_heads)?;
        let norm = self.norm_kind().map(|kind| Norm { kind, eps: self.norm_eps, gain: 1.0 });
        let placement = self.placement()?;
        Ok(Resolved {
            name: self.name.clone().unwrap_or_else(|| self.kind.name().to_owned()),
            kind: self.kind,
            n_layers: self.n_layers,
            d_model: self.d_model,
            n_heads,
            n_kv_heads,
            d_ff: self.d_ff.unwrap_or(4 * self.d_model),
            seq_len: self.seq_len,
            vocab_size: self.vocab_size,
            activation: self.activation,
            norm,
            placement,
            final_norm: self.final_norm.unwrap_or(match self.kind {
                Kind::Encoder => norm.is_some() && placement == Placement::Pre,
                Kind::Mlp => false,
            }),
            positions: self.positions,
            segments: self.segments,
            embedding_norm: self.embedding_norm,
            biases: self.biases,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            drop_path: self.drop_path,
            decoder: self.decoder,
            residual: self.has_residual(),
            skip_scale: self.skip_scale,
            branch_scale: self.branch_scale,
            head: self.head,
        })
    }

    fn norm_kind(&self) -> Option<NormKind> {
        let default = match self.kind {
            Kind::Encoder => NormChoice::Layernorm,
            Kind::Mlp => NormChoice::None,
        };
        match self.norm.unwrap_or(default) {
            NormChoice::Layernorm => Some(NormKind::LayerNorm),
            NormChoice::Rmsnorm => Some(NormKind::RmsNorm),
            NormChoice::None => None,
        }
    }

    fn has_residual(&self) -> bool {
        self.residual.unwrap_or(self.kind == Kind::Encoder)
    }

    fn placement(&self) -> Result<Placement, ArchitectureError> {
        match self.norm_placement {
            NormPlacement::Pre => Ok(Placement::Pre),
            NormPlacement::Post => Ok(Placement::Post),
            NormPlacement::Sandwich | NormPlacement::Reordered | NormPlacement::Sub => {
                Err(ArchitectureError::Unsupported {
                    field: "norm_placement",
                    got: self.norm_placement.to_string(),
                    reason: "blocks normalise before their branches (pre) or after the residual sum (post)",
                })
            }
        }
    }

    fn check_sizes(&self) -> Result<(), ArchitectureError> {
        size("n_layers", self.n_layers, MAX_LAYERS)?;
        let sizes = [
            ("d_model", Some(self.d_model)),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("d_ff", self.d_ff),
            ("seq_len", self.seq_len.into()),
            ("vocab_size", self.vocab_size.into()),
        ];
        sizes.into_iter().try_for_each(|(field, got)| got.map_or(Ok(()), |got| size(field, got, MAX_SIZE)))
    }

    fn check_numbers(&self) -> Result<(), ArchitectureError> {
        number("norm_eps", self.norm_eps, 0.0..=f64::MAX, "finite and not negative")?;
        for (field, rate) in
            [("dropout", self.dropout), ("attention_dropout", self.attention_dropout), ("drop_path", self.drop_path)]
        {
            number(field, rate, 0.0..=1.0 - f64::EPSILON, "in [0, 1)")?;
        }
        for (field, scale) in [("skip_scale", self.skip_scale), ("branch_scale", self.branch_scale)] {
            number(field, scale.unwrap_or(1.0), f64::MIN..=f64::MAX, "finite")?;
        }
        Ok(())
    }

    /// Fields that contradict each other.
    fn check_structure(&self) -> Result<(), ArchitectureError> {
        if self.causal {
            return Err(ArchitectureError::Unsupported {
                field: "causal",
                got: "true".to_owned(),
                reason: "under a causal mask every pair of tokens differs, which needs the Gram domain",
            });
        }
        let no_norm = self.norm_kind().is_none();
        let is_mlp = self.kind == Kind::Mlp;
        let has_scales = self.skip_scale.is_some() || self.branch_scale.is_some();
        let contradictions = [
            ("final_norm", no_norm && self.final_norm == Some(true), "false without a norm", "true"),
            ("embedding_norm", no_norm && self.embedding_norm, "false without a norm", "true"),
            ("embedding_norm", is_mlp && self.embedding_norm, "false in an MLP", "true"),
            ("segments", is_mlp && self.segments, "false in an MLP", "true"),
            ("activation", is_mlp && self.activation.is_gated(), "not gated in an MLP", self.activation.name()),
            ("head", is_mlp && self.head != Head::None, "none in an MLP", self.head.name()),
            ("residual", !is_mlp && self.residual == Some(false), "true in an encoder", "false"),
            ("skip_scale, branch_scale", !self.has_residual() && has_scales, "absent without residual", "a number"),
        ];
        match contradictions.into_iter().find(|(_, contradictory, ..)| *contradictory) {
            Some((field, _, expected, got)) => Err(value(field, expected, got, "")),
            None => Ok(()),
        }
    }
}

/// The largest divisor of `width` that leaves heads of 64 or more.
fn default_heads(width: usize) -> usize {
    let most = (width / 64).max(1);
    (1..=most).rev().find(|heads| width.is_multiple_of(*heads)).expect("1 divides every width")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(architecture: &Architecture) -> String {
        architecture.resolved().unwrap_err().to_string()
    }

    fn plain() -> Architecture {
        Architecture::default()
    }

    #[test]
    fn the_plain_encoder_is_the_documented_one() {
        let resolved = plain().resolved().unwrap();
        let shape = [resolved.n_layers, resolved.d_model, resolved.n_heads, resolved.n_kv_heads, resolved.d_ff];
        assert_eq!(shape, [12, 1024, 16, 16, 4096]);
        assert_eq!((resolved.seq_len, resolved.vocab_size), (256, 32_000));
        assert_eq!(resolved.norm, Some(Norm { kind: NormKind::LayerNorm, eps: 1e-5, gain: 1.0 }));
        assert!(resolved.final_norm && resolved.residual && resolved.biases);
    }

    #[test]
    fn open_fields_follow_the_others() {
        let heads = |d_model| Architecture { d_model, ..plain() }.resolved().unwrap().n_heads;
        assert_eq!([256, 320, 100, 63, 1].map(heads), [4, 5, 1, 1, 1]);
        // The largest divisor of 1000 up to 1000/64 = 15.
        assert_eq!(heads(1000), 10);
        let final_norm = |architecture: Architecture| architecture.resolved().unwrap().final_norm;
        assert!(!final_norm(Architecture { norm_placement: NormPlacement::Post, ..plain() }));
        assert!(!final_norm(Architecture { norm: Some(NormChoice::None), ..plain() }));
        assert!(!final_norm(Architecture { norm: Some(NormChoice::Rmsnorm), ..Architecture::mlp() }));
        assert_eq!(Architecture::mlp().resolved().unwrap().norm, None);
        assert_eq!(Architecture::mlp().resolved().unwrap().residual_sublayers(), 0);
        assert_eq!(plain().resolved().unwrap().residual_sublayers(), 24);
    }

    #[test]
    fn heads_must_divide_the_width() {
        let got = message(&Architecture { n_heads: Some(7), ..plain() });
        assert_eq!(got, "n_heads must be a divisor of d_model = 1024, got 7; nearest divisors: 4, 8");
        let got = message(&Architecture { n_kv_heads: Some(32), ..plain() });
        assert_eq!(got, "n_kv_heads must be a divisor of n_heads = 16, got 32; nearest divisors: 16");
    }

    #[test]
    fn sizes_and_numbers_must_be_in_range() {
        assert_eq!(message(&Architecture { d_model: 0, ..plain() }), "d_model must be between 1 and 1048576, got 0");
        assert_eq!(
            message(&Architecture { n_layers: 100_001, ..plain() }),
            "n_layers must be between 1 and 100000, got 100001"
        );
        assert_eq!(message(&Architecture { dropout: 1.0, ..plain() }), "dropout must be in [0, 1), got 1");
        assert_eq!(message(&Architecture { drop_path: f64::NAN, ..plain() }), "drop_path must be in [0, 1), got NaN");
        assert_eq!(
            message(&Architecture { norm_eps: -1.0, ..plain() }),
            "norm_eps must be finite and not negative, got -1"
        );
        assert_eq!(
            message(&Architecture { branch_scale: Some(f64::INFINITY), ..plain() }),
            "branch_scale must be finite, got inf"
        );
    }

    #[test]
    fn contradictions_and_what_is_not_computed_are_refused() {
        let none = || Architecture { norm: Some(NormChoice::None), ..plain() };
        let mlp = Architecture::mlp;
        for (architecture, expected) in [
            (Architecture { causal: true, ..plain() }, "causal true is not supported yet: under a causal mask"),
            (
                Architecture { norm_placement: NormPlacement::Sandwich, ..plain() },
                "norm_placement sandwich is not supported yet",
            ),
            (Architecture { final_norm: Some(true), ..none() }, "final_norm must be false without a norm, got true"),
            (Architecture { embedding_norm: true, ..none() }, "embedding_norm must be false without a norm"),
            (Architecture { residual: Some(false), ..plain() }, "residual must be true in an encoder, got false"),
            (Architecture { segments: true, ..mlp() }, "segments must be false in an MLP"),
            (Architecture { activation: Activation::Swiglu, ..mlp() }, "activation must be not gated in an MLP"),
            (Architecture { head: Head::Tied, ..mlp() }, "head must be none in an MLP"),
            (Architecture { skip_scale: Some(1.0), ..mlp() }, "skip_scale, branch_scale must be absent"),
        ] {
            let got = message(&architecture);
            assert!(got.starts_with(expected), "expected {expected}…, got {got}");
        }
    }
}
