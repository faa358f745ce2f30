//! pkgsrc's `distinfo` and scan files, versions, patterns and summaries, and look-up files.

use crate::{parts, text};
use kilnyard_ecosystem::pkgsrc::kept::{KeptScan, Places};
use kilnyard_ecosystem::pkgsrc::pattern::{PackageName, Pattern};
use kilnyard_ecosystem::pkgsrc::resolve::{Resolution, Rules, Scanned, resolve};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use kilnyard_ecosystem::pkgsrc::summary;
use kilnyard_ecosystem::pkgsrc::version::Version;
use kilnyard_ecosystem::pkgsrc::{ScanSettings, distinfo};
use kilnyard_publish::{LookUp, render_look_up};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Three versions, one per line: the order is total, and adding a revision makes a version later.
pub fn pkgsrc_version(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let texts: [&str; 3] = std::array::from_fn(|_| lines.next().unwrap_or(""));
    let versions = texts.map(Version::parse);
    for left in &versions {
        for right in &versions {
            assert_eq!(left.cmp(right), right.cmp(left).reverse());
            for third in &versions {
                if left <= right && right <= third {
                    assert!(left <= third, "{texts:?}");
                }
            }
        }
    }
    // A revision counts only if the rest is equal, and the last one counts.
    let revised = Version::parse(&format!("{}nb{}", texts[0], "9".repeat(texts[0].len() + 1)));
    assert_ne!(revised.cmp(&versions[0]), Ordering::Less, "{texts:?}");
}

/// A pattern and names, one per line: a matching name starts with the prefix of an alternative that matches it.
pub fn pkgsrc_pattern(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.lines();
    let Some(Ok(pattern)) = lines.next().map(Pattern::parse) else { return };
    for line in lines.take(20) {
        let name = PackageName::new(line);
        let alternatives = || pattern.alternatives().iter().filter(|alternative| alternative.matches(&name));
        assert_eq!(pattern.matches(&name), alternatives().next().is_some());
        assert!(alternatives().all(|alternative| line.starts_with(alternative.prefix())), "{text:?}");
    }
}

/// A scan: written output parses to the same stanzas, and every resolved dependency matches a pattern.
pub fn scan_file(data: &[u8]) {
    let Ok(file) = ScanFile::parse(data) else { return };
    let scanned: Vec<Scanned> = file.stanzas.iter().map(Scanned::from).collect();
    let resolved = resolve(&scanned, Rules::Kilnyard);
    let mut written = Vec::new();
    for (number, stanza) in file.stanzas.iter().enumerate() {
        let words =
            || stanza.all_depends.split_ascii_whitespace().filter_map(|word| Some(word.rsplit_once(':')?.0));
        for id in &resolved.depends[number] {
            let name = PackageName::new(scanned[id.index()].name);
            assert!(words().any(|word| Pattern::parse(word).is_ok_and(|pattern| pattern.matches(&name))));
        }
        if resolved.outcomes[number] == Resolution::Buildable {
            let all_stand = resolved.depends[number]
                .iter()
                .all(|id| resolved.outcomes[id.index()] == Resolution::Buildable);
            assert!(all_stand, "{} is to be built and a dependency is not", stanza.name);
        }
        let depends = resolved.depends[number].iter().map(|id| scanned[id.index()].name);
        stanza.write_resolved(&mut written, depends, None).unwrap();
    }
    let again = ScanFile::parse(&written).unwrap();
    assert_eq!(again.stanzas.len(), file.stanzas.len());
    for (stanza, before) in again.stanzas.iter().zip(&file.stanzas) {
        assert_eq!(
            (stanza.name, stanza.location, stanza.all_depends),
            (before.name, before.location, before.all_depends)
        );
    }
}

/// A scan's cache: a file that may be corrupted at any point is read up to the damage.
pub fn kept(data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    std::fs::write(&path, [b"kilnyard-scan 3 facts\n", data].concat()).unwrap();
    let kept = KeptScan::read(&path, "facts").unwrap();
    // None of the files that it names exists, so no entry can be current.
    let absent = Places { tree: folder.path().join("absent"), inside: None };
    let current = kept.current(&absent, &ScanSettings::default()).stanzas;
    assert!(
        current.is_empty() || text(data).is_none_or(|text| text.contains(" /") || text.contains("absent"))
    );
}

/// A `distinfo`: every name stays below the distfiles folder, and written output parses to the same files.
pub fn distinfo(data: &[u8]) {
    let Ok(files) = distinfo::parse(data) else { return };
    let mut written = String::from("$NetBSD$\n\n");
    for file in &files {
        let below = std::path::Path::new("/distfiles").join(&file.name);
        let parts = below.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
        assert_eq!(parts.count(), file.name.split('/').count() + 1, "{:?}", file.name);
        assert!(below.starts_with("/distfiles") && !(file.is_patch && file.name.contains('/')));
        assert!(file.size_bytes.is_some() || !file.hashes.is_empty());
        for (algorithm, hash) in &file.hashes {
            assert_eq!(hash.len(), algorithm.digits());
            written.push_str(&format!("{} ({}) = {hash}\n", algorithm.name(), file.name));
        }
        if let Some(size_bytes) = file.size_bytes {
            written.push_str(&format!("Size ({}) = {size_bytes} bytes\n", file.name));
        }
    }
    assert_eq!(distinfo::parse(written.as_bytes()), Ok(files));
}

/// A summary: its entries contain all of its text, in order.
pub fn pkg_summary(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(entries) = summary::entries(text) else { return };
    let mut rest = text;
    for entry in entries {
        let (between, after) = rest.split_once(entry.text).unwrap();
        assert!(between.trim_matches(['\n', '\r']).is_empty(), "{between:?}");
        assert!(entry.fields().any(|(key, value)| (key, value) == ("PKGNAME", entry.name)));
        rest = after;
    }
    assert!(rest.trim_matches(['\n', '\r']).is_empty(), "{rest:?}");
}

/// Keys, one per line, and positions and bytes that change the file: all keys are found, and a changed file gives
/// an answer or an error.
pub fn look_up(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let [keys, change] = parts(text);
    let records: BTreeMap<&str, &[u8]> =
        keys.lines().filter(|key| !key.is_empty()).map(|key| (key, key.as_bytes())).collect();
    let records: Vec<(&str, &[u8])> = records.into_iter().collect();
    let mut bytes = render_look_up(&records).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    let opened = LookUp::open(&path).unwrap();
    for (key, content) in &records {
        assert_eq!(opened.get(key).unwrap().as_deref(), Some(*content));
    }
    let mut change = change.bytes();
    while let (Some(at), Some(byte)) = (change.next(), change.next()) {
        let at = usize::from(at) * 3 % bytes.len();
        bytes[at] = byte;
    }
    std::fs::write(&path, &bytes).unwrap();
    if let Ok(opened) = LookUp::open(&path) {
        for (key, _) in &records {
            let _ = opened.get(key);
        }
    }
}
