//! Dependencies as layers, which equal what rpm itself installs.

use crate::builds::{Yard, base, pool, real};
use crate::support::trials::{Case, case};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A package without architecture, of these sections.
fn plain(name: &str, version: &str, sections: &str) -> String {
    format!(
        "Name: {name}\nVersion: {version}\nRelease: 1%{{?dist}}\nSummary: A part\nLicense: MIT\nBuildArch: noarch\n\
         %description\nOne.\n%prep\n%build\n{sections}"
    )
}

/// A package with one file, and more sections.
fn with_file(name: &str, path: &str, more: &str) -> String {
    plain(
        name,
        "1",
        &format!(
            "%install\nmkdir -p %{{buildroot}}{folder}; echo x > %{{buildroot}}{path}\n{more}%files\n{path}\n",
            folder = Path::new(path).parent().unwrap().display()
        ),
    )
}

/// What a root has, in the package that is built in it: files with their content, what rpm has in its database, and what it finds
/// to be wrong. Times, the database itself and what the build makes are left out.
fn looks(name: &str, needs: &str) -> String {
    plain(
        name,
        "1",
        &format!(
            "%install\nmkdir -p %{{buildroot}}/usr/share/looks\n(\n\
             find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /kilnyard -o -path /build -o -path /tmp -o -path /run \\
               -o -name 'rpmdb.sqlite*' -o -name .rpm.lock -o -name 'rpm-tmp.*' \\) -prune -o -printf '%%p %%y %%m %%U:%%G %%l ' \\( -type f -printf '%%n\\n' -o -printf '\\n' \\) || true\n\
             find /usr /etc /var -xdev -type f ! -name 'rpmdb.sqlite*' ! -name .rpm.lock ! -name 'rpm-tmp.*' -readable -print0 | xargs -0 sha256sum || true\n\
             rpm -qa --qf 'package %%{{NAME}} %%{{VERSION}} [%%{{FILENAMES}} %%{{FILESTATES}} ]\\n'\n\
             rpm -Va || true\n) | sort > %{{buildroot}}/usr/share/looks/{name}\n%files\n/usr/share/looks/{name}\n"
        ),
    )
    .replace("%description", &format!("BuildRequires: {needs}\n%description"))
}

