//! What builds found out that they require (`%generate_buildrequires`), for later runs: a file for each package, in
//! `index/requirements`. A lost file costs a build that finds it out again.

use kilnyard_ecosystem::rpm::{Recipe, Settings};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::files::write_whole;
use kilnyard_yard::yard::Yard;
use serde::{Deserialize, Serialize};
use std::path::Path;

const FOLDER: &str = "index/requirements";
/// How many lists of a package are kept: of a build with `bootstrap`, and of one without.
const KINDS: usize = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The recipe that they are of, as a hash.
    recipe: String,
    requires: Vec<String>,
}

/// Keeps the requirements of a package, in place of earlier ones.
pub fn keep(yard: &Yard, package: &str, recipe: &str, requires: &[String]) -> Result<()> {
    let folder = yard.path(FOLDER);
    fs_err::create_dir_all(&folder).context(Kind::Machine, "keep what a build requires")?;
    let path = folder.join(format!("{package}.json"));
    let mut all = read(&path);
    all.retain(|kept| kept.recipe != recipe);
    all.insert(0, Kept { recipe: recipe.to_owned(), requires: requires.to_vec() });
    all.truncate(KINDS);
    let text = serde_json::to_vec_pretty(&all).or_internal("write what a build requires")?;
    write_whole(&path, &text)
}

fn read(path: &Path) -> Vec<Kept> {
    let text = fs_err::read(path).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Adds the requirements that are kept of a recipe as it is now.
pub fn add(yard: &Yard, recipe: &mut Recipe, settings: &Settings) {
    let all = read(&yard.path(FOLDER).join(format!("{}.json", recipe.name)));
    let of = |recipe: &Recipe| {
        let digest = recipe.digest(settings);
        all.iter().find(|kept| kept.recipe == digest).map(|kept| kept.requires.clone()).unwrap_or_default()
    };
    recipe.generated = of(recipe);
    if let Some(other) = &mut recipe.bootstrap {
        other.generated = of(other);
    }
}

/// A text that changes with what is kept.
pub fn inputs(yard: &Yard) -> String {
    let entries = fs_err::read_dir(yard.path(FOLDER)).into_iter().flatten().flatten();
    let line = |entry: fs_err::DirEntry| {
        let facts = entry.metadata().ok();
        let facts = facts.map(|facts| (facts.len(), facts.modified().ok()));
        format!("{} {facts:?}\n", entry.file_name().display())
    };
    let mut lines: Vec<String> = entries.map(line).collect();
    lines.sort();
    lines.concat()
}
