//! Further yards that are served at the address of a site: each has a run, files and sessions of its own, and the workers of
//! the site. A request names its yard in a header; without that, it is for the site's own yard.

use super::requests::{self, Refusal, Worker};
use super::runs;
use super::state::Seen;
use super::{Depots, Shared, Uploads};
use crate::api::{WaitForYards, YARD_HEADER, YardOffer, Yards};
use crate::relay::{self, Quota, YardStatus};
use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use kilnyard_model::backlog::Backlog;
use kilnyard_model::entitlement::Entitlement;
use kilnyard_model::sha256::Sha256Hex;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

/// The longest time that a request for the yards waits for a change.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// How often a change is looked for.
const STEP: Duration = Duration::from_millis(500);
/// The longest name of a yard, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The further yards, and what the site's own is entitled to.
#[derive(Debug, Default)]
pub(super) struct Served {
    own: Mutex<Terms>,
    yards: Mutex<BTreeMap<String, ServedYard>>,
}

/// What a yard gets.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    entitlement: Entitlement,
    quota: Option<Quota>,
}

impl Terms {
    fn is_spent(&self) -> bool {
        self.quota.is_some_and(|quota| quota.is_spent())
    }
}

#[derive(Debug)]
struct ServedYard {
    shared: Arc<Shared>,
    router: Router,
    /// See [`YardOffer::id`].
    id: String,
    terms: Terms,
    /// Accepts its runs.
    runs: AbortHandle,
}

impl Drop for ServedYard {
    fn drop(&mut self) {
        self.runs.abort();
    }
}

/// Whether this can name a yard: letters, digits, dots, dashes and underscores.
pub fn is_yard_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with('.')
}

impl Served {
    fn yards(&self) -> MutexGuard<'_, BTreeMap<String, ServedYard>> {
        self.yards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Terms> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the site's own yard is entitled to.
    pub fn set_own(&self, entitlement: Entitlement) {
        self.own().entitlement = entitlement;
    }

    /// Sets what a yard may use in a day, and has used; the site's own has an empty name.
    pub fn set_quota(&self, name: &str, quota: Option<Quota>) {
        if name.is_empty() {
            self.own().quota = quota;
        } else if let Some(yard) = self.yards().get_mut(name) {
            yard.terms.quota = quota;
        }
    }

    /// Whether the site's own yard starts nothing further. It does if it has the workers alone.
    pub fn is_own_spent(&self) -> bool {
        !self.yards().is_empty() && self.own().is_spent()
    }

