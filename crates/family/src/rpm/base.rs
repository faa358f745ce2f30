//! The base root: the bottom layer of every build root, made once for a list of packages and kept.
//!
//! The packages are unpacked by `bsdtar` first, without running anything of them; then the root's own rpm installs them, in a root
//! like that of any build: it knows the form of its database, and runs their scriptlets.

use super::Rpm;
use super::keys::{self, Keys};
use super::scan::{Groups, Index, Packages};
use crate::captured::Captured;
use kilnyard_ecosystem::explain;
use kilnyard_ecosystem::rpm::relation::{Capability, Relation};
use kilnyard_ecosystem::rpm::universe::{Package, Universe};
use kilnyard_ecosystem::rpm::{Base, input_of, triggers_of};
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_model::order::{Account, CommandOrder, Input};
use kilnyard_model::solver::Solver;
use kilnyard_process::{End, now_seconds};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Access, IdMap, Operation, Sandbox, View, remove_folder};
use kilnyard_worker::{BaseFolders, BaseSandbox, remove_or_set_aside};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::finding::Finding;
use kilnyard_yard::layers::{RecordedTree, keep_tree, make_layer, owners, remove_parts};
use kilnyard_yard::mirror::open_files;
use kilnyard_yard::patches;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Working folder while a base is made.
const WORK: &str = "roots/base";
/// The record of the current base.
const RECORD: &str = "layers/base.json";
/// Where the sandbox that unpacks has its working folder; see the base roots of Debian.
const SHOWN: &str = "/sys";
/// The unpacked packages, and the package files, below the working folder.
const TARGET: &str = "root";
const FILES: &str = "packages";
/// Increment this when a base is made in another way.
const VERSION: u32 = 3;
/// The most that unpacking and scriptlets may print; those of a distribution print some kilobytes.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Number of last log lines that an error shows.
const LINES_SHOWN: usize = 8;

/// The program that unpacks packages, and the Debian package that contains it.
const UNPACKER: (&str, &str) = ("/usr/bin/bsdtar", "libarchive-tools");

/// Whether this machine can unpack packages.
pub fn finding() -> Finding {
    let (program, package) = UNPACKER;
    match Path::new(program).exists() {
        true => Finding::new("bsdtar", true, "unpacks the packages of base roots"),
        false => Finding {
            help: Some(Remedy::packages(&[package])),
            packages: vec![package],
            ..Finding::new("bsdtar", false, "it unpacks the packages of base roots, and is not installed")
        },
    }
}

/// The content of [`RECORD`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Made {
    asked: String,
    #[serde(flatten)]
    files: RecordedTree,
    digest: String,
    packages: Vec<(String, String)>,
    triggers: String,
}

impl Made {
    fn last(yard: &Yard) -> Option<Made> {
        serde_json::from_slice(&fs_err::read(yard.path(RECORD)).ok()?).ok()
    }

    fn keep(self, yard: &Yard) -> Result<Base> {
        let text = serde_json::to_vec_pretty(&self).or_internal("write the record of the base root")?;
        write_whole(&yard.path(RECORD), &text)?;
        Ok(self.base())
    }

    fn base(self) -> Base {
        Base { tree: self.files.tree, digest: self.digest, packages: self.packages, triggers: self.triggers }
    }
}

/// The existing base; `None` if there is none for this configuration. Whether the repositories have newer packages is found by
/// [`ensure`].
pub fn find(yard: &Yard, rpm: &Rpm) -> Option<Base> {
    let made = Made::last(yard)?;
    let is_wanted = made.asked.starts_with(&configured(yard, rpm).ok()?) && made.files.is_there(yard);
    is_wanted.then(|| made.base())
}

/// The part of a base's inputs that is configured.
fn configured(yard: &Yard, rpm: &Rpm) -> Result<String> {
    let owners = owners(&yard.ids());
    // Layers over a base are kept, and their packages were verified by these keys.
    let keys = keys::of_packages(rpm)?;
    let keys = keys.map_or_else(String::new, |keys| format!(" {}", Sha256Hex::of(keys.as_bytes()).as_str()));
    let packages = rpm.root_packages.join(",");
    Ok(format!("{VERSION}{owners} {} {} {packages}{keys}\n", rpm.release, rpm.architecture))
}

