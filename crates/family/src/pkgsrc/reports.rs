//! Reports in pbulk's formats, in addition to ours: for collectors of bulk build results and for mails.
//!
//! `report/pbulk/report.txt` is human-readable and names the folder of the run, `report/pbulk/TIME/meta`. In that
//! folder, `report` (and `report.xz`) has a stanza for every package, `status` has facts about the build, and
//! `report.html` redirects to our page.

use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::pkgsrc::report::{
    Header, Package, REPORT_FILE, Status, depths, write_package, write_text,
};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use kilnyard_ecosystem::pkgsrc::{LeftOutStanza, Workshop};
use kilnyard_model::result::PackageState;
use kilnyard_store::{RunRow, Store};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::files::{write_whole, write_whole_by};
use kilnyard_yard::words::now_seconds;
use kilnyard_yard::yard::{Yard, store_error};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Writes the reports after the last run. They always cover the whole set: a package that was not in this run has the
/// state that the latest run with this package left.
pub fn write(yard: &Yard, store: &dyn Store, workshop: &Workshop) -> Result<()> {
    let failed = "write the reports for pbulk's readers";
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(()) };
    let graph = workshop.graph();
    let states = states(store, workshop)?;
    let depths = depths(graph);
    let left_out: Vec<(Vec<u8>, bool)> = workshop.left_out_stanzas().map(left_out_stanza).collect();
    let mut packages: Vec<Package> = graph
        .packages()
        .map(|id| Package {
            stanza: workshop.stanza(id),
            status: states.get(graph.name(id)).map_or(Status::Open, |state| status(*state)),
            depth: depths[id.index()],
        })
        .collect();
    packages.extend(left_out.iter().map(|(stanza, is_indirect)| Package {
        stanza,
        status: if *is_indirect { Status::IndirectPrefailed } else { Status::Prefailed },
        depth: 1,
    }));
    let header = header(yard, store, &run)?;
    let folder = yard.path("report/pbulk");
    let meta = folder.join(header.folder()).join("meta");
    fs_err::create_dir_all(&meta).context(Kind::Machine, failed)?;
    // Runs of the same minute share a folder, as in pbulk.
    let is_shared = meta.join(REPORT_FILE).exists() && !meta.join(PART).exists();
    // The report of a whole tree has 160 MB, so each package is resolved, written and dropped before the next one.
    let (in_graph, others) = packages.split_at(graph.len());
    write_whole_by(&meta.join("report"), |out| {
        for (id, package) in graph.packages().zip(in_graph) {
            write_package(out, package, &stanza_of(workshop, id))?;
        }
        others.iter().try_for_each(|package| write_package(out, package, package.stanza))
    })?;
    write_whole_by(&meta.join(REPORT_FILE), |out| {
        let mut packed = liblzma::write::XzEncoder::new(out, XZ_LEVEL);
        std::io::copy(&mut fs_err::File::open(meta.join("report"))?, &mut packed)?;
        packed.finish().map(|_| ())
    })?;
    write_whole_by(&meta.join("status"), |out| header.write_status(out))?;
    write_whole(&meta.join("report.html"), PAGE.as_bytes())?;
    write_whole_by(&folder.join("report.txt"), |out| write_text(out, &header, &packages))?;
    let in_run = store.counts(run.number).map_err(store_error)?;
    let is_whole = in_run.iter().map(|(_, count)| count).sum::<u64>() >= graph.len() as u64;
    if !is_whole && !is_shared {
        fs_err::write(meta.join(PART), "").context(Kind::Machine, failed)?;
    }
    remove_old(&folder)
}

/// The mark in the folder of a run of a part of the set.
const PART: &str = ".part";

/// Number of folders to keep of runs of the whole set. The folder of a whole tree has 160 MB.
const FOLDERS_MAX: usize = 5;
/// Number of folders to keep of runs of a part of the set, which displace no others.
const PARTS_MAX: usize = 1;

