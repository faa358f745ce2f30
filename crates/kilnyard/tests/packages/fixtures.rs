//! Yards of small sources that are made without debhelper, so that a build takes only a second or two.

use crate::support::archive::hex_of;
use crate::support::{self, Ended, Yard};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A trial's name and function.
pub type Trial = (&'static str, fn(&Shared));

/// A yard with an index and a base root, from which the trials' yards are made.
pub struct Shared {
    folder: tempfile::TempDir,
}

impl Shared {
    pub fn prepare() -> Result<Shared, String> {
        for tool in ["dpkg-source", "mmdebstrap", "dpkg-deb"] {
            if !support::has(tool) {
                return Err(format!("{tool} is not installed"));
            }
        }
        let shared = Shared { folder: support::folder("packages") };
        let base = shared.base();
        let mut init = support::command();
        init.arg("--yard").arg(&base.folder).args(["init", "debian", "--release", "bookworm", "hello"]);
        let step = |what: &str, ended: Ended| match ended.code {
            Some(0) => Ok(()),
            _ => Err(format!("{what}: {}", said(&ended))),
        };
        step("init", init.output().map_err(|error| error.to_string())?.into())?;
        // Only the base root is made: the set is empty.
        let config = base.read("kilnyard.toml").replace("  \"hello\",\n", "");
        base.configure(&config);
        step("this machine does not meet a requirement", base.run(&["doctor"]))?;
        step("no base root", base.run(&["build"]))?;
        Ok(shared)
    }

    fn base(&self) -> Yard {
        Yard { folder: self.folder.path().join("base") }
    }

    /// A path in the folder that contains the yards.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A new yard of these fixtures; its base root consists of hard links.
    pub fn yard(&self, name: &str, fixtures: &[Fixture]) -> Yard {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        self.fill(&folder, "-al", fixtures);
        Yard { folder }
    }

    /// Makes a yard in an empty folder on another file system.
    pub fn yard_at(&self, folder: &Path, fixtures: &[Fixture]) -> Yard {
        self.fill(folder, "-a", fixtures);
        Yard { folder: folder.to_owned() }
    }

    fn fill(&self, folder: &Path, how: &str, fixtures: &[Fixture]) {
        let base = self.base();
        let copy = |how: &str, part: &str| support::copy(how, &base.path(part), folder);
        copy("-a", "index");
        copy("-a", "state");
        copy(how, "layers");
        fs::remove_file(folder.join("state/kilnyard.db")).unwrap();
        let list: String =
            fixtures.iter().map(|fixture| format!("  \"{}\",\n", fixture.write(folder))).collect();
        let config = base.read("kilnyard.toml").replace("packages = [\n]", &format!("packages = [\n{list}]"));
        let config = config.replace("# log-mebibytes-max = 32", "log-mebibytes-max = 1");
        fs::write(folder.join("kilnyard.toml"), config).unwrap();
    }

    pub fn remove(&self) {
        // Some files belong to the ids of roots; Kilnyard made them for this user, and can remove them.
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            // Nor is a database waited for that has ended.
            let configuration = entry.path().join("kilnyard.toml");
            if let Ok(text) = fs::read_to_string(&configuration) {
                let lines = text.lines().filter(|line| !line.starts_with("url = \"postgres"));
                let _ = fs::write(&configuration, lines.collect::<Vec<_>>().join("\n"));
            }
            Yard { folder: entry.path() }.run(&["clean", "--base"]);
            let _ = fs::remove_dir_all(entry.path());
        }
        let _ = fs::remove_dir(self.folder.path());
    }
}

