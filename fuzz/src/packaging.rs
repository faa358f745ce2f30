//! Pins, rules that name git repositories, and what these say about their packages.

use crate::{parts, text};
use kilnyard_ecosystem::debian::packaging::{Changelog, upstream_tag};
use kilnyard_ecosystem::debian::suites::{Choice, Pin, is_suite_name};
use kilnyard_ecosystem::debian::{relation, version};
use kilnyard_ecosystem::git::{GitAddress, PREFIX, Repository};

/// A rule, a pin, a changelog and a `gbp.conf`. What is accepted prints to what it was parsed from, or to what means the same, and cannot be taken
/// for an option, a search or a command by git, ssh or a shell.
pub fn packaging(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let [rules, pins, changelog, gbp_conf] = parts(text);
    for line in rules.lines() {
        let Ok(rule) = GitAddress::parse(line) else { continue };
        let printed = rule.to_string();
        assert_eq!(GitAddress::parse(printed.strip_prefix(PREFIX).unwrap()).as_ref(), Ok(&rule));
        // `HEAD` is what no reference means, and prints as none.
        assert!(printed == format!("{PREFIX}{line}") || line.contains("#HEAD"), "{printed}");
        if let Some(reference) = &rule.reference {
            is_harmless(reference);
        }
        if let Some(folder) = &rule.folder {
            assert!(
                !folder.starts_with(['-', '/', '.']) && !folder.split('/').any(|part| part == ".."),
                "{folder:?}"
            );
        }
        let (Repository::Folder(place) | Repository::Https(place) | Repository::Ssh(place)) =
            &rule.repository;
        assert!(
            !place.starts_with('-') && !place.contains("::") && !place.contains(char::is_whitespace),
            "{place:?}"
        );
        assert_eq!(
            place.contains("://"),
            matches!(&rule.repository, Repository::Https(_)) || place.starts_with("ssh://")
        );
        assert!(!place.contains("/-oProxy") || !place.starts_with("ssh://-"));
    }
    for line in pins.lines() {
        let Some(pin) = Pin::parse(line) else { continue };
        assert_eq!(pin.to_string(), line);
        assert!(relation::is_name(&pin.name));
        match &pin.choice {
            Choice::Version(text) => assert!(version::is_valid(text)),
            Choice::From(name) => assert!(is_suite_name(name) && !name.contains("..")),
        }
    }
    if let Ok(read) = Changelog::parse(changelog) {
        assert!(
            relation::is_name(&read.source) && version::is_valid(&read.version) && read.date_seconds >= 0
        );
        assert!(changelog.contains(&read.version) && read.version.contains(read.upstream()));
        if let Some(tag) = upstream_tag(gbp_conf, read.upstream()) {
            is_harmless(&tag);
        }
    }
}

fn is_harmless(reference: &str) {
    assert!(!reference.is_empty() && !reference.starts_with(['-', '/', '.']), "{reference:?}");
    assert!(!reference.contains(|c: char| " ~^:?*[\\@{$`'\"\n".contains(c)), "{reference:?}");
    assert!(!reference.contains("..") && !reference.contains("//"), "{reference:?}");
}
