//! Inserting local files into a store, and a store on a full disk.

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use kilnyard_mirror::{FetchError, FileStore, Sha256Hex};
use support::{Act, Server, content, limits, wanted};

#[test]
fn a_file_is_copied_into_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(&folder.path().join("store"), limits()).unwrap();
    let file = folder.path().join("thing.tar");
    fs::write(&file, b"content").unwrap();
    // Twice, and through a symbolic link: the same content.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &file, &link] {
        let (sha256, size_bytes) = store.insert(path).unwrap();
        assert_eq!((sha256.clone(), size_bytes), (Sha256Hex::of(b"content"), 7));
        assert!(store.contains(&sha256));
        assert_eq!(store.size_bytes(&sha256), Some(7));
        let stored = fs::symlink_metadata(store.path(&sha256)).unwrap();
        assert_eq!((stored.mode() & 0o7777, stored.nlink()), (0o444, 1));
    }
    assert!(!store.contains(&Sha256Hex::of(b"other")));

    // A later change of the file does not change the store.
    fs::write(&file, b"changed").unwrap();
    let cancel = AtomicBool::new(false);
    let path = store.ensure(&wanted(b"content", []), &|_| {}, &cancel).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"content");
}

#[test]
fn only_regular_files_are_inserted() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(&folder.path().join("store"), limits()).unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing"), PathBuf::from("/dev/zero")] {
        assert!(store.insert(&path).is_err(), "{}", path.display());
    }
    assert_eq!(fs::read_dir(folder.path().join("store")).unwrap().count(), 0);
}

/// A mounted tmpfs of a given size, until dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(test: &str, size: &str) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { folder }),
            Ok(output) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: {test}: mount: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
                None
            }
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "skipped: {test}: mount: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}

#[test]
fn a_full_disk_is_its_own_error() {
    let Some(disk) = SmallDisk::mount("a_full_disk_is_its_own_error", "64k") else {
        return;
    };
    let store = FileStore::open(disk.path(), limits()).unwrap();
    let (server, content) = (Server::start(), content(200_000));
    let url = server.page("/a", &content, [Act::Serve]);
    let error = store.ensure(&wanted(&content, [url]), &|_| {}, &AtomicBool::new(false)).unwrap_err();
    let FetchError::DiskFull { folder, needed_bytes, name, .. } = error.root() else {
        panic!("{error}");
    };
    assert!(folder.starts_with(disk.path()), "{}", folder.display());
    assert_eq!((*needed_bytes, name.as_str()), (200_000, "thing-1.0.tar.xz"));
    assert!(error.to_string().contains("200000 more bytes are needed"), "{error}");
    // The error came before a byte was fetched.
    assert_eq!(server.requests().len(), 0);

    // A file that fits is still stored.
    let small = &content[..10_000];
    let url = server.page("/b", small, [Act::Serve]);
    let path = store.ensure(&wanted(small, [url]), &|_| {}, &AtomicBool::new(false)).unwrap();
    assert!(fs::read(path).unwrap() == small);
}

#[test]
fn a_file_that_does_not_fit_leaves_nothing_behind() {
    let Some(disk) = SmallDisk::mount("a_file_that_does_not_fit_leaves_nothing_behind", "64k") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(disk.path(), limits()).unwrap();
    let file = folder.path().join("thing.tar");
    fs::write(&file, b"content").unwrap();
    let (sha256, size_bytes) = store.insert(&file).unwrap();
    assert_eq!(size_bytes, 7);
    assert_eq!(fs::read(store.path(&sha256)).unwrap(), b"content");

    fs::write(&file, content(200_000)).unwrap();
    let error = store.insert(&file).unwrap_err();
    assert!(matches!(error, FetchError::DiskFull { needed_bytes: 200_000, .. }), "{error}");
    // Nothing remains of the failed copy.
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1);
}
