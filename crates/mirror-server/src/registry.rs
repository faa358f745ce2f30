//! Registries of packages of programming languages: which of their paths never change, and the addresses in their indexes.
//!
//! An index names files by addresses of its origin. Clients get the addresses of the mirror in their place, when the index is
//! sent: what is kept is what the origin sent.
//!
//! - PyPI: the simple repository API (PEP 503, 691) at `/NAME/simple/`, files at `/NAME/files/`;
//! - npm: `/NAME/PACKAGE`, `/NAME/@SCOPE/PACKAGE` and their `/-/FILE`;
//! - crates: a sparse index (RFC 2789) at `/NAME/index/`, files at `/NAME/dl/`;
//! - Go: the module proxy protocol, and the checksum database behind it, at `/NAME/`.

use crate::config::{Registry, RegistryKind};
use crate::route::{Refused, Rule, Wanted, addresses};

/// What an index of a registry is asked for as.
const PYPI_JSON: &str = "application/vnd.pypi.simple.v1+json";
const PYPI_HTML: &str = "application/vnd.pypi.simple.v1+html, text/html;q=0.9";
const NPM_SHORT: &str = "application/vnd.npm.install-v1+json";
const NPM_FULL: &str = "application/json";

/// The largest index whose addresses are replaced, in bytes.
pub const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Addresses that are replaced in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Addresses of the origin, without a slash at their end.
    pub from: Vec<String>,
    /// What they become: relative to the index; or, if it begins with a slash, at the host that the client has asked.
    pub to: String,
}

impl Replaced {
    /// The index as a client of this host gets it.
    pub fn apply(&self, index: &str, host: &str) -> String {
        let to = match self.to.starts_with('/') {
            true => format!("http://{host}{}", self.to),
            false => self.to.clone(),
        };
        self.from
            .iter()
            .fold(index.to_owned(), |text, from| text.replace(&format!("{from}/"), &format!("{to}/")))
    }
}

/// A path as clients of the registry may write it: npm's escape the slash after a scope.
pub fn unescaped(registry: &Registry, path: &str) -> String {
    match registry.kind {
        RegistryKind::Npm => path.replace("%2f", "/").replace("%2F", "/"),
        _ => path.to_owned(),
    }
}

/// What a registry answers by itself: the configuration of a sparse index.
pub fn made(registry: &Registry, name: &str, rest: &str, host: &str) -> Option<String> {
    let is_made = registry.kind == RegistryKind::Crates && rest == "index/config.json";
    is_made.then(|| format!("{{\"dl\":\"http://{host}/{name}/dl\"}}"))
}

/// Finds what a path below that of a registry is for. `accept` is the request's header.
///
/// # Errors
/// It is for nothing.
pub fn of_path(registry: &Registry, name: &str, rest: &str, accept: &str) -> Result<Wanted, Refused> {
    let wanted = |key: String, urls: Vec<String>, rule| Wanted {
        key: format!("{name}/{key}"),
        urls,
        rule,
        ..Wanted::default()
    };
    let fixed = |urls: &[String], path: &str| wanted(rest.to_owned(), addresses(urls, path), Rule::Fixed);
    let asked = |path: &str| wanted(rest.to_owned(), addresses(&registry.urls, path), Rule::Asked);
    let own = |urls: &[String]| urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
    match registry.kind {
        RegistryKind::Pypi => match rest.strip_prefix("simple/") {
            Some(project) => {
                let project = project.trim_end_matches('/');
                if project.is_empty() || project.contains('/') {
                    return Err(Refused::NoSuchPath);
                }
                let (accept, file) = match accept.contains(PYPI_JSON) {
                    true => (PYPI_JSON, "index.json"),
                    false => (PYPI_HTML, "index.html"),
                };
                let urls = addresses(&registry.urls, &format!("simple/{project}/"));
                let replaced = Replaced { from: own(&registry.files), to: "../../files".to_owned() };
                Ok(Wanted {
                    accept: Some(accept),
                    replaced: Some(replaced),
                    ..wanted(format!("simple/{project}/{file}"), urls, Rule::Asked)
                })
            }
            None => match rest.strip_prefix("files/") {
                Some(file) => Ok(fixed(&registry.files, file)),
                // Addresses in an index may be relative to it.
                None => Ok(fixed(&registry.urls, rest)),
            },
        },
        RegistryKind::Npm => match rest.split_once("/-/") {
            Some(_) => Ok(fixed(&registry.urls, rest)),
            None => {
                let parts = rest.split('/').count();
                if rest.starts_with('-') || parts != if rest.starts_with('@') { 2 } else { 1 } {
                    return Err(Refused::NoSuchPath);
                }
                let (accept, file) = match accept.contains(NPM_SHORT) {
                    true => (NPM_SHORT, "index-short.json"),
                    false => (NPM_FULL, "index.json"),
                };
                // At the origin, the slash of a scope is part of the package's name.
                let urls = addresses(&registry.urls, &rest.replace('/', "%2f"));
                let replaced = Replaced { from: own(&registry.urls), to: format!("/{name}") };
                Ok(Wanted {
                    accept: Some(accept),
                    replaced: Some(replaced),
                    ..wanted(format!("{rest}/{file}"), urls, Rule::Asked)
                })
            }
        },
        RegistryKind::Crates => match (rest.strip_prefix("index/"), rest.strip_prefix("dl/")) {
            (Some(index), _) => Ok(asked(index)),
            (_, Some(file)) => Ok(fixed(&registry.files, file)),
            _ => Err(Refused::NoSuchPath),
        },
        RegistryKind::Go => match is_fixed_in_go(rest) {
            true => Ok(fixed(&registry.urls, rest)),
            false => Ok(asked(rest)),
        },
    }
}

