//! Decides which source of the set may publish a name: exactly one for each name.
//!
//! Several sources may declare the same binary package, and the archive's next version of a source may declare one
//! that another source has published until now. A source cannot take over a name merely by declaring it: the name
//! stays with the source that publishes it, and only `takeover` in the configuration gives it to another one. If
//! several sources declare a name that none of them publishes yet, it goes to the one that makes it in the archive;
//! if none of them does, none may publish it until the configuration decides.

use super::published::Published;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Names that the configuration gives to a source: binary package name to source name.
pub type Takeovers = BTreeMap<String, String>;

/// The source that may publish a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The configuration gives the name to this source.
    Configured(String),
    /// This source publishes the name, or is the rightful one to do so.
    Source(String),
    /// None of these sources; all of them declare the name.
    Disputed(BTreeSet<String>),
}

/// The owner of each name; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    by_name: HashMap<String, Owner>,
    /// Remarks about names that more than one source claims, one sentence each.
    pub(super) remarks: Vec<String>,
}

/// The facts that decide who owns a name.
pub(super) struct Claims<'a> {
    /// Name of a binary package to the sources of the set that declare it.
    pub claimants: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// All sources of the set, including those that cannot be built: their published packages stay published.
    pub sources: BTreeSet<&'a str>,
    pub published: &'a Published,
    pub takeovers: &'a Takeovers,
}

impl Owners {
    /// Decides the owner of every declared or published name. `maker` returns the source that makes a name in the
    /// archive.
    pub(super) fn decide<'a>(claims: &Claims, maker: impl Fn(&str) -> Option<&'a str>) -> Owners {
        let mut owners = Owners::default();
        for (name, binary) in claims.published.all() {
            if claims.sources.contains(binary.source.as_str()) {
                owners.by_name.insert(name.to_owned(), Owner::Source(binary.source.clone()));
            }
        }
        for (name, claimants) in &claims.claimants {
            let holder = match owners.by_name.get(*name) {
                Some(Owner::Source(holder)) => Some(holder.clone()),
                _ => None,
            };
            let owner = holder.clone().map(Owner::Source).unwrap_or_else(|| match maker(name) {
                _ if claimants.len() == 1 => Owner::Source(joined(claimants)),
                Some(maker) if claimants.contains(maker) => Owner::Source(maker.to_owned()),
                _ => Owner::Disputed(claimants.iter().map(|source| (*source).to_owned()).collect()),
            });
            if !claims.takeovers.contains_key(*name) {
                owners.remarks.extend(remark(name, claimants, &owner));
            }
            owners.by_name.insert((*name).to_owned(), owner);
        }
        for (name, source) in claims.takeovers {
            let declares =
                claims.claimants.get(name.as_str()).is_some_and(|all| all.contains(source.as_str()));
            if !declares {
                owners.remarks.push(format!(
                    "takeover in kilnyard.toml gives {name} to {source}, but that source is not in the set or does not \
                     declare {name}"
                ));
            }
            owners.by_name.insert(name.clone(), Owner::Configured(source.clone()));
        }
        owners
    }

    /// The owner of a name; `None` if there is no claim to it.
    pub fn of(&self, name: &str) -> Option<&Owner> {
        self.by_name.get(name)
    }

    /// Whether this source may publish this name. A name without any claim is free.
    pub fn is_owner(&self, name: &str, source: &str) -> bool {
        match self.of(name) {
            Some(Owner::Configured(owner) | Owner::Source(owner)) => owner == source,
            Some(Owner::Disputed(_)) => false,
            None => true,
        }
    }
}

/// The configuration line that gives a name to a source.
pub(super) fn takeover_line(source: &str, name: &str) -> String {
    format!("takeover.\"{source}\" = [\"{name}\"]")
}

fn joined(claimants: &BTreeSet<&str>) -> String {
    claimants.iter().copied().collect::<Vec<_>>().join(" and ")
}

fn remark(name: &str, claimants: &BTreeSet<&str>, owner: &Owner) -> Option<String> {
    let others = |owner: &str| claimants.iter().copied().filter(|source| *source != owner).collect();
    match owner {
        Owner::Configured(_) => None,
        Owner::Source(owner) => {
            let others: BTreeSet<&str> = others(owner);
            let other = others.first()?;
            Some(format!(
                "{name} belongs to {owner}; {} also declares it, but must not publish it; to transfer it, \
                 write `{}` under [debian] in kilnyard.toml",
                joined(&others),
                takeover_line(other, name)
            ))
        }
        Owner::Disputed(_) => Some(format!(
            "{name} is declared by {}: none of them can publish it until one is chosen, for example with \
             `{}` under [debian] in kilnyard.toml",
            joined(claimants),
            takeover_line(claimants.first()?, name)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        claimants: &[(&'static str, &[&'static str])],
        published: &str,
        takeovers: &[(&str, &str)],
    ) -> Owners {
        let mut known = Published::default();
        known.add(published, "+bk");
        let takeovers =
            takeovers.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect();
        let claims = Claims {
            claimants: claimants
                .iter()
                .map(|(name, sources)| (*name, sources.iter().copied().collect()))
                .collect(),
            sources: ["one", "two"].into(),
            published: &known,
            takeovers: &takeovers,
        };
        Owners::decide(&claims, |name| (name == "archived").then_some("two"))
    }

    const TOOL_OF_ONE: &str = "Package: tool\nSource: one\nVersion: 1+bk1\n";

    #[test]
    fn a_name_stays_with_the_source_that_publishes_it() {
        let owners = decide(&[("tool", &["two"])], TOOL_OF_ONE, &[]);
        assert!(owners.is_owner("tool", "one") && !owners.is_owner("tool", "two"));
        assert!(
            owners.remarks[0].contains("`takeover.\"two\" = [\"tool\"]` under [debian]"),
            "{:?}",
            owners.remarks
        );
        // A source that left the set has no claim.
        let owners = decide(&[("tool", &["two"])], "Package: tool\nSource: gone\nVersion: 1\n", &[]);
        assert!(owners.is_owner("tool", "two") && owners.remarks.is_empty());
    }

    #[test]
    fn of_two_claimants_only_the_archives_maker_gets_the_name() {
        let owners = decide(&[("archived", &["one", "two"]), ("new", &["one", "two"])], "", &[]);
        assert!(owners.is_owner("archived", "two") && !owners.is_owner("archived", "one"));
        assert!(!owners.is_owner("new", "one") && !owners.is_owner("new", "two"));
        assert_eq!(owners.remarks.len(), 2);
        assert!(owners.remarks[1].contains("new is declared by one and two"), "{:?}", owners.remarks);
    }

    #[test]
    fn only_the_configuration_gives_a_name_to_another_source() {
        let owners = decide(&[("tool", &["one", "two"])], TOOL_OF_ONE, &[("tool", "two")]);
        assert!(owners.is_owner("tool", "two") && !owners.is_owner("tool", "one"));
        assert!(owners.remarks.is_empty());
        let owners = decide(&[], "", &[("tool", "two")]);
        assert!(owners.remarks[0].contains("does not declare tool"), "{:?}", owners.remarks);
    }
}