    /// Serves a yard with this folder for its socket and uploads. One of this name is replaced.
    pub fn add(
        &self,
        site: &Arc<Shared>,
        name: &str,
        folder: &Path,
        depot: Depots,
        entitlement: Entitlement,
    ) -> io::Result<()> {
        if !is_yard_name(name) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} cannot name a yard")));
        }
        let socket = relay::listen(folder)?;
        socket.set_nonblocking(true)?;
        let shared = Arc::new(site.for_yard(name, Uploads::open(folder)?, depot));
        let _context = site.runtime.enter();
        let socket = UnixListener::from_std(socket)?;
        let runs = site.runtime.spawn(runs::accept(shared.clone(), socket)).abort_handle();
        let router = requests::router(shared.clone());
        let id = Sha256Hex::of(folder.as_os_str().as_bytes()).to_string();
        let terms = Terms { entitlement, quota: None };
        self.yards().insert(name.to_owned(), ServedYard { shared, router, id, terms, runs });
        Ok(())
    }

    /// Ends the service of a yard.
    pub fn remove(&self, name: &str) {
        self.yards().remove(name);
    }

    /// The work that is left in the runs of further yards.
    pub fn backlogs(&self) -> Vec<Backlog> {
        let yards = self.yards();
        let of = |yard: &ServedYard| {
            let backlog = yard.shared.state().backlog()?;
            Some(if yard.terms.is_spent() { backlog.of_running() } else { backlog })
        };
        yards.values().filter_map(of).collect()
    }

    /// The yards that share the workers, the site's own first. Empty if there is no other.
    pub fn statuses(&self, site: &Shared) -> Vec<YardStatus> {
        let of = |name: &str, shared: &Shared, Terms { entitlement, quota }: Terms| {
            let state = shared.state();
            let backlog = state.backlog().unwrap_or_default();
            YardStatus {
                name: name.to_owned(),
                entitlement,
                has_run: state.run().is_some(),
                ready: backlog.ready.len(),
                running: backlog.running.len(),
                core_seconds: backlog.core_seconds,
                quota,
            }
        };
        let yards = self.yards();
        if yards.is_empty() {
            return Vec::new();
        }
        let own = of("", site, *self.own());
        let others = yards.iter().map(|(name, yard)| of(name, &yard.shared, yard.terms));
        std::iter::once(own).chain(others).collect()
    }

    /// The builds of a worker for further yards, and for how long it has not been heard by any of them.
    pub fn seen(&self, worker: &str, now: Instant) -> (usize, Option<Duration>) {
        let yards = self.yards();
        let seen = yards.values().map(|yard| yard.shared.state().seen(worker, now));
        let of = |(builds, least): (usize, Option<Duration>), seen: Seen| {
            (builds + seen.builds, least.into_iter().chain(seen.silent).min())
        };
        seen.fold((0, None), of)
    }

    /// The yards and what they want, the site's own first. None if there is no other: it then has all workers.
    fn offers(&self, site: &Shared) -> Vec<YardOffer> {
        let yards = self.yards();
        let offer = |name: &str, id: &str, shared: &Shared, terms: Terms| YardOffer {
            name: name.to_owned(),
            id: id.to_owned(),
            entitlement: terms.entitlement,
            has_ready: shared.state().has_ready(),
            is_spent: terms.is_spent(),
        };
        let others: Vec<YardOffer> =
            yards.iter().map(|(name, yard)| offer(name, &yard.id, &yard.shared, yard.terms)).collect();
        match others.is_empty() {
            true => others,
            false => [vec![offer("", "", site, *self.own())], others].concat(),
        }
    }
}

/// The handlers of a request, by the yard that it names; `own` are those of the site.
pub(super) fn router_of(site: &Shared, own: &Router, headers: &HeaderMap) -> Router {
    let Some(name) = headers.get(YARD_HEADER) else { return own.clone() };
    let yards = site.yards.yards();
    let yard = name.to_str().ok().and_then(|name| yards.get(name));
    yard.map_or_else(|| Router::new().fallback(async || no_such_yard()), |yard| yard.router.clone())
}

fn no_such_yard() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "there is no such yard here".to_owned())
}

/// Lists the yards that the worker takes part in, and waits for a change.
///
/// There are none if the site serves one yard alone. Requests for the yard of a name have it in the header `kilnyard-yard`.
#[utoipa::path(
    get,
    path = "/v1/yards",
    params(WaitForYards),
    responses(
        (status = 200, description = "The yards.", body = Yards),
        (status = 401, description = "The session is unknown or over.", body = crate::api::Refused),
        (status = "default", description = "Any other refusal.", body = crate::api::Refused),
    ),
    security(("session" = [])),
)]
pub(super) async fn yards(
    State(shared): State<Arc<Shared>>,
    _: Worker,
    Query(wait): Query<WaitForYards>,
) -> Json<Yards> {
    let end = tokio::time::Instant::now() + Duration::from_secs(wait.wait).min(WAIT_MAX);
    loop {
        let yards = Yards::of(shared.yards.offers(&shared));
        if yards.version != wait.version.as_deref().unwrap_or("") || tokio::time::Instant::now() >= end {
            return Json(yards);
        }
        tokio::time::sleep(STEP).await;
    }
}
