//! Traps that sources, packages and other users of the machine set for later builds.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::archive::hex_of;
use crate::support::{Ended, Yard};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("deep_folders_do_not_stop_later_builds", deep_folders),
    ("folders_that_cannot_be_removed_are_set_aside_and_reported", folders_that_cannot_be_removed),
    ("input_names_cannot_reach_files_of_the_store", input_names),
    ("other_users_cannot_run_files_of_packages", other_users_cannot_run),
    ("a_damaged_base_is_reported_and_remade", a_damaged_base),
    ("a_file_in_two_packages_is_reported_with_both", a_file_in_two_packages),
];

/// Makes a folder deeper than the default limit of open descriptors.
const DIG: &str = "perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" }'";

fn deep_folders(shared: &Shared) {
    let fixtures = [
        slow("deep-build", DIG),
        // The path of a file in a package has at most about 4096 bytes.
        Fixture {
            binary: "cd debian/tmp/usr/share/deep-files && perl -e 'for (1..1500) { mkdir \"d\"; chdir \"d\" }'",
            ..good("deep-files", "")
        },
        good("on-deep-files", "deep-files"),
        Fixture {
            binary: "printf '#!/bin/sh\\nmkdir /var/lib/trap\\ncd /var/lib/trap\\nperl -e \"for (1..3000) \
                     { mkdir q(d); chdir q(d) }\"\\n' > debian/tmp/DEBIAN/postinst; chmod 755 debian/tmp/DEBIAN/postinst",
            ..good("deep-postinst", "")
        },
        slow("deep-failed", "perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" }'; false"),
    ];
    let yard = shared.yard("deep", &fixtures);
    yard.build().exits(1);
    let names = ["deep-build", "deep-files", "on-deep-files", "deep-postinst", "deep-failed"];
    assert_eq!(yard.states(&names), ["built", "built", "built", "built", "failed"]);
    assert!(yard.is_clean(), "{:?}", yard.names("roots"));
    // The failed root is kept until there is a later one.
    yard.run(&["retry", "deep-failed"]).exits(0);
    yard.build().exits(1);
    assert!(yard.is_clean(), "{:?}", yard.names("roots"));
    yard.run(&["clean", "--base"]).exits(0);
    assert!(yard.names("roots").is_empty() && yard.names("layers").is_empty());
}

fn immutable(path: &Path, value: &str) -> bool {
    let changed: Option<Ended> = Command::new("chattr").arg(value).arg(path).output().ok().map(Ended::from);
    changed.is_some_and(|ended| ended.code == Some(0))
}

fn folders_that_cannot_be_removed(shared: &Shared) {
    let yard: Yard = shared.yard("aside", &[good("one", "")]);
    let layer = "layers/dependencies/sets/half.0.part";
    for place in ["roots/77", "roots/left-over", layer] {
        fs::create_dir_all(yard.path(place)).unwrap();
    }
    let pinned = [yard.path("roots/77/pinned"), yard.path(&format!("{layer}/pinned"))];
    for file in &pinned {
        fs::write(file, "").unwrap();
    }
    if !pinned.iter().all(|file| immutable(file, "+i")) {
        eprintln!("skipped: nothing can be made immutable here");
        return;
    }
    let built = yard.build();
    let again = yard.build();
    let stuck = yard.run(&["clean"]);
    for place in ["roots/left-over/77.1/pinned", "roots/left-over/half.0.part.1/pinned"] {
        assert!(immutable(&yard.path(place), "-i"), "{place} does not exist");
    }
    built.exits(0).says(&["roots/left-over/77.1 could not be removed and was set aside", "not permitted"]);
    again
        .exits(0)
        .says(&["roots/left-over has 2 folders that could not be removed (77.1, half.0.part.1); try: "]);
    stuck.exits(3).says(&["left-over/77.1", "not permitted"]);
    yard.run(&["clean"]).exits(0);
    assert!(yard.names("roots/left-over").is_empty());
}

