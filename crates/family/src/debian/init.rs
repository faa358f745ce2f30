//! `kilnyard init debian`: makes a yard of Debian source packages.

mod given;

use super::archives::WantedSuite;
use super::config::root::{self, Mirrors};
use super::config::template;
use super::mirror::find_release;
use super::rules::{Rule, Selection};
use crate::FAMILIES;
use clap::Args;
use kilnyard_ecosystem::git::{GitAddress, Repository};
use kilnyard_mirror::{Fetched, without_password};
use kilnyard_sign::Keyring;
use kilnyard_yard::error::{Error, Kind, Result};
use kilnyard_yard::family::NewYard;
use kilnyard_yard::mirror::is_absent;
use kilnyard_yard::program::Program;
use kilnyard_yard::{init, interrupt};
use std::path::Path;

/// The mirror to use if apt's configuration names none.
const DEBIAN_MIRROR: &str = "http://deb.debian.org/debian";

/// Arguments of `init debian`.
#[derive(Debug, Args)]
pub struct Init {
    /// Codename of the release, such as bookworm.
    #[arg(long, value_name = "NAME")]
    release: String,
    /// URL of the archive; by default the mirror that this machine's apt uses.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Source packages, .dsc files, git repositories (git:PATH), or rules such as depends-on:zlib; `all` for every source of the release.
    #[arg(value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
}

impl Init {
    /// Checks the arguments and plans the new yard.
    pub fn plan(&self, folder: &Path, program: &dyn Program) -> Result<NewYard> {
        let release = &self.release;
        let mirror = self.mirror.clone().unwrap_or_else(|| mirror_for(release));
        given::check(&self.packages)?;
        let packages: Vec<String> = self.packages.iter().map(|name| absolute(name)).collect();
        let configuration = template(release, &mirror, &packages);
        init::check(folder, &configuration, FAMILIES)?;
        if let Some(bytes) = check_release(release, &mirror, program)? {
            let (mirrors, components) = (Mirrors::One(mirror.clone()), root::main_component());
            let suite = WantedSuite {
                archive: "",
                suite: release,
                mirror: &mirrors,
                components: &components,
                key: &root::debian_keyring(),
                check_valid_until: true,
                pin: None,
            };
            given::note_unknown(&packages, &suite, &bytes, program);
        }
        if let Err(error) = Keyring::read(&root::debian_keyring()) {
            say!(
                program,
                "note: the keyring of the archive cannot be read ({error}): set keyring in kilnyard.toml"
            );
        }
        let shown = without_password(&mirror);
        let made = format!(
            "made the yard {} for {release} from {shown}\n{}",
            folder.display(),
            what_is_built(&self.packages)
        );
        Ok(NewYard { configuration, made, next: "build", afterwards: Box::new(|_| Ok(())) })
    }
}

/// What the defaults of `[build]` mean for these rules, in one sentence. It has no numbers, since there is no index
/// yet.
fn what_is_built(packages: &[String]) -> &'static str {
    let selections =
        || packages.iter().filter_map(|text| Rule::parse(text).ok()).filter(|rule| !rule.is_exclusion);
    let has_own = selections().any(|rule| rule.selection.is_own());
    let has_wide = selections().any(|rule| !rule.selection.is_explicit());
    match (has_own, has_wide) {
        (true, true) => {
            "your own sources and what depends on them will be built, against each other; the archive's packages of all \
             other sources are used as they are (against and reuse in kilnyard.toml; kilnyard plan shows the numbers)"
        }
        _ => {
            "all selected sources will be built, against each other and otherwise the archive's packages (against in \
             kilnyard.toml; kilnyard plan shows the numbers)"
        }
    }
}

/// Asks the mirror whether it has the release, and returns the release's `InRelease`, which is not verified. An
/// unreachable mirror is not an error: a yard can be made without a network.
pub fn check_release(release: &str, mirror: &str, program: &dyn Program) -> Result<Option<Vec<u8>>> {
    let shown = without_password(mirror);
    match find_release(mirror, release, program.environment(), interrupt::cancel()) {
        Ok(Fetched::Body { bytes, .. }) => Ok(Some(bytes)),
        Ok(Fetched::NotModified) => Ok(None),
        Err(error) if is_absent(&error) => {
            Err(Error::usage(format!("the mirror {shown} has no release {release}"))
                .hint("--release with a codename, such as bookworm; --mirror with another URL"))
        }
        Err(error) if error.is_cancelled() => {
            Err(Error::new(Kind::Interrupted, "interrupted; nothing was made"))
        }
        Err(error) => {
            say!(program, "note: could not check whether {shown} has {release}: failed to {error}");
            Ok(None)
        }
    }
}

