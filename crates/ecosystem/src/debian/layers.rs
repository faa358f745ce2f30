//! Debian binary packages as layers: dpkg's unpacking is done once per package; its configuring is done by dpkg
//! itself, over all layers.
//!
//! The database is composed from the packages: a stanza `install ok unpacked` for each, with its configuration
//! files marked as new, its files of `/var/lib/dpkg/info` in the layer, and the triggers that unpacking would have
//! activated (deb-triggers(5); "How triggers work" in dpkg's documentation). `dpkg --configure -a` then gives the
//! same result as an installation by apt.
//!
//! Whether a script that runs before unpacking has any effect is tested where no build can see it: in a separate
//! root.
//!
//! Three kinds of packages are left to apt, with the reason: packages with a script that does something before
//! unpacking; packages that share a file with another package or with a path that dpkg treats specially
//! (diversions, overrides, links in place of folders); and packages that are already in the database in some form.

mod compose;
mod facts;
mod preinst;
mod triggers;

use super::stages::INPUTS;
use crate::layering::MERGE_USR;
use crate::{CollectError, Composition, Installed, Layering, Part, Stack, TEXTS, Unpacking};
use facts::Facts;
use kilnyard_model::order::{Account, CommandOrder, InputText};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Unpacks packages, each into its own folder; see the script.
const UNPACK: &str = include_str!("layers/unpack.sh");
/// Registers stacked packages with dpkg and configures them; see the script.
const CONFIGURE: &str = include_str!("layers/configure.sh");

/// Runs the script of a package that dpkg would run before unpacking it; see the script.
const TRY: &str = include_str!("layers/try.sh");

/// dpkg's database folder, relative to the root.
const ADMIN: &str = "var/lib/dpkg";

/// Debian's [`Layering`]; see the module documentation.
#[derive(Debug)]
pub struct Layers;

impl Layering for Layers {
    fn describe(&self, file: &Path) -> Result<String, CollectError> {
        Facts::of(file).map_err(CollectError)?.to_text().map_err(|error| CollectError(error.to_string()))
    }

    fn unpack(&self, packages: &[Part]) -> (Vec<usize>, Unpacking) {
        // dpkg would have to know the architecture of a cross build's host first.
        let is_native = |part: &&Part| !part.package.name.contains(':');
        let usable = |part: &Part| {
            let facts = Some(part).filter(is_native).and_then(|part| Facts::of_part(part).ok());
            facts.filter(|facts| facts.obstacle().is_none())
        };
        let mut unpacking = Unpacking::default();
        let mut places = Vec::new();
        let mut list = String::new();
        for (place, part) in packages.iter().enumerate() {
            let Some(facts) = usable(part) else { continue };
            places.push(place);
            let hash = &part.package.sha256;
            unpacking.texts.push(InputText { name: format!("{hash}.list"), text: facts.list() });
            unpacking
                .texts
                .push(InputText { name: format!("{hash}.conffiles"), text: facts.conffiles_as_new() });
            list.push_str(&format!("{} {hash} {}\n", part.package.file, facts.info_name()));
        }
        if !places.is_empty() {
            unpacking.texts.push(InputText { name: "layers.unpack".to_owned(), text: list });
            unpacking.commands.push(by_shell(&format!("{MERGE_USR}{UNPACK}"), &[]));
        }
        (places, unpacking)
    }

    fn trial(&self, part: Part) -> Option<CommandOrder> {
        let facts = Facts::of_part(&part).ok()?;
        let is_open = facts.reason.is_none() && facts.untried.is_some();
        is_open.then(|| by_shell(TRY, &[&part.package.file, facts.field("Package")]))
    }

    fn harmless(&self, description: &str) -> String {
        let harmless = Facts::parse(description).ok().and_then(|facts| facts.harmless().to_text().ok());
        harmless.unwrap_or_else(|| description.to_owned())
    }

    fn compose(&self, below: &Stack, _installed: Installed, packages: &[Part]) -> io::Result<Composition> {
        compose::compose(below, packages)
    }
}

/// The names of the packages that are installed in a stack, according to dpkg's status file.
pub(super) fn installed(stack: &Stack) -> io::Result<BTreeSet<String>> {
    let status = stack.read(&format!("{ADMIN}/status"))?.unwrap_or_default();
    let is_installed = |(_, state): &(String, String)| state == "install ok installed";
    Ok(compose::states(&status).into_iter().filter(is_installed).map(|(name, _)| name).collect())
}

fn as_root(arguments: Vec<String>) -> CommandOrder {
    CommandOrder {
        arguments,
        account: Account::Root,
        directory: "/".to_owned(),
        environment: vec![
            ("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned()),
            ("HOME".to_owned(), "/root".to_owned()),
            ("INPUTS".to_owned(), INPUTS.to_owned()),
            ("TEXTS".to_owned(), TEXTS.to_owned()),
        ],
    }
}

fn configure() -> CommandOrder {
    by_shell(CONFIGURE, &[])
}

fn by_shell(script: &str, arguments: &[&str]) -> CommandOrder {
    let all = [&["/bin/sh", "-eu", "-c", script, "sh"], arguments].concat();
    as_root(all.into_iter().map(str::to_owned).collect())
}
