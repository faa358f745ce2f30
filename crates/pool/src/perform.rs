//! Has a driver do what a reconciler decided.

use crate::{Action, Driver, Event, Launch, PilotName, PoolError, Verb};

/// Performs the action with the driver, and returns the event that answers it. [`Action::Drain`] is the caller's, and has none.
///
/// `launch` makes what a pilot is started with: each gets a token of its own. Its failure is that of the start.
pub fn perform(
    driver: &dyn Driver,
    action: &Action,
    launch: impl FnOnce(&PilotName) -> Result<Launch, PoolError>,
) -> Option<Event> {
    let failed = |verb: Verb, error: PoolError| Event::Failed { verb, reason: error.line() };
    Some(match action {
        Action::Drain(..) => return None,
        Action::Start(name) => match launch(name).and_then(|launch| driver.start(name, &launch)) {
            Ok(()) => Event::Started(name.clone()),
            Err(error) => failed(Verb::Start(name.clone()), error),
        },
        Action::Stop(name) => match driver.stop(name) {
            Ok(()) => Event::Stopped(name.clone()),
            Err(error) => failed(Verb::Stop(name.clone()), error),
        },
        Action::List => match driver.list() {
            Ok(listing) => Event::Listed(listing),
            Err(error) => failed(Verb::List, error),
        },
    })
}
