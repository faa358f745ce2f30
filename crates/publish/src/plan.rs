//! Decides what a publication does, without writing anything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::generation::{Current, NewGeneration, pack};
use crate::layout::{self, GENERATIONS_KEPT, KEYRING_FILE, STAGING};
use crate::operation::Operation;
use crate::pool::{self, Need};
use crate::state::{self, Seen};
use crate::steps::Steps;
use crate::{BinaryEntry, ReleaseFacts, Result, SourceEntry, index, release};

/// The name of the public key file while it is unfinished.
const STAGED_KEY: &str = "key";

/// An ordered list of steps, and what was seen when it was made. Its text is one line a step, for a dry run.
#[derive(Debug, Clone)]
pub struct Publication {
    pub(crate) repository: PathBuf,
    pub(crate) codename: String,
    pub(crate) seen: Seen,
    pub(crate) public_key: String,
    pub(crate) release: String,
    pub(crate) operations: Vec<Operation>,
    /// Pool files that were there already, with their sizes.
    pub(crate) present: Vec<(PathBuf, u64)>,
    pub(crate) new_generation: Option<u64>,
}

impl Publication {
    /// The steps, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether there is nothing to do at all.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The number of the generation that will be published, where the indexes change.
    pub fn new_generation(&self) -> Option<u64> {
        self.new_generation
    }
}

impl fmt::Display for Publication {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(formatter, "{operation}"))
    }
}

/// Plans to make `repository` list exactly these packages for the codename of `facts`, signed with the key whose armored
/// public half is `public_key`.
///
/// Reads the repository, and writes nothing. The same input gives the same indexes in any order of the entries.
pub fn plan(
    repository: &Path,
    facts: &ReleaseFacts,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
    public_key: &str,
) -> Result<Publication> {
    index::check_facts(facts)?;
    let codename = facts.codename.as_str();
    let indexes = index::render(facts, binaries, sources)?;
    let seen = Seen::read(repository, codename)?;

    let mut steps = Steps::new(repository);
    if seen.has_leftovers {
        steps.add(Operation::ClearStaging);
    }
    // A generation above the current one was finished but never switched to. A new one takes its number, and must be
    // the same whether or not the broken attempt came that far.
    let is_leftover = |number: &&u64| seen.current.is_none_or(|current| **number > current);
    for number in seen.generations.iter().filter(is_leftover) {
        steps.remove_tree(layout::generation(codename, *number))?;
    }

    let current = seen.current.map(|number| Current::read(repository, codename, number)).transpose()?;
    let present = plan_pool(repository, binaries, sources, current.as_ref(), &mut steps)?;

    plan_key_file(repository, public_key, &mut steps)?;
    let contents = pack(repository, indexes, current.as_ref())?;
    let release = release::render(facts, &contents.listing)?;
    let is_unchanged = !contents.has_new()
        && current.as_ref().is_some_and(|current| {
            current.is_signed_with(public_key) && release::is_still_good(&current.release, &release, facts)
        });
    let kept = seen.generations.iter().copied().filter(|number| Some(*number) <= seen.current).rev();
    let new_generation = (!is_unchanged).then(|| seen.current.map_or(1, |current| current.saturating_add(1)));
    let retired: Vec<u64> = match new_generation {
        Some(number) => {
            let previous: Vec<u64> = kept.clone().take(GENERATIONS_KEPT - 1).collect();
            let new = NewGeneration {
                codename,
                number,
                previous: &previous,
                contents,
                release: &release,
                public_key,
            };
            new.plan(repository, &mut steps)?;
            kept.skip(GENERATIONS_KEPT - 1).collect()
        }
        None => {
            steps.sync();
            kept.skip(GENERATIONS_KEPT).collect()
        }
    };
    for number in retired {
        steps.remove_tree(layout::generation(codename, number))?;
    }

    Ok(Publication {
        repository: repository.to_owned(),
        codename: codename.to_owned(),
        seen,
        public_key: public_key.to_owned(),
        release,
        operations: steps.into_operations(),
        present,
        new_generation,
    })
}

/// Plans the public key file at the top, for those who set up a client. Whether a generation is signed with the right key
/// is told by its own copy, which appears in the same moment as its signatures.
fn plan_key_file(repository: &Path, public_key: &str, steps: &mut Steps<'_>) -> Result<()> {
    // Whatever cannot be read as text is no key, and is replaced.
    let existing = state::read_text(&repository.join(KEYRING_FILE)).unwrap_or_default();
    if existing.as_deref() != Some(public_key) {
        steps.make_directory(STAGING.into())?;
        let staged = layout::staged(STAGED_KEY);
        steps.add(Operation::Write { path: staged.clone(), content: public_key.as_bytes().to_vec() });
        steps.add(Operation::Move { from: staged, to: KEYRING_FILE.into() });
        steps.touch(PathBuf::new());
    }
    Ok(())
}

/// Plans what the pool lacks; says what it has.
fn plan_pool(
    repository: &Path,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
    current: Option<&Current>,
    steps: &mut Steps,
) -> Result<Vec<(PathBuf, u64)>> {
    let mut present = Vec::new();
    let none = BTreeMap::new();
    let listed = current.map_or(&none, |current| &current.references);
    for wanted in index::pool_files(binaries, sources)? {
        let path = PathBuf::from(&wanted.pool_path);
        let replaces = match pool::need(repository, &wanted, listed)? {
            Need::Nothing => {
                present.push((path, wanted.size_bytes));
                continue;
            }
            Need::Place => false,
            Need::Replace => true,
        };
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        steps.make_directory(STAGING.into())?;
        steps.make_directory(directory.clone())?;
        steps.touch(directory);
        steps.add(Operation::Place {
            file: wanted.file,
            path,
            size_bytes: wanted.size_bytes,
            sha256: wanted.sha256,
            replaces,
        });
    }
    Ok(present)
}
