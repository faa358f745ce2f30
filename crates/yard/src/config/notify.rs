//! The tables `notify`: who is notified of what.

use kilnyard_ecosystem::NamePattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// One table `notify`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Notify {
    /// Its name, in messages and in the list of what was sent. Default: what it does.
    pub name: Option<String>,
    /// What it is for.
    pub on: BTreeSet<Occasion>,
    /// Only packages of these names, with `*` and `?`; empty for all.
    pub packages: Vec<String>,
    /// The address that is called.
    pub webhook: Option<String>,
    /// A file with the secret that signs calls, relative to the yard.
    pub secret_file: Option<PathBuf>,
    /// Addresses that get mail.
    pub mail: Vec<String>,
    /// The sender of mail.
    pub from: Option<String>,
    /// A program that takes mail as sendmail(8) does, with its arguments.
    pub sendmail: Option<Vec<String>>,
    /// A command on this machine, with its arguments.
    pub command: Vec<String>,
}

/// When someone is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// A run began or was resumed.
    RunBegan,
    /// A run ended.
    RunEnded,
    /// A package failed that was not expected to.
    Failure,
    /// The first failure of a run.
    FirstFailure,
    /// A package failed that had outputs in the run before.
    NewlyFailing,
    /// A package was built that had failed in the run before.
    Fixed,
    /// A worker left, or was quarantined.
    WorkerLost,
    /// The repository was published with changes.
    Published,
    /// Someone asked for something.
    Request,
}

impl Occasion {
    /// All occasions.
    pub const ALL: [Occasion; 9] = [
        Occasion::RunBegan,
        Occasion::RunEnded,
        Occasion::Failure,
        Occasion::FirstFailure,
        Occasion::NewlyFailing,
        Occasion::Fixed,
        Occasion::WorkerLost,
        Occasion::Published,
        Occasion::Request,
    ];

    /// Its name, as in the configuration and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Occasion::RunBegan => "run-began",
            Occasion::RunEnded => "run-ended",
            Occasion::Failure => "failure",
            Occasion::FirstFailure => "first-failure",
            Occasion::NewlyFailing => "newly-failing",
            Occasion::Fixed => "fixed",
            Occasion::WorkerLost => "worker-lost",
            Occasion::Published => "published",
            Occasion::Request => "request",
        }
    }
}

impl fmt::Display for Occasion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Notify {
    /// What it is called.
    pub fn title(&self) -> String {
        let of = match (&self.name, &self.webhook, &self.mail[..], self.command.first()) {
            (Some(name), ..) => return name.clone(),
            (_, Some(webhook), ..) => kilnyard_mirror::without_password(webhook),
            (_, _, [first, ..], _) => first.clone(),
            (_, _, _, Some(program)) => program.clone(),
            _ => String::new(),
        };
        // Several tables may call the same address for different occasions.
        let on: Vec<&str> = self.on.iter().map(|occasion| occasion.as_str()).collect();
        format!("{of} ({})", on.join(", "))
    }

    /// Checks that titles differ: by them it is recorded what was delivered. The error is a sentence.
    pub(super) fn check_titles(tables: &[Notify]) -> Result<(), String> {
        let mut titles: Vec<String> = tables.iter().map(Notify::title).collect();
        titles.sort_unstable();
        match titles.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("notify: two tables are called {:?}: give them names", pair[0])),
            None => Ok(()),
        }
    }

    /// Whether it is for a package; without one, for what concerns no package.
    pub fn is_for(&self, package: Option<&str>) -> bool {
        let matches = |name: &str| {
            self.packages
                .iter()
                .any(|pattern| NamePattern::parse(pattern).is_ok_and(|pattern| pattern.matches(name)))
        };
        self.packages.is_empty() || package.is_none_or(matches)
    }

    /// Checks a table. The error is a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        let ways = [self.webhook.is_some(), !self.mail.is_empty(), !self.command.is_empty()];
        if ways.iter().filter(|way| **way).count() != 1 {
            return Err("notify: each table has one of webhook, mail and command".to_owned());
        }
        if self.on.is_empty() {
            let known = Occasion::ALL.map(Occasion::as_str).join(", ");
            return Err(format!("notify: `on` names when: {known}"));
        }
        if let Some(url) = &self.webhook
            && !(url.starts_with("https://") || url.starts_with("http://"))
        {
            return Err(format!("notify: {url:?} is not an address of http or https"));
        }
        if let Some(pattern) = self.packages.iter().find(|pattern| NamePattern::parse(pattern).is_err()) {
            return Err(format!("notify: {pattern:?} is not a pattern of names"));
        }
        let is_address = |address: &&String| {
            // What a header of a message can have without encoding (RFC 5322).
            let is_plain =
                address.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>,;:()[]\\\"".contains(&byte));
            is_plain && !address.starts_with('-') && address.len() <= 254
        };
        if let Some(address) = self.mail.iter().chain(&self.from).find(|address| !is_address(address)) {
            return Err(format!("notify: {address:?} is not an address of mail"));
        }
        let needs = [
            (self.secret_file.is_some() && self.webhook.is_none(), "secret-file is for a webhook"),
            (
                (self.from.is_some() || self.sendmail.is_some()) && self.mail.is_empty(),
                "from and sendmail are for mail",
            ),
            (self.sendmail.as_ref().is_some_and(Vec::is_empty), "sendmail is a program with its arguments"),
        ];
        match needs.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(format!("notify: {why}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_when_and_how() {
        let checked = |text: &str| {
            toml::from_str::<Notify>(text)
                .map_err(|error| error.to_string())
                .and_then(|notify| notify.check().map(|()| notify))
        };
        let mail = checked("on = [\"fixed\"]\nmail = [\"a@b.example\"]\npackages = [\"devel/*\"]").unwrap();
        assert!(mail.is_for(Some("devel/zlib")) && mail.is_for(None) && !mail.is_for(Some("www/w3m")));
        assert_eq!(mail.title(), "a@b.example (fixed)");
        for (text, reason) in [
            ("on = [\"fixed\"]", "one of webhook, mail and command"),
            ("command = [\"x\"]", "`on` names when"),
            ("on = [\"always\"]\ncommand = [\"x\"]", "unknown variant"),
            ("on = [\"fixed\"]\nwebhook = \"file:///etc/passwd\"", "not an address of http"),
            ("on = [\"fixed\"]\nmail = [\"a@b\\nBcc: c@d\"]", "not an address of mail"),
            ("on = [\"fixed\"]\nmail = [\"-oQ/tmp@b\"]", "not an address of mail"),
            ("on = [\"fixed\"]\ncommand = [\"x\"]\nsecret-file = \"s\"", "is for a webhook"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
