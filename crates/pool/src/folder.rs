//! The private folder that a pilot starts in, for managers that run it on a file system that this process reaches.

use crate::text::quoted;
use crate::{Launch, PilotName, PoolError};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
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
         trap 'kill -TERM \"$pilot\" 2>/dev/null' TERM\n\
         /bin/sh \"$folder/run\" &\n\
         pilot=$!\n\
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
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

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
