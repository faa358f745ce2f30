//! pkgsrc binary packages, made by real `tar` and real compressors, both intact and faulty.

mod content;
mod damaged;
mod summary;
mod support;
