//! Which file a request is for: its key, where it is from, and how long it stays what it is.

use crate::config::Config;
use crate::expected::{Expected, FileDigest};
use crate::farms::Ticket;
use crate::registry::{self, Replaced};
use kilnyard_model::sha256::Sha256Hex;
use std::collections::HashMap;

/// Files that manifests list: their sizes, by digest.
pub type Manifests = HashMap<String, Expected>;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// How long a file stays what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// For ever: its name says its content.
    #[default]
    Fixed,
    /// Until the origin says otherwise.
    Asked,
}

/// A file that a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its path in the mirror, which is also its path in the folder.
    pub key: String,
    /// The addresses of the file, the best one first.
    pub urls: Vec<String>,
    /// Its addresses at other mirrors of the site, which are asked first.
    pub peers: Vec<String>,
    /// How long it stays what it is.
    pub rule: Rule,
    /// The contents that it may have; empty if nothing is known of that.
    pub expected: Vec<Expected>,
    /// The archive whose keys must have signed it.
    pub signed_by: Option<String>,
    /// The form in which an origin is asked for it.
    pub accept: Option<&'static str>,
    /// The ticket of its farm with which it is read.
    pub ticket: Option<Ticket>,
    /// Addresses in it that clients get in another form.
    pub replaced: Option<Replaced>,
}

impl Wanted {
    /// Its digest, if it is a file by digest.
    pub fn blob(&self) -> Option<Sha256Hex> {
        Sha256Hex::parse(self.key.strip_prefix("blobs/sha256/")?).ok()
    }

    /// Its path below the folder of distfiles, if it is one.
    pub fn distfile(&self) -> Option<&str> {
        self.key.strip_prefix(DISTFILES)
    }
}

/// What begins the paths of distfiles.
const DISTFILES: &str = "distfiles/";

/// The addresses of a path below these.
pub fn addresses(urls: &[String], path: &str) -> Vec<String> {
    // Object storage takes a plus sign for a space.
    let path = path.replace('+', "%2B");
    urls.iter().map(|url| format!("{}/{path}", url.trim_end_matches('/'))).collect()
}

/// Why a request is for no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The path is none that the mirror serves.
    NoSuchPath,
    /// The path may not be asked for.
    BadPath,
    /// The mirror is a proxy for its own archives alone.
    NoSuchHost,
}

/// Finds what a path of this mirror is for. `accept` is the request's header.
///
/// # Errors
/// It is for nothing.
pub fn of_path(config: &Config, manifests: &Manifests, path: &str, accept: &str) -> Result<Wanted, Refused> {
    let path = &unescaped(path.strip_prefix('/').ok_or(Refused::BadPath)?);
    let registry = path.split_once('/').and_then(|(first, rest)| {
        let registry = config.registry.get(first)?;
        Some((registry, first, registry::unescaped(registry, rest)))
    });
    if let Some((registry, name, rest)) = registry {
        // The index of a project has the path of a folder.
        check(rest.strip_suffix('/').unwrap_or(&rest))?;
        return registry::of_path(registry, name, &rest, accept);
    }
    check(path)?;
    let (first, rest) = path.split_once('/').ok_or(Refused::NoSuchPath)?;
    let wanted = |urls, rule| Wanted { key: path.to_owned(), urls, rule, ..Wanted::default() };
    match (first, &config.distfiles, &config.tooltool) {
        ("distfiles", Some(distfiles), _) => Ok(wanted(addresses(&distfiles.urls, rest), Rule::Fixed)),
        ("tooltool", _, Some(tooltool)) => {
            let expected = manifests.get(rest).ok_or(Refused::NoSuchPath)?;
            Ok(Wanted {
                expected: vec![expected.clone()],
                ..wanted(addresses(&tooltool.urls, rest), Rule::Fixed)
            })
        }
        ("blobs", ..) => {
            let digest = rest.strip_prefix("sha256/").and_then(|digest| Sha256Hex::parse(digest).ok());
            let digest = digest.ok_or(Refused::NoSuchPath)?;
            let urls = addresses(&config.blobs, &format!("blobs/sha256/{digest}"));
            Ok(Wanted { expected: by_name(digest), ..wanted(urls, Rule::Fixed) })
        }
        _ => {
            let archive = config.archive.get(first).ok_or(Refused::NoSuchPath)?;
            let sha256 = rest.rsplit_once("/by-hash/SHA256/");
            let sha256 = sha256.and_then(|(_, digest)| Sha256Hex::parse(digest).ok());
            let is_fixed = sha256.is_some() || rest.starts_with("pool/");
            let rule = if is_fixed { Rule::Fixed } else { Rule::Asked };
            let is_signed = rest.ends_with("/InRelease") && archive.keyring.is_some();
            let signed_by = is_signed.then(|| first.to_owned());
            let expected = sha256.map(by_name).unwrap_or_default();
            Ok(Wanted { expected, signed_by, ..wanted(addresses(&archive.urls, rest), rule) })
        }
    }
}

/// The content of a file whose name is its hash.
fn by_name(sha256: Sha256Hex) -> Vec<Expected> {
    vec![Expected { digest: FileDigest::Sha256(sha256), size: None }]
}

