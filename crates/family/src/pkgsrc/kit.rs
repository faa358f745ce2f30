//! The bootstrap kit: the prefix with make and the package tools, as a layer above the system in every root.
//!
//! The kit comes from an archive, or from the tree's own `bootstrap/bootstrap`, run once in a root. Either way it is
//! identified by the hash of its inputs.
//!
//! Bootstrapping takes minutes, and adding a package makes a new base root. A bootstrapped kit is therefore kept for
//! every base of the same release in which its programs find their libraries; this is checked once for each base.
//! Such a kit does not use features of the added packages that a new bootstrap would find, just like a kit from an
//! archive.

use crate::debian::base;
use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::debian::Base;
use kilnyard_ecosystem::pkgsrc::stages::TREE;
use kilnyard_mirror::Sha256Hex;
use kilnyard_model::artifact::Artifact;
use kilnyard_model::order::{Account, CommandOrder};
use kilnyard_process::{End, Limits, Log};
use kilnyard_root::IdMap;
use kilnyard_root::sandbox::Task;
use kilnyard_worker::{RootFolder, ShownFolder};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::layers::{self, RecordedTree, keep_tree, machine_sandbox};
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The record of the current kit.
const RECORD: &str = "layers/kit.json";

/// The content of [`RECORD`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Made {
    asked: String,
    #[serde(flatten)]
    files: RecordedTree,
    digest: String,
    /// Digest of the base in which a bootstrapped kit was made, or was found to run.
    #[serde(default)]
    base: String,
}

impl Made {
    /// Finds the kit that was made for this configuration, in any base.
    fn find(yard: &Yard, pkgsrc: &Pkgsrc) -> Option<Made> {
        let made: Made = serde_json::from_slice(&fs_err::read(yard.path(RECORD)).ok()?).ok()?;
        (made.asked == asked(yard, pkgsrc) && made.files.is_there(yard)).then_some(made)
    }

    /// Whether the kit is already known to run in a base.
    fn is_for(&self, pkgsrc: &Pkgsrc, base: &Base) -> bool {
        pkgsrc.bootstrap_kit.is_some() || self.base == base.digest
    }

    /// Records this as the current kit.
    fn keep(self, yard: &Yard) -> Result<KitLayer> {
        let text = serde_json::to_vec_pretty(&self).or_internal("write the record of the bootstrap kit")?;
        write_whole(&yard.path(RECORD), &text)?;
        Ok(self.kit())
    }

    fn kit(self) -> KitLayer {
        KitLayer { tree: self.files.tree, digest: self.digest }
    }
}

/// A kit that exists as a layer.
#[derive(Clone, Debug)]
pub struct KitLayer {
    /// The kit's files; `None` if an earlier version of Kilnyard made the kit without packing them.
    pub tree: Option<Artifact>,
    /// A hash of the kit's inputs.
    pub digest: String,
}

/// The existing kit; `None` if there is none for this configuration and base.
pub fn find(yard: &Yard, pkgsrc: &Pkgsrc, base: &Base) -> Option<KitLayer> {
    Made::find(yard, pkgsrc).filter(|made| made.is_for(pkgsrc, base)).map(Made::kit)
}

/// The inputs of a kit: if they change, a new kit is needed.
fn asked(yard: &Yard, pkgsrc: &Pkgsrc) -> String {
    let of = |path: &Path| {
        let metadata = fs_err::metadata(path).ok()?;
        Some(format!("{} {} {:?}", path.display(), metadata.len(), metadata.modified().ok()?))
    };
    match &pkgsrc.bootstrap_kit {
        Some(archive) => format!("archive {}", of(archive).unwrap_or_default()),
        // As in pbulk, a changed tree does not need a new kit: its bootstrap changes only with releases.
        None => {
            let (tree, prefix, variables) =
                (pkgsrc.tree.display(), &pkgsrc.prefix, &pkgsrc.bootstrap_environment);
            format!("bootstrap {tree} {prefix} {variables:?} in {}", base::system(yard, &pkgsrc.root))
        }
    }
}