/// Standard output and error.
pub fn said(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

/// A source package; fields with default values make a package that builds.
#[derive(Clone, Default)]
pub struct Fixture {
    pub name: &'static str,
    pub version: Option<&'static str>,
    pub needs: &'static str,
    /// Lines of the build target.
    pub build: &'static str,
    /// Lines that run before the package is packed.
    pub binary: &'static str,
    pub content: &'static str,
    /// Whether there is also an architecture-independent package, on which the main package depends in the same
    /// version.
    pub has_common: bool,
    /// Number of additional packages, each with one file.
    pub parts: u32,
    /// More stanzas for the control file.
    pub control: &'static str,
    /// Further files of the source, with their content. All files get the time of the changelog, whatever has changed.
    pub files: &'static [(&'static str, &'static str)],
    /// Whether the package keeps the owners of files that the build set, for which packing needs root.
    pub has_owners: bool,
}

pub fn good(name: &'static str, needs: &'static str) -> Fixture {
    Fixture { name, needs, content: name, ..Fixture::default() }
}

/// A fixture with these lines in its build target, such as `sleep 4`.
pub fn slow(name: &'static str, build: &'static str) -> Fixture {
    Fixture { build, ..good(name, "") }
}

/// The commands that pack the additional packages: without dpkg-gencontrol, which would take most of the time.
fn part_packages(name: &str, parts: u32) -> String {
    if parts == 0 {
        return String::new();
    }
    format!(
        "version=$$(dpkg-parsechangelog -S Version); architecture=$$(dpkg --print-architecture); \\\n\
         for part in $$(seq {parts}); do \\\n\
         package={name}-part-$$part; folder=debian/$$package; mkdir -p $$folder/DEBIAN $$folder/usr/share/{name}; \\\n\
         echo $$part > $$folder/usr/share/{name}/part-$$part; \\\n\
         printf 'Package: %s\\nSource: {name}\\nVersion: %s\\nArchitecture: %s\\nMaintainer: A <a@b.c>\\nDescription: a part\\n' \\\n\
         $$package $$version $$architecture > $$folder/DEBIAN/control; \\\n\
         dpkg-deb -Znone --root-owner-group --build $$folder .. > /dev/null || exit 1; \\\n\
         echo $${{package}}_$${{version}}_$${{architecture}}.deb misc optional >> debian/files; done"
    )
}

/// The commands that pack the architecture-independent package.
fn common_package(name: &str) -> String {
    format!(
        "mkdir -p debian/common/DEBIAN debian/common/usr/share/{name}-common\n\
         dpkg-gencontrol -p{name}-common -Pdebian/common\n\
         dpkg-deb --root-owner-group --build debian/common .."
    )
}

impl Fixture {
    /// Writes the source and returns the path of its `.dsc`, relative to the yard.
    pub fn write(&self, yard: &Path) -> String {
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
        let (depends, common) = match self.has_common {
            true => (
                format!("Depends: {name}-common (= ${{source:Version}})\n"),
                format!("\nPackage: {name}-common\nArchitecture: all\nDescription: a part\n It is one.\n"),
            ),
            false => (String::new(), String::new()),
        };
        let part = |part| {
            format!("\nPackage: {name}-part-{part}\nArchitecture: any\nDescription: a part\n It is one.\n")
        };
        let parts = (1..=self.parts).map(part);
        let common: String = std::iter::once(common).chain(parts).chain([self.control.to_owned()]).collect();
        write(
            "control",
            format!(
                "Source: {name}\nSection: misc\nPriority: optional\nMaintainer: A <a@b.c>\nStandards-Version: 4.6.2\n\
             Rules-Requires-Root: {}\n{needs}\nPackage: {name}\nArchitecture: any\n{depends}Description: a fixture\n It is one.\n{common}",
                if self.has_owners { "binary-targets" } else { "no" }
            ),
        );
        let lines = |text: &str| text.lines().map(|line| format!("\t{line}\n")).collect::<String>();
        write(
            "rules",
            format!(
                "#!/usr/bin/make -f\nbuild build-arch build-indep:\n\ttrue\n{}clean:\n\ttrue\nbinary: binary-arch binary-indep\nbinary-indep: build\n{}\
             binary-arch: build\n\tmkdir -p debian/tmp/DEBIAN debian/tmp/usr/share/{name}\n\
             \techo '{}' > debian/tmp/usr/share/{name}/data\n{}\tdpkg-gencontrol -p{name}\n\
             \tdpkg-deb {} --build debian/tmp ..\n",
                lines(self.build),
                if self.has_common { lines(&common_package(name)) } else { "\ttrue\n".to_owned() },
                self.content,
                lines(self.binary) + &lines(&part_packages(name, self.parts)),
                if self.has_owners { "" } else { "--root-owner-group" }
            ),
        );
        for (path, text) in self.files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.join("debian/rules"), fs::Permissions::from_mode(0o755)).unwrap();
        let made: Ended =
            Command::new("dpkg-source").arg("-b").arg(&folder).current_dir(&sources).output().unwrap().into();
        made.exits(0);
        fs::remove_dir_all(&folder).unwrap();
        format!("sources/{name}_{version}.dsc")
    }

    /// Replaces this source in the yard by another version.
    pub fn change(&self, yard: &Yard, version: &'static str, change: impl Fn(Fixture) -> Fixture) -> Fixture {
        let changed = change(Fixture { version: Some(version), ..self.clone() });
        changed.write(&yard.folder);
        let dsc = |fixture: &Fixture| format!("{}_{}.dsc", self.name, fixture.version.unwrap_or("1.0"));
        let config = yard.read("kilnyard.toml").replace(&dsc(self), &dsc(&changed));
        fs::write(yard.path("kilnyard.toml"), config).unwrap();
        changed
    }
}

