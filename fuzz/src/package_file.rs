//! pkgsrc's package files. The first byte of an input selects the part of the file that is the input: the whole file,
//! its archive, or only the texts of its metadata. Mutations thus also reach the code after the checksums.

use crate::deb::{BLOCK_BYTES, SCRATCH, tar, with_checksums};
use crate::{parts, text};
use kilnyard_ecosystem::pkgsrc::package_file::{self, PackageFile};
use kilnyard_ecosystem::pkgsrc::summary;
use kilnyard_publish::{Checksum, PackageEntry, plan_packages};
use sha2::{Digest, Sha256};

/// The facts read are those of the file, with one stanza that names it. The build date does not affect its content
/// digest.
pub fn package_file(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind {
        b'r' => drop(read(data)),
        b't' => drop(read(&with_checksums(data))),
        _ => of_texts(data),
    }
}

/// Reads the file; `None` if it is rejected.
fn read(bytes: &[u8]) -> Option<PackageFile> {
    let file = tempfile::NamedTempFile::new_in(SCRATCH).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let facts = package_file::read_recipe_facts(file.path());
    let package = package_file::read(file.path()).ok()?;
    let facts = facts.unwrap();
    assert_eq!((&facts.built_with, &facts.recipe_versions), (&package.built_with, &package.recipe_versions));
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((package.sha256.as_str(), package.size_bytes), (hash.as_str(), bytes.len() as u64));
    assert_eq!((package.content.len(), package.sha512.len()), (64, 128));
    let entries = summary::entries(&package.summary).unwrap();
    assert_eq!(entries.len(), 1, "{:?}", package.summary);
    let names: Vec<&str> =
        entries[0].fields().filter(|(key, _)| *key == "PKGNAME").map(|(_, value)| value).collect();
    assert_eq!(names, [package.name.as_str()]);
    publish(&package, file.path());
    Some(package)
}

/// A package's own description can be published, except for lines that readers would split.
fn publish(package: &PackageFile, file: &std::path::Path) {
    let entry = PackageEntry {
        name: package.name.clone(),
        file_name: format!("{}.tgz", package.name),
        file: file.to_owned(),
        checksum: Checksum::Sha512(package.sha512.clone()),
        size_bytes: package.size_bytes,
        summary: package.summary.clone(),
    };
    let repository = file.with_extension("repository");
    let planned = plan_packages(&repository, &[entry], &std::collections::HashSet::new(), "a key");
    assert!(planned.is_ok() || package.summary.contains('\r'), "{:?}: {:?}", package.summary, planned.err());
    assert!(!repository.exists());
}

/// A package whose metadata is the input.
fn of_texts(data: &[u8]) {
    let Some(data) = text(data) else { return };
    let texts: [&str; 4] = parts(data);
    let package = |build_information: &str| {
        let files = [
            ("+CONTENTS", texts[0]),
            ("+COMMENT", texts[1]),
            ("+DESC", texts[2]),
            ("+BUILD_INFO", build_information),
            ("bin/x", "x"),
        ];
        let mut archive = Vec::new();
        for (name, content) in files {
            archive.truncate(archive.len().saturating_sub(2 * BLOCK_BYTES));
            archive.extend(tar(name, content.as_bytes()));
        }
        archive
    };
    let Some(read_once) = read(&package(texts[3])) else { return };
    let later = format!("BUILD_DATE=later\nBUILD_HOST=elsewhere\n{}", texts[3]);
    let read_later = read(&package(&later)).expect("a package with another date");
    assert_eq!(read_once.content, read_later.content, "{data:?}");
}
