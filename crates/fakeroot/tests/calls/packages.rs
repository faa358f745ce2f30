//! A package built by dpkg-buildpackage in a session, compared with one that real root built.

use crate::system::{Folder, is_root, ours};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const CONTROL: &str = "Source: owners\nSection: misc\nPriority: optional\nMaintainer: Test <test@localhost>\n\
    Rules-Requires-Root: binary-targets\nStandards-Version: 4.6.2\n\n\
    Package: owners\nArchitecture: any\nDescription: files of several owners\n";

const CHANGELOG: &str = "owners (1.0) unstable; urgency=medium\n\n  * Only a test.\n\n \
    -- Test <test@localhost>  Wed, 01 Nov 2023 12:00:00 +0000\n";

/// Gives files owners, modes and links, with the tools that packages use.
const RULES: &str = r"#!/usr/bin/make -f
T = debian/owners
clean:
	rm -rf $(T) debian/files
build build-arch build-indep:
binary: binary-arch
binary-indep:
binary-arch:
	install -d -o root -g root $(T)/DEBIAN $(T)/usr/bin $(T)/var/games $(T)/usr/share/owners
	install -m 2755 -o root -g games debian/rules $(T)/usr/bin/score
	install -m 4755 debian/rules $(T)/usr/bin/power
	install -d -m 2775 -o root -g staff $(T)/var/games/high
	install -m 640 -o man -g adm debian/control $(T)/usr/share/owners/secret
	cp -a $(T)/usr/share/owners/secret $(T)/usr/share/owners/copy
	tar cf - -C $(T)/usr/share owners | tar xf - -C $(T)/var
	ln -s score $(T)/usr/bin/link
	chown -h games:games $(T)/usr/bin/link
	ln $(T)/usr/bin/power $(T)/usr/bin/same
	touch $(T)/usr/share/owners/plain; chmod 000 $(T)/usr/share/owners/plain
	find $(T) -exec touch -h -d @1698840000 {} +
	dpkg-gencontrol -powners -P$(T)
	chmod 644 $(T)/DEBIAN/control
	touch -d @1698840000 $(T)/DEBIAN/control $(T)/DEBIAN $(T)
	dpkg-deb --build $(T) ..
";

/// The expected content of the package, as `tar tv` lists it.
const LISTING: &str = "\
drwxr-xr-x 0/0 ./
drwxr-xr-x 0/0 ./usr/
drwxr-xr-x 0/0 ./usr/bin/
lrwxrwxrwx 5/60 ./usr/bin/link
-rwsr-xr-x 0/0 ./usr/bin/power
hrwsr-xr-x 0/0 ./usr/bin/same
-rwxr-sr-x 0/60 ./usr/bin/score
drwxr-xr-x 0/0 ./usr/share/
drwxr-xr-x 0/0 ./usr/share/owners/
-rw-r----- 6/4 ./usr/share/owners/copy
---------- 0/0 ./usr/share/owners/plain
-rw-r----- 6/4 ./usr/share/owners/secret
drwxr-xr-x 0/0 ./var/
drwxr-xr-x 0/0 ./var/games/
drwxrwsr-x 0/50 ./var/games/high/
drwxr-xr-x 0/0 ./var/owners/
-rw-r----- 6/4 ./var/owners/copy
-rw-r----- 6/4 ./var/owners/secret
";

fn write_source(folder: &Folder) {
    let debian = folder.path().join("source/debian");
    std::fs::create_dir_all(&debian).unwrap();
    for (name, text) in [("control", CONTROL), ("changelog", CHANGELOG), ("rules", RULES)] {
        std::fs::write(debian.join(name), text).unwrap();
    }
    std::fs::set_permissions(debian.join("rules"), PermissionsExt::from_mode(0o755)).unwrap();
}

fn give_to_user(path: &Path) {
    if is_root() {
        let user = Some(crate::system::USER);
        chown(path, user, user).unwrap();
        for entry in path.read_dir().into_iter().flatten() {
            give_to_user(&entry.unwrap().path());
        }
    }
}

/// Builds the package; returns the archive of its files.
fn build(folder: &Folder, mut command: Command) -> Vec<u8> {
    command.current_dir(folder.path().join("source")).env("SOURCE_DATE_EPOCH", "1698840000");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    let packages = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let package = packages.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    let output = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package.unwrap()).output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn listing(archive: &[u8]) -> String {
    let mut tar = Command::new("tar");
    tar.args(["tvf", "-", "--numeric-owner"]).env("LC_ALL", "C");
    let mut tar =
        tar.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    let output = tar.wait_with_output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {} {}\n", words[0], words[1], words[5])
        })
        .collect();
    lines.sort_by(|left, right| left.split(' ').nth(2).cmp(&right.split(' ').nth(2)));
    lines.concat()
}

pub fn a_package_equals_one_built_by_root() {
    let words = |more: &[&str]| -> Vec<OsString> { more.iter().map(OsString::from).collect() };
    if !Command::new("dpkg-buildpackage")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a_package_equals_one_built_by_root: dpkg-dev is not installed"
        );
        return;
    }
    let folder = Folder::new();
    write_source(&folder);
    let wrapper = folder.path().join("gain-root");
    let launcher: Vec<String> = ours().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {} -- \"$@\"\n", launcher.join(" "))).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
    give_to_user(&folder.path().join("source"));
    let gain_root = format!("-r{}", wrapper.display());
    let ours = folder.command(&words(&["dpkg-buildpackage", "-b", "-us", "-uc", "-d", &gain_root]));
    let ours = build(&folder, ours);
    assert_eq!(listing(&ours), LISTING);
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    write_source(&folder);
    let mut command = Command::new("dpkg-buildpackage");
    command.args(["-b", "-us", "-uc", "-d"]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    let roots = build(&folder, command);
    assert!(ours == roots, "{}\n{}", listing(&ours), listing(&roots));
}
