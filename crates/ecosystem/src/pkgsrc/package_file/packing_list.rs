//! The packing list, `+CONTENTS` (pkg_create(1)): one line per file, and commands that begin with `@`.

use super::PackageProblem;

/// The characters that `isspace(3)` accepts.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// Leaves room for a suffix such as `.tgz` in the longest name that file systems accept.
const NAME_BYTES_MAX: usize = 240;

/// Characters of an invalid name that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A line of a packing list that a summary repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Name(&'a str),
    Dependency(&'a str),
    Conflict(&'a str),
}

/// The facts about packages in a packing list.
#[derive(Debug)]
pub(super) struct PackingList<'a> {
    pub(super) name: &'a str,
    /// The lines that a summary repeats, in order.
    pub(super) lines: Vec<Line<'a>>,
    /// The exact names of the packages that it was built with.
    pub(super) built_with: Vec<&'a str>,
}

impl<'a> PackingList<'a> {
    /// Ignores other commands, and commands without an argument.
    pub(super) fn parse(text: &'a str) -> Result<Self, PackageProblem> {
        let mut names = Vec::new();
        let (mut lines, mut built_with) = (Vec::new(), Vec::new());
        for line in text.split('\n') {
            // Like the package tools, this accepts an argument that follows its command without a blank.
            let argument = |command: &str| {
                let argument = line.strip_prefix(command)?.trim_matches(BLANKS);
                (!argument.is_empty()).then_some(argument)
            };
            if let Some(name) = argument("@name") {
                names.push(name);
                lines.push(Line::Name(name));
            } else if let Some(pattern) = argument("@pkgdep") {
                lines.push(Line::Dependency(pattern));
            } else if let Some(pattern) = argument("@pkgcfl") {
                lines.push(Line::Conflict(pattern));
            } else if let Some(name) = argument("@blddep") {
                built_with.push(name);
            }
        }
        let [name] = names[..] else { return Err(PackageProblem::NameCount { count: names.len() }) };
        if !is_package_name(name) {
            return Err(PackageProblem::Name { name: name.chars().take(SHOWN_CHARACTERS_MAX).collect() });
        }
        Ok(Self { name, lines, built_with })
    }
}

/// Whether this is a name and a version in pkgsrc's character set: it becomes a file name.
fn is_package_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'+');
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.rsplit_once('-').is_some_and(|(_, version)| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_about_packages_are_found_in_order() {
        let text = "@cwd /usr/pkg\n@pkgcfl b-[0-9]*\n@name a-1.0nb2 \nbin/a\n@comment @name x-1\n@pkgdep\tc>=1<2\r\n\
                    @blddep c-1.5\n@pkgdep\n@blddepd-2\n@ignore\n@name";
        let list = PackingList::parse(text).unwrap();
        assert_eq!(list.name, "a-1.0nb2");
        assert_eq!(
            list.lines,
            [Line::Conflict("b-[0-9]*"), Line::Name("a-1.0nb2"), Line::Dependency("c>=1<2")]
        );
        assert_eq!(list.built_with, ["c-1.5", "d-2"]);
    }

    #[test]
    fn exactly_one_valid_name_is_required() {
        let error = |text: &str| PackingList::parse(text).unwrap_err().to_string();
        assert_eq!(error("bin/a\n"), "its packing list has 0 names");
        assert_eq!(error("@name a-1\n@name a-1\n"), "its packing list has 2 names");
        let long = format!("{}-1", "a".repeat(NAME_BYTES_MAX));
        for bad in ["a", "a-", "-1", ".a-1", "../a-1", "a/b-1", "a b-1", "é-1", "a-1\u{7f}", &long] {
            assert!(error(&format!("@name {bad}\n")).contains("is not a valid package name"), "{bad}");
        }
    }
}
