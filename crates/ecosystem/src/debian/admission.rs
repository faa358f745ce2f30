//! Decides which outputs of a build may be published.
//!
//! A build is untrusted: it may leave a package of any name and version in its folder. The decision rests on the
//! source's declarations outside the build (`Package-List` in the signed index or in the `.dsc`, which dpkg-source
//! writes from `debian/control`), on the packages that the yard publishes, and on the configuration. This module
//! reads no file and no clock.

use super::deb822::Stanza;
use super::ownership::{Owner, Owners, takeover_line};
use super::published::{Published, maker, split_number};
use super::source::{Declared, OutputKind, Source};
use super::version;
use kilnyard_model::order::Output;
use kilnyard_model::text;
use std::cmp::Ordering;

/// Suffix of debug symbol packages, which debhelper adds for a declared package.
pub(super) const DEBUG_ENDING: &str = "-dbgsym";
/// Number of declared names that an error lists.
const NAMES_SHOWN_MAX: usize = 12;

/// The request for a build, and the facts that its outputs are checked against.
pub(super) struct Order<'a> {
    pub source: Source<'a>,
    /// Version of the rebuild: the source's version, the suffix and a number.
    pub version: &'a str,
    pub suffix: &'a str,
    pub architecture: &'a str,
    pub owners: &'a Owners,
    pub published: &'a Published,
}

/// Publishable outputs, and the names of outputs that another source has taken over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Admitted {
    pub outputs: Vec<Output>,
    pub taken_over: Vec<(String, String)>,
}

/// The reason why an output must not be published.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{file} is the package {name}, which the source {source_name} does not declare: debian/control \
         declares {declared}"
    )]
    Undeclared { file: String, name: String, source_name: String, declared: String },
    #[error("{file} is for {found}, but the source {source_name} declares {name} for {declared}")]
    Architecture { file: String, name: String, source_name: String, found: String, declared: String },
    #[error(
        "{file} is a {found} package, but the source {source_name} declares {name} as a {declared} package"
    )]
    Kind { file: String, name: String, source_name: String, found: OutputKind, declared: OutputKind },
    #[error("{file} is named like debug symbols, but lacks the field `Auto-Built-Package: debug-symbols`")]
    NotDebugSymbols { file: String },
    #[error(
        "{file} claims to be made from version {found} of the source {source_name}, but this build uses {expected}"
    )]
    SourceVersion { file: String, source_name: String, found: String, expected: String },
    #[error("{file} has the version {found}, which does not contain the number of this rebuild, {ending}")]
    Unnumbered { file: String, found: String, ending: String },
    #[error(
        "{file} has the version {found}, which is not above the published version {published} of {name}: give \
         the source a higher version (with an epoch if necessary), or remove the source that publishes {name} from the \
         set and run kilnyard publish, which withdraws {name}"
    )]
    NotAbove { file: String, name: String, found: String, published: String },
    #[error(
        "{file} is the package {name}, which belongs to the source {owner}: if {source_name} should publish it from now \
         on, write `{line}` under [debian] in kilnyard.toml"
    )]
    Owned { file: String, name: String, source_name: String, owner: String, line: String },
    #[error(
        "{file} is the package {name}, which several sources of this yard declare ({claimants}): write `{line}` under \
         [debian] in kilnyard.toml if {source_name} should publish it"
    )]
    Disputed { file: String, name: String, source_name: String, claimants: String, line: String },
}

/// Checks the outputs of a build: returns all that are to be published, or the first refusal.
pub(super) fn admit(order: &Order, outputs: Vec<Output>) -> Result<Admitted, Refusal> {
    let declared: Vec<Declared> = order.source.declared();
    let mut admitted = Admitted::default();
    for output in outputs {
        let entry = order.entry(&declared, &output)?;
        match order.owners.of(entry.name) {
            Some(Owner::Configured(owner)) if owner != order.source.name() => {
                admitted.taken_over.push((output.name, owner.clone()));
                continue;
            }
            Some(Owner::Source(owner)) if owner != order.source.name() => {
                return Err(Refusal::Owned {
                    owner: owner.clone(),
                    line: takeover_line(order.source.name(), entry.name),
                    source_name: order.source.name().to_owned(),
                    name: output.name,
                    file: output.file,
                });
            }
            Some(Owner::Disputed(claimants)) => {
                return Err(Refusal::Disputed {
                    claimants: claimants.iter().cloned().collect::<Vec<_>>().join(", "),
                    line: takeover_line(order.source.name(), entry.name),
                    source_name: order.source.name().to_owned(),
                    name: output.name,
                    file: output.file,
                });
            }
            _ => {}
        }
        order.check_version(&output)?;
        admitted.outputs.push(output);
    }
    Ok(admitted)
}

