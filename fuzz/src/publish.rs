//! Descriptions of packages from builds, on their way into the indexes of a repository.

use crate::{parts, text};
use kilnyard_publish::{BinaryEntry, BinaryIndex, Operation, ReleaseFacts, SourceEntry, SourceFile, plan};
use std::collections::HashSet;
use std::path::{Component, Path};

const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const ADDED: [&str; 3] = ["filename", "size", "sha256"];

/// Two packages and a source with hostile stanzas, names and paths. If they are listed at all, a reader of the
/// indexes sees exactly these entries, whichever of two equal fields it uses, and no path leaves the pool.
pub fn publish(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let [first, second, source, paths] = parts(text);
    let mut paths = paths.lines();
    let mut path = || paths.next().unwrap_or("pool/main/a/a/a_1_amd64.deb").to_owned();
    let folder = tempfile::tempdir_in(crate::deb::SCRATCH).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"content").unwrap();
    let binaries = [first, second].map(|stanza| BinaryEntry {
        stanza: stanza.to_owned(),
        pool_path: path(),
        file: file.clone(),
        sha256: HASH.to_owned(),
        size_bytes: 7,
        architecture: "amd64".to_owned(),
        component: "main".to_owned(),
        index: BinaryIndex::Machine,
    });
    let files = path();
    let files = files.split_whitespace().map(|pool_path| SourceFile {
        pool_path: pool_path.to_owned(),
        file: file.clone(),
        size_bytes: 7,
        sha256: HASH.to_owned(),
    });
    let source =
        SourceEntry { stanza: source.to_owned(), component: "main".to_owned(), files: files.collect() };
    let facts = ReleaseFacts {
        origin: "Yard".to_owned(),
        label: "Yard".to_owned(),
        suite: "stable".to_owned(),
        codename: "kiln".to_owned(),
        description: String::new(),
        architectures: vec!["amd64".to_owned()],
        components: vec!["main".to_owned()],
        date_seconds: 1_700_000_000,
        valid_until_seconds: None,
    };
    let repository = folder.path().join("repository");
    let given: Vec<&BinaryEntry> = binaries.iter().filter(|entry| !entry.stanza.is_empty()).collect();
    let given: Vec<BinaryEntry> = given.into_iter().cloned().collect();
    let sources = if source.stanza.is_empty() { Vec::new() } else { vec![source] };
    if let Ok(publication) = plan(&repository, &facts, &given, &sources, "a key") {
        assert!(!repository.exists());
        check(publication.operations(), &given, &sources);
    }
}

fn check(operations: &[Operation], binaries: &[BinaryEntry], sources: &[SourceEntry]) {
    for operation in operations {
        match operation {
            Operation::Place { path, .. } => assert_inside(path, "pool"),
            Operation::Write { path, content } => {
                assert_inside(path, ".staging");
                if path.ends_with("Packages") {
                    check_packages(std::str::from_utf8(content).unwrap(), binaries);
                } else if path.ends_with("Sources") {
                    check_sources(std::str::from_utf8(content).unwrap(), sources);
                }
            }
            _ => {}
        }
        assert_eq!(operation.to_string().lines().count(), 1);
    }
}

fn assert_inside(path: &Path, folder: &str) {
    assert!(path.starts_with(folder), "{}", path.display());
    assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{}", path.display());
}

/// A field's name as the most lenient reader interprets it.
fn loose(name: &str) -> String {
    name.trim_matches(|c: char| !c.is_ascii_graphic()).to_ascii_lowercase()
}

/// The stanzas of an index, with all their fields, for a reader that ends a stanza at every blank line.
fn read(index: &str) -> Vec<Vec<(String, String)>> {
    let mut stanzas: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in index.lines() {
        let last = stanzas.last_mut().unwrap();
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if let (true, Some((_, value))) = (line.starts_with([' ', '\t']), last.last_mut()) {
            value.push('\n');
            value.push_str(line);
        } else {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            last.push((loose(name), value.trim().to_owned()));
        }
    }
    stanzas.retain(|stanza| !stanza.is_empty());
    for stanza in &stanzas {
        let mut seen = HashSet::new();
        assert_eq!(stanza.iter().find(|(name, _)| !seen.insert(name.clone())), None);
    }
    stanzas
}

fn value<'a>(stanza: &'a [(String, String)], name: &str) -> &'a str {
    stanza.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
}

fn check_packages(index: &str, binaries: &[BinaryEntry]) {
    let stanzas = read(index);
    assert_eq!(stanzas.len(), binaries.len(), "{index}");
    for stanza in &stanzas {
        let entry = binaries.iter().find(|entry| {
            let said = [entry.pool_path.clone(), entry.size_bytes.to_string(), entry.sha256.clone()];
            ADDED.iter().zip(&said).all(|(name, said)| value(stanza, name) == said)
        });
        assert!(entry.is_some(), "{stanza:?}");
        assert_eq!(value(stanza, "architecture"), "amd64");
        for name in ["package", "version"] {
            assert!(!value(stanza, name).is_empty() && !value(stanza, name).contains(char::is_whitespace));
        }
    }
}

fn check_sources(index: &str, sources: &[SourceEntry]) {
    let stanzas = read(index);
    assert_eq!(stanzas.len(), sources.len(), "{index}");
    for (stanza, source) in stanzas.iter().zip(sources) {
        assert_inside(Path::new(value(stanza, "directory")), "pool");
        assert!(!source.files.is_empty());
        for (name, list) in stanza {
            if name != "files" && !name.starts_with("checksums-") {
                continue;
            }
            for line in list.lines().filter(|line| !line.trim().is_empty()) {
                let file = line.split_whitespace().nth(2).unwrap_or_default();
                let path = format!("{}/{file}", value(stanza, "directory"));
                assert!(source.files.iter().any(|file| file.pool_path == path), "{name}: {path:?}");
            }
        }
    }
}
