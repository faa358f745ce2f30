//! Outputs that a worker on another machine has stored: whether they are what it says.

use kilnyard_ecosystem::OutputBounds;
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_model::order::{FamilyOrder, Output};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Why outputs are not admitted: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// They are not here. The worker may store them again.
    Unstored(String),
    /// They differ from their description, or cannot be read. This fails the build.
    Wrong(String),
}

/// Reads stored outputs, and compares them with a worker's description. Makes a folder of links in `scratch`, on the file
/// system of the store, while it reads.
///
/// # Errors
/// See [`Unverified`].
pub fn verify(
    family: &FamilyOrder,
    outputs: &[Output],
    stored: &FileStore,
    scratch: &Path,
    bounds: OutputBounds,
    cancel: &AtomicBool,
) -> Result<(), Unverified> {
    let wrong = Unverified::Wrong;
    let failed = |error: std::io::Error| {
        wrong(format!("failed to read the outputs that the worker has stored: {error}"))
    };
    let folder = tempfile::Builder::new().prefix("read-").tempdir_in(scratch).map_err(failed)?;
    for output in outputs {
        let is_name = Path::new(&output.file).file_name().is_some_and(|name| name == output.file.as_str());
        let unstored = || format!("the worker has not stored {:?}", output.file);
        let sha256 = Sha256Hex::parse(&output.sha256).ok().filter(|_| is_name);
        let sha256 = sha256.ok_or_else(|| wrong(unstored()))?;
        let (size_bytes, name) = (output.size_bytes, output.file.clone());
        let wanted = Wanted { urls: Vec::new(), sha256, size_bytes, name };
        // The worker chooses the size: nothing that is here is taken for damaged because of it.
        if stored.size_bytes(&wanted.sha256).is_some_and(|known| known != size_bytes) {
            return Err(wrong(format!("the worker's size of {:?} is wrong", output.file)));
        }
        // An earlier leader may have stored it where machines share their files.
        let path = stored.ensure(&wanted, &|_| {}, cancel).map_err(|_| Unverified::Unstored(unstored()))?;
        std::fs::hard_link(path, folder.path().join(&output.file)).map_err(failed)?;
    }
    let rules = kilnyard_ecosystem::rules(family).map_err(|error| wrong(error.to_string()))?;
    let read = rules.read_outputs(folder.path(), bounds).map_err(|error| wrong(error.to_string()))?;
    match read == outputs {
        true => Ok(()),
        false => Err(wrong("the worker's description of its outputs is wrong".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_mirror::Limits;
    use std::fs;
    use std::process::Command;

    /// A package file with this name in its control data.
    fn package(folder: &Path, name: &str) -> std::path::PathBuf {
        let tree = folder.join(name);
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control = format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: a package\n"
        );
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        let file = folder.join(format!("{name}_1_all.deb"));
        let built =
            Command::new("dpkg-deb").arg("--root-owner-group").arg("-b").arg(&tree).arg(&file).output();
        assert!(built.expect("this test needs dpkg-deb").status.success());
        file
    }

    #[test]
    fn outputs_of_another_machine_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let stored = FileStore::open(&folder.path().join("files"), Limits::default()).unwrap();
        let family = FamilyOrder {
            name: "debian".to_owned(),
            facts: [("suffix".to_owned(), "+bk".to_owned())].into_iter().collect(),
        };
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let read = |name: &str| {
            let made = folder.path().join(format!("made-{name}"));
            fs::create_dir(&made).unwrap();
            let file = package(folder.path(), name);
            stored.insert(&file).unwrap();
            fs::copy(&file, made.join(file.file_name().unwrap())).unwrap();
            let rules = kilnyard_ecosystem::rules(&family).unwrap();
            rules.read_outputs(&made, OutputBounds::WIDEST).unwrap().remove(0)
        };
        let (good, other) = (read("good"), read("other"));
        let cancel = AtomicBool::new(false);
        let verify =
            |output: Output| verify(&family, &[output], &stored, &scratch, OutputBounds::WIDEST, &cancel);
        assert_eq!(verify(good.clone()), Ok(()));
        let refused = |output: Output, words: &str| {
            let (Unverified::Unstored(said) | Unverified::Wrong(said)) = verify(output).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        // Another package's content under this name; another name, version or digest of the content.
        refused(Output { sha256: other.sha256.clone(), ..good.clone() }, "is wrong");
        refused(Output { name: "bash".to_owned(), ..good.clone() }, "is wrong");
        refused(Output { version: "2".to_owned(), ..good.clone() }, "is wrong");
        refused(Output { content: other.content.clone(), ..good.clone() }, "is wrong");
        // The size of a file that is here does not count as damage.
        refused(Output { size_bytes: 1, ..good.clone() }, "is wrong");
        assert_eq!(verify(good.clone()), Ok(()));
        // Not stored, or no plain name.
        refused(Output { sha256: "0".repeat(64), ..good.clone() }, "has not stored");
        for file in ["../good_1_all.deb", "/etc/passwd", "", "..", "a/b.deb"] {
            refused(Output { file: file.to_owned(), ..good.clone() }, "has not stored");
        }
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    }
}
