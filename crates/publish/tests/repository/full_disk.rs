//! Publishes to a disk that is full at different points.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use kilnyard_publish::PublishError;

use crate::support::{APT_TOOLS, Client, Yard, entry, lacks, snapshot};

const DISK_BYTES: u64 = 4 << 20;

/// A small separate file system.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "tmpfs"])
            .arg(&path)
            .output();
        output.is_ok_and(|output| output.status.success()).then_some(Self { path })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

/// Fills the disk except for `left_bytes`.
fn fill(path: &Path, left_bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    let block = [0; 4096];
    while file.write_all(&block).is_ok() {}
    file.set_len(file.metadata().unwrap().len().saturating_sub(left_bytes)).unwrap();
}

#[test]
fn a_full_disk_leaves_the_old_generation_intact() {
    let test = "a_full_disk_leaves_the_old_generation_intact";
    if lacks(test, &APT_TOOLS) {
        return;
    }
    let yard = Yard::new();
    let Some(disk) = Disk::mount(yard.path("disk")) else {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: cannot mount a file system");
        return;
    };
    let repository = disk.path.join("repository");
    // The file and the pool are on different file systems, so each publication takes space: 200 KiB and the
    // indexes.
    let package = |version: u32| {
        let stanza = format!("Package: alpha\nVersion: {version}\nArchitecture: amd64\nDescription: a\n");
        let file = yard.path("files").join(format!("alpha_{version}_amd64.deb"));
        crate::support::write(&file, &vec![version as u8; 200 << 10]);
        [entry(file, stanza, "amd64")]
    };
    yard.plan(&repository, &package(0), &[]).execute(&yard.signer).unwrap();
    let client = Client::of_directory(&repository);
    client.update();

    let filler = disk.path.join("filler");
    let mut version = 0;
    let mut failures = 0;
    for left_kib in [0, 4, 100, 204, 208, 212, 220, 228, 236, 244, 252, 260, 300] {
        version += 1;
        let binaries = package(version);
        let before = snapshot(&repository);
        let publication = yard.plan(&repository, &binaries, &[]);
        fill(&filler, left_kib << 10);
        let result = publication.execute(&yard.signer);
        match &result {
            Ok(published) => assert!(published.is_new),
            Err(PublishError::System { source, .. }) => {
                failures += 1;
                assert_eq!(source.raw_os_error(), Some(28), "{source}");
                // There may be new directories, and the pool may have the new file, but all existing files are
                // unchanged.
                let after = snapshot(&repository);
                assert!(before.iter().all(|(name, value)| after.get(name) == Some(value)), "{left_kib}");
                assert!(snapshot(&repository.join(".staging")).is_empty(), "{left_kib}");
            }
            Err(other) => panic!("{left_kib}: {other}"),
        }
        client.update();
        let seen = if result.is_ok() { version } else { version - 1 };
        assert_eq!(client.candidate("alpha"), Some(seen.to_string()), "{left_kib}");
        fs::remove_file(&filler).unwrap();
        yard.plan(&repository, &binaries, &[]).execute(&yard.signer).unwrap();
        client.update();
        assert_eq!(client.candidate("alpha"), Some(version.to_string()));
        kilnyard_publish::prune(&repository).unwrap().execute().unwrap();
    }
    assert!((3..13).contains(&failures), "{failures} failures");
}