/// The files of the store whose content does not match the hash in their names.
fn damaged(yard: &Yard) -> Vec<String> {
    let folders = yard.names("distfiles").into_iter().map(|folder| format!("distfiles/{folder}"));
    let files = folders.flat_map(|folder| {
        let names = yard.names(&folder).into_iter();
        names.map(move |name| (folder.clone(), name)).collect::<Vec<_>>()
    });
    let is_damaged = |(folder, name): &(String, String)| {
        hex_of(&fs::read(yard.path(&format!("{folder}/{name}"))).unwrap()) != *name
    };
    files.filter(is_damaged).map(|(_, name)| name).collect()
}

/// Adds a file to a source's list.
fn list(dsc: &Path, name: &str, content: &[u8]) {
    let text = fs::read_to_string(dsc).unwrap();
    let line = format!("Checksums-Sha256:\n {} {} {name}", hex_of(content), content.len());
    fs::write(dsc, text.replace("Checksums-Sha256:", &line)).unwrap();
}

fn input_names(shared: &Shared) {
    let yard = shared.yard("names", &[good("victim", ""), good("on-victim", "victim")]);
    yard.build().exits(0);
    assert!(damaged(&yard).is_empty());
    // This source lists the victim's package under the names of files that Kilnyard writes for apt and dpkg.
    let published = yard.path("repository/pool/main/v/victim/victim_1.0+bk1_amd64.deb");
    let content = fs::read(&published).unwrap();
    let dsc = good("attacker", "victim").write(&yard.folder);
    for name in ["Packages", "apt.conf", "sources.list", "layers.status"] {
        fs::write(yard.path(&format!("sources/{name}")), &content).unwrap();
        list(&yard.path(&dsc), name, &content);
    }
    let config = yard.read("kilnyard.toml").replace("packages = [", &format!("packages = [\n \"{dsc}\","));
    for layers in ["20G", "0"] {
        let config = config.replace("# layers = \"20G\"", &format!("layers = \"{layers}\""));
        fs::write(yard.path("kilnyard.toml"), config).unwrap();
        let _ = yard.run(&["retry", "attacker"]);
        yard.build();
        assert_eq!(damaged(&yard), [""; 0], "layers = {layers}");
        assert_eq!(fs::read(&published).unwrap(), content);
    }
    // A truncated file of the store is fetched again.
    let source = fs::read(yard.path("sources/victim_1.0.tar.xz")).unwrap();
    let hash = hex_of(&source);
    let stored = yard.path(&format!("distfiles/{}/{hash}", &hash[..2]));
    fs::OpenOptions::new().write(true).truncate(true).open(&stored).unwrap();
    let last = yard.run(&["build", "--no-scan", "--force", "victim"]);
    assert!(damaged(&yard).is_empty(), "{last:?}");
    assert_eq!(fs::read(&stored).unwrap(), source);
}

fn other_users_cannot_run(shared: &Shared) {
    let set_id = Fixture {
        binary: "cp /bin/touch debian/tmp/usr/share/set-id/touch && chmod 4755 debian/tmp/usr/share/set-id/touch",
        ..good("set-id", "")
    };
    let broken = Fixture { needs: "set-id", build: "false", ..good("broken", "") };
    let yard = shared.yard("set-ids", &[set_id, broken]);
    yard.build().exits(1);
    let mut find = Command::new("find");
    find.arg(yard.path("layers")).arg(yard.path("roots")).args(["-perm", "-4000", "-name", "touch"]);
    let found = Ended::from(find.output().unwrap()).exits(0).stdout;
    let file = found.lines().next().expect("a set-user-ID file is kept").to_owned();
    let as_other_user = |arguments: &[&str]| -> Ended {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(arguments);
        command.output().unwrap().into()
    };
    as_other_user(&["true"]).exits(0);
    as_other_user(&["sh", "-c", &format!("exec {file} --version")]).exits(126).says(&["Permission denied"]);
    for folder in ["layers", "roots"] {
        let path = yard.path(folder).display().to_string();
        as_other_user(&["ls", &path]).exits(2).says(&["Permission denied"]);
    }
}

