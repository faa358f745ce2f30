//! Writes a report into a folder, as pages and as data.
//!
//! Each file is written under a temporary name and then renamed, so readers see either the old or the new
//! version, never a partial one. The page of the run comes last, because it refers to the others.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use kilnyard_schema::Page;
use kilnyard_schema::compare::Difference;
use kilnyard_schema::package::{Build, PackageHistory, PackageOfRun, Why};
use kilnyard_schema::run::Failures;

use crate::site::{self, Folder, Place, STYLE_FILE, Shell};
use crate::{Chosen, Report, WebError, timeline};

/// File name of the page.
pub const PAGE_FILE: &str = "index.html";

/// File name of the data.
pub const REPORT_FILE: &str = "report.json";

/// File name of the data of a large run, compressed (gzip): of 30,000 packages, it would have 50 MB.
pub const PACKED_REPORT_FILE: &str = "report.json.gz";

/// The number of packages above which the data is compressed.
const PLAIN_PACKAGES_MAX: usize = 2000;

/// File name of the timeline as a separate drawing.
pub const TIMELINE_FILE: &str = "timeline.svg";

/// The folder with the pages of packages.
const PACKAGES_FOLDER: &str = "packages";
/// The longest name of a file of a package, without its suffix: file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 120;

/// What pages show in addition to the report itself.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// The failures of the run, compared with the run before.
    pub failures: Option<Failures>,
    /// For causes of failures, the build of a package that shows it.
    pub examples: Vec<Build>,
    /// All packages of the run.
    pub packages: Vec<PackageOfRun>,
    /// The number of packages in each state.
    pub counts: BTreeMap<String, u64>,
    /// The difference from the run before.
    pub difference: Option<Difference>,
    /// The packages that get a page.
    pub histories: Vec<(Why, PackageHistory)>,
    /// The files of logs in the folder, by build and stage.
    pub logs: HashMap<(u64, String), String>,
    /// The present, in seconds since 1970.
    pub now_seconds: f64,
}

/// Renders the text of `index.html` for a folder without other pages. Pure: equal reports give equal texts.
pub fn page(report: &Report) -> String {
    site::run(&shell(report, Folder::default()), report, None)
}

/// The file with the data of a report.
fn data_file(report: &Report) -> &'static str {
    if report.packages.len() > PLAIN_PACKAGES_MAX { PACKED_REPORT_FILE } else { REPORT_FILE }
}

fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()
}

fn shell(report: &Report, folder: Folder) -> Shell {
    let folder = Folder { data: data_file(report), ..folder };
    Shell { place: Place::Folder(folder), title: report.yard.clone(), run: Some(report.run), viewer: None }
}

fn make(path: &Path) -> Result<(), WebError> {
    fs::create_dir_all(path).map_err(|source| WebError::CreateFolder { path: path.to_owned(), source })
}

/// Writes `report.json`, the pages and, if there were builds, `timeline.svg` into `folder`, which is created if missing.
/// Touches nothing else there.
pub fn write(report: &Report, pages: &Pages, folder: &Path) -> Result<(), WebError> {
    make(folder)?;
    // The data of a large run takes as long as all of its pages.
    std::thread::scope(|scope| {
        let data = scope.spawn(|| write_data(report, folder));
        let shell = write_pages(report, pages, folder);
        data.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        replace(&folder.join(PAGE_FILE), site::run(&shell?, report, None).as_bytes())
    })
}

/// Writes `report.json`, compressed for a large run.
fn write_data(report: &Report, folder: &Path) -> Result<(), WebError> {
    let data = data_file(report);
    let json_path = folder.join(data);
    let mut json =
        serde_json::to_vec(report).map_err(|source| WebError::Encode { path: json_path.clone(), source })?;
    json.push(b'\n');
    match data {
        REPORT_FILE => replace(&json_path, &json)?,
        _ => replace(
            &json_path,
            &packed(&json).map_err(|source| WebError::WriteFile { path: json_path.clone(), source })?,
        )?,
    }
    for other in [REPORT_FILE, PACKED_REPORT_FILE].into_iter().filter(|other| *other != data) {
        let _ = fs::remove_file(folder.join(other));
    }
    Ok(())
}

/// Writes the timeline and the pages that the page of the run refers to. Returns what it needs to refer to them.
fn write_pages(report: &Report, pages: &Pages, folder: &Path) -> Result<Shell, WebError> {
    let timeline = folder.join(TIMELINE_FILE);
    match timeline::drawing(report) {
        Some(drawing) => replace(&timeline, drawing.as_bytes())?,
        None => match fs::remove_file(&timeline) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(WebError::WriteFile { path: timeline, source: error });
            }
            _ => {}
        },
    }
    let files: HashMap<String, String> = pages
        .histories
        .iter()
        .map(|(why, _)| (why.package.clone(), format!("{PACKAGES_FOLDER}/{}.html", file_name(&why.package))))
        .collect();
    let known = Folder {
        up: "",
        packages: Arc::new(files),
        logs: Arc::new(pages.logs.clone()),
        has_failures: pages.failures.is_some(),
        has_packages: !pages.packages.is_empty(),
        has_comparison: pages.difference.is_some(),
        is_list: false,
        data: data_file(report),
    };
    let (below, shell) = (shell(report, Folder { up: "../", ..known.clone() }), shell(report, known.clone()));
    if !pages.histories.is_empty() {
        make(&folder.join(PACKAGES_FOLDER))?;
        put(&folder.join(STYLE_FILE), site::style().as_bytes())?;
        for (why, history) in &pages.histories {
            let text = site::package(&below, why, history, (("", ""), &[]), pages.now_seconds);
            if let Some(file) = known.packages.get(&why.package) {
                put(&folder.join(file), text.as_bytes())?;
            }
        }
    }
    if !pages.packages.is_empty() {
        let all = Page { items: pages.packages.clone(), next: None };
        let text = site::packages(&shell, report.run, &Chosen::default(), &pages.counts, &all);
        put(&folder.join("packages.html"), text.as_bytes())?;
    }
    if let Some(failures) = &pages.failures {
        let text = site::failures(&shell, failures, &pages.examples);
        put(&folder.join("failures.html"), text.as_bytes())?;
    }
    if let Some(difference) = &pages.difference {
        put(&folder.join("compare.html"), site::compare(&shell, difference, &[]).as_bytes())?;
    }
    Ok(shell)
}

