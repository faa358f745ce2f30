//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Rebuild whole trees of packages: scan, resolve, plan, build each in a clean root, publish.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The folder of the yard.
    #[arg(long, short = 'y', global = true, env = "KILNYARD_YARD", default_value = ".", value_name = "DIR")]
    pub yard: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The yard, where a later command has to name it too: it is neither the current folder nor that of the
    /// environment.
    pub fn yard_as_given(&self) -> Option<PathBuf> {
        let folder = match &self.command {
            Command::Demo(demo) => &demo.folder,
            _ => &self.yard,
        };
        let is_known = folder == std::path::Path::new(".")
            || std::env::var_os("KILNYARD_YARD").is_some_and(|yard| yard == *folder);
        (!is_known).then(|| folder.clone())
    }
}

const EXIT_CODES: &str = "Exit codes: 0 all well; 1 some packages failed; 2 usage or configuration; \
3 this machine lacks something; 4 internal; 130 interrupted.";

/// The commands, in the order in which people meet them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build the demo set from this machine's Debian mirror, from nothing to a repository.
    Demo(Demo),
    /// Make a yard.
    #[command(subcommand)]
    Init(Init),
    /// Check what this machine allows and has, and say how to get what is missing.
    Doctor(Json),
    /// Fetch and verify the archive's index.
    Scan(Json),
    /// Say what a build would do, in which order, and why.
    Plan(Plan),
    /// Say which sources of the release cannot be built, and why.
    Check(Check),
    /// Build what is not up to date, publish it, and write the report.
    Build(Build),
    /// Show how the run that is going on, or the last one, stands.
    Status(Json),
    /// Show a log, at the line that matters.
    Log(Log),
    /// Say why a package was built, left out, waits, or failed.
    Why(Package),
    /// Show runs, or the builds of one package.
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
    /// Write the repository from what was built.
    Publish(Publish),
    /// Remove what is not needed any more.
    Clean(Clean),
    /// Run a command that sees files as root does, without being root; a link to this program named fakeroot does
    /// the same.
    #[command(after_help = kilnyard_fakeroot::launch::USAGE)]
    Fakeroot {
        /// Options of fakeroot, and the command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        words: Vec<std::ffi::OsString>,
    },
    /// Measure Kilnyard on this machine.
    Bench(Bench),
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
    /// The folder of the demo's yard.
    #[arg(default_value = "demo-yard", value_name = "DIR")]
    pub folder: PathBuf,
    /// Do not install missing packages on this machine, even as root.
    #[arg(long)]
    pub no_install: bool,
    /// Print events as JSON, one a line.
    #[arg(long)]
    pub json: bool,
}

/// `init`.
#[derive(Debug, Subcommand)]
pub enum Init {
    /// A yard of Debian source packages.
    Debian {
        /// The release, by its codename.
        #[arg(long, value_name = "NAME")]
        release: String,
        /// The archive's address; by default the one that this machine's apt uses.
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        /// Source packages, or .dsc files.
        #[arg(value_name = "PACKAGE")]
        packages: Vec<String>,
    },
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

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Only what a build would build of each source: with `parts = "dependent"`, no Build-Depends-Indep and no
    /// source that makes nothing for this architecture.
    #[arg(long)]
    pub dependent: bool,
}

/// `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// Only these, and what they need.
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
    /// Builds at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// Processes of one build at once.
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print events as JSON, one a line.
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

/// `publish`.
#[derive(Debug, Args)]
pub struct Publish {
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `clean`.
#[derive(Debug, Args)]
pub struct Clean {
    /// Say what would be removed, and remove nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
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

/// `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// What to measure.
    pub name: BenchName,
    /// A source package to build.
    #[arg(long, default_value = "libmd")]
    pub package: String,
    /// How many pairs are measured.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub pairs: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// Kilnyard's own cost for a package, beside a bare dpkg-buildpackage in the same root.
    Overhead,
    /// Checking the whole release.
    Check,
    /// Publishing 2,000 packages after one changed.
    Publish,
    /// The fakeroot beside plain calls, and beside other fakeroots that are installed.
    Fakeroot,
    /// status, why, log and plan on a yard of 30,000 packages and 20 runs.
    Queries,
}
