//! Groups failures by their cause: if a mirror lacks fifty files, or fifty packages need a header that is gone, that is
//! one problem.

mod known;

pub use known::KnownCause;

use crate::family::Family;
use crate::remedy::Remedy;
use kilnyard_model::order::Stage;
use kilnyard_model::reason::{Reason, StageFailed};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Prefix of the message of a failed fetch.
const FETCH: &str = "failed to fetch ";
/// Suffix of that message when no mirror has the file.
const ABSENT: &str = "the server returned status 404";
/// Names shown after a cause.
const NAMES_MAX: usize = 10;
/// Failures of one cause reported while a run is in progress.
const REPORTED_MAX: u32 = 3;

/// Packages that failed for one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause<'a> {
    /// The packages.
    pub names: Vec<&'a str>,
    /// What their reasons have in common.
    pub title: String,
    /// The reason of the first package.
    reason: &'a Reason,
}

impl Cause<'_> {
    /// Describes the cause on one line: a single package with its reason, several with a count and their names.
    pub fn line(&self) -> String {
        let count = self.names.len();
        if count == 1 {
            return format!("{}: {}", self.names[0], self.reason.first_line());
        }
        let shown = &self.names[..count.min(NAMES_MAX)];
        let more = match count - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{count} packages: {}: {}{more}", self.title, shown.join(", "))
    }

    /// What helps against this cause in a yard of this family, if anything does.
    pub fn remedy(&self, family: &dyn Family) -> Option<Remedy> {
        let known = Remedy::command("scan")
            .then(", if the archive has changed since; or a second address in mirror (kilnyard.toml)");
        self.is_absent().then(|| match family.remedy_for_absent_files() {
            Some(more) => known.then(format!("; or {more}")),
            None => known,
        })
    }

    /// Whether no mirror has the file.
    fn is_absent(&self) -> bool {
        shared(self.reason) == Some(ABSENT)
    }
}

/// The part of a reason that other packages may share. Absent if the package itself is the cause.
fn shared(reason: &Reason) -> Option<&str> {
    let Reason::Failed(StageFailed { stage: Stage::Fetch, message }) = reason else { return None };
    let rest = message.lines().next()?.strip_prefix(FETCH)?;
    rest.rsplit_once(": ").map(|(_, cause)| cause)
}

/// The cause in a reason.
fn title(reason: &Reason, known: &[KnownCause]) -> String {
    match (shared(reason), reason) {
        (Some(cause), _) => cause.to_owned(),
        (None, Reason::Failed(StageFailed { stage, message })) => {
            format!("{stage}: {}", known::cause(message, known))
        }
        (None, _) => reason.first_line(),
    }
}

/// Groups failures (name and reason) by cause: the cause with the most packages first, then in order of first
/// occurrence. `known` are the causes that the family's tools report.
pub fn by_cause<'a>(
    failures: impl IntoIterator<Item = (&'a str, &'a Reason)>,
    known: &[KnownCause],
) -> Vec<Cause<'a>> {
    let mut causes: Vec<Cause<'a>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, reason) in failures {
        let title = title(reason, known);
        let place = *places.entry(title.clone()).or_insert(causes.len());
        match causes.get_mut(place) {
            Some(cause) => cause.names.push(name),
            None => causes.push(Cause { names: vec![name], title, reason }),
        }
    }
    causes.sort_by_key(|cause| Reverse(cause.names.len()));
    causes
}

/// Counts the reported failures of each cause while a run is in progress.
#[derive(Debug, Default)]
pub struct Reported {
    counts: HashMap<String, u32>,
}

/// How much of a failure to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Report it.
    Whole,
    /// Report it, and add that further ones are only counted.
    Last,
    /// Do not report it: the summary counts it.
    Counted,
}

impl Reported {
    /// Decides how to report the next failure with this reason.
    pub fn next(&mut self, reason: &Reason) -> Report {
        let Some(cause) = shared(reason) else { return Report::Whole };
        let count = self.counts.entry(cause.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        match *count {
            REPORTED_MAX => Report::Last,
            count if count > REPORTED_MAX => Report::Counted,
            _ => Report::Whole,
        }
    }
}

/// Note printed with [`Report::Last`].
pub const COUNTED: &str = "further failures with this cause are only counted, and listed at the end";

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(stage: Stage, message: &str) -> Reason {
        Reason::Failed(StageFailed { stage, message: message.to_owned() })
    }

    fn absent(name: &str) -> (String, Reason) {
        let url = format!("http://mirror/pool/{name}.dsc");
        let message = format!("{FETCH}{name}.dsc: {url}: {ABSENT}; http://second/{name}.dsc: {ABSENT}");
        (name.to_owned(), failed(Stage::Fetch, &message))
    }

    #[test]
    fn files_missing_on_a_mirror_are_one_cause() {
        let mut failures: Vec<(String, Reason)> =
            (0..45).map(|number| absent(&format!("p{number}"))).collect();
        failures.insert(1, ("other".to_owned(), failed(Stage::Build, "cc: no such file\nmore")));
        failures.push(("last".to_owned(), failed(Stage::Build, "cc: no such file")));
        let causes = by_cause(failures.iter().map(|(name, reason)| (name.as_str(), reason)), &[]);
        let lines: Vec<String> = causes.iter().map(Cause::line).collect();
        assert_eq!(
            lines,
            [
                "45 packages: the server returned status 404: p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 35 more",
                "2 packages: build: cc: no such file: other, last",
            ]
        );
        assert!(causes[0].is_absent() && !causes[1].is_absent());
    }

    #[test]
    fn a_single_failure_keeps_its_message_and_cause() {
        let (name, reason) = absent("zlib");
        let causes = by_cause([(name.as_str(), &reason)], &[]);
        assert_eq!(causes[0].line(), format!("zlib: {reason}"));
        assert!(causes[0].is_absent());
    }

    #[test]
    fn only_the_first_failures_of_a_cause_are_reported() {
        let mut reported = Reported::default();
        let reports: Vec<Report> = (0..5).map(|_| reported.next(&absent("x").1)).collect();
        assert_eq!(reports, [Report::Whole, Report::Whole, Report::Last, Report::Counted, Report::Counted]);
        assert_eq!(reported.next(&failed(Stage::Build, "x")), Report::Whole);
    }
}
