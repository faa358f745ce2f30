//! Build orders: everything that a worker needs to perform a build, without anything about the run.
//!
//! An ecosystem makes a [`BuildOrder`] for a package whose dependencies are available; a worker performs it on any
//! machine. Its [`Key`] is the hash of all inputs, together with the hashed lines, so that keys can be compared and
//! their differences named.

use crate::artifact::Artifact;
use crate::keep::KeepOrder;
use crate::sha256::Sha256Hex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A named step of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Downloads sources and binary packages to this machine.
    Fetch,
    /// Verifies the source, and unpacks it unless a later stage does.
    Unpack,
    /// Installs dependencies.
    Depends,
    /// Configures the package, if that is a separate step.
    Configure,
    /// Builds the package.
    Build,
    /// Installs the files into a staging folder, if that is a separate step.
    Install,
    /// Makes binary packages, if that is a separate step.
    Package,
    /// Reads and stores the outputs.
    Collect,
    /// Installs the outputs in a clean root and removes them again.
    Test,
}

impl Stage {
    /// All stages. A family may use only some of them, and in another order.
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

    /// The name of the stage, as in JSON and names of logs.
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

    /// The stage with this name; absent if there is none.
    pub fn parse(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.as_str() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The key of a build: outputs are up to date if their key is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The hash of the lines, in hexadecimal digits.
    pub digest: String,
    /// The hashed lines: a line `KIND NAME VALUE` for each input, sorted.
    pub lines: Vec<String>,
}

/// A file that a build needs before it starts, identified by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The file's name in the root's folder of inputs.
    pub name: String,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The file's size.
    pub size_bytes: u64,
    /// Where to download it; empty for files that the yard made itself.
    pub urls: Vec<String>,
}

/// A small file that Kilnyard writes into the root's folder of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputText {
    /// The file's name in that folder.
    pub name: String,
    /// The file's content.
    pub text: String,
}

/// A folder that is mounted in a root, read-only: a tree of recipes, or fetched files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFolder {
    /// A name that the family chooses. The coordinator's machine has a folder with this name, and other machines may.
    pub name: String,
    /// Path inside the root.
    pub inside: String,
    /// The files that the build needs; absent if it needs the whole folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// The content, for machines that do not have a folder with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<FolderContent>,
}

/// The content of a folder, as references to artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FolderContent {
    /// A whole tree, as an archive in the canonical form.
    Tree(Artifact),
    /// A tree of several layers, the uppermost first: an earlier tree, and what has changed in it.
    Layers(Vec<Artifact>),
    /// These files and no others.
    Files(Vec<FolderFile>),
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderFile {
    /// Path relative to the folder.
    pub name: String,
    /// The file's content.
    pub artifact: Artifact,
}

/// The work folder of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkOrder {
    /// Path inside the root.
    pub inside: String,
    /// The expected size at the end. The worker uses it to decide whether the folder is in memory or on the disk.
    pub expected_bytes: u64,
}

/// Files that the package's own commands fetch, in addition to the inputs. These commands may use the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchOrder {
    /// The commands, which run in a separate root.
    pub stage: StageOrder,
    /// The folder that stores the files. It gets new files after all commands have succeeded.
    pub folder: SharedFolder,
    /// The files that the commands may add. A file is fetched by one build at a time.
    pub files: Vec<FetchFile>,
}

/// A file that fetch commands may add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFile {
    /// Path relative to the folder.
    pub name: String,
    /// The expected size; absent if it is unknown.
    pub size_bytes: Option<u64>,
}

/// The user that a command runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Account {
    /// The root user inside the root, which installs packages.
    Root,
    /// The unprivileged user that builds.
    Builder,
}

/// In arguments and environments of commands, the worker replaces this by the number of parallel jobs.
pub const JOBS: &str = "%{jobs}";

/// One command of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOrder {
    /// The program, an absolute path or a name found by `PATH`, and its arguments.
    pub arguments: Vec<String>,
    /// The user that it runs as.
    pub account: Account,
    /// Its working directory inside the root.
    pub directory: String,
    /// Environment variables, in addition to those of every command.
    pub environment: Vec<(String, String)>,
}

