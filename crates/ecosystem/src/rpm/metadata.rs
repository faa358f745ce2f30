//! The metadata of a repository: `repomd.xml`, which names its other files by digest; `primary.xml`, its packages; and
//! `filelists.xml`, all of their files.
//!
//! Format: createrepo_c's `doc/` and what its programs write. Everything in it is untrusted until a signature or a digest
//! says otherwise, and what a signed repository says of itself can still be wrong: names and locations are checked.

use super::relation::{Capability, Relation};
use super::universe::{Entry, Package};
use super::version::{Evr, Range, Sense};
pub use super::xml::MetadataError;
use super::xml::{Node, Tag, walk};
use std::collections::{BTreeMap, HashSet};
use std::io::Read;

/// The longest name of a package, a capability or a file, in bytes.
const NAME_BYTES_MAX: usize = 8 << 10;
/// The most packages of groups; Fedora has some thousand.
const GROUPED_MAX: usize = 1 << 20;
/// The most files that `repomd.xml` lists.
const LISTED_MAX: usize = 100;

/// A file that `repomd.xml` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The path, relative to the repository.
    pub location: String,
    /// The SHA-256 of the file as it is stored, in hexadecimal.
    pub sha256: String,
    /// The size of the file as it is stored, in bytes, if it is known.
    pub size_bytes: Option<u64>,
    /// The size that it unpacks to, in bytes, if it is known.
    pub open_bytes: Option<u64>,
}

/// Reads `repomd.xml`: the files by their kind, such as `primary`.
///
/// # Errors
/// It is not such a file. Files without a SHA-256 are left out.
pub fn repomd(input: &mut dyn Read) -> Result<BTreeMap<String, Listed>, MetadataError> {
    let mut files = BTreeMap::new();
    let mut kind = String::new();
    let mut digest_kind = String::new();
    let mut listed =
        Listed { location: String::new(), sha256: String::new(), size_bytes: None, open_bytes: None };
    walk(input, "repomd", &mut |node| {
        match node {
            Node::Open(tag) => match tag.name {
                "data" => kind = tag.needed("type")?,
                "checksum" => digest_kind = tag.needed("type")?,
                "location" => listed.location = contained(tag.needed("href")?)?,
                _ => {}
            },
            Node::Close("checksum", text) if digest_kind == "sha256" => {
                listed.sha256 = text.trim().to_ascii_lowercase()
            }
            Node::Close("size", text) => listed.size_bytes = text.trim().parse().ok(),
            Node::Close("open-size", text) => listed.open_bytes = text.trim().parse().ok(),
            Node::Close("data", _) => {
                let empty = Listed {
                    location: String::new(),
                    sha256: String::new(),
                    size_bytes: None,
                    open_bytes: None,
                };
                let own = std::mem::replace(&mut listed, empty);
                let is_digest =
                    own.sha256.len() == 64 && own.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
                if is_digest && !own.location.is_empty() && files.len() < LISTED_MAX {
                    files.insert(std::mem::take(&mut kind), own);
                }
            }
            Node::Close(..) => {}
        }
        Ok(())
    })?;
    Ok(files)
}

/// Reads the packages of `primary.xml`.
///
/// # Errors
/// It is not such a file, or names what no package can have; `take` fails.
pub fn primary(
    input: &mut dyn Read,
    take: &mut dyn FnMut(Package) -> Result<(), MetadataError>,
) -> Result<(), MetadataError> {
    let mut package = Package::default();
    let mut list = List::None;
    let mut is_digest = false;
    walk(input, "metadata", &mut |node| {
        match node {
            Node::Open(tag) => match tag.name {
                "package" => package = Package::default(),
                "version" => package.evr = evr_of(&tag)?,
                "checksum" => is_digest = tag.attribute("pkgid")?.as_deref() == Some("YES"),
                "location" => package.location = contained(tag.needed("href")?)?.into(),
                "size" => {
                    package.size_bytes =
                        tag.attribute("package")?.and_then(|size| size.parse().ok()).unwrap_or(0);
                }
                "requires" => list = List::Requires,
                "provides" => list = List::Provides,
                "conflicts" => list = List::Conflicts,
                "obsoletes" => list = List::Obsoletes,
                "recommends" | "suggests" | "supplements" | "enhances" => list = List::None,
                "entry" => list.add(&mut package, &tag)?,
                _ => {}
            },
            Node::Close("name", text) => package.name = named(text)?.into(),
            Node::Close("arch", text) => package.architecture = named(text)?.into(),
            Node::Close("checksum", text) if is_digest => package.digest = named(text)?.into(),
            Node::Close("sourcerpm", text) if !text.is_empty() => package.source = named(text)?.into(),
            Node::Close("file", text) => package.files.push(named(text)?.into()),
            Node::Close("package", _) => {
                if package.name.is_empty() || package.evr.version().is_empty() || package.location.is_empty()
                {
                    return Err(MetadataError("a package lacks its name, version or location".to_owned()));
                }
                take(std::mem::take(&mut package))?;
            }
            Node::Close(..) => {}
        }
        Ok(())
    })
}

