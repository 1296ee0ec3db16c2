//! A recurrence over positions: state-space models, linear attention and the (gated) delta rule.

use serde::{Deserialize, Serialize};

use crate::Node;

/// A linear recurrence with one matrix-valued state per head, S ∈ R^(`d_key` × `d_value`), which starts at zero:
///
/// ```text
/// S_t = diag(α_t) S_(t−1) + η_t k_t u_tᵀ     u_t = v_t − [delta] (diag(α_t) S_(t−1))ᵀ k_t     y_t = scale S_tᵀ q_t + D v_t
/// ```
///
/// where q, k, v are the outputs of chains, α is the decay, η is the strength of a write and D is the skip. Output
/// width: `n_heads` · `d_value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrence {
    /// Number of heads of values, each with a state of its own. Mamba-1 has one per feature.
    pub n_heads: usize,
    /// Number of heads of queries and keys; head h uses query and key head ⌊h · `n_key_heads` / `n_heads`⌋.
    pub n_key_heads: usize,
    /// Width of one head of queries and keys: the size of a state per value.
    pub d_key: usize,
    /// Width of one head of values.
    pub d_value: usize,
    /// Factor on the output of the state.
    pub scale: f64,
    /// The decay α of the state from one position to the next.
    pub decay: Decay,
    /// The strength η of a write.
    pub write: Write,
    /// True if a write first erases the value that the state holds for its key (delta rule).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delta: bool,
    /// The initial value of D, a parameter per head that multiplies values; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<f64>,
    /// Chain from the input to the queries (width `n_key_heads` · `d_key`).
    pub query: Vec<Node>,
    /// Chain from the input to the keys (width `n_key_heads` · `d_key`).
    pub key: Vec<Node>,
    /// Chain from the input to the values (width `n_heads` · `d_value`).
    pub value: Vec<Node>,
}

/// The decay α of a state from one position to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// α = e^(−rate) with a given rate per head: lightning attention, RetNet; linear attention for rates of zero.
    Fixed {
        /// Rates, one per head.
        rates: Vec<f64>,
    },
    /// α = e^(−A dt) with the step dt = softplus(a + b), where a is the output of a chain, b is a bias and A is a
    /// positive rate.
    Stepped(Stepped),
}

/// A decay that depends on the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stepped {
    /// Chain from the input to a; width `n_heads`, or `n_heads` · `d_key` for steps per channel.
    pub step: Vec<Node>,
    /// True if each channel of the keys has a step and a bias of its own; false if a head has one for all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub step_per_channel: bool,
    /// The distribution of b, one number per step.
    pub bias: StepBias,
    /// The distribution of A.
    pub rates: Rates,
    /// True if each channel of the keys has a rate of its own; false if a head has one for all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rate_per_channel: bool,
}

/// The distribution of the rates A; the parameter is ln A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rates {
    /// A = 1, 2, …, over heads or over channels.
    Counted,
    /// A is uniform between two bounds.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
}

/// The distribution of the bias b of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepBias {
    /// Every bias has this value.
    Value(f64),
    /// softplus(b), the step without input, is log-uniform between two bounds.
    LogUniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
}

/// The strength η of a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// η = 1.
    One,
    /// η = dt, the step of the decay (state-space models).
    Step,
    /// η = `factor` · σ(b), where b is the output of a chain.
    Sigmoid {
        /// Largest strength.
        factor: f64,
        /// Chain from the input to b; width `n_heads`.
        strength: Vec<Node>,
    },
}

impl Recurrence {
    /// Returns the chains on the input: query, key, value and, where they exist, step and strength.
    pub fn parts(&self) -> impl Iterator<Item = &Vec<Node>> {
        let step = self.stepped().map(|stepped| &stepped.step);
        let strength = match &self.write {
            Write::One | Write::Step => None,
            Write::Sigmoid { strength, .. } => Some(strength),
        };
        [&self.query, &self.key, &self.value].into_iter().chain(step).chain(strength)
    }

    /// Returns the widths of [`Self::parts`].
    pub fn widths(&self) -> impl Iterator<Item = usize> {
        let keys = self.n_key_heads * self.d_key;
        let step = self.stepped().map(|stepped| self.n_heads * if stepped.step_per_channel { self.d_key } else { 1 });
        let strength = matches!(self.write, Write::Sigmoid { .. }).then_some(self.n_heads);
        [keys, keys, self.n_heads * self.d_value].into_iter().chain(step).chain(strength)
    }

    /// Returns the parameters that are not in a chain, by the ends of their names, with their shapes.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, [usize; 2])> {
        let channels = |per_channel: bool| if per_channel { self.d_key } else { 1 };
        let stepped = self.stepped().into_iter().flat_map(move |stepped| {
            let rates = (".log_rate", [self.n_heads, channels(stepped.rate_per_channel)]);
            [rates, (".step_bias", [self.n_heads * channels(stepped.step_per_channel), 1])]
        });
        stepped.chain(self.skip.map(|_| (".skip", [self.n_heads, 1])))
    }

    /// Returns the decay, if it depends on the input.
    pub fn stepped(&self) -> Option<&Stepped> {
        match &self.decay {
            Decay::Fixed { .. } => None,
            Decay::Stepped(stepped) => Some(stepped),
        }
    }

    /// Returns the chains of [`Self::parts`].
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Vec<Node>> {
        let step = match &mut self.decay {
            Decay::Fixed { .. } => None,
            Decay::Stepped(stepped) => Some(&mut stepped.step),
        };
        let strength = match &mut self.write {
            Write::One | Write::Step => None,
            Write::Sigmoid { strength, .. } => Some(strength),
        };
        [&mut self.query, &mut self.key, &mut self.value].into_iter().chain(step).chain(strength)
    }
}
