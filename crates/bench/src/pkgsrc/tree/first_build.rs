//! From a resolved set to the first build that is assigned, as in `kilnyard build`: the plan, the run in the
//! store, ranks, the first order. Nothing is built: the layers of roots do not exist, and the run is ended.

use super::Part;
use super::synthetic::SyntheticTree;
use crate::Trial;
use crate::child::all_cpu_seconds;
use crate::config::Config;
use crate::error::{Context, Error, Kind, Result};
use crate::family::Set;
use crate::figures::{Series, Unit};
use crate::plan::{self, Forced};
use crate::scratch::Scratch;
use crate::yard::{CONFIG, Yard};
use crate::{mirror, words};
use kilnyard_ecosystem::pkgsrc::import::{ConfigKey, Wanted};
use kilnyard_ecosystem::pkgsrc::{Scan, Settings, Workshop};
use kilnyard_family::FAMILIES;
use kilnyard_family::pkgsrc::{Template, TreeSet, template};
use serde_json::{Map, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Maximum wall time.
const WALL_SECONDS_MAX: f64 = 1.0;

pub fn measure(scratch: &Scratch, text: Vec<u8>, tree: &SyntheticTree, trial: &Trial<'_>) -> Result<Part> {
    let pairs = trial.pairs;
    let distfiles = scratch.path("distfiles");
    SyntheticTree::make_distfiles(&distfiles)?;
    let settings = settings(tree, distfiles);
    let target =
        format!("at most {WALL_SECONDS_MAX} s of wall time from the resolved set to the first build");
    let mut part = Part {
        name: "first_build",
        series: Vec::new(),
        facts: Map::new(),
        notes: Vec::new(),
        target,
        is_met: None,
    };
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    let mut first = None;
    for pair in 1..=pairs {
        crate::check_interrupt()?;
        let scan = Scan { text: text.clone(), failed: Vec::new(), awaited: Vec::new() };
        let workshop =
            Workshop::new(settings.clone(), scan, None).context(Kind::Usage, "resolve the scan")?;
        let packages = kilnyard_ecosystem::Ecosystem::graph(&workshop).len();
        part.facts.insert("packages".to_owned(), json!(packages));
        if packages == 0 {
            part.notes.push("no package of the scan can be built, so there is no first build".to_owned());
            return Ok(part);
        }
        let yard = yard(scratch.path("yard"), &settings, trial)?;
        let found = to_first_build(&yard, Set::new(TreeSet::new(workshop)), trial)?;
        wall.push(found.wall_seconds);
        cpu.push(found.cpu_seconds);
        first = Some((found.package, packages));
        trial.say(format_args!("first build: pair {pair} of {pairs} measured"));
    }
    if let Some((package, packages)) = first {
        let count = words::count(packages as u64, "package");
        part.notes.push(format!("the first build of {count} is {package}"));
        part.facts.insert("package".to_owned(), json!(package));
    }
    let wall = Series::new("first_build_wall_seconds", "to the first build, wall", Unit::Seconds, wall);
    part.is_met = Some(wall.median() <= WALL_SECONDS_MAX);
    part.series =
        vec![wall, Series::new("first_build_cpu_seconds", "to the first build, CPU", Unit::Seconds, cpu)];
    Ok(part)
}

fn settings(tree: &SyntheticTree, distfiles: PathBuf) -> Settings {
    Settings {
        tree: tree.folder.clone(),
        distfiles,
        // There are no layers, so nothing is built.
        layers: Vec::new(),
        layers_digest: String::new(),
        prefix: "/usr/pkg".to_owned(),
        make: "/usr/pkg/bin/bmake".to_owned(),
        mk_conf: String::new(),
        architecture: "amd64".to_owned(),
        target: "pkgsrc/linux/none/amd64".parse().expect("a target"),
        packages: Default::default(),
    }
}

/// Creates a new yard in place of the previous one.
fn yard(folder: PathBuf, settings: &Settings, trial: &Trial<'_>) -> Result<Yard> {
    let failed = "create a yard for the benchmark";
    if folder.exists() {
        fs_err::remove_dir_all(&folder).context(Kind::Machine, failed)?;
    }
    Yard::make_folders(&folder)?;
    let text = template(&Template {
        wanted: Some(Wanted::All),
        values: vec![
            (ConfigKey::Tree, settings.tree.display().to_string()),
            (ConfigKey::Distfiles, settings.distfiles.display().to_string()),
        ],
        release: "bookworm".to_owned(),
        mirror: "http://mirror.invalid/debian".to_owned(),
        remarks: Vec::new(),
    });
    let path = folder.join(CONFIG);
    fs_err::write(&path, &text).context(Kind::Machine, failed)?;
    let config = Config::parse(&text, &path, FAMILIES)?;
    Ok(Yard::of_parts(folder, config, trial.environment))
}

struct FirstBuild {
    package: String,
    wall_seconds: f64,
    cpu_seconds: f64,
}

fn to_first_build(yard: &Yard, set: Set, trial: &Trial<'_>) -> Result<FirstBuild> {
    let mut store = yard.store()?;
    let distfiles = Arc::new(mirror::open_files(yard)?);
    let (started, cpu_seconds) = (Instant::now(), all_cpu_seconds());
    let mut found = None;
    let planned =
        plan::compare_all(yard, set, "benchmark-0".to_owned(), &distfiles, &*store, &Forced::Nothing)?;
    plan::save(&mut *store, &planned.plan)?;
    trial.runner.run(yard, &mut *store, planned, distfiles, &mut |package| {
        found.get_or_insert_with(|| FirstBuild {
            package: package.to_owned(),
            wall_seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: all_cpu_seconds() - cpu_seconds,
        });
        true
    })?;
    found.ok_or_else(|| Error::new(Kind::Internal, "no build was assigned"))
}
