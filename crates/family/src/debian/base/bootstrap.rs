//! The files of a base root: mmdebstrap downloads and extracts packages of a release, then the release's own dpkg
//! installs them.
//!
//! The two steps run in different sandboxes, because they trust different things. Downloading needs the network and
//! the machine's apt, but runs no code from the packages. Their maintainer scripts run in the second sandbox: a root
//! like that of any build, with the yard's ids, no network, and no access to the machine's files and processes.

use super::super::config::DebianRoot;
use super::{WORK, machine_of};
use kilnyard_model::order::{Account, CommandOrder, MachineTerms};
use kilnyard_process::{End, Log};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Access, IdMap, Operation, Sandbox, View, remove_folder};
use kilnyard_worker::InMachine;
use kilnyard_yard::environment::Environment;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::layers::make_layer;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where the download sandbox mounts its working folder. The yard's own path may lead through folders that the root's
/// ids cannot enter; this path always exists, and neither apt nor tar needs the files that it hides.
const SHOWN: &str = "/sys";
/// The extracted packages, below the working folder.
const TARGET: &str = "root";
const KEYRING: &str = "keyring.gpg";
const SOURCES: &str = "sources.list";
/// mmdebstrap's own hooks that merge `/bin`, `/lib` and `/sbin` into `/usr` if the release has them merged. Otherwise
/// packages would do it later, by renaming the folders that running programs are in.
const MERGED: &str = "/usr/share/mmdebstrap/hooks/maybe-merged-usr";
/// Number of last log lines that an error shows.
const LINES_SHOWN: usize = 8;
/// How much of a line is kept to recognize a phase.
const LINE_BYTES_MAX: usize = 64;

/// A prefix of a log line, and the phase that begins with that line.
type Phase = (&'static str, &'static str);

const DOWNLOADING: &[Phase] = &[
    ("I: running apt-get update", "reading the archive's lists"),
    ("I: downloading packages", "downloading packages"),
    ("I: extracting archives", "extracting packages"),
];
const INSTALLING: &[Phase] =
    &[("Preparing to unpack", "unpacking packages"), ("Setting up", "configuring packages")];

