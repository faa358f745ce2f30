//! Takes leases and performs builds: roots, stages, artifacts, logs
