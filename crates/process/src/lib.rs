//! Run one stage: watch, measure, limit and end its process tree
