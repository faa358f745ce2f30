//! What a build is made of: everything a worker needs to know, and nothing of the run.
//!
//! An ecosystem makes a [`BuildOrder`] for a package whose dependencies are there; a worker performs it
//! on any machine. Its [`Key`] is the hash of all that goes in, with the lines that were hashed, so that
//! two keys can be compared and their differences named.

use crate::artifact::Artifact;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A named step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Sources and binary packages come to this machine.
    Fetch,
    /// The source is checked, and unpacked where that is no part of the next step.
    Unpack,
    /// Dependencies are installed.
    Depends,
    /// The package is configured, where that is a step of its own.
    Configure,
    /// The package is built.
    Build,
    /// What was built goes into a folder as it will be installed, where that is a step of its own.
    Install,
    /// Binary packages are made, where that is a step of its own.
    Package,
    /// Outputs are read and taken over.
    Collect,
    /// Outputs are installed in a clean root and removed again.
    Test,
}

impl Stage {
    /// All stages. Families have some of them, and not all in this order.
    pub const ALL: [Stage; 9] = [
        Stage::Fetch,
        Stage::Unpack,
        Stage::Depends,
        Stage::Configure,
        Stage::Build,
        Stage::Install,
        Stage::Package,
        Stage::Collect,
        Stage::Test,
    ];

    /// The stage's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Fetch => "fetch",
            Stage::Unpack => "unpack",
            Stage::Depends => "depends",
            Stage::Configure => "configure",
            Stage::Build => "build",
            Stage::Install => "install",
            Stage::Package => "package",
            Stage::Collect => "collect",
            Stage::Test => "test",
        }
    }

    /// The stage of this name.
    pub fn parse(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.as_str() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The key of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The hash of the lines, in hexadecimal digits.
    pub digest: String,
    /// What was hashed: a line `KIND NAME VALUE` for each thing that goes in, ordered.
    pub lines: Vec<String>,
}

/// A file that must be there before a build begins, by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The file's name in the root's folder of inputs.
    pub name: String,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// Where it can be had; empty for what the yard made itself.
    pub urls: Vec<String>,
}

/// A small file of Kilnyard's own that is written into the root's folder of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputText {
    /// The file's name.
    pub name: String,
    /// What stands in it.
    pub text: String,
}

/// A folder that is shown in a root, for reading: a tree of recipes, or files that were fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFolder {
    /// Its name, of the family's own. The coordinator's machine has it by this name, and other machines may.
    pub name: String,
    /// Where it is shown, inside.
    pub inside: String,
    /// The files of it that the build needs; absent where that is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// What is in it, for a machine that does not have it by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<FolderContent>,
}

/// What is in a folder, by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FolderContent {
    /// All of a tree.
    Tree(Artifact),
    /// These files and no others.
    Files(Vec<FolderFile>),
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderFile {
    /// Its path, relative to the folder.
    pub name: String,
    /// What it is.
    pub artifact: Artifact,
}

/// Where a build does its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkOrder {
    /// The folder, inside.
    pub inside: String,
    /// What it is expected to hold in the end. By it the worker decides whether it is in memory or on the disk.
    pub expected_bytes: u64,
}

/// Files that the package's own tools fetch, in addition to the inputs: commands that may use the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchOrder {
    /// The commands, run in a root of their own.
    pub stage: StageOrder,
    /// Where the files are kept, by its name. What the commands add to it goes in when they have ended well.
    pub folder: SharedFolder,
    /// The files that they may bring: no two builds fetch one at the same time.
    pub files: Vec<FetchFile>,
}

/// A file that commands may bring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFile {
    /// Its path, relative to the folder.
    pub name: String,
    /// Its size, where that is known.
    pub size_bytes: Option<u64>,
}

/// Who runs a command in a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Account {
    /// Root of the root: installs packages.
    Root,
    /// The ordinary user that builds.
    Builder,
}

/// In arguments and environments of commands: how many processes of the build may run at once, which the worker decides.
pub const JOBS: &str = "%{jobs}";

