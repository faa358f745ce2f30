//! Tests pkgsrc repositories: their contents, updates, and the state after a kill.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kilnyard_publish::{
    Checksum, KEYRING_FILE, LookUp, Operation, PackageEntry, Publication, PublishError, Published, plan,
    plan_packages,
};
use sha2::{Digest, Sha512};

use crate::support::{
    GnupgSigner, PLAIN_KEY, PlainSigner, facts, lacks, plain_entry, run, snapshot, text, write,
};

/// Environment variable with the child's work: the files, the repository, and the step to die after.
const CHILD: &str = "KILNYARD_PUBLISH_TEST_PACKAGES_CHILD";

const OLD: u32 = 4;
const NEW: u32 = 5;

fn package_with(files: &Path, name: &str, content: &str) -> PackageEntry {
    let file = files.join(format!("{name}-{}", content.len())).join(format!("{name}.tgz"));
    if !file.exists() {
        write(&file, content.as_bytes());
    }
    PackageEntry {
        name: name.to_owned(),
        file_name: format!("{name}.tgz"),
        file,
        checksum: Checksum::Sha512(
            Sha512::digest(content).iter().map(|byte| format!("{byte:02x}")).collect(),
        ),
        size_bytes: content.len() as u64,
        summary: format!(
            "PKGNAME={name}\nDEPENDS=b>=1\nCOMMENT=x\nDESCRIPTION=first\nDESCRIPTION=\nDESCRIPTION=last\n"
        ),
    }
}

fn package(files: &Path, name: &str) -> PackageEntry {
    package_with(files, name, name)
}

struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn repository(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    fn all(&self, name: &str) -> PathBuf {
        self.repository().join("packages/All").join(name)
    }

    fn package(&self, name: &str) -> PackageEntry {
        package(&self.directory.path().join("files"), name)
    }

    fn plan(&self, entries: &[PackageEntry]) -> Result<Publication, PublishError> {
        plan_packages(&self.repository(), entries, &HashSet::new(), PLAIN_KEY)
    }

    fn publish(&self, entries: &[PackageEntry]) -> Published {
        self.plan(entries).unwrap().execute(&PlainSigner).unwrap()
    }

    fn summary(&self) -> String {
        String::from_utf8(run(Command::new("zstd").args(["-dc"]).arg(self.all("pkg_summary.zst"))).stdout)
            .unwrap()
    }

    fn names(&self) -> Vec<String> {
        let listed = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> =
            fs::read_dir(self.all("")).unwrap().map(|entry| listed(entry.unwrap())).collect();
        names.sort();
        names
    }
}

#[test]
fn the_indexes_are_as_readers_expect() {
    let test = "the_indexes_are_as_readers_expect";
    if lacks(test, &["gzip", "zstd", "sha512sum", "gpg"]) {
        return;
    }
    let scratch = Scratch::new();
    let signer = GnupgSigner::generate(&scratch.directory.path().join("gnupg"));
    let key = kilnyard_publish::Signer::public_armored(&signer).unwrap();
    let entries = [scratch.package("b-2.0nb1"), scratch.package("a-1.0")];
    let publication = plan_packages(&scratch.repository(), &entries, &HashSet::new(), &key).unwrap();
    assert!(!scratch.repository().exists());
    assert_eq!(publication.to_string().lines().count(), publication.operations().len());
    let published = publication.execute(&signer).unwrap();
    assert_eq!((published.generation, published.is_new, published.pool_files_placed), (1, true, 2));

    let expected = "PKGNAME=a-1.0\nDEPENDS=b>=1\nCOMMENT=x\nFILE_NAME=a-1.0.tgz\nFILE_SIZE=5\nDESCRIPTION=first\n\
                    DESCRIPTION=\nDESCRIPTION=last\n\nPKGNAME=b-2.0nb1\nDEPENDS=b>=1\nCOMMENT=x\n\
                    FILE_NAME=b-2.0nb1.tgz\nFILE_SIZE=8\nDESCRIPTION=first\nDESCRIPTION=\nDESCRIPTION=last\n\n";
    assert_eq!(scratch.summary(), expected);
    let unpacked = |name: &str| run(Command::new("gzip").args(["-dc"]).arg(scratch.all(name))).stdout;
    assert_eq!(unpacked("pkg_summary.gz"), expected.as_bytes());
    assert_eq!(unpacked("SHA512.gz"), fs::read(scratch.all("SHA512")).unwrap());
    let look_up = LookUp::open(&scratch.all("index")).unwrap();
    let found = look_up.get("a-1.0").unwrap().unwrap();
    assert_eq!(
        format!("{}\n", String::from_utf8(found).unwrap()),
        expected.split_inclusive("\n\n").next().unwrap()
    );

    let said = text(&run(Command::new("sha512sum").args(["-c", "SHA512"]).current_dir(scratch.all(""))));
    for name in ["a-1.0.tgz", "b-2.0nb1.tgz", "pkg_summary.gz", "pkg_summary.zst", "index"] {
        assert!(said.contains(&format!("{name}: OK")), "{said}");
    }
    run(Command::new("gpg")
        .env("GNUPGHOME", &signer.home)
        .args(["--batch", "--verify"])
        .arg(scratch.all("SHA512.asc"))
        .arg(scratch.all("SHA512")));
    assert_eq!(fs::read_to_string(scratch.repository().join(KEYRING_FILE)).unwrap(), key);
    for entry in &entries {
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&scratch.all(&entry.file_name)), inode(&entry.file), "a hard link");
    }
    let link = fs::read_link(scratch.repository().join("packages")).unwrap();
    assert_eq!(link, Path::new(".generations/packages/1"));
}

