//! The rules of `packages`, which select the sources of a set: one rule after another adds sources, or removes some.
//!
//! | rule | selects |
//! |---|---|
//! | `all` | every source of the release that builds here |
//! | `hello`, `python3-*`, `lib[ab]*` | sources by name; `*`, `?` and `[…]` match as in a shell |
//! | `hello=2.10-3`, `linux/bookworm-backports` | a source in this version, or from this suite or archive |
//! | `own/hello_2.10-3.dsc`, `own/*.dsc` | sources of this machine; they replace the archive's of the same name |
//! | `git:packaging/hello#main` | the source in a git repository; see `git` |
//! | `git:packages#main:hello`, `git:packages#main:*` | that in a folder of one; those in all folders |
//! | `@names.txt` | the rules in a file, one per line |
//! | `build-depends:zlib1g-dev` | sources with this package in their build dependencies |
//! | `depends-on:zlib` | sources that need a package of this source, directly or through others, to be built |
//! | `installed:machines/*.list` | sources of the packages in these lists: `dpkg -l`, `dpkg-query -W`, or names |
//! | `section:libs`, `priority:required` | sources of a section or a priority |
//! | `-RULE` | excludes what the rule selects |

use kilnyard_ecosystem::debian::relation;
use kilnyard_ecosystem::debian::suites::Pin;
use kilnyard_ecosystem::git::{self, GitAddress};
use kilnyard_mirror::without_password;
use kilnyard_yard::error::{Error, Result};

/// Files of rules may contain files of rules, down to this depth.
pub const DEPTH_MAX: usize = 8;
/// The maximum number of rules of a yard. A release has 40,000 sources, each of which may be a rule.
pub const RULES_MAX: usize = 1 << 20;

/// A rule; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether it removes sources.
    pub is_exclusion: bool,
    /// The sources that it concerns.
    pub selection: Selection,
}

/// The sources that a rule concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// Every source that builds here.
    All,
    /// A source by its exact name.
    Name(String),
    /// A source in one version.
    Pinned(Pin),
    /// Sources whose names match a pattern.
    Pattern(String),
    /// A `.dsc` file of this machine, or a pattern of them, relative to the yard.
    Local(String),
    /// The source in a git repository.
    Git(GitAddress),
    /// The rules in a file, relative to the yard.
    Rules(String),
    /// Sources that name this binary package in their build dependencies.
    BuildDepends(String),
    /// Sources whose build needs a binary package of this source.
    DependsOn(String),
    /// Sources of the binary packages in lists, a pattern of files relative to the yard.
    Installed(String),
    /// Sources of a section.
    Section(String),
    /// Sources of a priority.
    Priority(String),
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// It is not a rule; the message says what is expected.
    pub fn parse(text: &str) -> Result<Rule> {
        let (is_exclusion, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text),
        };
        if let Some(place) = body.strip_prefix(git::PREFIX) {
            let rule = GitAddress::parse(place).map_err(|reason| {
                Error::usage(format!("`{}` is not a git repository: {reason}", without_password(text)))
                    .hint("git:PATH, git:https://HOST/PATH, git:ssh://HOST/PATH or git:USER@HOST:PATH, with #BRANCH or #BRANCH:FOLDER")
            })?;
            return Ok(Rule { is_exclusion, selection: Selection::Git(rule) });
        }
        let selection = Selection::parse(body).ok_or_else(|| {
            Error::usage(format!("`{text}` is neither the name of a source package nor a rule")).hint(
                "a name or pattern, NAME=VERSION, NAME/SUITE, a .dsc file, git:REPOSITORY, all, @FILE, build-depends:, depends-on:, installed:, section: or \
                 priority:, with - in front to leave out",
            )
        })?;
        if let (true, Selection::Pinned(pin)) = (is_exclusion, &selection) {
            return Err(Error::usage(format!(
                "`{text}` excludes one version of a source, which is not supported"
            ))
            .hint(format!("-{}, which excludes every version", pin.name)));
        }
        Ok(Rule { is_exclusion, selection })
    }
}

impl Selection {
    /// Whether it names each of its sources, or has those of this machine; others are wide.
    pub fn is_explicit(&self) -> bool {
        self.is_own() || matches!(self, Selection::Name(_) | Selection::Pinned(_))
    }

    /// Whether its sources are the yard owner's rather than the archive's.
    pub fn is_own(&self) -> bool {
        matches!(self, Selection::Local(_) | Selection::Git(_))
    }

    fn parse(text: &str) -> Option<Selection> {
        let is_word = |word: &str| !word.is_empty() && !word.contains(char::is_whitespace);
        let name = |name: &str| relation::is_name(name).then(|| name.to_owned());
        if let Some(file) = text.strip_prefix('@') {
            return is_word(file).then(|| Selection::Rules(file.to_owned()));
        }
        if text.ends_with(".dsc") {
            return Some(Selection::Local(text.to_owned()));
        }
        if let Some((kind, value)) = text.split_once(':') {
            return match kind {
                "build-depends" => name(value).map(Selection::BuildDepends),
                "depends-on" => name(value).map(Selection::DependsOn),
                "installed" => is_word(value).then(|| Selection::Installed(value.to_owned())),
                "section" => is_word(value).then(|| Selection::Section(value.to_owned())),
                "priority" => is_word(value).then(|| Selection::Priority(value.to_owned())),
                // The epoch of a version: `zlib=1:1.2.13.dfsg-1`.
                _ => Pin::parse(text).map(Selection::Pinned),
            };
        }
        if text == kilnyard_yard::config::ALL {
            return Some(Selection::All);
        }
        if relation::is_name(text) {
            return Some(Selection::Name(text.to_owned()));
        }
        if let Some(pin) = Pin::parse(text) {
            return Some(Selection::Pinned(pin));
        }
        let is_pattern = text.contains(['*', '?', '[']) && glob::Pattern::new(text).is_ok();
        let is_plain =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.*?[]!".contains(&b));
        (is_pattern && is_plain).then(|| Selection::Pattern(text.to_owned()))
    }
}
