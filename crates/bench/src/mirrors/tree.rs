//! A tree of recipes that has changed in some files: what another machine needs of it.

use crate::error::{Context, Kind, Result};
use crate::figures::{Report, Series, Unit};
use crate::scratch::Scratch;
use crate::yard::Yard;
use crate::{Trial, check_interrupt};
use kilnyard_artifacts::{Artifacts, Folder, Storage};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_root::archive::{Stamps, pack_changes};
use kilnyard_worker::Trees;
use std::path::Path;
use std::time::Instant;

/// Packages of the tree, files of each, and files that change.
const PACKAGES: usize = 20_000;
const FILES: usize = 6;
const CHANGED: usize = 20;
/// The aims: seconds, and bytes.
const SECONDS: f64 = 1.0;
const BYTES: f64 = 200e3;

fn write(tree: &Path, package: usize, file: usize, text: &str) -> Result<()> {
    let folder = tree.join(format!("category-{}/package-{package}", package % 60));
    let failed = "write a tree";
    if file == 0 {
        fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
    }
    fs_err::write(folder.join(format!("file-{file}")), text.repeat(40)).context(Kind::Machine, failed)
}

/// Adds its figures.
pub fn measure(scratch: &Scratch, trial: &Trial<'_>, report: &mut Report) -> Result<()> {
    report.aim("a tree of 120,000 files after a change of 20 in 1 s and 200 KB");
    trial.say(format!("writing a tree of {} files", PACKAGES * FILES));
    let (tree, worker) = (scratch.path("tree"), scratch.path("worker"));
    for package in 0..PACKAGES {
        check_interrupt()?;
        (0..FILES).try_for_each(|file| write(&tree, package, file, &format!("{package} {file}\n")))?;
    }
    Yard::make_folders(&worker)?;
    let trees = Trees::new(&worker, &Yard::ids_of(&worker));
    let store = Folder::open(&scratch.path("store")).context(Kind::Machine, "open a store")?;
    let failed = "read a tree";
    // The times of files have a moment in which they do not tell contents apart.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut before = Stamps::read(&tree).context(Kind::Machine, failed)?;
    let (mut seconds, mut bytes) = (Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        check_interrupt()?;
        trial.say(format!("changes of the tree: {pair} of {}", trial.pairs));
        for number in 0..CHANGED {
            write(&tree, number * 997 % PACKAGES, 1, &format!("changed {pair} {number}\n"))?;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        let began = Instant::now();
        let now = Stamps::read(&tree).context(Kind::Machine, failed)?;
        let changes = now.changes_since(&before);
        let mut packed = Vec::new();
        pack_changes(&tree, &changes, &mut packed).context(Kind::Machine, failed)?;
        let kept = store.insert(&mut &packed[..], Storage::Compressed).context(Kind::Machine, failed)?;
        let layer = Artifact { sha256: kept.0, size_bytes: kept.1, media: Media::Tree };
        trees.fetch(std::slice::from_ref(&layer), &[], &store).context(Kind::Machine, failed)?;
        trees.ensure(std::slice::from_ref(&layer)).context(Kind::Machine, failed)?;
        seconds.push(began.elapsed().as_secs_f64());
        let sent = store.find(&layer.sha256).and_then(|path| fs_err::metadata(path).ok());
        bytes.push(sent.map_or(f64::INFINITY, |sent| sent.len() as f64));
        before = now;
    }
    let seconds = Series::new(
        "tree_seconds",
        "a tree of 120,000 files, 20 changed: until a worker has it",
        Unit::Seconds,
        seconds,
    );
    let bytes = Series::new("tree_bytes", "what is sent of it", Unit::Bytes, bytes);
    report.judge(seconds.median() <= SECONDS && bytes.median() <= BYTES, "the tree");
    report.series.extend([seconds, bytes]);
    Ok(())
}
