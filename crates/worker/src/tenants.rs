//! A machine that several yards share: what each of their clients may use of it now.

use kilnyard_model::entitlement::Entitlement;
use kilnyard_process::now_seconds;
use kilnyard_schedule::{Shares, Usage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often the cores are divided anew, in seconds.
const STEP_SECONDS: f64 = 0.25;

/// See the module documentation.
#[derive(Debug)]
pub struct SharedMachine(Mutex<Divided>);

#[derive(Debug)]
struct Divided {
    shares: Shares,
    yards: BTreeMap<String, Known>,
    /// Counts yards, so that no number is used twice.
    count: usize,
    divided_seconds: f64,
}

/// A yard that takes part.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its number among the shares.
    number: usize,
    /// Whether it has packages that could start.
    has_ready: bool,
    /// Its running builds, as it last said.
    building: u32,
}

/// A yard that shares a machine.
#[derive(Clone, Debug)]
pub struct Sharer {
    /// Its name.
    pub name: String,
    /// What it is entitled to.
    pub entitlement: Entitlement,
    /// Whether it has packages that could start.
    pub has_ready: bool,
    /// Whether it starts nothing further for now: what it may use in a day is spent.
    pub is_spent: bool,
}

/// The share of one yard, for its client.
#[derive(Clone, Debug)]
pub struct Tenant {
    machine: Arc<SharedMachine>,
    yard: String,
}

impl SharedMachine {
    /// A machine with this many cores and this much memory for builds, in bytes.
    pub fn new(cores: u32, memory_bytes: Option<u64>) -> Arc<SharedMachine> {
        let shares = Shares::new(cores, memory_bytes);
        let divided = Divided { shares, yards: BTreeMap::new(), count: 0, divided_seconds: 0.0 };
        Arc::new(SharedMachine(Mutex::new(divided)))
    }

    fn divided(&self) -> MutexGuard<'_, Divided> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of a yard, which takes part from [`SharedMachine::set`] on.
    pub fn tenant(self: &Arc<SharedMachine>, yard: &str) -> Tenant {
        Tenant { machine: self.clone(), yard: yard.to_owned() }
    }

    /// Sets the yards that share the machine. None if there is one yard alone, which then has the whole machine.
    pub fn set(&self, yards: &[Sharer]) {
        let mut divided = self.divided();
        let Divided { shares, yards: known, count, .. } = &mut *divided;
        known.retain(|name, Known { number, .. }| {
            let stays = yards.iter().any(|yard| yard.name == *name);
            if !stays {
                shares.remove(*number);
            }
            stays
        });
        for Sharer { name, entitlement, has_ready, is_spent } in yards {
            let known = known.entry(name.clone()).or_insert_with(|| {
                *count += 1;
                Known { number: *count - 1, has_ready: false, building: 0 }
            });
            known.has_ready = *has_ready;
            shares.set(known.number, *entitlement);
            shares.set_spent(known.number, *is_spent);
        }
        // At once, so that a yard with new work does not wait.
        divided.divided_seconds = 0.0;
    }
}

impl Tenant {
    /// The cores that the yard may use now, with the usage of its builds; all if it has the machine alone.
    pub(crate) fn cores(&self, usage: Usage) -> u32 {
        let mut divided = self.machine.divided();
        let is_alone = divided.yards.is_empty();
        let Some(known) = divided.yards.get_mut(&self.yard) else {
            return if is_alone { u32::MAX } else { 0 };
        };
        let Known { number, has_ready, .. } = *known;
        // A core that a build has just left may be another yard's before the next build asks for it.
        let is_changed = std::mem::replace(&mut known.building, usage.building) != usage.building;
        let now_seconds = now_seconds();
        divided.shares.note(number, now_seconds, Usage { has_ready, ..usage });
        if is_changed || now_seconds - divided.divided_seconds >= STEP_SECONDS {
            divided.divided_seconds = now_seconds;
            divided.shares.divide(now_seconds);
        }
        divided.shares.cores_of(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharer(name: &str) -> Sharer {
        Sharer {
            name: name.to_owned(),
            entitlement: Entitlement::default(),
            has_ready: true,
            is_spent: false,
        }
    }

    #[test]
    fn a_core_that_a_build_left_is_divided_before_the_next_one_asks() {
        let machine = SharedMachine::new(1, None);
        let (one, two) = (machine.tenant("one"), machine.tenant("two"));
        assert_eq!(one.cores(Usage::default()), u32::MAX, "it has the machine alone");
        machine.set(&[sharer("one"), sharer("two")]);
        assert_eq!(machine.tenant("absent").cores(Usage::default()), 0);
        let busy =
            |building| Usage { building, begun: 2, wanted: building, used: building, ..Usage::default() };
        // One began two builds while it was alone; the other has had none.
        assert_eq!(one.cores(busy(2)), 2);
        two.cores(busy(0));
        // Its first build ends, and its share does not cover another one: at once, and not after a step.
        assert_eq!(one.cores(busy(1)), 1);
        assert_eq!(two.cores(busy(1)), 1);
    }
}
