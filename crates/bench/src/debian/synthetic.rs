//! Packages that were never built, to fill yards of any size.

use crate::error::{Context, Kind, Result};
use kilnyard_mirror::{FileStore, Sha256Hex};
use kilnyard_model::order::{Key, Output};
use kilnyard_store::Current;

/// Length of a package's stanza: about as long as in Debian, without the hashes.
const STANZA_BYTES: usize = 1000;

/// The name of package `number`.
pub fn name(number: usize) -> String {
    format!("lib-synthetic-{number:05}")
}

/// The content of the package's file.
pub fn content(number: usize, revision: u32) -> String {
    format!("package {number}, revision {revision}\n")
}

/// Writes the package's file, as its build would have done.
pub fn write(distfiles: &FileStore, number: usize, revision: u32) -> Result<()> {
    let failed = "write the packages of the benchmark";
    let content = content(number, revision);
    let path = distfiles.path(&Sha256Hex::of(content.as_bytes()));
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder).context(Kind::Machine, failed)?;
    }
    fs_err::write(path, content).context(Kind::Machine, failed)
}

/// A current package with one output.
pub fn current(number: usize, revision: u32) -> Current {
    let (name, version) = (name(number), format!("1.{number}-1+bk{revision}"));
    let mut description = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\n\
         Maintainer: Bench <bench@localhost>\nInstalled-Size: 100\n\
         Depends: libc6 (>= 2.34), lib-synthetic-{:05} (>= 1)\nSection: libs\nPriority: optional\n\
         Description: a package of a benchmark\n",
        number / 2
    );
    let mut line = 0;
    while description.len() < STANZA_BYTES {
        line += 1;
        description.push_str(&format!(" This is line {line} of the long description of {name}.\n"));
    }
    let content = content(number, revision);
    let output = Output {
        file: format!("{name}_{version}_amd64.deb"),
        name: name.clone(),
        version,
        architecture: "amd64".to_owned(),
        sha256: Sha256Hex::of(content.as_bytes()).as_str().to_owned(),
        size_bytes: content.len() as u64,
        content: Sha256Hex::of(format!("content of {content}").as_bytes()).as_str().to_owned(),
        description,
        digests: Default::default(),
    };
    let lines: Vec<String> =
        (0..100).map(|line| format!("depends lib-{line} archive {}", output.content)).collect();
    Current {
        package: name,
        build: number as u64 + 1,
        recipe_version: format!("1.{number}-1"),
        revision,
        key: Key { digest: output.content.clone(), lines },
        outputs: vec![output],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_differ_and_have_the_intended_size() {
        let (one, again, other) = (current(7, 1), current(7, 2), current(8, 1));
        let sha256 = |current: &Current| current.outputs[0].sha256.clone();
        assert!(sha256(&one) != sha256(&again) && sha256(&one) != sha256(&other));
        assert_eq!(current(7, 1), one);
        assert!((STANZA_BYTES..STANZA_BYTES + 100).contains(&one.outputs[0].description.len()));
    }
}
