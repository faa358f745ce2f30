//! The command line.

use crate::config::Size;
use crate::environment_of_process;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use kilnyard_bench::BenchOptions;
use kilnyard_family::FAMILIES;
use kilnyard_yard::family::Entry;
use std::path::{Path, PathBuf};

/// Rebuild whole trees of packages: scan, resolve, plan, build each in a clean root, publish.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The folder of the yard.
    #[arg(long, short = 'y', global = true, env = "KILNYARD_YARD", default_value = HERE, value_name = "DIR")]
    pub yard: PathBuf,
    /// Work on a yard that belongs to another user, who can then use what you may do.
    #[arg(long, global = true)]
    pub foreign_yard: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands in the order in which people meet them; what is missing here comes last.
const ORDER: [&str; 29] = [
    "demo",
    "init",
    "doctor",
    "scan",
    "resolve",
    "plan",
    "check",
    "build",
    "status",
    "log",
    "why",
    "history",
    "diff",
    "retry",
    "skip",
    "bump",
    "shell",
    "root",
    "lease",
    "worker",
    "publish",
    "clean",
    "restore",
    "index",
    "simulate",
    "fakeroot",
    "bench",
    "tune",
    "completions",
];

/// The command line, with all that families add to it.
pub fn command() -> clap::Command {
    let command = FAMILIES.iter().fold(Arguments::command(), |all, family| family.commands(all));
    ORDER
        .iter()
        .enumerate()
        .fold(command, |all, (place, name)| all.mut_subcommand(name, |command| command.display_order(place)))
}

/// A command line that was read, before it is known whose command it is.
pub struct Given {
    /// All arguments.
    pub arguments: ArgMatches,
    /// The folder of the yard.
    pub yard: PathBuf,
    /// Whether the yard may belong to another user.
    pub is_foreign: bool,
}

impl Given {
    /// Reads the command line of this process; ends it where that is wrong, or asks for help.
    pub fn read() -> Given {
        let arguments = command().get_matches();
        let given = arguments.get_one::<PathBuf>("yard").cloned().unwrap_or_else(|| HERE.into());
        let yard = match arguments.subcommand() {
            Some(("demo", demo)) => demo_folder(&given, demo.get_one("folder")),
            _ => given,
        };
        Given { yard, is_foreign: arguments.get_flag("foreign_yard"), arguments }
    }

    /// The yard, where a later command has to name it too: it is neither the current folder nor that of the
    /// environment.
    pub fn yard_to_name(&self) -> Option<PathBuf> {
        let environment = environment_of_process();
        let of_environment =
            environment.get("KILNYARD_YARD").is_some_and(|yard| Path::new(yard) == self.yard);
        (self.yard != Path::new(HERE) && !of_environment).then(|| self.yard.clone())
    }
}

/// The folder of the demo's yard, where the command line names `given` for yards and this folder for the demo.
fn demo_folder(given: &Path, folder: Option<&PathBuf>) -> PathBuf {
    let given = (given != Path::new(HERE)).then(|| given.to_owned());
    folder.cloned().or(given).unwrap_or_else(|| PathBuf::from("demo-yard"))
}

/// The current folder, which is a yard's where nobody says otherwise.
const HERE: &str = ".";

const EXIT_CODES: &str = "Exit codes: 0 all well; 1 some packages failed; 2 usage or configuration; \
3 this machine lacks something; 4 internal; 130 interrupted.";

/// The commands, in the order in which people meet them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build the demo set from this machine's mirror, from nothing to a repository.
    Demo(Demo),
    /// Make a yard.
    #[command(subcommand)]
    Init(Init),
    /// Check what this machine allows and has, and say how to get what is missing.
    Doctor(Json),
    /// Fetch and verify the archive's index; or ask every directory of a tree for its packages.
    Scan(Scan),
    /// Say what a build would do, in which order, and why.
    Plan(Plan),
    /// Build what is not up to date, publish it, and write the report.
    Build(Build),
    /// Show how the run that is going on, or the last one, stands.
    Status(Status),
    /// Show a log, at the line that matters.
    Log(Log),
    /// Say why a package was built, left out, waits, or failed.
    Why(Package),
    /// Show runs, or the builds of one package; import the times of another builder.
    History(History),
    /// Compare two runs: newly failing, newly fixed, slower, larger.
    Diff(Diff),
    /// Try a failed package again, in the run that is going on or in the next.
    Retry(Names),
    /// Leave a package out of the run that is going on.
    Skip(Names),
    /// Build a package, and what it needs, before all others.
    Bump(Names),
    /// Enter the root of a package's last failed build.
    Shell(Shell),
    /// Look at the roots that builds happen in.
    #[command(subcommand)]
    Root(Root),
    /// Write what one build is made of, to be performed by `worker` without the yard, on this machine or another.
    Lease(Lease),
    /// Perform one build from its lease, without a yard.
    Worker(Worker),
    /// Write the repository from what was built.
    Publish(Publish),
    /// Remove what is not needed any more.
    Clean(Clean),
    /// Put a store that is lost or damaged back: from its last good backup, and from the repository.
    Restore(Restore),
    /// Play a run through in simulated time: how long it takes on which machines, and what it is bound by.
    Simulate(Simulate),
    /// Run a command that sees files as root does, without being root; a link to this program named fakeroot does
    /// the same.
    #[command(after_help = kilnyard_fakeroot::launch::USAGE)]
    Fakeroot {
        /// Options of fakeroot, and the command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        words: Vec<std::ffi::OsString>,
    },
    /// Measure Kilnyard on this machine.
    Bench(BenchOptions),
    /// Write the way to make roots that is fastest here into the configuration.
    Tune(Tune),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

