//! The base root: the bottom layer of every build root, made once for a release and kept.

mod bootstrap;

use super::config::DebianRoot;
use kilnyard_ecosystem::debian::Base;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::order::{Account, CommandOrder, MachineTerms};
use kilnyard_process::now_seconds;
use kilnyard_root::IdMap;
use kilnyard_worker::{BaseFolders, remove_or_set_aside};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::layers::{RecordedTree, keep_tree, owners, remove_parts};
use kilnyard_yard::patches;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Working folder while a base is made.
const WORK: &str = "roots/base";

/// The record of the current base.
const RECORD: &str = "layers/base.json";

/// The content of [`RECORD`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Made {
    asked: String,
    #[serde(flatten)]
    files: RecordedTree,
    digest: String,
    packages: Vec<(String, String)>,
}

impl Made {
    fn last(yard: &Yard) -> Option<Made> {
        serde_json::from_slice(&fs_err::read(yard.path(RECORD)).ok()?).ok()
    }

    fn find(yard: &Yard, root: &DebianRoot) -> Option<Made> {
        let made = Made::last(yard)?;
        (made.asked == asked(yard, root) && made.files.is_there(yard)).then_some(made)
    }

    fn keep(self, yard: &Yard) -> Result<Base> {
        let text = serde_json::to_vec_pretty(&self).or_internal("write the record of the base root")?;
        write_whole(&yard.path(RECORD), &text)?;
        Ok(self.base())
    }

    fn base(self) -> Base {
        Base { tree: self.files.tree, digest: self.digest, packages: self.packages }
    }
}

/// The existing base; `None` if there is none for this configuration.
pub fn find(yard: &Yard, root: &DebianRoot) -> Option<Base> {
    Made::find(yard, root).map(Made::base)
}

/// The inputs of a base: if they change, a new base is needed.
fn asked(yard: &Yard, root: &DebianRoot) -> String {
    let packages = root.packages.join(",");
    let (release, owners) = (&root.release, owners(&yard.ids()));
    format!("{release} {:?} {:?} {} {packages} 1{owners}", root.suites, root.components, root.architecture)
}

/// Identifies the system of a base, whatever packages it has: a program made in one base runs in any other base of the
/// same system that has its libraries.
pub fn system(yard: &Yard, root: &DebianRoot) -> String {
    let owners = owners(&yard.ids());
    format!("{} {:?} {:?} {}{owners}", root.release, root.suites, root.components, root.architecture)
}

/// Returns the base, and makes it first if it does not exist.
pub fn ensure(
    yard: &Yard,
    root: &DebianRoot,
    ids: &IdMap,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Base> {
    remove_parts(yard, ids)?;
    if let Some(made) = Made::find(yard, root)
        && let Some(files) = made.files.clone().unpacked(yard, ids, "base root", say)?
    {
        return Made { files, ..made }.keep(yard);
    }
    say("making the base root (once; half a minute of CPU time)");
    let made_since_seconds = now_seconds() as u64;
    let layer_part = format!("layers/base-{}.part", std::process::id());
    bootstrap::bootstrap(yard, root, ids, &layer_part, cancel, say)?;
    let list = set_up(yard, ids, &layer_part)?;
    remove_or_set_aside(&yard.folder, Path::new(WORK), ids);
    let digest = Sha256Hex::of(list.as_bytes()).as_str().to_owned();
    let former = Made::last(yard).and_then(|made| made.files.tree).or_else(|| patches::former(yard));
    let files = RecordedTree::new(keep_tree(yard, ids, &layer_part, Some(made_since_seconds))?);
    if let (Some(former), Some(tree)) = (former, &files.tree) {
        patches::make(yard, &former, tree)?;
    }
    let packages =
        list.lines().filter_map(|line| line.split_once(' ')).map(|(n, v)| (n.to_owned(), v.to_owned()));
    let packages = packages.collect();
    Made { asked: asked(yard, root), files, digest, packages }.keep(yard)
}

/// Creates the builder's account, disables the index of manual pages and removes downloaded lists and caches; prints
/// the installed packages.
const SET_UP: &str = r#"
groupadd --gid 1000 builder
useradd --uid 1000 --gid 1000 --home-dir /nonexistent --no-create-home --shell /bin/sh builder
echo 'man-db man-db/auto-update boolean false' | debconf-set-selections
printf '127.0.0.1 localhost kilnyard\n::1 localhost kilnyard\n' > /etc/hosts
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/resolv.conf /var/lib/apt/lists/*_* /var/cache/apt/archives/*.deb
# These caches contain times of this machine.
rm -f /var/cache/apt/*.bin
mkdir -p /build /kilnyard/inputs /kilnyard/texts
chown builder:builder /build
dpkg-query --show --showformat '${Package} ${Version}\n'
"#;

/// The virtual machine for programs of the base, if this machine's processor does not run them.
fn machine_of(yard: &Yard) -> Option<MachineTerms> {
    yard.config.tables.usual_machine().filter(|machine| machine.processor.is_some())
}

fn set_up(yard: &Yard, ids: &IdMap, layer: &str) -> Result<String> {
    let command = CommandOrder {
        arguments: ["/bin/sh", "-eu", "-c", SET_UP].map(str::to_owned).into(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: vec![("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned())],
    };
    let folders = BaseFolders { layer: Path::new(layer), beside: Path::new(WORK) };
    let outcome = kilnyard_worker::run_in_base(&yard.folder, folders, ids, &command, machine_of(yard));
    outcome.context(Kind::Machine, "set up the base root")
}
