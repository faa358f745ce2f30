//! Commits of git, as far as a signature of one vouches for a file: the commit names its tree by hash, a tree its files
//! (gitformat-signature(5); git-cat-file(1) prints these objects).

use super::ArchiveSource;
use kilnyard_ecosystem::debian::deb822;
use kilnyard_ecosystem::debian::packaging::Changelog;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The most objects that lead to a file.
const OBJECTS_MAX: usize = 64;

/// A signed commit.
#[derive(Debug)]
pub struct Commit {
    /// Its id.
    pub id: String,
    /// What its signature signs.
    pub signed: String,
    /// Its signature, armored.
    pub signature: String,
    tree: String,
}

impl Commit {
    /// Reads the text of a commit.
    ///
    /// # Errors
    /// A clause that names the fault.
    pub fn parse(text: &str) -> Result<Commit, String> {
        let (headers, message) = text.split_once("\n\n").ok_or("a commit has no message")?;
        let tree = headers.lines().next().and_then(|line| line.strip_prefix("tree "));
        let tree = tree.filter(|id| is_id(id)).ok_or("a commit does not begin with its tree")?.to_owned();
        let (mut signed, mut signature, mut is_in_signature) = (String::new(), String::new(), false);
        for line in headers.lines() {
            let begins = line.strip_prefix("gpgsig ").or_else(|| line.strip_prefix("gpgsig-sha256 "));
            match (begins, line.strip_prefix(' ')) {
                (Some(_), _) if !signature.is_empty() => return Err("a commit has two signatures".to_owned()),
                (Some(first), _) => (signature, is_in_signature) = (format!("{first}\n"), true),
                (None, Some(next)) if is_in_signature => signature.push_str(&format!("{next}\n")),
                _ => {
                    is_in_signature = false;
                    signed.push_str(&format!("{line}\n"));
                }
            }
        }
        if signature.is_empty() {
            return Err("the commit is not signed".to_owned());
        }
        signed.push_str(&format!("\n{message}"));
        let id = id("commit", text.as_bytes(), tree.len())?;
        Ok(Commit { id, signed, signature, tree })
    }

    /// The source in a folder of the commit. `objects` are the trees and files that lead to it, in hexadecimal.
    ///
    /// # Errors
    /// A clause that names what is missing.
    pub fn source(&self, path: &str, objects: &[String]) -> Result<ArchiveSource, String> {
        if objects.len() > OBJECTS_MAX {
            return Err(format!("more than {OBJECTS_MAX} objects of a commit"));
        }
        let mut known = HashMap::new();
        for object in objects {
            let bytes = unhexadecimal(object).ok_or("an object of a commit is not hexadecimal")?;
            for kind in ["tree", "blob"] {
                known.insert(id(kind, &bytes, self.tree.len())?, bytes.clone());
            }
        }
        let mut folder = self.tree.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            folder = entry(&known, &folder, part, true)?.ok_or_else(|| missing(path))?;
        }
        if let Some(debian) = entry(&known, &folder, "debian", true)? {
            let file = |name: &str| -> Result<String, String> {
                let id = entry(&known, &debian, name, false)?.ok_or_else(|| missing(name))?;
                text(&known, &id, name)
            };
            return downloaded(&file("control")?, &file("changelog")?);
        }
        let makefile = entry(&known, &folder, "Makefile", false)?.ok_or_else(|| missing(path))?;
        if path.is_empty() {
            return Err(missing(path));
        }
        Ok(ArchiveSource {
            name: path.to_owned(),
            version: String::new(),
            files: String::new(),
            control: String::new(),
            declared: name_of_makefile(&text(&known, &makefile, "Makefile")?).into_iter().collect(),
        })
    }
}

fn missing(path: &str) -> String {
    format!("the commit has no source in {:?}", path.chars().take(100).collect::<String>())
}

/// A source package by its `debian` folder.
fn downloaded(control: &str, changelog: &str) -> Result<ArchiveSource, String> {
    let changelog = Changelog::parse(changelog).map_err(|reason| format!("debian/changelog {reason}"))?;
    let mut declared = Vec::new();
    for stanza in deb822::stanzas(control) {
        match (stanza.get("Source"), stanza.get("Package")) {
            (Some(source), _) if source != changelog.source => {
                return Err("debian/control and debian/changelog are of two sources".to_owned());
            }
            (_, Some(package)) => declared.push(package.to_owned()),
            _ => {}
        }
    }
    Ok(ArchiveSource {
        name: changelog.source,
        version: changelog.version,
        files: String::new(),
        control: String::new(),
        declared,
    })
}

/// The prefixes of names that stand for a version of an interpreter, in pkgsrc's makefiles.
const PREFIXES: [(&str, &str); 4] = [
    ("${PYPKGPREFIX}", "py#"),
    ("${RUBY_PKGPREFIX}", "ruby#"),
    ("${PHP_PKG_PREFIX}", "php#"),
    ("${LUA_PKGPREFIX}", "lua#"),
];