/// Whether the answer is for a program.
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
    /// The folder of the demo's yard: that of --yard, or else demo-yard.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Do not install missing packages on this machine, even as root.
    #[arg(long)]
    pub no_install: bool,
    /// Print events as JSON, one a line.
    #[arg(long)]
    pub json: bool,
}

/// `scan`; families add to it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Scan {
    /// Print what was done as JSON.
    #[arg(long, display_order = LAST)]
    pub json: bool,
}

/// Behind what families add.
const LAST: usize = 100;

/// `init`, with the name of a family and its arguments.
pub struct Init {
    /// The family.
    pub family: &'static dyn Entry,
    /// What it is given.
    pub arguments: ArgMatches,
}

impl std::fmt::Debug for Init {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Init({}, {:?})", self.family.name(), self.arguments)
    }
}

impl FromArgMatches for Init {
    fn from_arg_matches(arguments: &ArgMatches) -> Result<Init, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, arguments) = arguments.subcommand().ok_or_else(missing)?;
        let family = FAMILIES.iter().find(|family| family.name() == name).ok_or_else(missing)?;
        Ok(Init { family: *family, arguments: arguments.clone() })
    }

    fn update_from_arg_matches(&mut self, arguments: &ArgMatches) -> Result<(), clap::Error> {
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

/// `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Show packages that are up to date as well.
    #[arg(long)]
    pub all: bool,
}

/// `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// Only these, and what they need. Of a tree, the name of a category, such as mail, stands for its packages.
    #[arg(value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Build the named packages even if their outputs are right.
    #[arg(long, requires = "packages")]
    pub force: bool,
    /// Build each package twice, also what is up to date, and say whether the bytes are the same.
    #[arg(long)]
    pub check_reproducible: bool,
    /// Use the index as it is, without asking the mirror for a newer one.
    #[arg(long)]
    pub no_scan: bool,
    /// Do not publish.
    #[arg(long)]
    pub no_publish: bool,
    /// Builds at once, at most; as many as keep the cores busy by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Cores of one build, at most; all by default.
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// A package that comes before all others, with all that it waits for; several are bumped in this order.
    #[arg(long, value_name = "PACKAGE")]
    pub first: Vec<String>,
    /// Memory of all builds together, such as 8G; what the machine has by default.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print events as JSON, one a line.
    #[arg(long)]
    pub json: bool,
    /// Write the messages between coordinator and worker to this file, one a line, as JSON.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub messages: Option<PathBuf>,
}

/// `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print what happens until the run ends.
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Print JSON; with --follow, an event a line.
    #[arg(long)]
    pub json: bool,
}

