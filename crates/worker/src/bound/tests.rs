//! Tests of the bound, with real folders, and with real processes that are killed.

use super::*;
use crate::damage;
use crate::kept::{KEPT_WORK, Kept};
use crate::layers::{DEPENDENCIES, Layers};
use crate::trees::Trees;
use kilnyard_artifacts::{Artifacts, Storage};
use kilnyard_mirror::{FileStore, Limits};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::order::SharedFolder;
use kilnyard_root::{IdMap, Mapper};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The variable that has a test perform the removal that is killed: the folder.
const VICTIM: &str = "KILNYARD_TEST_VICTIM";
const TEST: &str = "bound::tests::a_killed_removal_leaves_entries_that_are_complete_or_gone";

struct Trial {
    yard: PathBuf,
    trees: Trees,
    layers: Layers,
    store: FileStore,
    ids: IdMap,
    uses: Arc<Uses>,
}

impl Trial {
    fn at(yard: &Path) -> Trial {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let ids = IdMap { users: vec![(0, user, 1)], groups: vec![(0, group, 1)], mapper: Mapper::Root };
        for folder in ["roots", "layers", "logs"] {
            fs::create_dir_all(yard.join(folder)).unwrap();
        }
        let layers = Layers::new(yard, &ids, u64::MAX);
        layers.sweep().unwrap();
        Trial {
            yard: yard.to_owned(),
            trees: Trees::new(yard, &ids),
            layers,
            store: FileStore::open(&yard.join("distfiles"), Limits::default()).unwrap(),
            ids,
            uses: Arc::default(),
        }
    }

    fn tidy(&self, bytes_max: u64) -> Tidied {
        let (yard, ids, uses) = (self.yard.as_path(), &self.ids, &*self.uses);
        let work = Kept::new(yard, u64::MAX);
        let kinds: [&dyn Kind; 5] = [
            &trees::KeptTrees { trees: &self.trees, yard, ids, uses },
            &self.layers,
            &files::KeptFiles { store: &self.store, yard, uses },
            &logs::KeptLogs { yard, uses },
            &work,
        ];
        let tidied = tidy(&kinds, &|_| bytes_max).unwrap();
        assert_eq!(tidied.problems, [""; 0]);
        tidied
    }

    /// Makes a tree of this number of files, as if it had been unpacked.
    fn tree(&self, seed: &str, files: usize) -> Artifact {
        let (sha256, size_bytes) =
            self.trees.archives().insert(&mut seed.as_bytes(), Storage::Compressed).unwrap();
        let tree = Artifact { sha256, size_bytes, media: Media::Tree };
        let layer = self.trees.layer(&tree);
        let part = format!("{layer}.part");
        fs::create_dir(self.yard.join(&part)).unwrap();
        for number in 0..files {
            fs::write(self.yard.join(&part).join(number.to_string()), "content").unwrap();
        }
        damage::write_manifest(&self.yard, &layer, &part).unwrap();
        fs::rename(self.yard.join(part), self.yard.join(layer)).unwrap();
        tree
    }

    fn file(&self, text: &str) -> Sha256Hex {
        self.store.artifacts().insert(&mut text.as_bytes(), Storage::Plain).unwrap().0
    }

    fn log(&self, name: &str) {
        let folder = self.yard.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1-build.log.zst"), "log").unwrap();
    }

    fn work(&self, owner: &str) {
        let folder = self.yard.join(KEPT_WORK);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{}-{}-1.tar", owner.repeat(64), "0".repeat(64))), "work").unwrap();
    }

    fn package(&self, hash: &str) {
        let files = self.yard.join("written");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("file"), vec![1; 10_000]).unwrap();
        self.layers.keep_package(hash, &["layers/base".to_owned()], &files, "").unwrap();
    }

    fn has(&self, tree: &Artifact) -> bool {
        self.trees.is_whole(tree)
    }

    /// Everything as it was used this long ago.
    fn age(&self, seconds: u64, paths: &[PathBuf]) {
        let then = now() - Duration::from_secs(seconds);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        for path in paths {
            fs::File::open(path).unwrap().set_times(times).unwrap();
        }
    }

    fn manifest(&self, tree: &Artifact) -> PathBuf {
        self.yard.join(format!("{}.manifest", self.trees.layer(tree)))
    }
}

/// A root that shows a tree.
fn showing(tree: &Artifact) -> RootOrder {
    let content = Some(FolderContent::Tree(tree.clone()));
    let (name, inside) = ("recipes".to_owned(), "/recipes".to_owned());
    RootOrder { folders: vec![SharedFolder { name, inside, names: None, content }], ..RootOrder::default() }
}

fn entry(name: &str, bytes: u64, age: u64, is_needed: bool) -> Entry {
    let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age);
    Entry { name: name.to_owned(), bytes, used, is_needed }
}

