//! A yard: its folder and configuration, its families, and what follows from them: plans, estimates, reports.
//!
//! A command opens a [`yard::Yard`], asks its [`family`] for a resolved set, makes a [`plan`] of it, and after a run publishes
//! and writes a [`report`].
//!
//! What holds: nothing here prints, ends the process or reads the environment. What there is to say goes through a callback
//! or is returned; variables come as an [`environment::Environment`]; signals are noted in [`interrupt`].
//!
//! Known downside: one process works on a yard at a time, so that everything here may believe what it read.

pub mod causes;
pub mod config;
pub mod due;
pub mod environment;
pub mod error;
pub mod estimates;
pub mod family;
pub mod files;
pub mod finding;
pub mod host;
pub mod init;
pub mod interrupt;
pub mod key;
pub mod layers;
pub mod lease;
pub mod mirror;
pub mod plan;
pub mod program;
pub mod remedy;
pub mod report;
pub mod shape;
pub mod unpack;
pub mod words;
pub mod worker;
pub mod yard;