/// Reads those files of `filelists.xml` that are wanted; `take` gets the digest of the package, and the path.
///
/// # Errors
/// It is not such a file; `take` fails.
pub fn filelists(
    input: &mut dyn Read,
    wanted: &HashSet<String>,
    take: &mut dyn FnMut(&str, &str) -> Result<(), MetadataError>,
) -> Result<(), MetadataError> {
    let mut digest = String::new();
    walk(input, "filelists", &mut |node| {
        match node {
            Node::Open(tag) if tag.name == "package" => digest = tag.needed("pkgid")?,
            Node::Close("file", text) if wanted.contains(text) => take(&digest, text)?,
            _ => {}
        }
        Ok(())
    })
}

/// What a list of all files has of one package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedFiles {
    name: String,
    architecture: String,
    evr: Evr,
    /// The paths of its files without folders, sorted, as a worker vouches for them ([`super::PackageFile::files`]).
    pub files: Vec<String>,
}

impl ListedFiles {
    /// Reads one element of `filelists.xml`.
    ///
    /// # Errors
    /// It is not such an element.
    pub fn read(element: &str) -> Result<ListedFiles, MetadataError> {
        let text = format!("<filelists>{element}</filelists>");
        let (mut found, mut packages, mut is_folder) = (ListedFiles::default(), 0, false);
        walk(&mut text.as_bytes(), "filelists", &mut |node| {
            match node {
                Node::Open(tag) => match tag.name {
                    "package" => {
                        packages += 1;
                        found.name = tag.needed("name")?;
                        found.architecture = tag.needed("arch")?;
                    }
                    "version" => found.evr = evr_of(&tag)?,
                    "file" => is_folder = tag.attribute("type")?.as_deref() == Some("dir"),
                    "filelists" => {}
                    other => return Err(MetadataError(format!("a list of files has an element {other}"))),
                },
                Node::Close("file", path) if !is_folder => found.files.push(path.to_owned()),
                Node::Close(..) => {}
            }
            Ok(())
        })?;
        if packages != 1 {
            return Err(MetadataError(format!("an element of a list of files has {packages} packages")));
        }
        let of_source = format!("{}.src/", found.name);
        for path in &mut found.files {
            *path = match &*found.architecture {
                "src" => format!("{of_source}{path}"),
                _ => path.trim_start_matches('/').to_owned(),
            };
        }
        found.files.sort();
        Ok(found)
    }

    /// Whether it is about the package that an element of `primary.xml` describes.
    pub fn is_of(&self, architecture: &str, primary: &str) -> bool {
        super::described(primary).is_some_and(|package| {
            *package.name == *self.name && package.evr == self.evr && architecture == self.architecture
        })
    }
}

/// Reads the groups of `comps.xml`: of each, by its id, the packages that are mandatory or come by default.
///
/// # Errors
/// It is not such a file.
pub fn groups(input: &mut dyn Read) -> Result<BTreeMap<String, Vec<String>>, MetadataError> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut id, mut depth, mut is_wanted, mut names) = (String::new(), 0, false, 0);
    walk(input, "comps", &mut |node| {
        match node {
            Node::Open(tag) => {
                depth += 1;
                match tag.name {
                    "group" => id.clear(),
                    "packagereq" => {
                        let kind = tag.attribute("type")?;
                        is_wanted = matches!(kind.as_deref(), None | Some("mandatory" | "default"));
                    }
                    _ => {}
                }
            }
            Node::Close(name, text) => {
                // Of the group itself: categories and environments have ids, too.
                if name == "id" && depth == 3 {
                    id = named(text.trim())?.to_owned();
                }
                if name == "packagereq" && is_wanted {
                    names += 1;
                    if names > GROUPED_MAX {
                        return Err(MetadataError("it has more groups than any distribution".to_owned()));
                    }
                    groups.entry(id.clone()).or_default().push(named(text.trim())?.to_owned());
                }
                depth -= 1;
            }
        }
        Ok(())
    })?;
    Ok(groups)
}

