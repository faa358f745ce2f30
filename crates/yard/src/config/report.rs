//! The table `report`: how long reports are kept, and what is in them.

use super::Size;
use serde::Deserialize;

/// The table `report`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ReportTable {
    /// Which reports are kept.
    pub keep: Keep,
    /// Whose logs a report has.
    pub logs: ReportLogs,
    /// Where the folder `report/pbulk` is served, for pbulk's reports, which name it. Default: the folder itself.
    pub base_url: Option<String>,
}

/// Which reports are kept: those within all of these bounds. That of the last run stays in any case, and so does that of the last
/// run of the whole set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Keep {
    /// Those of the latest runs: this many.
    pub runs: u32,
    /// Those of runs within this many days.
    pub days: u32,
    /// The latest ones that take so much space together.
    pub size: Size,
}

/// A report of a few packages takes about 200 KiB, one of a whole tree about 20 MiB.
const SIZE_BYTES: u64 = 2 << 30;

impl Default for Keep {
    fn default() -> Keep {
        Keep { runs: 100, days: 365, size: Size(SIZE_BYTES) }
    }
}

/// Whose logs a report has.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ReportLogs {
    /// Those of packages that failed, as text.
    #[default]
    Failed,
    /// Those of all packages that were built, compressed (gzip) unless they failed.
    All,
}