/// A package.
#[derive(Debug, Args)]
pub struct Package {
    /// The package.
    pub package: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Packages.
#[derive(Debug, Args)]
pub struct Names {
    /// The packages.
    #[arg(required = true, value_name = "PACKAGE")]
    pub packages: Vec<String>,
}

/// `log`.
#[derive(Debug, Args)]
pub struct Log {
    /// The package.
    pub package: String,
    /// The stage: unpack, depends, build, test. By default the one that failed, else build.
    pub stage: Option<String>,
    /// Print the whole log, without a pager.
    #[arg(long)]
    pub all: bool,
    /// Print where the log is.
    #[arg(long)]
    pub path: bool,
}

/// `history`.
#[derive(Debug, Args)]
pub struct History {
    /// The builds of this package.
    pub package: Option<String>,
    /// What each stage of them used as well.
    #[arg(long, requires = "package")]
    pub stages: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The earlier run; the last but one by default.
    pub earlier: Option<u64>,
    /// The later run; the last one by default.
    pub later: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// The package.
    pub package: String,
    /// Enter as root of the root, not as the user that builds.
    #[arg(long)]
    pub root: bool,
    /// A command to run instead of a shell.
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// `root`.
#[derive(Debug, Subcommand)]
pub enum Root {
    /// Say how the root of a package's next build would be made and removed, and do nothing.
    Plan(RootPlan),
}

/// `root plan`.
#[derive(Debug, Args)]
pub struct RootPlan {
    /// The package.
    pub package: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `publish`.
#[derive(Debug, Args)]
pub struct Publish {
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `lease`.
#[derive(Debug, Args)]
pub struct Lease {
    /// The package; what it needs of the set has to be built.
    pub package: String,
    /// The folder that gets `lease.json` and the artifacts: base root, sources, dependencies, each by its content.
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
}

/// `worker`.
#[derive(Debug, Args)]
pub struct Worker {
    /// The lease, as `kilnyard lease` wrote it.
    #[arg(long, value_name = "FILE")]
    pub lease: PathBuf,
    /// The folder of artifacts: what the build needs is taken from there, and its outputs, logs and result go there.
    #[arg(long, value_name = "FOLDER")]
    pub artifacts: PathBuf,
    /// Where the worker keeps layers and roots; made if it is not there.
    #[arg(long, value_name = "FOLDER", default_value = "kilnyard-worker")]
    pub folder: PathBuf,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Replace a store that is in order, too.
    #[arg(long)]
    pub force: bool,
    /// Use no backup: take from the repository what it knows, and lose the rest.
    #[arg(long)]
    pub without_backup: bool,
}

/// `clean`.
#[derive(Debug, Args)]
pub struct Clean {
    /// Say what would be removed, and remove nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Name every file; by default distfiles, whose names are hashes, are counted.
    #[arg(long)]
    pub list: bool,
    /// Remove the index: the next scan fetches it anew.
    #[arg(long)]
    pub index: bool,
    /// Remove the base root: the next build makes it anew.
    #[arg(long)]
    pub base: bool,
    /// Keep the logs of this many runs.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub runs: usize,
}

/// `simulate`.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE)]
pub struct Simulate {
    /// What depends on what: lines `A -> B` (B depends on A), or a scan of a tree with what each package needs;
    /// plain or in zstd. By default all packages of the yard, as if none were up to date.
    #[arg(long, value_name = "FILE", requires = "history")]
    pub graph: Option<PathBuf>,
    /// What builds took: a CSV file as bob writes it, plain or in zstd. The yard's store by default.
    #[arg(long, value_name = "FILE", requires = "graph")]
    pub history: Option<PathBuf>,
    /// Cores of the machine; this machine's by default.
    #[arg(long, value_name = "N", conflicts_with = "machines")]
    pub cores: Option<u32>,
    /// Machines: how many, their cores, and their speed where it is not 1, as in 4x16,2x64@1.5.
    #[arg(long, value_name = "NxCORES,...", value_delimiter = ',')]
    pub machines: Vec<String>,
    /// Who decides.
    #[arg(long, value_name = "NAME", default_value = "rank")]
    pub policy: PolicyName,
    /// Builds at once on each machine. Without it, rank has as many as keep the cores busy, and of the policies for
    /// comparison the best of several numbers is shown.
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Let builds take longer or shorter than expected by a factor whose logarithm has this standard deviation.
    #[arg(long, value_name = "SIGMA", default_value_t = 0.0)]
    pub noise: f64,
    /// With noise: play it through with the seeds 1 to N, and show the means.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// Memory of each machine, as in 64G; not bounded by default.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// What a package takes that the history does not know: it was not built in that run.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub unknown: f64,
    /// Write a line for each start and end: time_seconds start|end package cores. With several seeds, the first.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Draw what was built when, and how busy the cores were. With several seeds, the first.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const SIMULATE: &str = "The bound is what no schedule can beat: the longest path with each package alone on the \
best machine, or all the work spread over all cores. The simulation lets a parallel part use all cores it is given; \
where a machine has more jobs than cores they share the cores alike.";

/// Who decides in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Kilnyard: the longest remaining path first, and cores follow it.
    Rank,
    /// As most builders do: the package with the most dependents first, an equal share of the cores for each worker.
    Dependents,
    /// bob 1.0: the same order, jobs by the CPU time of earlier builds.
    Bob,
    /// One job for each build, as many builds as cores, the most dependents first.
    OneJob,
    /// The longest remaining path first, and one jobserver that all builds share alike.
    EqualJobserver,
}

impl PolicyName {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Rank => "rank",
            PolicyName::Dependents => "dependents",
            PolicyName::Bob => "bob",
            PolicyName::OneJob => "one-job",
            PolicyName::EqualJobserver => "equal-jobserver",
        }
    }
}

/// `tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// A source package to measure with, if nothing was measured yet.
    #[arg(long, default_value = "libmd")]
    pub package: String,
    /// Measure again, though `kilnyard bench roots` did before.
    #[arg(long)]
    pub measure: bool,
    /// Replace what the configuration says otherwise.
    #[arg(long)]
    pub force: bool,
    /// Show what would change, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
