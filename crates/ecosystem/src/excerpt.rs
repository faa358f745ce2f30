//! Finds the lines of a log that show why a build failed.

use crate::ERRORS_IN_TWO_LINES;
use kilnyard_model::text;

/// The place in a log that shows the cause, with its context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogExcerpt {
    /// Number of the line that matters, from 1.
    pub line_number: u64,
    /// That line with some context before and after it, safe to print on a terminal.
    pub lines: Vec<String>,
    /// Index of that line in `lines`.
    pub index: usize,
}

impl LogExcerpt {
    /// The cause in one line. Some tools print an error on two lines: the package, then the cause.
    pub fn cause(&self) -> String {
        let line = &self.lines[self.index];
        let before = self.index.checked_sub(1).map_or("", |before| &self.lines[before]);
        let is_second = line.starts_with(' ')
            && ERRORS_IN_TWO_LINES.iter().any(|begin| before.starts_with(begin))
            && before.ends_with(':');
        if is_second { format!("{before} {}", line.trim()) } else { line.trim().to_owned() }
    }
}

/// Lines of context before and after the one that matters.
const LINES_BEFORE: usize = 3;
const LINES_AFTER: usize = 6;
/// How far back from the end the cause is searched. With many jobs, the first failure may stand far above the end,
/// but not in another part of the build.
const LINES_READ_MAX: usize = 3000;
/// Longer lines are cut off here.
const LINE_CHARS_MAX: usize = 400;

/// Texts that mark a line with the cause, strongest first: compilers and linkers name the cause, while make and the
/// packaging tools only repeat that there was one.
const CAUSES: &[&str] = &[
    ": error: ",
    ": fatal error: ",
    "error: ",
    "Error: ",
    // dpkg names a file that two packages share only in the line after its error.
    " trying to overwrite '",
    "undefined reference to",
    "cannot find -l",
    "No space left on device",
    "Segmentation fault",
    "Traceback (most recent call last)",
    "CMake Error",
    "ModuleNotFoundError",
    "configure: error",
    "unmet build dependencies",
    "command not found",
    "not found",
    "No such file or directory",
    "Permission denied",
    // dash prints this for any failed write.
    ": I/O error",
    "FAILED",
    "FAIL:",
    // pkgsrc's own rules, and its package tools.
    "ERROR: ",
    "returned error status",
];
const CONSEQUENCES: &[&str] = &["*** ", "error:", "E: ", "returned exit code", "failed"];

/// Whether this is the line that a BSD make prints after the output of the command that failed.
fn is_of_bsd_make(line: &str) -> bool {
    line.starts_with("*** ") && line.contains("Error code ")
}

/// Finds the line that matters in a failed log; `None` if the log is empty.
pub fn find_excerpt(log: &str) -> Option<LogExcerpt> {
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.iter().rposition(|line| !line.trim().is_empty())?;
    let from = last.saturating_sub(LINES_READ_MAX);
    let window = &lines[from..=last];
    let is_harmless = |line: &str| line.contains("(ignored)") || line.contains("warning:");
    let of_kind = |texts: &[&str], line: &str| !is_harmless(line) && texts.iter().any(|t| line.contains(t));
    // make's own line shows where the failing part begins; the cause stands between the start of the failing
    // command's output and that line.
    let is_of_make = |line: &&str| line.contains("*** [") || is_of_bsd_make(line);
    let end = window.iter().position(is_of_make).unwrap_or(window.len() - 1);
    let strong = window[..=end].iter().rposition(|line| of_kind(&CAUSES[..9], line)).map(|position| {
        // A compiler prints several errors for one file; the first one of the group matters.
        let mut first = position;
        while first > 0 && position - first < 200 {
            match window[..first].iter().rposition(|line| of_kind(&CAUSES[..2], line)) {
                Some(earlier) if first - earlier <= 20 => first = earlier,
                _ => break,
            }
        }
        first
    });
    let position = strong
        .or_else(|| window[..=end].iter().rposition(|line| of_kind(CAUSES, line)))
        .or_else(|| last_output(&window[..=end]))
        .or_else(|| window.iter().position(|line| of_kind(CONSEQUENCES, line)))
        .unwrap_or(window.len() - 1);
    let at = from + position;
    let start = at.saturating_sub(LINES_BEFORE);
    let stop = (at + LINES_AFTER).min(last);
    Some(LogExcerpt {
        line_number: at as u64 + 1,
        lines: lines[start..=stop]
            .iter()
            .map(|l| text::line(l).chars().take(LINE_CHARS_MAX).collect())
            .collect(),
        index: at - start,
    })
}

