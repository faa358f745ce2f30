//! Distfiles that a person has to get, because their licence has to be accepted first, or for another reason: pkgsrc's
//! `INTERACTIVE_STAGE= fetch` and `FETCH_MESSAGE` (mk/fetch/fetch.mk).

use super::distinfo;
use super::recipe_files::{RecipeFiles, of_tree};
use super::scan_file::ScanFile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The longest message that is kept, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 2000;

/// The files of a directory's packages that a person has to get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The directory.
    pub location: String,
    /// Paths below the folder of distfiles.
    pub files: Vec<String>,
    /// Where to get them, in the words of the recipe; may be empty.
    pub message: String,
    /// The lists of their checksums (`distinfo`), relative to the tree.
    pub lists: Vec<PathBuf>,
}

impl Awaited {
    /// Why a package with these files is left out.
    pub fn explanation(&self) -> String {
        let files = self.files.join(", ");
        match self.message.lines().collect::<Vec<_>>().join(" ") {
            message if message.is_empty() => format!("it waits for what a person has to get: {files}"),
            message => format!("it waits for what a person has to get: {files} ({message})"),
        }
    }
}

/// The directories of a scan with such files. What the recipes compute is not known: they are read as text.
pub fn awaited(tree: &Path, scan: &ScanFile<'_>) -> Vec<Awaited> {
    let files = RecipeFiles::new(tree);
    // Makefiles are shared by many directories.
    let mut known: HashMap<String, Option<String>> = HashMap::new();
    let mut found: BTreeMap<String, Awaited> = BTreeMap::new();
    for stanza in &scan.stanzas {
        let location = stanza.location;
        if found.contains_key(location) {
            continue;
        }
        let read = stanza.get("SCAN_DEPENDS").unwrap_or_default();
        let is_makefile = |path: &String| {
            !path.starts_with("mk/")
                && path.rsplit('/').next().is_some_and(|name| name.starts_with("Makefile"))
        };
        let makefiles = read.split_ascii_whitespace().filter_map(|file| of_tree(location, file));
        let makefiles = [format!("{location}/Makefile")].into_iter().chain(makefiles.filter(is_makefile));
        let mut messages = Vec::new();
        for path in makefiles {
            let said = known.entry(path.clone()).or_insert_with(|| message(&files.text(&path)));
            messages.extend(said.clone().filter(|said| !messages.contains(said)));
        }
        if messages.is_empty() {
            continue;
        }
        let lists = files.distinfos(location, &read);
        let listed = lists.iter().filter_map(|path| std::fs::read(path).ok());
        let listed = listed.filter_map(|bytes| distinfo::parse(&bytes).ok()).flatten();
        let names: Vec<String> = listed.filter(|file| !file.is_patch).map(|file| file.name).collect();
        if names.is_empty() {
            continue;
        }
        let message = messages.join("\n").trim().replace("${DISTFILES}", &names.join(" "));
        let message = message.chars().take(MESSAGE_CHARACTERS_MAX).collect();
        let lists =
            lists.iter().filter_map(|path| path.strip_prefix(tree).ok().map(Path::to_owned)).collect();
        let one = Awaited { location: location.to_owned(), files: names, message, lists };
        found.insert(location.to_owned(), one);
    }
    found.into_values().collect()
}

/// The message of a makefile, which may be empty; none if it does not say that a person has to fetch.
fn message(text: &str) -> Option<String> {
    if !text.contains("FETCH_MESSAGE") && !text.contains("INTERACTIVE_STAGE") {
        return None;
    }
    let mut lines = Vec::new();
    let mut is_by_hand = false;
    for line in text.replace("\\\n", " ").lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        match name.trim_end_matches(['+', '?', ':', '!']).trim() {
            "INTERACTIVE_STAGE" => is_by_hand |= value.split_whitespace().any(|stage| stage == "fetch"),
            "FETCH_MESSAGE" | "_FETCH_MESSAGE" => {
                is_by_hand = true;
                lines.extend(quoted(value));
            }
            _ => {}
        }
    }
    is_by_hand.then(|| lines.join("\n"))
}

/// The quoted parts of a value, or all of it if nothing is quoted.
fn quoted(value: &str) -> Vec<String> {
    let parts: Vec<&str> = value.split(['"', '\'']).collect();
    let parts: Vec<&str> = match parts.len() {
        1 => parts,
        _ => parts.into_iter().skip(1).step_by(2).collect(),
    };
    let parts = parts.into_iter().map(|part| kilnyard_model::text::line(part.trim()));
    parts.filter(|part| !part.is_empty() && part != "${FETCH_MESSAGE}").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_people_read() {
        assert_eq!(message("DISTNAME= a-1.0\n# FETCH\n"), None);
        assert_eq!(message("INTERACTIVE_STAGE= configure\n"), None);
        assert_eq!(message("INTERACTIVE_STAGE+=\tfetch\n").as_deref(), Some(""));
        let text = "FETCH_MESSAGE=\t\"Get ${DISTFILES}\" \\\n\t\"from https://a.example/?b=c\"\nFETCH_MESSAGE+= \"Thanks\"\n";
        assert_eq!(message(text).as_deref(), Some("Get ${DISTFILES}\nfrom https://a.example/?b=c\nThanks"));
        assert_eq!(message("_FETCH_MESSAGE= sign \u{1b}[31mit\n").as_deref(), Some("sign it"));
    }

    #[test]
    fn files_are_those_of_distinfo() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/one/Makefile", ".include \"Makefile.common\"\n");
        write("a/one/Makefile.common", "FETCH_MESSAGE= \"Accept ${DISTFILES}\"\n");
        let (long, short) = ("0".repeat(128), "0".repeat(40));
        let distinfo = format!("$NetBSD$\n\nSHA512 (sub/x.zip) = {long}\nSHA1 (patch-aa) = {short}\n");
        write("a/one/distinfo", &distinfo);
        write("a/two/Makefile", "DISTNAME= two\n");
        let scan = "PKGNAME=one-1\nPKG_LOCATION=a/one\nSCAN_DEPENDS=Makefile.common\nPKGNAME=two-1\nPKG_LOCATION=a/two\nSCAN_DEPENDS=../../a/two/Makefile\n";
        let found = awaited(folder.path(), &ScanFile::parse(scan.as_bytes()).unwrap());
        let one = Awaited {
            location: "a/one".into(),
            files: vec!["sub/x.zip".into()],
            message: "Accept sub/x.zip".into(),
            lists: vec!["a/one/distinfo".into()],
        };
        assert_eq!(found, [one]);
        assert_eq!(
            found[0].explanation(),
            "it waits for what a person has to get: sub/x.zip (Accept sub/x.zip)"
        );
    }
}