#[test]
fn equal_packages_in_any_order_write_nothing() {
    let scratch = Scratch::new();
    let mut entries = [scratch.package("a-1"), scratch.package("b-1"), scratch.package("c-1")];
    scratch.publish(&entries);
    let before = snapshot(&scratch.repository());
    entries.reverse();
    // The original files may be gone.
    fs::remove_dir_all(scratch.directory.path().join("files")).unwrap();
    let publication = scratch.plan(&entries).unwrap();
    assert!(publication.is_empty() && publication.new_generation().is_none(), "{publication}");
    let published = publication.execute(&PlainSigner).unwrap();
    assert_eq!((published.generation, published.is_new), (1, false));
    assert_eq!(snapshot(&scratch.repository()), before);
}

#[test]
fn any_lost_or_changed_file_makes_a_new_generation() {
    let scratch = Scratch::new();
    let entries = [scratch.package("a-1"), scratch.package("b-1")];
    scratch.publish(&entries);
    let mut generation = 1;
    for name in ["a-1.tgz", "pkg_summary.gz", "pkg_summary.zst", "index", "SHA512", "SHA512.gz", "SHA512.asc"]
    {
        fs::remove_file(scratch.all(name)).unwrap();
        let published = scratch.publish(&entries);
        generation += 1;
        assert_eq!((published.generation, published.is_new), (generation, true), "{name}");
        assert!(scratch.all(name).is_file(), "{name}");
        assert!(scratch.plan(&entries).unwrap().is_empty(), "{name}");
    }
    fs::write(scratch.all("pkg_summary.gz"), "damaged").unwrap();
    assert!(scratch.publish(&entries).is_new);
    let mut other = entries.to_vec();
    other[0].summary = other[0].summary.replace("COMMENT=x", "COMMENT=y");
    assert!(scratch.publish(&other).is_new);
    assert!(scratch.summary().contains("COMMENT=y"));
    let key = plan_packages(&scratch.repository(), &other, &HashSet::new(), "another key\n").unwrap();
    assert!(key.new_generation().is_some());
    assert!(matches!(key.execute(&PlainSigner), Err(PublishError::OtherKey)));
}