/// The name, without its version, that a makefile of pkgsrc gives its package; none if that depends on other variables.
fn name_of_makefile(text: &str) -> Option<String> {
    let value = |name: &str| {
        let mut values = text.lines().filter_map(|line| {
            let value = line.strip_prefix(name)?.trim_start_matches('?').strip_prefix('=')?;
            Some(value.split('#').next().unwrap_or(value).trim())
        });
        // One that is set twice depends on something.
        values.next().filter(|_| values.next().is_none())
    };
    let whole = value("PKGNAME").or_else(|| value("DISTNAME"))?;
    let (name, version) = whole.rsplit_once('-')?;
    let mut name = name.to_owned();
    for (variable, prefix) in PREFIXES {
        name = name.replace(variable, prefix);
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+#".contains(&byte);
    let is_version = version.starts_with(|first: char| first.is_ascii_digit() || first == '$');
    (is_version && !name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// The id of an entry in a tree; none if the tree has none of this name and kind.
fn entry(
    known: &HashMap<String, Vec<u8>>,
    tree: &str,
    name: &str,
    is_folder: bool,
) -> Result<Option<String>, String> {
    let mut rest: &[u8] = known.get(tree).ok_or("a tree of the commit is missing")?;
    let damaged = || "a tree of the commit is damaged".to_owned();
    let size = tree.len() / 2;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(damaged)?;
        let (mode, found) =
            rest[..end].split_at(rest[..end].iter().position(|byte| *byte == b' ').ok_or_else(damaged)?);
        let id = rest.get(end + 1..end + 1 + size).ok_or_else(damaged)?;
        if found.get(1..) == Some(name.as_bytes()) {
            let fits = if is_folder { mode == b"40000" } else { mode == b"100644" || mode == b"100755" };
            return Ok(fits.then(|| hexadecimal(id)));
        }
        rest = &rest[end + 1 + size..];
    }
    Ok(None)
}

fn text(known: &HashMap<String, Vec<u8>>, id: &str, name: &str) -> Result<String, String> {
    let bytes = known.get(id).ok_or_else(|| format!("{name} of the commit is missing"))?;
    String::from_utf8(bytes.clone()).map_err(|_| format!("{name} of the commit is not UTF-8"))
}

/// The id of an object: a hash of its kind, its size and its content. Repositories with ids of 40 digits use SHA-1, whose known
/// collisions are detected, as in git.
fn id(kind: &str, bytes: &[u8], digits: usize) -> Result<String, String> {
    let whole = [format!("{kind} {}\0", bytes.len()).as_bytes(), bytes].concat();
    if digits == 64 {
        return Ok(hexadecimal(&Sha256::digest(&whole)));
    }
    let found = sha1_checked::Sha1::try_digest(&whole);
    match found.has_collision() {
        true => Err("an object of the commit is a collision of SHA-1".to_owned()),
        false => Ok(hexadecimal(found.hash())),
    }
}

fn is_id(text: &str) -> bool {
    [40, 64].contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What a coordinator sends is no cause to end.
        #[test]
        fn damaged_commits_and_objects_are_refused(
            text in "(tree [0-9a-f]{40}\n)?([a-z]{1,8} .{0,40}\n| .{0,9}\n|gpgsig .{0,9}\n){0,6}(\n.{0,9})?",
            mut objects in prop::collection::vec("[0-9a-f]{0,160}", 0..4),
            path in "(a|a/b|)",
            at in 0_usize..200,
        ) {
            let tree: String = "34303030302061".chars().chain("00".chars()).chain("11".repeat(20).chars()).collect();
            objects.push(tree[..at.min(tree.len())].to_owned());
            let _ = Commit::parse(&text);
            for object in &objects {
                let Some(bytes) = unhexadecimal(object) else { continue };
                let tree = id("tree", &bytes, 40).unwrap();
                let commit =
                    Commit { id: String::new(), signed: String::new(), signature: String::new(), tree };
                prop_assert!(commit.source(&path, &objects).is_err());
            }
        }
    }

    #[test]
    fn names_of_makefiles_are_read_where_they_are_plain() {
        for (text, name) in [
            ("DISTNAME=\thello-1.0\nCATEGORIES= x\n", Some("hello")),
            ("DISTNAME= Foo-1.0\nPKGNAME?= ${PYPKGPREFIX}-foo-${VERSION} # comment\n", Some("py#-foo")),
            ("PKGNAME= foo-bar-2.0\n", Some("foo-bar")),
            ("PKGNAME= ${DISTNAME:S/x/y/}-1\n", None),
            ("DISTNAME= a-1\nDISTNAME= b-1\n", None),
            (".include \"Makefile.common\"\n", None),
            ("DISTNAME= foo-bar\n", None),
        ] {
            assert_eq!(name_of_makefile(text).as_deref(), name, "{text}");
        }
    }
}
