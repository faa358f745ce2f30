//! A yard: its folder and configuration, its package families, and the plans, estimates and reports derived
//! from them.
//!
//! A command opens a [`yard::Yard`], asks its [`family`] for a resolved set and makes a [`plan`] of it. After a
//! run it publishes and writes a [`report`].
//!
//! Invariant: nothing here prints, ends the process or reads the environment. Messages go through a callback or
//! are returned; variables arrive as an [`environment::Environment`]; signals are recorded in [`interrupt`].
//!
//! Known downside: only one process works on a yard at a time. Code here relies on that and trusts what it has
//! read.

pub mod causes;
pub mod commits;
pub mod config;
pub mod due;
pub mod environment;
pub mod error;
pub mod estimates;
pub mod expectations;
pub mod facts;
pub mod family;
pub mod files;
pub mod finding;
pub mod helpers;
pub mod host;
pub mod image;
pub mod init;
pub mod interrupt;
pub mod layers;
pub mod lease;
pub mod mirror;
pub mod notify;
pub mod patches;
pub mod plan;
pub mod program;
pub mod remedy;
pub mod report;
pub mod revoked;
pub mod shape;
pub mod signing;
pub mod trees;
pub mod tries;
pub mod unpack;
pub mod untrusted;
pub mod words;
pub mod worker;
pub mod yard;
