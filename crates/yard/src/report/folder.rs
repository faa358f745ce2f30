//! The folders of reports: one for each run, `latest`, a list of them, and which are kept.
//!
//! ```text
//! report/index.html     the reports that are there
//! report/latest         a link to the report of the last run of the whole set
//! report/12/            the report of run 12; it can be copied elsewhere alone
//! ```

use crate::error::{Context, Kind, Result};
use crate::facts::status::described;
use crate::report::name_of;
use crate::words::now_seconds;
use crate::yard::{Yard, store_error};
use kilnyard_store::{Number, Store};
use kilnyard_web::{Folder, Place, Shell};
use std::path::Path;

/// The folder with all reports, relative to the yard.
pub const ALL: &str = "report";
/// The link in it to the report of the last run of the whole set.
pub const LATEST: &str = "latest";
/// What earlier versions wrote into the folder itself.
const FORMER: [&str; 3] = ["report.json", "timeline.svg", "logs"];
/// What earlier versions called the report of a run of a part of the set.
const FORMER_PART: &str = "run-";

/// The folder of a run's report, relative to the yard.
pub fn of_run(run: Number) -> String {
    format!("{ALL}/{run}")
}

/// After the report of a run was written: points `latest` to it if it is of the whole set, removes reports that are not to be kept,
/// and lists the others.
///
/// # Errors
/// The folder cannot be written.
pub fn finish(yard: &Yard, store: &dyn Store, run: Number, is_whole: bool) -> Result<()> {
    let all = yard.path(ALL);
    let failed = "finish the report";
    let latest = latest(yard);
    if is_whole || latest.is_none() {
        let new = all.join(format!(".{LATEST}.new"));
        let _ = fs_err::remove_file(&new);
        fs_err::os::unix::fs::symlink(run.to_string(), &new)
            .and_then(|()| fs_err::rename(&new, all.join(LATEST)))
            .context(Kind::Machine, failed)?;
    }
    remove_former(&all).context(Kind::Machine, failed)?;
    let kept = tidy(yard, run)?;
    write_list(yard, store, &kept)
}

/// The run that `latest` names.
fn latest(yard: &Yard) -> Option<Number> {
    let target = fs_err::read_link(yard.path(ALL).join(LATEST)).ok()?;
    target.to_str()?.parse().ok()
}

/// Removes what earlier versions wrote.
fn remove_former(all: &Path) -> std::io::Result<()> {
    for name in FORMER {
        let path = all.join(name);
        if path.is_dir() {
            fs_err::remove_dir_all(path)?;
        } else if path.exists() {
            fs_err::remove_file(path)?;
        }
    }
    for entry in fs_err::read_dir(all)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_part = name.to_str().and_then(|name| name.strip_prefix(FORMER_PART)?.parse::<Number>().ok());
        if is_part.is_some() && entry.path().is_dir() {
            fs_err::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Removes the reports that `[report.keep]` does not keep, and returns the runs of the others, the latest first.
fn tidy(yard: &Yard, run: Number) -> Result<Vec<Number>> {
    let (keep, latest) = (yard.config.report.keep, latest(yard));
    let all = yard.path(ALL);
    let entries = fs_err::read_dir(&all).context(Kind::Machine, "read the folder of reports")?.flatten();
    let of_run = |entry: fs_err::DirEntry| {
        entry.file_name().to_str()?.parse::<Number>().ok().filter(|_| entry.path().is_dir())
    };
    let mut runs: Vec<Number> = entries.filter_map(of_run).collect();
    runs.sort_unstable_by(|one, other| other.cmp(one));
    let (mut kept, mut bytes) = (Vec::new(), 0u64);
    let oldest_seconds = now_seconds() - f64::from(keep.days) * 86_400.0;
    for one in runs {
        let folder = all.join(one.to_string());
        bytes = bytes.saturating_add(size_of(&folder));
        let made =
            fs_err::metadata(folder.join(kilnyard_web::PAGE_FILE)).and_then(|metadata| metadata.modified());
        let made = made.ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
        let is_young = made.is_some_and(|made| made.as_secs_f64() >= oldest_seconds);
        let fits = is_young && kept.len() < keep.runs as usize && bytes <= keep.size.0;
        if one == run || Some(one) == latest || fits {
            kept.push(one);
        } else {
            fs_err::remove_dir_all(folder).context(Kind::Machine, "remove an old report")?;
        }
    }
    Ok(kept)
}

/// The size of the files of a report.
fn size_of(folder: &Path) -> u64 {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Writes the list of the reports that are there.
fn write_list(yard: &Yard, store: &dyn Store, kept: &[Number]) -> Result<()> {
    let rows = store.runs().map_err(store_error)?;
    let rows = rows.iter().filter(|run| kept.contains(&run.number));
    let runs = rows.map(|run| described(yard, store, run)).collect::<Result<Vec<_>>>()?;
    let shell = Shell {
        place: Place::Folder(Folder { is_list: true, ..Folder::default() }),
        title: name_of(yard),
        run: None,
        viewer: None,
    };
    let text = kilnyard_web::runs(&shell, &runs, now_seconds());
    let (path, new) = (yard.path(&format!("{ALL}/index.html")), yard.path(&format!("{ALL}/.index.html.new")));
    fs_err::write(&new, text)
        .and_then(|()| fs_err::rename(&new, path))
        .context(Kind::Machine, "list the reports")
}
