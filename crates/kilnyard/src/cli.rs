//! The command line.

mod farm;
mod keys;
mod machines;
mod mirror;
mod people;
mod reports;
mod signer;
mod simulate;
mod store;
mod tries;

pub use farm::{API_ADDRESS, Admission, Pools, Serve, Worker, Workers, WorkersAction};
pub use keys::{InToken, Keys, KeysAction};
pub use machines::{Hazards, Root, RootPlan, RootRequests};
pub use mirror::{Mirror, MirrorAction};
pub use people::{People, PeopleAction};
pub use reports::{Notify, Report, Service, ServiceOf, Watch};
pub use signer::Signer;
pub use simulate::{PolicyName, Simulate};
pub use store::{Artifacts, CheckArtifacts, Move, Store};
pub use tries::Try;

use crate::config::{Reuse, Size};
use crate::environment_of_process;
use crate::error::{Error, Result};
use crate::yard::Yard;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use kilnyard_bench::BenchOptions;
use kilnyard_family::FAMILIES;
use kilnyard_model::graph::Against;
use kilnyard_yard::family::FamilyEntry;
use std::path::{Path, PathBuf};

/// Rebuild whole trees of packages: scan, resolve, plan, build each in a clean root, publish.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The yard's folder.
    #[arg(long, short = 'y', global = true, env = "KILNYARD_YARD", default_value = HERE, value_name = "DIR")]
    pub yard: PathBuf,
    /// The target, in a yard with several: its name, release or architecture.
    #[arg(long, global = true, value_name = "NAME")]
    pub target: Option<String>,
    /// Work on another user's yard. That user can then act with your privileges.
    #[arg(long, global = true)]
    pub foreign_yard: bool,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The order of the commands in the help; others come last.
const ORDER: [&str; 42] = [
    "demo",
    "init",
    "doctor",
    "scan",
    "resolve",
    "plan",
    "check",
    "lock",
    "build",
    "status",
    "log",
    "why",
    "deps",
    "rdeps",
    "impact",
    "history",
    "provenance",
    "diff",
    "retry",
    "skip",
    "bump",
    "shell",
    "root",
    "lease",
    "serve",
    "worker",
    "workers",
    "people",
    "mirror",
    "publish",
    "keys",
    "signer",
    "clean",
    "store",
    "artifacts",
    "restore",
    "index",
    "simulate",
    "fakeroot",
    "bench",
    "tune",
    "completions",
];

/// The command line, with the additions of families.
pub fn command() -> clap::Command {
    let command = FAMILIES.iter().fold(Arguments::command(), |all, family| family.commands(all));
    ORDER
        .iter()
        .enumerate()
        .fold(command, |all, (place, name)| all.mut_subcommand(name, |command| command.display_order(place)))
}

/// A parsed command line, before its command is looked up.
pub struct Given {
    /// All arguments.
    pub arguments: ArgMatches,
    /// The folder of the yard.
    pub yard: PathBuf,
    /// The target of the yard, as the user names it.
    pub target: Option<String>,
    /// Whether the yard may belong to another user.
    pub is_foreign: bool,
}

impl Given {
    /// Parses the command line of this process. Exits if it is invalid or asks for help.
    pub fn read() -> Given {
        let arguments = command().get_matches();
        let given = arguments.get_one::<PathBuf>("yard").cloned().unwrap_or_else(|| HERE.into());
        let yard = match arguments.subcommand() {
            Some(("demo", demo)) => demo_folder(&given, demo.get_one("folder")),
            _ => given,
        };
        let target = arguments.get_one::<String>("target").cloned();
        Given { yard, target, is_foreign: arguments.get_flag("foreign_yard"), arguments }
    }

    /// The yard, if later commands must name it too because it is neither the current folder nor `KILNYARD_YARD`.
    pub fn yard_to_name(&self) -> Option<PathBuf> {
        let environment = environment_of_process();
        let of_environment =
            environment.get("KILNYARD_YARD").is_some_and(|yard| Path::new(yard) == self.yard);
        (self.yard != Path::new(HERE) && !of_environment).then(|| self.yard.clone())
    }
}

