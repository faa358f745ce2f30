//! Who decides, in a simulation, which machines there are.

use crate::event::{Action, Event, Policy};
use crate::machine::MachineId;

/// A change of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// A machine that is not there joins, and takes builds.
    Join(MachineId),
    /// A machine takes no further builds.
    Close(MachineId),
    /// A closed machine without builds leaves.
    Leave(MachineId),
}

/// A policy that also decides which machines there are.
pub trait Farm: Policy {
    /// How often it decides, in seconds. If it never does, its policy gets no [`Event::Tick`] either.
    fn step_seconds(&self) -> Option<f64>;

    /// Whether work is to begin later: until then, nothing may be running.
    fn has_later(&self) -> bool;

    /// What changes now.
    fn supply(&mut self, now_seconds: f64) -> Vec<Supply>;
}

/// A policy for machines that others decide about.
pub(super) struct WithoutSupply<'a>(pub &'a mut dyn Policy);

impl Policy for WithoutSupply<'_> {
    fn apply(&mut self, now_seconds: f64, event: Event, actions: &mut Vec<Action>) {
        self.0.apply(now_seconds, event, actions);
    }
}

impl Farm for WithoutSupply<'_> {
    fn step_seconds(&self) -> Option<f64> {
        None
    }

    fn has_later(&self) -> bool {
        false
    }

    fn supply(&mut self, _now_seconds: f64) -> Vec<Supply> {
        Vec::new()
    }
}
