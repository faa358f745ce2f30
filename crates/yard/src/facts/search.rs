//! Finds packages by their names, and failures by their telling lines.

use super::picture::Picture;
use kilnyard_schema::package::Found;

/// The longest line that is shown.
const LINE_CHARACTERS_MAX: usize = 300;

/// The packages of a run whose names contain a text, those that begin with it first, and then those whose reason or log
/// lines contain it. The case of letters does not matter.
pub fn search(picture: &Picture, text: &str, count_max: usize) -> Vec<Found> {
    let text = text.trim().to_lowercase();
    if text.is_empty() {
        return Vec::new();
    }
    let (mut begins, mut contains, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (place, row) in picture.rows.iter().enumerate() {
        let found = |line: Option<&str>| Found {
            package: row.name.clone(),
            state: row.state.to_string(),
            line: line.map(|line| line.chars().take(LINE_CHARACTERS_MAX).collect()),
        };
        let name = row.name.to_lowercase();
        // In a tree with categories, the package's own name is the last part.
        let own = name.rsplit('/').next().unwrap_or(&name);
        if name.starts_with(&text) || own.starts_with(&text) {
            begins.push(found(None));
        } else if name.contains(&text) {
            contains.push(found(None));
        } else if let Some(line) = telling_line(picture, place, &text) {
            lines.push(found(Some(&line)));
        }
    }
    begins.into_iter().chain(contains).chain(lines).take(count_max).collect()
}

/// The first line about a failure of a package that contains a text.
fn telling_line(picture: &Picture, place: usize, text: &str) -> Option<String> {
    let failure = picture.last_build(place)?.failure.as_ref()?;
    let lines = std::iter::once(&failure.message).chain(&failure.lines);
    lines.filter(|line| line.to_lowercase().contains(text)).map(|line| line.trim().to_owned()).next()
}
