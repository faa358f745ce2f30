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
    let mut notes = Notes { control, spent: BTreeSet::new(), unknown: BTreeMap::new() };
    std::thread::spawn(move || {
        while signals::count() == 0 {
            for (name, path, core_hours) in &bounded {
                let used = super::super::open(path).and_then(|yard| used::within_a_day(&yard));
                notes.note(name, *core_hours, used);
            }
            if let Some(core_hours) = site.config.tries.core_hours_per_day {
                notes.note_tries(&site, core_hours);
            }
            let steps = PERIOD.as_millis() / STEP.as_millis();
            (0..steps).take_while(|_| signals::count() == 0).for_each(|_| std::thread::sleep(STEP));
        }
    });
}

/// What was said of each yard.
struct Notes {
    control: Control,
    /// Those that have used their quota.
    spent: BTreeSet<String>,
    /// Why it is not known what a yard has used.
    unknown: BTreeMap<String, String>,
}

impl Notes {
    /// Notes what each author's tries have used.
    fn note_tries(&mut self, site: &Yard, core_hours: f64) {
        let all = match tries::all(site) {
            Ok(all) => all,
            Err(error) => return self.is_unknown("the tries", &error.one_line()),
        };
        let mut by_author: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for known in all {
            by_author.entry(known.note.author).or_default().push(format!("try-{}", known.name));
        }
        for (author, names) in by_author {
            match used::by(site, &author) {
                Ok(used) => names.iter().for_each(|name| self.note(name, core_hours, Ok(used))),
                Err(error) => self.is_unknown(&format!("the tries of {author}"), &error.one_line()),
            }
        }
    }

    /// Notes what a yard has used, and says when its bound is reached, and when it may start builds again.
    fn note(&mut self, name: &str, core_hours: f64, used: Result<f64>) {
        let shown = if name.is_empty() { "this site's own yard".to_owned() } else { format!("yard {name}") };
        let used_core_hours = match used {
            Ok(used) => used,
            Err(error) => return self.is_unknown(&shown, &error.one_line()),
        };
        self.unknown.remove(&shown);
        let quota = Quota { core_hours, used_core_hours };
        self.control.set_quota(name, Some(quota));
        if quota.is_spent() && self.spent.insert(name.to_owned()) {
            say!(
                "{shown} has used {used_core_hours:.3} of {core_hours} core-hours within a day: it starts nothing further on the workers"
            );
        } else if !quota.is_spent() && self.spent.remove(name) {
            say!("{shown} may start builds again: {used_core_hours:.3} of {core_hours} core-hours");
        }
    }

    /// Says once why it is not known. What was known still counts.
    fn is_unknown(&mut self, shown: &str, reason: &str) {
        if self.unknown.insert(shown.to_owned(), reason.to_owned()).as_deref() != Some(reason) {
            say!("warning: what {shown} has used is unknown: {reason}");
        }
    }
}