fn a_damaged_base(shared: &Shared) {
    let yard = shared.yard("damaged", &[good("one", ""), good("two", "one")]);
    let layers = yard.names("layers");
    let base = layers.iter().find(|name| yard.path(&format!("layers/{name}/usr")).is_dir()).unwrap();
    yard.run(&["doctor"]).exits(0).says(&["layers: 1 layer intact"]);
    fs::remove_dir_all(yard.path(&format!("layers/{base}/usr/bin"))).unwrap();
    yard.run(&["doctor"])
        .exits(3)
        .says(&[&format!("layers/{base} is damaged"), " build, which makes it again"]);
    fs::remove_file(yard.path(&format!("layers/{base}.damaged"))).unwrap();
    // The first failure detects the damage, and the same run remakes the base and builds the failed package again.
    yard.build().exits(0);
    assert_eq!(yard.states(&["one", "two"]), ["built", "built"]);
    yard.run(&["doctor"]).exits(0).says(&["layers: 1 layer intact"]);
}

/// A file that two packages have, with different contents.
const SHARED_FILE: &str = "/usr/share/of-two/data";

fn a_file_in_two_packages(shared: &Shared) {
    let with_file = |name| Fixture {
        binary: "mkdir -p debian/tmp/usr/share/of-two && pwd > debian/tmp/usr/share/of-two/data",
        ..good(name, "")
    };
    // `needs-both` needs both for its build; the output of `tested` has the file too, and depends on `left`.
    let depends = "\nsed -i '/^Package: tested$$/a Depends: left' debian/control";
    let tested = with_file("tested");
    let tested = Fixture { needs: "left", binary: format!("{}{depends}", tested.binary).leak(), ..tested };
    let fixtures = [with_file("left"), with_file("right"), good("needs-both", "left, right"), tested];
    let yard = shared.yard("of-two", &fixtures);
    let overwriting = format!("trying to overwrite '{SHARED_FILE}', which is also in package ");
    // One line names the file, the package that is unpacked, and the package that already has the file.
    let is_named = |text: &str, packages: [&str; 2]| {
        let [one, other] = packages.map(|name| format!("{name}_1.0+bk1_amd64.deb"));
        let [has_one, has_other] = packages.map(|name| format!("{overwriting}{name} "));
        text.lines().any(|line| {
            line.contains(&has_one) && line.contains(&other)
                || line.contains(&has_other) && line.contains(&one)
        })
    };
    let config = yard.read("kilnyard.toml");
    for layers in ["20G", "0"] {
        let config = config.replace("# layers = \"20G\"", &format!("layers = \"{layers}\""));
        fs::write(yard.path("kilnyard.toml"), config).unwrap();
        for package in ["needs-both", "tested"] {
            let _ = yard.run(&["retry", package]);
        }
        let built = yard.build().exits(1);
        let states = yard.states(&["left", "right", "needs-both", "tested"]);
        assert_eq!(states[2..], ["failed", "failed"], "layers = {layers}: {built:?}");
        let status = yard.run(&["status"]).exits(0).stdout;
        for (package, stage, packages) in
            [("needs-both", "depends", ["left", "right"]), ("tested", "test", ["left", "tested"])]
        {
            let why = yard.json(&["why", package, "--json"]);
            assert_eq!(why["build"]["failure"]["stage"], stage, "layers = {layers}: {why}");
            let message = why["build"]["failure"]["message"].as_str().unwrap();
            let explained = yard.run(&["why", package]).exits(0).stdout;
            for text in [message, &explained, &status, &built.stderr] {
                assert!(is_named(text, packages), "layers = {layers}: {package}: {text}");
            }
            yard.run(&["log", package]).exits(0).says(&[&overwriting]);
        }
        assert!(yard.is_clean());
    }
}
