//! The folders of a yard: their permissions, links in them, and their owners.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use support::{Yard, folder, is_root};

/// The id of another user, who has no files.
const ANOTHER: u32 = 0x7720_0000;

const CONFIG: &str = "packages = [\"a\"]\n[debian]\nrelease = \"bookworm\"\narchitecture = \"amd64\"\n\
                      mirror = \"http://192.0.2.1/\"\nkeyring = \"keyring.gpg\"\n";

fn yard(folder: &Path) -> Yard {
    let yard = Yard { folder: folder.join("yard") };
    fs::create_dir(&yard.folder).unwrap();
    fs::write(yard.path("kilnyard.toml"), CONFIG).unwrap();
    yard
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn private_folders_are_closed_whatever_the_umask_and_mode_were() {
    let folder = folder("closed");
    let yard = yard(folder.path());
    for name in ["layers", "state"] {
        fs::create_dir(yard.path(name)).unwrap();
        fs::set_permissions(yard.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = support::program().display();
    let script = format!("umask 0; {program} --yard {} clean", yard.folder.display());
    let ended = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    support::Ended::from(ended).exits(0);
    for name in ["layers", "roots", "state"] {
        assert_eq!(mode(&yard.path(name)), 0o700, "{name}");
    }
    for name in ["index", "distfiles", "logs", "report", "repository"] {
        assert_eq!(mode(&yard.path(name)), 0o755, "{name}");
    }
}

#[test]
fn a_lock_that_links_to_another_file_is_rejected_and_the_file_stays() {
    let folder = folder("lock");
    let yard = yard(folder.path());
    yard.run(&["clean"]).exits(0);
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let lock = yard.path("state/lock");
    fs::remove_file(&lock).unwrap();
    symlink(&victim, &lock).unwrap();
    yard.run(&["clean", "--dry-run"]).exits(3).says(&["state/lock", "is a symbolic link; remove it"]);
    fs::remove_file(&lock).unwrap();
    fs::hard_link(&victim, &lock).unwrap();
    yard.run(&["clean", "--dry-run"]).exits(3).says(&["state/lock", "remove it"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    fs::remove_file(&lock).unwrap();
    yard.run(&["clean", "--dry-run"]).exits(0);
}

#[test]
fn links_in_a_yard_are_not_followed() {
    let folder = folder("links");
    let yard = yard(folder.path());
    yard.run(&["clean"]).exits(0);
    let victim = folder.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "precious").unwrap();
    for link in ["distfiles/ab", "logs/1", "layers/base-old", "roots/failed-a"] {
        symlink(&victim, yard.path(link)).unwrap();
    }
    yard.run(&["clean", "--base", "--runs", "0"])
        .exits(0)
        .says(&["distfiles/ab is neither a file nor a folder"]);
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
    for name in ["distfiles", "index", "layers", "logs", "report", "repository", "roots", "state"] {
        let (path, aside) = (yard.path(name), yard.path("aside"));
        fs::rename(&path, &aside).unwrap();
        symlink(&victim, &path).unwrap();
        let ended = yard.run(&["clean", "--index", "--base"]).exits(3);
        ended.says(&[name, "links are not followed", "mount --bind"]);
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
}

#[test]
fn a_yard_of_another_user_is_rejected_without_a_flag() {
    if !is_root() {
        eprintln!("skipped: only root can give a yard away");
        return;
    }
    let folder = folder("foreign");
    let yard = yard(folder.path());
    chown(&yard.folder, Some(ANOTHER), Some(ANOTHER)).unwrap();
    for arguments in [&["clean", "--dry-run"][..], &["status"], &["build"], &["shell", "a"]] {
        yard.run(arguments).exits(2).says(&["belongs to the user", &ANOTHER.to_string(), "--foreign-yard"]);
    }
    assert_eq!(yard.names(""), ["kilnyard.toml"]);
    yard.run(&["clean", "--dry-run", "--foreign-yard"]).exits(0);
    chown(yard.path("distfiles"), Some(ANOTHER + 1), None).unwrap();
    yard.run(&["clean", "--foreign-yard"]).exits(3).says(&["distfiles: it belongs to the user"]);
    assert_eq!(fs::metadata(yard.path("distfiles")).unwrap().uid(), ANOTHER + 1);
}

/// The first id of root's own roots if /etc/subuid gives root no ids, and the number of ids in a range
/// (docs/security.md).
const FIRST_ID: u32 = 0x7800_0000;
const RANGE_IDS: u32 = 0x1_0000;

#[test]
fn roots_of_different_yards_have_different_ids() {
    let is_given = fs::read_to_string("/etc/subuid")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("root:")));
    if !is_root() || is_given {
        // Other users have as many ranges as their administrator gave them: most have one.
        return;
    }
    let folder = folder("ranges");
    let mut ranges: Vec<u32> = (0..4)
        .map(|number| {
            let own = folder.path().join(number.to_string());
            fs::create_dir(&own).unwrap();
            let yard = yard(&own);
            yard.run(&["clean"]).exits(0);
            let range: u32 = yard.read("state/range").trim().parse().unwrap();
            for name in ["layers", "roots"] {
                let uid = fs::metadata(yard.path(name)).unwrap().uid();
                assert_eq!(uid, FIRST_ID + range * RANGE_IDS, "{name}");
            }
            range
        })
        .collect();
    ranges.dedup();
    assert!(ranges.len() > 1, "{ranges:?}");
}

#[test]
fn a_yard_with_layers_keeps_their_ids() {
    let folder = folder("range-before");
    let yard = yard(folder.path());
    fs::create_dir(yard.path("layers")).unwrap();
    for text in [None, Some("99999999\n"), Some("-1"), Some("")] {
        if let Some(text) = text {
            fs::write(yard.path("state/range"), text).unwrap();
        }
        yard.run(&["clean"]).exits(0);
        if is_root() {
            let uid = fs::metadata(yard.path("layers")).unwrap().uid();
            assert!(uid == FIRST_ID || fs::read_to_string("/etc/subuid").unwrap().contains("root:"), "{uid}");
        }
        assert_eq!(yard.path("state/range").exists(), text.is_some());
    }
}