#[derive(Clone, Copy)]
enum List {
    None,
    Requires,
    Provides,
    Conflicts,
    Obsoletes,
}

impl List {
    fn add(self, package: &mut Package, tag: &Tag) -> Result<(), MetadataError> {
        let name = tag.needed("name")?;
        match self {
            List::None => {}
            List::Requires => package.requires.push(entry(&name, tag)?),
            List::Conflicts => package.conflicts.push(entry(&name, tag)?),
            List::Provides => package.provides.push(capability(&name, tag)?),
            List::Obsoletes => package.obsoletes.push(capability(&name, tag)?),
        }
        Ok(())
    }
}

fn entry(name: &str, tag: &Tag) -> Result<Entry, MetadataError> {
    match name.starts_with('(') {
        true => Ok(Relation::parse(name)),
        false => capability(name, tag).map(|capability| Ok(Relation::Plain(capability))),
    }
}

fn capability(name: &str, tag: &Tag) -> Result<Capability, MetadataError> {
    let sense = tag.attribute("flags")?.and_then(|flags| Sense::of_flags(&flags));
    let range = match (sense, tag.attribute("ver")?) {
        (Some(sense), Some(_)) => Some(Range { sense, evr: evr_of(tag)? }),
        _ => None,
    };
    Ok(Capability { name: named(name)?.into(), range })
}

fn evr_of(tag: &Tag) -> Result<Evr, MetadataError> {
    let part = |name| tag.attribute(name).map(Option::unwrap_or_default);
    let (epoch, version, release) = (part("epoch")?, part("ver")?, part("rel")?);
    for part in [&epoch, &version, &release] {
        if part.contains(|c: char| c.is_control() || c.is_whitespace() || c == '/') {
            return Err(MetadataError(format!("{part:?} is not part of a version")));
        }
    }
    Ok(Evr::new(&epoch, &version, &release))
}

fn named(text: &str) -> Result<&str, MetadataError> {
    match text.len() > NAME_BYTES_MAX || text.is_empty() || text.contains(char::is_control) {
        true => Err(MetadataError(format!("{:?} is not a name", text.chars().take(100).collect::<String>()))),
        false => Ok(text),
    }
}