/// The name of a package's file, without a suffix: one that every file system and server takes. Names that had to be
/// changed end with a hash.
fn file_name(package: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "+-._".contains(character);
    let plain: String = package
        .chars()
        .map(|character| match character {
            '/' => ',',
            other if is_plain(other) => other,
            _ => '_',
        })
        .take(NAME_BYTES_MAX)
        .collect();
    let is_same = package.replace('/', ",") == plain && !package.contains(',') && !plain.starts_with('.');
    if is_same {
        return plain;
    }
    let mut hasher = DefaultHasher::new();
    package.hash(&mut hasher);
    format!("_{plain}-{:08x}", hasher.finish() as u32)
}

/// Replaces the content of a file that others refer to: after a power failure, it may be missing.
fn put(path: &Path, content: &[u8]) -> Result<(), WebError> {
    let temporary = temporary_path(path);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        WebError::WriteFile { path: path.to_owned(), source }
    })
}

/// Replaces the content of a file atomically.
fn replace(path: &Path, content: &[u8]) -> Result<(), WebError> {
    let temporary = temporary_path(path);
    let result = write_whole(&temporary, content)
        .map_err(|source| WebError::WriteFile { path: temporary.clone(), source })
        .and_then(|()| {
            fs::rename(&temporary, path).map_err(|source| WebError::Rename {
                from: temporary.clone(),
                to: path.to_owned(),
                source,
            })
        });
    if result.is_err() {
        // Return the first error: a failed removal of the temporary file adds nothing to it.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// The name includes the process id, so that concurrent writers of one report do not mix their bytes.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

/// Writes and flushes the file. Without the flush, a power failure right after the rename could leave an empty
/// file under the final name, and the report of a finished run is never written again.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn two_files_are_written_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("runs/7/report");
        let report = Report { yard: "yard & <co>".into(), ..Report::default() };
        write(&report, &Pages::default(), &inside).unwrap();
        assert_eq!(names(&inside), ["index.html", "report.json"]);
        let read: Report = serde_json::from_slice(&fs::read(inside.join(REPORT_FILE)).unwrap()).unwrap();
        assert_eq!(read, report);
        assert_eq!(fs::read_to_string(inside.join(PAGE_FILE)).unwrap(), page(&report));
    }

    #[test]
    fn a_second_report_replaces_the_first_and_leaves_the_logs_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        write(&Report { run: 1, ..Report::default() }, &Pages::default(), folder.path()).unwrap();
        write(&Report { run: 2, ..Report::default() }, &Pages::default(), folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["index.html", "logs", "report.json"]);
        let read: Report =
            serde_json::from_slice(&fs::read(folder.path().join(REPORT_FILE)).unwrap()).unwrap();
        assert_eq!(read.run, 2);
    }

    #[test]
    fn a_timeline_is_written_while_there_are_builds() {
        let folder = tempfile::tempdir().unwrap();
        let package =
            crate::ReportPackage { started_seconds: Some(1.0), wall_seconds: 8.0, ..Default::default() };
        let report = Report { packages: vec![package], ..Report::default() };
        write(&report, &Pages::default(), folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["index.html", "report.json", "timeline.svg"]);
        write(&Report::default(), &Pages::default(), folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["index.html", "report.json"]);
    }

    #[test]
    fn a_blocked_rename_is_an_error_with_the_path_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("index.html/inside")).unwrap();
        let error = write(&Report::default(), &Pages::default(), folder.path()).unwrap_err();
        assert!(matches!(&error, WebError::Rename { to, .. } if to.ends_with("index.html")), "{error:?}");
        assert!(error.to_string().starts_with("rename `"), "{error}");
        assert_eq!(names(folder.path()), ["index.html", "report.json"]);
    }

    #[test]
    fn names_of_files_are_plain_and_differ() {
        assert_eq!(file_name("devel/zlib"), "devel,zlib");
        assert_eq!(file_name("g++-12.2"), "g++-12.2");
        let odd = ["devel,zlib", "a b", "a_b", "..", "ä", "a\0b", "devel/zlib"].map(file_name);
        for (place, name) in odd.iter().enumerate() {
            assert!(!name.starts_with('.') && name.is_ascii() && !name.contains('/'), "{name}");
            assert!(odd.iter().skip(place + 1).all(|other| other != name), "{name}");
        }
        assert!(file_name(&"x".repeat(4000)).len() < 200);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        fs::write(&path, "a file").unwrap();
        let error = write(&Report::default(), &Pages::default(), &path).unwrap_err();
        assert!(matches!(&error, WebError::CreateFolder { path: named, .. } if *named == path), "{error:?}");
    }
}
