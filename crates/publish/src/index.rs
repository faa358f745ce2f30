//! Renders the texts of the indexes. Pure: the order of the entries does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::layout::PACKAGES;
use crate::name::{check_name, check_pool_path, check_sha256, shortened};
use crate::{BinaryEntry, BinaryIndex, PublishError, ReleaseFacts, Result, SourceEntry, SourceFile, stanza};

/// All of Debian has about 65,000 binary packages per architecture and 38,000 sources.
pub(crate) const ENTRY_COUNT_MAX: usize = 1_000_000;

/// Limit on the total size of index texts, which are held in memory. Debian's `main` has 50 MB per
/// architecture.
pub(crate) const INDEX_BYTES_MAX: usize = 1 << 30;

/// A repository with more indexes is a mistake, and each index needs a directory.
const DIRECTORY_COUNT_MAX: usize = 1000;

/// Uncompressed index texts by path below the generation, such as `main/binary-amd64/Packages`.
pub(crate) type Indexes = BTreeMap<String, String>;

/// A file that the pool must have.
#[derive(Debug, Clone)]
pub(crate) struct PoolFile {
    pub(crate) pool_path: String,
    pub(crate) file: std::path::PathBuf,
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
}

/// Checks the facts that become directory names.
pub(crate) fn check_facts(facts: &ReleaseFacts) -> Result<()> {
    check_name("codename", &facts.codename)?;
    if facts.codename == PACKAGES {
        let reason = "the name is reserved for the folder of packages";
        return Err(PublishError::Input { what: "codename", value: facts.codename.clone(), reason });
    }
    for (what, names) in [("architecture", &facts.architectures), ("component", &facts.components)] {
        let mut seen = BTreeSet::new();
        for name in names {
            check_name(what, name)?;
            if name == "source" || name == "all" || !seen.insert(name) {
                let reason = "it is reserved or a duplicate";
                return Err(PublishError::Input { what, value: name.clone(), reason });
            }
        }
        if names.is_empty() {
            return Err(PublishError::Input {
                what,
                value: String::new(),
                reason: "at least one is required",
            });
        }
    }
    if facts.architectures.len().saturating_mul(facts.components.len()) > DIRECTORY_COUNT_MAX {
        return Err(PublishError::TooLarge { what: "number of indexes", limit: DIRECTORY_COUNT_MAX as u64 });
    }
    Ok(())
}

/// Renders all indexes, including empty ones: clients request everything that `Release` lists.
pub(crate) fn render(
    facts: &ReleaseFacts,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
) -> Result<Indexes> {
    if binaries.len() > ENTRY_COUNT_MAX || sources.len() > ENTRY_COUNT_MAX {
        return Err(PublishError::TooLarge { what: "number of packages", limit: ENTRY_COUNT_MAX as u64 });
    }
    let mut indexes = Indexes::new();
    for component in &facts.components {
        for architecture in &facts.architectures {
            indexes.insert(format!("{component}/binary-{architecture}/Packages"), String::new());
        }
        indexes.insert(format!("{component}/source/Sources"), String::new());
    }
    let mut total_bytes = 0;
    for row in sorted(binaries.iter().map(|entry| binary_row(facts, entry)))? {
        let listed_in: Vec<&String> = match row.architecture {
            "all" => facts.architectures.iter().collect(),
            one => facts.architectures.iter().filter(|architecture| *architecture == one).collect(),
        };
        for architecture in listed_in {
            total_bytes += row.text.len();
            check_total(total_bytes)?;
            let path = index_of_binaries(row.index, row.component, architecture);
            append(&mut indexes, path, &row.text);
        }
    }
    for row in sorted(sources.iter().map(|entry| source_row(facts, entry)))? {
        total_bytes += row.text.len();
        check_total(total_bytes)?;
        append(&mut indexes, format!("{}/source/Sources", row.component), &row.text);
    }
    Ok(indexes)
}

/// The path of the index that lists a binary package. A separate index exists only if it is not empty: few
/// yards have such packages, and clients do not request what `Release` does not list.
fn index_of_binaries(index: BinaryIndex, component: &str, architecture: &str) -> String {
    match index {
        BinaryIndex::Machine => format!("{component}/binary-{architecture}/Packages"),
        BinaryIndex::Apart(folder) => format!("{component}/{folder}/binary-{architecture}/Packages"),
    }
}

/// All files of all entries, without duplicates.
pub(crate) fn pool_files(binaries: &[BinaryEntry], sources: &[SourceEntry]) -> Result<Vec<PoolFile>> {
    let of_binaries = binaries.iter().map(|entry| PoolFile {
        pool_path: entry.pool_path.clone(),
        file: entry.file.clone(),
        sha256: entry.sha256.clone(),
        size_bytes: entry.size_bytes,
    });
    let of_sources = sources.iter().flat_map(|entry| &entry.files).map(|file| PoolFile {
        pool_path: file.pool_path.clone(),
        file: file.file.clone(),
        sha256: file.sha256.clone(),
        size_bytes: file.size_bytes,
    });
    let mut files: BTreeMap<String, PoolFile> = BTreeMap::new();
    for file in of_binaries.chain(of_sources) {
        match files.get(&file.pool_path) {
            Some(other) if (&other.sha256, other.size_bytes) != (&file.sha256, file.size_bytes) => {
                return Err(PublishError::Conflict {
                    pool_path: file.pool_path,
                    existing_sha256: other.sha256.clone(),
                    offered_sha256: file.sha256,
                });
            }
            Some(_) => {}
            None => {
                files.insert(file.pool_path.clone(), file);
            }
        }
    }
    Ok(files.into_values().collect())
}

