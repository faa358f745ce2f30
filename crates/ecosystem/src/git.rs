//! Addresses of git repositories, as configurations name them: `git:PLACE#REF:FOLDER`.

/// The longest accepted address; no path or URL in use is longer.
const ADDRESS_BYTES_MAX: usize = 4096;

/// The beginning of these addresses in a configuration.
pub const PREFIX: &str = "git:";

/// A folder in a commit of a git repository: `git:PLACE[#REF][#REF:FOLDER]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitAddress {
    /// A path relative to the yard, or an address that git fetches from.
    pub repository: Repository,
    /// A branch, a tag or a commit; the repository's own `HEAD` if absent.
    pub reference: Option<String>,
    /// A folder of the repository, or, if it ends with `/*`, all folders in one; the repository itself if absent.
    pub folder: Option<String>,
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

impl GitAddress {
    /// Parses what follows `git:`.
    ///
    /// # Errors
    /// The text is not an accepted address; the reason says what is accepted.
    pub fn parse(text: &str) -> Result<GitAddress, &'static str> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err("it is too long");
        }
        let (place, rest) = match text.split_once('#') {
            Some((place, rest)) => (place, Some(rest)),
            None => (text, None),
        };
        let (reference, folder) = match rest.and_then(|rest| rest.split_once(':')) {
            Some((reference, folder)) => (Some(reference).filter(|text| !text.is_empty()), Some(folder)),
            None => (rest, None),
        };
        let reference = reference.filter(|text| *text != "HEAD");
        if folder.is_some_and(|folder| !is_folder(folder)) {
            return Err("the text after #REF: is not a folder of the repository, or FOLDER/*");
        }
        if reference.is_some_and(|reference| !is_reference(reference)) {
            return Err("the text after # is not the name of a branch, a tag or a commit");
        }
        let repository = repository(place)?;
        let [reference, folder] = [reference, folder].map(|text| text.map(str::to_owned));
        Ok(GitAddress { repository, reference, folder })
    }

    /// The folder whose folders are meant, with no slash at its end: empty for that of the repository. Absent if one folder is meant.
    pub fn folders_in(&self) -> Option<&str> {
        let above = self.folder.as_deref()?.strip_suffix('*')?;
        Some(above.trim_end_matches('/'))
    }

    /// The same repository and reference, with another folder.
    #[must_use]
    pub fn at(&self, folder: &str) -> GitAddress {
        GitAddress { folder: Some(folder.to_owned()), ..self.clone() }
    }

    /// The likely name of a package in it: that of the folder, or of the repository.
    pub fn presumed(&self) -> &str {
        if let Some(folder) = self.folder.as_ref().filter(|_| self.folders_in().is_none()) {
            return folder.rsplit('/').next().unwrap_or(folder);
        }
        let (Repository::Folder(place) | Repository::Https(place) | Repository::Ssh(place)) =
            &self.repository;
        let last = place.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or(place);
        last.strip_suffix(".git").unwrap_or(last)
    }
}

impl std::fmt::Display for GitAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Repository::Folder(place) | Repository::Https(place) | Repository::Ssh(place)) =
            &self.repository;
        write!(f, "{PREFIX}{place}")?;
        match (&self.reference, &self.folder) {
            (None, None) => Ok(()),
            (Some(reference), None) => write!(f, "#{reference}"),
            (reference, Some(folder)) => write!(f, "#{}:{folder}", reference.as_deref().unwrap_or_default()),
        }
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

/// Whether a text is a relative path without `..`, which may end with `*` in place of a name. It excludes what git reads as a
/// pattern or as an operator.
pub fn is_folder(text: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|c| c.is_alphanumeric() || "._+-~".contains(c))
    };
    let mut parts: Vec<&str> = text.split('/').collect();
    if parts.last() == Some(&"*") {
        parts.pop();
        return parts.into_iter().all(is_name);
    }
    parts.into_iter().all(is_name)
}

/// Whether a text can be the name of a branch or a tag, or a commit. It excludes the operators of git's revision
/// syntax (gitrevisions(7)), which search the history or select other commits.
pub(crate) fn is_reference(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._/+%-=,".contains(c);
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(is_part)
        && !text.contains("..")
        && !text.contains("//")
        && !text.ends_with(['/', '.'])
        && !text.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_parsed() {
        for text in [
            "packaging/hello",
            "all#:hello",
            "all#main:packages/hello",
            "git@example.org:all#main:packages/hello",
            "../hello#debian/2.10-3",
            "/srv/git/hello.git#main",
            "https://salsa.debian.org/debian/hello.git#debian/2%1.0_rc1-1",
            "ssh://git@example.org/hello",
            "git@example.org:team/hello.git#0123456789abcdef0123456789abcdef01234567",
        ] {
            let rule = GitAddress::parse(text).unwrap();
            assert_eq!(rule.to_string(), format!("git:{text}"));
            assert_eq!(rule.presumed(), "hello");
        }
    }

    #[test]
    fn all_folders_of_one_can_be_meant() {
        let parsed = |text| GitAddress::parse(text).unwrap();
        assert_eq!(parsed("all#main:packages/*").folders_in(), Some("packages"));
        assert_eq!(parsed("all#:*").folders_in(), Some(""));
        assert_eq!(parsed("all#:packages/a").folders_in(), None);
        assert_eq!(parsed("all").folders_in(), None);
        assert_eq!((parsed("all#:x/*").presumed(), parsed("all#:x/a").presumed()), ("all", "a"));
        assert_eq!(parsed("all#main:*").at("x/y").to_string(), "git:all#main:x/y");
        for text in [
            "all#:",
            "all#main:",
            "all#:/a",
            "all#:a/",
            "all#:a/../b",
            "all#:.git",
            "all#:*/a",
            "all#:a/**",
            "all#:a b",
            "all#:-a",
            "all#:a:b",
        ] {
            assert!(GitAddress::parse(text).is_err(), "{text:?}");
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
            assert!(GitAddress::parse(text).is_err(), "{text:?}");
        }
    }
}
