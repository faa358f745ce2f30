//! Values of the tables `[package.NAME]`, each checked when it is parsed, so that an error names its line.

use kilnyard_model::text::is_misleading;
use serde::Deserialize;

/// The longest note. It is shown on one line.
const NOTE_CHARACTERS_MAX: usize = 500;
/// The longest name of a variable.
const VARIABLE_BYTES_MAX: usize = 128;
/// The longest value of a variable, far below what the kernel accepts for a command (128 KiB).
const VALUE_BYTES_MAX: usize = 16 << 10;
/// The longest profile or option.
const WORD_BYTES_MAX: usize = 256;
/// The longest path of a kept folder.
const FOLDER_BYTES_MAX: usize = 256;

/// Variables that Kilnyard sets for every command, for the network, or for the jobserver.
const OURS: [&str; 17] = [
    "CARGO_MAKEFLAGS",
    "FTP_PROXY",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LC_ALL",
    "LOGNAME",
    "NO_PROXY",
    "PATH",
    "SHELL",
    "TERM",
    "TZ",
    "USER",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Variables that change what every program, shell or make does, including Kilnyard's own commands in a root.
const OF_PROGRAMS: [&str; 15] = [
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GNUMAKEFLAGS",
    "IFS",
    "MAKEFILES",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MAKEOVERRIDES",
    "MFLAGS",
    "PS4",
    "SHELLOPTS",
];
/// Prefixes of more such variables.
const BEGINNINGS: [&str; 4] = ["BASH_FUNC_", "FAKEROOT", "KILNYARD_", "LD_"];

/// The name of an environment variable that a package may have.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub struct VariableName(pub String);

impl TryFrom<String> for VariableName {
    type Error = String;

    fn try_from(name: String) -> Result<VariableName, String> {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_letter)
            && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
            && name.len() <= VARIABLE_BYTES_MAX;
        if !is_name {
            return Err(format!(
                "`{}` is not the name of an environment variable: letters, digits and _, and no digit first",
                name.escape_debug()
            ));
        }
        if OURS.contains(&name.as_str()) {
            return Err(format!("the environment variable {name} is set by Kilnyard, and cannot be changed"));
        }
        let is_of_programs = OF_PROGRAMS.contains(&name.as_str())
            || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        if is_of_programs {
            return Err(format!(
                "the environment variable {name} changes Kilnyard's own commands in a root, and cannot be set"
            ));
        }
        Ok(VariableName(name))
    }
}

/// The value of an environment variable, on one line: keys and logs show it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct VariableValue(pub String);

impl TryFrom<String> for VariableValue {
    type Error = String;

    fn try_from(value: String) -> Result<VariableValue, String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value of a variable must have at most {VALUE_BYTES_MAX} bytes"));
        }
        match value.chars().any(is_unshowable) {
            true => Err("the value of a variable must have no control characters".to_owned()),
            false => Ok(VariableValue(value)),
        }
    }
}

/// A build profile, or an option of a package's build.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Word(pub String);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(word: String) -> Result<Word, String> {
        let is_word = !word.is_empty()
            && word.len() <= WORD_BYTES_MAX
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.,=_:/".contains(&byte));
        match is_word {
            true => Ok(Word(word)),
            false => Err(format!(
                "`{}` is not one word of letters, digits and + - . , = _ : /",
                word.escape_debug()
            )),
        }
    }
}

/// A folder of a source, relative to the source, that is kept for the package's next build.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct KeptFolder(pub String);

impl TryFrom<String> for KeptFolder {
    type Error = String;

    fn try_from(folder: String) -> Result<KeptFolder, String> {
        // Commands and keys name it, so it has no character that a shell or dpkg-buildpackage would replace.
        let is_name = |name: &str| {
            !matches!(name, "" | "." | "..")
                && !name.starts_with('-')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-._=@".contains(&byte))
        };
        let is_folder = folder.len() <= FOLDER_BYTES_MAX && folder.split('/').all(is_name);
        match is_folder {
            true => Ok(KeptFolder(folder)),
            false => Err(format!(
                "`{}` is not a folder of the source: names of letters, digits and + - . _ = @, with / between them",
                folder.escape_debug()
            )),
        }
    }
}

/// A remark of the yard's owner, on one line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Note(pub String);

impl TryFrom<String> for Note {
    type Error = String;

    fn try_from(text: String) -> Result<Note, String> {
        if text.chars().count() > NOTE_CHARACTERS_MAX {
            return Err(format!("a note must have at most {NOTE_CHARACTERS_MAX} characters"));
        }
        match text.chars().any(is_unshowable) {
            true => Err("a note must be one line without control characters".to_owned()),
            false => Ok(Note(text)),
        }
    }
}

/// Whether a character controls a terminal, or changes how others are displayed.
fn is_unshowable(character: char) -> bool {
    character.is_control() || is_misleading(character)
}

/// The expected outcome of a package's build.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// It succeeds, as is usual.
    Success,
    /// It fails, or cannot be built at all.
    Failure,
}
