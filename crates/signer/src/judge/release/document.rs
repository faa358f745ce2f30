//! `.dsc` and `.changes` files: what they are is judged, not the files that they name.

use kilnyard_ecosystem::debian::deb822::Stanza;

/// The largest text, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// A source or an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The source package.
    pub source: String,
    /// Its version.
    pub version: String,
}

/// Reads a text.
///
/// # Errors
/// A sentence that names the fault.
pub fn read(text: &str) -> Result<Document, String> {
    if text.len() > BYTES_MAX || text.trim_end().contains("\n\n") || text.contains(['\r', '\0']) {
        return Err("the text is not one stanza".to_owned());
    }
    let stanza = Stanza::new(text.trim_end());
    if let Some(fault) = stanza.fault() {
        return Err(format!("the text has {fault}"));
    }
    let field = |name: &str| stanza.get(name).ok_or_else(|| format!("the text has no field {name}"));
    for name in ["Format", "Checksums-Sha256", "Files"] {
        field(name)?;
    }
    Ok(Document { source: field("Source")?.to_owned(), version: field("Version")?.to_owned() })
}
