//! A synthetic set of make and ninja projects that do a known amount of work.

use crate::error::{Context, Kind, Result};
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_schedule::{Basis, Step, Work};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Number of builds on the longest path.
const PATH_LENGTH: usize = 4;
/// Number of small packages per core that others need, and number of small packages that need each of them.
const NEEDED_PER_CORE: usize = 2;
const LEAVES: usize = 6;
/// Number of objects in a project.
const OBJECTS: u32 = 12;

/// The work of a project in seconds of one core: before its objects, for each object, and after them.
struct Shape {
    configure: f64,
    object: f64,
    install: f64,
}

const LARGE: Shape = Shape { configure: 0.6, object: 0.3, install: 0.3 };
const SMALL: Shape = Shape { configure: 0.15, object: 0.02, install: 0.05 };

/// The set, written to a folder.
pub struct Projects {
    folder: PathBuf,
    pub graph: Arc<Graph>,
    pub works: Vec<Work>,
    /// Number of projects built by ninja: those with odd numbers.
    pub by_ninja: usize,
}

impl Projects {
    /// Writes a set for this many cores.
    pub fn write(folder: &Path, cores: u32) -> Result<Projects> {
        let rounds_per_second = rounds_per_second()?;
        let has_ninja = knows_jobservers("ninja");
        let mut graph = Graph::new();
        // All others depend on this one.
        let root = graph.add("root");
        let mut shapes = vec![SMALL];
        let mut previous = root;
        for step in 0..PATH_LENGTH {
            let next = graph.add(&format!("path{step}"));
            graph.depend(next, previous);
            shapes.push(LARGE);
            previous = next;
        }
        // More packages depend on a small one than on any of the path: as in real trees, the number of
        // dependents does not show which packages are on a long path.
        for number in 0..NEEDED_PER_CORE * cores as usize {
            let needed = graph.add(&format!("needed{number}"));
            graph.depend(needed, root);
            shapes.push(SMALL);
            for leaf in 0..LEAVES {
                let leaf = graph.add(&format!("leaf{number}-{leaf}"));
                graph.depend(leaf, needed);
                shapes.push(SMALL);
            }
        }
        let projects = Projects {
            folder: folder.to_owned(),
            works: shapes.iter().map(work).collect(),
            by_ninja: if has_ninja { shapes.len() / 2 } else { 0 },
            graph: Arc::new(graph),
        };
        let failed = "write the projects";
        for (package, shape) in projects.graph.packages().zip(&shapes) {
            let folder = projects.folder_of(package);
            fs_err::create_dir_all(&folder).context(Kind::Machine, failed)?;
            let rounds = |seconds: f64| (seconds * rounds_per_second) as u64;
            let (name, text) = match projects.uses_ninja(package) {
                true => ("build.ninja", ninja_file(shape, rounds)),
                false => ("Makefile", makefile(shape, rounds)),
            };
            fs_err::write(folder.join(name), text).context(Kind::Machine, failed)?;
        }
        Ok(projects)
    }

    pub fn folder_of(&self, package: PackageId) -> PathBuf {
        self.folder.join(self.graph.name(package))
    }

    pub fn uses_ninja(&self, package: PackageId) -> bool {
        self.by_ninja > 0 && package.index() % 2 == 1
    }

    /// Removes the files of builds.
    pub fn clean(&self) -> Result<()> {
        for package in self.graph.packages() {
            for entry in fs_err::read_dir(self.folder_of(package)).or_internal("clean the projects")? {
                let entry = entry.or_internal("clean the projects")?;
                let name = entry.file_name();
                if name != "Makefile" && name != "build.ninja" {
                    fs_err::remove_file(entry.path()).or_internal("clean the projects")?;
                }
            }
        }
        Ok(())
    }
}

fn work(shape: &Shape) -> Work {
    let parallel = Step::Parallel(shape.object * f64::from(OBJECTS));
    Work {
        steps: vec![Step::Serial(shape.configure), parallel, Step::Serial(shape.install)],
        basis: Basis::Recorded,
        ..Work::default()
    }
}

/// A shell loop with this many rounds. Its CPU time does not depend on other builds.
fn burn(rounds: u64) -> String {
    format!("i=0; while [ $$i -lt {rounds} ]; do i=$$((i+1)); done")
}

fn makefile(shape: &Shape, rounds: impl Fn(f64) -> u64) -> String {
    let objects: Vec<String> = (0..OBJECTS).map(|number| format!("{number}.o")).collect();
    let objects = objects.join(" ");
    format!(
        "installed: {objects}\n\t@{}; touch $@\n{objects}: configured\n\t@{}; touch $@\nconfigured:\n\t@{}; touch $@\n",
        burn(rounds(shape.install)),
        burn(rounds(shape.object)),
        burn(rounds(shape.configure))
    )
}

fn ninja_file(shape: &Shape, rounds: impl Fn(f64) -> u64) -> String {
    let rule = |name: &str, seconds| {
        format!("rule {name}\n  command = sh -c '{}'; touch $out\n", burn(rounds(seconds)))
    };
    let mut text = rule("configure", shape.configure);
    text.push_str(&rule("object", shape.object));
    text.push_str(&rule("install", shape.install));
    text.push_str("build configured: configure\n");
    let mut objects = String::new();
    for number in 0..OBJECTS {
        let _ = writeln!(text, "build {number}.o: object configured");
        let _ = write!(objects, " {number}.o");
    }
    let _ = writeln!(text, "build installed: install{objects}\ndefault installed");
    text
}

/// Number of rounds of the loop that this machine executes in a second of CPU time.
fn rounds_per_second() -> Result<f64> {
    const ROUNDS: u64 = 300_000;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let began = Instant::now();
        let script = burn(ROUNDS).replace("$$", "$");
        let status = Command::new("/bin/sh").args(["-c", &script]).status();
        status.context(Kind::Machine, "run /bin/sh")?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(ROUNDS as f64 / best)
}

/// Whether this ninja supports jobservers: version 1.13 or later.
fn knows_jobservers(ninja: &str) -> bool {
    let Ok(output) = Command::new(ninja).arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.trim().split('.').map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(1), Some(13))
}
