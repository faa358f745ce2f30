//! distinfo (interim).

/// A file.
#[derive(Clone, Debug)]
pub struct Distfile {
    /// name
    pub name: String,
    /// size
    pub size_bytes: Option<u64>,
    /// patch
    pub is_patch: bool,
}

/// Parses.
pub fn parse(text: &[u8]) -> Result<Vec<Distfile>, std::fmt::Error> {
    let text = String::from_utf8_lossy(text);
    let mut files: Vec<Distfile> = Vec::new();
    for line in text.lines() {
        let Some((algorithm, rest)) = line.split_once(" (") else { continue };
        let Some((name, value)) = rest.split_once(") = ") else { continue };
        let position = files.iter().position(|file| file.name == name).unwrap_or_else(|| {
            files.push(Distfile {
                name: name.to_owned(),
                size_bytes: None,
                is_patch: name.starts_with("patch-"),
            });
            files.len() - 1
        });
        if algorithm == "Size" {
            files[position].size_bytes = value.split(' ').next().and_then(|size| size.parse().ok());
        }
    }
    Ok(files)
}
