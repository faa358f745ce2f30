//! Distfiles that packages' own commands have fetched are offered to the mirror of the site, so that no other machine fetches them
//! from far.
//!
//! A thread of its own does that. What fails is said once, and is no failure of a build.

use kilnyard_mirror::{Offered, Site};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

/// Something to offer: its name below the folder of distfiles, and where it is.
type Offer = (String, PathBuf);

/// See the module documentation.
#[derive(Clone)]
pub struct Offers(Option<Sender<Offer>>);

impl Offers {
    /// Starts the thread, if there is a mirror. It ends when this and its clones are dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        site: Option<Arc<Site>>,
        cancel: Arc<AtomicBool>,
    ) -> Offers {
        let Some(site) = site else { return Offers(None) };
        let (sender, receiver) = channel();
        scope.spawn(move || offer_all(&site, &receiver, &cancel));
        Offers(Some(sender))
    }

    /// Offers a file.
    pub fn offer(&self, name: &str, path: PathBuf) {
        if let Some(sender) = &self.0 {
            // The thread receives as long as there is a sender.
            let _ = sender.send((name.to_owned(), path));
        }
    }
}

fn offer_all(site: &Site, offers: &Receiver<Offer>, cancel: &AtomicBool) {
    let (mut taken, mut is_said) = (0_u64, false);
    for (name, path) in offers {
        if cancel.load(Ordering::Relaxed) {
            continue;
        }
        match site.offer(&name, &path) {
            Ok(Offered::Taken) => taken += 1,
            Ok(Offered::Unneeded) => {}
            Err(reason) if !is_said => {
                is_said = true;
                say!("note: the mirror {} does not get {name}: {reason}", site.url());
            }
            Err(_) => {}
        }
    }
    if taken > 0 {
        say!("{} uploaded to the mirror {}", crate::words::count(taken, "distfile"), site.url());
    }
}