#[test]
fn a_look_up_file_of_an_older_format_is_made_again() {
    let scratch = Scratch::new();
    let entries = [scratch.package("a-1"), scratch.package("b-1")];
    scratch.publish(&entries);
    let sha512 =
        |bytes: &[u8]| Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let index = fs::read(scratch.all("index")).unwrap();
    let mut older = index.clone();
    older[8] = 1;
    let listed = fs::read_to_string(scratch.all("SHA512")).unwrap().replace(&sha512(&index), &sha512(&older));
    for (name, bytes) in [("index", &older), ("SHA512", &listed.into_bytes())] {
        fs::remove_file(scratch.all(name)).unwrap();
        fs::write(scratch.all(name), bytes).unwrap();
    }
    assert!(LookUp::open(&scratch.all("index")).unwrap_err().to_string().contains("older"));
    assert!(scratch.publish(&entries).is_new);
    assert_eq!(fs::read(scratch.all("index")).unwrap(), index);
    assert!(!scratch.publish(&entries).is_new);
}

#[test]
fn files_dropped_from_the_index_stay_for_one_more_generation() {
    let scratch = Scratch::new();
    let (a, b, c) = (scratch.package("a-1"), scratch.package("b-1"), scratch.package("c-1"));
    scratch.publish(&[a.clone(), b.clone()]);
    scratch.publish(&[b.clone(), c.clone()]);
    assert!(scratch.all("a-1.tgz").is_file());
    assert!(!scratch.summary().contains("PKGNAME=a-1"));
    assert!(!fs::read_to_string(scratch.all("SHA512")).unwrap().contains("a-1.tgz"));
    // Publishing without changes makes no new generation.
    scratch.publish(&[b.clone(), c.clone()]);
    assert!(scratch.all("a-1.tgz").is_file());
    scratch.publish(std::slice::from_ref(&c));
    assert!(!scratch.all("a-1.tgz").exists() && scratch.all("b-1.tgz").is_file());
    assert_eq!(
        scratch.names(),
        [
            "SHA512",
            "SHA512.asc",
            "SHA512.gz",
            "b-1.tgz",
            "c-1.tgz",
            "index",
            "pkg_summary.gz",
            "pkg_summary.zst"
        ]
    );
    // The dropped package cannot come back without its file: the generation that still has it does not list it.
    fs::remove_dir_all(scratch.directory.path().join("files")).unwrap();
    assert!(matches!(scratch.plan(&[b, c]), Err(PublishError::System { .. })));
}

#[test]
fn a_rebuilt_package_has_the_new_bytes() {
    let scratch = Scratch::new();
    let files = scratch.directory.path().join("files");
    scratch.publish(&[package_with(&files, "a-1", "old"), package(&files, "b-1")]);
    let first = fs::canonicalize(scratch.all("a-1.tgz")).unwrap();
    let published = scratch.publish(&[package_with(&files, "a-1", "newer"), package(&files, "b-1")]);
    assert_eq!(published.pool_files_placed, 1);
    assert_eq!(fs::read_to_string(scratch.all("a-1.tgz")).unwrap(), "newer");
    assert_eq!(fs::read_to_string(first).unwrap(), "old");
}

