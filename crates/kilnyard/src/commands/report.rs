//! `kilnyard report`: where the report of a run is, and its results in the formats of other programs.

use super::{last_run, print, printed};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_yard::facts::export::{github, junit, sarif};
use kilnyard_yard::facts::picture::Picture;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::report::folder;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &cli::Report) -> Result<ExitCode> {
    let store = yard.store()?;
    let run = match options.run {
        Some(run) => run,
        None => last_run(yard, &*store)?.number,
    };
    let picture = Picture::read(&*store, run).map_err(|error| error.hint(Remedy::command("history")))?;
    if let Some(path) = &options.junit {
        return write(path, &junit::junit(yard, &picture).or_internal("write XML")?);
    }
    if let Some(path) = &options.sarif {
        let mut text = serde_json::to_vec_pretty(&sarif::sarif(yard, &picture)).or_internal("write JSON")?;
        text.push(b'\n');
        return write(path, &text);
    }
    if options.github {
        return print(&github::github(yard, &picture));
    }
    let page = yard.path(&format!("{}/index.html", folder::of_run(run)));
    if !page.exists() {
        let error = Error::usage(format!("there is no report of run {run}"));
        return Err(match picture.run.ended_seconds {
            None => error.hint("a run gets its report at its end"),
            Some(_) => error.hint("[report.keep] in kilnyard.toml says how long reports are kept"),
        });
    }
    print(&format!("{}\n", page.display()))
}

/// Writes a file, or to standard output.
fn write(path: &Path, text: &[u8]) -> Result<ExitCode> {
    if path == Path::new("-") {
        let mut out = std::io::stdout().lock();
        return printed(out.write_all(text).and_then(|()| out.flush()));
    }
    let failed = format!("write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).context(Kind::Machine, &failed)?;
    file.write_all(text).context(Kind::Machine, &failed)?;
    use std::os::unix::fs::PermissionsExt;
    let readable = std::fs::Permissions::from_mode(0o644);
    file.as_file().set_permissions(readable).context(Kind::Machine, &failed)?;
    file.persist(path).context(Kind::Machine, &failed)?;
    Ok(ExitCode::SUCCESS)
}
