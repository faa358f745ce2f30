//! The expected time of a build that was never recorded, from the index alone.

use super::settings::Settings;
use super::source::Source;
use super::universe::Universe;
use crate::prior::seconds_by_size;

/// Seconds of one core that a build of this source takes.
pub fn seconds(source: &Source, _universe: &Universe, _settings: &Settings) -> f64 {
    seconds_by_size(source.files().unwrap_or_default().iter().map(|file| file.size_bytes).sum())
}
