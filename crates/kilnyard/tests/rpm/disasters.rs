//! Killed runs, and builds that hang or leave processes behind: what holds for the other families.

use crate::builds::{Yard, pool, real};
use crate::support::trials::{Case, case};
use crate::support::{command, until};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kills of a yard. The first ones come while its base root is being made.
const KILLS: u64 = 8;

fn spec(name: &str, requires: &str, build: &str) -> String {
    let requires = if requires.is_empty() { String::new() } else { format!("BuildRequires: {requires}\n") };
    format!(
        "Name: {name}\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n{requires}%description\nx\n\
         %prep\n%build\n{build}\n%install\nmkdir -p %{{buildroot}}/usr/share/{name}\n\
         echo {name} > %{{buildroot}}/usr/share/{name}/words\n%files\n/usr/share/{name}\n"
    )
}

/// Four packages, of which three depend on each other.
fn write_chain(yard: &Yard) {
    for (name, requires) in [("one", ""), ("two", "one"), ("three", "two"), ("four", "")] {
        yard.write(name, &spec(name, requires, "sleep 1"));
    }
}

/// The published packages, with the digests of their content.
fn published(yard: &Yard) -> Vec<String> {
    let packages = fs::read_dir(pool(&yard.repository())).unwrap().map(|entry| entry.unwrap().path());
    let said = Command::new("rpm")
        .args(["-qp", "--nosignature", "--qf", "%{NAME} %{EVR} %{SOURCERPM} %{PAYLOADDIGEST}\n"])
        .args(packages)
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let mut lines: Vec<String> = String::from_utf8(said.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Whether no process and no mount names a yard.
fn is_left_alone(yard: &Yard) -> bool {
    let at = yard.at();
    let command_of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let names_it = |line: &[u8]| String::from_utf8_lossy(line).contains(&at);
    !fs::read_dir("/proc").unwrap().flatten().any(|entry| names_it(&command_of(entry)))
        && !names_it(&fs::read(Path::new("/proc/self/mountinfo")).unwrap())
}

fn killed_runs_lose_nothing() {
    let whole = Yard::new("rpm-whole");
    write_chain(&whole);
    whole.run(&["build"]).exits(0).says(&["4 built"]);
    let yard = Yard::without_base("rpm-killed");
    write_chain(&yard);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    eprintln!("seed of the kills: {seed}");
    for round in 1..=KILLS {
        let mut build = command();
        build.args(["--yard", &yard.at(), "build"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut build = build.spawn().unwrap();
        if round == 3 {
            // Once, the base is made.
            until("the base root is there", || Path::new(&yard.at()).join("layers/base.json").exists());
        }
        std::thread::sleep(Duration::from_millis(300 + seed.wrapping_mul(round * 7919) % 2500));
        build.kill().unwrap();
        build.wait().unwrap();
        until("nothing of a killed run is left", || is_left_alone(&yard));
    }
    yard.run(&["build"]).exits(0);
    assert_eq!(published(&yard), published(&whole), "seed {seed}");
    yard.run(&["build"]).exits(0).says(&["nothing to do"]);
    assert!(is_left_alone(&yard));
}

fn a_build_that_misbehaves_is_named() {
    let yard = Yard::new("rpm-misbehaves");
    yard.write("hangs", &spec("hangs", "", "echo waiting; sleep 616101"));
    yard.write("leaves", &spec("leaves", "", "(sleep 616102 > /dev/null 2>&1 &)"));
    yard.write("good", &spec("good", "", "true"));
    yard.write("needs-hangs", &spec("needs-hangs", "hangs", "true"));
    let path = Path::new(&yard.at()).join("kilnyard.toml");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace("# hung-minutes-min = 10", "hung-minutes-min = 0.05 #");
    assert_ne!(changed, text);
    fs::write(&path, changed).unwrap();
    let ended = yard.run(&["build"]).exits(1);
    ended.says(&["it hangs: for 3.0 s", "sleep 616101 (", "2 built, 1 failed, 1 blocked"]);
    yard.run(&["log", "hangs"]).exits(0).says(&["kilnyard: it hangs: for 3.0 s", "sleep 616101 ("]);
    yard.run(&["log", "leaves", "build"]).exits(0).says(&["left behind and killed: sleep 616102"]);
    // Stages of other families are not offered.
    let ended = yard.run(&["log", "good", "provides"]).exits(2);
    ended.says(&["provides is not a stage", "one of: ", "collect"]).lacks(&["configure"]);
    assert!(is_left_alone(&yard));
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case("killed_runs_lose_nothing", killed_runs_lose_nothing)),
        real(case("a_build_that_misbehaves_is_named", a_build_that_misbehaves_is_named)),
    ]
}
