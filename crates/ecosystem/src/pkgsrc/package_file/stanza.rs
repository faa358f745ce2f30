//! Renders the stanza of a summary, as `pkg_info -X` prints it.

use super::metadata::Texts;
use super::packing_list::{Line, PackingList};

/// The fields of `+BUILD_INFO` that a summary repeats, in the order of that file.
const REPEATED: [&str; 14] = [
    "PKGPATH",
    "CATEGORIES",
    "PROVIDES",
    "REQUIRES",
    "PKG_OPTIONS",
    "OPSYS",
    "OS_VERSION",
    "MACHINE_ARCH",
    "LICENSE",
    "HOMEPAGE",
    "PKGTOOLS_VERSION",
    "BUILD_DATE",
    "PREV_PKGPATH",
    "SUPERSEDES",
];

pub(super) fn render(list: &PackingList<'_>, texts: &Texts) -> String {
    let mut stanza = String::new();
    let mut add = |line: &[&str]| {
        line.iter().for_each(|piece| stanza.push_str(piece));
        stanza.push('\n');
    };
    for line in &list.lines {
        match line {
            Line::Name(name) => add(&["PKGNAME=", name]),
            Line::Dependency(pattern) => add(&["DEPENDS=", pattern]),
            Line::Conflict(pattern) => add(&["CONFLICTS=", pattern]),
        }
    }
    lines(&texts.comment).for_each(|line| add(&["COMMENT=", line]));
    lines(&texts.size).for_each(|line| add(&["SIZE_PKG=", line]));
    let is_repeated = |line: &&str| line.split_once('=').is_some_and(|(name, _)| REPEATED.contains(&name));
    lines(&texts.build_information).filter(is_repeated).for_each(|line| add(&[line]));
    lines(&texts.description).for_each(|line| add(&["DESCRIPTION=", line]));
    stanza
}

/// Splits lines like the package tools: a carriage return belongs to its line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line))
}