impl CommandOrder {
    /// The command with [`JOBS`] replaced by a number.
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
    /// The stage that these commands belong to.
    pub stage: Stage,
    /// May be empty.
    pub commands: Vec<CommandOrder>,
}

/// A binary package that is installed in a root before the build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// The name of the binary package.
    pub name: String,
    /// The version of the binary package.
    pub version: String,
    /// The name of its input.
    pub file: String,
    /// The SHA-256 of that input, in hexadecimal digits.
    pub sha256: String,
    /// Whether it is to be installed only with a signature by a key that the family's rules have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_signed: bool,
}

/// The content of a root before its first command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootOrder {
    /// The trees stacked in the root, the uppermost first.
    pub layers: Vec<Artifact>,
    /// Files for the root's folder of inputs.
    pub inputs: Vec<Input>,
    /// Files for the root's folder of texts.
    pub texts: Vec<InputText>,
    /// Folders of the machine that are mounted read-only.
    pub folders: Vec<SharedFolder>,
    /// Folders inside the root that nothing writes to. If only one layer has such a folder, it may be mounted
    /// directly and read-only, which is faster.
    pub sealed: Vec<String>,
    /// Folders inside the root that the builder may write to, in addition to those made for it. If there is only one
    /// id, so that the builder owns the files of the root user as well, everything else is read-only for the builder.
    /// If the list is empty, nothing is made read-only.
    pub open: Vec<String>,
    /// Packages to install first, each after its dependencies if the family knows the order. Packages that several
    /// roots have in common are installed once.
    pub depends: Vec<Dependency>,
    /// Patches that lead to the layers from earlier trees, for a machine that has one of these. They are no part of the order's meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<TreePatch>,
}

/// A patch that makes one tree from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePatch {
    /// The tree that it needs.
    pub from: Artifact,
    /// The hash of the tree that it makes.
    pub to: Sha256Hex,
    /// The patch.
    pub artifact: Artifact,
}

/// The rules by which a worker installs dependencies and reads outputs. A worker knows families, but no sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyOrder {
    /// The family's name.
    pub name: String,
    /// Parameters of its rules, by names that the family defines.
    pub facts: BTreeMap<String, String>,
}

/// Permissions and limits of one package that replace the worker's. An absent value leaves the worker's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuildTerms {
    /// Whether the stages of the build, and no other commands, may use the network of the worker's machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_network: bool,
    /// Maximum number of cores, and the number of parallel jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_max: Option<u32>,
    /// The longest time of one command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_seconds_max: Option<u64>,
    /// The CPU time that a command is always allowed, and that it may not exceed in a stage without history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_min: Option<u64>,
    /// The time that a command is always allowed to be idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hung_seconds_min: Option<u64>,
    /// The time that a command is always allowed to print nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds_min: Option<u64>,
    /// The memory that a command's processes are always allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_min: Option<u64>,
    /// The bytes that the build is always allowed to write to its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes_min: Option<u64>,
    /// The maximum number of files that a process may have open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<u32>,
    /// The maximum number of processes and threads of a command at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<u32>,
    /// The virtual machine that its commands run in; absent if they run on the worker's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineTerms>,
}

/// A virtual machine for the commands of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineTerms {
    /// The number of its processors.
    pub cores: u32,
    /// The size of its memory.
    pub memory_bytes: u64,
    /// Whether its commands may run on the worker's machine, if that has no virtual machines: the yard's owner did not ask for
    /// one, but what the package executes stalls other cores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_optional: bool,
    /// Its processor, if it is another one than that of the worker's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
}

/// The processor of a virtual machine, by the kernel's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processor {
    /// 64-bit x86, which runs 32-bit programs too.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit ARM, which runs 32-bit programs too.
    #[serde(rename = "aarch64")]
    Aarch64,
}