/// Returns the kit, and makes it first if it does not exist.
pub fn ensure(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    base: &Base,
    ids: &IdMap,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<KitLayer> {
    if let Some(made) = Made::find(yard, pkgsrc)
        && let Some(files) = made.files.clone().unpacked(yard, ids, "bootstrap kit", say)?
    {
        let made = Made { files, ..made };
        if made.is_for(pkgsrc, base) {
            return made.keep(yard);
        }
        if let Some(kit) = adopt(yard, pkgsrc, base, made, ids, cancel, say)? {
            return Ok(kit);
        }
    }
    let part = format!("layers/kit-{}.part", std::process::id());
    layers::remove_parts(yard, ids)?;
    let digest = match &pkgsrc.bootstrap_kit {
        Some(archive) => {
            say(&format!("unpacking the bootstrap kit {}", archive.display()));
            unpack(yard, ids, archive, &part)?
        }
        None => {
            say("making the bootstrap kit with the tree's bootstrap/bootstrap (once; a few minutes)");
            bootstrap(yard, pkgsrc, base, ids, cancel, &part)?
        }
    };
    check(yard, pkgsrc, base, &part)?;
    let files = RecordedTree::new(keep_tree(yard, ids, &part, None)?);
    Made { asked: asked(yard, pkgsrc), files, digest, base: base.digest.clone() }.keep(yard)
}

/// Prints the system's shared libraries that programs and libraries of the prefix need but do not find.
const LACKS: &str = r#"
find "$1" -type f '(' -perm -100 -o -name '*.so*' ')' -exec ldd '{}' + 2>&1 | grep 'not found' | sort -u | head -n 3
"#;
/// A kit has a few hundred programs, each looked up in milliseconds.
const LACKS_SECONDS_MAX: f64 = 600.0;

/// Keeps a kit that was bootstrapped in another base of the same release, if it runs in this one.
fn adopt(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    base: &Base,
    made: Made,
    ids: &IdMap,
    cancel: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Option<KitLayer>> {
    let failed = "check the bootstrap kit in the base root";
    let trees: Vec<Artifact> = made.files.tree.iter().chain(&base.tree).cloned().collect();
    let layers = yard.trees().ensure(&trees).context(Kind::Machine, failed)?;
    let Some(kit) = layers.first() else { return Ok(None) };
    check(yard, pkgsrc, base, kit)?;
    RootFolder::at(&yard.folder, "kit", ids, &[]).remove_or_set_aside();
    let root = RootFolder::create(&yard.folder, "kit", ids, &layers, &yard.config.roots.on_disk());
    let root = root.context(Kind::Machine, failed)?;
    let order = CommandOrder {
        arguments: ["/bin/sh", "-c", LACKS, "sh", &pkgsrc.prefix].map(str::to_owned).into(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: vec![("LC_ALL".to_owned(), "C".to_owned())],
    };
    let mut lacks = Vec::new();
    let limits = Limits::of_wall(LACKS_SECONDS_MAX);
    let outcome = kilnyard_process::run(&root.sandbox(&order), &mut lacks, limits, cancel, None, &mut |_| {});
    root.remove_or_set_aside();
    match outcome.end {
        End::Exit(0) if lacks.is_empty() => Made { base: base.digest.clone(), ..made }.keep(yard).map(Some),
        End::Exit(0) => {
            let lacks = kilnyard_model::text::lines(&String::from_utf8_lossy(&lacks));
            say(&format!("the bootstrap kit does not run in the new base root: {}", lacks.trim()));
            Ok(None)
        }
        End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted while checking the bootstrap kit")),
        end => {
            let mut error = Error::new(Kind::Machine, format!("failed to {failed}"));
            error.causes.push(format!("{end:?}"));
            Err(error)
        }
    }
}

/// Rejects a kit without make or with another prefix, which would fail every package in turn.
fn check(yard: &Yard, pkgsrc: &Pkgsrc, base: &Base, layer: &str) -> Result<()> {
    let below = |path: &str| yard.path(layer).join(path.trim_start_matches('/'));
    if !below(&pkgsrc.prefix).is_dir() {
        return Err(Error::usage(format!("the bootstrap kit has no {}", pkgsrc.prefix))
            .hint("prefix in kilnyard.toml, set to the prefix of the kit"));
    }
    let make = pkgsrc.make();
    // Symbolic links are not followed: an absolute one would point outside the layer.
    let is_in =
        |layer: &str| fs_err::symlink_metadata(yard.path(layer).join(make.trim_start_matches('/'))).is_ok();
    let base_layer = base.tree.as_ref().map(|tree| yard.trees().layer(tree));
    if !is_in(layer) && !base_layer.is_some_and(|layer| is_in(&layer)) {
        return Err(Error::usage(format!("neither the bootstrap kit nor the base root has {make}"))
            .hint("make in kilnyard.toml: the make program inside a root, such as /usr/bin/bmake"));
    }
    Ok(())
}

fn unpack(yard: &Yard, ids: &IdMap, archive: &Path, layer: &str) -> Result<String> {
    let failed = format!("read the bootstrap kit {}", archive.display());
    let copy = yard.path(&format!("{layer}.tar"));
    let digest = {
        let bytes = fs_err::read(archive).context(Kind::Usage, &failed)?;
        fs_err::write(&copy, &bytes).context(Kind::Machine, "copy the bootstrap kit")?;
        Sha256Hex::of(&bytes).as_str().to_owned()
    };
    let made = layers::make_layer(yard, ids, layer)
        .and_then(|()| layers::unpack(yard, ids, &copy, layer).map_err(|error| no_kit(archive, error)));
    let _ = fs_err::remove_file(&copy);
    made.map(|()| digest)
}

/// Number of tar's messages that an error shows: tar prints one for each file.
const LINES_SHOWN: usize = 3;

/// The error if a kit cannot be unpacked. tar's exit status does not show whether the archive or the disk is at
/// fault, but its messages do.
fn no_kit(archive: &Path, error: Error) -> Error {
    let mut wrong = Error::usage(format!("failed to unpack the bootstrap kit {}", archive.display()));
    let lines: Vec<&str> = error.causes.iter().flat_map(|cause| cause.lines()).collect();
    wrong.causes = lines.iter().take(LINES_SHOWN).map(|line| (*line).to_owned()).collect();
    if lines.len() > LINES_SHOWN {
        wrong.causes.push(format!("and {} more lines", lines.len() - LINES_SHOWN));
    }
    if lines.iter().any(|line| line.contains("Cannot change ownership")) {
        let ids = kilnyard_root::IDS_COUNT - 1;
        return wrong
            .hint(format!("its files have owners above {ids}: pack it again with tar --owner=0 --group=0"));
    }
    wrong.hint("bootstrap-kit in kilnyard.toml: an archive of the prefix that tar can unpack")
}

/// Working directory of the tree's bootstrap, inside its root.
const WORK: &str = "/build/bootstrap";

fn bootstrap(
    yard: &Yard,
    pkgsrc: &Pkgsrc,
    base: &Base,
    ids: &IdMap,
    cancel: &AtomicBool,
    layer: &str,
) -> Result<String> {
    let failed = "make the bootstrap kit";
    let script = pkgsrc.tree.join("bootstrap/bootstrap");
    if !script.is_file() {
        return Err(Error::usage(format!("{} does not exist", script.display()))
            .hint("bootstrap-kit in kilnyard.toml, with an archive of a bootstrapped prefix"));
    }
    let tree = ShownFolder { source: pkgsrc.tree.clone(), inside: TREE.to_owned() };
    // Remove the root that a killed process left.
    RootFolder::at(&yard.folder, "kit", ids, &[]).remove_or_set_aside();
    let making = yard.config.roots.on_disk();
    let layers = yard.trees().ensure(base.tree.as_slice()).context(Kind::Machine, failed)?;
    let root = RootFolder::create(&yard.folder, "kit", ids, &layers, &making);
    let root = root.context(Kind::Machine, failed)?.showing(&[tree]);
    let jobs = kilnyard_yard::shape::Shape::of(yard).jobs;
    let text = fs_err::read(&script).context(Kind::Usage, failed)?;
    let mut arguments = vec!["/bin/sh".to_owned(), format!("{TREE}/bootstrap/bootstrap")];
    arguments.extend([format!("--prefix={}", pkgsrc.prefix), format!("--workdir={WORK}")]);
    // Older trees do not have this option.
    if String::from_utf8_lossy(&text).contains("--make-jobs") {
        arguments.push(format!("--make-jobs={jobs}"));
    }
    // The script needs a shell whose echo does not interpret backslashes.
    let mut environment = BTreeMap::from([("SH".to_owned(), "/bin/bash".to_owned())]);
    environment.extend(pkgsrc.bootstrap_environment.clone());
    let order = CommandOrder {
        arguments,
        account: Account::Root,
        directory: "/build".to_owned(),
        environment: environment.into_iter().collect(),
    };
    let log_path = yard.path("logs/kit.log");
    let mut log =
        Log::create(&log_path, yard.config.log_limits()).context(Kind::Machine, "write logs/kit.log")?;
    let limits = yard.config.limits().limits(None);
    let outcome = kilnyard_process::run(&root.sandbox(&order), &mut log, limits, cancel, None, &mut |_| {});
    log.finish().context(Kind::Machine, "write logs/kit.log")?;
    let result = match outcome.end {
        End::Exit(0) => take_over(yard, ids, &root, layer),
        End::Cancelled => Err(Error::new(Kind::Interrupted, "interrupted while making the bootstrap kit")),
        end => {
            let text = kilnyard_process::read_log(&log_path).unwrap_or_default();
            let mut error = Error::new(Kind::Packages, format!("the tree's bootstrap failed: {end:?}"));
            let lines: Vec<&str> = text.lines().collect();
            error.causes.extend(lines[lines.len().saturating_sub(8)..].iter().map(|line| (*line).to_owned()));
            Err(error.hint(format!("zstdless {}.zst", log_path.display())))
        }
    };
    root.remove_or_set_aside();
    result?;
    Ok(Sha256Hex::of(format!("{} {}", asked(yard, pkgsrc), base.digest).as_bytes()).as_str().to_owned())
}

/// Turns the files that bootstrapping wrote into the layer, without its working directory.
fn take_over(yard: &Yard, ids: &IdMap, root: &RootFolder, layer: &str) -> Result<()> {
    let failed = "keep the bootstrap kit";
    let upper = root.written("/");
    let relative = upper.strip_prefix(&yard.folder).unwrap_or(&upper);
    let places = [WORK, "/tmp", "/dev", "/run"].map(|inside| relative.join(inside.trim_start_matches('/')));
    machine_sandbox(yard, ids, Task::Remove(places.into())).run().context(Kind::Machine, failed)?;
    fs_err::rename(&upper, yard.path(layer)).context(Kind::Machine, failed)
}