/// Returns the base, and makes it first if it does not exist or the repositories have newer packages of it.
pub fn ensure(yard: &Yard, rpm: &Rpm, ids: &IdMap, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<Base> {
    remove_parts(yard, ids)?;
    let Packages { mut universe, groups, .. } = Index::open(yard)?.read(yard, rpm)?;
    let packages = chosen(rpm, &mut universe, &groups)?;
    let keys = Keys::read(rpm)?;
    let expected = expected(&packages);
    let asked = configured(yard, rpm)? + &expected.digest;
    if let Some(made) = Made::last(yard).filter(|made| made.asked == asked && made.files.is_there(yard))
        && let Some(files) = made.files.clone().unpacked(yard, ids, "base root", say)?
    {
        return Made { files, ..made }.keep(yard);
    }
    say(&format!("making the base root of {} packages (once)", packages.len()));
    let made_since_seconds = now_seconds() as u64;
    let layer = format!("layers/base-{}.part", std::process::id());
    let making = Making { yard, ids, keys: &keys, cancel };
    let triggers = making.unpack(&inputs(rpm, &packages)?, say)?;
    fs_err::rename(yard.path(WORK).join(TARGET), yard.path(&layer))
        .context(Kind::Machine, "keep the packages of the base root")?;
    say("base root: installing packages");
    let installed = making.install(&layer)?;
    remove_or_set_aside(&yard.folder, Path::new(WORK), ids);
    check_installed(&expected, &installed)?;
    let former = Made::last(yard).and_then(|made| made.files.tree).or_else(|| patches::former(yard));
    let files = RecordedTree::new(keep_tree(yard, ids, &layer, Some(made_since_seconds))?);
    if let (Some(former), Some(tree)) = (former, &files.tree) {
        patches::make(yard, &former, tree)?;
    }
    let Base { digest, packages, .. } = expected;
    Made { asked, files, digest, packages, triggers }.keep(yard)
}

/// The base as it is or, without its files, as it will be made; empty if the repositories lack its packages.
pub fn known(yard: &Yard, rpm: &Rpm, universe: &mut Universe, groups: &Groups) -> Base {
    let mut chosen = || chosen(rpm, universe, groups).map(|packages| expected(&packages));
    // Making it says why its packages cannot be installed.
    find(yard, rpm).or_else(|| chosen().ok()).unwrap_or_default()
}

/// A base of these packages before it is made.
fn expected(packages: &[Package]) -> Base {
    let list = packages.iter().map(|one| format!("{} {} {}\n", one.name, one.evr, one.digest));
    let digest = Sha256Hex::of(format!("{VERSION}\n{}", list.collect::<String>()).as_bytes());
    let packages = packages.iter().map(|one| (one.name.to_string(), one.evr.to_string()));
    Base {
        tree: None,
        digest: digest.as_str().to_owned(),
        packages: packages.collect(),
        triggers: String::new(),
    }
}

/// Compares what rpm has installed with what it was to install: name and version in each line, sorted.
fn check_installed(expected: &Base, installed: &str) -> Result<()> {
    let expected: BTreeSet<String> =
        expected.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let installed: BTreeSet<String> = installed.lines().map(str::to_owned).collect();
    if expected == installed {
        return Ok(());
    }
    let mut error = Error::new(Kind::Machine, "the base root has other packages than the repositories list");
    let causes = |text: &str, lines: Vec<&String>| -> Vec<String> {
        lines.into_iter().take(LINES_SHOWN).map(|line| format!("{text} {line}")).collect()
    };
    error.causes.extend(causes("installed, and not listed:", installed.difference(&expected).collect()));
    error.causes.extend(causes("listed, and not installed:", expected.difference(&installed).collect()));
    Err(error)
}

/// The packages of the base, with what they require, by name.
fn chosen(rpm: &Rpm, universe: &mut Universe, groups: &Groups) -> Result<Vec<Package>> {
    let mut requires = Vec::new();
    for name in &rpm.root_packages {
        let members = match name.strip_prefix('@') {
            None => std::slice::from_ref(name),
            Some(group) => groups.get(group).ok_or_else(|| {
                Error::usage(format!("no repository has the group {group} of root-packages")).hint(
                    "root-packages in kilnyard.toml: names of packages, such as gcc, make and rpm-build",
                )
            })?,
        };
        // A group may name packages that a release no longer has; comps says which are mandatory.
        let is_there = |one: &&String| !name.starts_with('@') || !universe.named(one).is_empty();
        let plain = |one: &String| {
            Ok(Relation::parse(one)
                .unwrap_or_else(|_| Relation::Plain(Capability { name: one.as_str().into(), range: None })))
        };
        requires.extend(members.iter().filter(is_there).map(plain));
    }
    let root = universe.request(&requires, &[]).context(Kind::Usage, "read root-packages")?;
    let mut solver = Solver::new(universe);
    match solver.solve(root) {
        Ok(chosen) => {
            let packages = chosen.iter().filter_map(|one| universe.package(*one).cloned());
            let mut packages: Vec<Package> = packages.collect();
            packages.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(packages)
        }
        Err(_) => {
            let text = explain::text(universe, root, "the base root", &solver.explain(root));
            let mut error =
                Error::new(Kind::Usage, "the packages of root-packages cannot be installed together");
            error.causes.extend(text.lines().map(str::to_owned));
            Err(error)
        }
    }
}

fn inputs(rpm: &Rpm, packages: &[Package]) -> Result<Vec<Input>> {
    let addresses = rpm.addresses();
    let input = |package: &Package| {
        input_of(package, &addresses)
            .ok_or_else(|| Error::new(Kind::Machine, format!("no repository has a file of {}", package.name)))
    };
    packages.iter().map(input).collect()
}

/// Unpacks each package over the others. What it cannot write through a link, rpm writes later.
const UNPACK: &str = r#"
mkdir -p "$2"
cd "$2"
for file in "$1"/*.rpm; do
  bsdtar --no-same-owner -xf "$file" || echo "W: not all of $file was unpacked"
done
[ -e usr/bin/rpm ] || { echo "E: no package of the base root has /usr/bin/rpm"; exit 1; }
if [ -e kilnyard ] || [ -h kilnyard ]; then echo "E: a package has /kilnyard, which roots need"; exit 1; fi
mkdir -p kilnyard/packages
cp "$1"/*.rpm kilnyard/packages/
"#;

/// Installs the unpacked packages, makes the builder's account, and prints the list of packages.
const INSTALL: &str = r#"
{
  rpm --initdb
  # They are unpacked already; rpm writes them again, with their owners.
  rpm -U --replacefiles --replacepkgs --nosignature --define '_netsharedpath /proc:/sys:/dev' /kilnyard/packages/*.rpm
  rm -rf /kilnyard/packages
  groupadd --gid 1000 builder
  useradd --uid 1000 --gid 1000 --home-dir /nonexistent --no-create-home --shell /bin/sh builder
  printf '127.0.0.1 localhost kilnyard\n::1 localhost kilnyard\n' > /etc/hosts
  rm -rf /etc/resolv.conf /var/cache/ldconfig/aux-cache /tmp/* /var/tmp/*
  if [ -e /etc/machine-id ]; then : > /etc/machine-id; fi
  mkdir -p /build /kilnyard/inputs /kilnyard/texts
  chown builder:builder /build
} >&2
rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' | sed 's/ 0:/ /' | sort
"#;

struct Making<'a> {
    yard: &'a Yard,
    ids: &'a IdMap,
    keys: &'a Keys,
    cancel: &'a AtomicBool,
}

impl Making<'_> {
    /// Fetches the packages, and unpacks them without running anything of them; returns their triggers.
    fn unpack(&self, inputs: &[Input], say: &dyn Fn(&str)) -> Result<String> {
        let Making { yard, ids, keys, cancel } = *self;
        let failed = "make the base root";
        remove_folder(&yard.folder, WORK.as_ref(), ids).context(Kind::Machine, failed)?;
        fs_err::create_dir_all(yard.path("roots")).context(Kind::Machine, failed)?;
        make_layer(yard, ids, WORK)?;
        say("base root: downloading packages");
        let files = open_files(yard)?;
        let folder = yard.path(WORK).join(FILES);
        fs_err::create_dir(&folder).context(Kind::Machine, failed)?;
        let mut paths = Vec::new();
        for input in inputs {
            fetch(&files, input, cancel)?;
            let hash = Sha256Hex::parse(&input.sha256).or_internal("read a digest")?;
            keys.verify_package(&files.path(&hash), &input.name)?;
            // The ids of the root can read it there; the yard's own folders may be closed to them.
            fs_err::copy(files.path(&hash), folder.join(&input.name)).context(Kind::Machine, failed)?;
            paths.push(files.path(&hash));
        }
        let triggers = triggers_of(&paths).context(Kind::Machine, failed)?;
        say("base root: unpacking packages");
        let words = [format!("{SHOWN}/{FILES}"), format!("{SHOWN}/{TARGET}")];
        let program = ["/bin/sh", "-euc", UNPACK, "sh"].map(str::to_owned).into_iter().chain(words).collect();
        let mut sandbox = Sandbox::of_machine(&yard.folder, ids, Task::Program(program));
        let show = Operation::Bind { source: WORK.into(), target: SHOWN.into(), access: Access::Write };
        sandbox.view = View::Root(vec![show]);
        sandbox.directory = SHOWN.into();
        sandbox.environment = vec![
            ("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            // Names of files may have any characters.
            ("LC_ALL".to_owned(), "C.UTF-8".to_owned()),
        ];
        sandbox.has_network = false;
        self.run(&sandbox).map(|_| triggers).map_err(|error| match Path::new(UNPACKER.0).exists() {
            true => error,
            false => error.hint(Remedy::packages(&[UNPACKER.1])),
        })
    }

    /// Installs the packages of a layer, with their scriptlets; returns the list of those that are installed then.
    fn install(&self, layer: &str) -> Result<String> {
        let command = CommandOrder {
            arguments: ["/bin/sh", "-euc", INSTALL].map(str::to_owned).into(),
            account: Account::Root,
            directory: "/".to_owned(),
            environment: vec![("LC_ALL".to_owned(), "C.UTF-8".to_owned())],
        };
        let folders = BaseFolders { layer: Path::new(layer), beside: Path::new(WORK) };
        let base = BaseSandbox::new(&self.yard.folder, folders, self.ids, &command);
        let base = base.context(Kind::Machine, "make the base root")?;
        let said = self.run(&base.sandbox)?;
        // Scriptlets print to the same output; the list is after what they said.
        let is_entry = |line: &&str| {
            line.split_once(' ').is_some_and(|(name, version)| {
                kilnyard_ecosystem::rpm::recipe::is_name(name)
                    && version.contains('-')
                    && !version.contains(' ')
            })
        };
        let mut list: Vec<&str> = said.lines().rev().take_while(is_entry).collect();
        list.sort_unstable();
        Ok(list.iter().map(|line| format!("{line}\n")).collect())
    }

    /// Runs a step to its end, and returns its output, which is also the log of the base.
    fn run(&self, sandbox: &Sandbox) -> Result<String> {
        let Making { yard, cancel, .. } = *self;
        let mut output = Captured::new(OUTPUT_BYTES_MAX);
        let limits = yard.config.limits().limits(None);
        let outcome = kilnyard_process::run(sandbox, &mut output, limits, cancel, None, &mut |_| {});
        let said = String::from_utf8_lossy(&output.bytes).into_owned();
        let log = yard.path("logs/base.log");
        fs_err::create_dir_all(yard.path("logs"))
            .and_then(|()| fs_err::write(&log, &output.bytes))
            .context(Kind::Machine, "write logs/base.log")?;
        match outcome.end {
            End::Exit(0) => Ok(said),
            End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted while making the base root")),
            end => {
                let mut error = Error::new(Kind::Machine, "failed to make the base root");
                if !matches!(end, End::Exit(_)) {
                    error.causes.push(format!("{end:?}"));
                }
                let lines: Vec<&str> = said.lines().collect();
                let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
                error.causes.extend(last.iter().map(|line| (*line).to_owned()));
                Err(error.hint(format!("less {}", log.display())))
            }
        }
    }
}

/// Fetches an input into the distfiles.
pub fn fetch(files: &FileStore, input: &Input, cancel: &AtomicBool) -> Result<()> {
    let sha256 = Sha256Hex::parse(&input.sha256).or_internal("read a digest")?;
    let wanted =
        Wanted { urls: input.urls.clone(), sha256, size_bytes: input.size_bytes, name: input.name.clone() };
    files.ensure(&wanted, &|_| (), cancel).map(drop).context(Kind::Machine, format!("fetch {}", input.name))
}
