//! What the gradients of weights are made of, noted down on the way back.

use std::sync::Arc;

use sigprop_stack::{Component, Embedding, Init, Site, Tensor};

use super::Moments;
use crate::domain::{Domain, Flow, Gradient, Signal};
use crate::predict::rows::{LinearNote, WeightNote};
use crate::rules::embedding::positions;
use crate::rules::linear::steps::steps;
use crate::rules::{convolution, embedding, linear, mixture, norm};

impl Moments {
    pub(super) fn write_weight(&mut self, at: &Site, tensor: &Tensor, ln_second_moment: f64) {
        let ln_second_moment = ln_second_moment - if at.expert().is_some() { self.experts.ln() } else { 0.0 };
        self.rows.weight(WeightNote {
            layer: at.layer(),
            tensor: tensor.name.clone(),
            variance: tensor.init.variance(),
            ln_second_moment,
        });
    }

    pub(super) fn write_tables(&mut self, at: &Site, embedding: &Embedding, stream: usize, gradient: &Gradient) {
        for term in embedding.terms.iter().rev() {
            let ln_gradient = match &self.domain {
                Domain::Exchangeable(domain) => embedding::ln_weight_gradient(term, embedding, domain, gradient),
                Domain::Gram { .. } => {
                    let vocabulary = (embedding.ids.vocab_size(), self.ids[stream].as_slice());
                    positions::ln_weight_gradient(term, Some(vocabulary), gradient)
                }
            };
            if let (Some(ln_gradient), Some(table)) = (ln_gradient, term.table()) {
                self.write_weight(at, table, ln_gradient);
            }
        }
    }

    /// What a weight's gradient is made of, noted down.
    pub(super) fn write_weights_of(
        &mut self,
        at: &Site,
        component: &Component,
        [x, y]: [&Signal; 2],
        gradient: &Gradient,
    ) {
        match component {
            Component::Linear(linear) => {
                if let Some(bias) = &linear.bias {
                    let ln_gradient = self.domain.ln_summed(gradient);
                    self.write_weight(at, bias, ln_gradient);
                }
                let alike = |chosen: &Arc<[f64]>| mixture::chosen_alike(chosen, &self.domain, x, gradient);
                let chosen_alike = self.chosen.as_ref().map_or(0.0, alike);
                let ln_gradient = linear::ln_weight_gradient(linear, &self.domain, x, gradient, chosen_alike);
                self.write_weight(at, &linear.weight, ln_gradient);
                // Experts see some of the tokens.
                if self.steps && at.expert().is_none() {
                    let tensor = linear.weight.name.clone();
                    let steps = steps(linear, &self.domain, x, gradient);
                    self.rows.linear(LinearNote { tensor, ln_output: y.ln_level(), steps });
                }
            }
            Component::Convolution(conv) => {
                if let Some(bias) = &conv.bias {
                    let ln_gradient = self.domain.ln_summed(gradient);
                    self.write_weight(at, bias, ln_gradient);
                }
                let ln_gradient = convolution::ln_weight_gradient(conv, x, gradient);
                self.write_weight(at, &conv.weight, ln_gradient);
            }
            Component::Embedding(term) => {
                let ln_gradient = positions::ln_weight_gradient(term, None, gradient);
                if let (Some(ln_gradient), Some(table)) = (ln_gradient, term.table()) {
                    self.write_weight(at, table, ln_gradient);
                }
            }
            Component::Prepend(prepend) => self.write_weight(at, &prepend.token, gradient.token().ln_second),
            Component::Norm(norm) => {
                if norm.has_own_gains() {
                    let ln_gradient = norm::ln_gain_gradient(&self.domain, &norm::normed(norm, [x, y]), gradient);
                    self.write_weight(at, &Tensor { name: at.gain(), init: Init::Zero }, ln_gradient);
                }
            }
            Component::Activation(_) | Component::Dropout(_) | Component::Scale(_) | Component::Rotary(_) => {}
        }
    }
}
