//! Pages: the report of a run.
//!
//! A report is one value, [`Report`], and two files made from it: `report.json`, which is the value itself and is
//! meant for programs, and `index.html`, which is meant for people. [`write()`] puts both into a folder, with the timeline as a
//! drawing of its own; [`page()`] makes the text of the second and does nothing else.
//!
//! The structure, from the bottom:
//!
//! - `report` is the schema. The caller fills it in; nothing here reads anything.
//! - `clean` and `address` turn what builds wrote into text and link targets that are safe to show; `words` turns
//!   numbers into words.
//! - Tags are written by `maud` templates alone, which are checked when Kilnyard is compiled: tags balance, and every
//!   text and attribute is escaped. A finished page is searched once more for characters that no section may show.
//! - `drawing` is what SVG drawings consist of, in the page and in the files that other commands write.
//! - `timeline` decides where each build is drawn (pure numbers) and draws it (an inline SVG).
//! - `page` has one file a section, in the order in which a reader needs them: what happened, what failed, who
//!   waits for whom, then the time, then everything else.
//!
//! What must hold: names, reasons and log lines come from untrusted builds, and durations come from
//! clocks that jump. Whatever the strings and numbers are, `page` does not panic, its tags balance, no string
//! becomes markup or a script, and no number becomes `NaN` in a drawing. The page loads nothing, runs no script (and
//! forbids scripts by its own content security policy), and its size is bounded: every list has a named limit and
//! says how many entries are only in `report.json`.
//!
//! What it does not do: serve pages, read the store, follow a run while it goes (write the report again instead),
//! or check that the logs it links to exist.
//!
//! The known downside: without a script the tables cannot be sorted or filtered in the browser. The order is chosen
//! so that what needs a person comes first; for questions that the page does not answer there is `report.json`.

mod address;
mod clean;
mod drawing;
mod error;
mod page;
mod report;
mod timeline;
mod words;
mod write;

pub use drawing::{Anchor, Drawing};
pub use error::WebError;
pub use page::page;
pub use report::{
    Counts, CycleCut, LeftOut, PackageState, PathStep, Report, ReportFailure, ReportOutput, ReportPackage,
    ReportStage, ReportStalls, RepositoryFacts, RunState, SCHEMA,
};
pub use timeline::drawing as timeline;
pub use write::{PAGE_FILE, REPORT_FILE, TIMELINE_FILE, write};
