//! Parsers for git repositories of packages: the first entry of `debian/changelog`, and the tag of the upstream version
//! according to `debian/gbp.conf`.

use super::relation;
use super::version;
use crate::git::is_reference;
use jiff::fmt::rfc2822;

/// The first entry of a changelog (deb-changelog(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changelog {
    /// Name of the source package.
    pub source: String,
    /// Its version.
    pub version: String,
    /// The date of the entry, in seconds since the epoch.
    pub date_seconds: i64,
}

impl Changelog {
    /// Parses the first entry of `debian/changelog`.
    ///
    /// # Errors
    /// The first or the last line of the entry is malformed; the reason reads after the name of the file.
    pub fn parse(text: &str) -> Result<Changelog, &'static str> {
        let mut lines = text.lines().skip_while(|line| line.trim().is_empty());
        let head = lines.next().ok_or("is empty")?;
        let (source, rest) = head.split_once(" (").ok_or("does not begin with `NAME (VERSION)`")?;
        let (version, _) = rest.split_once(')').ok_or("does not begin with `NAME (VERSION)`")?;
        if !relation::is_name(source) || !version::is_valid(version) {
            return Err("has an invalid name or version in its first line");
        }
        let is_in_entry = |line: &&str| line.is_empty() || line.starts_with([' ', '\t']);
        let end = lines.take_while(is_in_entry).find_map(|line| line.strip_prefix(" -- "));
        let date =
            end.and_then(|line| line.rsplit_once("> ")).ok_or("has no ` -- Name <address>  date` line")?.1;
        let date =
            rfc2822::parse(date.trim()).map_err(|_| "has an entry with a date that is not RFC 2822")?;
        let date_seconds = date.timestamp().as_second();
        if date_seconds < 0 {
            return Err("has a date before 1970");
        }
        Ok(Changelog { source: source.to_owned(), version: version.to_owned(), date_seconds })
    }

    /// The version without epoch and Debian revision, as used in file names.
    pub fn upstream(&self) -> &str {
        let plain = version::without_epoch(&self.version);
        plain.rsplit_once('-').map_or(plain, |(upstream, _)| upstream)
    }
}

/// The default of git-buildpackage's `upstream-tag`.
const UPSTREAM_TAG: &str = "upstream/%(version)s";

/// The tag of an upstream version, according to the text of `debian/gbp.conf`, which may be empty. Absent if the
/// configured format contains more than the version, or the result is not a valid tag.
pub fn upstream_tag(gbp_conf: &str, upstream: &str) -> Option<String> {
    let mut form = UPSTREAM_TAG;
    let mut is_for_builds = false;
    for line in gbp_conf.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // The section's names in gbp.conf(5), current and former.
            is_for_builds = matches!(section, "DEFAULT" | "buildpackage" | "git-buildpackage");
        } else if let Some((key, value)) = line.split_once(['=', ':']).filter(|_| is_for_builds)
            && key.trim() == "upstream-tag"
        {
            form = value.trim();
        }
    }
    // git-buildpackage writes versions in tags like this (DEP-14).
    let mut version = upstream.replace('~', "_").replace(':', "%");
    while version.contains("..") {
        version = version.replace("..", ".#.");
    }
    let tag = form.replace("%(version)s", &version);
    let is_filled = !tag.contains("%(");
    (is_filled && is_reference(&tag)).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "hello (1:2.10-3) unstable; urgency=medium\n\n  * Fixed.\n\n \
        -- A <a@example.org>  Mon, 26 Dec 2022 16:30:00 +0100\n\nhello (2) x; urgency=low\n";

    #[test]
    fn the_first_entry_of_a_changelog_is_read() {
        let read = Changelog::parse(CHANGELOG).unwrap();
        assert_eq!((&*read.source, &*read.version, read.upstream()), ("hello", "1:2.10-3", "2.10"));
        assert_eq!(read.date_seconds, 1_672_068_600);
        for (from, to, reason) in [
            ("hello (1:2.10-3)", "", "does not begin"),
            ("hello", "../x", "invalid name"),
            ("1:2.10-3", "1$(x)", "invalid name or version"),
            (" --", "--", "no ` -- "),
            ("26 Dec", "99 Dec", "not RFC 2822"),
            ("2022", "1910", "before 1970"),
        ] {
            let text = CHANGELOG.replacen(from, to, 1);
            let error = Changelog::parse(&text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Changelog::parse("\n\n").is_err());
    }

    #[test]
    fn upstream_tags_follow_gbp_conf() {
        assert_eq!(upstream_tag("", "1.0~rc1").unwrap(), "upstream/1.0_rc1");
        let conf = "[DEFAULT]\n# upstream-tag = x\npristine-tar = True\n[buildpackage]\nupstream-tag = v%(version)s\n\
                    [import-orig]\nupstream-tag = no/%(version)s\n";
        assert_eq!(upstream_tag(conf, "2.1").unwrap(), "v2.1");
        assert_eq!(upstream_tag("[DEFAULT]\nupstream-tag=%(version%~%.)s", "1"), None);
        assert_eq!(upstream_tag("[DEFAULT]\nupstream-tag=--output=x%(version)s", "1"), None);
        assert_eq!(upstream_tag("[DEFAULT]\nupstream-tag=../../%(version)s", "1"), None);
    }
}