/// Removes the oldest run folders. Their names are times, so they sort by age. Folders without `meta` are not ours.
fn remove_old(folder: &Path) -> Result<()> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let is_of_run = |path: &PathBuf| path.join("meta").is_dir();
    let mut runs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_of_run).collect();
    runs.sort();
    let (parts, whole): (Vec<PathBuf>, Vec<PathBuf>) =
        runs.into_iter().partition(|run| run.join("meta").join(PART).exists());
    for (some, most) in [(parts, PARTS_MAX), (whole, FOLDERS_MAX)] {
        for old in &some[..some.len().saturating_sub(most)] {
            fs_err::remove_dir_all(old).context(Kind::Machine, "remove an old report for pbulk's readers")?;
        }
    }
    Ok(())
}

/// Number of runs read to find the state of each package. Partial runs are small, and the first run of the whole set
/// ends the search.
const RUNS_MAX: usize = 100;

/// The state of each package of the set, from the latest run with its current version.
fn states(store: &dyn Store, workshop: &Workshop) -> Result<HashMap<String, PackageState>> {
    let graph = workshop.graph();
    let mut states = HashMap::new();
    let mut missing: HashSet<&str> = graph.packages().map(|id| graph.name(id)).collect();
    for run in store.runs().map_err(store_error)?.iter().take(RUNS_MAX) {
        for row in store.packages(run.number).map_err(store_error)? {
            let Some(id) = graph.find(&row.name).filter(|_| missing.remove(row.name.as_str())) else {
                continue;
            };
            if workshop.version(id) == row.version {
                states.insert(row.name, row.state);
            }
        }
        if missing.is_empty() {
            break;
        }
    }
    Ok(states)
}

/// A page that redirects to ours.
const PAGE: &str = "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=../../../index.html\">\n";
/// Fast, and good enough for repetitive text.
const XZ_LEVEL: u32 = 1;

/// A package's stanza with its exact dependencies.
fn stanza_of(workshop: &Workshop, id: kilnyard_model::graph::PackageId) -> Vec<u8> {
    let names = workshop.graph().dependencies(id).iter().map(|id| workshop.package_name(*id));
    resolved(workshop.stanza(id), names, None)
}

/// The stanza of a package that was left out, with the resolver's reason, and whether another package is the cause.
fn left_out_stanza(left_out: LeftOutStanza) -> (Vec<u8>, bool) {
    (resolved(left_out.text, std::iter::empty(), left_out.fail_reason), left_out.is_indirect)
}

/// A stanza with the results of resolving.
fn resolved<'a>(text: &[u8], names: impl Iterator<Item = &'a str>, fail_reason: Option<&str>) -> Vec<u8> {
    let mut resolved = Vec::with_capacity(text.len());
    let written = match ScanFile::parse(text).unwrap_or_default().stanzas.first() {
        Some(stanza) => stanza.write_resolved(&mut resolved, names, fail_reason),
        None => Ok(()),
    };
    // Writing to memory cannot fail, and a stanza that was parsed once can be parsed again.
    written.map_or_else(|_| text.to_vec(), |()| resolved)
}

fn status(state: PackageState) -> Status {
    match state {
        PackageState::Built | PackageState::Unchanged | PackageState::UpToDate => Status::Done,
        PackageState::Failed => Status::Failed,
        PackageState::Blocked => Status::IndirectFailed,
        PackageState::LeftOut => Status::Prefailed,
        PackageState::Waiting | PackageState::Ready | PackageState::Building | PackageState::Skipped => {
            Status::Open
        }
    }
}

/// The header of the report. The platform comes from the packages' own descriptions.
fn header(yard: &Yard, store: &dyn Store, run: &RunRow) -> Result<Header> {
    let outputs = store.outputs().map_err(store_error)?;
    let said = |key: &str| {
        let mut lines = outputs.iter().flat_map(|row| row.output.description.lines());
        lines.find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    };
    let kernel =
        || fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    Ok(Header {
        platform: said("OPSYS=").unwrap_or_else(|| "Linux".to_owned()),
        version: said("OS_VERSION=").unwrap_or_else(kernel),
        architecture: said("MACHINE_ARCH=").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        compiler: "gcc".to_owned(),
        start_seconds: run.started_seconds as i64,
        end_seconds: run.ended_seconds.unwrap_or_else(now_seconds) as i64,
        base_url: match &yard.config.report.base_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("file://{}", yard.path("report/pbulk").display()),
        },
    })
}