/// Finds what an address is for that a client of a proxy asks for.
///
/// # Errors
/// It is for nothing.
pub fn of_address(config: &Config, address: &str) -> Result<Wanted, Refused> {
    let without_scheme =
        |url: &str| url.split_once("://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    let asked = without_scheme(address).ok_or(Refused::BadPath)?;
    for (name, archive) in &config.archive {
        for url in archive.urls.iter().filter_map(|url| without_scheme(url)) {
            if let Some(rest) = asked.strip_prefix(&url).and_then(|rest| rest.strip_prefix('/')) {
                return of_path(config, &Manifests::new(), &format!("/{name}/{rest}"), "");
            }
        }
    }
    Err(Refused::NoSuchHost)
}

/// Whether this is a path of a file, below the first folder.
pub fn is_key(key: &str) -> bool {
    check(key).is_ok() && key.contains('/')
}

/// A path in the form in which it is kept: clients escape characters that need not be (RFC 3986, 2.3), each of them others.
fn unescaped(path: &str) -> String {
    let mut found = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        found.push_str(before);
        let byte = from.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let taken = match byte.filter(|byte| byte.is_ascii_alphanumeric() || PLAIN.contains(byte)) {
            Some(byte) => {
                found.push(char::from(byte));
                3
            }
            None => {
                found.push('%');
                1
            }
        };
        rest = &from[taken..];
    }
    found + rest
}

/// Characters of paths, other than letters and digits, that mean the same if they are escaped.
const PLAIN: &[u8] = b"-_+~:@=,!()";

/// Refuses a path that could be another one to a file system or an origin.
fn check(path: &str) -> Result<(), Refused> {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() < 256;
    let is_character =
        |byte: u8| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) || b".%/".contains(&byte);
    let lower = path.to_ascii_lowercase();
    // An escaped separator or dot is one for some servers; a space or a character beyond ASCII is a part of some names.
    let is_escape = |rest: &str| {
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte == b' ' || byte > 127)
    };
    let is_escaped = !lower.split('%').skip(1).all(is_escape);
    match path.len() <= PATH_BYTES_MAX
        && path.bytes().all(is_character)
        && path.split('/').all(is_part)
        && !is_escaped
    {
        true => Ok(()),
        false => Err(Refused::BadPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::parse(
            "blobs = [\"http://site.example\"]\n[archive.debian]\nurls = [\"http://deb.example/debian/\"]\n\
             [distfiles]\nurls = [\"http://dist.example/\", \"http://other.example/d\"]",
        )
        .unwrap()
    }

    fn route(config: &Config, path: &str) -> Result<Wanted, Refused> {
        of_path(config, &Manifests::new(), path, "")
    }

    #[test]
    fn paths_have_their_origins_and_rules() {
        let config = config();
        let wanted = route(&config, "/debian/pool/main/h/hello/hello_2.10-3_amd64.deb").unwrap();
        assert_eq!(wanted.urls, ["http://deb.example/debian/pool/main/h/hello/hello_2.10-3_amd64.deb"]);
        assert_eq!((wanted.rule, wanted.expected), (Rule::Fixed, Vec::new()));
        let plus = route(&config, "/debian/pool/g++.deb").unwrap();
        assert_eq!(plus.urls, ["http://deb.example/debian/pool/g%2B%2B.deb"]);
        assert_eq!(route(&config, "/debian/dists/sid/InRelease").unwrap().rule, Rule::Asked);
        let digest = "a".repeat(64);
        let by_hash = route(&config, &format!("/debian/dists/sid/main/by-hash/SHA256/{digest}")).unwrap();
        assert_eq!(
            (by_hash.rule, by_hash.expected),
            (Rule::Fixed, by_name(Sha256Hex::parse(&digest).unwrap()))
        );
        assert_eq!(
            route(&config, "/distfiles/a/b-1.tgz").unwrap().urls[1],
            "http://other.example/d/a/b-1.tgz"
        );
        let blob = route(&config, &format!("/blobs/sha256/{digest}")).unwrap();
        assert_eq!(blob.urls, [format!("http://site.example/blobs/sha256/{digest}")]);
        let proxied = of_address(&config, "http://deb.example/debian/pool/x").unwrap();
        assert_eq!(proxied.key, "debian/pool/x");
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        let config = config();
        for path in [
            "/../etc/passwd",
            "/debian/../x",
            "/debian/./x",
            "/debian//x",
            "/debian/%2e%2e/x",
            "/debian/a%2Fb",
            "/debian/a%",
            "/debian/a%0ab",
            "/debian/a\\b",
            "/debian/a b",
            "debian/x",
            "/debian/x\0",
            "/debian/\u{e4}",
        ] {
            assert_eq!(route(&config, path), Err(Refused::BadPath), "{path}");
        }
        assert_eq!(
            route(&config, "/debian/pool/libstdc%2b%2b6_1%7e2.deb").unwrap().key,
            "debian/pool/libstdc++6_1~2.deb"
        );
        for path in ["/x", "/none/x", "/blobs/sha256/12", "/blobs/md5/1"] {
            assert_eq!(route(&config, path), Err(Refused::NoSuchPath), "{path}");
        }
        for address in
            ["http://evil.example/debian/x", "http://deb.example/other", "http://deb.example/debianx/y"]
        {
            assert_eq!(of_address(&config, address), Err(Refused::NoSuchHost), "{address}");
        }
        assert_eq!(of_address(&config, "http://deb.example/debian/../x"), Err(Refused::BadPath));
    }
}
