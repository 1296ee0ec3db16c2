//! Admin as published: ω follows from the variances of the branches. The authors measure them; here they are predicted.
//!
//! # Formula
//!
//! Along the stream, at residual connection i with input x and branch f:
//!
//! ```text
//! ω_0 = 1     ω_(i+1)² = Var(ω_i x + f(x))
//! ```
//!
//! After a norm Var x = 1, so that ω_i² is the sum of the variances of all earlier branches.
//!
//! # Source
//!
//! Liu et al. 2020, *Understanding the Difficulty of Training Transformers*, section 4.2; the authors'
//! Transformer-Clinic (`init-type adaptive-profiling`) for the part before the first norm. Weights are drawn as in
//! fairseq, where Admin was made.

use sigprop_stack::Op;

use super::admin;
use super::xavier::Packed;
use super::{About, Outer, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::{Blocks, Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals};

pub(super) const ABOUT: About = About {
    name: "admin-profiled",
    parameters: &[],
    rule: "skip_scale ω with ω_0 = 1, ω_(i+1)² = Var(ω_i x + f(x)) at residual connection i, predicted; branch_scale \
           1; weights as xavier-packed",
    source: "Liu et al. 2020 (Admin), section 4.2; the authors' Transformer-Clinic, which measures one batch; for \
             post-norm",
    touches: "all linear weights, scales of the residual connections",
    build: |_| Box::new(AdminProfiled),
};

#[derive(Debug)]
struct AdminProfiled;

impl Recipe for AdminProfiled {
    fn fits(&self, architecture: &Resolved) -> Result<(), SchemeError> {
        if architecture.decoder.is_none() && architecture.memory_width.is_none() {
            return Ok(());
        }
        let got = "an encoder and a decoder".to_owned();
        Err(SchemeError::Undefined { scheme: ABOUT.name, expected: "a single stream".to_owned(), got })
    }

    fn residuals<'a>(&'a self, architecture: &'a Resolved, entrance: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let projections = self.projections(architecture, entrance)?;
        let blocks = Blocks::new(architecture, self, &|_| Residual::constant(1.0, 1.0), true, "");
        let mut pass = entrance()?;
        let (mut profile, mut omega) = (Vec::new(), 1.0);
        for index in 0..architecture.n_layers {
            let block = blocks.block(index, &*projections).node();
            let body = if let Op::Chain(body) = block.op { body } else { vec![block] };
            for mut node in body {
                let Op::Sum(sum) = &mut node.op else {
                    pass.through(&[node])?;
                    continue;
                };
                sum.branches[0].scale = omega;
                profile.extend(vec![omega; sum.branches.len() - 1]);
                pass.through(&[node])?;
                omega = pass.second_moment().sqrt();
                if !omega.is_normal() {
                    let (expected, got) = ("a finite signal".to_owned(), format!("ω = {omega} in block {index}"));
                    return Err(SchemeError::Undefined { scheme: ABOUT.name, expected, got });
                }
            }
        }
        Ok(Box::new(move |connection| Residual::constant(profile[connection], 1.0)))
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        Packed.outer(architecture, place, fans)
    }

    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance,
    ) -> Result<Projections<'a>, SchemeError> {
        Packed.projections(architecture, entrance)
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        admin::caveat(architecture)
    }
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Named;

    use crate::architecture::{Activation, Architecture, NormPlacement};
    use crate::assemble::{Input, Run, assemble};
    use crate::schemes::Scheme;

    /// Returns the scales of all skip connections, for tokens that are copies of each other.
    fn omegas(architecture: &Architecture) -> Vec<f64> {
        let scheme = Scheme::parse("admin-profiled").unwrap();
        let mut stack = assemble(architecture, &scheme, &Input::Correlation(1.0), &Run::default()).unwrap().stack;
        let mut found = Vec::new();
        stack.change(|named| {
            if let Named::Sum(_, sum) = named {
                found.push(sum.branches[0].scale);
            }
        });
        found
    }

    /// Attention passes copies on unchanged; values of gain 1/√2 give its branch ½ of the variance of its input. ReLU
    /// passes half of the second moment that Xavier weights of variance 2/(5 d) give unit input, so that the
    /// feed-forward branch has 0.4 · ½ · 1.6 = 0.32. The two embeddings of std 1/√256 enter with variance 2/256, so
    /// that the first branch has 1/256.
    #[test]
    fn omega_sums_up_the_branches() {
        let architecture = Architecture {
            d_model: 256,
            n_layers: 3,
            activation: Activation::Relu,
            norm_placement: NormPlacement::Post,
            norm_eps: 0.0,
            ..Architecture::default()
        };
        let first = 3.0 / 256.0;
        let expected = [1.0, first, first + 0.32, first + 0.82, first + 1.14, first + 1.64];
        let got = omegas(&architecture);
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.into_iter().zip(expected) {
            // LayerNorm removes one of 256 degrees of freedom.
            approx::assert_relative_eq!(got * got, expected, max_relative = 5e-3);
        }
    }

    #[test]
    fn two_streams_are_refused() {
        let decoder = Some(Box::new(Architecture::default()));
        let architecture = Architecture { decoder, ..Architecture::default() }.resolved().unwrap();
        let error = Scheme::parse("admin-profiled").unwrap().recipe().fits(&architecture).unwrap_err();
        assert!(error.to_string().contains("a single stream"), "{error}");
    }
}
