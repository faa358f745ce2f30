//! The report of a run, as a web page and as JSON.
//!
//! A report is one value, [`Report`], and three files made from it: `report.json`, the value itself, for programs,
//! `index.html`, for people, and `timeline.svg`, the timeline of the page as a separate drawing. [`write()`] writes
//! them into a folder. [`page()`] only renders the text of the page, and [`timeline()`] that of the drawing.
//!
//! The modules, from the bottom up:
//!
//! - `report` is the schema. The caller fills it in; this crate reads nothing.
//! - `clean` and `address` turn text from builds into text and link targets that are safe to show. `words`
//!   formats numbers.
//! - Only `maud` templates write tags. They are checked at compile time: tags balance, and every text and
//!   attribute is escaped. The finished page is checked again for characters that no section may show.
//! - `drawing` has the parts of SVG drawings, for the page and for the files that other commands write.
//! - `timeline` decides where each build is drawn (numbers only) and draws it (inline SVG).
//! - `page` has one file per section, in the order in which readers need them: the result, the failures, the
//!   blocked packages, the times, then everything else.
//!
//! Invariants: names, reasons and log lines come from untrusted builds, and durations come from clocks that
//! jump. Whatever the strings and numbers are, `page` does not panic, its tags balance, no string becomes
//! markup or a script, and no number becomes `NaN` in a drawing. The page loads nothing, runs no script (and
//! forbids scripts by its content security policy), and has a bounded size: every list has a named limit and
//! says how many entries are only in `report.json`.
//!
//! Out of scope: serving pages, reading the store, following a run in progress (write the report again
//! instead), and checking that linked logs exist.
//!
//! Known downside: without scripts, the tables cannot be sorted or filtered in the browser. Rows that need
//! attention come first. For questions that the page does not answer, there is `report.json`.

mod address;
mod clean;
mod drawing;
mod error;
mod page;
mod report;
mod site;
mod timeline;
mod words;
mod write;

pub use address::encoded;
pub use drawing::{Anchor, Drawing};
pub use error::WebError;
pub use report::{
    Counts, CycleCut, LeftOut, PackageState, PathStep, Report, ReportCause, ReportChange, ReportCommit,
    ReportFailure, ReportOutput, ReportPackage, ReportStage, ReportStalls, RepositoryFacts, RunState, SCHEMA,
};
pub use site::{
    Asset, Button, Chosen, Folder, LOG_LINES_MAX, LogText, Now, Place, Shell, YardEntry, assets, compare,
    failures, figures, log, login, now, package, packages, problem, queue, run, runs, search, workers, yards,
};
pub use timeline::drawing as timeline;
pub use write::{PACKED_REPORT_FILE, PAGE_FILE, Pages, REPORT_FILE, TIMELINE_FILE, page, write};
