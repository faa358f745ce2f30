//! What running builds have named, by hash, and the folders of their logs.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module documentation. Its lock orders a build that begins to use something and the removal of that; it is held
/// for a few system calls, never while a folder is emptied.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: HashMap<String, usize>,
    changes: u64,
}

/// Keeps what it names from being removed, until it is dropped.
#[derive(Debug)]
pub struct InUse {
    names: Vec<String>,
    uses: Arc<Uses>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.uses.lock();
        state.changes += 1;
        for name in &self.names {
            if let Some(count) = state.counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    state.counts.remove(name);
                }
            }
        }
    }
}

impl Uses {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(uses: &Arc<Uses>, names: Vec<String>) -> InUse {
        let mut state = uses.lock();
        state.changes += 1;
        for name in &names {
            *state.counts.entry(name.clone()).or_default() += 1;
        }
        drop(state);
        InUse { names, uses: uses.clone() }
    }

    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    pub(super) fn is_used(&self, name: &str) -> bool {
        self.lock().counts.contains_key(name)
    }

    /// Takes something away from future builds, unless a build uses it. No build begins to use it meanwhile.
    pub(super) fn unless_used<T>(
        &self,
        name: &str,
        take: impl FnOnce() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let state = self.lock();
        match state.counts.contains_key(name) {
            true => Ok(None),
            false => take(),
        }
    }

    /// Takes a folder away, unless a build uses something in it. Returns whether that was done.
    pub(super) fn unless_used_below(&self, folder: &Path, take: impl FnOnce() -> bool) -> bool {
        let state = self.lock();
        !state.counts.keys().any(|name| Path::new(name).starts_with(folder)) && take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_builds_use_is_kept_until_both_have_ended() {
        let uses = Arc::new(Uses::default());
        let take = || uses.unless_used("a", || Ok(Some(()))).unwrap().is_some();
        assert!(take());
        let one = Uses::hold(&uses, vec!["a".to_owned(), "b".to_owned(), "a".to_owned()]);
        let other = Uses::hold(&uses, vec!["a".to_owned()]);
        assert!(!take() && uses.is_used("b"));
        drop(one);
        assert!(!take() && !uses.is_used("b"));
        drop(other);
        assert!(take());
        assert_eq!(uses.changes(), 4);
        let below = |folder: &str| uses.unless_used_below(Path::new(folder), || true);
        let log = Uses::hold(&uses, vec!["logs/1/category/package".to_owned()]);
        assert!(!below("logs/1") && !below("logs/1/category") && below("logs/12") && below("logs/1/cat"));
        drop(log);
        assert!(below("logs/1"));
    }
}
