//! DSLM, the reference recursion: DeepScaleLM as its authors' code computes it.
//!
//! # Formula
//!
//! For dropout rate p, m summed embeddings and correlation r of two tokens:
//!
//! ```text
//! embeddings (1 − p)/m        Q, K 1/d        V, O √((1 − p)/r_l)/d        FFN √((1 − p)/2)/d
//! x ↦ λ x + β f(x)            r_0 = r0 (1 − p)
//! attention  r_f = 1 − p      FFN  r_f = (1 − p) (r + (√(1 − r²) − r acos r)/π)
//! r ↦ (λ² v r + β² r_f)/v'    v ↦ v' = λ² v + β²
//! ```
//!
//! # Assumptions
//!
//! ReLU, `d_ff` = 4 d, flat attention. [`super::dslm`] has the general form.
//!
//! # Source
//!
//! Kedia et al. 2024 and `model/utils.py` of the authors' code, whose defaults λ² = 0.995, β² = 0.005 are the values
//! for 192 blocks. All matrices of a gated feed-forward network get the FFN variance.

use sigprop_stack::Init;

use super::dslm::{self, Weights};
use super::{About, Outer, Parameter, SchemeError, Table};
use crate::architecture::{Activation, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals};

pub(super) const ABOUT: About = About {
    name: "dslm-paper",
    parameters: &[
        Parameter::share("r0", 0.221),
        Parameter::scale("lambda2", Some(0.995)),
        Parameter::scale("beta2", Some(0.005)),
    ],
    rule: "embeddings variance (1 − p)/m each of m; Q, K 1/d; V, O √((1 − p)/r_l)/d with r_l by the reference recursion \
           from r0 (1 − p); feed-forward √((1 − p)/2)/d; skip_scale² lambda2, branch_scale² beta2",
    source: "Kedia et al. 2024 (DeepScaleLM) and the authors' model/utils.py; ReLU and d_ff = 4 d_model assumed",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| Box::new(DslmPaper { r0: values[0], lambda2: values[1], beta2: values[2] }),
};

#[derive(Debug)]
struct DslmPaper {
    r0: f64,
    lambda2: f64,
    beta2: f64,
}

impl Recipe for DslmPaper {
    fn fits(&self, architecture: &Resolved) -> Result<(), SchemeError> {
        dslm::needs_encoder(ABOUT.name, architecture)
    }

    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        dslm::embeddings(architecture).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        dslm::embeddings(architecture).outer(architecture, place, fans)
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        dslm::embeddings(architecture).sinusoid(architecture)
    }

    fn residuals<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        Ok(Residual::constant(self.lambda2.sqrt(), self.beta2.sqrt()).everywhere())
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let keep = 1.0 - architecture.dropout;
        let width = architecture.d_model as f64;
        let correlations = self.correlations(architecture.n_layers, keep);
        let weights = Weights {
            value_output: correlations.map(|r| (keep / r).sqrt()).collect(),
            ffn: (0.5 * keep).sqrt() / width,
        };
        Ok(Box::new(move |slot| weights.projection(slot)))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let special = architecture.activation == Activation::Relu && architecture.d_ff == 4 * architecture.d_model;
        (!special).then(|| "dslm-paper assumes ReLU and d_ff = 4 d_model; dslm does not".to_owned())
    }
}

