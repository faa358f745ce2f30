//! The plan of the root of a build: in memory or on the disk, on layers or on an image of them.

use super::RootFolder;
use crate::layers::{Image, planned_image};
use crate::local::Local;
use crate::memory::reserved_bytes;
use kilnyard_model::order::BuildOrder;
use kilnyard_root::{Form, IdMap, ImagePlan, Making, Place, RootPlan, Roots, used_bytes};
use std::path::{Path, PathBuf};

/// The facts that the root of a build is planned from.
#[derive(Clone, Copy, Debug)]
pub struct BuildFacts<'a> {
    /// The build.
    pub order: &'a BuildOrder,
    /// The order's layers and folders on this machine.
    pub local: &'a Local,
    /// The configured kind of roots.
    pub roots: Roots,
    /// Whether work folders may be in memory.
    pub works_in_memory: bool,
    /// The expected size of the files that the build writes.
    pub written_bytes: u64,
}

/// The plan of a root that does not exist yet.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: RootPlan,
    pub(crate) making: Making,
}

impl RootFolder {
    /// The root that a build would get if memory has room for its files. Nothing is made.
    pub fn planned(yard: &Path, name: &str, ids: &IdMap, facts: &BuildFacts<'_>) -> RootFolder {
        let BuildFacts { order, local, roots, .. } = *facts;
        let making = match order.terms.machine {
            Some(_) => in_machine(roots),
            None => {
                let memory = facts.wanted_memory(&|layer: &str| used_bytes(&yard.join(layer)));
                memory.map_or(roots.of_build(), |bytes| roots.in_memory(bytes))
            }
        };
        let image = planned_image(yard, &local.layers, making.form).map(|(image, _)| image);
        let planned = Planned::of_build(name, &local.layers, &making, image.as_ref(), ids);
        RootFolder::of_plan(yard, ids, planned).of_order(order, local)
    }

    /// The plan of the image for the root of a build, if the root would be on a block device.
    pub fn planned_image(yard: &Path, layers: &[String], roots: Roots) -> Option<ImagePlan> {
        planned_image(yard, layers, roots.of_build().form).map(|(_, plan)| plan)
    }
}

impl Planned {
    pub(super) fn of(name: &str, layers: &[String], making: &Making, image: Option<&Image>) -> Planned {
        let plan = RootPlan::new(&Path::new("roots").join(name), &layers_below(layers, image), making);
        Planned { plan, making: *making }
    }

    /// Like [`Planned::of`], for a build, whose root several commands use.
    pub(crate) fn of_build(
        name: &str,
        layers: &[String],
        making: &Making,
        image: Option<&Image>,
        ids: &IdMap,
    ) -> Planned {
        let Planned { plan, making } = Planned::of(name, layers, making, image);
        Planned { plan: if ids.has_one_id() { plan.held() } else { plan }, making }
    }
}

impl BuildFacts<'_> {
    /// How much memory the build should be promised for its files; `None` if they belong on the disk.
    pub(crate) fn wanted_memory(&self, layer_bytes: &dyn Fn(&str) -> u64) -> Option<u64> {
        if self.roots.is_in_memory() {
            let layers = self.local.layers.iter().filter(|_| self.roots.copies_to_memory());
            return Some(reserved_bytes(self.written_bytes, layers.map(|layer| layer_bytes(layer)).sum()));
        }
        let work = self.order.work.as_ref().filter(|_| self.works_in_memory)?;
        Some(reserved_bytes(work.expected_bytes, 0))
    }
}

/// The root of a build whose commands run in a virtual machine: the machine may write to a folder of it alone.
pub(crate) fn in_machine(roots: Roots) -> Making {
    Making { form: Form::Overlay, place: Place::Shared, flushes: roots.flushes }
}

/// The layers of a root; an image replaces the layers in it.
fn layers_below(layers: &[String], image: Option<&Image>) -> Vec<PathBuf> {
    image.map_or_else(|| layers.iter().map(PathBuf::from).collect(), |image| image.below(layers))
}
