//! The predictor as an interpreter of stacks: it carries moments.

use sigprop_stack::{
    Cell, Component, Embedding, Fan, GradientSeed, Interpreter, Number, Quantity, Site, SiteRow, SiteTable, Source,
    Tensor, WeightRow,
};

use super::{Caveat, PredictError, Prediction, Sites};
use crate::domain::{Exchangeable, Gradient, Signal};
use crate::moments::{Token, TokenGradient};
use crate::rules::activation::Profiles;
use crate::rules::attention::Attended;
use crate::rules::softmax::Overlaps;
use crate::rules::{PairRule, dropout, embedding, linear, norm, product, sum};

/// Carries moments through a stack and writes down what it sees.
pub(crate) struct Moments {
    seq_len: usize,
    sites: Sites,
    domain: Exchangeable,
    profiles: Profiles,
    overlaps: Overlaps,
    rows: Vec<SiteRow>,
    /// Rows before this one still wait for their gradients.
    waiting: usize,
    /// In the reverse order of depth.
    weights: Vec<WeightRow>,
    /// Kind, first site, how many, what was met.
    caveats: Vec<(&'static str, Caveat)>,
}

/// What the backward pass of a node needs.
pub(crate) enum Kept {
    Apply { rule: Box<dyn PairRule>, x: Signal, y: Token },
    Sum { rule: sum::Rule, x: Signal, branches: Vec<Signal>, output: Token, gradient: Option<TokenGradient> },
    Product { factors: Vec<Signal>, gradient: Option<TokenGradient> },
    Attention(Box<Attended>),
}

impl Moments {
    pub(crate) fn new(seq_len: usize, sites: Sites) -> Self {
        Self {
            seq_len,
            sites,
            domain: Exchangeable { seq_len: seq_len as f64, classes: Vec::new(), id_spread: 0.0, segment_spread: 0.0 },
            profiles: Profiles::default(),
            overlaps: Overlaps::new(seq_len as f64),
            rows: Vec::new(),
            waiting: 0,
            weights: Vec::new(),
            caveats: Vec::new(),
        }
    }

    /// The signal at the start of a stream.
    pub(crate) fn enter(&mut self, source: &Source) -> Signal {
        let (domain, signal) = embedding::source(source, self.seq_len);
        self.domain = domain;
        signal
    }

    /// What was found, once the walk is over.
    pub(crate) fn finish(mut self) -> Result<Prediction, PredictError> {
        self.weights.reverse();
        for row in &self.rows {
            for quantity in Quantity::ALL {
                if row.value(quantity).is_some_and(|value| !value.is_finite()) {
                    return Err(PredictError::NotANumber { site: row.site.clone(), quantity: quantity.name() });
                }
            }
        }
        for row in &self.weights {
            if !row.grad_second_moment.value.is_finite() {
                let quantity = "the second moment of the gradient";
                return Err(PredictError::NotANumber { site: row.tensor.clone(), quantity });
            }
        }
        let caveats = self.caveats.into_iter().map(|(_, caveat)| caveat).collect();
        Ok(Prediction { table: SiteTable { sites: self.rows, weights: self.weights }, caveats })
    }

    fn tells(&self, at: &Site) -> bool {
        self.sites == Sites::All || at.is_stream_site()
    }

