//! Concatenation of the outputs of chains, head by head.
//!
//! ```text
//! forward   head h of y = (head h of x_1, head h of x_2, …), a shared part being the same in every head
//! backward  the same pieces of dy; a shared part gets their sum over heads
//! ```

use sigprop_stack::Concat;

use crate::{array::Array, scalar::Scalar, signal::Signal};

pub(crate) fn forward<T: Scalar>(concat: &Concat, parts: &[Signal<T>]) -> Array<T> {
    let widths: Vec<usize> = parts.iter().map(|part| part.width()).collect();
    let pieces = Pieces::new(concat, &widths);
    let mut output = Array::zeros(parts[0].shape(), pieces.width());
    for (index, part) in parts.iter().enumerate() {
        for (y, x) in output.rows_mut().zip(part.rows()) {
            for head in 0..concat.n_heads {
                y[pieces.target(index, head)].copy_from_slice(&x[pieces.origin(index, head)]);
            }
        }
    }
    output
}

/// Returns the gradient of every part; `widths` are the numbers of features of the parts.
pub(crate) fn backward<T: Scalar>(concat: &Concat, widths: &[usize], gradient: &Array<T>) -> Vec<Array<T>> {
    let pieces = Pieces::new(concat, widths);
    let part = |(index, &width): (usize, &usize)| {
        let mut part = Array::zeros(gradient.shape(), width);
        for (dx, dy) in part.rows_mut().zip(gradient.rows()) {
            for head in 0..concat.n_heads {
                let sums = dx[pieces.origin(index, head)].iter_mut();
                for (sum, &g) in sums.zip(&dy[pieces.target(index, head)]) {
                    *sum += g;
                }
            }
        }
        part
    };
    widths.iter().enumerate().map(part).collect()
}

/// Number of features of the output, for parts of these widths.
pub(crate) fn width(concat: &Concat, widths: &[usize]) -> usize {
    Pieces::new(concat, widths).width()
}

/// Finds the features of a head in a part (`origin`) and in the output (`target`).
struct Pieces<'a> {
    concat: &'a Concat,
    /// Number of features that each part contributes to a head.
    per_head: Vec<usize>,
}

impl<'a> Pieces<'a> {
    fn new(concat: &'a Concat, widths: &[usize]) -> Self {
        let per_head = |(part, &width): (&sigprop_stack::ConcatPart, &usize)| {
            if part.shared { width } else { width / concat.n_heads }
        };
        Self { concat, per_head: concat.parts.iter().zip(widths).map(per_head).collect() }
    }

    fn d_head(&self) -> usize {
        self.per_head.iter().sum()
    }

    fn width(&self) -> usize {
        self.concat.n_heads * self.d_head()
    }

    fn target(&self, part: usize, head: usize) -> std::ops::Range<usize> {
        let start = head * self.d_head() + self.per_head[..part].iter().sum::<usize>();
        start..start + self.per_head[part]
    }

    fn origin(&self, part: usize, head: usize) -> std::ops::Range<usize> {
        let start = if self.concat.parts[part].shared { 0 } else { head * self.per_head[part] };
        start..start + self.per_head[part]
    }
}
