//! The whole program on real packages that misbehave, each in its own way, in real roots.
//!
//! The sources are made here, without debhelper, so that a build takes a second or two; the base root comes
//! from the mirror that this machine's apt uses, once for all tests.

use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn main() {
    let mut arguments = Arguments::from_args();
    // The trials share one base root, and builds share the cores anyway.
    arguments.test_threads = Some(1);
    let shared = Shared::prepare();
    let need = shared.as_ref().err().cloned();
    let shared: &'static Option<Shared> = Box::leak(Box::new(shared.ok()));
    let test = |name: &'static str, run: fn(&Shared) -> Result<(), Failed>| {
        let trial = Trial::test(name, move || shared.as_ref().map_or(Err("no base root".into()), run));
        trial.with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("one_bad_recipe_does_not_stop_the_rest", one_bad_recipe_does_not_stop_the_rest),
        test("what_misbehaves_is_named_and_contained", what_misbehaves_is_named_and_contained),
        test("a_failed_package_is_retried_and_its_last_good_version_stays", retried),
        test("only_what_changed_is_built_again", only_what_changed_is_built_again),
        test("a_killed_run_goes_on_and_comes_to_the_same", a_killed_run_goes_on),
        test("an_interrupted_run_says_so_and_goes_on", an_interrupted_run_goes_on),
        test("bad_sources_are_refused_before_anything_is_built", bad_sources_are_refused),
        test("a_live_run_takes_requests", a_live_run_takes_requests),
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(reason) = need {
        eprintln!("skipped: all tests of packages: {reason}");
    }
    if let Some(shared) = shared {
        shared.remove();
    }
    conclusion.exit();
}

fn kilnyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilnyard"));
    command.env_remove("KILNYARD_YARD").stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A yard with an index and a base root, from which the trials' yards are made by hard links.
struct Shared {
    folder: tempfile::TempDir,
}

