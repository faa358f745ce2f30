//! Kept work of packages, which may be removed at any time: a build that was to begin with it starts from scratch.

use super::{Entry, Kind, What};
use crate::kept::Kept;
use std::io;

impl Kind for Kept {
    fn what(&self) -> What {
        What::Work
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let entry = |(used, bytes, name)| Entry { name, bytes, used, is_needed: false };
        Ok(self.dated().into_iter().map(entry).collect())
    }

    fn discard(&self, name: &str) -> io::Result<bool> {
        self.remove(name).map(|()| true)
    }
}