#[test]
fn removing_old_generations_leaves_an_apt_repository_alone() {
    let scratch = Scratch::new();
    let debs = [plain_entry(&scratch.directory.path().join("debs"), "alpha", "1", b"alpha")];
    let apt = |codename: &str| {
        let mut facts = facts();
        facts.codename = codename.into();
        plan(&scratch.repository(), &facts, &debs, &[], PLAIN_KEY)
    };
    apt("kiln").unwrap().execute(&PlainSigner).unwrap();
    for version in 1..=5 {
        scratch.publish(&[scratch.package(&format!("a-{version}"))]);
    }
    let mut kept: Vec<_> = fs::read_dir(scratch.repository().join(".generations/packages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, ["3", "4", "5"]);
    kilnyard_publish::prune(&scratch.repository()).unwrap().execute().unwrap();
    assert!(apt("kiln").unwrap().is_empty());
    assert!(matches!(apt("packages"), Err(PublishError::Input { what: "codename", .. })));
    assert!(scratch.plan(&[scratch.package("a-5")]).unwrap().is_empty());
}

#[test]
fn hostile_packages_are_rejected() {
    let scratch = Scratch::new();
    let good = scratch.package("a-1");
    let refused = |change: &dyn Fn(&mut PackageEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        match scratch.plan(&[entry]) {
            Err(PublishError::Input { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    for name in ["", "a", "../a-1", "a/b-1", ".a-1", "a b-1", "a-", "a-1\n"] {
        assert_eq!(refused(&|entry| entry.name = name.into()), "package name", "{name:?}");
    }
    for name in
        ["a-1", "a-1.", "b-1.tgz", "a-1.tgz/x", "a-1.t.gz", "../a-1.tgz", "index", "SHA512", "pkg_summary.gz"]
    {
        assert_eq!(refused(&|entry| entry.file_name = name.into()), "file name", "{name:?}");
    }
    for sum in ["", "0", &"0".repeat(127), &"A".repeat(128)] {
        assert_eq!(refused(&|entry| entry.checksum = Checksum::Sha512(sum.to_owned())), "SHA-512");
    }
    for summary in [
        "",
        "\n",
        "COMMENT=x\n",
        "PKGNAME=b-1\n",
        "PKGNAME=a-1\nPKGNAME=a-1\n",
        "PKGNAME=a-1\n\nPKGNAME=b-1\n",
        "PKGNAME=a-1\n \nCOMMENT=x\n",
        "PKGNAME=a-1\n\r\nCOMMENT=x\n",
        "PKGNAME=a-1\nCOMMENT=x\rPKGNAME=b-1\n",
        "PKGNAME=a-1\nCOMMENT=x\0\n",
        "PKGNAME=a-1\nnonsense\n",
        "PKGNAME=a-1\n=x\n",
        "PKGNAME=a-1\nFILE_NAME=../x\n",
        "PKGNAME=a-1\nFILE_SIZE=1\n",
    ] {
        assert_eq!(refused(&|entry| entry.summary = summary.into()), "summary", "{summary:?}");
    }
    assert!(matches!(
        scratch.plan(&[good.clone(), good.clone()]),
        Err(PublishError::Input { what: "package", .. })
    ));
    let mut larger = good.clone();
    larger.size_bytes += 1;
    assert!(matches!(scratch.plan(&[larger]), Err(PublishError::FileChanged { .. })));
    assert!(!scratch.repository().exists());
}

#[test]
fn a_copied_file_is_checked() {
    let scratch = Scratch::new();
    let good = scratch.package("a-1");
    // A file that is not world-readable is copied, since a link would share its mode.
    fs::set_permissions(&good.file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut other = good.clone();
    other.checksum = Checksum::Sha512("0".repeat(128));
    let error = scratch.plan(&[other]).unwrap().execute(&PlainSigner).unwrap_err();
    assert!(matches!(error, PublishError::FileChanged { .. }), "{error}");
    assert!(!scratch.repository().join("packages").exists());
    scratch.publish(std::slice::from_ref(&good));
    assert_eq!(fs::read_to_string(scratch.all("a-1.tgz")).unwrap(), "a-1");
    assert_eq!(fs::metadata(scratch.all("a-1.tgz")).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn a_stale_plan_and_a_second_writer_are_rejected() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.package("a-1"), scratch.package("b-1"));
    let stale = scratch.plan(std::slice::from_ref(&a)).unwrap();
    scratch.publish(std::slice::from_ref(&b));
    assert!(matches!(stale.execute(&PlainSigner), Err(PublishError::Changed { .. })));
    // A file that the plan relies on disappears in between.
    let stale = scratch.plan(&[a.clone(), b.clone()]).unwrap();
    fs::remove_file(scratch.all("b-1.tgz")).unwrap();
    assert!(matches!(stale.execute(&PlainSigner), Err(PublishError::Changed { .. })));
    let publication = scratch.plan(&[a, b]).unwrap();
    let lock = fs::File::options().write(true).open(scratch.repository().join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(matches!(publication.execute(&PlainSigner), Err(PublishError::Busy { .. })));
    drop(lock);
    assert!(publication.execute(&PlainSigner).unwrap().is_new);
}

/// The packages of a version. One changes its content, one its name, and one nothing.
fn of_version(files: &Path, version: u32) -> Vec<PackageEntry> {
    vec![
        package_with(files, "same-name-1", &"x".repeat(version as usize)),
        package(files, &format!("new-name-{version}")),
        package(files, "same-1"),
    ]
}

/// Not a test by itself: this is the process that is killed.
#[test]
fn child_publishes_and_dies() {
    let Ok(work) = std::env::var(CHILD) else {
        return;
    };
    let [files, repository, last_step] = work.split('\n').collect::<Vec<_>>()[..] else {
        panic!("{work:?}");
    };
    let last_step: usize = last_step.parse().unwrap();
    plan_packages(Path::new(repository), &of_version(Path::new(files), NEW), &HashSet::new(), PLAIN_KEY)
        .unwrap()
        .execute_observed(&PlainSigner, &mut |step, _| {
            if step == last_step {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        })
        .unwrap();
}

/// Checks what readers see: each listed file exists with the listed size, and all checksums are correct.
/// Returns the listed files with their sizes.
fn check_survivor(repository: &Path) -> BTreeMap<String, String> {
    let all = repository.join("packages/All");
    run(Command::new("sha512sum").args(["--strict", "--quiet", "-c", "SHA512"]).current_dir(&all));
    let packed = run(Command::new("gzip").args(["-dc", "pkg_summary.gz"]).current_dir(&all)).stdout;
    let summary = String::from_utf8(packed).unwrap();
    let value = |line: &str, key: &str| line.strip_prefix(key).map(str::to_owned);
    let names = summary.lines().filter_map(|line| value(line, "FILE_NAME="));
    let sizes = summary.lines().filter_map(|line| value(line, "FILE_SIZE="));
    let listed: BTreeMap<String, String> = names.zip(sizes).collect();
    for (name, size) in &listed {
        assert_eq!(&fs::metadata(all.join(name)).unwrap().len().to_string(), size, "{name}");
    }
    listed
}

#[test]
fn a_kill_after_any_step_leaves_a_complete_generation() {
    if lacks("a_kill_after_any_step_leaves_a_complete_generation", &["gzip", "sha512sum"]) {
        return;
    }
    let scratch = Scratch::new();
    let files = scratch.directory.path().join("files");
    // With `None`, the first publication is killed.
    for base_version in [Some(OLD), None] {
        let base = scratch.directory.path().join("base");
        let new = of_version(&files, NEW);
        for version in 1..=base_version.unwrap_or(0) {
            plan_packages(&base, &of_version(&files, version), &HashSet::new(), PLAIN_KEY)
                .unwrap()
                .execute(&PlainSigner)
                .unwrap();
        }
        let (crashed, expected) =
            (scratch.directory.path().join("crashed"), scratch.directory.path().join("expected"));
        let copy = |to: &Path| {
            if base_version.is_some() {
                run(Command::new("cp").arg("--archive").arg(&base).arg(to));
            }
        };
        copy(&expected);
        let publication = plan_packages(&expected, &new, &HashSet::new(), PLAIN_KEY).unwrap();
        let operations = publication.operations().to_vec();
        let switch =
            operations.iter().position(|operation| matches!(operation, Operation::Switch { .. })).unwrap();
        publication.execute(&PlainSigner).unwrap();
        let (old_view, new_view) = (base_version.map(|_| check_survivor(&base)), check_survivor(&expected));

        for (step, operation) in operations.iter().enumerate() {
            copy(&crashed);
            let work = format!("{}\n{}\n{step}", files.display(), crashed.display());
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "packages::child_publishes_and_dies", "--nocapture"])
                .env(CHILD, work)
                .stdout(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(9), "step {step}: {operation:?}");
            match (&old_view, step >= switch) {
                (_, true) => assert_eq!(check_survivor(&crashed), new_view, "step {step}: {operation:?}"),
                (Some(old), false) => {
                    assert_eq!(&check_survivor(&crashed), old, "step {step}: {operation:?}")
                }
                (None, false) => assert!(!crashed.join("packages").exists()),
            }
            plan_packages(&crashed, &new, &HashSet::new(), PLAIN_KEY).unwrap().execute(&PlainSigner).unwrap();
            assert_eq!(snapshot(&crashed), snapshot(&expected), "step {step}: {operation:?}");
            assert!(plan_packages(&crashed, &new, &HashSet::new(), PLAIN_KEY).unwrap().is_empty());
            fs::remove_dir_all(&crashed).unwrap();
        }
        fs::remove_dir_all(&expected).unwrap();
        let _ = fs::remove_dir_all(&base);
    }
}
