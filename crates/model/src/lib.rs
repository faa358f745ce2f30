//! The data types of Kilnyard, and pure functions on them: no I/O, no clock, no runtime.
//!
//! - [`solver`] finds binary packages that can be installed together.
//! - [`graph`] has the dependencies between the packages of a set; [`cuts`] cuts its cycles.
//! - [`order`] describes a build so that any machine can perform it; [`result`] is its outcome.
//! - [`artifact`] names files by their content; [`attempt`] is a build's random id.
//! - [`holdings`] are what a worker keeps from earlier builds.
//! - [`keep`] is about work that a build leaves for the next one.
//! - [`provenance`] states who built what, from what.
//! - [`reason`] explains the state of a package; [`difference`] shows changes between keys.
//! - [`role`] says what a worker takes part in.
//! - [`target`] is the system that packages are built for; [`identity`] has the ids of farms and yards, made by
//!   [`random_id`].
//! - [`text`] makes output of builds safe to display; [`foreign`] prints all other foreign text in messages.

pub mod artifact;
pub mod attempt;
pub mod backlog;
pub mod cuts;
pub mod difference;
pub mod digests;
pub mod entitlement;
pub mod foreign;
pub mod graph;
pub mod holdings;
pub mod host;
pub mod identity;
pub mod keep;
mod key;
pub mod order;
pub mod provenance;
pub mod random_id;
pub mod reason;
pub mod result;
pub mod role;
pub mod scope;
pub mod sha256;
pub mod solver;
pub mod target;
pub mod text;