    fn caveat(&mut self, at: &Site, caveat: Option<(&'static str, String)>) {
        let Some((kind, got)) = caveat else { return };
        if let Some((_, caveat)) = self.caveats.iter_mut().find(|(known, _)| *known == kind) {
            caveat.sites += 1;
        } else {
            let text = format!("{kind}: {got}");
            self.caveats.push((kind, Caveat { site: at.to_string(), sites: 1, text }));
        }
    }

    fn write(&mut self, layer: i64, site: String, is_stream_site: bool, signal: &Signal) {
        let token = &signal.token;
        let spread = 1.0 - token.mean * token.mean;
        let correlation = (self.domain.mean(&signal.cosines) - token.mean * token.mean) / spread;
        let correlated = self.seq_len > 1 && !token.is_zero() && spread > 0.0;
        let mut cells = [None; 5];
        cells[Quantity::Mean as usize] = Some(Cell::exact(Number::scaled(token.mean, 0.5 * token.ln_second)));
        cells[Quantity::Variance as usize] = Some(Cell::exact(Number::scaled(spread.max(0.0), token.ln_second)));
        cells[Quantity::TokenCorrelation as usize] = correlated.then(|| Cell::exact(correlation));
        self.rows.push(SiteRow { layer, site, is_stream_site, cells });
        self.waiting = self.rows.len();
    }

    /// Completes the last row that waits for its gradient.
    fn write_gradient(&mut self, gradient: &Gradient) {
        self.waiting -= 1;
        let correlation = self.domain.mean(&gradient.cosines);
        let correlated = self.seq_len > 1 && gradient.token.ln_second > f64::NEG_INFINITY;
        let cells = &mut self.rows[self.waiting].cells;
        cells[Quantity::GradVariance as usize] = Some(Cell::exact(Number::from_ln(gradient.token.ln_second)));
        cells[Quantity::GradTokenCorrelation as usize] = correlated.then(|| Cell::exact(correlation));
    }

    fn write_weight(&mut self, layer: i64, tensor: &Tensor, ln_second_moment: f64) {
        self.weights.push(WeightRow {
            layer,
            tensor: tensor.name.clone(),
            variance: tensor.init.variance(),
            grad_second_moment: Cell::exact(Number::from_ln(ln_second_moment)),
        });
    }

    fn write_tables(&mut self, layer: i64, embedding: &Embedding, gradient: &Gradient) {
        for term in embedding.terms.iter().rev() {
            let ln_gradient = embedding::ln_weight_gradient(term, embedding, &self.domain, gradient);
            if let (Some(ln_gradient), Some(table)) = (ln_gradient, term.table()) {
                self.write_weight(layer, table, ln_gradient);
            }
        }
    }
}

impl Interpreter for Moments {
    type Signal = Signal;
    type Gradient = Gradient;
    type Kept = Kept;
    type Error = PredictError;

    fn source(&mut self, at: &Site, source: &Source) -> Result<Signal, PredictError> {
        self.caveat(at, embedding::caveat(source));
        Ok(self.enter(source))
    }

    fn source_backward(&mut self, at: &Site, source: &Source, gradient: Gradient) -> Result<(), PredictError> {
        match source {
            Source::Embedding(embedding) => self.write_tables(at.layer(), embedding, &gradient),
            Source::Gaussian(_) => {}
        }
        Ok(())
    }

    fn seed(&mut self, _: &Site, seed: &GradientSeed, output: &Signal) -> Result<Gradient, PredictError> {
        let cosines = vec![seed.correlation; output.cosines.len()];
        Ok(Gradient::new(TokenGradient::isotropic(0.0), cosines))
    }

    fn apply(&mut self, at: &Site, component: &Component, x: Signal) -> Result<(Signal, Kept), PredictError> {
        let rule: Box<dyn PairRule> = match component {
            Component::Linear(linear) => Box::new(linear::Rule::new(linear)),
            Component::Norm(norm) => Box::new(norm::Rule::new(norm)),
            Component::Activation(activation) => Box::new(self.profiles.rule(*activation, &x.token)),
            Component::Dropout(dropout) => Box::new(dropout::Rule::new(*dropout)),
        };
        self.caveat(at, rule.caveat(&x.token));
        let y = Exchangeable::apply(rule.as_ref(), &x);
        let token = y.token;
        Ok((y, Kept::Apply { rule, x, y: token }))
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept,
        gradient: Gradient,
    ) -> Result<Gradient, PredictError> {
        let Kept::Apply { rule, x, y } = kept else { unreachable!("apply keeps Kept::Apply") };
        match component {
            Component::Linear(linear) => {
                let ln_gradient = gradient.token.ln_second + self.domain.seq_len.ln();
                if let Some(bias) = &linear.bias {
                    let ones = vec![1.0; gradient.cosines.len()];
                    let coherence = self.domain.coherence(&ones, &gradient.cosines);
                    self.write_weight(at.layer(), bias, ln_gradient + coherence.ln());
                }
                let coherence = (self.domain.coherence(&x.cosines, &gradient.cosines) + gradient.coupling).max(0.0);
                self.write_weight(at.layer(), &linear.weight, ln_gradient + x.token.ln_second + coherence.ln());
            }
            Component::Norm(_) | Component::Activation(_) | Component::Dropout(_) => {}
        }
        Ok(Exchangeable::apply_backward(rule.as_ref(), &x, &y, &gradient))
    }

    fn fork(&mut self, _: &Site, input: &Signal) -> Signal {
        let token = Token { sensitivity: 1.0, ..input.token };
        Signal { token, cosines: input.cosines.clone() }
    }

