//! The rules of each package family, one module per family.
//!
//! A module reads a tree into an index, resolves the index into a graph, and decides for each package which
//! packages are installed, which commands run in each stage, which files come out, and which key a build has. It
//! knows nothing about runs, leases or which machine performs the commands. The families are [`debian`],
//! [`pkgsrc`], and [`rpm`].
//!
//! An [`Ecosystem`] is a resolved set. It never changes, so any thread may query it. A [`Stock`] is a set with its
//! current outputs, which change while a run builds: it has one owner and no lock. [`Rules`] are the part of a family
//! that a worker needs, made from the facts in an order. [`Options`] are the settings of single packages.

mod archive;
pub mod debian;
mod excerpt;
pub mod explain;
pub mod git;
mod layering;
mod options;
pub mod pkgsrc;
mod prior;
pub mod rpm;
mod rules;
mod together;

pub use archive::{ArchiveProblem, Bounded, Compression, OutputBounds, decompress};
pub use excerpt::{LogExcerpt, find_excerpt};
pub use layering::{Composition, Installed, Layering, Manager, Part, Stack, Unpacking};
pub use options::{NamePattern, OptionRules, Options};
pub use rules::{Rules, RulesError, rules};

use kilnyard_model::cuts::Cutting;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{BuildOrder, Key, Output, TestOrder};
use std::sync::Arc;

/// Prefixes of errors that span two lines: the second line has the cause.
const ERRORS_IN_TWO_LINES: [&str; 1] = [debian::ERROR_IN_TWO_LINES];

/// Bytes in lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a text, in hexadecimal.
pub fn hash_of(text: &str) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(text.as_bytes()))
}

/// The digest of a sorted list of paths that a worker vouches for.
pub(crate) fn files_digest(paths: &[String]) -> String {
    hash_of(&kilnyard_model::digests::text_of_files(paths))
}

/// A package cannot be built now; the explanation has one line per step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{explanation}")]
pub struct Impossible {
    /// The chain of requirements, down to the one that cannot be met.
    pub explanation: String,
}

/// A package that is not in the graph, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Package name, as the family's index spells it.
    pub name: String,
    /// The reason, one line per step.
    pub explanation: String,
}

/// An output that cannot be read, or must not be published.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CollectError(pub String);

/// The publishable part of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Outputs to publish.
    pub outputs: Vec<Output>,
    /// One sentence for each output that was dropped, with the reason; for the log.
    pub notes: Vec<String>,
    /// What the package requires in addition to its recipe, as its build found out, for [`Stock::require`]. Then there are no
    /// outputs, and it is built again.
    pub requires: Option<Vec<String>>,
}

/// Folder of Kilnyard's own small files inside a root. It is separate from the inputs, whose names a source, an archive
/// or a tree chooses.
pub(crate) const TEXTS: &str = "/kilnyard/texts";

/// Name of the text that gives commands with a network the worker's DNS configuration.
pub const RESOLV_CONF: &str = "resolv.conf";

/// A resolved set of packages. All methods only decide; none of them runs a command. They may be called from
/// several threads.
pub trait Ecosystem: Send + Sync {
    /// The family's name, such as `debian`.
    fn name(&self) -> &'static str;

    /// The dependency graph, with its cycles cut.
    fn graph(&self) -> &Graph;

    /// The packages that a name stands for: one package with its tests, or all members of a group in families that have groups.
    fn named(&self, name: &str) -> Vec<PackageId> {
        self.graph().find(name).into_iter().collect()
    }

    /// Whether a package is a test of another one: it makes no outputs, and workers with the role `test` run it.
    fn is_test(&self, _package: PackageId) -> bool {
        false
    }

    /// The edges removed to break cycles.
    fn cutting(&self) -> &Cutting;

    /// The groups of packages that a second pass builds with each other's outputs: the cycles that were cut, if the yard has more than
    /// one of its `passes`.
    fn built_again(&self, passes: u32) -> Vec<Vec<PackageId>> {
        if passes > 1 { self.cutting().knots.clone() } else { Vec::new() }
    }

    /// Whether a package may need what only the second pass makes of others, so that its failure in the first one is not the last
    /// word.
    fn waits_for_second_pass(&self, _package: PackageId) -> bool {
        false
    }

    /// Packages of the set that are not in the graph, with the reason.
    fn left_out(&self) -> &[LeftOut];

    /// Remarks for the maintainer of the tree, one sentence each.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// Packages of the set that are not built, because the archive's are the same. They are not in the graph.
    fn reused(&self) -> &[String] {
        &[]
    }

    /// The version of a package's recipe.
    fn version(&self, package: PackageId) -> String;

    /// Total size of a package's packed sources; the prior for the disk space that its build takes.
    fn source_bytes(&self, package: PackageId) -> u64;

    /// Where a package's sources are fetched from, the first place of each file: addresses, or paths below a folder of distfiles.
    fn source_places(&self, _package: PackageId) -> Vec<String> {
        Vec::new()
    }

    /// The expected time of a build on one core of a usual machine, from the recipe and the index alone.
    fn prior_seconds(&self, package: PackageId) -> f64;

    /// Whether programs of the outputs can run where they are built, so that their installation can be tested.
    fn can_run_outputs(&self) -> bool {
        true
    }

    /// The root that keys of version 1 record as the base of builds; see [`Key::is_met_by`].
    fn former_root(&self) -> &str;

    /// The highest revision of this recipe version in the yard's repository, or 0 if it has none or the family has
    /// no revisions. The next build needs a higher one.
    fn published_revision(&self, _package: PackageId) -> u32 {
        0
    }

    /// Decides which outputs of a build of `version` may be published under the package's name. It checks what a
    /// worker read against the set. Outputs that were admitted before are admitted again unchanged.
    fn admit(&self, package: PackageId, version: &str, outputs: &[Output]) -> Result<Admitted, CollectError>;

    /// A stock of this set without any outputs yet.
    fn stock(self: Arc<Self>) -> Box<dyn Stock>;
}

/// A set with its current outputs, and how each package is built from them. One thread owns it; other threads send
/// it new outputs and queries.
pub trait Stock: Send {
    /// The current set; a rescan replaces it.
    fn set(&self) -> Arc<dyn Ecosystem>;

    /// The key that a build of this package would have with the current outputs.
    fn key(&mut self, package: PackageId) -> Result<Key, Impossible>;

    /// The order to build this package from the current outputs. `revision` counts the builds of one recipe version
    /// whose outputs were kept, from 1.
    fn order(&mut self, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible>;

    /// The order to test outputs in a clean root.
    fn test(&mut self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible>;

    /// Makes these outputs the current ones of a package, in place of earlier ones.
    fn adopt(&mut self, package: PackageId, outputs: &[Output]);

    /// Adds requirements to those of a package's recipe, which its build found out, in place of those found out earlier. The set's graph gets the
    /// edges that follow from them. Returns a hash of the recipe that they are of.
    ///
    /// # Errors
    /// They are those of before, so that another build would not differ; or the family has no such requirements.
    fn require(&mut self, package: PackageId, _requires: &[String]) -> Result<String, Impossible> {
        let set = self.set();
        let explanation = format!("{} has no requirements but its recipe's", set.graph().name(package));
        Err(Impossible { explanation })
    }

    /// Takes over the current state of a package's recipe; `said` has the form of the family's index. The run's
    /// graph stays unchanged: if the recipe needs a different graph, the error explains it and the set stays as
    /// before.
    fn rescan(&mut self, package: PackageId, said: &[u8]) -> Result<(), Impossible>;
}
