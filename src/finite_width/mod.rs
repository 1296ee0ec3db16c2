//! Corrections of finite width to the infinitely wide network, to order 1/width, by one second-order expansion.
//!
//! One network differs from the infinitely wide one in a few variables of every stream ([`variables`]). Components map
//! these variables as they map second moments at infinite width, and central differences give the first and second
//! derivatives of the maps ([`differences`], [`map`]). Finitely many entries add noise ([`noise`]).
//!
//! The forward pass computes the mean and the covariance of the variables ([`forward`]). The backward pass computes
//! ln E[gradient | variables] as a quadratic function ([`backward`]). It also follows products of signals and
//! gradients, which are correlated because both went through the same weights ([`mixed`]).
//!
//! Every component has a map of the variables and a factor on gradients. Both come from its rule at infinite width
//! ([`crate::mean_field`]). A component also gives the noise of its entries and its effect on ρ, α, k of [`mixed`]
//! ([`component`], [`fan`]).
//!
//! Read in this order: [`variables`], [`forward`], [`noise`] and [`stream`], [`component`] and [`fan`], [`expansion`]
//! (both passes), [`backward`], [`mixed`], [`gradients`], [`preserved`]; [`attention`] last. Two numbers are reported
//! for a signal: ln of E mean |x_a|² over its value at infinite width and, as ±, the standard deviation of ln mean
//! |x_a|² over networks. A gradient has the same two numbers.

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
mod preserved;
mod quadratic;
pub(crate) mod stream;
pub(crate) mod variables;
