//! Signatures in packages, made by the signer and verified by rpm and dnf.

use crate::builds::{Yard, pool, real};
use crate::check::run;
use crate::support::trials::{Case, case};
use std::fs;
use std::path::Path;
use std::process::Command;

const SPEC: &str = "Name: signed\nEpoch: 2\nVersion: 1\nRelease: 1%{?dist}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n\
    %description\nx\n%package more\nSummary: x\n%description more\nx\n%prep\n%build\n%install\nmkdir -p %{buildroot}/usr/share/signed\n\
    echo one > %{buildroot}/usr/share/signed/one; echo two > %{buildroot}/usr/share/signed/two\n\
    %files\n/usr/share/signed/one\n%files more\n/usr/share/signed/two\n";

/// What rpmkeys says of a file, by the published keys alone.
fn check(yard: &Yard, file: &Path) -> String {
    let database = tempfile::tempdir().unwrap();
    let keys = yard.folder.path().join("yard/repository/kilnyard-archive-keyring.asc");
    let define = format!("_dbpath {}", database.path().display());
    run(Command::new("rpmkeys").args(["--define", &define, "--import"]).arg(&keys));
    let checked = Command::new("rpmkeys").args(["--define", &define, "-Kv"]).arg(file).output().unwrap();
    String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr)
}

fn is_signed(yard: &Yard, file: &Path) -> bool {
    let said = check(yard, file);
    said.contains("Header V4 EdDSA/SHA512 Signature") && !said.contains("NOKEY") && !said.contains("BAD")
}

fn packages_have_signatures_of_the_repositorys_key() {
    let yard = Yard::new("rpm-signatures");
    yard.write("signed", SPEC);
    yard.run(&["build"]).exits(0).says(&["1 built", "published, 3 packages", "gpgcheck=1"]);
    let first = pool(&yard.repository());
    let files: Vec<_> = fs::read_dir(&first).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 3);
    for file in &files {
        assert!(is_signed(&yard, file), "{}", check(&yard, file));
        // The signature is of the header alone, which has the digest of the rest.
        let (mut bytes, changed) = (fs::read(file).unwrap(), yard.folder.path().join("changed.rpm"));
        let at = bytes
            .windows(7)
            .position(|part| part == b"MIT\0\0\0\0")
            .or_else(|| bytes.windows(4).position(|part| part == b"MIT\0"));
        bytes[at.unwrap()] = b'm';
        fs::write(&changed, bytes).unwrap();
        assert!(!is_signed(&yard, &changed));
    }
    // Nothing is signed twice, and a signed file that is lost is taken from the repository.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&files[0]);
    yard.run(&["publish"]).exits(0).says(&["unchanged: 3 packages"]);
    fs::remove_dir_all(yard.folder.path().join("yard/signed")).unwrap();
    yard.run(&["publish"]).exits(0).says(&["unchanged: 3 packages"]);
    assert_eq!(inode(&files[0]), before);
    yard.run(&["keys", "audit"]).exits(0);
    // Another key signs them again, at another place; readers of the lists before still find theirs.
    yard.run(&["keys", "make", "next"]).exits(0);
    yard.run(&["keys", "rotate", "next"]).exits(0);
    yard.run(&["publish"]).exits(0);
    assert_eq!(fs::read_dir(yard.repository().join("Packages")).unwrap().count(), 1);
    yard.run(&["keys", "rotate", "next", "--finish"]).exits(0);
    yard.run(&["publish"]).exits(0).says(&["published: 3 packages"]);
    let folders =
        fs::read_dir(yard.repository().join("Packages")).unwrap().flatten().map(|entry| entry.path());
    let second = folders
        .into_iter()
        .find(|folder| *folder != first && folder.file_name() != first.file_name())
        .unwrap();
    for file in fs::read_dir(&second).unwrap().flatten() {
        assert!(is_signed(&yard, &file.path()), "{}", check(&yard, &file.path()));
    }
    yard.run(&["keys", "audit"]).exits(0);
    // A file that is not the published one is found.
    let published = second.join("signed-1-1.kt1.bk1.noarch.rpm");
    let whole = fs::read(&published).unwrap();
    fs::remove_file(&published).unwrap();
    fs::write(&published, &whole[..whole.len() - 1]).unwrap();
    yard.run(&["keys", "audit"]).exits(1).says(&["has another size than its index says"]);
    fs::write(&published, whole).unwrap();
    // What was built is found again without its signature.
    let state = Path::new(&yard.at()).join("state");
    for entry in fs::read_dir(&state)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains(".db"))
    {
        fs::remove_file(entry.path()).unwrap();
    }
    yard.run(&["restore"]).exits(0);
    yard.run(&["build"]).exits(0).says(&["1 unchanged", "(unchanged, 3 packages)"]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let trial = case(
        "packages_have_signatures_of_the_repositorys_key",
        packages_have_signatures_of_the_repositorys_key,
    );
    vec![real(trial, has_tools)]
}
