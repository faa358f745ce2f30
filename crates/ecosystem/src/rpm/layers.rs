//! RPM packages as layers: the root's own rpm unpacks each package once, into a folder and a database of its own, and keeps the
//! header with what rpm adds to it. For a stack of such layers, these headers are imported into the database.
//!
//! rpm does more than that with packages that have scriptlets or triggers for an installation, or files of other owners than root,
//! or that replace installed packages or share files with them: these are left to it, with the reason. It installs them after the
//! layers, so that they find what they need, and so that their triggers see the files of the layers
//! (rpm's `docs/manual/file_triggers.md`: a new trigger applies to installed files, too). Triggers of packages below are known from
//! an order ([`BaseFacts`]) and from descriptions: a package that activates one is left to rpm.
//!
//! One thing is done by a command of ours instead: ldconfig, as a scriptlet or a file trigger, runs once over all layers. Most
//! packages with libraries have or activate it.

mod compose;
mod facts;

use super::stages::{self, INPUTS};
use crate::layering::MERGE_USR;
use crate::{CollectError, Composition, Installed, Layering, Part, Stack, TEXTS, Unpacking};
use facts::Facts;
pub(super) use facts::{Triggers, header_of};
use kilnyard_model::order::{Account, CommandOrder, InputText};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Unpacks packages, each into its own folder; see the script.
const UNPACK: &str = include_str!("layers/unpack.sh");
/// Makes stacked packages known to rpm; see the script.
const REGISTER: &str = include_str!("layers/register.sh");

/// What rules know of the packages in the base root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BaseFacts {
    pub names: BTreeSet<String>,
    pub triggers: Triggers,
}

/// RPM's [`Layering`]; see the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    pub base: BaseFacts,
    /// The keys of the repositories, as OpenPGP in ASCII.
    pub keys: String,
}

impl Layering for Layers {
    fn describe(&self, file: &Path) -> Result<String, CollectError> {
        let facts = Facts::of(file).map_err(CollectError)?;
        serde_json::to_string(&facts).map_err(|error| CollectError(error.to_string()))
    }

    /// rpm has nothing to try: what is no plain scriptlet is left to it.
    fn trial(&self, _part: Part) -> Option<CommandOrder> {
        None
    }

    fn harmless(&self, description: &str) -> String {
        description.to_owned()
    }

    fn unpack(&self, packages: &[Part]) -> (Vec<usize>, Unpacking) {
        let is_usable = |part: &Part| Facts::of_part(part).is_ok_and(|facts| facts.reason.is_none());
        let places: Vec<usize> =
            packages.iter().enumerate().filter(|(_, part)| is_usable(part)).map(|(place, _)| place).collect();
        if places.is_empty() {
            return (places, Unpacking::default());
        }
        let line = |place: &usize| {
            let package = packages[*place].package;
            format!("{} {}\n", package.file, package.sha256)
        };
        let list = InputText { name: "layers.unpack".to_owned(), text: places.iter().map(line).collect() };
        let packages = places.iter().map(|place| packages[*place].package);
        let signed = packages.filter(|package| package.is_signed).map(|package| &package.file);
        let verify = stages::verify(&self.keys, signed);
        let unpack = by_shell(&format!("{MERGE_USR}{UNPACK}"));
        (places, Unpacking { texts: vec![list], commands: verify.into_iter().chain([unpack]).collect() })
    }

    fn compose(&self, below: &Stack, installed: Installed, packages: &[Part]) -> io::Result<Composition> {
        compose::compose(&self.base, below, installed, packages)
    }

    fn begins_with_layers(&self) -> bool {
        true
    }
}

fn by_shell(script: &str) -> CommandOrder {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    CommandOrder {
        arguments: ["/bin/sh", "-euc", script].map(str::to_owned).into(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: vec![
            variable("PATH", "/usr/bin:/usr/sbin:/bin:/sbin"),
            variable("LC_ALL", "C.UTF-8"),
            variable("INPUTS", INPUTS),
            variable("TEXTS", TEXTS),
        ],
    }
}