/// The folder of the demo's yard, from `--yard` (`given`) and the demo's own argument.
fn demo_folder(given: &Path, folder: Option<&PathBuf>) -> PathBuf {
    let given = (given != Path::new(HERE)).then(|| given.to_owned());
    folder.cloned().or(given).unwrap_or_else(|| PathBuf::from("demo-yard"))
}

/// The current folder, the default of `--yard`.
const HERE: &str = ".";

const EXIT_CODES: &str = "Exit codes: 0 all well; 1 some packages failed; 2 usage or configuration; \
3 this machine does not meet a requirement; 4 internal; 130 interrupted.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build a demo set from this machine's mirror, and publish it as a repository.
    Demo(Demo),
    /// Create a yard.
    #[command(subcommand)]
    Init(Init),
    /// Check this machine's requirements, and show how to fix what is missing.
    Doctor(Json),
    /// Fetch and verify the archive's index, or scan the directories of a tree.
    Scan(Scan),
    /// Show what would be built, in which order, and why.
    Plan(Plan),
    /// Build what is out of date, publish it, and write the report.
    Build(Build),
    /// Show the state of the current or last run.
    Status(Status),
    /// Show a log, starting at the first relevant line.
    Log(Log),
    /// Explain why a package was built, left out, blocked or failed.
    Why(Package),
    /// Show the dependencies of a package within the set.
    Deps(Deps),
    /// Show the packages of the set that depend on a package.
    Rdeps(Deps),
    /// Show the packages that a change would rebuild, and how long that takes.
    Impact(Impact),
    /// Show runs, or the builds of a package; import build times of another builder.
    History(History),
    /// Show who built the outputs of a package, from what, and whether that is signed.
    Provenance(ProvenanceOf),
    /// Compare two runs: newly failing, newly fixed, slower, larger.
    Diff(Diff),
    /// Show where the report of a run is; write its results as JUnit XML, SARIF or annotations.
    Report(Report),
    /// Show who is notified of what, and try it.
    Notify(Notify),
    /// Start a run whenever the archive, the tree or a repository has something new.
    Watch(Watch),
    /// Print a unit of systemd that serves, watches or builds this yard.
    Service(Service),
    /// Retry a failed package, in the current run or the next one.
    Retry(Names),
    /// Skip a package in the current run.
    Skip(Names),
    /// Move a package and its dependencies to the front.
    Bump(Names),
    /// Enter the root of a package's last failed build.
    Shell(Shell),
    /// Inspect build roots.
    #[command(subcommand)]
    Root(Root),
    /// Find instructions that stall or crash the machines that packages run on, in files, packages, folders, or the yard's
    /// layers.
    Hazards(Hazards),
    /// Export a build with everything it needs, for `kilnyard worker` on this or another machine.
    Lease(Lease),
    /// Let workers on other machines take part in the builds of this yard; serve its pages and its API.
    Serve(Serve),
    /// Perform builds without a yard: those of a farm, or a single lease.
    Worker(Worker),
    /// List the workers of the farm, or change them.
    Workers(Workers),
    /// List the tokens with which people and programs make requests over the network, or change them.
    People(People),
    /// Serve what builds fetch to the machines of a site, and fetch each file once.
    Mirror(Mirror),
    /// Show the pools whose workers are started on demand: how many are wanted, started and there, and why.
    Pools(Pools),
    /// Build a proposed change and all that it affects in a repository of its own, and say what fails newly.
    Try(Try),
    /// Write the repository from the current outputs.
    Publish(Publish),
    /// List the keys that sign the repository, or change them; check what was signed.
    Keys(Keys),
    /// Sign the repositories of a yard on another machine, with keys that only this machine has.
    Signer(Signer),
    /// Remove files that are no longer needed.
    Clean(Clean),
    /// Check, move, back up or restore the store.
    #[command(subcommand)]
    Store(Store),
    /// Check the outputs that machines share, or remove those that nothing names.
    #[command(subcommand)]
    Artifacts(Artifacts),
    /// Restore a lost or damaged store, from its last good backup and the repository.
    Restore(Restore),
    /// Simulate a run: how long it takes on given machines, and what limits it.
    Simulate(Simulate),
    /// Run a command that sees files as root does; also available through a link named `fakeroot`.
    #[command(after_help = kilnyard_fakeroot::launch::USAGE)]
    Fakeroot {
        /// Options of fakeroot, followed by the command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        words: Vec<std::ffi::OsString>,
    },
    /// Measure Kilnyard on this machine.
    Bench(BenchOptions),
    /// Configure the fastest root backend of this machine.
    Tune(Tune),
    /// Print shell completions.
    Completions {
        /// The shell to write them for.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a folder.
    Man {
        /// The folder to write to; created if missing.
        folder: PathBuf,
    },
}

