//! The reports that pbulk writes, beside ours: for collectors of bulk builds and for mails.
//!
//! `report/pbulk/report.txt` is for people, and names the folder of the run, `report/pbulk/TIME/meta`. There `report` (and
//! `report.xz`) has a stanza for every package, `status` the facts of the build, and `report.html` leads to our page.

use crate::error::{Context, Kind, Result};
use crate::files::{write_whole, write_whole_by};
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_ecosystem::Ecosystem;
use kilnyard_ecosystem::pkgsrc::report::{
    Header, Package, REPORT_FILE, Status, depths, write_package, write_text,
};
use kilnyard_ecosystem::pkgsrc::scan_file::ScanFile;
use kilnyard_ecosystem::pkgsrc::{LeftOutStanza, Workshop};
use kilnyard_model::result::PackageState;
use kilnyard_store::{RunRow, Store};
use std::collections::HashMap;

/// Writes the reports of the last run.
pub fn write(yard: &Yard, store: &impl Store, workshop: &Workshop) -> Result<()> {
    let failed = "write the reports for pbulk's readers";
    let Some(run) = store.last_run().map_err(store_error)? else { return Ok(()) };
    let rows = store.packages(run.number).map_err(store_error)?;
    let states: HashMap<&str, PackageState> = rows.iter().map(|row| (row.name.as_str(), row.state)).collect();
    let graph = workshop.graph();
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
    let before: Vec<_> = fs_err::read_dir(&folder).into_iter().flatten().flatten().collect();
    let meta = folder.join(header.folder()).join("meta");
    fs_err::create_dir_all(&meta).context(Kind::Machine, failed)?;
    // That of a whole tree has 160 MB: one package after the other is resolved, written and forgotten.
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
    for old in before.iter().filter(|entry| entry.path().is_dir() && !meta.starts_with(entry.path())) {
        fs_err::remove_dir_all(old.path()).context(Kind::Machine, failed)?;
    }
    Ok(())
}

/// A page that leads to ours.
const PAGE: &str = "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=../../../index.html\">\n";
/// Enough for a text that repeats itself, and fast.
const XZ_LEVEL: u32 = 1;

/// A package's stanza with its exact dependencies.
fn stanza_of(workshop: &Workshop, id: kilnyard_model::graph::PackageId) -> Vec<u8> {
    let names = workshop.graph().dependencies(id).iter().map(|id| workshop.package_name(*id));
    resolved(workshop.stanza(id), names, None)
}

/// The stanza of a package that was left out, with the reason that a resolver found, and whether another one is to blame.
fn left_out_stanza(left_out: LeftOutStanza) -> (Vec<u8>, bool) {
    (resolved(left_out.text, std::iter::empty(), left_out.fail_reason), left_out.is_indirect)
}

/// A stanza with what a resolver found.
fn resolved<'a>(text: &[u8], names: impl Iterator<Item = &'a str>, fail_reason: Option<&str>) -> Vec<u8> {
    let mut resolved = Vec::with_capacity(text.len());
    let written = match ScanFile::parse(text).unwrap_or_default().stanzas.first() {
        Some(stanza) => stanza.write_resolved(&mut resolved, names, fail_reason),
        None => Ok(()),
    };
    // Writing into memory cannot fail, and a stanza that was read once can be read again.
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

/// What the report says of the build; of the platform what the packages themselves say.
fn header(yard: &Yard, store: &impl Store, run: &RunRow) -> Result<Header> {
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
        base_url: format!("file://{}", yard.path("report/pbulk").display()),
    })
}
