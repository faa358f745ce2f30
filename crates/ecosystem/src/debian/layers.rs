//! Binary packages of Debian as layers: what dpkg does at unpacking is done once for each package, what it does at
//! configuring is done by dpkg itself, over all layers.
//!
//! The database is composed from what the packages are: a stanza `install ok unpacked` for each with its configuration
//! files as new, their files of `/var/lib/dpkg/info` in the layers, and the triggers that unpacking would have activated
//! (deb-triggers(5); "How triggers work" in dpkg's documentation). `dpkg --configure -a` comes to the same as after apt.
//!
//! Whether a script that is run before unpacking matters is tried where it cannot be seen: in a root of its own.
//!
//! Left to apt, with the reason: a package with a script that does something before it is unpacked, one that has the same
//! file as another or one that dpkg treats specially there (diversions, overrides, links for folders), and one of which
//! there is something in the database already.

mod compose;
mod facts;
mod preinst;
mod triggers;

use super::stages::{INPUTS, TEXTS};
use crate::{CollectError, Composition, Layering, Part, Stack, Unpacking};
use facts::Facts;
use kilnyard_model::order::{Account, CommandOrder, InputText};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Unpacks packages into folders of their own; see the script.
const UNPACK: &str = include_str!("layers/unpack.sh");
/// Makes stacked packages known to dpkg and configures them; see the script.
const CONFIGURE: &str = include_str!("layers/configure.sh");

/// Runs the script of a package that dpkg runs before it unpacks it; see the script.
const TRY: &str = include_str!("layers/try.sh");

/// dpkg's folder, below the root.
const ADMIN: &str = "var/lib/dpkg";

/// See the module.
#[derive(Debug)]
pub struct Layers;

impl Layering for Layers {
    fn describe(&self, file: &Path) -> Result<String, CollectError> {
        Facts::of(file).map_err(CollectError)?.to_text().map_err(|error| CollectError(error.to_string()))
    }

    fn unpack(&self, packages: &[Part]) -> (Vec<usize>, Unpacking) {
        let known = |part: &Part| Facts::of_part(part).ok().filter(|facts| facts.obstacle().is_none());
        let mut unpacking = Unpacking::default();
        let mut places = Vec::new();
        let mut list = String::new();
        for (place, part) in packages.iter().enumerate() {
            let Some(facts) = known(part) else { continue };
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
            unpacking.commands.push(by_shell(UNPACK, &[]));
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

    fn compose(&self, below: &Stack, packages: &[Part]) -> io::Result<Composition> {
        compose::compose(below, packages)
    }
}

/// The names of the packages that a stack has installed, as dpkg knows.
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