/// Queries and commands for a yard of packages.
pub trait Packages {
    fn build(&self) -> Ended;
    fn begin(&self, arguments: &[&str]) -> Child;
    fn json(&self, arguments: &[&str]) -> serde_json::Value;
    fn state(&self, package: &str) -> String;
    fn states(&self, packages: &[&str]) -> Vec<String>;
    /// Names of the packages being built now.
    fn building(&self) -> Vec<String>;
    /// Name, version and hash of every published package.
    fn published(&self) -> Vec<String>;
    /// Whether the yard has no mounts and no roots left over.
    fn is_clean(&self) -> bool;
}

impl Packages for Yard {
    fn build(&self) -> Ended {
        self.run(&["build", "--no-scan"])
    }

    fn begin(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(&["build", "--no-scan"]);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        self.run(arguments).json()
    }

    fn state(&self, package: &str) -> String {
        self.json(&["why", package, "--json"])["state"].as_str().unwrap_or("?").to_owned()
    }

    fn states(&self, packages: &[&str]) -> Vec<String> {
        packages.iter().map(|package| self.state(package)).collect()
    }

    fn building(&self) -> Vec<String> {
        let ended = self.run(&["status", "--json"]);
        // Before the first run there is no status.
        let Ok(status) = serde_json::from_str::<serde_json::Value>(&ended.stdout) else { return Vec::new() };
        let building = status["building"].as_array().cloned().unwrap_or_default();
        building.iter().filter_map(|build| build["package"].as_str().map(str::to_owned)).collect()
    }

    fn published(&self) -> Vec<String> {
        let path = self.path("repository/dists/bookworm/main/binary-amd64/Packages");
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_compared =
            |line: &&str| ["Package:", "Version:", "SHA256:"].iter().any(|field| line.starts_with(field));
        text.lines().filter(is_compared).map(str::to_owned).collect()
    }

    fn is_clean(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_root = |name: &&String| !name.starts_with("failed-");
        let roots = self.names("roots").iter().filter(is_root).count();
        !mounts.contains(&format!("{}/roots", self.folder.display())) && roots == 0
    }
}

/// Runs a program of this machine, which must succeed.
#[track_caller]
pub fn run(folder: &Path, program: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let ended: Ended = command.args(arguments).current_dir(folder).output().unwrap().into();
    ended.exits(0)
}

/// A binary package that contains its version in `usr/share/NAME/version`, and its stanza in an index.
pub fn deb(folder: &Path, name: &str, version: &str) -> (String, Vec<u8>) {
    let tree = folder.join(format!("{name}-{version}"));
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("usr/share").join(name)).unwrap();
    fs::write(tree.join("usr/share").join(name).join("version"), version).unwrap();
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: a tool\n One.\n"
    );
    fs::write(tree.join("DEBIAN/control"), &control).unwrap();
    let file = format!("{name}_{version}_all.deb");
    run(folder, "dpkg-deb", &["--root-owner-group", "--build", tree.to_str().unwrap(), &file]);
    let bytes = fs::read(folder.join(&file)).unwrap();
    let stanza =
        format!("{control}Filename: pool/{file}\nSize: {}\nSHA256: {}\n\n", bytes.len(), hex_of(&bytes));
    (stanza, bytes)
}

/// The content of a file in the latest published version of a package.
pub fn unpacked(shared: &Shared, yard: &Yard, package: &str, file: &str) -> String {
    let pool = yard.path("repository/pool");
    let found = run(&pool, "find", &[".", "-name", &format!("{package}_*.deb")]);
    let mut debs: Vec<&str> = found.stdout.lines().collect();
    debs.sort_unstable();
    let deb = pool.join(debs.last().expect("a published package"));
    let target = shared.path("unpacked");
    let _ = fs::remove_dir_all(&target);
    run(&pool, "dpkg-deb", &["--extract", deb.to_str().unwrap(), target.to_str().unwrap()]);
    fs::read_to_string(target.join(file)).unwrap()
}

/// Numbers and command lines of the processes on this machine.
pub fn processes() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some((number, String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()))
    });
    named.collect()
}
