//! Plans a publication without writing anything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::execute::Signed;
use crate::generation::{Current, NewGeneration, pack};
use crate::layout::{self, GENERATIONS_KEPT, KEYRING_FILE, STAGING, Series};
use crate::operation::Operation;
use crate::pool::{self, Need};
use crate::state::{self, SeriesState};
use crate::steps::Steps;
use crate::{BinaryEntry, Checksum, ReleaseFacts, Result, SourceEntry, index, release, series};

/// An ordered list of steps, and the state of the repository when it was made. Displayed with one line per
/// step, for a dry run.
#[derive(Debug, Clone)]
pub struct Publication {
    pub(crate) repository: PathBuf,
    pub(crate) series: Series,
    pub(crate) seen: SeriesState,
    pub(crate) public_key: String,
    pub(crate) signed: Signed,
    pub(crate) operations: Vec<Operation>,
    /// Existing files that the plan relies on, with their sizes.
    pub(crate) present: Vec<(PathBuf, u64)>,
    pub(crate) new_generation: Option<u64>,
}

impl Publication {
    /// The steps, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The number of the generation to be published. Absent if the indexes do not change.
    pub fn new_generation(&self) -> Option<u64> {
        self.new_generation
    }
}

impl fmt::Display for Publication {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(formatter, "{operation}"))
    }
}

/// Plans to make `repository` list exactly these packages for the codename of `facts`, signed with the key
/// whose armored public half is `public_key`.
///
/// Reads the repository and writes nothing. The order of the entries does not affect the indexes.
pub fn plan(
    repository: &Path,
    facts: &ReleaseFacts,
    binaries: &[BinaryEntry],
    sources: &[SourceEntry],
    public_key: &str,
) -> Result<Publication> {
    index::check_facts(facts)?;
    let series = Series::of_codename(&facts.codename);
    let indexes = index::render(facts, binaries, sources)?;
    let seen = SeriesState::read(repository, &series)?;

    let mut steps = Steps::new(repository);
    series::clear_leftovers(&series, &seen, &mut steps)?;

    let current = seen.current.map(|number| Current::read(repository, &series, number)).transpose()?;
    let present = plan_pool(repository, binaries, sources, current.as_ref(), &mut steps)?;

    plan_key_file(repository, public_key, &mut steps)?;
    let contents = pack(repository, indexes, current.as_ref())?;
    let release = release::render(facts, &contents.listing)?;
    let is_unchanged = !contents.has_new()
        && current.as_ref().is_some_and(|current| {
            current.is_signed_with(public_key) && release::is_still_valid(&current.release, &release, facts)
        });
    let new_generation = (!is_unchanged).then(|| series::next(&seen));
    match new_generation {
        Some(number) => {
            let mut previous = series::kept(&seen);
            previous.truncate(GENERATIONS_KEPT - 1);
            let new = NewGeneration {
                series: &series,
                number,
                previous: &previous,
                contents,
                release: &release,
                public_key,
            };
            new.plan(repository, &mut steps)?;
        }
        None => steps.sync(),
    }
    series::retire(&series, &seen, usize::from(!is_unchanged), &mut steps)?;

    Ok(Publication {
        repository: repository.to_owned(),
        series,
        seen,
        public_key: public_key.to_owned(),
        signed: Signed::Release(release),
        operations: steps.into_operations(),
        present,
        new_generation,
    })
}

/// Plans the public key file at the top, for setting up clients. To check the key of a generation, its own copy
/// is used, which appears together with its signatures.
pub(crate) fn plan_key_file(repository: &Path, public_key: &str, steps: &mut Steps<'_>) -> Result<()> {
    plan_client_file(repository, KEYRING_FILE, public_key, steps)
}

/// Plans a file at the top, for setting up clients.
pub(crate) fn plan_client_file(
    repository: &Path,
    name: &str,
    text: &str,
    steps: &mut Steps<'_>,
) -> Result<()> {
    // One that cannot be read as text is replaced.
    let existing = state::read_text(&repository.join(name)).unwrap_or_default();
    if existing.as_deref() != Some(text) {
        steps.make_directory(STAGING.into())?;
        let staged = layout::staged(name);
        steps.add(Operation::Write { path: staged.clone(), content: text.as_bytes().to_vec() });
        steps.add(Operation::Move { from: staged, to: name.into() });
        steps.touch(PathBuf::new());
    }
    Ok(())
}

/// Plans to place the files that the pool lacks. Returns those that it has.
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
            checksum: Checksum::Sha256(wanted.sha256),
            replaces,
        });
    }
    Ok(present)
}
