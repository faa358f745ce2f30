//! Sources that a run has yet to read are kept at the mirror of the site, whatever their age.
//!
//! A thread of its own says so, and says it again: pins hold for a day. What fails is said once, and is no failure of a build.

use kilnyard_mirror::Site;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

/// How often pins are renewed.
const RENEWED_AFTER: Duration = Duration::from_secs(12 * 60 * 60);

/// The pins of a run. They end when this is dropped.
pub struct Pins(#[expect(dead_code, reason = "its end is the message")] Option<Sender<()>>);

impl Pins {
    /// Pins the sources at these places under a name, if there is a mirror.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        site: Option<Arc<Site>>,
        name: String,
        places: Vec<String>,
    ) -> Pins {
        let Some(site) = site.filter(|_| !places.is_empty()) else { return Pins(None) };
        let (sender, ended) = channel::<()>();
        scope.spawn(move || {
            let mut is_said = false;
            loop {
                if let Err(reason) = site.pin(&name, &places)
                    && !std::mem::replace(&mut is_said, true)
                {
                    say!("note: the mirror {} does not pin the sources of the run: {reason}", site.url());
                }
                if ended.recv_timeout(RENEWED_AFTER) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            // Otherwise they expire.
            let _ = site.unpin(&name);
        });
        Pins(Some(sender))
    }
}
