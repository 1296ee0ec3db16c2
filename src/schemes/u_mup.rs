//! u-muP: unit-scaled weights, and residual scales that give embedding, attention and feed-forward networks the shares
//! in the stream that `res` and `res-attn-ratio` set.
//!
//! # Formula
//!
//! There are S residual connections, counted from 0; every second is a feed-forward network. A = `res-attn-ratio`:
//!
//! ```text
//! a_ffn² = 2 res²/(1 + A²)     a_attn² = A² a_ffn²     τ_i² = a²/(S/2 + ⌈i/2⌉ a_attn² + ⌊i/2⌋ a_ffn²)
//! skip_scale 1/√(1 + τ²)       branch_scale τ/√(1 + τ²)
//! sum of embeddings std 1      linear maps 1/√fan_in     head 1/fan_in
//! Adam    tables std/√fan_out  linear maps std/√(S · fan_in)   head 1/fan_in      biases, gains 1/√S in blocks
//! SGD     tables fan_out       linear maps 1             head 1/fan_in            biases, gains fan_out
//! scores attn-softmax q·k/d_head          gate or activation φ(ffn-act x)/ffn-act
//! ```
//!
//! Factors that u-muP applies in the forward pass are written into the adjacent weights: the factor of scores into
//! queries and keys, `ffn-act` into the map before the activation and 1/`ffn-act` into the map after it. The last maps
//! of attention and feed-forward networks have a factor that gives the output variance 1:
//!
//! ```text
//! attention              √(1 − p)/σ     ln σ = −½ (1 − s) ln(n/m)     s = 1/(1 + 4 d_head/attn-softmax²)
//! feed-forward network   1/√(second moment that it would have otherwise, for Gaussian input of variance 1)
//! ```
//!
//! 1 − p is the share that dropout of attention weights and of the branch keeps. For n tokens m = 1, or ln n if
//! attention is causal. Learning rates are those of the written weights: where u-muP multiplies N(0, 1) weights by std
//! in the forward pass, the steps of Adam are multiplied by std too. Under SGD they are the rates of muP from width 1:
//! the authors' rates are for gradients that are scaled to unit variance.
//!
//! σ assumes independent tokens. Attention makes tokens correlated, and their common part is not averaged away: later
//! attention branches have more than variance 1 at initialisation.
//!
//! # Source
//!
//! Blake et al. 2024, *u-μP: The Unit-Scaled Maximal Update Parametrization*, table 2 and appendices B and G; the
//! authors' unit-scaling, `core/functional.py`, `functional.py` and `optim.py`. SGD: Tensor Programs V, table 3. There
//! the factors of SiLU and GELU are fits (without a gate, to the std about the mean); here the second moment is
//! predicted, for every activation.

use sigprop_stack::{Init, LearningRates};

use super::embeddings::Summed;
use super::{About, Outer, Parameter, Role, SchemeError, Table, dslm};
use crate::architecture::{NormPlacement, Parallel, QkNorm, Resolved};
use crate::predict::Theory;
use crate::recipe::{
    Blocks, Entrance, Fans, Growth, Projection, Projections, Rates, Recipe, Residual, Residuals, Slot, StreamPosition,
    Trained, normal,
};

pub(super) const ABOUT: About = About {
    name: "u-mup",
    parameters: &[
        Parameter::positive("res", 1.0),
        Parameter::positive("res-attn-ratio", 1.0),
        Parameter::positive("attn-softmax", 1.0),
        Parameter::positive("ffn-act", 1.0),
    ],
    rule: "sum of embeddings std 1, weights 1/√fan_in, head 1/fan_in; scores attn-softmax q·k/d_head, written into \
           queries and keys; last maps of branches such that these leave with variance 1; skip_scale 1/√(1 + τ²), \
           branch_scale τ/√(1 + τ²) with τ_i² = a²/(S/2 + ⌈i/2⌉ a_attn² + ⌊i/2⌋ a_ffn²), \
           a_ffn² = 2 res²/(1 + res-attn-ratio²), a_attn = res-attn-ratio · a_ffn, S residual connections. Adam \
           learning rates of what is written: tables std/√fan_out, weights std/√(S · fan_in), head 1/fan_in; SGD as muP \
           from width 1",
    source: "Blake et al. 2024 (u-μP), table 2, appendices B and G; the authors' unit-scaling; for norm placement pre",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| {
        let &[res, ratio, softmax, activation] = values else { unreachable!("as many values as parameters") };
        Box::new(UMup { res, ratio, softmax, activation })
    },
};

