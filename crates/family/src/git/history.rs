//! What commits say: which files they change, and what people wrote about it.

use super::repository::{Copy, Failed};
use super::work_tree::TreeCommit;
use kilnyard_model::text;
use kilnyard_yard::commits::Change;
use kilnyard_yard::interrupt;
use std::collections::BTreeSet;

/// The maximum number of commits between two runs that are read.
const COMMITS_MAX: usize = 1000;
/// The maximum number of lines of a message, and characters of a line.
const LINES_MAX: usize = 50;
const LINE_CHARACTERS_MAX: usize = 500;

/// Fields of a commit, in [`FORMAT`]'s order.
const FIELDS: usize = 4;
const FORMAT: &str = "--format=%H%x00%an%x00%at%x00%B";

/// Commits between two others, the newest first.
pub type Commits = Result<Vec<Change>, Failed>;

/// The commits that `to` has and `from` has not, as far as they change one of these paths; all of them without paths. `source` is what the
/// run calls the repository. Merges are left out: what they bring is listed.
///
/// # Errors
/// The repository does not have them any more, or the user interrupted the query.
pub fn commits_between(place: &TreeCommit, source: &str, from: &str, paths: &[String]) -> Commits {
    let copy = Copy::at(place.git.clone(), interrupt::cancel());
    let mut command = copy.asking();
    // The settings of a repository could have signatures verified, by a program that they name.
    command.env("GIT_LITERAL_PATHSPECS", "1").args([
        "-c",
        "log.showSignature=false",
        "-c",
        "log.mailmap=false",
    ]);
    command.args([
        "log",
        "-z",
        "--no-merges",
        "--no-show-signature",
        "--no-mailmap",
        "--no-notes",
        "--no-color",
        "--no-decorate",
    ]);
    command.args(["--encoding=UTF-8", FORMAT, &format!("--max-count={COMMITS_MAX}"), "--end-of-options"]);
    command.arg(format!("{from}..{}", place.commit)).arg("--");
    let full = |path: &String| match place.folder.as_str() {
        "" => path.clone(),
        folder => format!("{folder}/{path}"),
    };
    command.args(paths.iter().map(full));
    if paths.is_empty() && !place.folder.is_empty() {
        command.arg(&place.folder);
    }
    let answer = copy.perform(&mut command, "read the history")?;
    let text = String::from_utf8_lossy(&answer);
    let fields: Vec<&str> = text.split('\0').collect();
    Ok(fields.chunks_exact(FIELDS).map(|fields| change(source, fields)).collect())
}

fn change(source: &str, fields: &[&str]) -> Change {
    let [commit, author, seconds, message] = [0, 1, 2, 3].map(|field| fields[field]);
    Change {
        source: source.to_owned(),
        commit: text::line(commit),
        author: shortened(author),
        date_seconds: seconds.parse().unwrap_or(0),
        lines: lines_of(message),
    }
}

/// The lines of a message that people wrote: the trailers at its end, which tools write and read, are left out (git-interpret-trailers(1)).
fn lines_of(message: &str) -> Vec<String> {
    let paragraphs: Vec<&str> = message.trim_end().split("\n\n").collect();
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
    };
    let is_trailers = |paragraph: &str| {
        let mut lines = paragraph.trim().lines().peekable();
        lines.peek().is_some() && lines.all(is_trailer)
    };
    let end = match paragraphs.split_last() {
        Some((last, first)) if !first.is_empty() && is_trailers(last) => first.len(),
        _ => paragraphs.len(),
    };
    let text = paragraphs[..end].join("\n\n");
    text.trim().lines().take(LINES_MAX).map(shortened).collect()
}

fn shortened(line: &str) -> String {
    text::line(line).chars().take(LINE_CHARACTERS_MAX).collect()
}

/// The files of a tree that a commit changes, or a range such as `A..B`; paths are relative to the tree.
///
/// # Errors
/// There is no such commit, or its objects are missing.
pub fn files_between(place: &TreeCommit, revisions: &[&str]) -> Result<BTreeSet<String>, Failed> {
    let copy = Copy::at(place.git.clone(), interrupt::cancel());
    let mut command = copy.asking();
    command.args([
        "diff-tree",
        "-r",
        "-z",
        "-m",
        "--first-parent",
        "--root",
        "--no-commit-id",
        "--name-only",
    ]);
    command.args(["--no-renames", "--no-ext-diff", "--no-textconv"]);
    command.arg(format!("--relative={}", place.folder)).arg("--end-of-options").args(revisions);
    let answer = copy.perform(&mut command, "ask what changed")?;
    let names = answer.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_left_out_of_messages() {
        let lines = |message: &str| lines_of(message).join("|");
        assert_eq!(lines("mutt: update to 2.2\n"), "mutt: update to 2.2");
        assert_eq!(lines("Note: this\n"), "Note: this");
        assert_eq!(lines("One\n\nTwo: three\nfour\n"), "One||Two: three|four");
        assert_eq!(lines("One\n\nWhy.\n\nSigned-off-by: A <a@b>\nChange-Id: I1\n"), "One||Why.");
        assert_eq!(lines("\u{1b}[31mred\u{7}\n"), text::line("\u{1b}[31mred\u{7}"));
        assert_eq!(lines(""), "");
        assert_eq!(lines_of(&"a\n".repeat(100)).len(), LINES_MAX);
    }
}
