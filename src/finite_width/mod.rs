//! What finite width adds to the infinitely wide network, to order 1/width: one second-order expansion.
//!
//! One network differs from the infinitely wide one in a few variables of every stream ([`variables`]). Components map them as they map second
//! moments at infinite width, which gives first and second derivatives by central differences ([`differences`], [`map`]); finitely many entries add
//! noise ([`noise`]).
//! Forward that is a mean and a covariance ([`forward`]), backward ln E[gradient | variables] as a quadratic function ([`backward`]); with
//! products of signals and gradients, which weights that both have met leave behind ([`mixed`]).
//!
//! Every component has a map of the variables and a factor on gradients, both from its rule at infinite width ([`crate::mean_field`]), and
//! says what its entries add and how it changes ρ, α, k of [`mixed`] ([`component`], [`fan`]).
//!
//! Read in this order: [`variables`], [`forward`], [`noise`] and [`stream`], [`component`] and [`fan`], [`expansion`] (the walk), [`backward`],
//! [`mixed`], [`gradients`]; [`attention`] last. Of a signal ln E mean |x_a|² over that at infinite width is reported, and as ± the
//! standard deviation of ln mean |x_a|² over networks; of a gradient the same.

pub(crate) mod attention;
pub(crate) mod backward;
pub(crate) mod component;
mod differences;
pub(crate) mod entries;
pub(crate) mod expansion;
mod fan;
pub(crate) mod forward;
pub(crate) mod gradients;
pub(crate) mod map;
mod mixed;
pub(crate) mod noise;
mod quadratic;
pub(crate) mod stream;
pub(crate) mod variables;