/// The last line that a command printed before make reported its failure; `window` ends with make's report. A line
/// such as `+ cc` only echoes a command and is not output.
fn last_output(window: &[&str]) -> Option<usize> {
    let (of_make, said) = window.split_last()?;
    let line = said.last().filter(|_| is_of_bsd_make(of_make))?;
    (!line.trim().is_empty() && !line.starts_with("+ ")).then(|| said.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause_line(log: &str) -> String {
        let excerpt = find_excerpt(log).unwrap();
        let line = excerpt.lines[excerpt.index].clone();
        assert_eq!(log.lines().nth(excerpt.line_number as usize - 1), Some(line.as_str()));
        line
    }

    #[test]
    fn a_compiler_error_is_found_rather_than_its_consequences() {
        let log = "cc -c a.c\na.c:1:9: warning: error: in a string\ncc -c b.c\nb.c:3:5: error: unknown type 'x'\n    3 | x\nb.c:9:5: error: y\nmake[1]: *** [Makefile:3: b.o] Error 1\nmake: *** [all] Error 2\ndpkg-buildpackage: error: debian/rules binary subprocess returned exit status 2\n";
        assert_eq!(cause_line(log), "b.c:3:5: error: unknown type 'x'");
    }

    #[test]
    fn a_configure_error_is_found() {
        let log = "checking for foo... no\nconfigure: error: foo is needed\n\ttail -v config.log\nmake: *** [debian/rules:5: build] Error 25\n";
        assert_eq!(cause_line(log), "configure: error: foo is needed");
    }

    #[test]
    fn a_file_of_two_packages_is_found() {
        let log = "Unpacking b (1.0) ...\ndpkg: error processing archive /b.deb (--unpack):\n trying to overwrite '/usr/bin/a', which is also in package a 1.0\nErrors were encountered while processing:\n /b.deb\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n";
        assert_eq!(cause_line(log), " trying to overwrite '/usr/bin/a', which is also in package a 1.0");
        assert_eq!(
            find_excerpt(log).unwrap().cause(),
            "dpkg: error processing archive /b.deb (--unpack): trying to overwrite '/usr/bin/a', which is also in package a 1.0"
        );
        // Without the line before it, or with a different one there.
        for log in
            [" trying to overwrite '/usr/bin/a'\n", "Unpacking b:\n trying to overwrite '/usr/bin/a'\n"]
        {
            assert_eq!(find_excerpt(log).unwrap().cause(), "trying to overwrite '/usr/bin/a'");
        }
    }

    #[test]
    fn a_failed_write_of_the_shell_is_found() {
        let log =
            "echo x > y\n/bin/sh: 1: echo: echo: I/O error\nmake: *** [debian/rules:12: build] Error 1\n";
        assert_eq!(cause_line(log), "/bin/sh: 1: echo: echo: I/O error");
    }

    #[test]
    fn errors_of_pkgsrc_and_bmake_are_found() {
        let end = "*** Error code 1\n\nStop.\nbmake: stopped in /usr/pkgsrc/a/b\n";
        for (log, line) in [
            ("=> Fetching a.tgz\nERROR: Could not fetch a.tgz\n", "ERROR: Could not fetch a.tgz"),
            ("+ bmake package\npkg_create: can't stat `/a'\n", "pkg_create: can't stat `/a'"),
            ("+ bmake all\n", "*** Error code 1"),
        ] {
            assert_eq!(cause_line(&format!("{log}{end}")), line);
        }
        assert_eq!(cause_line("x\n*** [all] Error code 1\n\nbmake: stopped in /a\n"), "x");
        let test = "pkg_add: install script returned error status\npkg_add: a-1 was not installed\n";
        assert_eq!(cause_line(test), "pkg_add: install script returned error status");
    }

    #[test]
    fn control_sequences_are_removed() {
        let excerpt = find_excerpt("\u{1b}]0;owned\u{7}\u{1b}[31mx.c:1: error: no\u{1b}[0m\n").unwrap();
        assert_eq!(excerpt.lines, ["x.c:1: error: no"]);
    }

    #[test]
    fn without_a_cause_the_last_line_is_taken() {
        assert_eq!(cause_line("one\ntwo\n\n"), "two");
        assert_eq!(find_excerpt(""), None);
        assert_eq!(find_excerpt("\n\n"), None);
    }
}