impl Order<'_> {
    /// The declaration that covers an output.
    fn entry<'d, 's>(
        &self,
        declared: &'d [Declared<'s>],
        output: &Output,
    ) -> Result<&'d Declared<'s>, Refusal> {
        let (file, name) = (|| output.file.clone(), || output.name.clone());
        let source_name = || self.source.name().to_owned();
        let named = |name: &str| declared.iter().find(|entry| entry.name == name);
        let of_debug = || {
            let of = named(output.name.strip_suffix(DEBUG_ENDING)?)?;
            (of.kind == OutputKind::Deb).then_some(of)
        };
        let (entry, is_debug) = match (named(&output.name), of_debug()) {
            (Some(entry), _) => (entry, false),
            (None, Some(entry)) => (entry, true),
            (None, None) => {
                return Err(Refusal::Undeclared {
                    file: file(),
                    name: name(),
                    source_name: source_name(),
                    declared: names(declared),
                });
            }
        };
        let control = Stanza::new(&output.description);
        if is_debug && control.get("Auto-Built-Package") != Some("debug-symbols") {
            return Err(Refusal::NotDebugSymbols { file: file() });
        }
        let found = OutputKind::of_file(&output.file);
        if found != entry.kind {
            let (name, source_name, declared) = (name(), source_name(), entry.kind);
            return Err(Refusal::Kind { file: file(), name, source_name, found, declared });
        }
        // Debug symbols belong to machine code, so they are never architecture-independent.
        let is_possible = !is_debug || output.architecture != "all";
        if !is_possible || !entry.is_for(&output.architecture, self.architecture) {
            return Err(Refusal::Architecture {
                file: file(),
                name: name(),
                source_name: source_name(),
                found: output.architecture.clone(),
                declared: entry.architectures.to_owned(),
            });
        }
        Ok(entry)
    }

    fn check_version(&self, output: &Output) -> Result<(), Refusal> {
        let (_, source_version) = maker(&Stanza::new(&output.description));
        if let Some(found) =
            source_version.filter(|found| ![self.source.version(), self.version].contains(found))
        {
            return Err(Refusal::SourceVersion {
                file: output.file.clone(),
                source_name: self.source.name().to_owned(),
                found: text::line(found),
                expected: self.source.version().to_owned(),
            });
        }
        let ending = match split_number(self.version, self.suffix) {
            Some((_, number)) => format!("{}{number}", self.suffix),
            None => self.suffix.to_owned(),
        };
        if !carries(&output.version, &ending) {
            return Err(Refusal::Unnumbered {
                file: output.file.clone(),
                found: output.version.clone(),
                ending,
            });
        }
        match self.published.get(&output.name) {
            Some(published) if version::compare(&output.version, &published.version) != Ordering::Greater => {
                Err(Refusal::NotAbove {
                    file: output.file.clone(),
                    name: output.name.clone(),
                    found: output.version.clone(),
                    published: published.version.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Whether a version contains exactly this rebuild number, and not only its first digits. A source may append a
/// suffix of its own (`1.2+bk1cross3`).
fn carries(version: &str, ending: &str) -> bool {
    version.match_indices(ending).any(|(at, _)| {
        let behind = &version[at + ending.len()..];
        !behind.starts_with(|next: char| next.is_ascii_digit())
    })
}

fn names(declared: &[Declared]) -> String {
    let mut names: Vec<&str> = declared.iter().map(|entry| entry.name).collect();
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    names.truncate(NAMES_SHOWN_MAX);
    match (names.is_empty(), more) {
        (true, _) => "no package".to_owned(),
        (_, 0) => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