/// One command of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOrder {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Who runs it.
    pub account: Account,
    /// The folder it starts in.
    pub directory: String,
    /// Its environment, in addition to that of every command.
    pub environment: Vec<(String, String)>,
}

impl CommandOrder {
    /// The command with a number in the place of [`JOBS`].
    pub fn with_jobs(&self, jobs: u32) -> CommandOrder {
        let jobs = jobs.to_string();
        let filled = |text: &String| text.replace(JOBS, &jobs);
        CommandOrder {
            arguments: self.arguments.iter().map(filled).collect(),
            environment: self.environment.iter().map(|(name, value)| (name.clone(), filled(value))).collect(),
            ..self.clone()
        }
    }
}

/// One stage: commands in a root, in order, until one fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageOrder {
    /// Which stage.
    pub stage: Stage,
    /// The commands.
    pub commands: Vec<CommandOrder>,
}

/// A binary package that is installed in a root before anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The input that it is.
    pub file: String,
    /// The SHA-256 of that, in hexadecimal digits.
    pub sha256: String,
}

/// What there is in a root before the first command runs in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootOrder {
    /// The trees that lie over each other in the root, the uppermost first.
    pub layers: Vec<Artifact>,
    /// Files that must be there.
    pub inputs: Vec<Input>,
    /// Files that are written.
    pub texts: Vec<InputText>,
    /// Folders that are shown.
    pub folders: Vec<SharedFolder>,
    /// Folders, inside, that nothing writes to. One that lies in one layer alone is shown as it is there, for reading, where that
    /// is faster.
    pub sealed: Vec<String>,
    /// Folders, inside, that the builder may write in, in addition to those that are made for it. Where there is one id alone, so that files
    /// of the root's root are the builder's too, all else is shown to the builder for reading; nothing is where none is named.
    pub open: Vec<String>,
    /// What is installed first: each package behind those that it needs, where the family knows. What roots have in common is
    /// installed once.
    pub depends: Vec<Dependency>,
}

/// By which rules a worker installs dependencies and reads outputs: it knows families, and no set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyOrder {
    /// The family's name.
    pub name: String,
    /// What its rules need to know, by names of the family's own.
    pub facts: BTreeMap<String, String>,
}

/// Everything a worker needs for one build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrder {
    /// The package.
    pub package: String,
    /// The version that the outputs get.
    pub version: String,
    /// The family's rules.
    pub family: FamilyOrder,
    /// The key.
    pub key: Key,
    /// What the root begins with.
    pub root: RootOrder,
    /// Where it works, if that may be in memory.
    pub work: Option<WorkOrder>,
    /// What has to be fetched by commands before it begins; nothing where all of it is an input.
    pub fetch: Option<FetchOrder>,
    /// The stages that run in the root, in order.
    pub stages: Vec<StageOrder>,
    /// Programs of the root, by their paths inside, that use a jobserver if they are given one.
    pub clients: Vec<String>,
    /// Programs of the root, by their paths inside, that are a fakeroot: where the build may not be root and there is no
    /// range of ids, Kilnyard's own stands in for them.
    pub fakeroots: Vec<String>,
    /// The folder, inside the root, where outputs are found after the stages.
    pub output_folder: String,
}

/// What is tried with a build's outputs in a clean root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestOrder {
    /// What the root begins with: all that can be installed before the outputs.
    pub root: RootOrder,
    /// Further files that must exist, including the outputs.
    pub inputs: Vec<Input>,
    /// Further files, which replace those of the same name.
    pub texts: Vec<InputText>,
    /// The commands.
    pub stage: StageOrder,
}

/// A binary package that a build made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The package's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture, as the ecosystem names it.
    pub architecture: String,
    /// The file's name.
    pub file: String,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The file's size.
    pub size_bytes: u64,
    /// The hash of what it holds, but for what differs between two builds of the same thing.
    pub content: String,
    /// What an index says of it, in the ecosystem's own format, without file name, size and hashes.
    pub description: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_known_by_their_names() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(stage));
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("\"{stage}\""));
        }
        assert_eq!(Stage::parse("nonsense"), None);
    }
}