/// Output for programs.
#[derive(Clone, Copy, Debug, Args)]
pub struct Json {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Build twenty packages instead of twelve.
    #[arg(long)]
    pub large: bool,
    /// The folder of the demo's yard. Default: --yard if given, else demo-yard.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Do not install missing packages on this machine, even as root.
    #[arg(long)]
    pub no_install: bool,
    /// Write a picture of the view to this file (SVG), and replace it every second during the run.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub picture: Option<PathBuf>,
    /// Print events as JSON, one per line.
    #[arg(long)]
    pub json: bool,
}

/// `scan`; families add to it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Scan {
    /// Print the result as JSON.
    #[arg(long, display_order = LAST)]
    pub json: bool,
}

/// The place after the options of families.
const LAST: usize = 100;

/// `init`, with the name of a family and its arguments.
pub struct Init {
    /// The family.
    pub family: &'static dyn FamilyEntry,
    /// Its arguments.
    pub arguments: ArgMatches,
}

impl std::fmt::Debug for Init {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Init({}, {:?})", self.family.name(), self.arguments)
    }
}

impl FromArgMatches for Init {
    fn from_arg_matches(arguments: &ArgMatches) -> std::result::Result<Init, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, arguments) = arguments.subcommand().ok_or_else(missing)?;
        let family = FAMILIES.iter().find(|family| family.name() == name).ok_or_else(missing)?;
        Ok(Init { family: *family, arguments: arguments.clone() })
    }

    fn update_from_arg_matches(&mut self, arguments: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Init::from_arg_matches(arguments)?;
        Ok(())
    }
}

impl Subcommand for Init {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        FAMILIES.iter().fold(command, |all, family| all.subcommand(family.init_command()))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Init::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        FAMILIES.iter().any(|family| family.name() == name)
    }
}

/// Options of `plan` and `build` that replace keys of `[build]`.
#[derive(Clone, Debug, Default, Args)]
pub struct Choices {
    /// Which dependencies the set builds itself: all, those built earlier anyway, or none; by default as in
    /// kilnyard.toml.
    #[arg(long, value_name = "WHAT", value_parser = against())]
    pub against: Option<Against>,
    /// Which packages come from the archive: those that depend on none of your own sources, or none; by default as in
    /// kilnyard.toml.
    #[arg(long, value_name = "WHICH", value_parser = reuse())]
    pub reuse: Option<Reuse>,
}

fn against() -> impl TypedValueParser<Value = Against> {
    PossibleValuesParser::new(["set", "ancestors", "archive"]).map(|word| match word.as_str() {
        "ancestors" => Against::Ancestors,
        "archive" => Against::Archive,
        _ => Against::Set,
    })
}

fn reuse() -> impl TypedValueParser<Value = Reuse> {
    PossibleValuesParser::new(["archive", "never"]).map(|word| match word.as_str() {
        "never" => Reuse::Never,
        _ => Reuse::Archive,
    })
}

impl Choices {
    /// Replaces the yard's configuration.
    ///
    /// # Errors
    /// The family cannot build like this.
    pub fn apply(&self, yard: &mut Yard) -> Result<()> {
        let build = &mut yard.config.build;
        build.against = self.against.unwrap_or(build.against);
        build.reuse = self.reuse.or(build.reuse);
        yard.config.check_against().map_err(Error::usage)
    }
}

/// `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub choices: Choices,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Also show packages that are up to date.
    #[arg(long)]
    pub all: bool,
}

