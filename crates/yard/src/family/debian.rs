//! Debian: the archive's index, sets of sources, an apt repository.

pub mod publish;
pub mod recover;
pub mod scan;
pub mod set;
