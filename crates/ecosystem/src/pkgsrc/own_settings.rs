//! Settings of make for single packages, as parts of the one `mk.conf` that every make in a root reads.
//!
//! For the options of a package, make also runs in the directories of other packages, so each directory has to find
//! its own settings wherever make was started. `mk.conf` therefore has the settings of all packages, each under the
//! condition that make runs in its directory. The settings themselves are in separate files: a conditional that one
//! of them opens cannot reach beyond its file, and an error names the file.

use super::stages::TREE;
use crate::{NamePattern, OptionRules, Options, TEXTS, hex};
use kilnyard_model::order::InputText;
use sha2::{Digest, Sha256};

/// The part of `mk.conf` with the settings of single packages, and the files that it includes. Both are empty if no
/// package has settings.
pub(super) fn texts(rules: &OptionRules) -> (String, Vec<InputText>) {
    let mut text = String::new();
    let mut files = Vec::new();
    // The last rule that matches counts, so it comes first.
    let checks = rules.iter().rev().filter_map(|(pattern, own)| {
        Some((pattern, format!("PKGSRC_RUN_TEST=\t{}\n", yes_or_no(own.checks?))))
    });
    text.push_str(&chain(checks));
    let mut number = 0;
    let included = rules.iter().rev().filter_map(|(pattern, own)| {
        let settings = own.mk_conf.as_ref()?;
        number += 1;
        let name = format!("package-{number}.mk");
        let include = format!(".  include \"{TEXTS}/{name}\"\n");
        files.push(InputText { name, text: ended(settings) });
        Some((pattern, include))
    });
    text.push_str(&chain(included));
    (text, files)
}

/// The text, terminated by a newline: make ignores a last line without one, or joins it to the next file.
fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// A conditional by which make reads the lines of the first pattern that matches its directory.
fn chain<'a>(parts: impl Iterator<Item = (&'a NamePattern, String)>) -> String {
    let mut text = String::new();
    for (pattern, lines) in parts {
        let condition = if text.is_empty() { ".if" } else { ".elif" };
        // The two notations of patterns differ only in how they negate a set.
        let pattern = pattern.as_str().replace("[!", "[^");
        text.push_str(&format!("{condition} !empty(.CURDIR:M{TREE}/{pattern})\n{lines}"));
    }
    if !text.is_empty() {
        text.push_str(".endif\n");
    }
    text
}

/// The lines of a package's key about its settings.
pub(super) fn key_lines(own: &Options) -> Vec<String> {
    let checks = own.checks.map(|checks| format!("option checks {checks}"));
    // Empty settings cancel those of an earlier rule.
    let settings = own.mk_conf.as_ref().filter(|text| !text.is_empty());
    let settings = settings.map(|text| format!("option mk-conf {}", hex(&Sha256::digest(ended(text)))));
    checks.into_iter().chain(settings).collect()
}

/// The directories with settings of their own that affect a scan: a pattern and a hash for each rule, in order. If
/// other rules match a directory, it is scanned again, even if they give it the same settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanSettings(Vec<(NamePattern, String)>);

impl ScanSettings {
    /// The settings of these rules that a scan may depend on.
    pub fn of(rules: &OptionRules) -> ScanSettings {
        let rule = |(pattern, own): (&NamePattern, &Options)| {
            let Options { checks, environment, mk_conf, .. } = own;
            let is_set = checks.is_some() || !environment.is_empty() || mk_conf.is_some();
            let text = format!("{checks:?}\n{environment:?}\n{mk_conf:?}");
            is_set.then(|| (pattern.clone(), hex(&Sha256::digest(text))))
        };
        ScanSettings(rules.iter().filter_map(rule).collect())
    }

    /// Whether no directory has such settings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the output of [`ScanSettings::line`].
    pub(super) fn parse(line: &str) -> Option<ScanSettings> {
        let rule = |word: &str| {
            let (hash, pattern) = word.split_once(' ')?;
            Some((NamePattern::parse(pattern).ok()?, hash.to_owned()))
        };
        line.split('\t').map(rule).collect::<Option<Vec<_>>>().map(ScanSettings)
    }

    /// All rules in one line.
    pub fn line(&self) -> String {
        let rule = |(pattern, hash): &(NamePattern, String)| format!("{hash} {pattern}");
        self.0.iter().map(rule).collect::<Vec<_>>().join("\t")
    }

    /// Whether a directory has the same settings under other rules.
    pub(super) fn are_same(&self, other: &ScanSettings, directory: &str) -> bool {
        self.hashes(directory).eq(other.hashes(directory))
    }

    fn hashes<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(pattern, _)| pattern.matches(directory)).map(|(_, hash)| hash.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, Options)]) -> OptionRules {
        let parsed = |(name, options): &(&str, Options)| (NamePattern::parse(name).unwrap(), options.clone());
        OptionRules::new(rules.iter().map(parsed).collect())
    }

    fn mk_conf(text: &str) -> Options {
        Options { mk_conf: Some(text.to_owned()), ..Options::default() }
    }

    fn checked(checks: bool) -> Options {
        Options { checks: Some(checks), ..Options::default() }
    }

    #[test]
    fn each_directory_reads_the_settings_of_the_last_rule_that_matches() {
        let all = rules(&[
            ("lang/[!p]*", mk_conf("A=1")),
            ("lang/*", checked(true)),
            ("lang/perl", mk_conf("B=2\n")),
        ]);
        let (text, files) = texts(&all);
        let expected = ".if !empty(.CURDIR:M/usr/pkgsrc/lang/*)\nPKGSRC_RUN_TEST=\tyes\n.endif\n\
                        .if !empty(.CURDIR:M/usr/pkgsrc/lang/perl)\n.  include \"/kilnyard/texts/package-1.mk\"\n\
                        .elif !empty(.CURDIR:M/usr/pkgsrc/lang/[^p]*)\n.  include \"/kilnyard/texts/package-2.mk\"\n\
                        .endif\n";
        assert_eq!(text, expected);
        let files: Vec<_> = files.iter().map(|file| (&file.name[..], &file.text[..])).collect();
        assert_eq!(files, [("package-1.mk", "B=2\n"), ("package-2.mk", "A=1\n")]);
        assert_eq!(texts(&rules(&[("lang/*", Options::default())])), (String::new(), Vec::new()));
    }

    #[test]
    fn a_scan_is_repeated_where_settings_changed_and_nowhere_else() {
        let scan = |all: &[(&str, Options)]| ScanSettings::of(&rules(all));
        let before = scan(&[("lang/*", checked(true)), ("mail/mutt", mk_conf("A=1\n"))]);
        assert_eq!(ScanSettings::parse(&before.line()).unwrap(), before);
        let after = scan(&[("lang/*", checked(true)), ("mail/mutt", mk_conf("A=2\n"))]);
        let changed =
            |directory: &&str| !before.are_same(&after, directory) || !after.are_same(&before, directory);
        let all = ["lang/perl", "mail/mutt", "mail/pine"];
        assert_eq!(all.iter().filter(|one| changed(one)).collect::<Vec<_>>(), [&"mail/mutt"]);
        assert!(before.are_same(&ScanSettings::default(), "mail/pine"));
        assert!(!before.are_same(&ScanSettings::default(), "lang/perl"));
        // Settings that cannot affect a scan are not included.
        let network = Options { network: Some(true), ..Options::default() };
        assert!(scan(&[("mail/mutt", network)]).is_empty());
        for bad in ["", "no-pattern", "hash a b", "hash [a"] {
            assert_eq!(ScanSettings::parse(bad), None, "{bad}");
        }
    }
}