/// `build`.
#[derive(Clone, Debug, Args)]
pub struct Build {
    /// Build only these packages and their dependencies. In a tree, a category such as mail stands for its packages.
    #[arg(value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Build the named packages even if they are up to date.
    #[arg(long, requires = "packages")]
    pub force: bool,
    /// Build each package twice, even if it is up to date, and compare the bytes.
    #[arg(long)]
    pub check_reproducible: bool,
    /// Read all outputs first, on other machines too, and build again what is missing or damaged.
    #[arg(long, conflicts_with = "dry_run")]
    pub check_outputs: bool,
    /// Use the current index without checking for a newer one.
    #[arg(long)]
    pub no_scan: bool,
    /// Continue a run of another machine, once a byte arrives on standard input. Its target is not scanned.
    #[arg(long, hide = true)]
    pub continued: bool,
    /// Fail if kilnyard.lock would have to change.
    #[arg(long)]
    pub locked: bool,
    #[command(flatten)]
    pub choices: Choices,
    /// Do not update the repository.
    #[arg(long)]
    pub no_publish: bool,
    /// Update the repository even if kilnyard.toml or a build against the archive says not to.
    #[arg(long, conflicts_with = "no_publish")]
    pub publish: bool,
    /// Build on other machines only: those of `kilnyard worker`.
    #[arg(long)]
    pub elsewhere: bool,
    /// Maximum number of parallel builds on each machine; by default as many as keep its cores busy.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Maximum number of cores for one build; by default all of its machine.
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Build this package and its dependencies before all others; may be repeated, in order of priority.
    #[arg(long, value_name = "PACKAGE")]
    pub first: Vec<String>,
    /// Memory for all builds together, such as 8G; by default the machine's memory.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Show the plan without building.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print events as JSON, one per line.
    #[arg(long)]
    pub json: bool,
    /// Write a picture of the view to this file (SVG), and replace it every second during the run.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub picture: Option<PathBuf>,
    /// Write all messages between coordinator and worker to this file, as JSON, one per line.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub messages: Option<PathBuf>,
}

impl Build {
    /// The options with which another process continues this run. What the run forces is recorded with it.
    /// `target` is the word with which the user chose the targets.
    pub fn again(&self, target: Option<&str>) -> Vec<String> {
        let mut again = Vec::new();
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                again.extend([option.to_owned(), value]);
            }
        };
        add("--target", target.map(str::to_owned));
        add("--slots", self.slots.map(|slots| slots.to_string()));
        add("--jobs", self.jobs.map(|jobs| jobs.to_string()));
        add("--memory", self.memory.map(|memory| memory.0.to_string()));
        self.first.iter().for_each(|first| add("--first", Some(first.clone())));
        let against = self.choices.against.map(|against| match against {
            Against::Set => "set",
            Against::Ancestors => "ancestors",
            Against::Archive => "archive",
        });
        add("--against", against.map(str::to_owned));
        let reuse = self.choices.reuse.map(|reuse| match reuse {
            Reuse::Archive => "archive",
            Reuse::Never => "never",
        });
        add("--reuse", reuse.map(str::to_owned));
        for (option, is_set) in [
            ("--no-scan", self.no_scan),
            ("--elsewhere", self.elsewhere),
            ("--no-publish", self.no_publish),
            ("--publish", self.publish),
        ] {
            again.extend(is_set.then(|| option.to_owned()));
        }
        if !self.force && !self.check_reproducible {
            again.extend(self.packages.iter().cloned());
        }
        again
    }
}

/// `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print events until the run ends.
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Print JSON; with --follow, one event per line.
    #[arg(long)]
    pub json: bool,
}