    fn merge(&mut self, at: &Site, fan: Fan, x: Signal, parts: Vec<Signal>) -> Result<(Signal, Kept), PredictError> {
        let tokens: Vec<Token> = parts.iter().map(|part| part.token).collect();
        let classes = x.cosines.len();
        let of_class = |class: usize| -> Vec<f64> { parts.iter().map(|part| part.cosines[class]).collect() };
        match fan {
            Fan::Sum(sum) => {
                let rule = sum::Rule::new(sum);
                let token = rule.token(&x.token, &tokens);
                let cosines = (0..classes).map(|class| rule.cosine(&tokens, &token, &of_class(class))).collect();
                Ok((Signal { token, cosines }, Kept::Sum { rule, x, branches: parts, output: token, gradient: None }))
            }
            Fan::Product(_) => {
                let cosines = (0..classes).map(|class| of_class(class).into_iter().product()).collect();
                let mut token = product::token(&tokens);
                token.sensitivity *= x.token.sensitivity;
                Ok((Signal { token, cosines }, Kept::Product { factors: parts, gradient: None }))
            }
            Fan::Attention(attention) => {
                let parts: [Signal; 3] = parts.try_into().expect("attention has the parts query, key, value");
                let attended = Attended::new(attention, &self.domain, &mut self.overlaps, &x.token, parts);
                self.caveat(at, attended.caveat());
                if self.sites == Sites::All && !at.recomputing() {
                    let probabilities = attended.probabilities(&self.domain);
                    self.write(at.layer(), at.sibling("softmax"), false, &probabilities);
                }
                let mut output = attended.output().clone();
                output.token.sensitivity *= x.token.sensitivity;
                Ok((output, Kept::Attention(Box::new(attended))))
            }
        }
    }

    fn split(
        &mut self,
        _: &Site,
        fan: Fan,
        kept: &mut Kept,
        gradient: Gradient,
    ) -> Result<Vec<Gradient>, PredictError> {
        match (fan, kept) {
            (Fan::Sum(_), Kept::Sum { rule, branches, output, gradient: kept, .. }) => {
                *kept = Some(gradient.token);
                let tokens: Vec<Token> = branches.iter().map(|branch| branch.token).collect();
                let part = |index| {
                    let token = rule.split(index, &tokens, output, &gradient.token);
                    Gradient::new(token, gradient.cosines.clone())
                };
                Ok((0..tokens.len()).map(part).collect())
            }
            (Fan::Product(_), Kept::Product { factors, gradient: kept }) => {
                *kept = Some(gradient.token);
                let tokens: Vec<Token> = factors.iter().map(|factor| factor.token).collect();
                let part = |index| {
                    let cosines = gradient.cosines.iter().enumerate().map(|(class, cosine)| {
                        let cosines: Vec<f64> = factors.iter().map(|factor| factor.cosines[class]).collect();
                        cosine * product::others_cosine(&cosines, index)
                    });
                    Gradient::new(product::split(&tokens, index, &gradient.token), cosines.collect())
                };
                Ok((0..tokens.len()).map(part).collect())
            }
            (Fan::Attention(attention), Kept::Attention(attended)) => {
                if self.sites == Sites::All {
                    self.write_gradient(&attended.probabilities_backward(attention, &gradient));
                }
                Ok(attended.split(attention, &self.domain, &gradient).into())
            }
            (Fan::Sum(_) | Fan::Product(_) | Fan::Attention(_), _) => unreachable!("merge keeps what fits the fan"),
        }
    }

    fn join(&mut self, _: &Site, _: Fan, kept: Kept, parts: Vec<Gradient>) -> Result<Gradient, PredictError> {
        let tokens: Vec<TokenGradient> = parts.iter().map(|part| part.token).collect();
        let (token, weights) = match &kept {
            Kept::Sum { rule, x, branches, output, gradient: Some(gradient) } => {
                let branches: Vec<Token> = branches.iter().map(|branch| branch.token).collect();
                rule.join(&x.token, &branches, output, gradient, &tokens)
            }
            Kept::Product { factors, gradient: Some(gradient) } => {
                let factors: Vec<Token> = factors.iter().map(|factor| factor.token).collect();
                product::join(&factors, gradient, &tokens)
            }
            Kept::Attention(_) => TokenGradient::join(&tokens),
            Kept::Sum { .. } | Kept::Product { .. } | Kept::Apply { .. } => {
                unreachable!("split has left its gradient")
            }
        };
        let cosines = (0..parts[0].cosines.len())
            .map(|class| parts.iter().zip(&weights).map(|(part, weight)| weight * part.cosines[class]).sum())
            .collect();
        Ok(Gradient::new(token, cosines))
    }

    fn observe(&mut self, at: &Site, signal: &Signal) {
        if self.tells(at) {
            self.write(at.layer(), at.to_string(), at.is_stream_site(), signal);
        }
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Gradient) {
        if self.tells(at) {
            self.write_gradient(gradient);
        }
    }
}