/// An entry as written to an index.
struct Row<'a> {
    component: &'a str,
    package: &'a str,
    version: &'a str,
    architecture: &'a str,
    index: BinaryIndex,
    text: String,
}

fn binary_row<'a>(facts: &ReleaseFacts, entry: &'a BinaryEntry) -> Result<Row<'a>> {
    let text = stanza::check(&entry.stanza, &["Filename", "Size", "SHA256"])?;
    check_listed("component", &entry.component, &facts.components)?;
    if entry.architecture != "all" {
        check_listed("architecture", &entry.architecture, &facts.architectures)?;
    }
    if stanza::required(text, "Architecture")? != entry.architecture {
        return Err(PublishError::Input {
            what: "stanza",
            value: shortened(text),
            reason: "its architecture differs from the entry's",
        });
    }
    check_pool_path(&entry.pool_path)?;
    check_sha256(&entry.sha256)?;
    let mut row = Row {
        component: &entry.component,
        package: stanza::required(text, "Package")?,
        version: stanza::required(text, "Version")?,
        architecture: &entry.architecture,
        index: entry.index,
        text: text.to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = write!(
        row.text,
        "\nFilename: {}\nSize: {}\nSHA256: {}\n\n",
        entry.pool_path, entry.size_bytes, entry.sha256
    );
    Ok(row)
}

fn source_row<'a>(facts: &ReleaseFacts, entry: &'a SourceEntry) -> Result<Row<'a>> {
    let text = stanza::check(&entry.stanza, &[])?;
    check_listed("component", &entry.component, &facts.components)?;
    let directory = stanza::required(text, "Directory")?;
    let checksums = stanza::field(text, "Checksums-Sha256").unwrap_or_default();
    let bad = |reason| PublishError::Input { what: "source stanza", value: shortened(text), reason };
    if entry.files.is_empty() {
        // Without files, nothing would tie its directory to the pool.
        return Err(bad("it has no files"));
    }
    for file in &entry.files {
        check_pool_path(&file.pool_path)?;
        check_sha256(&file.sha256)?;
        if !lists(directory, checksums, file) {
            return Err(PublishError::Input {
                what: "source file",
                value: file.pool_path.clone(),
                reason: "its stanza does not list it with the same directory, checksum and size",
            });
        }
    }
    if checksums.lines().filter(|line| !line.trim().is_empty()).count() != entry.files.len() {
        return Err(bad("it does not list the same files as the entry"));
    }
    // A client may use a list with weaker checksums, which must not lead it to other files.
    let is_list = |name: &str| {
        name.eq_ignore_ascii_case("Files")
            || name.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("Checksums-"))
    };
    for (_, list) in stanza::fields(text).filter(|(name, _)| is_list(name)) {
        for line in list.lines().filter(|line| !line.trim().is_empty()) {
            let name = line.split_whitespace().nth(2).unwrap_or_default();
            if !entry.files.iter().any(|file| file_name(directory, file) == Some(name)) {
                return Err(bad("one of its lists names a file that the entry does not have"));
            }
        }
    }
    Ok(Row {
        component: &entry.component,
        package: stanza::required(text, "Package")?,
        version: stanza::required(text, "Version")?,
        architecture: "source",
        index: BinaryIndex::Machine,
        text: format!("{text}\n\n"),
    })
}

/// Whether a client that follows the stanza finds this file and accepts it.
fn lists(directory: &str, checksums: &str, file: &SourceFile) -> bool {
    let Some(name) = file_name(directory, file) else { return false };
    checksums.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words == [file.sha256.as_str(), &file.size_bytes.to_string(), name]
    })
}

/// The file's name as listed in a stanza with this directory.
fn file_name<'a>(directory: &str, file: &'a SourceFile) -> Option<&'a str> {
    file.pool_path.strip_prefix(directory)?.strip_prefix('/')
}

/// Sorts by name, version and architecture, as text: the order only has to be the same every time.
fn sorted<'a>(rows: impl Iterator<Item = Result<Row<'a>>>) -> Result<Vec<Row<'a>>> {
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    fn key<'a>(row: &Row<'a>) -> [&'a str; 4] {
        [row.package, row.version, row.architecture, row.component]
    }
    rows.sort_by(|left, right| key(left).cmp(&key(right)));
    for pair in rows.windows(2) {
        if key(&pair[0]) == key(&pair[1]) {
            return Err(PublishError::Duplicate {
                package: pair[0].package.to_owned(),
                version: pair[0].version.to_owned(),
                architecture: pair[0].architecture.to_owned(),
                component: pair[0].component.to_owned(),
            });
        }
    }
    Ok(rows)
}

fn append(indexes: &mut Indexes, path: String, text: &str) {
    indexes.entry(path).or_default().push_str(text);
}

pub(crate) fn check_total(total_bytes: usize) -> Result<()> {
    if total_bytes > INDEX_BYTES_MAX {
        return Err(PublishError::TooLarge { what: "index text", limit: INDEX_BYTES_MAX as u64 });
    }
    Ok(())
}

fn check_listed(what: &'static str, name: &str, known: &[String]) -> Result<()> {
    if known.iter().any(|other| other == name) {
        return Ok(());
    }
    let reason = "the release does not include it";
    Err(PublishError::Input { what, value: shortened(name), reason })
}