impl Shared {
    fn prepare() -> Result<Shared, String> {
        use std::os::unix::fs::PermissionsExt;
        for tool in ["dpkg-source", "mmdebstrap", "dpkg-deb"] {
            Command::new(tool).arg("--version").output().map_err(|_| format!("{tool} is not installed"))?;
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).map_err(|error| error.to_string())?;
        let shared = Shared { folder };
        let yard = shared.folder.path().join("base");
        let made =
            kilnyard().arg("--yard").arg(&yard).args(["init", "debian", "--release", "bookworm"]).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(text(&made));
        }
        let doctor = kilnyard().arg("--yard").arg(&yard).arg("doctor").output().map_err(|e| e.to_string())?;
        if !doctor.status.success() {
            return Err(format!("this machine lacks something: {}", text(&doctor)));
        }
        let built = kilnyard().arg("--yard").arg(&yard).arg("build").output().map_err(|e| e.to_string())?;
        if built.status.success() { Ok(shared) } else { Err(format!("no base root: {}", text(&built))) }
    }

    /// A new yard of these fixtures.
    fn yard(&self, name: &str, fixtures: &[Fixture]) -> Yard {
        let folder = self.folder.path().join(name);
        let base = self.folder.path().join("base");
        fs::create_dir(&folder).unwrap();
        for part in ["index", "state"] {
            let copied =
                Command::new("cp").arg("-a").arg(base.join(part)).arg(folder.join(part)).status().unwrap();
            assert!(copied.success());
        }
        fs::remove_file(folder.join("state/kilnyard.db")).unwrap();
        fs::create_dir(folder.join("layers")).unwrap();
        for entry in fs::read_dir(base.join("layers")).unwrap() {
            let entry = entry.unwrap();
            let to = folder.join("layers").join(entry.file_name());
            let copied = Command::new("cp").args(["-al"]).arg(entry.path()).arg(to).status().unwrap();
            assert!(copied.success());
        }
        let config = fs::read_to_string(base.join("kilnyard.toml")).unwrap();
        let mut list = String::new();
        for fixture in fixtures {
            list.push_str(&format!("  \"{}\",\n", fixture.write(&folder)));
        }
        let config = config.replace("packages = [\n]", &format!("packages = [\n{list}]"));
        let config = config.replace("# log-mebibytes-max = 32", "log-mebibytes-max = 1");
        fs::write(folder.join("kilnyard.toml"), config).unwrap();
        Yard { folder }
    }

    fn remove(&self) {
        // Some files belong to the root's ids; who made them for this user can remove them too.
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let _ = kilnyard().arg("--yard").arg(entry.path()).args(["clean", "--base"]).output();
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A source package; what is not said is as in a good one.
#[derive(Clone, Default)]
struct Fixture {
    name: &'static str,
    version: Option<&'static str>,
    needs: &'static str,
    /// Lines of the build target.
    build: &'static str,
    /// Lines before the package is packed.
    binary: &'static str,
    content: &'static str,
}

impl Fixture {
    /// Writes the source; the path of its `.dsc` in the yard.
    fn write(&self, yard: &Path) -> String {
        let (name, version) = (self.name, self.version.unwrap_or("1.0"));
        let sources = yard.join("sources");
        let folder = sources.join(format!("{name}-{version}"));
        fs::create_dir_all(folder.join("debian/source")).unwrap();
        let write = |path: &str, text: String| fs::write(folder.join("debian").join(path), text).unwrap();
        let needs =
            if self.needs.is_empty() { String::new() } else { format!("Build-Depends: {}\n", self.needs) };
        write("source/format", "3.0 (native)\n".into());
        write(
            "changelog",
            format!(
                "{name} ({version}) unstable; urgency=low\n\n  * Made.\n\n -- A <a@b.c>  Mon, 02 Jan 2023 03:04:05 +0000\n"
            ),
        );
        write(
            "control",
            format!(
                "Source: {name}\nSection: misc\nPriority: optional\nMaintainer: A <a@b.c>\nStandards-Version: 4.6.2\n\
             Rules-Requires-Root: no\n{needs}\nPackage: {name}\nArchitecture: any\nDescription: a fixture\n It is one.\n"
            ),
        );
        let lines = |text: &str| text.lines().map(|line| format!("\t{line}\n")).collect::<String>();
        write(
            "rules",
            format!(
                "#!/usr/bin/make -f\nbuild build-arch build-indep:\n\ttrue\n{}clean:\n\ttrue\nbinary-indep:\n\
             binary binary-arch: build\n\tmkdir -p debian/tmp/DEBIAN debian/tmp/usr/share/{name}\n\
             \techo '{}' > debian/tmp/usr/share/{name}/data\n{}\tdpkg-gencontrol -p{name}\n\
             \tdpkg-deb --root-owner-group --build debian/tmp ..\n",
                lines(self.build),
                self.content,
                lines(self.binary)
            ),
        );
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.join("debian/rules"), fs::Permissions::from_mode(0o755)).unwrap();
        let made = Command::new("dpkg-source").arg("-b").arg(&folder).current_dir(&sources).output().unwrap();
        assert!(made.status.success(), "{}", text(&made));
        fs::remove_dir_all(&folder).unwrap();
        format!("sources/{name}_{version}.dsc")
    }
}

fn good(name: &'static str, needs: &'static str) -> Fixture {
    Fixture { name, needs, content: name, ..Fixture::default() }
}

struct Yard {
    folder: PathBuf,
}

impl Yard {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = kilnyard();
        command.arg("--yard").arg(&self.folder).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.code().unwrap_or(-1), text(&output))
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.command(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
    }

    fn build(&self) -> (i32, String) {
        self.run(&["build", "--no-scan"])
    }

    fn state(&self, package: &str) -> String {
        self.json(&["why", package, "--json"])["state"].as_str().unwrap_or("?").to_owned()
    }

    /// Name, version and hash of everything that is published.
    fn published(&self) -> Vec<String> {
        let path = self.folder.join("repository/dists/bookworm/main/binary-amd64/Packages");
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_told =
            |line: &&str| ["Package:", "Version:", "SHA256:"].iter().any(|field| line.starts_with(field));
        text.lines().filter(is_told).map(str::to_owned).collect()
    }

    /// Nothing of the yard is mounted, runs, or lies about.
    fn is_clean(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_root = |entry: &fs::DirEntry| !entry.file_name().to_string_lossy().starts_with("failed-");
        let roots = fs::read_dir(self.folder.join("roots")).unwrap().flatten().filter(is_root).count();
        !mounts.contains(&self.folder.display().to_string()) && roots == 0
    }
}