impl Processor {
    /// That of this machine; absent if virtual machines cannot have it.
    pub const OWN: Option<Processor> = if cfg!(target_arch = "x86_64") {
        Some(Processor::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Processor::Aarch64)
    } else {
        None
    };

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Processor::X86_64 => "x86_64",
            Processor::Aarch64 => "aarch64",
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl MachineTerms {
    /// One processor: a build that stalls it stalls no other.
    pub const CORES: u32 = 1;
    /// Enough for a compiler and a linker.
    pub const MEMORY_BYTES: u64 = 2 << 30;
    /// The least memory: enough for the kernel and its first process.
    pub const MEMORY_BYTES_MIN: u64 = 512 << 20;
}

impl BuildTerms {
    /// Whether the package has the terms of all others.
    pub fn are_usual(&self) -> bool {
        *self == BuildTerms::default()
    }
}

/// Everything a worker needs for one build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrder {
    /// The name of the package in the set.
    pub package: String,
    /// The version that the outputs get.
    pub version: String,
    /// The family's rules.
    pub family: FamilyOrder,
    /// Identifies everything that the build depends on.
    pub key: Key,
    /// The content of the root at the start.
    pub root: RootOrder,
    /// The work folder; absent if it must not be in memory.
    pub work: Option<WorkOrder>,
    /// Files to fetch by commands before the build; absent if all files are inputs.
    pub fetch: Option<FetchOrder>,
    /// The stages that run in the root, in order.
    pub stages: Vec<StageOrder>,
    /// Paths inside the root of programs that support a jobserver.
    pub clients: Vec<String>,
    /// Paths inside the root of fakeroot programs. If the build cannot be root and has no range of ids, Kilnyard's own
    /// fakeroot replaces them.
    pub fakeroots: Vec<String>,
    /// The folder inside the root that contains the outputs after the stages; empty if there are none, as of a test.
    pub output_folder: String,
    /// Permissions and limits of this package alone.
    #[serde(default, skip_serializing_if = "BuildTerms::are_usual")]
    pub terms: BuildTerms,
    /// The use of kept work; absent if the package is always built from scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<KeepOrder>,
}

impl BuildOrder {
    /// An order that builds nothing, for work without a root.
    pub fn empty(name: &str) -> BuildOrder {
        BuildOrder {
            package: name.to_owned(),
            version: String::new(),
            family: FamilyOrder::default(),
            key: Key { digest: String::new(), lines: Vec::new() },
            root: RootOrder::default(),
            work: None,
            fetch: None,
            stages: Vec::new(),
            clients: Vec::new(),
            fakeroots: Vec::new(),
            output_folder: String::new(),
            terms: BuildTerms::default(),
            keep: None,
        }
    }
}

/// The test of a build's outputs in a clean root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestOrder {
    /// The content of the root at the start: everything that can be installed before the outputs.
    pub root: RootOrder,
    /// Additional inputs, including the outputs.
    pub inputs: Vec<Input>,
    /// Additional texts, which replace those of the same name.
    pub texts: Vec<InputText>,
    /// Installs and removes the outputs.
    pub stage: StageOrder,
}

/// A binary package that a build made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The name of the binary package.
    pub name: String,
    /// The version of the binary package.
    pub version: String,
    /// Its architecture, as the ecosystem names it.
    pub architecture: String,
    /// The file's name.
    pub file: String,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The file's size.
    pub size_bytes: u64,
    /// A hash of its contents, without the parts that differ between two builds of the same source.
    pub content: String,
    /// Its entry for an index, in the ecosystem's format, without file name, size and hashes.
    pub description: String,
    /// Further digests that its worker vouches for, by name: see [`digests`](crate::digests).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stages_can_be_parsed() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(stage));
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("\"{stage}\""));
        }
        assert_eq!(Stage::parse("nonsense"), None);
    }

    #[test]
    fn terms_contain_only_differences() {
        let terms = BuildTerms { has_network: true, jobs_max: Some(2), ..BuildTerms::default() };
        let text = serde_json::to_string(&terms).unwrap();
        assert_eq!(text, r#"{"has_network":true,"jobs_max":2}"#);
        assert_eq!(serde_json::from_str::<BuildTerms>(&text).unwrap(), terms);
        // A newer program may add one.
        let newer = r#"{"jobs_max":2,"has_network":true,"swap_bytes_max":5}"#;
        assert_eq!(serde_json::from_str::<BuildTerms>(newer).unwrap(), terms);
        assert!(BuildTerms::default().are_usual() && !terms.are_usual());
    }
}