/// A package.
#[derive(Debug, Args)]
pub struct Package {
    /// A package of the yard, by the name that `kilnyard plan --all` shows.
    pub package: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `deps` and `rdeps`.
#[derive(Debug, Args)]
pub struct Deps {
    /// A package of the yard, by the name that `kilnyard plan --all` shows.
    pub package: String,
    /// Include indirect dependencies, as a tree.
    #[arg(long, conflicts_with = "all")]
    pub tree: bool,
    /// Include indirect dependencies, as a list.
    #[arg(long)]
    pub all: bool,
    /// Print JSON, with the direct dependencies and with all.
    #[arg(long)]
    pub json: bool,
}

/// `provenance`.
#[derive(Debug, Args)]
pub struct ProvenanceOf {
    /// A package with outputs.
    pub package: String,
    /// Print the signed statement: an in-toto statement with SLSA provenance, in a DSSE envelope.
    #[arg(long)]
    pub json: bool,
}

/// `impact`.
#[derive(Debug, Args)]
pub struct Impact {
    /// The changed packages.
    #[arg(value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Include the packages that this commit of the tree changes, or this range of commits, such as A..B.
    #[arg(long, value_name = "REV")]
    pub commit: Option<String>,
    /// Include the packages of your own sources.
    #[arg(long)]
    pub own: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Packages.
#[derive(Debug, Args)]
pub struct Names {
    /// Packages of the yard, by the names that `kilnyard plan --all` shows.
    #[arg(required = true, value_name = "PACKAGE")]
    pub packages: Vec<String>,
}

/// `log`.
#[derive(Debug, Args)]
pub struct Log {
    /// A package of the yard, by the name that `kilnyard plan --all` shows.
    pub package: String,
    /// The stage: unpack, depends, build, test. By default the stage that failed, or build if none did.
    pub stage: Option<String>,
    /// Print the whole log, without a pager.
    #[arg(long)]
    pub all: bool,
    /// Print the log of a running build as it grows, until the build ends.
    #[arg(long, short, conflicts_with = "path")]
    pub follow: bool,
    /// Print the path of the log.
    #[arg(long)]
    pub path: bool,
}

/// `history`.
#[derive(Debug, Args)]
pub struct History {
    /// Show the builds of this package.
    pub package: Option<String>,
    /// Also show the resources that each stage used.
    #[arg(long, requires = "package")]
    pub stages: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The earlier run; by default the one before the last.
    pub earlier: Option<u64>,
    /// The later run; by default the last one.
    pub later: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// A package of the yard, by the name that `kilnyard plan --all` shows.
    pub package: String,
    /// Enter as the root user of the root, not as the builder.
    #[arg(long)]
    pub root: bool,
    /// The worker that keeps the root. Default: the one whose build failed last.
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// The command to run; a shell by default.
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// `publish`.
#[derive(Debug, Args)]
pub struct Publish {
    /// Show what would be written and removed, without changing anything.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Publish what a run on another machine built: this machine has the yard from now on.
    #[arg(long, hide = true, conflicts_with = "dry_run")]
    pub continued: bool,
}

/// `lease`.
#[derive(Debug, Args)]
pub struct Lease {
    /// A package of the yard. Its dependencies within the set must already be built.
    pub package: String,
    /// Write `lease.json` and the artifacts to this folder: base root, sources and dependencies, named by digest.
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Replace the store even if it is intact.
    #[arg(long)]
    pub force: bool,
    /// Ignore backups: recover what the repository has, and lose the rest.
    #[arg(long)]
    pub without_backup: bool,
}

/// `clean`.
#[derive(Debug, Args)]
pub struct Clean {
    /// Show what would be removed, without removing it.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// List every file; by default distfiles, whose names are hashes, are only counted.
    #[arg(long)]
    pub list: bool,
    /// Remove the index; the next scan fetches it again.
    #[arg(long)]
    pub index: bool,
    /// Remove the base root; the next build creates a new one.
    #[arg(long)]
    pub base: bool,
    /// Remove the kept work of packages; their next builds start from scratch.
    #[arg(long)]
    pub kept: bool,
    /// Keep the logs of this many runs.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub runs: usize,
}

/// `tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// The source package to measure with, if there is no measurement yet.
    #[arg(long, default_value = "libmd")]
    pub package: String,
    /// Measure again, even after `kilnyard bench roots`.
    #[arg(long)]
    pub measure: bool,
    /// Replace a conflicting setting in the configuration.
    #[arg(long)]
    pub force: bool,
    /// Show the changes without writing them.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
