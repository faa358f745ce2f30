//! The nouns of Kilnyard and the pure decisions about them: no I/O, no clock, no runtime.
//!
//! [`solver`] finds which binary packages go together; [`graph`] holds which package of a set waits
//! for which, and cuts cycles; [`order`] is what a build is made of, ready to be performed anywhere;
//! [`result`] is what became of it; [`artifact`] are files known by their content; [`attempt`] is a build's random id; [`reason`] is why
//! a package stands where it stands, and [`difference`] what changed in its key; [`target`] is what something is built for, and
//! [`identity`] whose it is, by a [`random_id`];
//! [`text`] makes what builds say fit to be shown; [`foreign`] is the one printer for text of others in messages.

pub mod artifact;
pub mod attempt;
pub mod difference;
pub mod foreign;
pub mod graph;
pub mod host;
pub mod identity;
mod key;
pub mod order;
pub mod random_id;
pub mod reason;
pub mod result;
pub mod sha256;
pub mod solver;
pub mod target;
pub mod text;
