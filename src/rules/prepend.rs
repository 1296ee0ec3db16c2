//! One learned token before all others: independent of them.
//!
//! Forward it adds a row and a column of zeros to the matrix of cosines; backward its gradient is what reaches
//! its position, and the others pass.

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::Prepend;

use crate::domain::{Domain, Flow, Gradient, Signal, symmetric};
use crate::moments::{Token, ln_sum, ratio, share};

pub(crate) fn forward(prepend: &Prepend, x: &Signal) -> Signal {
    let width = x.token().width;
    let own = Token::gaussian(width, prepend.token.init.variance().ln());
    let count = x.tokens.len();
    let cosines = symmetric(count + 1, |i, j| if j == 0 { 0.0 } else { x.cosines[(i - 1) * count + j - 1] });
    let tokens = [own].into_iter().chain(x.tokens.iter().copied()).collect();
    let y = Signal { concentration: x.concentration, ..Signal::new(tokens, cosines) };
    // Both levels are shared between the learned token, which has the part w of what is common and 1 − w of what
    // differs of its own second moment, and the others.
    let learned = share(own.ln_second, ln_sum(y.levels()));
    let shared = Domain::GRAM.shared(&y);
    let own_part = Vector2::new(ratio(learned * learned, shared), ratio(learned * (1.0 - learned), 1.0 - shared));
    let own_part = own_part.map(|part| part.min(1.0));
    let map = Matrix2::from_diagonal(&own_part.map(|part| 1.0 - part));
    let drawn = own_part * own_part.transpose() * own.entry_variance;
    let mut fluctuation = x.fluctuation.mapped(map);
    fluctuation.scale += drawn;
    fluctuation.fresh = drawn;
    Signal { fluctuation, ..y }
}

/// The gradient at the other tokens; that of the learned token is the first of `gradient`.
pub(crate) fn backward(gradient: &Gradient) -> Gradient {
    let count = gradient.tokens.len();
    let cosines = symmetric(count - 1, |i, j| gradient.cosines[(i + 1) * count + j + 1]);
    Gradient {
        nearness: gradient.nearness,
        concentration: gradient.concentration,
        fluctuation: gradient.fluctuation,
        response: gradient.response,
        ..Gradient::new(gradient.tokens[1..].into(), cosines)
    }
}
