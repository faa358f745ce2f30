//! Options of single packages that change what is built: checks, profiles, environment, network, settings of make,
//! kept work.
//!
//! A yard's configuration sets them by name or pattern, in order. If several rules match a package, the last one that
//! sets an option applies. Only set options are lines of a package's key, so the keys of all other packages do not
//! change. Limits, priorities and other settings that do not affect the outputs are not here.

use crate::{RESOLV_CONF, TEXTS};
use glob::Pattern;
use kilnyard_model::order::{Account, BuildOrder, CommandOrder, StageOrder};
use std::collections::BTreeMap;
use std::fmt;

/// The longest name or pattern. Names of packages have up to a hundred bytes.
const NAME_BYTES_MAX: usize = 256;

/// The name of a package, or a shell pattern of names.
///
/// If a directory makes several packages, named `DIRECTORY:PACKAGE`, the name of the directory stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    /// Absent for a plain name.
    pattern: Option<Pattern>,
}

impl NamePattern {
    /// Parses a name or pattern.
    ///
    /// # Errors
    /// The text is neither; the reason reads after it.
    pub fn parse(text: &str) -> Result<NamePattern, String> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "+-._/:@~*?[]!".contains(c);
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_known) {
            return Err("is neither the name of a package nor a pattern of names".to_owned());
        }
        if text.contains("**") {
            return Err("is not a pattern of names: one * is enough".to_owned());
        }
        let pattern = text.contains(['*', '?', '[', ']', '!']).then(|| Pattern::new(text)).transpose();
        let pattern = pattern.map_err(|error| format!("is not a pattern of names: {}", error.msg))?;
        Ok(NamePattern { text: text.to_owned(), pattern })
    }

    /// Whether it is a pattern rather than a plain name.
    pub fn is_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// The name or pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches a package, or the directory that makes it.
    pub fn matches(&self, name: &str) -> bool {
        let is_of = |name: &str| match &self.pattern {
            Some(pattern) => pattern.matches(name),
            None => self.text == name,
        };
        is_of(name) || name.split_once(':').is_some_and(|(directory, _)| is_of(directory))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The options of a package that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the package's own tests run.
    pub checks: Option<bool>,
    /// Whether the tests that it declares for installed packages run, as packages of their own.
    pub autopkgtest: Option<bool>,
    /// Build profiles, in addition to the yard's.
    pub profiles: Option<Vec<String>>,
    /// Words for the package's own build, in addition to Kilnyard's.
    pub words: Option<Vec<String>>,
    /// Variables of all commands of the build, but not of those that install dependencies or test outputs.
    pub environment: BTreeMap<String, String>,
    /// Whether the stages of the build may use the network.
    pub network: Option<bool>,
    /// Whether it is cross-built where its architecture cannot run.
    pub cross: Option<bool>,
    /// Settings that make reads for this package after all others.
    pub mk_conf: Option<String>,
    /// Folders of its source that the machine keeps for its next build.
    pub keep: Option<Vec<String>>,
}

