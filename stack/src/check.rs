//! The check that makes a stack safe to walk: widths fit, numbers are in range.

use std::collections::{HashMap, HashSet};

use crate::{
    Activation, Component, EmbeddingTerm, Fan, GradientSeed, Init, Interpreter, Number, Site, Source, Stack,
    StackError, Tensor, forward,
};

/// Sizes above this are refused: products of two of them still fit in 64 bits.
const MAX_SIZE: usize = 1 << 31;

/// Walks the stack with widths alone and checks every number it meets.
pub fn check(stack: &Stack) -> Result<(), StackError> {
    size("stack", "seq_len", stack.seq_len)?;
    if stack.gradient.stream >= stack.streams.len() {
        let got = format!("{} with {} streams", stack.gradient.stream, stack.streams.len());
        return Err(value("stack", "gradient.stream", "the index of a stream", got));
    }
    range("stack", "gradient.correlation", stack.gradient.correlation, 0.0..=1.0, "in [0, 1]")?;
    for stream in &stack.streams {
        if stream.body.is_empty() {
            return Err(value("stack", "streams.body", "at least one node", "none".to_owned()));
        }
    }
    let mut widths = Widths { seq_len: stack.seq_len, shapes: HashMap::new(), sites: HashSet::new(), repeated: None };
    forward(stack, &mut widths)?;
    match widths.repeated {
        Some(site) => Err(value(&site, "name", "different from those of its neighbours", "the same twice".to_owned())),
        None => Ok(()),
    }
}

/// Carries the width of a token.
struct Widths {
    seq_len: usize,
    /// Shape and distribution of every tensor met so far, by name.
    shapes: HashMap<String, ([usize; 2], Init)>,
    /// Paths met so far.
    sites: HashSet<String>,
    /// The first path met twice: rows and random masks are found by path.
    repeated: Option<String>,
}

impl Widths {
    fn tensor(&mut self, site: &str, tensor: &Tensor, shape: [usize; 2]) -> Result<(), StackError> {
        match tensor.init {
            Init::Zero => {}
            Init::Normal { std } => weight(site, "std", std)?,
            Init::Uniform { bound } => weight(site, "bound", bound)?,
            Init::TruncatedNormal { std, cutoff } => {
                weight(site, "std", std)?;
                range(site, "cutoff", cutoff, f64::MIN_POSITIVE..=f64::MAX, "finite and positive")?;
            }
        }
        let known = self.shapes.entry(tensor.name.clone()).or_insert((shape, tensor.init));
        if *known != (shape, tensor.init) {
            let got = format!("{shape:?} {:?} beside {:?} {:?} of the same name", tensor.init, known.0, known.1);
            return Err(value(site, "tensor", "one shape and one distribution per name", got));
        }
        Ok(())
    }
}

impl Interpreter for Widths {
    type Signal = usize;
    type Gradient = ();
    type Kept = ();
    type Error = StackError;

    fn source(&mut self, _: &Site, source: &Source) -> Result<usize, StackError> {
        let site = "source";
        let width = source.width();
        size(site, "width", width)?;
        match source {
            Source::Gaussian(gaussian) => {
                not_negative(site, "variance", gaussian.variance)?;
                range(site, "correlation", gaussian.correlation, 0.0..=1.0, "in [0, 1]")?;
            }
            Source::Embedding(embedding) => {
                size(site, "vocab_size", embedding.ids.vocab_size)?;
                not_negative(site, "exponent", embedding.ids.exponent)?;
                for term in &embedding.terms {
                    match term {
                        EmbeddingTerm::Token { table } => {
                            self.tensor(site, table, [embedding.ids.vocab_size, width])?;
                        }
                        EmbeddingTerm::LearnedPosition { table } => self.tensor(site, table, [self.seq_len, width])?,
                        EmbeddingTerm::Segment { table } => self.tensor(site, table, [2, width])?,
                        EmbeddingTerm::SinusoidalPosition { scale } => finite(site, "scale", *scale)?,
                    }
                }
            }
        }
        Ok(width)
    }