#[test]
fn the_least_recently_used_entries_go_first_whatever_their_kind() {
    let kinds = [
        (What::Tree, vec![entry("a", 10, 5, false), entry("b", 10, 9, true)]),
        (What::File, vec![entry("c", 1, 7, false), entry("d", 10, 7, false), entry("e", 0, 99, false)]),
    ];
    let named = |bytes_max| -> Vec<&str> {
        let chosen = excess(&kinds, bytes_max);
        chosen.iter().map(|(kind, place)| kinds[*kind].1[*place].name.as_str()).collect()
    };
    assert_eq!(named(31), [""; 0]);
    assert_eq!(named(30), ["d"]);
    assert_eq!(named(20), ["d", "c"]);
    assert_eq!(named(0), ["d", "c", "a"], "what is needed stays, and what has no size");
    let huge = [(What::File, vec![entry("a", u64::MAX, 1, false), entry("b", u64::MAX, 2, false)])];
    assert_eq!(excess(&huge, 5), [(0, 1)]);
}

#[test]
fn everything_is_listed_and_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::at(folder.path());
    let (old, new) = (trial.tree("old", 3), trial.tree("new", 3));
    let (file, other) = (trial.file("file"), trial.file("other"));
    trial.log("logs/1/category/package");
    trial.package("aa");
    trial.work("a");
    // A file that is being fetched.
    for folder in [trial.store.artifacts().folder(), trial.trees.archives().folder()] {
        fs::write(folder.join("insert-1-0.part"), "half").unwrap();
    }
    trial.age(500, &[trial.manifest(&old), trial.trees.archives().find(&old.sha256).unwrap()]);
    trial.age(900, &[trial.store.path(&file)]);
    let all = trial.tidy(u64::MAX);
    assert_eq!(all.kept.trees, [new.sha256.clone(), old.sha256.clone()]);
    assert_eq!((all.kept.layers, all.kept.files, all.removed), (1, 2, 0));
    // The oldest, whose use is recorded without changing what builds see of it.
    let changed = fs::metadata(trial.store.path(&file)).unwrap().modified().unwrap();
    files::touch(&trial.store, &file);
    assert_eq!(fs::metadata(trial.store.path(&file)).unwrap().modified().unwrap(), changed);
    let less = trial.tidy(all.kept.bytes - 1);
    assert!(!trial.has(&old) && !trial.trees.has_archive(&old) && !trial.manifest(&old).exists());
    assert!(trial.has(&new) && trial.store.contains(&file) && trial.store.contains(&other));
    assert_eq!(less.kept.bytes + less.removed_bytes, all.kept.bytes);
    assert_eq!(trial.tidy(0), Tidied { removed: 6, removed_bytes: less.kept.bytes, ..Tidied::default() });
    assert!(fs::read_dir(folder.path().join(KEPT_WORK)).unwrap().next().is_none());
    assert!(!folder.path().join("logs/1").exists() && folder.path().join("logs").exists());
}

#[test]
fn what_a_running_build_uses_stays() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::at(folder.path());
    let (used, free) = (trial.tree("used", 3), trial.tree("free", 3));
    let (file, part) = (trial.file("file"), "c".repeat(64));
    let path = trial.store.path(&Sha256Hex::parse(&part).unwrap());
    let path = path.with_file_name(format!("{part}.part"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "half").unwrap();
    trial.log("logs/7/app");
    trial.package("aa");
    let layer = trial.layers.hold(&[trial.layers.entries().unwrap()[0].name.clone()]).unwrap();
    let root = showing(&used);
    let names: Vec<String> = named(&root).map(str::to_owned).collect();
    assert_eq!(names, [used.sha256.to_string()]);
    let more = [file.to_string(), part, logs::name(7, "app")];
    let build = Uses::hold(&trial.uses, names.into_iter().chain(more).collect());
    let kept = trial.tidy(0).kept;
    assert!(trial.has(&used) && !trial.has(&free));
    assert!(trial.store.contains(&file) && path.exists());
    assert!(folder.path().join("logs/7/app").exists());
    assert_eq!((kept.trees.len(), kept.layers, kept.files), (1, 1, 2));
    drop((build, layer));
    assert_eq!(trial.tidy(0).kept.bytes, 0);
}

#[test]
fn what_roots_of_failed_builds_need_stays() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::at(folder.path());
    let (base, recipes, free) = (trial.tree("base", 3), trial.tree("recipes", 3), trial.tree("free", 3));
    let failed = folder.path().join("roots/failed-x");
    fs::create_dir(&failed).unwrap();
    fs::write(failed.join("layers"), format!("{}\n", trial.trees.layer(&base))).unwrap();
    let order = showing(&recipes);
    fs::write(failed.join("order.json"), serde_json::to_vec(&order).unwrap()).unwrap();
    trial.tidy(0);
    assert_eq!([&base, &recipes, &free].map(|tree| trial.has(tree)), [true, true, false]);
    // The build failed after the entries were listed.
    let kept =
        trees::KeptTrees { trees: &trial.trees, yard: folder.path(), ids: &trial.ids, uses: &trial.uses };
    assert!(!kept.discard(base.sha256.as_str()).unwrap() && trial.has(&base));
    fs::remove_dir_all(failed).unwrap();
    trial.tidy(0);
    assert!(!trial.has(&base) && !trial.has(&recipes));
}

