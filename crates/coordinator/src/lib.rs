//! The one owner of the state of a run: events in, actions out