impl DslmPaper {
    /// Returns the correlation r of two tokens at the input of every block.
    fn correlations(&self, n_layers: usize, keep: f64) -> impl Iterator<Item = f64> {
        let add = move |(r, variance): (f64, f64), branch_r: f64| {
            let total = self.lambda2 * variance + self.beta2;
            ((self.lambda2 * variance * r + self.beta2 * branch_r) / total, total)
        };
        let next = move |state: &(f64, f64)| {
            let attended = add(*state, keep);
            let r = attended.0;
            let relu = r + ((1.0 - r * r).max(0.0).sqrt() - r * r.min(1.0).acos()) / std::f64::consts::PI;
            Some(add(attended, keep * relu))
        };
        std::iter::successors(Some((self.r0 * keep, 1.0)), next).take(n_layers).map(|(r, _)| r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::recipe::{Role, Slot};
    use crate::schemes::Scheme;

    /// Setting of the reference values: d = 1024, p = 0.1, 192 blocks, three embeddings.
    fn reference() -> Resolved {
        let architecture = Architecture {
            n_layers: 192,
            dropout: 0.1,
            segments: true,
            activation: Activation::Relu,
            ..Architecture::default()
        };
        architecture.resolved().unwrap()
    }

    fn std(scheme: &str, role: Role, block: usize) -> f64 {
        let architecture = reference();
        let scheme = Scheme::parse(scheme).unwrap();
        let projections = scheme.recipe().projections(&architecture, &|| unreachable!("it follows no signal")).unwrap();
        let fans = Fans::new(1024, 1024);
        projections(&Slot { architecture: &architecture, role, block, fans, cross: false }).weight.std()
    }

    /// Values recomputed in f64 from `model/utils.py` of the authors' code, to the printed digits.
    #[test]
    fn value_and_output_follow_the_reference_recursion() {
        for (block, expected) in [
            (0, 0.045_577_652_5),
            (1, 0.045_328_419_7),
            (2, 0.045_087_637_1),
            (5, 0.044_411_502_8),
            (10, 0.043_416_363_1),
            (50, 0.038_665_555_1),
            (100, 0.035_963_605_2),
            (150, 0.034_525_863_9),
            (191, 0.033_787_877_8),
        ] {
            for role in [Role::Value, Role::AttentionOutput] {
                approx::assert_abs_diff_eq!(std("dslm-paper", role, block), expected, epsilon = 5.1e-11);
            }
        }
    }

    /// Values for λ = β = 1, recomputed in f64 from `model/utils.py` of the authors' code, to the printed digits.
    #[test]
    fn growing_streams_follow_the_reference_recursion() {
        for (block, expected) in [
            (0, 0.045_577_652_5),
            (1, 0.035_200_813_8),
            (2, 0.033_989_713_2),
            (10, 0.032_573_235_5),
            (191, 0.031_948_677_6),
        ] {
            let got = std("dslm-paper:lambda2=1,beta2=1", Role::Value, block);
            approx::assert_abs_diff_eq!(got, expected, epsilon = 5.1e-11);
        }
    }

    /// The correlation r after the last block, and for λ = β = 1 at the input of the last block, recomputed in f64 from
    /// `model/utils.py` of the authors' code.
    #[test]
    fn correlations_follow_the_reference_recursion() {
        for (lambda2, beta2, block, expected) in
            [(0.995, 0.005, 192, 0.659_715_559_3), (1.0, 1.0, 191, 0.823_817_563_9)]
        {
            let scheme = DslmPaper { r0: 0.221, lambda2, beta2 };
            let r = scheme.correlations(block + 1, 0.9).last().unwrap();
            approx::assert_abs_diff_eq!(r, expected, epsilon = 5.1e-11);
        }
    }

    /// Constants at d = 1024, p = 0.1, recomputed in f64 from the authors' code.
    #[test]
    fn constants_are_those_of_the_reference() {
        let architecture = reference();
        let scheme = Scheme::parse("dslm-paper").unwrap();
        let embedding = scheme.recipe().embedding(&architecture, Table::Segment).std();
        approx::assert_abs_diff_eq!(embedding, 0.547_722_557_5, epsilon = 5.1e-11);
        for role in [Role::FfnIn, Role::FfnOut] {
            approx::assert_abs_diff_eq!(std("dslm-paper", role, 7), 0.025_594_883_1, epsilon = 5.1e-11);
        }
        for role in [Role::Query, Role::Key] {
            approx::assert_abs_diff_eq!(std("dslm-paper", role, 7), 0.031_25, epsilon = 1e-15);
        }
    }
}
