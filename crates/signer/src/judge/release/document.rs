//! `.dsc` and `.changes` files: what they are is judged, not the files that they name.

use kilnyard_ecosystem::debian::deb822::Stanza;

/// The fields of `.dsc` and `.changes` files (deb822(5), dsc(5), deb-changes(5)). A text with any other field may be something else.
const FIELDS: [&str; 40] = [
    "format",
    "source",
    "binary",
    "architecture",
    "version",
    "maintainer",
    "uploaders",
    "homepage",
    "description",
    "standards-version",
    "vcs-browser",
    "vcs-git",
    "vcs-svn",
    "vcs-hg",
    "vcs-bzr",
    "vcs-cvs",
    "testsuite",
    "testsuite-triggers",
    "build-depends",
    "build-depends-arch",
    "build-depends-indep",
    "build-conflicts",
    "build-conflicts-arch",
    "build-conflicts-indep",
    "package-list",
    "checksums-sha1",
    "checksums-sha256",
    "files",
    "dgit",
    "origin",
    "date",
    "distribution",
    "urgency",
    "changed-by",
    "closes",
    "changes",
    "launchpad-bugs-fixed",
    "build-profiles",
    "original-maintainer",
    "python-version",
];

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
    for (field, _) in stanza.fields() {
        if !FIELDS.contains(&field.to_ascii_lowercase().as_str()) {
            return Err(format!("the text has the field {field}, which no .dsc or .changes file has"));
        }
    }
    if text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t')) {
        return Err("the text has control characters".to_owned());
    }
    let field = |name: &str| stanza.get(name).ok_or_else(|| format!("the text has no field {name}"));
    for name in ["Format", "Checksums-Sha256", "Files"] {
        field(name)?;
    }
    Ok(Document { source: field("Source")?.to_owned(), version: field("Version")?.to_owned() })
}
