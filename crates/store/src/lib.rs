//! Runs, builds, leases, history: SQLite embedded