/// Changes to try, as rules: `.dsc` files, git repositories, and other versions of sources.
///
/// # Errors
/// One of them is something else, or its file is missing.
pub fn changed(changes: &[String]) -> Result<Vec<String>> {
    for change in changes {
        let rule = Rule::parse(change).map_err(|error| Error::usage(format!("{change}: {error}")))?;
        let is_change = matches!(rule.selection, Selection::Local(_) | Selection::Git(_))
            || change.contains(['=', '/']) && !rule.is_exclusion;
        if !is_change || rule.is_exclusion {
            let message = format!("{change} is no change to try");
            return Err(Error::usage(message).hint(
                "a .dsc file, git:PATH#REF, or another version: hello=2.10-3, hello/bookworm-backports",
            ));
        }
        if let Selection::Local(path) = &rule.selection
            && !path.contains(['*', '?', '['])
            && !Path::new(path).is_file()
        {
            return Err(Error::usage(format!("there is no file {path}")));
        }
    }
    Ok(changes.iter().map(|change| absolute(change)).collect())
}

/// The name of the source that a change is about, as far as it says so: `hello_2.10-3.dsc`, `hello=2.10-3`.
pub fn source_of(change: &str) -> &str {
    let file = match change.ends_with(".dsc") {
        true => change.rsplit('/').next().unwrap_or(change),
        false => change,
    };
    file.split(['_', '=', '/']).next().unwrap_or(file)
}

/// A rule with the absolute path of its file, list or repository; a package name stays as it is.
fn absolute(name: &str) -> String {
    let (sign, body) = name.strip_prefix('-').map_or(("", name), |body| ("-", body));
    let beginning = match Rule::parse(name).map(|rule| rule.selection) {
        Ok(Selection::Local(_)) => "",
        Ok(Selection::Rules(_)) => "@",
        Ok(Selection::Installed(_)) => "installed:",
        Ok(Selection::Git(GitAddress { repository: Repository::Folder(_), .. })) => "git:",
        _ => return name.to_owned(),
    };
    let path = body.strip_prefix(beginning).and_then(|path| std::path::absolute(path).ok());
    path.and_then(|path| Some(format!("{sign}{beginning}{}", path.to_str()?)))
        .unwrap_or_else(|| name.to_owned())
}

/// The default mirror for a release: the one that this machine's apt uses, else Debian's.
pub fn mirror_for(release: &str) -> String {
    mirror_of_this_machine(release).unwrap_or_else(|| DEBIAN_MIRROR.to_owned())
}

/// The archive from which this machine's apt gets the release: one-line and deb822 sources
/// (sources.list(5)).
fn mirror_of_this_machine(release: &str) -> Option<String> {
    let mut files = vec![std::path::PathBuf::from("/etc/apt/sources.list")];
    let parts = fs_err::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()));
    files.sort();
    files
        .iter()
        .filter_map(|path| fs_err::read_to_string(path).ok())
        .find_map(|text| mirror_in(&text, release))
}

fn mirror_in(text: &str, release: &str) -> Option<String> {
    let is_mirror = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    let one_line = text.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let line = line.split_once(']').map_or(line.trim().strip_prefix("deb ")?, |(_, rest)| rest);
        let mut words = line.split_whitespace();
        let (url, suite) = (words.next()?, words.next()?);
        (suite == release && is_mirror(url)).then(|| url.trim_end_matches('/').to_owned())
    });
    one_line.or_else(|| {
        kilnyard_ecosystem::debian::deb822::stanzas(text).find_map(|stanza| {
            let has_release = stanza.get("Suites")?.split_whitespace().any(|suite| suite == release);
            let is_binary = stanza.get("Types")?.split_whitespace().any(|kind| kind == "deb");
            let url = stanza.get("URIs")?.split_whitespace().find(|url| is_mirror(url))?;
            let is_enabled =
                !stanza.get("Enabled").is_some_and(|word| word.trim().eq_ignore_ascii_case("no"));
            (has_release && is_binary && is_enabled).then(|| url.trim_end_matches('/').to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_apt_is_found_in_both_formats() {
        let line =
            "# deb http://old x main\ndeb [arch=amd64 signed-by=/k] http://mirror/debian/ bookworm main\n";
        assert_eq!(mirror_in(line, "bookworm").as_deref(), Some("http://mirror/debian"));
        assert_eq!(mirror_in(line, "trixie"), None);
        let deb822 = "Types: deb\n# comment\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n\
                      Types: deb\nURIs: http://m/debian-security\nSuites: bookworm-security\n";
        assert_eq!(mirror_in(deb822, "bookworm").as_deref(), Some("http://m/debian"));
        assert_eq!(mirror_in(&format!("Enabled: no\n{deb822}"), "bookworm"), None);
    }
}
