//! Ecosystems: one module for each package family, with its rules.
//!
//! A module reads a tree into an index, resolves the index into a graph, says for one package what is
//! installed, which commands run in which stage and which files come out, and what keys a build. It
//! knows nothing of runs, leases or who performs the commands. The families are [`debian`] and [`pkgsrc`].
//!
//! An [`Ecosystem`] is a resolved set, which does not change, so that everything may ask it. A [`Stock`] is a set with the
//! outputs that are there, which change while a run builds: it has one owner, and no lock. [`Rules`] are what a worker has of
//! the family, made from what an order says.

mod archive;
pub mod debian;
mod layering;
pub mod pkgsrc;
mod rules;
mod telling;

pub use archive::{ArchiveProblem, Bounded, Compression, OutputBounds, decompress};
pub use layering::{Composition, Layering, Manager, Part, Stack, Unpacking};
pub use rules::{Rules, RulesError, rules};
pub use telling::{Telling, telling_lines};

use kilnyard_model::graph::{Cut, Graph, PackageId};
use kilnyard_model::order::{BuildOrder, Key, Output, TestOrder};
use std::sync::Arc;

/// How the first line of an error begins whose second one has the cause.
const ERRORS_IN_TWO_LINES: [&str; 1] = [debian::ERROR_IN_TWO_LINES];

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A package that cannot be built now, and the explanation, a line for each step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{explanation}")]
pub struct Impossible {
    /// Who needs what, and why it is not there.
    pub explanation: String,
}

/// A package that is not in the graph, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why, a line for each step.
    pub explanation: String,
}

/// An output cannot be read, or must not be published.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CollectError(pub String);

/// What may be published of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The outputs that are kept.
    pub outputs: Vec<Output>,
    /// What the build made and is not kept, and why: a sentence each, for the log.
    pub notes: Vec<String>,
}

/// The small file that commands which fetch find among their texts: how names are resolved on the worker's machine.
pub const RESOLV_CONF: &str = "resolv.conf";

/// The default weight of a package: see [`Ecosystem::weight`].
pub const WEIGHT_USUAL: u32 = 100;

/// What a resolved set knows of its packages. All methods decide; none of them runs a command. They may be called from
/// several threads.
pub trait Ecosystem: Send + Sync {
    /// The family's name.
    fn name(&self) -> &'static str;

    /// Which package waits for which; cycles are cut.
    fn graph(&self) -> &Graph;

    /// The packages that a name stands for: the one of this name, or those of a group, where the family has groups.
    fn named(&self, name: &str) -> Vec<PackageId> {
        self.graph().find(name).into_iter().collect()
    }

    /// The edges that were taken out.
    fn cuts(&self) -> &[Cut];

    /// The packages of the set that are not in the graph.
    fn left_out(&self) -> &[LeftOut];

    /// Remarks for the maintainer of the tree, a sentence each.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// The version of a package's recipe.
    fn version(&self, package: PackageId) -> String;

    /// A package's size as a prior for its time: the bytes of its sources.
    fn source_bytes(&self, package: PackageId) -> u64;

    /// How heavy its recipe says that a build is, in hundredths of a usual one of its size.
    fn weight(&self, _package: PackageId) -> u32 {
        WEIGHT_USUAL
    }

    /// What keys of version 1 say of the root that builds begin with; see [`Key::is_met_by`].
    fn former_root(&self) -> &str;

    /// The highest revision of this recipe version that the yard's repository offers; 0 where it offers none, or where
    /// the family has no revisions. The next build needs a higher one.
    fn published_revision(&self, _package: PackageId) -> u32 {
        0
    }

    /// Which outputs of a build of `version` may be published in the name of the package. What a worker has read is judged
    /// by what the set knows; outputs that were admitted are admitted again as they are.
    fn admit(&self, package: PackageId, version: &str, outputs: &[Output]) -> Result<Admitted, CollectError>;

    /// The set with no outputs yet.
    fn stock(self: Arc<Self>) -> Box<dyn Stock>;
}

/// A set with the outputs that are there now, and how each package is built from them. One thread owns it: the others
/// send it what was built, and ask.
pub trait Stock: Send {
    /// The set as it is now: after a rescan another one.
    fn set(&self) -> Arc<dyn Ecosystem>;

    /// The key of a build of this package from what is there now.
    fn key(&mut self, package: PackageId) -> Result<Key, Impossible>;

    /// The build of this package from what is there now. `revision` counts the builds of one version of
    /// the recipe whose outputs were kept, from 1.
    fn order(&mut self, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible>;

    /// How outputs are tried in a clean root.
    fn test(&mut self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible>;

    /// Says that these outputs of a package are there from now on, in place of earlier ones.
    fn adopt(&mut self, package: PackageId, outputs: &[Output]);

    /// Takes what a package's recipe says now, in the form in which the family's index has it. The graph of the run stays as it
    /// is: where the recipe needs another one, that is explained, and the set is the one of before.
    fn rescan(&mut self, package: PackageId, said: &[u8]) -> Result<(), Impossible>;
}
