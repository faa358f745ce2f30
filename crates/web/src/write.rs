//! Writes a report into a folder.
//!
//! Each file is written under a temporary name and then renamed, so readers see either the old or the new
//! version, never a partial one. `report.json` comes first, because the page refers to it.

use std::io::Write;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::{Report, WebError, page, timeline};

/// File name of the page.
pub const PAGE_FILE: &str = "index.html";

/// File name of the data.
pub const REPORT_FILE: &str = "report.json";

/// File name of the timeline as a separate drawing.
pub const TIMELINE_FILE: &str = "timeline.svg";

/// Writes `index.html`, `report.json` and, if there were builds, `timeline.svg` into `folder`, which is created if
/// missing. Touches nothing else there.
pub fn write(report: &Report, folder: &Path) -> Result<(), WebError> {
    fs::create_dir_all(folder)
        .map_err(|source| WebError::CreateFolder { path: folder.to_owned(), source })?;
    let json_path = folder.join(REPORT_FILE);
    let mut json =
        serde_json::to_vec(report).map_err(|source| WebError::Encode { path: json_path.clone(), source })?;
    json.push(b'\n');
    replace(&json_path, &json)?;
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
    replace(&folder.join(PAGE_FILE), page(report).as_bytes())
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
        write(&report, &inside).unwrap();
        assert_eq!(names(&inside), ["index.html", "report.json"]);
        let read: Report = serde_json::from_slice(&fs::read(inside.join(REPORT_FILE)).unwrap()).unwrap();
        assert_eq!(read, report);
        assert_eq!(fs::read_to_string(inside.join(PAGE_FILE)).unwrap(), page(&report));
    }

    #[test]
    fn a_second_report_replaces_the_first_and_leaves_the_logs_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        write(&Report { run: 1, ..Report::default() }, folder.path()).unwrap();
        write(&Report { run: 2, ..Report::default() }, folder.path()).unwrap();
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
        write(&report, folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["index.html", "report.json", "timeline.svg"]);
        write(&Report::default(), folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["index.html", "report.json"]);
    }

    #[test]
    fn a_blocked_rename_is_an_error_with_the_path_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("index.html/inside")).unwrap();
        let error = write(&Report::default(), folder.path()).unwrap_err();
        assert!(matches!(&error, WebError::Rename { to, .. } if to.ends_with("index.html")), "{error:?}");
        assert!(error.to_string().starts_with("rename `"), "{error}");
        assert_eq!(names(folder.path()), ["index.html", "report.json"]);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        fs::write(&path, "a file").unwrap();
        let error = write(&Report::default(), &path).unwrap_err();
        assert!(matches!(&error, WebError::CreateFolder { path: named, .. } if *named == path), "{error:?}");
    }
}
