use super::pack::pack;
use super::unpack_file;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tar::{Builder, EntryType, Header};

fn packed(folder: &Path, made_since: Option<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(folder, made_since, &mut bytes).unwrap();
    bytes
}

fn unpacked(bytes: &[u8]) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    fs::write(&archive, bytes).unwrap();
    fs::create_dir(folder.path().join("target")).unwrap();
    // SAFETY: the call has no preconditions and cannot fail.
    let has_one_id = unsafe { libc::geteuid() } != 0;
    unpack_file(&archive, &folder.path().join("target"), has_one_id).map(|()| folder)
}

/// A tree with every kind of file.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("usr/bin")).unwrap();
    fs::write(path("usr/bin/b"), "text").unwrap();
    fs::set_permissions(path("usr/bin/b"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(path("usr/bin/b"), path("usr/bin/a")).unwrap();
    fs::write(path("usr/bin-x"), vec![7; 70_000]).unwrap();
    symlink("/nowhere", path("usr/link")).unwrap();
    symlink("b", path("usr/bin/c")).unwrap();
    fs::create_dir(path("closed")).unwrap();
    fs::write(path("closed/in"), "").unwrap();
    fs::create_dir(path(&"long-".repeat(40))).unwrap();
    fs::write(path(&"long-".repeat(40)).join("name-".repeat(40)), "deep").unwrap();
    symlink("t".repeat(300), path("long-target")).unwrap();
    let fifo = path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::lsetxattr(path(name), attribute, value, rustix::fs::XattrFlags::empty())
    };
    if set("usr/bin/b", "user.note", b"a\nb\0c").is_ok() {
        set("usr", "user.overlay.opaque", b"y").unwrap();
        set("usr", "user.overlay.origin", b"x").unwrap();
    }
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_tree_is_the_same_bytes_wherever_it_lies() {
    let tree = tree();
    let old = tree.path().join("usr/bin-x");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_000_500);
    fs::File::options().write(true).open(&old).unwrap().set_modified(time).unwrap();
    let bytes = packed(tree.path(), Some(1_000_000_001));
    // Make the link again, at a later time.
    fs::remove_file(tree.path().join("usr/link")).unwrap();
    symlink("/nowhere", tree.path().join("usr/link")).unwrap();
    assert_eq!(packed(tree.path(), Some(1_000_000_001)), bytes);
    let again = unpacked(&bytes).unwrap();
    let target = again.path().join("target");
    assert_eq!(packed(&target, None), bytes, "the unpacked tree differs");
    let facts = |name: &str| fs::symlink_metadata(target.join(name)).unwrap();
    assert_eq!(facts("usr/bin/a").ino(), facts("usr/bin/b").ino());
    assert_eq!((facts("usr/bin/b").mode() & 0o7777, facts("usr/bin/b").mtime()), (0o4755, 1_000_000_000));
    assert_eq!((facts("closed").mode() & 0o7777, facts("closed").mtime()), (0o500, 1_000_000_000));
    assert_eq!(fs::read_link(target.join("long-target")).unwrap().to_str(), Some(&*"t".repeat(300)));
    assert!(!target.join("socket").exists());
    let attribute = |name: &str, attribute: &str| {
        let mut value = [0; 16];
        let length = rustix::fs::lgetxattr(target.join(name), attribute, &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    if let Some(note) = attribute("usr/bin/b", "user.note") {
        assert_eq!(note, b"a\nb\0c");
        assert_eq!(attribute("usr", "user.overlay.opaque").as_deref(), Some(&b"y"[..]));
        assert_eq!(attribute("usr", "user.overlay.origin"), None);
    }
}

#[test]
fn a_recipe_tree_packs_the_same_for_every_owner() {
    let packed = |user: Option<u32>, mode: u32| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/one/CVS")).unwrap();
        fs::create_dir(path(".git")).unwrap();
        fs::write(path(".git/HEAD"), format!("{mode}")).unwrap();
        fs::write(path("a/one/Makefile"), "all:\n").unwrap();
        fs::write(path("a/one/run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path("a/one/Makefile"), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(path("a/one/run.sh"), fs::Permissions::from_mode(mode | 0o100)).unwrap();
        if let Some(user) = user {
            std::os::unix::fs::lchown(path("a/one/Makefile"), Some(user), Some(user)).unwrap();
        }
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for name in ["a/one/Makefile", "a/one/run.sh", "a/one", "a", ""] {
            fs::File::open(path(name)).unwrap().set_modified(time).unwrap();
        }
        let mut bytes = Vec::new();
        super::pack_shared(folder.path(), &mut bytes).unwrap();
        bytes
    };
    // SAFETY: the call has no preconditions and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let bytes = packed(None, 0o600);
    assert_eq!(packed(is_root.then_some(1234), 0o644), bytes);
    let again = unpacked(&bytes).unwrap();
    let names = |folder: &Path| {
        let entries = fs::read_dir(again.path().join("target").join(folder)).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        (names(Path::new("")), names(Path::new("a/one"))),
        (vec!["a".into()], vec!["Makefile".into(), "run.sh".into()])
    );
    let mode = fs::metadata(again.path().join("target/a/one/run.sh")).unwrap().mode() & 0o7777;
    assert!(mode & 0o444 == 0o444 && mode & 0o100 != 0, "{mode:o}");
}

#[test]
fn a_compressed_archive_unpacks_to_the_same_tree() {
    let tree = tree();
    let bytes = packed(tree.path(), Some(5));
    let compressed = zstd::encode_all(&bytes[..], 1).unwrap();
    let again = unpacked(&compressed).unwrap();
    assert_eq!(packed(&again.path().join("target"), None), bytes);
    // Half an archive is rejected.
    assert!(unpacked(&compressed[..compressed.len() / 2]).is_err());
    assert!(unpacked(&bytes[..bytes.len() / 2]).is_err());
}

/// An archive with the entries that a function writes.
fn archive(write: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    write(&mut builder);
    builder.into_inner().unwrap()
}

fn header(kind: EntryType, size: u64, name: &str) -> Header {
    let mut header = Header::new_gnu();
    // Written as an attacker would: the library refuses such names.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(size);
    // SAFETY: these calls have no preconditions and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    header.set_uid(user.into());
    header.set_gid(group.into());
    header.set_mtime(0);
    header.set_cksum();
    header
}

fn link(kind: EntryType, name: &str, target: &str) -> Header {
    let mut header = header(kind, 0, name);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    header
}

#[test]
fn an_archive_writes_nothing_elsewhere() {
    let outside = tempfile::tempdir().unwrap();
    let shown = outside.path().to_str().unwrap();
    let file = |builder: &mut Builder<Vec<u8>>, name: &str| {
        builder.append(&header(EntryType::Regular, 3, name), &b"bad"[..]).unwrap();
    };
    let attacks: Vec<Vec<u8>> = vec![
        archive(|builder| file(builder, "../x")),
        archive(|builder| file(builder, "a/../../x")),
        archive(|builder| file(builder, &format!("{shown}/x"))),
        archive(|builder| {
            builder.append(&link(EntryType::Symlink, "out", shown), &b""[..]).unwrap();
            file(builder, "out/x");
        }),
        archive(|builder| {
            builder.append(&link(EntryType::Symlink, "out", &format!("{shown}/x")), &b""[..]).unwrap();
            file(builder, "out");
        }),
        archive(|builder| {
            builder.append(&link(EntryType::Symlink, "out", shown), &b""[..]).unwrap();
            builder.append(&header(EntryType::Directory, 0, "out"), &b""[..]).unwrap();
            file(builder, "out/x");
        }),
        archive(|builder| {
            builder.append(&link(EntryType::Symlink, "out", shown), &b""[..]).unwrap();
            builder.append(&link(EntryType::Link, "in", "out/secret"), &b""[..]).unwrap();
        }),
        archive(|builder| {
            builder.append(&link(EntryType::Link, "in", &format!("{shown}/secret")), &b""[..]).unwrap();
        }),
        archive(|builder| {
            let mut header = header(EntryType::Char, 0, "mem");
            header.set_device_major(1).unwrap();
            header.set_device_minor(1).unwrap();
            header.set_cksum();
            builder.append(&header, &b""[..]).unwrap();
        }),
        archive(|builder| {
            let mut header = header(EntryType::Block, 0, "disk");
            header.set_cksum();
            builder.append(&header, &b""[..]).unwrap();
        }),
        archive(|builder| {
            builder
                .append_pax_extensions([("LIBARCHIVE.xattr.trusted.overlay.redirect", &b"Lw"[..])])
                .unwrap();
            file(builder, "a");
        }),
        archive(|builder| {
            file(builder, "twice");
            file(builder, "twice");
        }),
        archive(|builder| {
            let mut header = header(EntryType::Regular, 0, "nobodys");
            header.set_uid(u64::from(u32::MAX));
            header.set_cksum();
            builder.append(&header, &b""[..]).unwrap();
        }),
    ];
    fs::write(outside.path().join("secret"), "secret").unwrap();
    for (number, attack) in attacks.iter().enumerate() {
        assert!(unpacked(attack).is_err(), "attack {number} passed");
        let left: Vec<_> =
            fs::read_dir(outside.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["secret"], "attack {number}");
        assert_eq!(
            fs::symlink_metadata(outside.path().join("secret")).unwrap().nlink(),
            1,
            "attack {number}"
        );
    }
}
