//! Tests plans, rejected input, generations and pruning, without a client.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use kilnyard_publish::{
    BinaryEntry, KEYRING_FILE, Publication, PublishError, ReleaseFacts, SourceEntry, SourceFile, plan, prune,
};

use crate::support::{PLAIN_KEY, PlainSigner, facts, plain_entry, sha256, snapshot, write};

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

    fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    fn package(&self, name: &str, version: &str) -> BinaryEntry {
        plain_entry(&self.files(), name, version, format!("{name} {version}").as_bytes())
    }

    fn plan(&self, binaries: &[BinaryEntry]) -> Result<Publication, PublishError> {
        self.plan_with(&facts(), binaries)
    }

    fn plan_with(&self, facts: &ReleaseFacts, binaries: &[BinaryEntry]) -> Result<Publication, PublishError> {
        plan(&self.repository(), facts, binaries, &[], PLAIN_KEY)
    }

    fn publish(&self, binaries: &[BinaryEntry]) -> bool {
        self.plan(binaries).unwrap().execute(&PlainSigner).unwrap().is_new
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.repository().join(path)).unwrap()
    }
}

#[test]
fn planning_writes_nothing_and_prints_every_step() {
    let scratch = Scratch::new();
    let publication = scratch.plan(&[scratch.package("alpha", "1")]).unwrap();
    assert!(!scratch.repository().exists());
    let printed = publication.to_string();
    assert_eq!(printed.lines().count(), publication.operations().len());
    let after = |first: &str, second: &str| {
        let position = |part: &str| printed.find(part).unwrap_or_else(|| panic!("{part}: {printed}"));
        assert!(position(first) < position(second), "{first} before {second}: {printed}");
    };
    after("place pool/main/alpha_1_amd64.deb (7 bytes)", "sync ");
    after("write .staging/generation/main/binary-amd64/Packages.xz", "sign .staging/generation/Release");
    after("sign .staging/generation/Release", "sync ");
    after("sync ", "move .staging/generation to .generations/kiln/1");
    after("move .staging/generation to .generations/kiln/1", "sync .generations/kiln");
    after("sync .generations/kiln", "switch dists/kiln to ../.generations/kiln/1");
    after("switch dists/kiln", "sync dists");
}