#[test]
fn names_that_are_not_hashes_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::at(folder.path());
    for path in ["layers/base", "layers/ab", "distfiles/ab", "distfiles/some"] {
        fs::create_dir_all(folder.path().join(path)).unwrap();
        fs::write(folder.path().join(path).join("file"), "text").unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "text").unwrap();
    // A link is neither a file nor a folder of the worker.
    let hash = "a".repeat(64);
    std::os::unix::fs::symlink(outside.path().join("file"), folder.path().join("distfiles/ab").join(&hash))
        .unwrap();
    assert_eq!(trial.tidy(0), Tidied::default());
    assert!(outside.path().join("file").exists() && folder.path().join("layers/base/file").exists());
}

/// Lists names in the folder that end with `.part`, but those of fetches.
fn parts(yard: &Path) -> Vec<String> {
    let folders = ["layers", "layers/dependencies/packages", "distfiles", "layers/archives"];
    let all = folders.iter().flat_map(|folder| trees::names(&yard.join(folder)).unwrap());
    all.filter(|name| name.ends_with(".part")).collect()
}

const FILES: usize = 500;

#[test]
fn a_killed_removal_leaves_entries_that_are_complete_or_gone() {
    if let Ok(victim) = std::env::var(VICTIM) {
        Trial::at(Path::new(&victim)).tidy(0);
        return;
    }
    let mut interrupted = 0;
    for round in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::at(folder.path());
        let all: Vec<Artifact> = ["a", "b", "c"].map(|seed| trial.tree(seed, FILES)).into();
        let files: Vec<Sha256Hex> = ["d", "e", "f"].map(|text| trial.file(text)).into();
        ["aa", "bb"].iter().for_each(|hash| trial.package(hash));
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args([TEST, "--exact", "--test-threads=1"]).env(VICTIM, folder.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while parts(folder.path()).is_empty() && child.try_wait().unwrap().is_none() && Instant::now() < end {
        }
        std::thread::sleep(Duration::from_millis(2 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted += usize::from(!parts(folder.path()).is_empty());
        for tree in all.iter().filter(|tree| trial.has(tree)) {
            let layer = folder.path().join(trial.trees.layer(tree));
            assert_eq!(fs::read_dir(layer).unwrap().count(), FILES);
            assert!(trial.manifest(tree).exists());
            assert_eq!(damage::find_damage(folder.path(), &trial.trees.layer(tree)), None);
        }
        for (sha256, text) in files.iter().zip(["d", "e", "f"]) {
            assert!(
                !trial.store.contains(sha256)
                    || fs::read(trial.store.path(sha256)).unwrap() == text.as_bytes()
            );
        }
        // The next process removes the rest, and finds the others.
        let next = Trial::at(folder.path());
        assert_eq!(trees::remove_parts(folder.path(), &next.ids).unwrap(), []);
        assert_eq!(parts(folder.path()), [""; 0]);
        let kept = next.tidy(u64::MAX);
        let whole = all.iter().filter(|tree| next.has(tree) || next.trees.has_archive(tree)).count();
        assert_eq!(kept.kept.trees.len(), whole);
        assert!(kept.kept.layers <= 2);
        assert_eq!(next.tidy(0).kept.bytes, 0);
        assert_eq!(trees::names(&folder.path().join("layers")).unwrap().len(), 2, "archives, dependencies");
        let claim = next.layers.claim(vec!["packages/aa".to_owned()], &AtomicBool::new(false));
        assert!(claim.is_some() && folder.path().join(DEPENDENCIES).exists());
    }
    assert!(interrupted > 0, "no removal was interrupted");
}

#[test]
fn remains_of_copies_are_removed_and_those_of_fetches_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::at(folder.path());
    let part = format!("distfiles/cc/{}.part", "c".repeat(64));
    for path in ["distfiles/insert-1-0.part", "layers/archives/insert-1-0.part", &part, "layers/x.manifest"] {
        fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
        fs::write(folder.path().join(path), "half").unwrap();
    }
    for store in [trial.store.artifacts().folder(), trial.trees.archives().folder()] {
        files::remove_parts(store).unwrap();
    }
    trees::remove_parts(folder.path(), &trial.ids).unwrap();
    assert_eq!(parts(folder.path()), [""; 0]);
    assert!(folder.path().join(&part).exists() && !folder.path().join("layers/x.manifest").exists());
    // A fetch can be resumed, but not for ever.
    assert_eq!(trial.tidy(0).removed, 1);
}
