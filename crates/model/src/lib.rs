//! The nouns of Kilnyard and the pure decisions about them: no I/O, no clock, no runtime.
//!
//! [`solver`] finds which binary packages go together; [`graph`] holds which package of a set waits
//! for which, and cuts cycles; [`order`] is what a build is made of, ready to be performed anywhere;
//! [`result`] is what became of it; [`artifact`] are files known by their content; [`attempt`] is a build's random id; [`text`] makes what builds say fit
//! to be shown; [`foreign`] is the one printer for text of others in messages.

pub mod artifact;
pub mod attempt;
pub mod foreign;
pub mod graph;
pub mod order;
pub mod result;
pub mod sha256;
pub mod solver;
pub mod target;
pub mod text;