fn one_bad_recipe_does_not_stop_the_rest(shared: &Shared) -> Result<(), Failed> {
    let broken = Fixture { build: "echo 'int main( {' > x.c\ncc -c x.c", ..good("broken", "") };
    let yard = shared.yard("rest", &[good("one", ""), broken, good("after", "broken"), good("two", "one")]);
    let (code, said) = yard.build();
    assert_eq!(code, 1, "{said}");
    let states: Vec<String> = ["one", "broken", "after", "two"].iter().map(|name| yard.state(name)).collect();
    assert_eq!(states, ["built", "failed", "blocked", "built"], "{said}");
    let why = yard.json(&["why", "broken", "--json"]);
    let message = why["build"]["failure"]["message"].as_str().unwrap();
    assert!(message.starts_with("x.c:1:") && message.contains("error:"), "{message}");
    assert_eq!(yard.json(&["why", "after", "--json"])["chain"][0]["package"], "broken");
    let (_, log) = yard.run(&["log", "broken"]);
    assert!(log.contains("x.c:1:"), "{log}");
    let (_, seen) = yard.run(&["shell", "broken", "--", "cat", "/build/broken-1.0/x.c"]);
    assert!(seen.contains("int main( {"), "{seen}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(yard.folder.join("report/report.json"))?)?;
    let counts = &report["counts"];
    assert_eq!((&counts["built"], &counts["failed"], &counts["blocked"]), (&2.into(), &1.into(), &1.into()));
    assert!(fs::read_to_string(yard.folder.join("report/index.html"))?.contains("x.c:1:"));
    assert!(yard.is_clean());
    Ok(())
}

fn what_misbehaves_is_named_and_contained(shared: &Shared) -> Result<(), Failed> {
    let outside = shared.folder.path().join("outside");
    let with = |name, build| Fixture { build, ..good(name, "") };
    let fixtures = [
        with("daemon", "setsid sleep 6161 > /dev/null 2>&1 & sleep 0.5"),
        with("network", "exec 3<>/dev/tcp/192.0.2.1/80"),
        with("writes-outside", "touch /usr/bin/kilnyard-was-here"),
        with("flood", "head -c 60000000 /dev/zero | tr '\\0' x; echo; echo the end"),
        with("bad-utf8", "printf '\\377\\376 not text\\n'; false"),
        Fixture { binary: "exit 0; rm -rf debian/tmp", ..with("nothing", "") },
        Fixture {
            binary: "printf '#!/bin/sh\\nexit 1\\n' > debian/tmp/DEBIAN/postinst; chmod 755 debian/tmp/DEBIAN/postinst",
            ..with("bad-postinst", "")
        },
        Fixture { needs: "itself", ..good("itself", "") },
    ];
    let yard = shared.yard("bad", &fixtures);
    let (code, said) = yard.build();
    assert_eq!(code, 1, "{said}");
    for (name, expected) in [
        ("daemon", "built"),
        ("network", "failed"),
        ("writes-outside", "failed"),
        ("flood", "built"),
        ("bad-utf8", "failed"),
        ("bad-postinst", "failed"),
        ("itself", "left-out"),
    ] {
        assert_eq!(yard.state(name), expected, "{name}: {said}");
    }
    let history = yard.json(&["history", "daemon", "--json"]);
    assert!(history.to_string().contains("sleep 6161"), "the daemon is not named: {history}");
    assert!(!outside.exists() && !Path::new("/usr/bin/kilnyard-was-here").exists());
    let (_, log) = yard.run(&["log", "flood", "build"]);
    assert!(log.len() < 4 << 20 && log.contains("the end"), "{} bytes", log.len());
    assert_eq!(yard.json(&["why", "bad-postinst", "--json"])["build"]["failure"]["kind"], "test");
    let explained = yard.json(&["why", "itself", "--json"])["reason"].to_string();
    assert!(explained.contains("itself"), "{explained}");
    let processes = fs::read_dir("/proc")?.flatten();
    let sleeping =
        processes.filter(|p| fs::read(p.path().join("cmdline")).is_ok_and(|l| l.ends_with(b"6161\0")));
    assert_eq!(sleeping.count(), 0, "a daemon outlived its build");
    assert!(yard.is_clean());
    Ok(())
}

fn retried(shared: &Shared) -> Result<(), Failed> {
    let yard = shared.yard("retry", &[good("one", ""), good("two", "one")]);
    let (code, said) = yard.build();
    assert_eq!(code, 0, "{said}");
    let before = yard.published();
    assert_eq!(before.len(), 6, "{before:?}");
    let broken = Fixture { version: Some("1.1"), build: "false", ..good("one", "") };
    broken.write(&yard.folder);
    let path = yard.folder.join("kilnyard.toml");
    let config = fs::read_to_string(&path)?.replace("one_1.0.dsc", "one_1.1.dsc");
    fs::write(&path, config)?;
    let (code, said) = yard.build();
    assert_eq!(code, 1, "{said}");
    assert_eq!((yard.state("one").as_str(), yard.state("two").as_str()), ("failed", "blocked"));
    assert_eq!(yard.published(), before, "the last good version is gone");
    Fixture { version: Some("1.1"), ..good("one", "") }.write(&yard.folder);
    let (_, asked) = yard.run(&["retry", "one"]);
    assert!(asked.contains("the next run"), "{asked}");
    let (code, said) = yard.build();
    assert_eq!(code, 0, "{said}");
    assert!(yard.published().contains(&"Version: 1.1+bk1".to_owned()), "{:?}", yard.published());
    let (_, difference) = yard.run(&["diff"]);
    assert!(difference.contains("newly fixed: one"), "{difference}");
    Ok(())
}

fn only_what_changed_is_built_again(shared: &Shared) -> Result<(), Failed> {
    let yard = shared.yard("again", &[good("one", ""), good("two", "one"), good("three", "")]);
    assert_eq!(yard.build().0, 0);
    let (code, said) = yard.build();
    assert!(code == 0 && said.contains("nothing to do: 3 up-to-date"), "{said}");
    // The same content under a new number: nobody else is built, and what was there stays.
    let before = yard.published();
    let (code, said) = yard.run(&["build", "--no-scan", "--force", "--check-reproducible", "one"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("built twice with the same bytes"), "{said}");
    assert_eq!(yard.state("one"), "unchanged");
    assert_eq!(yard.published(), before);
    assert!(yard.build().1.contains("nothing to do"));
    // Another content: its dependent follows, and nobody else.
    let path = yard.folder.join("kilnyard.toml");
    Fixture { version: Some("1.1"), content: "new", ..good("one", "") }.write(&yard.folder);
    fs::write(&path, fs::read_to_string(&path)?.replace("one_1.0.dsc", "one_1.1.dsc"))?;
    let plan = yard.json(&["plan", "--json"]);
    let state = |name: &str| {
        let packages = plan["packages"].as_array().unwrap().iter();
        packages.filter(|p| p["name"] == name).map(|p| p["state"].clone()).next().unwrap()
    };
    assert_eq!(
        (state("one"), state("two"), state("three")),
        ("ready".into(), "waiting".into(), "up-to-date".into())
    );
    assert_eq!(yard.build().0, 0);
    let states: Vec<String> = ["one", "two", "three"].iter().map(|name| yard.state(name)).collect();
    // Two holds nothing of one, so it comes to the same.
    assert_eq!(states, ["built", "unchanged", "up-to-date"]);
    assert!(yard.json(&["history", "two", "--json"])[0]["outcome"] == "unchanged");
    Ok(())
}

fn a_killed_run_goes_on(shared: &Shared) -> Result<(), Failed> {
    let fixtures = [good("one", ""), good("two", "one"), good("three", "two"), good("four", "")];
    let whole = shared.yard("whole", &fixtures);
    assert_eq!(whole.build().0, 0);
    let yard = shared.yard("killed", &fixtures);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as u64;
    eprintln!("seed of the kills: {seed}");
    for round in 1..=5u64 {
        let mut child =
            yard.command(&["build", "--no-scan"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(300 + seed.wrapping_mul(round * 7919) % 2500));
        child.kill()?;
        child.wait()?;
    }
    let (code, said) = yard.build();
    assert_eq!(code, 0, "{said}");
    assert_eq!(yard.published(), whole.published());
    assert!(yard.is_clean());
    Ok(())
}

fn an_interrupted_run_goes_on(shared: &Shared) -> Result<(), Failed> {
    let slow = Fixture { build: "sleep 3", ..good("slow", "") };
    let yard = shared.yard("interrupted", &[good("one", ""), slow]);
    for signal in ["-INT", "-TERM", "-HUP"] {
        let child =
            yard.command(&["build", "--no-scan"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        std::thread::sleep(Duration::from_millis(2500));
        Command::new("kill").args([signal, &child.id().to_string()]).status()?;
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(130), "{signal}: {}", text(&output));
        assert!(yard.is_clean(), "{signal}");
    }
    let (code, said) = yard.build();
    assert_eq!(code, 0, "{said}");
    assert_eq!((yard.state("one").as_str(), yard.state("slow").as_str()), ("built", "built"));
    assert_eq!(yard.json(&["history", "--json"]).as_array().map(Vec::len), Some(1), "it is one run");
    Ok(())
}

fn bad_sources_are_refused(shared: &Shared) -> Result<(), Failed> {
    let yard = shared.yard("refused", &[good("one", "")]);
    let dsc = yard.folder.join("sources/one_1.0.dsc");
    let bytes = fs::read(&dsc)?;
    let spoilt = |spoil: &dyn Fn(String) -> Vec<u8>| {
        fs::write(&dsc, spoil(String::from_utf8(bytes.clone()).unwrap())).unwrap();
        yard.run(&["plan"])
    };
    let (code, said) = spoilt(&|text| [text.as_bytes(), b"X-Note: \xff\xfe\n"].concat());
    assert!(code == 2 && said.contains("is not UTF-8 in line"), "{said}");
    let (code, said) = spoilt(&|text| text.replace(" one_1.0.tar.xz", " ../one_1.0.tar.xz").into_bytes());
    assert!(code == 2 && said.contains("another folder"), "{said}");
    let (code, said) = spoilt(&|text| text.replace("Source: one\n", "").into_bytes());
    assert!(code == 2 && said.contains("Source"), "{said}");
    fs::write(&dsc, &bytes)?;
    fs::write(yard.folder.join("sources/one_1.0.tar.xz"), "not what it was")?;
    let (code, said) = yard.run(&["plan"]);
    assert!(code == 2 && said.contains("one_1.0.tar.xz is not what"), "{said}");
    Ok(())
}

fn a_live_run_takes_requests(shared: &Shared) -> Result<(), Failed> {
    let slow = |name| Fixture { build: "sleep 4", ..good(name, "") };
    let yard = shared.yard("live", &[slow("a"), slow("b"), slow("c"), slow("d"), good("needs-d", "d")]);
    let child = yard.command(&["build", "--no-scan", "--slots", "1"]).stderr(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_millis(2500));
    let status = yard.json(&["status", "--json"]);
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["building"].as_array().map(Vec::len), Some(1), "{status}");
    let (code, second) = yard.build();
    assert!(code == 2 && second.contains(&format!("process {}", child.id())), "{second}");
    assert_eq!(yard.run(&["skip", "d"]).0, 0);
    assert_eq!(yard.run(&["bump", "c"]).0, 0);
    let (code, said) = yard.run(&["bump", "nonsense"]);
    assert!(code == 2 && said.contains("not a package of this yard"), "{said}");
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!((yard.state("d").as_str(), yard.state("needs-d").as_str()), ("skipped", "blocked"));
    let started =
        |name: &str| yard.json(&["history", name, "--json"])[0]["started_seconds"].as_f64().unwrap();
    assert!(
        started("c") < started("b") || started("c") < started("a"),
        "c was not bumped: {}",
        text(&output)
    );
    Ok(())
}
