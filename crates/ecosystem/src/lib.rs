//! Ecosystems: one module for each package family, with its rules.
//!
//! A module reads a tree into an index, resolves the index into a graph, says for one package what is
//! installed, which commands run in which stage and which files come out, and what keys a build. It
//! knows nothing of runs, leases or who performs the commands. There is one family today, [`debian`].

pub mod debian;