/// Whether a path of the module proxy protocol never changes: files of a complete version, and entries of the checksum database.
fn is_fixed_in_go(path: &str) -> bool {
    if path.starts_with("sumdb/") {
        return path.contains("/lookup/") || path.contains("/tile/");
    }
    let Some((_, file)) = path.rsplit_once("/@v/v") else { return false };
    let mut numbers = file.splitn(3, '.');
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // `v1.info` and `v1.2.info` ask for the newest of them; the third part has the extension, too.
    let is_complete = is_number(numbers.next()) && is_number(numbers.next());
    is_complete && numbers.next().is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(kind: RegistryKind) -> Registry {
        Registry {
            kind,
            urls: vec!["https://index.example/".into()],
            files: vec!["https://files.example/f/".into()],
        }
    }

    #[test]
    fn paths_have_their_origins_and_rules() {
        let at = |kind, path: &str, accept: &str| {
            let wanted = of_path(&registry(kind), "r", path, accept).unwrap();
            (wanted.key, wanted.urls[0].clone(), wanted.rule)
        };
        let expect = |key: &str, url: &str, rule| (key.to_owned(), url.to_owned(), rule);
        for (kind, path, accept, expected) in [
            (
                RegistryKind::Pypi,
                "simple/six/",
                "text/html",
                expect("r/simple/six/index.html", "https://index.example/simple/six/", Rule::Asked),
            ),
            (
                RegistryKind::Pypi,
                "simple/six/",
                PYPI_JSON,
                expect("r/simple/six/index.json", "https://index.example/simple/six/", Rule::Asked),
            ),
            (
                RegistryKind::Pypi,
                "files/ab/six-1.whl",
                "",
                expect("r/files/ab/six-1.whl", "https://files.example/f/ab/six-1.whl", Rule::Fixed),
            ),
            (
                RegistryKind::Npm,
                "@types/node",
                NPM_SHORT,
                expect("r/@types/node/index-short.json", "https://index.example/@types%2fnode", Rule::Asked),
            ),
            (
                RegistryKind::Npm,
                "ms/-/ms-2.0.tgz",
                "",
                expect("r/ms/-/ms-2.0.tgz", "https://index.example/ms/-/ms-2.0.tgz", Rule::Fixed),
            ),
            (
                RegistryKind::Crates,
                "index/li/bc/libc",
                "",
                expect("r/index/li/bc/libc", "https://index.example/li/bc/libc", Rule::Asked),
            ),
            (
                RegistryKind::Crates,
                "dl/libc/0.2.1/download",
                "",
                expect(
                    "r/dl/libc/0.2.1/download",
                    "https://files.example/f/libc/0.2.1/download",
                    Rule::Fixed,
                ),
            ),
        ] {
            assert_eq!(at(kind, path, accept), expected);
        }
        for (kind, path) in [
            (RegistryKind::Pypi, "simple/"),
            (RegistryKind::Pypi, "simple/a/b/"),
            (RegistryKind::Npm, "-/npm/v1/security/audits"),
            (RegistryKind::Npm, "a/b"),
            (RegistryKind::Npm, "@scope"),
            (RegistryKind::Crates, "api/v1/crates"),
        ] {
            assert_eq!(of_path(&registry(kind), "r", path, ""), Err(Refused::NoSuchPath), "{path}");
        }
    }

    #[test]
    fn only_complete_versions_of_go_never_change() {
        for (path, is_fixed) in [
            ("example.com/m/@v/list", false),
            ("example.com/m/@latest", false),
            ("example.com/m/@v/v1.2.3.zip", true),
            ("example.com/m/@v/v0.0.0-20200101000000-abcdef123456.mod", true),
            ("example.com/m/@v/v1.2.3+incompatible.info", true),
            ("example.com/m/@v/v1.info", false),
            ("example.com/m/@v/v1.2.info", false),
            ("example.com/m/@v/master.info", false),
            ("sumdb/sum.example/supported", false),
            ("sumdb/sum.example/latest", false),
            ("sumdb/sum.example/tile/8/0/001", true),
            ("sumdb/sum.example/lookup/example.com/m@v1.2.3", true),
        ] {
            assert_eq!(is_fixed_in_go(path), is_fixed, "{path}");
        }
    }

    #[test]
    fn addresses_in_an_index_become_those_of_the_mirror() {
        let pypi = of_path(&registry(RegistryKind::Pypi), "r", "simple/six/", "").unwrap().replaced.unwrap();
        let index = "<a href=\"https://files.example/f/ab/six.whl#sha256=1\">six.whl</a>";
        assert_eq!(pypi.apply(index, "x"), "<a href=\"../../files/ab/six.whl#sha256=1\">six.whl</a>");
        let npm = of_path(&registry(RegistryKind::Npm), "r", "ms", "").unwrap().replaced.unwrap();
        let index = "{\"tarball\":\"https://index.example/ms/-/ms-2.0.tgz\"}";
        assert_eq!(npm.apply(index, "m:1"), "{\"tarball\":\"http://m:1/r/ms/-/ms-2.0.tgz\"}");
        assert_eq!(
            made(&registry(RegistryKind::Crates), "r", "index/config.json", "m:1").unwrap(),
            "{\"dl\":\"http://m:1/r/dl\"}"
        );
    }
}
