//! The checks of components that act on images: pixels are Gaussian and have no positions, and each component is for
//! images of the size that it gets.

use super::{Shape, Widths, size, value};
use crate::{Activation, Image, Pool, PoolKind, Site, Sliding, StackError};

impl Widths<'_> {
    /// Checks windows over images; returns the shape of the output, with the features of the input.
    pub(super) fn windows(&self, at: &Site, image: Image, sliding: Sliding, x: Shape) -> Result<Shape, StackError> {
        let site = at.path();
        for (field, got) in [("height", image.height), ("width", image.width)] {
            size(site, field, got)?;
        }
        if !self.is_batch || at.expert().is_some() || x.image != Some(image) {
            let got = match x.image {
                Some(Image { height, width }) if self.is_batch => format!("{height} × {width} pixels"),
                Some(_) | None => "tokens with positions, or that met before".to_owned(),
            };
            return Err(value(
                site,
                "image",
                "the size of the images that arrive here, which start as Gaussian pixels",
                got,
            ));
        }
        let outputs = sliding.output();
        size(site, "output length", outputs.pixels())?;
        Ok(Shape { seq_len: sliding.windows(x.seq_len), image: Some(outputs), ..x })
    }

    pub(super) fn pool(&self, at: &Site, pool: &Pool, x: Shape) -> Result<Shape, StackError> {
        let site = at.path();
        let &Pool { kind, kernel, stride, padding, image } = pool;
        for (field, got) in [("kernel", kernel), ("stride", stride)] {
            size(site, field, got)?;
        }
        match kind {
            PoolKind::Average if padding > 0 || stride < kernel => {
                let got = format!("kernel {kernel}, stride {stride} and padding {padding}");
                return Err(value(site, "stride", "windows of an average that do not overlap, without padding", got));
            }
            PoolKind::Max { activation } if !matches!(activation, Activation::Identity | Activation::Relu) => {
                return Err(value(site, "activation", "identity or relu", format!("{activation:?}")));
            }
            PoolKind::Max { .. } if 2 * padding > kernel => {
                return Err(value(site, "padding", "at most half of the kernel", padding.to_string()));
            }
            PoolKind::Average | PoolKind::Max { .. } => {}
        }
        self.windows(at, image, pool.sliding(), x)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Activation, Component, Gaussian, GradientSeed, Image, Node, Pool, PoolKind, Source, Stack, Stream};

    /// A maximum over two images of 4 × 6 pixels is valid; a change makes it contradict itself or the images.
    #[test]
    fn contradictions_are_refused() {
        let image = Image { height: 4, width: 6 };
        let kind = PoolKind::Max { activation: Activation::Relu };
        let valid = Pool { kind, kernel: 3, stride: 2, padding: 1, image };
        let error = |pools: &[Pool]| {
            let source = Source::Gaussian(Gaussian { width: 5, mean: 0.0, variance: 1.0, correlation: 0.0 });
            let node = |(index, pool): (usize, &Pool)| Node::apply(format!("pool{index}"), Component::Pool(*pool));
            let body = pools.iter().enumerate().map(node).collect();
            let stream = Stream { name: "main".to_owned(), seq_len: 48, source, body };
            let stack = Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
            super::super::check(&stack).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let half = Image { height: 2, width: 3 };
        assert_eq!(error(&[valid, Pool { kernel: 2, image: half, ..valid }]), "");
        assert!(error(&[valid, valid]).contains("2 × 3 pixels"));
        assert!(error(&[Pool { image: Image { height: 5, width: 5 }, ..valid }]).contains("the size of the images"));
        assert!(error(&[Pool { image: Image { height: 0, width: 6 }, ..valid }]).contains("height"));
        assert!(error(&[Pool { padding: 2, ..valid }]).contains("at most half"));
        assert!(error(&[Pool { kind: PoolKind::Average, ..valid }]).contains("do not overlap"));
        assert!(
            error(&[Pool { kind: PoolKind::Max { activation: Activation::Gelu }, ..valid }])
                .contains("identity or relu")
        );
        assert!(error(&[Pool { kernel: 9, ..valid }]).contains("output length"));
    }
}
