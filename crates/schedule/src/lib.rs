//! What to build next: ranks, queue, lower bounds