#[test]
fn the_layout_is_as_documented() {
    let scratch = Scratch::new();
    let mut both = facts();
    both.architectures.push("arm64".into());
    both.components.push("extra".into());
    let mut all = scratch.package("all", "1");
    all.architecture = "all".into();
    all.stanza = "Package: all\nVersion: 1\nArchitecture: all\n".into();
    let mut extra = scratch.package("extra", "1");
    extra.component = "extra".into();
    let entries =
        [scratch.package("b", "1"), scratch.package("a", "2"), scratch.package("a", "1"), all, extra];
    scratch.plan_with(&both, &entries).unwrap().execute(&PlainSigner).unwrap();

    let names = |path: &str| -> Vec<String> {
        let stanzas = scratch.read(path);
        stanzas
            .split("\n\n")
            .filter(|stanza| !stanza.is_empty())
            .map(|stanza| {
                stanza
                    .lines()
                    .take(2)
                    .map(|line| line.split(": ").nth(1).unwrap())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    };
    assert_eq!(names("dists/kiln/main/binary-amd64/Packages"), ["a 1", "a 2", "all 1", "b 1"]);
    assert_eq!(names("dists/kiln/main/binary-arm64/Packages"), ["all 1"]);
    assert_eq!(names("dists/kiln/extra/binary-amd64/Packages"), ["extra 1"]);
    assert_eq!(names("dists/kiln/extra/binary-arm64/Packages"), [] as [&str; 0]);
    assert_eq!(names("dists/kiln/main/source/Sources"), [] as [&str; 0]);
    assert_eq!(
        scratch.read("dists/kiln/main/binary-arm64/Packages"),
        format!(
            "Package: all\nVersion: 1\nArchitecture: all\nFilename: pool/main/all_1_amd64.deb\nSize: 5\nSHA256: {}\n\n",
            sha256(b"all 1")
        )
    );
    let release = scratch.read("dists/kiln/Release");
    assert!(release.contains("\nArchitectures: amd64 arm64\nComponents: main extra\n"));
    let listed = release.lines().filter(|line| line.starts_with(' ')).count();
    assert_eq!(listed, 18, "three forms of two architectures and sources in two components");
    for line in release.lines().filter(|line| line.starts_with(' ')) {
        let [hash, size, path] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let file = scratch.repository().join("dists/kiln").join(path);
        let content = fs::read(&file).unwrap();
        assert_eq!((sha256(&content).as_str(), content.len().to_string().as_str()), (hash, size));
        let by_hash = file.parent().unwrap().join("by-hash/SHA256").join(hash);
        assert_eq!(fs::metadata(by_hash).unwrap().ino(), fs::metadata(&file).unwrap().ino());
        let plain = fs::read(file.with_extension("")).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("zst") => assert_eq!(zstd::decode_all(content.as_slice()).unwrap(), plain),
            Some("xz") => {
                let mut unpacked = Vec::new();
                let mut decoder = liblzma::read::XzDecoder::new(content.as_slice());
                std::io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
                assert_eq!(unpacked, plain);
            }
            _ => {}
        }
    }
    let mode =
        |path: &str| fs::metadata(scratch.repository().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((scratch.read(KEYRING_FILE).as_str(), mode(KEYRING_FILE)), (PLAIN_KEY, 0o644));
    for directory in ["", "dists", ".generations/kiln/1", "pool/main"] {
        assert_eq!(mode(directory), 0o755, "{directory}");
    }
    for file in ["dists/kiln/InRelease", "dists/kiln/Release.gpg", "dists/kiln/main/source/Sources.xz"] {
        assert_eq!(mode(file), 0o644, "{file}");
    }
}

#[test]
fn equal_input_in_any_order_writes_nothing() {
    let scratch = Scratch::new();
    let mut entries =
        vec![scratch.package("alpha", "1"), scratch.package("beta", "1"), scratch.package("beta", "2")];
    assert!(scratch.publish(&entries));
    let before = snapshot(&scratch.repository());
    entries.reverse();
    let mut later = facts();
    later.date_seconds += 1000;
    // The original files may be gone, since the pool has them.
    fs::remove_dir_all(scratch.files()).unwrap();
    let publication = scratch.plan_with(&later, &entries).unwrap();
    assert!(publication.is_empty() && publication.new_generation().is_none(), "{publication}");
    let published = publication.execute(&PlainSigner).unwrap();
    assert_eq!((published.generation, published.is_new), (1, false));
    assert_eq!(snapshot(&scratch.repository()), before);
}

#[test]
fn indexes_that_did_not_change_are_shared_with_the_last_generation() {
    let scratch = Scratch::new();
    let mut two = facts();
    two.components.push("extra".into());
    let mut extra = scratch.package("extra", "1");
    extra.component = "extra".into();
    let publish =
        |entries: &[BinaryEntry]| scratch.plan_with(&two, entries).unwrap().execute(&PlainSigner).unwrap();
    publish(&[scratch.package("alpha", "1"), extra.clone()]);
    publish(&[scratch.package("alpha", "2"), extra]);
    let inode = |generation: u32, index: &str| {
        let path = scratch.repository().join(format!(".generations/kiln/{generation}/{index}"));
        fs::metadata(path).unwrap().ino()
    };
    for form in ["", ".xz", ".zst"] {
        let index = format!("extra/binary-amd64/Packages{form}");
        assert_eq!(inode(1, &index), inode(2, &index));
        let index = format!("main/binary-amd64/Packages{form}");
        assert_ne!(inode(1, &index), inode(2, &index));
    }
}

#[test]
fn facts_and_lost_files_count_as_changes() {
    let scratch = Scratch::new();
    let entries = [scratch.package("alpha", "1")];
    assert!(scratch.publish(&entries));
    let mut other = facts();
    other.label = "Other".into();
    assert_eq!(scratch.plan_with(&other, &entries).unwrap().new_generation(), Some(2));
    for lost in ["InRelease", "Release.gpg", "main/binary-amd64/Packages.xz", "main/source/Sources"] {
        fs::remove_file(scratch.repository().join("dists/kiln").join(lost)).unwrap();
        assert!(scratch.publish(&entries), "{lost}");
        assert!(scratch.repository().join("dists/kiln").join(lost).is_file());
        assert!(scratch.plan(&entries).unwrap().is_empty());
    }
    // A lost pool file is restored without a new generation.
    fs::remove_file(scratch.repository().join(&entries[0].pool_path)).unwrap();
    assert!(!scratch.publish(&entries));
    assert_eq!(scratch.read(&entries[0].pool_path), "alpha 1");
    fs::remove_file(scratch.repository().join(KEYRING_FILE)).unwrap();
    assert!(!scratch.publish(&entries));
    assert_eq!(scratch.read(KEYRING_FILE), PLAIN_KEY);
}

#[test]
fn a_published_path_never_changes_its_content() {
    let scratch = Scratch::new();
    let first = scratch.package("alpha", "1");
    scratch.publish(std::slice::from_ref(&first));
    for content in ["ALPHA 1", "another length"] {
        let other = plain_entry(&scratch.directory.path().join("other"), "alpha", "1", content.as_bytes());
        match scratch.plan(std::slice::from_ref(&other)) {
            Err(PublishError::Conflict { pool_path, existing_sha256, offered_sha256 }) => {
                assert_eq!(pool_path, first.pool_path);
                assert_eq!((&existing_sha256, &offered_sha256), (&first.sha256, &other.sha256));
            }
            result => panic!("{result:?}"),
        }
        // Two conflicting entries in the same input.
        let mut twin = other.clone();
        twin.stanza = twin.stanza.replace("alpha", "twin");
        assert!(matches!(scratch.plan(&[first.clone(), twin]), Err(PublishError::Conflict { .. })));
    }
    // The same content in a different source file is not a conflict.
    let same = plain_entry(&scratch.directory.path().join("other"), "alpha", "1", b"alpha 1");
    assert!(scratch.plan(&[same]).unwrap().is_empty());

    // Still rejected if only an older generation names the path.
    scratch.publish(&[scratch.package("beta", "1")]);
    let other = plain_entry(&scratch.directory.path().join("other"), "alpha", "1", b"ALPHA 1");
    assert!(matches!(scratch.plan(&[other]), Err(PublishError::Conflict { .. })));
}

#[test]
fn a_file_that_no_generation_names_is_replaced() {
    let scratch = Scratch::new();
    scratch.publish(&[scratch.package("beta", "1")]);
    let entry = scratch.package("alpha", "1");
    write(&scratch.repository().join(&entry.pool_path), b"left by an interrupted attempt");
    assert!(scratch.publish(std::slice::from_ref(&entry)));
    assert_eq!(scratch.read(&entry.pool_path), "alpha 1");
}

#[test]
fn files_are_linked_if_possible_or_copied() {
    let scratch = Scratch::new();
    let linked = scratch.package("linked", "1");
    let private = scratch.package("private", "1");
    fs::set_permissions(&private.file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut symbolic = scratch.package("symbolic", "1");
    let link = scratch.files().join("a-link");
    symlink(&symbolic.file, &link).unwrap();
    symbolic.file = link;
    scratch.publish(&[linked.clone(), private.clone(), symbolic.clone()]);
    let there =
        |entry: &BinaryEntry| fs::symlink_metadata(scratch.repository().join(&entry.pool_path)).unwrap();
    assert_eq!(there(&linked).ino(), fs::metadata(&linked.file).unwrap().ino());
    assert_eq!(there(&symbolic).ino(), fs::metadata(&symbolic.file).unwrap().ino());
    assert_ne!(there(&private).ino(), fs::metadata(&private.file).unwrap().ino());
    assert_eq!(there(&private).permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::metadata(&private.file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_does_not_match_its_entry_is_rejected() {
    let scratch = Scratch::new();
    let mut shorter = scratch.package("alpha", "1");
    shorter.size_bytes += 1;
    assert!(matches!(scratch.plan(&[shorter]), Err(PublishError::FileChanged { .. })));
    let mut missing = scratch.package("alpha", "1");
    missing.file = scratch.files().join("nothing");
    assert!(matches!(scratch.plan(&[missing]), Err(PublishError::System { .. })));
    // A file that has to be copied is hashed while copying.
    let mut other = scratch.package("alpha", "1");
    fs::set_permissions(&other.file, fs::Permissions::from_mode(0o600)).unwrap();
    other.sha256 = sha256(b"something else");
    let error = scratch.plan(&[other]).unwrap().execute(&PlainSigner).unwrap_err();
    assert!(matches!(error, PublishError::FileChanged { .. }), "{error}");
    assert!(!scratch.repository().join("dists/kiln").exists());
}

#[test]
fn hostile_input_is_rejected() {
    let scratch = Scratch::new();
    let refused = |change: &dyn Fn(&mut BinaryEntry)| {
        let mut entry = scratch.package("alpha", "1");
        change(&mut entry);
        let result = scratch.plan(&[entry.clone()]);
        assert!(matches!(result, Err(PublishError::Input { .. })), "{entry:?}: {result:?}");
    };
    refused(&|entry| entry.pool_path = "pool/../../../etc/cron.d/x".into());
    refused(&|entry| entry.pool_path = "dists/kiln/InRelease".into());
    refused(&|entry| entry.pool_path = "pool/main/a\nSHA256: x".into());
    refused(&|entry| entry.component = "../main".into());
    refused(&|entry| entry.component = "other".into());
    refused(&|entry| entry.architecture = "arm64".into());
    refused(&|entry| entry.architecture = "all".into());
    refused(&|entry| entry.sha256 = entry.sha256.to_uppercase());
    refused(&|entry| entry.sha256 = "x".into());
    refused(&|entry| entry.stanza += "\n\nPackage: bash\nVersion: 99\n");
    refused(&|entry| entry.stanza += "filename: http://elsewhere/x\n");
    refused(&|entry| entry.stanza += "SHA256: x\n");
    refused(&|entry| entry.stanza = entry.stanza.replace("Version: 1\n", ""));
    refused(&|entry| entry.stanza = entry.stanza.replace("Version: 1\n", "Version: 1\n 2\n"));
    let with_facts = |change: &dyn Fn(&mut ReleaseFacts)| {
        let mut facts = facts();
        change(&mut facts);
        let result = scratch.plan_with(&facts, &[]);
        assert!(matches!(result, Err(PublishError::Input { .. })), "{facts:?}: {result:?}");
    };
    with_facts(&|facts| facts.codename = "../x".into());
    with_facts(&|facts| facts.codename.clear());
    with_facts(&|facts| facts.components = vec!["a/b".into()]);
    with_facts(&|facts| facts.components.push("main".into()));
    with_facts(&|facts| facts.components.clear());
    with_facts(&|facts| facts.architectures.push("all".into()));
    with_facts(&|facts| facts.label = "a\nSigned-By: b".into());
    let entry = scratch.package("alpha", "1");
    let mut twin = entry.clone();
    twin.pool_path += "x";
    assert!(matches!(scratch.plan(&[entry, twin]), Err(PublishError::Duplicate { .. })));
    assert!(!scratch.repository().exists());
}

#[test]
fn a_source_must_list_its_files() {
    let scratch = Scratch::new();
    let file = scratch.files().join("a_1.dsc");
    write(&file, b"dsc");
    let hash = sha256(b"dsc");
    let good = SourceEntry {
        stanza: format!("Package: a\nVersion: 1\nDirectory: pool/a\nChecksums-Sha256:\n {hash} 3 a_1.dsc\n"),
        component: "main".into(),
        files: vec![SourceFile {
            pool_path: "pool/a/a_1.dsc".into(),
            file,
            size_bytes: 3,
            sha256: hash.clone(),
        }],
    };
    let plan_one = |entry: SourceEntry| plan(&scratch.repository(), &facts(), &[], &[entry], PLAIN_KEY);
    plan_one(good.clone()).unwrap();
    let refused = |change: &dyn Fn(&mut SourceEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        assert!(matches!(plan_one(entry.clone()), Err(PublishError::Input { .. })), "{entry:?}");
    };
    refused(&|entry| entry.files[0].pool_path = "pool/b/a_1.dsc".into());
    refused(&|entry| entry.files[0].size_bytes = 4);
    refused(&|entry| entry.files[0].sha256 = sha256(b"other"));
    refused(&|entry| entry.files.clear());
    refused(&|entry| {
        entry.files.clear();
        entry.stanza = "Package: a\nVersion: 1\nDirectory: ../../etc\n".into();
    });
    let with = |more: String| move |entry: &mut SourceEntry| entry.stanza.push_str(&more);
    refused(&with(format!("Files:\n {} 3 ../../evil\n", "0".repeat(32))));
    refused(&with(format!("checksums-sha512:\n {} 3 a_1.dsc\n {} 3 b\n", "0".repeat(128), "0".repeat(128))));
    refused(&with("Directory: ../../etc\n".to_owned()));
    let mut listed = good.clone();
    with(format!("Files:\n {} 3 a_1.dsc\n", "0".repeat(32)))(&mut listed);
    plan_one(listed).unwrap();
    refused(&|entry| entry.stanza = entry.stanza.replace("Package", "Source"));
    refused(&|entry| entry.stanza += "\n\nPackage: b\n");
}

#[test]
fn foreign_files_are_named_in_the_error() {
    let scratch = Scratch::new();
    let entry = scratch.package("alpha", "1");
    let foreign = |path: &str, make: &dyn Fn(&Path)| {
        let path = scratch.repository().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        let result = scratch.plan(std::slice::from_ref(&entry));
        match result {
            Err(PublishError::Foreign { path: named, .. }) => assert_eq!(named, path),
            other => panic!("{other:?}"),
        }
        fs::remove_dir_all(scratch.repository()).unwrap();
    };
    foreign("dists/kiln", &|path| fs::create_dir(path).unwrap());
    foreign("dists/kiln", &|path| symlink("elsewhere", path).unwrap());
    foreign("dists/kiln", &|path| symlink("../.generations/kiln/01", path).unwrap());
    foreign("pool/main", &|path| symlink("/etc", path).unwrap());
    foreign("pool/main/alpha_1_amd64.deb", &|path| fs::create_dir(path).unwrap());
    foreign("pool/main/alpha_1_amd64.deb", &|path| symlink("/etc/hostname", path).unwrap());
}

#[test]
fn a_stale_plan_and_a_second_writer_are_rejected() {
    let scratch = Scratch::new();
    let (alpha, beta) = (scratch.package("alpha", "1"), scratch.package("beta", "1"));
    let stale = scratch.plan(std::slice::from_ref(&alpha)).unwrap();
    scratch.publish(std::slice::from_ref(&beta));
    assert!(matches!(stale.execute(&PlainSigner), Err(PublishError::Changed { .. })));

    // A prune in between removes files that the plan relies on.
    scratch.publish(std::slice::from_ref(&alpha));
    for version in ["2", "3", "4"] {
        scratch.publish(&[scratch.package("beta", version)]);
    }
    let stale = scratch.plan(std::slice::from_ref(&alpha)).unwrap();
    prune(&scratch.repository()).unwrap().execute().unwrap();
    assert!(matches!(stale.execute(&PlainSigner), Err(PublishError::Changed { .. })));

    let publication = scratch.plan(std::slice::from_ref(&alpha)).unwrap();
    let lock = fs::File::options().write(true).open(scratch.repository().join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(matches!(publication.execute(&PlainSigner), Err(PublishError::Busy { .. })));
    drop(lock);
    assert!(publication.execute(&PlainSigner).unwrap().is_new);
}

#[test]
fn a_plan_for_another_key_is_not_signed() {
    let scratch = Scratch::new();
    let publication =
        plan(&scratch.repository(), &facts(), &[scratch.package("alpha", "1")], &[], "another key\n")
            .unwrap();
    assert!(matches!(publication.execute(&PlainSigner), Err(PublishError::OtherKey)));
    assert!(!scratch.repository().join("dists").exists());
}

#[test]
fn pruning_keeps_files_named_by_any_kept_generation() {
    let scratch = Scratch::new();
    let repository = scratch.repository();
    assert!(prune(&repository).unwrap().operations().is_empty());
    write(&repository.join("pool/stray"), b"before any publication, nothing is known");
    assert!(prune(&repository).unwrap().operations().is_empty());

    let mut other_codename = facts();
    other_codename.codename = "other".into();
    let shared = scratch.package("shared", "1");
    scratch.plan_with(&other_codename, std::slice::from_ref(&shared)).unwrap().execute(&PlainSigner).unwrap();
    let mut deep = scratch.package("deep", "1");
    deep.pool_path = "pool/main/d/deep/deep_1.deb".into();
    scratch.publish(&[deep.clone(), shared.clone()]);
    for version in 1..=5 {
        scratch.publish(&[scratch.package("alpha", &version.to_string())]);
    }
    symlink("/etc/hostname", repository.join("pool/link")).unwrap();

    let plan = prune(&repository).unwrap();
    let printed = plan.to_string();
    let removed: Vec<&str> = printed.lines().collect();
    assert_eq!(
        removed,
        [
            "remove pool/main/alpha_1_amd64.deb (7 bytes)",
            "remove pool/main/alpha_2_amd64.deb (7 bytes)",
            "remove pool/main/d/deep/deep_1.deb (6 bytes)",
            "remove directory pool/main/d/deep",
            "remove directory pool/main/d",
            "remove pool/stray (40 bytes)",
            "sync pool pool/main",
        ]
    );
    assert_eq!(plan.size_bytes(), 60);
    plan.execute().unwrap();
    assert!(prune(&repository).unwrap().operations().is_empty());
    for (name, is_kept) in [("alpha_2", false), ("alpha_3", true), ("alpha_5", true), ("shared_1", true)] {
        assert_eq!(repository.join(format!("pool/main/{name}_amd64.deb")).exists(), is_kept, "{name}");
    }
    assert!(repository.join("pool/link").is_symlink());

    // A generation that cannot be read might name any file.
    fs::write(repository.join(".generations/kiln/5/main/binary-amd64/Packages"), "").unwrap();
    assert!(matches!(prune(&repository), Err(PublishError::Foreign { .. })));
}

#[test]
fn old_generations_are_removed() {
    let scratch = Scratch::new();
    for version in 1..=5 {
        scratch.publish(&[scratch.package("alpha", &version.to_string())]);
    }
    let mut kept: Vec<_> = fs::read_dir(scratch.repository().join(".generations/kiln"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, ["3", "4", "5"]);
}
