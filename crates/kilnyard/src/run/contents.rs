//! What folders of this machine contain, for workers on other machines: a tree of recipes, and distfiles.
//!
//! An order names such folders. Before it is sent to another machine, a thread replaces the names by references to
//! artifacts, since packing a tree takes seconds. The artifacts are in `state/shared` until the run is over; a whole tree stays in
//! `state/trees`, and later runs pack only what has changed in it.

use super::Message;
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use crate::{lease, trees};
use kilnyard_artifacts::Folder;
use kilnyard_coordinator::{Channel, Granted};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{FolderContent, RootOrder, TreePatch};
use kilnyard_protocol::{Lease, Test, ToWorker};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// The folder of the artifacts in a yard.
pub fn folder(yard: &Yard) -> PathBuf {
    yard.path(lease::SHARED)
}

/// Removes the artifacts, which no run needs now. A run packs again what it needs: the tree may have changed.
pub fn clear(yard: &Yard) {
    match fs_err::remove_dir_all(folder(yard)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            say!("warning: failed to remove copies for workers on other machines: {error}");
        }
        _ => {}
    }
}

/// Something for a worker on another machine.
pub enum Outgoing {
    /// A lease, or the announcement of one.
    Lease { granted: Box<Granted>, lease: Box<Lease>, is_announced: bool },
    /// An answer with a test.
    Answer(Channel, Box<ToWorker>),
}

impl Outgoing {
    /// The roots that it orders.
    fn roots(&mut self) -> Vec<&mut RootOrder> {
        match self {
            Outgoing::Lease { lease, .. } => {
                let test = lease.to_test.as_mut().map(|to_test| &mut to_test.order.root);
                std::iter::once(&mut lease.order.root).chain(test).collect()
            }
            Outgoing::Answer(_, message) => match &mut **message {
                ToWorker::Answer { answer, .. } => match &mut answer.test {
                    Test::Run(order) => vec![&mut order.root],
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            },
        }
    }

    /// Adds the patches that lead to its trees.
    pub fn add_patches(&mut self, patches: &[TreePatch]) {
        for root in self.roots() {
            let leads_to_layer = |patch: &&TreePatch| root.layers.iter().any(|tree| tree.sha256 == patch.to);
            root.patches = patches.iter().filter(leads_to_layer).cloned().collect();
        }
    }

    /// Whether it names folders of this machine.
    pub fn is_incomplete(&mut self) -> bool {
        let mut folders = self.roots().into_iter().flat_map(|root| &root.folders);
        folders.any(|folder| folder.content.is_none())
    }
}

/// See the module documentation.
pub struct Contents {
    outgoing: Sender<Outgoing>,
    is_stale: Arc<AtomicBool>,
    /// The leases that are being completed, announced ones apart: the coordinator repeats a grant that does not arrive.
    pending: HashSet<(Attempt, bool)>,
}

impl Contents {
    /// Starts the thread. It ends when this is dropped.
    pub fn start(packer: Packer, owner: Sender<Message>) -> Contents {
        let (outgoing, incoming) = mpsc::channel();
        let is_stale = packer.is_stale.clone();
        std::thread::spawn(move || packer.complete_all(&incoming, &owner));
        Contents { outgoing, is_stale, pending: HashSet::new() }
    }

    /// Completes something, which comes back as [`Message::Completed`].
    pub fn complete(&mut self, outgoing: Outgoing) {
        if let Outgoing::Lease { granted, is_announced, .. } = &outgoing
            && !self.pending.insert((granted.attempt, *is_announced))
        {
            return;
        }
        // Without the thread the run is over.
        let _ = self.outgoing.send(outgoing);
    }

    /// A lease came back.
    pub fn completed(&mut self, attempt: Attempt, is_announced: bool) {
        self.pending.remove(&(attempt, is_announced));
    }

    /// The tree may have changed: it is packed again before the next lease.
    pub fn forget_trees(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

/// Packs folders.
pub struct Packer {
    yard: Yard,
    is_stale: Arc<AtomicBool>,
    /// The trees that were packed, by the name of their folder.
    trees: HashMap<String, FolderContent>,
}

impl Packer {
    /// Nothing is packed yet.
    pub fn new(yard: &Yard) -> Packer {
        trees::tidy(yard);
        Packer { yard: yard.clone(), is_stale: Arc::default(), trees: HashMap::new() }
    }

    fn complete_all(mut self, incoming: &Receiver<Outgoing>, owner: &Sender<Message>) {
        for mut outgoing in incoming {
            if self.is_stale.swap(false, Ordering::Relaxed) {
                self.trees.clear();
            }
            let filled = outgoing.roots().into_iter().try_for_each(|root| self.fill(root));
            let outcome = filled.map_err(|error| error.one_line());
            if owner.send(Message::Completed(Box::new((outgoing, outcome)))).is_err() {
                return;
            }
        }
    }

    /// Completes a root.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn fill(&mut self, root: &mut RootOrder) -> Result<()> {
        for folder in root.folders.iter_mut().filter(|folder| folder.content.is_none()) {
            let known = self.trees.get(&folder.name).filter(|_| folder.names.is_none());
            let content = match known {
                Some(tree) => tree.clone(),
                None => {
                    let to = Folder::open(&self::folder(&self.yard))
                        .context(Kind::Machine, "create a folder for other machines")?;
                    match folder.names {
                        Some(_) => lease::content(&self.yard, folder, &to)?,
                        None => trees::content(&self.yard, folder, &to)?,
                    }
                }
            };
            if folder.names.is_none() {
                self.trees.insert(folder.name.clone(), content.clone());
            }
            folder.content = Some(content);
        }
        Ok(())
    }
}
