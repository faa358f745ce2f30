//! Which file a request is for: its key, where it is from, and how long it stays what it is.

use crate::config::Config;
use kilnyard_model::sha256::Sha256Hex;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// How long a file stays what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// For ever: its name says its content.
    Fixed,
    /// Until the origin says otherwise.
    Asked,
}

/// A file that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its path in the mirror, which is also its path in the folder.
    pub key: String,
    /// The addresses of the file, the best one first.
    pub urls: Vec<String>,
    /// How long it stays what it is.
    pub rule: Rule,
    /// Its digest, if its path has it.
    pub sha256: Option<Sha256Hex>,
    /// The archive whose keys must have signed it.
    pub signed_by: Option<String>,
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

/// Finds what a path of this mirror is for.
///
/// # Errors
/// It is for nothing.
pub fn of_path(config: &Config, path: &str) -> Result<Wanted, Refused> {
    let path = path.strip_prefix('/').ok_or(Refused::BadPath)?;
    check(path)?;
    let (first, rest) = path.split_once('/').ok_or(Refused::NoSuchPath)?;
    let at = |urls: &[String], rest: &str| -> Vec<String> {
        urls.iter().map(|url| format!("{}/{rest}", url.trim_end_matches('/'))).collect()
    };
    let wanted = |urls, rule| Wanted { key: path.to_owned(), urls, rule, sha256: None, signed_by: None };
    match (first, &config.distfiles) {
        ("distfiles", Some(distfiles)) => Ok(wanted(at(&distfiles.urls, rest), Rule::Fixed)),
        ("blobs", _) => {
            let digest = rest.strip_prefix("sha256/").and_then(|digest| Sha256Hex::parse(digest).ok());
            let digest = digest.ok_or(Refused::NoSuchPath)?;
            let urls = at(&config.blobs, &format!("blobs/sha256/{digest}"));
            Ok(Wanted { sha256: Some(digest), ..wanted(urls, Rule::Fixed) })
        }
        _ => {
            let archive = config.archive.get(first).ok_or(Refused::NoSuchPath)?;
            let sha256 = rest.rsplit_once("/by-hash/SHA256/");
            let sha256 = sha256.and_then(|(_, digest)| Sha256Hex::parse(digest).ok());
            let is_fixed = sha256.is_some() || rest.starts_with("pool/");
            let rule = if is_fixed { Rule::Fixed } else { Rule::Asked };
            let is_signed = rest.ends_with("/InRelease") && archive.keyring.is_some();
            let signed_by = is_signed.then(|| first.to_owned());
            Ok(Wanted { sha256, signed_by, ..wanted(at(&archive.urls, rest), rule) })
        }
    }
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
                return of_path(config, &format!("/{name}/{rest}"));
            }
        }
    }
    Err(Refused::NoSuchHost)
}

/// Whether this is a path of a file, below the first folder.
pub fn is_key(key: &str) -> bool {
    check(key).is_ok() && key.contains('/')
}

/// Refuses a path that could be another one to a file system or an origin.
fn check(path: &str) -> Result<(), Refused> {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() < 256;
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+~:@=,!%/()".contains(&byte);
    let lower = path.to_ascii_lowercase();
    // An escaped separator or dot is one for some servers.
    let is_escaped = ["%2f", "%2e", "%5c", "%00"].iter().any(|escape| lower.contains(escape));
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

    #[test]
    fn paths_have_their_origins_and_rules() {
        let config = config();
        let wanted = of_path(&config, "/debian/pool/main/h/hello/hello_2.10-3_amd64.deb").unwrap();
        assert_eq!(wanted.urls, ["http://deb.example/debian/pool/main/h/hello/hello_2.10-3_amd64.deb"]);
        assert_eq!((wanted.rule, wanted.sha256), (Rule::Fixed, None));
        assert_eq!(of_path(&config, "/debian/dists/sid/InRelease").unwrap().rule, Rule::Asked);
        let digest = "a".repeat(64);
        let by_hash = of_path(&config, &format!("/debian/dists/sid/main/by-hash/SHA256/{digest}")).unwrap();
        assert_eq!((by_hash.rule, by_hash.sha256.unwrap().as_str()), (Rule::Fixed, digest.as_str()));
        assert_eq!(
            of_path(&config, "/distfiles/a/b-1.tgz").unwrap().urls[1],
            "http://other.example/d/a/b-1.tgz"
        );
        let blob = of_path(&config, &format!("/blobs/sha256/{digest}")).unwrap();
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
            "/debian/a\\b",
            "/debian/a b",
            "debian/x",
            "/debian/x\0",
            "/debian/\u{e4}",
        ] {
            assert_eq!(of_path(&config, path), Err(Refused::BadPath), "{path}");
        }
        for path in ["/x", "/none/x", "/blobs/sha256/12", "/blobs/md5/1"] {
            assert_eq!(of_path(&config, path), Err(Refused::NoSuchPath), "{path}");
        }
        for address in
            ["http://evil.example/debian/x", "http://deb.example/other", "http://deb.example/debianx/y"]
        {
            assert_eq!(of_address(&config, address), Err(Refused::NoSuchHost), "{address}");
        }
        assert_eq!(of_address(&config, "http://deb.example/debian/../x"), Err(Refused::BadPath));
    }
}
