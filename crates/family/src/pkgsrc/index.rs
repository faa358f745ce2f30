//! `kilnyard index`: makes look-up files from a pkg_summary, and looks up packages in them.

use super::options::Index;
use kilnyard_ecosystem::pkgsrc::summary::{self, REPEATED};
use kilnyard_publish::{LookUp, render_look_up};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::program::Program;
use kilnyard_yard::words;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Runs `index look-up` without options, if the command line is one. Clients start the program once for each package,
/// and building the command-line parser for all commands costs more than the look-up itself.
pub fn look_up_if_asked(words: &[OsString], program: &dyn Program) -> Option<Result<ExitCode>> {
    let [index, look_up_word, file, package] = words else { return None };
    let is_plain = |word: &OsString| !word.is_empty() && !word.as_encoded_bytes().starts_with(b"-");
    let is_asked = index == "index" && look_up_word == "look-up" && is_plain(file) && is_plain(package);
    is_asked.then(|| package.to_str().map(|package| look_up(Path::new(file), package, false, program)))?
}

pub fn run(options: &Index, program: &dyn Program) -> Result<ExitCode> {
    match options {
        Index::Make { summary, file } => make(summary, file, program),
        Index::LookUp { file, package, json } => look_up(file, package, *json, program),
    }
}

fn make(summary: &Path, file: &Path, program: &dyn Program) -> Result<ExitCode> {
    let failed = format!("read {}", summary.display());
    let bytes = program.read(summary).context(Kind::Usage, &failed)?;
    let text = String::from_utf8(bytes).context(Kind::Usage, &failed)?;
    let entries = summary::entries(&text).context(Kind::Usage, &failed)?;
    let records: Vec<(&str, &[u8])> =
        entries.iter().map(|entry| (entry.name, entry.text.as_bytes())).collect();
    let rendered =
        render_look_up(&records).context(Kind::Usage, format!("make an index of {}", summary.display()))?;
    write_whole(file, &rendered)?;
    say!(
        program,
        "{} in {}, {}",
        words::count(records.len() as u64, "package"),
        file.display(),
        words::size(rendered.len() as u64)
    );
    Ok(ExitCode::SUCCESS)
}

fn look_up(file: &Path, package: &str, as_json: bool, program: &dyn Program) -> Result<ExitCode> {
    let failed = format!("look up {package}");
    let found = LookUp::open(file).and_then(|index| index.get(package)).context(Kind::Usage, &failed)?;
    let Some(content) = found else {
        return Err(Error::usage(format!("package {package} not found in {}", file.display())));
    };
    let text = String::from_utf8(content).context(Kind::Usage, &failed)?;
    if !as_json {
        return program.print(&text);
    }
    let mut fields = Map::new();
    for (key, value) in (summary::SummaryEntry { name: package, text: &text }).fields() {
        match REPEATED.contains(&key) {
            true => match fields.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(values) => values.push(value.into()),
                other => *other = value.into(),
            },
            false => {
                fields.insert(key.to_owned(), value.into());
            }
        }
    }
    program.print_json(&Value::Object(fields))
}
