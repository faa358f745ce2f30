use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A source and the files of Kilnyard, in a folder of this machine: the script knows no root.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    /// A source that was just unpacked: its files have the times of their archive.
    fn new() -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        fs::write(scene.path("keep.sh"), SCRIPT).unwrap();
        fs::write(scene.path("kept-build"), "12").unwrap();
        scene.unpack();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn unpack(&self) {
        let _ = fs::remove_dir_all(self.path("source"));
        fs::create_dir_all(self.path("source/debian")).unwrap();
        for name in ["a.c", "a file\nof two lines.h", "debian/changelog"] {
            self.write(name, "first", 1_000_000_000);
        }
    }

    fn write(&self, name: &str, text: &str, seconds: u64) {
        let path = self.path("source").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        set_time(&path, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    }

    /// Performs a task with these folders, and returns its output.
    fn perform(&self, task: &str, folders: &[&str]) -> Vec<u8> {
        let path = |name: &str| self.path(name).display().to_string();
        let own = [path("keep.sh"), task.to_owned(), path("state"), path("kept.tar"), path("kept-build")];
        let output = Command::new("/bin/sh").args(own).arg(path("source")).args(folders).output().unwrap();
        assert!(output.status.success(), "{task}: {output:?}");
        output.stdout
    }

    fn begin(&self, folders: &[&str]) -> String {
        String::from_utf8(self.perform("begin", folders)).unwrap()
    }

    /// Builds for the first time, and keeps the work.
    fn build_first(&self) {
        assert_eq!(self.begin(&["obj", "sub/out"]), "");
        assert_eq!(self.perform("report", &["obj", "sub/out"]), b"");
        self.write("obj/a.o", "object", now_seconds());
        self.write("sub/out/b.o", "object", now_seconds());
        self.keep();
    }

    fn keep(&self) {
        let archive = self.perform("pack", &["obj", "sub/out", "none"]);
        assert!(!archive.is_empty());
        fs::write(self.path("kept.tar"), archive).unwrap();
        self.unpack();
    }

    fn is_newer(&self, one: &str, other: &str) -> bool {
        let time = |name: &str| fs::metadata(self.path("source").join(name)).unwrap().modified().unwrap();
        time(one) > time(other)
    }
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 1
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Waits until the times of the first build are past: its objects were written a second in the future.
fn later() {
    std::thread::sleep(Duration::from_millis(2100));
}

#[test]
fn changed_files_are_newer_than_objects_whatever_their_times_say() {
    let scene = Scene::new();
    scene.build_first();
    later();
    // A change with the old time, a new file with an older one, the changelog of each rebuild, and a file that was
    // written when it was unpacked, as a patched one is.
    scene.write("a.c", "other", 1_000_000_000);
    scene.write("new.c", "new", 5);
    scene.write("debian/changelog", "second", 1_000_000_000);
    scene.write("a file\nof two lines.h", "first", now_seconds());
    let said = scene.begin(&["obj", "sub/out"]);
    assert_eq!(said, "kilnyard: kept work of build 12 was put back; files of the source that changed: 2\n");
    assert_eq!(scene.perform("report", &["obj", "sub/out"]), b"2\n");
    for name in ["a.c", "new.c"] {
        assert!(scene.is_newer(name, "obj/a.o") && scene.is_newer(name, "sub/out/b.o"), "{name}");
    }
    assert!(!scene.is_newer("a file\nof two lines.h", "obj/a.o"));
    // An object that was not built again is older than what changed before, but it was built with that.
    scene.keep();
    scene.write("a.c", "other", 1_000_000_000);
    scene.write("new.c", "new", now_seconds());
    later();
    assert!(scene.begin(&["obj", "sub/out"]).contains("changed: 0\n"));
    assert!(!scene.is_newer("a.c", "obj/a.o") && !scene.is_newer("new.c", "obj/a.o"));
}

#[test]
fn nothing_is_put_back_where_times_or_names_would_mislead() {
    let scene = Scene::new();
    scene.build_first();
    later();
    let begin = |scene: &Scene| {
        let said = scene.begin(&["obj", "sub/out"]);
        assert!(!scene.path("source/obj").exists() || said.contains("part of the source"), "{said}");
        assert_eq!(scene.perform("report", &["obj"]), b"");
        said
    };
    fs::remove_file(scene.path("source/a.c")).unwrap();
    assert!(begin(&scene).contains("the kept work of build 12 is not used: 1 files of the source are gone"));
    scene.unpack();
    std::os::unix::fs::symlink("a.c", scene.path("source/link")).unwrap();
    assert!(begin(&scene).contains("links of the source have changed"));
    scene.unpack();
    scene.write("obj/of-source", "", 7);
    assert!(begin(&scene).contains("no work is kept: obj is part of the source"));
    assert_eq!(scene.perform("pack", &["obj"]), b"");
    scene.unpack();
    fs::write(scene.path("kept.tar"), "not an archive").unwrap();
    assert!(begin(&scene).contains("it cannot be unpacked"));
    // Kept by a build whose clock was ahead.
    let _ = fs::remove_file(scene.path("kept.tar"));
    assert_eq!(scene.begin(&["obj"]), "");
    scene.write("obj/a.o", "object", now_seconds() + 3600);
    scene.keep();
    assert!(begin(&scene).contains("it is newer than this build"));
}

#[test]
fn folders_of_kilnyard_and_of_the_packaging_cannot_be_kept() {
    for folder in [".kilnyard", ".kilnyard/old", "debian", "debian/.debhelper", ".pc"] {
        assert!(is_reserved_folder(folder), "{folder}");
    }
    for folder in ["obj-x86_64-linux-gnu", "debian/build", "build/debian"] {
        assert!(!is_reserved_folder(folder), "{folder}");
    }
}
