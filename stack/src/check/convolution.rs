//! The check of a convolution: its sizes, its groups and its padding.

use super::{Shape, Widths, divisor, same_width, size, value};
use crate::{Convolution, Site, StackError};

impl<'s> Widths<'s> {
    pub(super) fn convolution(
        &mut self,
        at: &Site,
        convolution: &'s Convolution,
        x: Shape,
    ) -> Result<Shape, StackError> {
        let site = at.path();
        same_width(at, convolution.fan_in, x.width)?;
        let &Convolution { fan_in, fan_out, kernel, stride, padding, groups, causal, .. } = convolution;
        for (field, got) in [("fan_out", fan_out), ("kernel", kernel), ("stride", stride)] {
            size(site, field, got)?;
        }
        divisor(site, "groups", groups, fan_in, "a divisor of fan_in")?;
        divisor(site, "groups", groups, fan_out, "a divisor of fan_out")?;
        if causal && (stride, padding, convolution.image) != (1, kernel - 1, None) {
            let got = format!("stride {stride} and padding {padding} with kernel {kernel}");
            return Err(value(site, "causal", "true with stride 1 and padding kernel − 1 alone, over positions", got));
        }
        let y = if let Some(image) = convolution.image {
            self.windows(at, image, convolution.sliding(x.seq_len), x)?
        } else {
            self.is_batch = false;
            size(site, "output length", convolution.output_len(x.seq_len))?;
            Shape { seq_len: convolution.output_len(x.seq_len), image: None, ..x }
        };
        self.tensor(site, &convolution.weight, [fan_out, convolution.window()])?;
        if let Some(bias) = &convolution.bias {
            self.tensor(site, bias, [fan_out, 1])?;
        }
        Ok(Shape { width: fan_out, ..y })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Component, Convolution, Gaussian, GradientSeed, Init, Node, Source, Stack, Stream, Tensor};

    /// A depthwise, causal convolution of 6 features over 3 tokens is valid; a change makes it contradict itself.
    #[test]
    fn contradictions_are_refused() {
        let valid = Convolution {
            fan_in: 6,
            fan_out: 6,
            kernel: 3,
            stride: 1,
            padding: 2,
            groups: 6,
            causal: true,
            image: None,
            weight: Tensor { name: "taps".to_owned(), init: Init::Normal { std: 0.5 } },
            bias: None,
        };
        let error = |convolution: Convolution| {
            let source = Source::Gaussian(Gaussian { width: 6, mean: 0.0, variance: 1.0, correlation: 0.0 });
            let body = vec![Node::apply("conv", Component::Convolution(convolution))];
            let stream = Stream { name: "main".to_owned(), seq_len: 4, source, body };
            let stack = Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
            super::super::check(&stack).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(error(valid.clone()), "");
        assert!(error(Convolution { padding: 1, ..valid.clone() }).contains("padding kernel − 1"));
        assert!(error(Convolution { groups: 4, ..valid.clone() }).contains("a divisor of fan_in"));
        assert!(error(Convolution { groups: 0, ..valid }).contains("groups"));
    }
}
