//! The private folder that a pilot starts in, for managers that run it on a file system that this process reaches.

use crate::text::quoted;
use crate::{Launch, Listing, PilotName, PilotState, PoolError, name};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the folder of a pilot that its manager does not have is kept: its submission may still arrive.
const FOLDER_KEPT: Duration = Duration::from_secs(600);

/// Makes `FOLDER/NAME` with `run`, which becomes the pilot's command, and its `files`. Only this user can enter it.
///
/// Fails if the pilot has a folder already, since a name is used once. The parent is made if it is missing.
pub(crate) fn make(parent: &Path, name: &PilotName, launch: &Launch) -> Result<PathBuf, PoolError> {
    let folder = parent.join(name.as_str());
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| PoolError::File { path, source }
    };
    let mut builder = DirBuilder::new();
    builder.mode(0o700).recursive(true).create(parent).map_err(failed(parent))?;
    builder.recursive(false).create(&folder).map_err(failed(&folder))?;
    let files = folder.join("files");
    builder.create(&files).map_err(failed(&files))?;
    let script = launch.script().into_bytes();
    let all = launch.files.iter().map(|(name, content)| (files.join(name), content));
    for (path, content) in all.chain([(folder.join("run"), &script)]) {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(content)).map_err(failed(&path))?;
    }
    Ok(folder)
}

/// Removes a folder that [`make`] made.
fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// A shell script that runs the pilot of a folder, passes SIGTERM on to it, and removes the folder after it has ended.
pub(crate) fn keeper(folder: &Path) -> Result<String, PoolError> {
    let folder = path_text("folder", folder)?;
    Ok(format!(
        "#!/bin/sh\n\
         # A pilot of Kilnyard. Its command, environment and files are in a folder that only its user can enter.\n\
         folder={}\n\
         pilot=\n\
         is_stopped=\n\
         trap 'if [ -n \"$pilot\" ]; then kill -TERM \"$pilot\" 2>/dev/null; else is_stopped=1; fi' TERM\n\
         /bin/sh \"$folder/run\" &\n\
         pilot=$!\n\
         # The signal may come before the number of the pilot is known.\n\
         if [ -n \"$is_stopped\" ]; then kill -TERM \"$pilot\" 2>/dev/null; fi\n\
         wait \"$pilot\"\n\
         code=$?\n\
         # A signal ends the wait, not the pilot, which ends its builds first.\n\
         while kill -0 \"$pilot\" 2>/dev/null; do\n\
         \twait \"$pilot\"\n\
         \tcode=$?\n\
         done\n\
         rm -rf -- \"$folder\"\n\
         exit \"$code\"\n",
        quoted(folder)
    ))
}

/// Removes what pilots left that their manager does not have any more. A pilot that ends removes its folder, a killed one does not.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    /// Names that have a folder and are not in lists, and since when. A cache of one driver: nothing else is done while it is locked.
    missing: Mutex<BTreeMap<PilotName, Instant>>,
}

impl Sweeper {
    /// Removes folders and logs below `parent` of names with this prefix that the listing has not had for [`FOLDER_KEPT`]. What
    /// cannot be read or removed is tried again with the next list.
    pub fn sweep(&self, parent: &Path, prefix: &str, listing: &Listing) {
        let Ok(entries) = fs::read_dir(parent) else { return };
        let lives = |name: &PilotName| {
            listing.pilots.iter().any(|one| one.name == *name && one.state != PilotState::Ended)
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names = names.filter(|name| name::begins_with(prefix, name));
        let names =
            names.filter_map(|name| PilotName::parse(name.strip_suffix(".log").unwrap_or(&name)).ok());
        let gone: BTreeSet<PilotName> = names.filter(|name| !lives(name)).collect();
        let old: Vec<PilotName> = {
            let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.retain(|name, _| gone.contains(name));
            let since = gone
                .into_iter()
                .map(|name| (*missing.entry(name.clone()).or_insert_with(Instant::now), name));
            since.filter(|(since, _)| since.elapsed() >= FOLDER_KEPT).map(|(_, name)| name).collect()
        };
        for name in old {
            let _ = remove(&parent.join(name.as_str()));
            let _ = fs::remove_file(parent.join(format!("{name}.log")));
        }
    }
}

/// A path that programs and scripts get as text: absolute, in UTF-8, on one line.
pub(crate) fn path_text<'path>(what: &'static str, path: &'path Path) -> Result<&'path str, PoolError> {
    let text = path.to_str().filter(|text| path.is_absolute() && !text.contains(['\n', '\r', '\0']));
    text.ok_or_else(|| {
        PoolError::invalid(what, &path.to_string_lossy(), "an absolute path in UTF-8 without line breaks")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn launch(script: &str) -> Launch {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        Launch {
            command,
            files: BTreeMap::from([("token".to_owned(), b"secret".to_vec())]),
            ..Launch::default()
        }
    }

    #[test]
    fn only_its_user_enters_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let name = PilotName::parse("a").unwrap();
        let folder = make(&parent.path().join("new"), &name, &launch("true")).unwrap();
        for (path, mode) in [("", 0o700), ("files", 0o700), ("run", 0o600), ("files/token", 0o600)] {
            assert_eq!(folder.join(path).metadata().unwrap().permissions().mode() & 0o777, mode, "{path}");
        }
        let again = make(&parent.path().join("new"), &name, &launch("true")).unwrap_err();
        assert!(again.line().contains("File exists"), "{}", again.line());
        remove(&folder).unwrap();
        remove(&folder).unwrap();
    }

    /// The shell signals itself between starting the pilot and keeping its number, a moment that a busy machine makes long.
    #[test]
    fn a_keeper_keeps_a_signal_that_comes_before_the_number_of_its_pilot() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        let script = format!("trap 'exit 7' TERM; echo on > {}; while :; do sleep 0.05; done", out.display());
        let folder = make(parent.path(), &PilotName::parse("a").unwrap(), &launch(&script)).unwrap();
        let early = format!(
            "/bin/sh \"$folder/run\" &\nuntil [ -e {} ]; do sleep 0.05; done\nkill -TERM $$\n",
            out.display()
        );
        let keeper = keeper(&folder).unwrap().replacen("/bin/sh \"$folder/run\" &\n", &early, 1);
        let mut child = Command::new("timeout").args(["20", "/bin/sh", "-c", &keeper]).spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert!(!folder.exists());
    }

    #[test]
    fn a_keeper_passes_the_signal_on_and_cleans_up() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        let script = format!(
            "trap 'sleep 0.3; echo term >> {0}; exit 7' TERM; echo on > {0}; while :; do sleep 0.05; done",
            out.display()
        );
        let folder = make(parent.path(), &PilotName::parse("a").unwrap(), &launch(&script)).unwrap();
        let mut child = Command::new("/bin/sh").args(["-c", &keeper(&folder).unwrap()]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !out.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(fs::read_to_string(&out).unwrap(), "on\nterm\n");
        assert!(!folder.exists());
    }
}
