//! What yards and authors of tries may use of the workers in a day: measured from their records, and said to the door.

use crate::commands::tries::used;
use crate::error::Result;
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::door::Control;
use kilnyard_farm::relay::Quota;
use kilnyard_yard::tries;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// How often the records are read.
const PERIOD: Duration = Duration::from_secs(5);
/// How often the end of the process is looked for.
const STEP: Duration = Duration::from_millis(250);

/// The yards with a bound: name, folder and core-hours. The site's own has an empty name.
type Bounded = Vec<(String, PathBuf, f64)>;

/// Watches the quotas of a site, in a thread, until the process ends.
pub fn watch(site: Yard, control: Control) {
    let farm = &site.config.farm;
    let own = farm.share.core_hours_per_day.map(|hours| (String::new(), site.home.clone(), hours));
    let further = farm.yards.iter().filter_map(|(name, yard)| {
        Some((name.clone(), site.home.join(&yard.path), yard.core_hours_per_day?))
    });
    let bounded: Bounded = own.into_iter().chain(further).collect();
    if bounded.is_empty() && site.config.tries.core_hours_per_day.is_none() {
        return;
    }
    std::thread::spawn(move || {
        let mut spent = BTreeSet::new();
        while signals::count() == 0 {
            for (name, path, core_hours) in &bounded {
                let used = super::super::open(path).and_then(|yard| used::within_a_day(&yard));
                note(&control, &mut spent, name, *core_hours, used);
            }
            if let Some(core_hours) = site.config.tries.core_hours_per_day {
                note_tries(&site, &control, &mut spent, core_hours);
            }
            let steps = PERIOD.as_millis() / STEP.as_millis();
            (0..steps).take_while(|_| signals::count() == 0).for_each(|_| std::thread::sleep(STEP));
        }
    });
}

/// Notes what each author's tries have used.
fn note_tries(site: &Yard, control: &Control, spent: &mut BTreeSet<String>, core_hours: f64) {
    let mut by_author: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for known in tries::all(site).unwrap_or_default() {
        by_author.entry(known.note.author).or_default().push(format!("try-{}", known.name));
    }
    for (author, names) in by_author {
        let Ok(used) = used::by(site, &author) else { continue };
        names.iter().for_each(|name| note(control, spent, name, core_hours, Ok(used)));
    }
}

/// Notes what a yard has used, and says when its bound is reached, and when it may start builds again.
fn note(control: &Control, spent: &mut BTreeSet<String>, name: &str, core_hours: f64, used: Result<f64>) {
    let shown = if name.is_empty() { "this site's own yard".to_owned() } else { format!("yard {name}") };
    let used_core_hours = match used {
        Ok(used) => used,
        // What was known still counts.
        Err(error) => return say!("warning: what {shown} has used is unknown: {}", error.one_line()),
    };
    let quota = Quota { core_hours, used_core_hours };
    control.set_quota(name, Some(quota));
    if quota.is_spent() && spent.insert(name.to_owned()) {
        say!(
            "{shown} has used {used_core_hours:.3} of {core_hours} core-hours within a day: it starts nothing further on the workers"
        );
    } else if !quota.is_spent() && spent.remove(name) {
        say!("{shown} may start builds again: {used_core_hours:.3} of {core_hours} core-hours");
    }
}