fn listing(yard: &Yard, package: &str) -> BTreeSet<String> {
    let file = pool(&yard.repository()).join(format!("{package}-1-1.kt1.bk1.noarch.rpm"));
    let read = Command::new("sh")
        .args(["-c", "rpm2cpio \"$1\" | cpio -i --quiet --to-stdout \"./usr/share/looks/$2\"", "sh"])
        .arg(&file)
        .arg(package)
        .output()
        .unwrap();
    String::from_utf8(read.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn layers_equal_rpm() {
    let library = plain(
        "library",
        "1",
        "%install\nmkdir -p %{buildroot}/usr/lib; cp -L /usr/lib/x86_64-linux-gnu/libz.so.1 %{buildroot}/usr/lib/libown.so.1\n\
         %post -p /sbin/ldconfig\n%files\n/usr/lib/libown.so.1\n",
    );
    let kinds = plain(
        "kinds",
        "1",
        "%install\ncd %{buildroot}; mkdir -p etc usr/share/kinds/empty var/lib/kinds lib/kinds\n\
         echo x > etc/kinds.conf; echo x > usr/share/kinds/one; ln usr/share/kinds/one usr/share/kinds/two\n\
         ln -s ../one usr/share/kinds/link; touch var/lib/kinds/ghost; echo x > 'usr/share/kinds/a name'; echo x > lib/kinds/moved\n\
         %files\n%config(noreplace) /etc/kinds.conf\n%dir %attr(1777,root,root) /usr/share/kinds\n%dir /usr/share/kinds/empty\n\
         %attr(4711,root,root) /usr/share/kinds/one\n%attr(4711,root,root) /usr/share/kinds/two\n/usr/share/kinds/link\n\
         \"/usr/share/kinds/a name\"\n%ghost /var/lib/kinds/ghost\n/lib/kinds\n",
    );
    let first = [
        ("library", library),
        ("kinds", kinds),
        // A folder of another package, and one of the system, keep their permissions.
        ("within", with_file("within", "/usr/share/kinds/within", "")),
        ("account", with_file("account", "/usr/share/account", "%pre\ngroupadd -r account\n")),
        (
            "fires",
            with_file(
                "fires",
                "/usr/share/fires",
                "%transfiletriggerin -- /usr/share/seen\nsort > /usr/share/fired\n",
            ),
        ),
        ("seen", with_file("seen", "/usr/share/seen/1", "")),
        ("both", with_file("both", "/usr/share/both", "")),
        ("again", with_file("again", "/usr/share/both", "")),
        ("patch", with_file("patch", "/usr/bin/patch", "").replace("Version: 1", "Version: 99")),
    ];
    let second = [("late", with_file("late", "/usr/share/seen/2", ""))];
    let of_repository = "bison, flex, automake, gettext, /usr/bin/libtoolize";
    let names: Vec<&str> = first.iter().map(|(name, _)| *name).collect();
    let needs = format!("{of_repository}, patch >= 99, {}", names.join(", "));
    let all = |name: &str| {
        // Links to the files of a base are counted.
        let yard = Yard::without_base(name);
        for (name, spec) in first.iter().chain(&second) {
            yard.write(name, spec);
        }
        yard.write("looks", &looks("looks", &needs));
        yard.write("more", &looks("more", &format!("{needs}, late")));
        yard
    };
    let by_rpm = all("rpm-by-rpm");
    let config = Path::new(&by_rpm.at()).join("kilnyard.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\n[build]", "\n[build]\nlayers = \"0\"")).unwrap();
    by_rpm.run(&["build"]).exits(0);
    let by_layers = all("rpm-layers");
    by_layers.run(&["build"]).exits(0);
    by_layers.run(&["log", "looks", "depends"]).says(&[
        "account is left to the package manager: it has the scriptlet %pre",
        "fires is left to the package manager: it has triggers for installations",
        "both is left to the package manager: another package also has /usr/share/both",
        "again is left to the package manager: another package also has /usr/share/both",
        "patch is left to the package manager: another version of it is installed",
        " stacked and configured",
        "5 installed by the package manager",
    ]);
    for package in ["looks", "more"] {
        let (theirs, ours) = (listing(&by_rpm, package), listing(&by_layers, package));
        assert!(theirs.len() > 7000, "{}", theirs.len());
        let differences: Vec<&String> = theirs.symmetric_difference(&ours).collect();
        assert!(differences.is_empty(), "{package}: {:#?}", &differences[..differences.len().min(60)]);
        for part in ["/usr/share/fired ", "libown.so.1 ", "/usr/share/kinds d 1777", "patch 99 "] {
            assert!(ours.iter().any(|line| line.contains(part)), "{part}");
        }
    }
    // dnf chooses the same packages.
    let (_, set) = base();
    let mut wanted: Vec<&str> = set.split(',').chain(needs.split(", ")).collect();
    wanted.retain(|name| *name != "patch >= 99");
    wanted.push("patch");
    let installed = by_layers.dnf("by-dnf", &wanted);
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let root = by_layers.folder.path().join("by-dnf");
    let said = Command::new("chroot")
        .arg(&root)
        .args(["rpm", "-qa", "--qf", "%{NAME} %{VERSION}\n"])
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    // dnf has imported the key of the repository.
    let theirs = said.lines().filter(|line| !line.starts_with("gpg-pubkey "));
    let theirs: BTreeSet<String> = theirs.map(str::to_owned).collect();
    let ours = listing(&by_layers, "looks");
    let named = |line: &String| {
        line.strip_prefix("package ").map(|rest| rest.split(' ').take(2).collect::<Vec<_>>().join(" "))
    };
    let ours: BTreeSet<String> = ours.iter().filter_map(named).collect();
    let differences: Vec<&String> = theirs.symmetric_difference(&ours).collect();
    assert!(ours.len() > 128 && differences.is_empty(), "{differences:?}");
    // A package that sets off a trigger of one that is installed.
    by_layers.run(&["build", "--force", "--no-scan", "more"]).exits(0);
    fs::remove_dir_all(Path::new(&by_layers.at()).join("layers/dependencies/sets")).unwrap();
    by_layers.run(&["build", "--force", "--no-scan", "looks"]).exits(0);
    by_layers.run(&["build", "--force", "--no-scan", "more"]).exits(0);
    by_layers.run(&["log", "more", "depends"]).says(&[
        "dependencies were installed together before",
        "late is left to the package manager: it sets off the file trigger of fires for /usr/share/seen/2",
    ]);
}

/// The trials; `has_tools` says whether rpmbuild, dnf and what converts packages are there, for root.
pub fn cases(has_tools: bool) -> Vec<Case> {
    vec![real(case("layers_equal_an_installation_by_rpm", layers_equal_rpm), has_tools)]
}
