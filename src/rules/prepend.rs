//! One learned token before all others: independent of them.
//!
//! Forward it adds a row and a column of zeros to the matrix of cosines; backward its gradient is what reaches
//! its position, and the others pass.

use sigprop_stack::Prepend;

use crate::domain::{Gradient, Signal, symmetric};
use crate::moments::Token;

pub(crate) fn forward(prepend: &Prepend, x: &Signal) -> Signal {
    let width = x.token().width;
    let own = Token::gaussian(width, prepend.token.init.variance().ln());
    let count = x.tokens.len();
    let cosines = symmetric(count + 1, |i, j| if j == 0 { 0.0 } else { x.cosines[(i - 1) * count + j - 1] });
    let tokens = [own].into_iter().chain(x.tokens.iter().copied()).collect();
    Signal { concentration: x.concentration, ..Signal::new(tokens, cosines) }
}

/// The gradient at the other tokens; that of the learned token is the first of `gradient`.
pub(crate) fn backward(gradient: &Gradient) -> Gradient {
    let count = gradient.tokens.len();
    let cosines = symmetric(count - 1, |i, j| gradient.cosines[(i + 1) * count + j + 1]);
    Gradient::new(gradient.tokens[1..].to_vec(), cosines)
}
