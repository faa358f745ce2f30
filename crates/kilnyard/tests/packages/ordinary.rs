//! Packages built by a user who has a single id.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good};
use crate::support::Ended;
use crate::support::ordinary::User;
use std::fs;
use std::process::Command;

pub const CASES: &[Trial] = &[("a_user_with_one_id_builds_the_same_as_root", a_user_with_one_id)];

/// Above all ids in use on this machine.
const ID: u32 = 0x7710_0000;

/// Changes owners of files, and checks them in programs that start later.
const OWNERS: &str = "install -o 7 -g 8 -m 4750 /dev/null debian/tmp/usr/share/owners/given\n\
                      chown -h 0:42 debian/tmp/usr/share/owners/data\n\
                      test \"`stat -c %u:%g:%a debian/tmp/usr/share/owners/given`\" = 7:8:4750\n\
                      test `id -u` = 0";

/// Packs a script that changes an owner when the package is installed.
const INSTALLED: &str = "printf '#!/bin/sh -e\\nchown 33:33 /usr/share/script/data\\n\
                         test `stat -c %%u /usr/share/script/data` = 33\\n' > debian/tmp/DEBIAN/postinst\n\
                         chmod 755 debian/tmp/DEBIAN/postinst";

fn a_user_with_one_id(shared: &Shared) {
    let as_builder = "test `id -u`:`id -g` = 1000:1000; touch /tmp/x /var/tmp/x /dev/shm/x";
    let fixtures = [
        Fixture { has_owners: true, binary: OWNERS, ..good("owners", "") },
        Fixture { binary: INSTALLED, ..good("script", "owners") },
        Fixture { build: as_builder, ..good("after", "script") },
        Fixture { build: "false", ..good("broken", "") },
        Fixture { build: "echo x >> /usr/bin/kilnyard-was-here", ..good("outside", "") },
    ];
    let yard = shared.yard("alone", &fixtures);
    // The existing layers belong to other ids.
    fs::remove_dir_all(yard.path("layers")).unwrap();
    fs::create_dir(yard.path("layers")).unwrap();
    let user = User::alone(&shared.path("user"), ID);
    user.own(&yard, "nothing");
    user.run(&yard, &["doctor"]).exits(0).says(&["with one id"]);
    user.run(&yard, &["build", "--no-scan"]).exits(1).says(&["3 built, 2 failed"]);
    let states = ["owners", "script", "after", "broken", "outside"].map(|name| {
        let why = user.run(&yard, &["why", name, "--json"]).json();
        why["state"].as_str().unwrap_or("?").to_owned()
    });
    assert_eq!(states, ["built", "built", "built", "failed", "failed"]);
    // A user with one id has no virtual machines.
    let config = yard.read("kilnyard.toml");
    fs::write(yard.path("kilnyard.toml"), config.clone() + "\n[package.\"br*\"]\nmachine = \"vm\"\n")
        .unwrap();
    user.run(&yard, &["build", "--no-scan", "--force", "broken"]).exits(1).says(&[
        "warning: not to be built in a virtual machine here: broken: virtual machines need newuidmap",
        "apt-get install uidmap",
    ]);
    fs::write(yard.path("kilnyard.toml"), config).unwrap();
    user.run(&yard, &["build", "--no-scan", "--force", "broken"]).exits(1).lacks(&["warning"]);
    user.run(&yard, &["why", "outside"]).exits(0).says(&["Read-only file system"]);
    let mut contents = Command::new("dpkg-deb");
    contents.arg("--fsys-tarfile").arg(yard.path("repository/pool/main/o/owners/owners_1.0+bk1_amd64.deb"));
    let archive = contents.output().unwrap().stdout;
    fs::write(shared.path("owners.tar"), archive).unwrap();
    let mut list = Command::new("tar");
    list.args(["--numeric-owner", "-tvf"]).arg(shared.path("owners.tar"));
    let list = Ended::from(list.output().unwrap()).exits(0);
    let owner_of = |file: &str| {
        let line =
            list.stdout.lines().find(|line| line.ends_with(file)).unwrap_or_else(|| panic!("{list:?}"));
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(owner_of("/given"), "-rwsr-x--- 7/8");
    assert_eq!(owner_of("/data"), "-rw-r--r-- 0/42");
    assert_eq!(owner_of("share/owners/"), "drwxr-xr-x 0/0");
    // A shell in the kept root of the failed build gets its own fakeroot session again.
    let gives = ["shell", "--root", "broken", "--", "sh", "-c", "touch /x && chown 5 /x && stat -c %u /x"];
    user.run(&yard, &gives).exits(0).says(&["5\n"]);
    let as_builder = "id -u; touch /build/x; touch /usr/x 2>&1";
    let ended = user.run(&yard, &["shell", "broken", "--", "sh", "-c", as_builder]).exits(1);
    ended.says(&["1000\n", "Read-only file system"]);
    user.run(&yard, &["root", "plan", "after"]).exits(0).says(&["seal / except /build, /tmp, /var/tmp"]);
    assert!(yard.is_clean());
    user.run(&yard, &["clean", "--base"]).exits(0);
    assert!(
        yard.names("layers")
            .iter()
            .all(|name| !yard.path("layers").join(name).join("usr").is_dir() && name != "archives"),
        "{:?}",
        yard.names("layers")
    );
}
