//! Parsers for git repositories of packages: the rule that names one, the first entry of `debian/changelog`, and the
//! tag of the upstream version according to `debian/gbp.conf`.

use super::relation;
use super::version;
use jiff::fmt::rfc2822;

/// The longest accepted rule; no path or URL in use is longer.
const RULE_BYTES_MAX: usize = 4096;

/// A git repository with a `debian` folder, and the commit to build: `git:PATH-OR-URL[#REF]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitRule {
    /// A path relative to the yard, or an address that git fetches from.
    pub repository: Repository,
    /// A branch, a tag or a commit; the repository's own `HEAD` if absent.
    pub reference: Option<String>,
}

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Repository {
    /// A folder of this machine.
    Folder(String),
    /// An `https://` address.
    Https(String),
    /// An `ssh://` address, or `git@HOST:PATH`.
    Ssh(String),
}

impl GitRule {
    /// Parses what follows `git:`.
    ///
    /// # Errors
    /// The text is not an accepted address; the reason says what is accepted.
    pub fn parse(text: &str) -> Result<GitRule, &'static str> {
        if text.len() > RULE_BYTES_MAX {
            return Err("it is too long");
        }
        let (place, reference) = match text.split_once('#') {
            Some((place, reference)) => (place, Some(reference)),
            None => (text, None),
        };
        if reference.is_some_and(|reference| !is_reference(reference)) {
            return Err("the text after # is not the name of a branch, a tag or a commit");
        }
        let repository = repository(place)?;
        Ok(GitRule { repository, reference: reference.map(str::to_owned) })
    }

    /// The likely name of the package: that of the repository.
    pub fn presumed(&self) -> &str {
        let (Repository::Folder(place) | Repository::Https(place) | Repository::Ssh(place)) =
            &self.repository;
        let last = place.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or(place);
        last.strip_suffix(".git").unwrap_or(last)
    }
}

impl std::fmt::Display for GitRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Repository::Folder(place) | Repository::Https(place) | Repository::Ssh(place)) =
            &self.repository;
        write!(f, "git:{place}")?;
        self.reference.iter().try_for_each(|reference| write!(f, "#{reference}"))
    }
}

fn repository(place: &str) -> Result<Repository, &'static str> {
    let is_plain =
        |text: &str| !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if !is_plain(place) || place.starts_with('-') {
        return Err("it names no repository");
    }
    // git runs `git-remote-NAME` for `NAME::ADDRESS`, and with `ext::` any command.
    if place.contains("::") {
        return Err("remote helpers of git are not accepted");
    }
    // A host that begins with a dash would be an option of ssh.
    let is_host = |host: &str| {
        let host = host.rsplit('@').next().unwrap_or(host);
        host.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    if let Some((scheme, rest)) = place.split_once("://") {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_whole = !host.starts_with('-') && is_host(host) && !path.is_empty();
        return match scheme {
            "https" if is_whole => Ok(Repository::Https(place.to_owned())),
            "ssh" if is_whole => Ok(Repository::Ssh(place.to_owned())),
            "https" | "ssh" => Err("its address has no host or no path"),
            _ => Err("only https:// and ssh:// addresses and paths are accepted"),
        };
    }
    // USER@HOST:PATH, as git itself reads it: a colon before the first slash.
    let first_slash = place.find('/').unwrap_or(place.len());
    if let Some((host, path)) = place.split_once(':').filter(|(host, _)| host.len() < first_slash) {
        return match host.contains('@')
            && !host.starts_with('@')
            && is_host(host)
            && is_plain(path)
            && !path.starts_with('-')
        {
            true => Ok(Repository::Ssh(place.to_owned())),
            false => Err("a path with a colon needs ./ in front, and an address of ssh is USER@HOST:PATH"),
        };
    }
    Ok(Repository::Folder(place.to_owned()))
}

/// Whether a text can be the name of a branch or a tag, or a commit. It excludes the operators of git's revision
/// syntax (gitrevisions(7)), which search the history or select other commits.
fn is_reference(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._/+%-=,".contains(c);
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(is_part)
        && !text.contains("..")
        && !text.contains("//")
        && !text.ends_with(['/', '.'])
        && !text.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"))
}

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

    #[test]
    fn repositories_are_parsed() {
        for text in [
            "packaging/hello",
            "../hello#debian/2.10-3",
            "/srv/git/hello.git#main",
            "https://salsa.debian.org/debian/hello.git#debian/2%1.0_rc1-1",
            "ssh://git@example.org/hello",
            "git@example.org:team/hello.git#0123456789abcdef0123456789abcdef01234567",
        ] {
            let rule = GitRule::parse(text).unwrap();
            assert_eq!(rule.to_string(), format!("git:{text}"));
            assert_eq!(rule.presumed(), "hello");
        }
    }

    #[test]
    fn addresses_that_could_run_a_command_or_leave_are_rejected() {
        for text in [
            "",
            "-upload-pack=touch",
            "ext::sh -c touch% x",
            "ext::sh",
            "file:///etc",
            "http://example.org/x",
            "git://example.org/x",
            "ssh://-oProxyCommand=touch/x",
            "ssh://git@-oProxyCommand=touch/x",
            "-oProxyCommand=touch:x",
            "git@-oProxyCommand=x:y",
            "git@host:-x",
            "host:path",
            "https:///x",
            "https://host",
            "a\nb",
            "a b",
            "repo#",
            "repo#-x",
            "repo#--upload-pack=x",
            "repo#a..b",
            "repo#../../x",
            "repo#a//b",
            "repo#HEAD@{1}",
            "repo#:/fix",
            "repo#main^{/x}",
            "repo#main~1",
            "repo#.git",
            "repo#a/.b",
            "repo#x.lock",
            "repo#$(touch x)",
            "repo#a b",
        ] {
            assert!(GitRule::parse(text).is_err(), "{text:?}");
        }
    }

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