impl Options {
    /// Replaces every option that `later` sets; in the environment, every variable.
    fn override_by(&mut self, later: &Options) {
        let Options { checks, autopkgtest, profiles, words, environment, network, cross, mk_conf, keep } =
            later;
        self.checks = checks.or(self.checks);
        self.autopkgtest = autopkgtest.or(self.autopkgtest);
        self.network = network.or(self.network);
        self.cross = cross.or(self.cross);
        for (own, later) in [(&mut self.profiles, profiles), (&mut self.words, words), (&mut self.keep, keep)]
        {
            if later.is_some() {
                own.clone_from(later);
            }
        }
        if mk_conf.is_some() {
            self.mk_conf.clone_from(mk_conf);
        }
        self.environment.extend(environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Whether the stages of the build may use the network.
    pub fn has_network(&self) -> bool {
        self.network == Some(true)
    }

    /// The folders of its source that the machine keeps for its next build; empty if there are none.
    pub fn kept_folders(&self) -> &[String] {
        self.keep.as_deref().unwrap_or_default()
    }

    /// The lines of the package's key about its environment, network and kept work.
    pub(crate) fn key_lines(&self) -> Vec<String> {
        let variables = self.environment.iter();
        let mut lines: Vec<String> =
            variables.map(|(name, value)| format!("option environment.{name} {value}")).collect();
        if self.has_network() {
            lines.push("option network true".to_owned());
        }
        if !self.kept_folders().is_empty() {
            lines.push(format!("option keep {}", self.kept_folders().join(" ")));
        }
        lines
    }

    /// Adds the variables to those of a command; the command's own take precedence.
    pub fn add_environment(&self, variables: &mut Vec<(String, String)>) {
        for (name, value) in &self.environment {
            if !variables.iter().any(|(own, _)| own == name) {
                variables.push((name.clone(), value.clone()));
            }
        }
    }

    /// Gives the environment and the network to the commands of a build.
    pub(crate) fn apply_to(&self, order: &mut BuildOrder) {
        let fetch = order.fetch.iter_mut().map(|fetch| &mut fetch.stage);
        for command in order.stages.iter_mut().chain(fetch).flat_map(|stage| &mut stage.commands) {
            self.add_environment(&mut command.environment);
        }
        order.terms.has_network = self.has_network();
        if let (true, Some(StageOrder { commands, .. })) = (self.has_network(), order.stages.first_mut()) {
            commands.insert(0, resolving());
        }
    }
}

/// Gives a root the machine's configuration of DNS. The file may be a dangling link.
fn resolving() -> CommandOrder {
    let (from, to) = (format!("{TEXTS}/{RESOLV_CONF}"), "/etc/resolv.conf");
    CommandOrder {
        arguments: ["cp", "--remove-destination", &from, to].map(str::to_owned).to_vec(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: Vec::new(),
    }
}

/// The options of all packages: rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionRules(Vec<(NamePattern, Options)>);

impl OptionRules {
    /// These rules; later ones override earlier ones.
    pub fn new(rules: Vec<(NamePattern, Options)>) -> OptionRules {
        OptionRules(rules)
    }

    /// The options of a package.
    pub fn of(&self, name: &str) -> Options {
        let mut all = Options::default();
        for (_, options) in self.0.iter().filter(|(pattern, _)| pattern.matches(name)) {
            all.override_by(options);
        }
        all
    }

    /// All rules, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&NamePattern, &Options)> {
        self.0.iter().map(|(pattern, options)| (pattern, options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, Options)]) -> OptionRules {
        let parsed = |(name, options): &(&str, Options)| (NamePattern::parse(name).unwrap(), options.clone());
        OptionRules::new(rules.iter().map(parsed).collect())
    }

    fn words(words: &[&str]) -> Option<Vec<String>> {
        Some(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_and_patterns_match_packages_and_their_directories() {
        let matches = |pattern: &str, name: &str| NamePattern::parse(pattern).unwrap().matches(name);
        for (pattern, name) in [
            ("zlib", "zlib"),
            ("python3-*", "python3-yaml"),
            ("lib[ab]?", "liba1"),
            ("lib[!ab]*", "libc"),
            ("lang/*", "lang/python313"),
            ("lang/*", "lang/python313:py313"),
            ("lang/python313", "lang/python313:py313"),
            ("lang/python313:py313", "lang/python313:py313"),
            ("*", "anything/at-all"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("zlib", "zlib1g"),
            ("python3-*", "python3"),
            ("lib[ab]?", "libc1"),
            ("lang/python313:py313", "lang/python313"),
            ("zlib*", "xzlib"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        for bad in ["", "a b", "a\u{1b}[2J", "a**", "lib[", "é", "${x}", "a\nb", "a\\b", &"a".repeat(300)] {
            assert!(NamePattern::parse(bad).is_err(), "{bad:?}");
        }
        assert!(
            NamePattern::parse("a?").unwrap().is_pattern() && !NamePattern::parse("a").unwrap().is_pattern()
        );
    }

    #[test]
    fn later_rules_override_earlier_ones_option_by_option() {
        let first = Options {
            checks: Some(true),
            profiles: words(&["nodoc"]),
            environment: variables(&[("A", "1"), ("B", "1")]),
            network: Some(true),
            ..Options::default()
        };
        let second = Options {
            profiles: words(&["noinsttest"]),
            environment: variables(&[("B", "2")]),
            network: Some(false),
            mk_conf: Some("X=1\n".to_owned()),
            ..Options::default()
        };
        let rules = rules(&[("lib*", first.clone()), ("libx", second)]);
        assert_eq!(rules.of("liba"), first);
        let both = rules.of("libx");
        assert_eq!((both.checks, both.network, both.has_network()), (Some(true), Some(false), false));
        assert_eq!(both.profiles, words(&["noinsttest"]));
        assert_eq!(both.environment, variables(&[("A", "1"), ("B", "2")]));
        assert_eq!(both.mk_conf.as_deref(), Some("X=1\n"));
        assert_eq!(both.key_lines(), ["option environment.A 1", "option environment.B 2"]);
        assert_eq!(rules.of("other"), Options::default());
        assert!(rules.of("other").key_lines().is_empty());
    }
}