/// A path that stays within the repository.
fn contained(path: String) -> Result<String, MetadataError> {
    let is_contained = !path.is_empty()
        && !path.contains(|c: char| c.is_control() || c == '\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    match is_contained {
        true => Ok(path),
        false => Err(MetadataError(format!("the location {path:?} is not within the repository"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm" packages="1">
<package type="rpm"><name>hello</name><arch>x86_64</arch><version epoch="0" ver="1.0~rc1" rel="1.kt1"/>
<checksum type="sha256" pkgid="YES">abc</checksum><summary>Says &lt;hello&gt;</summary>
<location href="h/hello.rpm"/><format><rpm:license>MIT</rpm:license>
<rpm:provides><rpm:entry name="hello" flags="EQ" epoch="0" ver="1.0~rc1" rel="1.kt1"/><rpm:entry name="greeter"/></rpm:provides>
<rpm:requires><rpm:entry name="(a &gt;= 2 if b)"/><rpm:entry name="libc.so.6()(64bit)"/>
<rpm:entry name="sh" flags="GE" epoch="1" ver="5" pre="1"/><rpm:entry name="(broken"/></rpm:requires>
<rpm:recommends><rpm:entry name="weak"/></rpm:recommends><rpm:obsoletes><rpm:entry name="hallo" flags="LT" ver="3"/></rpm:obsoletes>
<file>/usr/bin/hello</file><file type="dir">/etc/a&amp;b</file></format></package></metadata>"#;

    fn read(text: &str) -> Result<Vec<Package>, MetadataError> {
        let mut packages = Vec::new();
        primary(&mut text.as_bytes(), &mut |package| {
            packages.push(package);
            Ok(())
        })?;
        Ok(packages)
    }

    #[test]
    fn a_package_is_read() {
        let packages = read(PACKAGE).unwrap();
        let [hello] = &packages[..] else { panic!("{packages:?}") };
        assert_eq!((&*hello.name, hello.evr.to_string().as_str()), ("hello", "1.0~rc1-1.kt1"));
        assert_eq!((&*hello.digest, &*hello.location), ("abc", "h/hello.rpm"));
        let requires: Vec<String> = hello
            .requires
            .iter()
            .map(|entry| entry.as_ref().map_or("?".to_owned(), Relation::to_string))
            .collect();
        assert_eq!(requires, ["(a >= 2 if b)", "libc.so.6()(64bit)", "sh >= 1:5", "?"]);
        assert_eq!(hello.obsoletes[0].to_string(), "hallo < 3");
        assert_eq!(hello.provides.len(), 2);
        assert_eq!(
            hello.files.iter().map(|file| &**file).collect::<Vec<_>>(),
            ["/usr/bin/hello", "/etc/a&b"]
        );
    }

    #[test]
    fn what_is_hostile_is_refused() {
        for (from, to, error) in [
            ("h/hello.rpm", "../hello.rpm", "not within the repository"),
            ("h/hello.rpm", "/etc/passwd", "not within the repository"),
            ("<name>hello", "<name>he\u{1}llo", "not a name"),
            ("&lt;hello&gt;", "&boom;", "the entity `boom` is unknown"),
            ("rel=\"1.kt1\"/>\n", "rel=\"1/../2\"/>\n", "not part of a version"),
            ("</package>", "", ""),
            ("<metadata", "<metadataa", ""),
            ("<name>hello</name>", "", "lacks its name"),
        ] {
            let text = PACKAGE.replacen(from, to, 1);
            assert_ne!(text, PACKAGE, "{from}");
            let said = read(&text).unwrap_err().to_string();
            assert!(said.contains(error), "{to}: {said}");
        }
        let deep = format!("<metadata>{}", "<a>".repeat(100));
        assert!(read(&deep).unwrap_err().to_string().contains("too deeply"));
        let mut long = Read::chain(&b"<metadata><a "[..], std::io::repeat(b'x'));
        let error = primary(&mut long, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        let mut text = Read::chain(&b"<metadata><a>"[..], std::io::repeat(b'x'));
        assert!(primary(&mut text, &mut |_| Ok(())).is_err());
    }

    #[test]
    fn groups_have_what_comes_by_default() {
        let text = "<comps><group><id>buildsys-build</id><name>Build</name><packagelist><packagereq type=\"mandatory\">gcc</packagereq>\
                    <packagereq type=\"optional\">vim</packagereq><packagereq>make</packagereq></packagelist></group>\
                    <environment><id>desktop</id><grouplist><groupid>core</groupid></grouplist></environment></comps>";
        let groups = groups(&mut text.as_bytes()).unwrap();
        assert_eq!(
            groups,
            BTreeMap::from([("buildsys-build".to_owned(), vec!["gcc".to_owned(), "make".to_owned()])])
        );
        assert!(super::groups(&mut &b"<metadata/>"[..]).is_err());
    }

    #[test]
    fn the_files_of_a_repository_are_listed() {
        let digest = "ab".repeat(32);
        let text = format!(
            "<repomd><revision>1</revision><data type=\"primary\"><checksum type=\"sha256\">{digest}</checksum>\
             <open-checksum type=\"sha256\">cd</open-checksum><location href=\"repodata/p.xml.gz\"/><size>7</size>\
             <open-size>9</open-size></data><data type=\"old\"><checksum type=\"sha1\">12</checksum>\
             <location href=\"repodata/o\"/></data></repomd>"
        );
        let files = repomd(&mut text.as_bytes()).unwrap();
        let listed = Listed {
            location: "repodata/p.xml.gz".to_owned(),
            sha256: digest,
            size_bytes: Some(7),
            open_bytes: Some(9),
        };
        assert_eq!(files, BTreeMap::from([("primary".to_owned(), listed)]));
        let outside = text.replace("repodata/p", "../p");
        assert!(repomd(&mut outside.as_bytes()).is_err());
    }
}
