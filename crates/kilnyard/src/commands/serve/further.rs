//! The further yards of a site: `kilnyard serve` serves them too, with the workers of its own.

use crate::commands::tries;
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::door::Control;
use kilnyard_model::entitlement::{Entitlement, WorkClass};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often new tries are looked for.
const STEP: Duration = Duration::from_secs(1);

/// The further yards, which are served until this is dropped.
pub struct Further(Vec<Served>);

struct Served {
    /// The file that names the site.
    note: PathBuf,
    _lock: File,
}

impl Drop for Served {
    fn drop(&mut self) {
        // If it stays, the next `kilnyard serve` of the yard removes it.
        let _ = fs_err::remove_file(&self.note);
    }
}

impl Further {
    /// Serves the yards of the configuration. `folder` is that of the site's door.
    ///
    /// # Errors
    /// One of them cannot be opened, or is served already.
    pub fn serve(site: &Yard, control: &Control, folder: &Path) -> Result<Further> {
        let farm = &site.config.farm;
        control.set_entitlement(farm.share.entitlement());
        let mut all = Vec::new();
        for (name, further) in &farm.yards {
            let served = || -> Result<Served> {
                let path = site.home.join(&further.path);
                let yard = super::super::open(&path)?;
                if yard.home == site.home {
                    return Err(Error::usage("it is the yard of the site itself"));
                }
                if let (None, Some(reason)) = (&yard.target_name, yard.config.family.confined()) {
                    let reason = format!("workers on other machines cannot build for it yet: {reason}");
                    return Err(Error::usage(reason));
                }
                let own = super::folder(&yard)?;
                let lock = super::lock(&own)?;
                let note = own.join(door::SITE);
                let text = folder.to_str().ok_or_else(|| Error::usage("the site's path is not text"))?;
                kilnyard_farm::write_private(&note, text).context(Kind::Machine, "note the site")?;
                let depot = yard.depot()?.map(|depot| (depot, yard.config.artifacts.direct));
                control
                    .add_yard(name, &own, depot, further.entitlement())
                    .context(Kind::Machine, "listen for its runs")?;
                say!(
                    "yard {name} ({}) shares the workers: weight {}, class {}",
                    yard.home.display(),
                    further.weight,
                    further.class
                );
                Ok(Served { note, _lock: lock })
            };
            all.push(served().map_err(|error| {
                let mut failed = Error::new(error.kind, format!("failed to serve the yard {name}"));
                failed.causes.push(error.message.clone());
                failed.causes.extend(error.causes);
                failed.hint(format!("path in [farm.yards.{name}] of {}/kilnyard.toml", site.home.display()))
            })?);
        }
        Ok(Further(all))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Serves the tries of a yard until the process ends, in a thread: those that are made while it runs, too.
pub fn serve_tries(site: Yard, control: Control, folder: PathBuf) {
    std::thread::spawn(move || {
        let mut served: BTreeMap<String, (PathBuf, f64)> = BTreeMap::new();
        while signals::count() == 0 {
            let all: BTreeMap<String, (PathBuf, f64)> = tries::folders(&site).into_iter().collect();
            served.retain(|name, known| {
                // Another one may have the name.
                let stays = all.get(name) == Some(known);
                if !stays {
                    control.remove_yard(name);
                }
                stays
            });
            for (name, (path, made_seconds)) in all {
                if served.contains_key(&name) {
                    continue;
                }
                match serve_try(&control, &folder, &name, &path) {
                    Ok(()) => say!("the try {name} shares the workers"),
                    Err(error) => say!("warning: {name} is not served: {}", error.one_line()),
                }
                // Once, whatever comes of it.
                served.insert(name, (path, made_seconds));
            }
            std::thread::sleep(STEP);
        }
    });
}

fn serve_try(control: &Control, site: &Path, name: &str, path: &Path) -> Result<()> {
    let own = super::folder(&super::super::open(path)?)?;
    let text = site.to_str().ok_or_else(|| Error::usage("the site's path is not text"))?;
    kilnyard_farm::write_private(&own.join(door::SITE), text).context(Kind::Machine, "note the site")?;
    let entitlement = Entitlement { class: WorkClass::Try, ..Entitlement::default() };
    control.add_yard(name, &own, None, entitlement).context(Kind::Machine, "listen for its runs")
}