    fn source_backward(&mut self, _: &Site, _: &Source, (): ()) -> Result<(), StackError> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &usize) -> Result<(), StackError> {
        Ok(())
    }

    fn apply(&mut self, at: &Site, component: &Component, width: usize) -> Result<(usize, ()), StackError> {
        match component {
            Component::Linear(linear) => {
                same_width(at, linear.fan_in, width)?;
                size(&at.to_string(), "fan_out", linear.fan_out)?;
                self.tensor(&at.to_string(), &linear.weight, [linear.fan_out, linear.fan_in])?;
                if let Some(bias) = &linear.bias {
                    self.tensor(&at.to_string(), bias, [linear.fan_out, 1])?;
                }
                Ok((linear.fan_out, ()))
            }
            Component::Norm(norm) => {
                let site = at.to_string();
                not_negative(&site, "eps", norm.eps)?;
                finite(&site, "gain", norm.gain)?;
                Ok((width, ()))
            }
            Component::Activation(activation) => {
                if let Activation::LeakyRelu { slope } = activation {
                    finite(&at.to_string(), "slope", *slope)?;
                }
                Ok((width, ()))
            }
            Component::Dropout(dropout) => {
                rate(&at.to_string(), "rate", dropout.rate)?;
                Ok((width, ()))
            }
        }
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), StackError> {
        Ok(())
    }

    fn fork(&mut self, _: &Site, input: &usize) -> usize {
        *input
    }

    fn merge(&mut self, at: &Site, fan: Fan, _: usize, parts: Vec<usize>) -> Result<(usize, ()), StackError> {
        let site = at.to_string();
        let width = match fan {
            Fan::Sum(sum) => {
                for branch in &sum.branches {
                    finite(&site, "scale", branch.scale)?;
                    rate(&site, "drop_rate", branch.drop_rate)?;
                }
                common_width(at, &parts)?
            }
            Fan::Product(_) => common_width(at, &parts)?,
            Fan::Attention(attention) => {
                for (field, got) in
                    [("n_heads", attention.n_heads), ("n_kv_heads", attention.n_kv_heads), ("d_head", attention.d_head)]
                {
                    size(&site, field, got)?;
                }
                if !attention.n_heads.is_multiple_of(attention.n_kv_heads) {
                    let got = format!("{} of {}", attention.n_kv_heads, attention.n_heads);
                    return Err(value(&site, "n_kv_heads", "a divisor of n_heads", got));
                }
                finite(&site, "scale", attention.scale)?;
                rate(&site, "dropout_rate", attention.dropout_rate)?;
                let width = attention.n_heads * attention.d_head;
                let kv_width = attention.n_kv_heads * attention.d_head;
                for (expected, got) in [width, kv_width, kv_width].into_iter().zip(parts) {
                    same_width(at, expected, got)?;
                }
                width
            }
        };
        Ok((width, ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, StackError> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), StackError> {
        Ok(())
    }

    fn observe(&mut self, at: &Site, _: &usize) {
        let path = at.to_string();
        if !self.sites.insert(path.clone()) {
            self.repeated.get_or_insert(path);
        }
    }

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}

fn common_width(at: &Site, parts: &[usize]) -> Result<usize, StackError> {
    let Some((&first, rest)) = parts.split_first() else {
        return Err(value(&at.to_string(), "parts", "at least one", "none".to_owned()));
    };
    rest.iter().try_for_each(|&width| same_width(at, first, width))?;
    Ok(first)
}

fn same_width(at: &Site, expected: usize, got: usize) -> Result<(), StackError> {
    if expected == got { Ok(()) } else { Err(StackError::Width { site: at.to_string(), expected, got }) }
}

fn size(site: &str, field: &'static str, got: usize) -> Result<(), StackError> {
    if (1..=MAX_SIZE).contains(&got) {
        Ok(())
    } else {
        Err(value(site, field, "between 1 and 2147483648", got.to_string()))
    }
}

fn rate(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=1.0 - f64::EPSILON, "in [0, 1)")
}

fn finite(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, f64::MIN..=f64::MAX, "finite")
}

fn not_negative(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=f64::MAX, "finite and not negative")
}

/// Squares of weights stay numbers.
fn weight(site: &str, field: &'static str, got: f64) -> Result<(), StackError> {
    range(site, field, got, 0.0..=1e100, "between 0 and 1e100")
}

fn range(
    site: &str,
    field: &'static str,
    got: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), StackError> {
    if range.contains(&got) { Ok(()) } else { Err(value(site, field, expected, Number::from(got).to_string())) }
}

fn value(site: &str, field: &'static str, expected: &'static str, got: String) -> StackError {
    StackError::Value { site: site.to_owned(), field, expected, got }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dropout, Gaussian, Node, Op, Stream};

    fn stack(body: Vec<Node>) -> Stack {
        let source = Source::Gaussian(Gaussian { width: 4, variance: 1.0, correlation: 0.0 });
        let streams = vec![Stream { name: "main".to_owned(), source, body }];
        let gradient = GradientSeed { stream: 0, correlation: 0.0 };
        Stack { name: "test".to_owned(), seq_len: 2, streams, gradient }
    }

    #[test]
    fn paths_are_unique() {
        let dropout = |name: &str| Node::apply(name, Component::Dropout(Dropout { rate: 0.1 }));
        let chain = |name: &str, body| Node::new(name, Op::Chain(body));
        let nested = vec![chain("a", vec![dropout("x")]), chain("b", vec![dropout("x")])];
        assert_eq!(check(&stack(nested)), Ok(()));
        let error = check(&stack(vec![chain("a", vec![dropout("x"), dropout("x")])])).expect_err("two equal paths");
        assert_eq!(error.to_string(), "a.x: name must be different from those of its neighbours, got the same twice");
    }
}
