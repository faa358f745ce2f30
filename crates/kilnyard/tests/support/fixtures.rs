//! Source packages, one for each way to fail.
