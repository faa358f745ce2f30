//! What a pilot runs, and the folder from which it runs.

use crate::PoolError;
use crate::text::quoted;
use std::collections::BTreeMap;
use std::fmt;

/// The most files of a launch.
pub const FILES_MAX: usize = 16;
/// The most bytes of a launch's command, environment and files together. Kubernetes stores at most 1 MiB in a Secret.
pub const LAUNCH_BYTES_MAX: usize = 512 << 10;

/// What a pilot runs.
///
/// The command starts in an empty folder of its own, and finds its files in `files/` there: `--token-file files/token`.
/// Files and environment are given only to the pilot, since they can be secret; every driver says how. The command line is
/// not secret: all users of a machine can see it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments. A program without `/` is searched in the `PATH` of the environment, or else in that of
    /// the machine.
    pub command: Vec<String>,
    /// The environment in addition to the machine's.
    pub environment: BTreeMap<String, String>,
    /// The files by name: letters, digits, `.`, `_` and `-`.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Launch {
    /// Without what can be secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<String>>();
        let mut debug = formatter.debug_struct("Launch");
        debug.field("command", &self.command);
        debug.field("environment", &names(self.environment.keys().collect()));
        debug.field("files", &names(self.files.keys().collect())).finish()
    }
}

impl Launch {
    /// Fails if a part cannot be passed to a program, or if it is too large.
    pub fn check(&self) -> Result<(), PoolError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(PoolError::invalid("command", "", "a program and its arguments"));
        }
        let texts = self.command.iter().chain(self.environment.values());
        if let Some(text) = texts.clone().find(|text| text.contains('\0')) {
            return Err(PoolError::invalid("argument", text, "text without NUL"));
        }
        if let Some(name) = self.environment.keys().find(|name| !is_variable(name)) {
            return Err(PoolError::invalid("name of a variable", name, "letters, digits and _"));
        }
        if let Some(name) = self.files.keys().find(|name| !is_file_name(name)) {
            return Err(PoolError::invalid("name of a file", name, "letters, digits, ., _ and -"));
        }
        let names = self.environment.keys().chain(self.files.keys()).map(String::len).sum::<usize>();
        let size =
            names + texts.map(String::len).sum::<usize>() + self.files.values().map(Vec::len).sum::<usize>();
        if self.files.len() > FILES_MAX || size > LAUNCH_BYTES_MAX {
            let size = format!("{} files, {size} bytes", self.files.len());
            return Err(PoolError::invalid("launch", &size, "at most 16 files and 512 KiB in all"));
        }
        Ok(())
    }

    /// A POSIX shell script that becomes the command, in the folder in which the script is. It contains the environment,
    /// so only the pilot's user may read it.
    pub(crate) fn script(&self) -> String {
        let mut script = "#!/bin/sh\ncd -- \"${0%/*}\" || exit 70\numask 077\n".to_owned();
        for (name, value) in &self.environment {
            script.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        // `exec` of dash has no `--`; a program whose name begins with `-` is refused by the shell.
        script.push_str(&format!("exec {}\n", words.join(" ")));
        script
    }
}

fn is_variable(name: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
}

fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    name.len() <= 100
        && name.bytes().all(is_plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            command: vec!["echo".to_owned(), "it's $HOME\n`x`".to_owned()],
            environment: BTreeMap::from([("A_1".to_owned(), "'\"$(false)".to_owned())]),
            files: BTreeMap::from([("token".to_owned(), b"secret".to_vec())]),
        }
    }

    #[test]
    fn a_launch_is_checked() {
        launch().check().unwrap();
        let wrong: [fn(&mut Launch); 8] = [
            |launch| launch.command.clear(),
            |launch| launch.command[0].clear(),
            |launch| launch.command[1].push('\0'),
            |launch| drop(launch.environment.insert("A=B".to_owned(), String::new())),
            |launch| drop(launch.environment.insert("1A".to_owned(), String::new())),
            |launch| drop(launch.files.insert("../x".to_owned(), Vec::new())),
            |launch| drop(launch.files.insert("..".to_owned(), Vec::new())),
            |launch| drop(launch.files.insert("x".to_owned(), vec![0; LAUNCH_BYTES_MAX])),
        ];
        for (at, change) in wrong.iter().enumerate() {
            let mut launch = launch();
            change(&mut launch);
            assert!(launch.check().is_err(), "{at}");
        }
    }

    #[test]
    fn the_script_runs_the_command_as_given() {
        let folder = tempfile::tempdir().unwrap();
        let mut launch = launch();
        launch.command = ["sh", "-c", "printf '%s|' \"$A_1\" \"$0\" \"$PWD\"", "it's $HOME\n`x`"]
            .map(str::to_owned)
            .to_vec();
        let path = folder.path().canonicalize().unwrap().join("run");
        std::fs::write(&path, launch.script()).unwrap();
        let output = std::process::Command::new("/bin/sh").arg(&path).output().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let expected = format!("'\"$(false)|it's $HOME\n`x`|{}|", folder.display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", launch());
        assert!(shown.contains("token") && !shown.contains("secret") && !shown.contains("false"), "{shown}");
    }
}