#[derive(Debug)]
struct UMup {
    res: f64,
    /// The ratio of the contributions of attention and of feed-forward networks to the stream (`res-attn-ratio`).
    ratio: f64,
    softmax: f64,
    activation: f64,
}

impl Recipe for UMup {
    fn fits(&self, architecture: &Resolved) -> Result<(), SchemeError> {
        dslm::needs_encoder(ABOUT.name, architecture)?;
        let parallel = architecture.parallel != Parallel::None;
        let normed = architecture.qk_norm != QkNorm::None || architecture.latent.is_some();
        let two_streams = architecture.decoder.is_some() || architecture.memory_width.is_some();
        let without_scores = architecture.attention_scale <= 0.0;
        let needs = [
            (two_streams, "a single stream", "an encoder and a decoder"),
            (parallel, "attention and feed-forward networks one after the other", "parallel blocks"),
            (normed, "queries and keys that are linear maps of the input", "norms before scores"),
            (without_scores, "a positive attention_scale", "another one"),
            (architecture.experts.is_some(), "feed-forward networks that all tokens go through", "experts"),
        ];
        match needs.into_iter().find(|(lacking, ..)| *lacking) {
            None => Ok(()),
            Some((_, expected, got)) => {
                let (expected, got) = (expected.to_owned(), got.to_owned());
                Err(SchemeError::Undefined { scheme: ABOUT.name, expected, got })
            }
        }
    }

    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        Summed(1.0).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        match place {
            Outer::Head => normal((fans.fan_in as f64).recip()).into(),
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Stem => Summed(1.0).outer(architecture, place, fans),
        }
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        Summed(1.0).sinusoid(architecture)
    }

    fn residuals<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let half = architecture.residual_sublayers() as f64 / 2.0;
        let ffn = 2.0 * self.res.powi(2) / (1.0 + self.ratio.powi(2));
        let attention = self.ratio.powi(2) * ffn;
        Ok(Box::new(move |connection| {
            let own = if connection.is_multiple_of(2) { attention } else { ffn };
            let before = connection.div_ceil(2) as f64 * attention + (connection / 2) as f64 * ffn;
            let ratio = (own / (half + before)).sqrt();
            let skip = ratio.hypot(1.0).recip();
            Residual::constant(skip, skip * ratio)
        }))
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let attention = ((1.0 - architecture.attention_dropout) * (1.0 - architecture.dropout)).sqrt()
            / self.attention_std(architecture);
        let plain = |slot: &Slot| normal(self.gain(slot) * slot.fans.lecun_std()).into();
        let residuals = |_| Residual::constant(1.0, 1.0);
        let blocks = Blocks::new(architecture, self, &residuals, true, "");
        let mut pass = dslm::unit_input(architecture, Theory::default());
        pass.through(&blocks.block(0, &plain).feed_forward())?;
        let ffn = pass.second_moment().sqrt().recip();
        Ok(Box::new(move |slot| {
            let last = match slot.role {
                Role::AttentionOutput => attention,
                Role::FfnOut => ffn,
                Role::Query
                | Role::QueryDown
                | Role::Key
                | Role::Value
                | Role::KvDown
                | Role::Taps
                | Role::Step
                | Role::FfnIn
                | Role::FfnGate
                | Role::FfnUp
                | Role::Router
                | Role::ExpertOut
                | Role::Hidden => 1.0,
            };
            normal(last * self.gain(slot) * slot.fans.lecun_std()).into()
        }))
    }

    fn learning_rates<'a>(&'a self, architecture: &'a Resolved) -> Option<Rates<'a>> {
        Some(Box::new(|&Trained { growth, place, fans, std }| {
            let [fan_in, fan_out] = [fans.fan_in, fans.fan_out].map(|fan| fan as f64);
            let deep = match place {
                StreamPosition::Block(_) => (architecture.residual_sublayers() as f64).sqrt().recip(),
                StreamPosition::Embeddings | StreamPosition::End => 1.0,
            };
            let (sgd, adam) = match growth {
                Growth::Vector => (fan_out, 1.0),
                Growth::Input => (fan_out, std / fan_out.sqrt()),
                Growth::Hidden => (1.0, std / fan_in.sqrt()),
                Growth::Output => (fan_in.recip(), std),
            };
            LearningRates { sgd, adam: adam * deep }
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let pre = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Pre;
        (!pre || architecture.skip_from_norm)
            .then(|| "u-muP is defined for Transformers whose branches alone start with a norm".to_owned())
    }
}

impl UMup {
    /// The factor that u-muP applies in the forward pass to queries and keys, or to the input of the activation.
    fn gain(&self, slot: &Slot) -> f64 {
        let architecture = slot.architecture;
        match slot.role {
            Role::Query | Role::Key => {
                let by_layer = if architecture.attention_scale_by_layer { (slot.block + 1) as f64 } else { 1.0 };
                (by_layer * self.softmax / (architecture.d_head as f64 * architecture.attention_scale)).sqrt()
            }
            Role::FfnIn | Role::FfnGate => self.activation,
            Role::QueryDown
            | Role::KvDown
            | Role::Taps
            | Role::Step
            | Role::Value
            | Role::AttentionOutput
            | Role::FfnUp
            | Role::FfnOut
            | Role::Router
            | Role::ExpertOut
            | Role::Hidden => 1.0,
        }
    }

    /// Returns the standard deviation σ of the output of attention, for independent values of variance 1.
    fn attention_std(&self, architecture: &Resolved) -> f64 {
        let tokens = architecture.seq_len as f64;
        let sharp = (1.0 + 4.0 * architecture.d_head as f64 / self.softmax.powi(2)).recip();
        // A single token attends only to itself.
        let seen = if architecture.causal && tokens > 1.0 { tokens / tokens.ln() } else { tokens };
        seen.powf(-0.5 * (1.0 - sharp))
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use sigprop_stack::Quantity;

    use crate::architecture::{Activation, Architecture, Parallel, QkNorm};
    use crate::assemble::{Input, Run, assemble};
    use crate::recipe::{Fans, Residual, Role, Slot};
    use crate::schemes::Scheme;
    use crate::{Sites, predict};

    fn residuals(scheme: &str, n_layers: usize) -> Vec<Residual> {
        let architecture = Architecture { n_layers, ..Architecture::default() }.resolved().unwrap();
        let scheme = Scheme::parse(scheme).unwrap();
        let residuals = scheme.recipe().residuals(&architecture, &|| unreachable!("it follows no signal")).unwrap();
        (0..2 * n_layers).map(residuals).collect()
    }

    /// The shares of embedding, attention and feed-forward networks in the variance at the end, for branches of
    /// variance 1.
    fn shares(scheme: &str, n_layers: usize) -> [f64; 3] {
        let mut shares = [1.0, 0.0, 0.0];
        for (connection, Residual { skip, branch, .. }) in residuals(scheme, n_layers).into_iter().enumerate() {
            assert_relative_eq!(skip * skip + branch * branch, 1.0, max_relative = 1e-12);
            for share in &mut shares {
                *share *= skip * skip;
            }
            shares[1 + connection % 2] += branch * branch;
        }
        shares
    }

    /// The authors' `transformer_residual_scaling_rule`: τ² is 1/(2 + i) for S = 4. All contribute equally at 1 and 1;
    /// `res` is the ratio of branches to the embedding, `res-attn-ratio` that of attention to feed-forward networks.
    #[test]
    fn residual_scales_share_out_the_stream() {
        for (connection, Residual { skip, branch, .. }) in residuals("u-mup", 2).into_iter().enumerate() {
            assert_relative_eq!((branch / skip).powi(2), 1.0 / (2 + connection) as f64, max_relative = 1e-12);
        }
        for n_layers in [1, 12, 96] {
            for share in shares("u-mup", n_layers) {
                assert_relative_eq!(share, 1.0 / 3.0, max_relative = 1e-12);
            }
            let [embedding, attention, ffn] = shares("u-mup:res=0.5,res-attn-ratio=0.25", n_layers);
            assert_relative_eq!((0.5 * (attention + ffn) / embedding).sqrt(), 0.5, max_relative = 1e-12);
            assert_relative_eq!((attention / ffn).sqrt(), 0.25, max_relative = 1e-12);
        }
    }

    /// The standard deviation of a weight over 1/√fan_in.
    fn gain(scheme: &str, architecture: &Architecture, role: Role) -> f64 {
        let architecture = &architecture.resolved().unwrap();
        let scheme = Scheme::parse(scheme).unwrap();
        let projections = scheme.recipe().projections(architecture, &|| unreachable!("it follows no signal")).unwrap();
        let fans = Fans::new(1024, 1024);
        projections(&Slot { architecture, role, block: 1, fans, cross: false }).weight.std() * 32.0
    }

    /// Scores q·k/64 in place of q·k/8; σ as the authors' functions give it for 256 tokens, d_head 64 and multipliers 1
    /// and 4; GELU as E φ² of N(0, 1), 0.42522, by quadrature; the authors' fit for gated SiLU, which is 0.3 % off.
    #[test]
    fn factors_of_the_forward_pass_are_in_the_weights() {
        let plain = Architecture::default();
        assert_relative_eq!(gain("u-mup", &plain, Role::Query), 8f64.powf(-0.5), max_relative = 1e-12);
        assert_relative_eq!(gain("u-mup:attn-softmax=4", &plain, Role::Key), 0.5f64.sqrt(), max_relative = 1e-12);
        let causal = Architecture { causal: true, ..plain.clone() };
        for (architecture, softmax, expected) in
            [(&plain, 1, 15.828_315), (&causal, 1, 6.744_104), (&causal, 4, 6.070_319)]
        {
            let scheme = format!("u-mup:attn-softmax={softmax}");
            let got = gain(&scheme, architecture, Role::AttentionOutput);
            assert_relative_eq!(got, expected, max_relative = 1e-6);
        }
        assert_relative_eq!(gain("u-mup", &plain, Role::FfnOut), 0.425_22f64.powf(-0.5), max_relative = 2e-5);
        let gated = Architecture { activation: Activation::Swiglu, ..plain };
        let fit = |multiplier: f64| 2f64.powf(1.0 - 0.5 / (1.0 + multiplier.powi(-2)));
        assert_relative_eq!(gain("u-mup", &gated, Role::FfnOut), fit(1.0), max_relative = 5e-3);
        assert_relative_eq!(gain("u-mup:ffn-act=4", &gated, Role::FfnGate), 4.0, max_relative = 1e-12);
        // The product of gate and output: φ(4x)/4.
        assert_relative_eq!(4.0 * gain("u-mup:ffn-act=4", &gated, Role::FfnOut), fit(4.0), max_relative = 2e-2);
    }

    /// In the first block tokens are independent, as the fit for attention assumes: no attention has correlated them
    /// yet.
    #[test]
    fn the_first_block_leaves_with_variance_one() {
        let architecture = Architecture { n_layers: 1, ..Architecture::default() };
        let scheme = Scheme::parse("u-mup").unwrap();
        let stack = assemble(&architecture, &scheme, &Input::Correlation(0.0), &Run::default()).unwrap().stack;
        let table = predict(&stack, Sites::Stream).unwrap().table;
        for row in table.stream_sites() {
            let variance = row.value(Quantity::Variance).unwrap().value();
            assert_relative_eq!(variance, 1.0, max_relative = 0.02);
        }
    }

    #[test]
    fn it_says_where_it_is_not_defined() {
        let plain = Architecture::default;
        let fits = |architecture: Architecture| {
            let scheme = Scheme::parse("u-mup").unwrap();
            scheme.recipe().fits(&architecture.resolved().unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(fits(plain()), Ok(()));
        for (architecture, reason) in [
            (Architecture::mlp(), "an MLP"),
            (Architecture { qk_norm: QkNorm::Head, ..plain() }, "norms before scores"),
            (Architecture { parallel: Parallel::SharedNorm, ..plain() }, "parallel blocks"),
            (Architecture { attention_scale: Some(0.0), ..plain() }, "a positive attention_scale"),
            (Architecture { decoder: Some(Box::new(plain())), ..plain() }, "an encoder and a decoder"),
        ] {
            assert!(fits(architecture).is_err_and(|text| text.contains(reason)), "{reason}");
        }
    }
}
