//! Recovers the yard's outputs from its repository after the store was lost.

use super::publish::indexes_of_binaries;
use crate::debian::Debian;
use kilnyard_ecosystem::OutputBounds;
use kilnyard_ecosystem::debian::deb822::{Stanza, stanzas};
use kilnyard_ecosystem::debian::{PublishedBinary, deb_file, version};
use kilnyard_mirror::FileStore;
use kilnyard_model::order::{Key, Output};
use kilnyard_store::{Current, Store};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::family::Recovered;
use kilnyard_yard::yard::{Yard, store_error};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

/// Finds packages of the repository that the store does not have, or has only in lower versions. Puts their files back
/// into the distfiles and reads them again for their content digests.
pub fn recover(yard: &Yard, debian: &Debian, store: &dyn Store, distfiles: &FileStore) -> Result<Recovered> {
    // Binaries of several versions of a source may be published; the store keeps only the highest.
    let mut of_source: BTreeMap<String, (String, Vec<Output>)> = BTreeMap::new();
    let mut recovered = Recovered::default();
    for index in indexes_of_binaries(yard, debian) {
        let text = match fs_err::read_to_string(&index) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context(Kind::Machine, "read the repository's index"),
        };
        for stanza in stanzas(&text) {
            let Some(binary) = PublishedBinary::of(&stanza, &debian.version_suffix) else { continue };
            match output(yard, debian, &stanza, distfiles) {
                Ok(output) => {
                    let (highest, outputs) = of_source.entry(binary.source).or_default();
                    if version::compare(&binary.source_version, highest) == Ordering::Greater {
                        *highest = binary.source_version;
                    }
                    outputs.push(output);
                }
                Err(reason) => recovered.remarks.push(reason),
            }
        }
    }
    for (package, (recipe_version, outputs)) in of_source {
        let known = store.current(&package).map_err(store_error)?;
        let is_newer = |output: &Output| match &known {
            None => true,
            Some(known) => known.outputs.iter().any(|other| {
                other.name == output.name
                    && version::compare(&output.version, &other.version) == Ordering::Greater
            }),
        };
        if !outputs.iter().any(is_newer) {
            continue;
        }
        let revisions = outputs.iter().filter_map(|output| {
            output.version.rsplit_once(debian.version_suffix.as_str())?.1.parse::<u32>().ok()
        });
        recovered.packages.push(Current {
            package,
            build: 0,
            recipe_version,
            revision: revisions.max().unwrap_or(0),
            key: Key { digest: String::new(), lines: Vec::new() },
            outputs,
        });
    }
    Ok(recovered)
}

/// Makes an output from its published file; the error says why the file is lost.
fn output(
    yard: &Yard,
    debian: &Debian,
    stanza: &Stanza,
    distfiles: &FileStore,
) -> std::result::Result<Output, String> {
    let field = |name: &str| stanza.get(name).unwrap_or("").to_owned();
    let path = field("Filename");
    let is_of_pool = path.starts_with("pool/") && !path.split('/').any(|part| part == "..");
    let file = Path::new(&path).file_name().filter(|_| is_of_pool).map(|name| name.to_string_lossy());
    let Some(file) = file else { return Err(format!("`{path}` is not a file of the repository")) };
    let whole = yard.repository().join(&path);
    let deb = deb_file::read_rebuilt(&whole, &debian.version_suffix, OutputBounds::WIDEST)
        .map_err(|error| format!("{path} is lost: failed to {error}"))?;
    if deb.sha256 != field("SHA256") {
        return Err(format!("{path} is lost: its content does not match the index"));
    }
    distfiles.insert(&whole).map_err(|error| format!("{path} is lost: failed to {error}"))?;
    Ok(Output {
        name: field("Package"),
        version: field("Version"),
        architecture: field("Architecture"),
        file: file.into_owned(),
        sha256: deb.sha256,
        size_bytes: deb.size_bytes,
        content: deb.content,
        description: deb.control,
        digests: Default::default(),
    })
}
