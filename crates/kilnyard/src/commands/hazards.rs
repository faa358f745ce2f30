//! `kilnyard hazards`: instructions that stall or crash the machines that packages run on.

use super::{print, print_json};
use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::words::{count, size};
use crate::yard::Yard;
use kilnyard_hazard::{Architecture, Found, Hazard};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code if there are any.
const FOUND: u8 = 1;
/// What was found in layers, by their names.
const KEPT: &str = "state/hazards";
/// Bumped when the search finds other things.
const FORM: u32 = 2;

/// A file with hazards.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    path: String,
    #[serde(flatten)]
    found: Found,
}

/// What was searched.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Searched {
    files: u64,
    code_bytes: u64,
    /// The files that have any.
    hazards: Vec<Entry>,
}

impl Searched {
    fn take(&mut self, path: &str, found: Found) {
        self.files += 1;
        self.code_bytes += found.code_bytes;
        if !found.is_empty() {
            self.hazards.push(Entry { path: path.to_owned(), found });
        }
    }

    fn add(&mut self, other: Searched) {
        self.files += other.files;
        self.code_bytes += other.code_bytes;
        self.hazards.extend(other.hazards);
    }
}

/// What is kept of a layer.
#[derive(Serialize, Deserialize)]
struct Kept {
    form: u32,
    /// See [`identity`].
    identity: String,
    searched: Searched,
}

/// What differs if a layer is made again under the same name, which says what it was made of: its folder of files is another one.
fn identity(layer: &Path) -> std::io::Result<String> {
    let files = layer.join("files");
    let facts = fs_err::metadata(if files.is_dir() { &files } else { layer })?;
    Ok(format!("{} {}.{}", facts.ino(), facts.mtime(), facts.mtime_nsec()))
}

pub fn run(yard: impl FnOnce() -> Result<Yard>, options: &cli::Hazards) -> Result<ExitCode> {
    let mut searched = Searched::default();
    match &options.paths[..] {
        [] => of_layers(&yard()?, &mut searched)?,
        paths => {
            for path in paths {
                search(path, &mut |name, found| searched.take(name, found))?;
            }
        }
    }
    if let Some(only) = options.only {
        for entry in &mut searched.hazards {
            entry.found.counts.retain(|hazard, _| only.includes(*hazard));
            entry.found.needed = entry.found.needed.filter(|hazard| only.includes(*hazard));
        }
        searched.hazards.retain(|entry| !entry.found.is_empty());
    }
    let code = if searched.hazards.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) };
    match options.json {
        true => print_json(&json!(searched))?,
        false => print(&text(&searched))?,
    };
    Ok(code)
}

fn search(path: &Path, take: &mut dyn FnMut(&str, Found)) -> Result<()> {
    kilnyard_hazard::scan(path, &mut |name, _: Architecture, found| take(name, found))
        .context(Kind::Usage, format!("search {}", path.display()))
}

/// All layers of a yard. Each is searched once: a layer never changes.
fn of_layers(yard: &Yard, searched: &mut Searched) -> Result<()> {
    let failed = "keep what was found in a layer";
    let folders = ["layers", "layers/dependencies/packages", "layers/dependencies/sets"];
    let known = folders.into_iter().flat_map(|folder| {
        let entries = fs_err::read_dir(yard.path(folder)).into_iter().flatten().flatten();
        // Merged layers have the files of others, and those in the making are none yet.
        let is_layer = |entry: &fs_err::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            entry.path().is_dir() && !name.ends_with(".part") && !name.starts_with("merged-")
        };
        entries.filter(is_layer).map(move |entry| (folder, entry.path()))
    });
    let mut layers: Vec<(&str, PathBuf)> = known
        .filter(|(folder, path)| {
            *folder != "layers" || !path.ends_with("dependencies") && !path.ends_with("archives")
        })
        .collect();
    layers.sort();
    if layers.is_empty() {
        return Err(Error::usage("this yard has no layers yet").hint("give paths to search, or build first"));
    }
    fs_err::create_dir_all(yard.path(KEPT)).context(Kind::Machine, failed)?;
    for (number, (_, path)) in layers.iter().enumerate() {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        let file = yard.path(KEPT).join(format!("{name}.json"));
        let kept = fs_err::read(&file).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        let identity = identity(path).context(Kind::Machine, failed)?;
        let of_layer = match kept.filter(|kept| kept.form == FORM && kept.identity == identity) {
            Some(kept) => kept.searched,
            None => {
                say!("searching layer {} of {}", number + 1, layers.len());
                let mut own = Searched::default();
                let start = format!("{}/", path.display());
                search(path, &mut |name, found| own.take(name.strip_prefix(&start).unwrap_or(name), found))?;
                let kept = Kept { form: FORM, identity, searched: own };
                let text = serde_json::to_vec(&kept).or_internal(failed)?;
                crate::files::write_whole(&file, &text)?;
                kept.searched
            }
        };
        let short: String = name.chars().take(12).collect();
        let named = of_layer
            .hazards
            .into_iter()
            .map(|entry| Entry { path: format!("{short}:{}", entry.path), ..entry });
        searched.add(Searched { hazards: named.collect(), ..of_layer });
    }
    Ok(())
}

fn text(searched: &Searched) -> String {
    let mut text = String::new();
    let mut totals: BTreeMap<Hazard, (u64, u64)> = BTreeMap::new();
    for Entry { path, found } in &searched.hazards {
        let mut facts: Vec<String> = Vec::new();
        for (hazard, number) in &found.counts {
            let (files, all) = totals.entry(*hazard).or_default();
            (*files, *all) = (*files + 1, *all + number);
            facts.push(match hazard {
                Hazard::X86Extension => {
                    let names: Vec<&str> = found.extensions.keys().map(String::as_str).collect();
                    format!("{} {number}", names.join(", "))
                }
                _ => format!("{hazard} {number}"),
            });
        }
        if let Some(needed) = found.needed {
            facts.push(format!("its note says that it needs {needed}"));
        }
        let asks = if found.asks_processor { "; it asks the processor first" } else { "" };
        text.push_str(&format!("{}: {}{asks}\n", kilnyard_model::text::line(path), facts.join("; ")));
    }
    text.push_str(&format!(
        "{} with {} of code searched\n",
        count(searched.files, "file"),
        size(searched.code_bytes)
    ));
    for (hazard, (files, number)) in totals {
        text.push_str(&format!("{hazard}: {number} in {}\n", count(files, "file")));
    }
    text
}