/// Installs the extracted packages. dpkg gets all packages at once and configures them in dependency order.
/// `--force-depends` is for pre-dependencies: dpkg does not sort by them, and their files are already there.
const INSTALL: &str = r#"
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
dpkg --force-depends --install /var/cache/apt/archives/*.deb
dpkg --configure --pending
broken=$(dpkg --audit)
if [ -n "$broken" ]; then
  echo "$broken"
  exit 1
fi
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /var/cache/ldconfig/aux-cache /var/lib/dbus/machine-id /tmp/*
rm -f /var/log/dpkg.log /var/log/alternatives.log /var/log/apt/*
if [ -e /etc/machine-id ]; then
  : > /etc/machine-id
fi
"#;

/// Makes a layer from the release's packages.
pub fn bootstrap(
    yard: &Yard,
    root: &DebianRoot,
    ids: &IdMap,
    layer: &str,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<()> {
    let mut making = Making::begin(yard, ids, cancel, say)?;
    let made = download(&mut making, root).and_then(|()| {
        let target = yard.path(WORK).join(TARGET);
        fs_err::rename(target, yard.path(layer))
            .context(Kind::Machine, "keep the packages of the base root")?;
        install(&mut making, layer)
    });
    let finished = making.log.finish().context(Kind::Machine, "write logs/base.log");
    made.and(finished.map(|_| ()))
}

/// Context shared by both steps.
struct Making<'a> {
    yard: &'a Yard,
    ids: &'a IdMap,
    log: Log,
    cancel: &'a AtomicBool,
    say: &'a dyn Fn(&str),
}

impl<'a> Making<'a> {
    fn begin(
        yard: &'a Yard,
        ids: &'a IdMap,
        cancel: &'a AtomicBool,
        say: &'a dyn Fn(&str),
    ) -> Result<Making<'a>> {
        let log = Log::create(&yard.path("logs/base.log"), yard.config.log_limits());
        let log = log.context(Kind::Machine, "write logs/base.log")?;
        Ok(Making { yard, ids, log, cancel, say })
    }

    /// Runs a step to its end and prints its phases.
    fn run(&mut self, sandbox: &Sandbox, machine: Option<MachineTerms>, phases: &[Phase]) -> Result<()> {
        let phase = AtomicUsize::new(phases.len());
        let mut said = phase.load(Ordering::Relaxed);
        let mut print = || {
            let now = phase.load(Ordering::Relaxed);
            if now != said
                && let Some((_, words)) = phases.get(now)
            {
                (self.say)(&format!("base root: {words}"));
                said = now;
            }
        };
        let mut output = Phases { log: &mut self.log, phases, phase: &phase, line: Vec::new() };
        let limits = self.yard.config.limits().limits(None);
        let outcome = match machine {
            None => kilnyard_process::run(sandbox, &mut output, limits, self.cancel, None, &mut |_| print()),
            Some(terms) => {
                let running = InMachine { yard: &self.yard.folder, beside: WORK.as_ref(), terms };
                running.run(sandbox, &mut output, limits, self.cancel, &mut |_| print())
            }
        };
        match outcome.end {
            End::Exit(0) => Ok(()),
            End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted while making the base root")),
            end => Err(self.failed(&end)),
        }
    }

    fn failed(&mut self, end: &End) -> Error {
        let path = self.yard.path("logs/base.log");
        let mut error = Error::new(Kind::Machine, "failed to make the base root");
        if let End::SandboxFailed(reason) | End::LogFailed(reason) = end {
            error.causes.push(reason.clone());
        }
        if let End::Limit(passed, _) = end {
            error.causes.push(format!("limit exceeded: {passed:?}"));
        }
        let _ = self.log.flush();
        let text = kilnyard_process::read_log(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        error.causes.extend(last.iter().map(|line| (*line).to_owned()));
        if !Path::new("/usr/bin/mmdebstrap").exists() {
            return error.hint(Remedy::packages(&["mmdebstrap"]));
        }
        error.hint(format!("zstdless {}.zst", path.display()))
    }
}

/// Writes output to the log and records the phase that it reveals.
struct Phases<'a> {
    log: &'a mut Log,
    phases: &'a [Phase],
    phase: &'a AtomicUsize,
    /// The beginning of the current line, up to [`LINE_BYTES_MAX`].
    line: Vec<u8>,
}

impl Write for Phases<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let is_of = |(beginning, _): &Phase| self.line.starts_with(beginning.as_bytes());
                if let Some(phase) = self.phases.iter().position(is_of) {
                    self.phase.store(phase, Ordering::Relaxed);
                }
                self.line.clear();
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(*byte);
            }
        }
        self.log.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }
}

/// Downloads and extracts the packages, without running any code from them.
fn download(making: &mut Making, root: &DebianRoot) -> Result<()> {
    let (yard, ids) = (making.yard, making.ids);
    let failed = "make the base root";
    remove_folder(&yard.folder, WORK.as_ref(), ids).context(Kind::Machine, failed)?;
    fs_err::create_dir_all(yard.path("roots")).context(Kind::Machine, failed)?;
    make_layer(yard, ids, WORK)?;
    let keyring = &root.keyring;
    // The root's ids may not be able to read the keyring at its own path.
    let copied = fs_err::read(keyring).and_then(|keys| fs_err::write(yard.path(WORK).join(KEYRING), keys));
    copied.context(Kind::Usage, "read the archive's keyring").map_err(|error| {
        error.hint(Remedy::from("keyring in kilnyard.toml; ").then_packages(&["debian-archive-keyring"]))
    })?;
    // Other users of the machine cannot enter the folder above.
    fs_err::write(yard.path(WORK).join(SOURCES), sources(root)).context(Kind::Machine, failed)?;
    let show = Operation::Bind { source: WORK.into(), target: SHOWN.into(), access: Access::Write };
    let mut sandbox = Sandbox::of_machine(&yard.folder, ids, Task::Program(arguments(root)));
    sandbox.view = View::Root(vec![show]);
    sandbox.directory = SHOWN.into();
    sandbox.environment = environment(ids, &yard.environment);
    making.run(&sandbox, None, DOWNLOADING)
}

fn arguments(root: &DebianRoot) -> Vec<String> {
    let (release, architecture) = (&root.release, &root.architecture);
    // The packages of mmdebstrap's variant "buildd"; that variant would also install them.
    let essential = format!(
        "--include=?narrow(?or(?archive(^{release}$),?codename(^{release}$)),?architecture({architecture}),\
         ?or(?essential,?priority(^required$),?exact-name(usr-is-merged)))"
    );
    let mut arguments: Vec<String> = [
        "mmdebstrap",
        "--variant=extract",
        "--mode=root",
        "--format=directory",
        // The packages are installed later, in a root that has devices and processes of its own.
        "--skip=chroot/mount,cleanup/apt,output/dev,output/mknod",
        "--include=apt",
        "--include=build-essential",
        // It makes the account of the builder. Since Debian 13 it is not required.
        "--include=passwd",
    ]
    .map(str::to_owned)
    .into();
    arguments.push(format!("--hook-dir={MERGED}"));
    arguments.push(essential);
    arguments.extend(root.packages.iter().map(|package| format!("--include={package}")));
    arguments.push(format!("--architectures={architecture}"));
    arguments.extend([release.clone(), format!("{SHOWN}/{TARGET}")]);
    if !root.check_valid_until {
        arguments.push(r#"--aptopt=Acquire::Check-Valid-Until "false""#.to_owned());
    }
    arguments.push(format!("{SHOWN}/{SOURCES}"));
    arguments
}

/// The apt sources of the base. They go into a file, because an address may contain a password, and every user of the
/// machine can read the arguments of a process.
fn sources(root: &DebianRoot) -> String {
    let (mirror, components) = (&root.mirror.all()[0], root.components.join(" "));
    let line = |suite| format!("deb [signed-by={SHOWN}/{KEYRING}] {mirror} {suite} {components}\n");
    std::iter::once(&root.release).chain(&root.suites).map(line).collect()
}

fn environment(ids: &IdMap, given: &Environment) -> Vec<(String, String)> {
    let path = ("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    let mut environment = vec![path, ("TMPDIR".to_owned(), SHOWN.to_owned())];
    if ids.has_one_id() {
        // All files belong to the only user.
        environment.push(("TAR_OPTIONS".to_owned(), "--no-same-owner".to_owned()));
    }
    // apt reads these only in lower case.
    let proxies = ["http_proxy", "https_proxy", "no_proxy"];
    let proxy = |name: &&str| Some(((*name).to_owned(), given.get(name)?.to_owned()));
    environment.extend(proxies.iter().filter_map(proxy));
    environment
}

/// Installs the packages of a layer, with their maintainer scripts.
fn install(making: &mut Making, layer: &str) -> Result<()> {
    let command = CommandOrder {
        arguments: ["/bin/sh", "-eu", "-c", INSTALL].map(str::to_owned).into(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: [
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("DEBCONF_NONINTERACTIVE_SEEN", "true"),
            ("LC_ALL", "C.UTF-8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    };
    let (yard, ids) = (making.yard, making.ids);
    let folders = kilnyard_worker::BaseFolders { layer: Path::new(layer), beside: Path::new(WORK) };
    let base = kilnyard_worker::BaseSandbox::new(&yard.folder, folders, ids, &command);
    let base = base.context(Kind::Machine, "make the base root")?;
    making.run(&base.sandbox, machine_of(yard), INSTALLING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_recognized_in_partial_writes_and_lines_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(&folder.path().join("log"), Default::default()).unwrap();
        let phase = AtomicUsize::new(DOWNLOADING.len());
        let mut output = Phases { log: &mut log, phases: DOWNLOADING, phase: &phase, line: Vec::new() };
        output.write_all(b"I: extracting arch").unwrap();
        assert_eq!(phase.load(Ordering::Relaxed), DOWNLOADING.len());
        output.write_all(b"ives...\nx").unwrap();
        assert_eq!(phase.load(Ordering::Relaxed), 2);
        output.write_all(&[b'x'; 10_000]).unwrap();
        assert_eq!(output.line.len(), LINE_BYTES_MAX);
        output.write_all(b"\nI: downloading packages\n").unwrap();
        assert_eq!(phase.load(Ordering::Relaxed), 1);
    }
}
