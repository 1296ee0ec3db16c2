//! What finite width adds to the infinitely wide network, to order 1/width: one second-order expansion.
//!
//! One network differs from the infinitely wide one in a few variables of every stream ([`chart`]). Components map them as they map second
//! moments at infinite width, which gives J and H by automatic differentiation ([`jet`]); finitely many entries add noise ([`noise`]).
//! Forward that is a mean and a covariance ([`forward`]), backward ln E[gradient | variables] as a quadratic function ([`backward`]); with
//! products of signals and gradients, which weights that both have met leave behind ([`mixed`]).
//!
//! A component answers three questions: its map (of layer 1), its entries and its transport of ρ, α, k ([`component`], [`fan`]).

pub(crate) mod attention;
pub(crate) mod backward;
pub(crate) mod chart;
pub(crate) mod component;
pub(crate) mod entries;
pub(crate) mod expansion;
mod fan;
pub(crate) mod forward;
pub(crate) mod gradients;
pub(crate) mod jet;
mod mixed;
pub(crate) mod noise;
pub(crate) mod stream;
