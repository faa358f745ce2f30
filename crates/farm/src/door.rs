//! The server of a farm; see the crate's documentation.

mod blobs;
mod files;
mod metrics;
mod requests;
mod runs;
mod shells;
mod state;
mod uploads;
mod yards;

use crate::certificate;
use crate::connections::{Connections, Place};
use crate::identity::Identity;
use crate::relay;
use crate::roster::Roster;
use crate::ticket::{FarmKey, TicketKey};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kilnyard_artifacts::{Depot, Folder};
use kilnyard_model::backlog::Backlog;
use kilnyard_model::entitlement::Entitlement;
use rustix::process::{Resource, getrlimit};
use shells::Shells;
pub use state::Elsewhere;
use state::State;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;
use uploads::Uploads;
pub use yards::is_yard_name;

/// How long a client may take to begin: the handshake, and the header of a request.
const BEGIN_MAX: Duration = Duration::from_secs(15);
/// The most requests at once over one connection of HTTP/2, so that those that wait to join need a bounded memory.
const STREAMS_MAX: u32 = 32;
/// The most workers that join at the same time; further ones wait. Each has a thread while it waits for the disk.
const JOINING_MAX: usize = 4;

/// The most batches of files that are flushed at the same time; further ones wait. Each has several threads.
const BATCHES_MAX: usize = 4;

/// What a door requires of the TLS connections of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Nothing: the proof that begins a session is enough.
    Optional,
    /// A certificate with the key that the worker joined with, for everything but joining.
    Required,
}

/// The key in the client's certificate of a connection, in hexadecimal.
#[derive(Clone, Debug)]
struct Peer(Option<String>);

/// The files of a run that workers read and write.
#[derive(Debug)]
struct Files {
    /// The yard's folder. Logs are relative to it.
    yard: PathBuf,
    /// Where outputs arrive, and where inputs of builds are.
    distfiles: Folder,
    /// Further artifacts that leases name: base roots.
    archives: Vec<Folder>,
}

/// A server that is listening, but does not answer yet.
#[derive(Debug)]
pub struct Door {
    shared: Arc<Shared>,
    listener: std::net::TcpListener,
    socket: std::os::unix::net::UnixListener,
    tls: Arc<rustls::ServerConfig>,
    address: SocketAddr,
    metrics: Option<(std::net::TcpListener, metrics::Text)>,
    runtime: tokio::runtime::Runtime,
}

/// A store of files that this machine may lack, and whether workers read and write it themselves.
pub type Depots = Option<(Arc<dyn Depot>, bool)>;

/// What workers may ask of a door, as an OpenAPI 3.1 document in JSON.
///
/// # Errors
/// The document cannot be written as JSON.
pub fn openapi() -> io::Result<String> {
    requests::openapi().to_pretty_json().map_err(io::Error::other)
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    identity: Arc<Identity>,
    tickets: TicketKey,
    /// The name of the yard, if it is not the site's own.
    yard: String,
    roster: Roster,
    address: SocketAddr,
    own: String,
    clock: fn() -> f64,
    state: Mutex<State>,
    uploads: Arc<Uploads>,
    shells: Shells,
    certificates: ClientCertificates,
    joining: Arc<Semaphore>,
    /// Places for batches of files that are being flushed, for all workers.
    batches: Arc<Semaphore>,
    /// Shares the list of workers with the other servers of the farm, before a worker that joins gets an answer.
    shares: OnceLock<Share>,
    /// Has files that this machine lacks, and whether workers reach it themselves.
    depot: OnceLock<(Arc<dyn Depot>, bool)>,
    /// Further yards at this address.
    yards: yards::Served,
    runtime: tokio::runtime::Handle,
}

impl Shared {
    /// What the connections of a further yard share: the workers of this site, and files and a run of its own.
    fn for_yard(&self, name: &str, uploads: Uploads, depot: Depots) -> Shared {
        Shared {
            identity: self.identity.clone(),
            tickets: self.tickets.clone(),
            yard: name.to_owned(),
            roster: self.roster.clone(),
            address: self.address,
            own: self.own.clone(),
            clock: self.clock,
            state: Mutex::default(),
            uploads: Arc::new(uploads),
            shells: Shells::default(),
            certificates: self.certificates,
            joining: self.joining.clone(),
            batches: self.batches.clone(),
            shares: OnceLock::new(),
            depot: depot.map_or_else(OnceLock::new, OnceLock::from),
            yards: yards::Served::default(),
            runtime: self.runtime.clone(),
        }
    }

    /// The state. It is never locked across a wait.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files of the run in progress.
    fn files(&self) -> Result<Arc<Files>, requests::Refusal> {
        self.state().files().ok_or_else(requests::Refusal::without_run)
    }
}

impl Door {
    /// Listens at an address, and on the socket for runs in this folder, which has the door's key and roster. No worker
    /// gets the name `own`, which is that of the yard's own machine. `clock` gives the seconds since 1970.
    ///
    /// # Errors
    /// The address is in use, or the folder cannot be written.
    pub fn open(
        folder: &Path,
        address: SocketAddr,
        own: &str,
        certificates: ClientCertificates,
        clock: fn() -> f64,
    ) -> io::Result<Door> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let identity = Arc::new(Identity::open(folder)?);
        let tls = Arc::new(identity.server().map_err(io::Error::other)?);
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // The caller holds the door's lock.
        let socket = relay::listen(folder)?;
        socket.set_nonblocking(true)?;
        let roster = Roster::open(folder)?;
        let uploads = Arc::new(Uploads::open(folder)?);
        let (own, state, shells) = (own.to_owned(), Mutex::default(), Shells::default());
        let joining = Arc::new(Semaphore::new(JOINING_MAX));
        let shared = Shared {
            identity,
            tickets: TicketKey::open(folder)?,
            yard: String::new(),
            roster,
            address,
            own,
            clock,
            state,
            uploads,
            shells,
            certificates,
            joining,
            batches: Arc::new(Semaphore::new(BATCHES_MAX)),
            shares: OnceLock::new(),
            depot: OnceLock::new(),
            yards: yards::Served::default(),
            runtime: runtime.handle().clone(),
        };
        Ok(Door { shared: Arc::new(shared), listener, socket, tls, address, metrics: None, runtime })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The door's identity.
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// The workers and tokens.
    pub fn roster(&self) -> &Roster {
        &self.shared.roster
    }

    /// What a mirror needs to know of this farm.
    pub fn farm_key(&self) -> FarmKey {
        FarmKey { door: self.shared.identity.fingerprint(), tickets: self.shared.tickets.verifier() }
    }

    /// The same door, which gets files that this machine lacks from a store that the machines share. If `is_direct`, workers
    /// read and write it themselves, by URLs that are valid for a while.
    pub fn with_depot(self, depot: Arc<dyn Depot>, is_direct: bool) -> Door {
        let _ = self.shared.depot.set((depot, is_direct));
        self
    }

    /// The same door, which calls this after each change of the list of workers, before it answers.
    pub fn with_share(self, share: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Door {
        let _ = self.shared.shares.set(Share(Box::new(share)));
        self
    }

    /// The same door, which also shows its status at this address, over plain HTTP, as `text` writes it.
    ///
    /// # Errors
    /// The address is in use.
    pub fn with_metrics(
        self,
        address: SocketAddr,
        text: impl Fn(&relay::Status) -> String + Send + Sync + 'static,
    ) -> io::Result<Door> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Door { metrics: Some((listener, metrics::Text(Arc::new(text)))), ..self })
    }

    /// What another thread can say to the door while it answers.
    pub fn control(&self) -> Control {
        Control(self.shared.clone())
    }

    /// Answers until `end` returns true, which is asked several times a second.
    ///
    /// # Errors
    /// The sockets cannot be used.
    pub fn answer(self, end: &dyn Fn() -> bool) -> io::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let Door { shared, listener, socket, tls, metrics, runtime, .. } = self;
        // Dropped last, on this thread: the stores that it uses have runtimes of their own.
        let _shared = shared.clone();
        let task = runtime.spawn(async move {
            let listener = TcpListener::from_std(listener)?;
            let socket = UnixListener::from_std(socket)?;
            if let Some((listener, text)) = metrics {
                tokio::spawn(metrics::answer(shared.clone(), TcpListener::from_std(listener)?, text));
            }
            let runs = tokio::spawn(runs::accept(shared.clone(), socket));
            let workers = tokio::spawn(accept(shared, listener, TlsAcceptor::from(tls)));
            // The sender is dropped at the latest when this process ends.
            let _ = stopped.await;
            runs.abort();
            workers.abort();
            Ok::<(), io::Error>(())
        });
        while !end() && !task.is_finished() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = stop.send(());
        let ended = runtime.block_on(task).map_err(io::Error::other)?;
        // Uploads are repeated by their workers.
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }
}

/// Shares the list of workers.
struct Share(Box<dyn Fn() -> io::Result<()> + Send + Sync>);

impl fmt::Debug for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Share")
    }
}

/// Says to a door what it cannot see.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

impl Control {
    /// Says where the run is, unless it is here. Workers are then referred to that server.
    pub fn set_elsewhere(&self, elsewhere: Option<Elsewhere>) {
        self.0.state().set_elsewhere(elsewhere);
    }

    /// The workers, as the door sees them.
    ///
    /// # Errors
    /// The list of workers cannot be read.
    pub fn status(&self) -> io::Result<relay::Status> {
        runs::status(&self.0)
    }

    /// Sets what the site's own yard is entitled to, if there are others.
    pub fn set_entitlement(&self, entitlement: Entitlement) {
        self.0.yards.set_own(entitlement);
    }

    /// Serves a further yard at this address, with the workers of this site. Its runs connect to a socket in `folder`.
    ///
    /// # Errors
    /// The name cannot be one, or the folder cannot be written.
    pub fn add_yard(
        &self,
        name: &str,
        folder: &Path,
        depot: Depots,
        entitlement: Entitlement,
    ) -> io::Result<()> {
        self.0.yards.add(&self.0, name, folder, depot, entitlement)
    }

    /// Sets what a yard may use in a day, and has used; the site's own has an empty name. One that has used it starts
    /// nothing further on the workers.
    pub fn set_quota(&self, name: &str, quota: Option<relay::Quota>) {
        self.0.yards.set_quota(name, quota);
    }

    /// Ends the service of a further yard.
    pub fn remove_yard(&self, name: &str) {
        self.0.yards.remove(name);
    }

    /// The work that is left in the runs that are connected, of all yards; none if none has said so.
    pub fn backlog(&self) -> Option<Backlog> {
        let own = self.0.state().backlog();
        let own = own.map(|own| if self.0.yards.is_own_spent() { own.of_running() } else { own });
        own.into_iter().chain(self.0.yards.backlogs()).reduce(Backlog::and)
    }

    /// The workers and tokens.
    pub fn roster(&self) -> &Roster {
        &self.0.roster
    }

    /// Shows in each [status](relay::Status) what is known of the pools with machines on demand.
    pub fn set_pools(&self, pools: Vec<relay::PoolStatus>) {
        self.0.state().pools = pools;
    }

    /// Whether the run is here, if there is one: no other server of the farm has it.
    pub fn is_here(&self) -> bool {
        self.0.state().elsewhere().is_none()
    }

    /// Whether a run is connected.
    pub fn has_run(&self) -> bool {
        self.0.state().run().is_some()
    }

    /// Says which mirror the workers of each pool use.
    pub fn set_mirrors(&self, mirrors: BTreeMap<String, String>) {
        self.0.state().mirrors = mirrors;
    }

    /// Says which servers the farm has, if there are several: their addresses, for workers that reach one of them no more.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        self.0.state().addresses = addresses;
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, tls: TlsAcceptor) {
    let connections = Connections::new(getrlimit(Resource::Nofile).current);
    let router = requests::router(shared.clone());
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Too many open files, for instance.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, router, place) = (tls.clone(), router.clone(), connections.open(from.ip()));
        let shared = shared.clone();
        tokio::spawn(async move {
            let place = Arc::new(place);
            tokio::select! {
                () = place.end.cancelled() => {}
                () = serve(stream, &tls, shared, router, &place) => {}
            }
        });
    }
}

/// Serves one connection until its client ends it.
async fn serve(
    stream: TcpStream,
    tls: &TlsAcceptor,
    shared: Arc<Shared>,
    router: axum::Router,
    place: &Arc<Place>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(BEGIN_MAX, tls.accept(stream)).await else { return };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(BEGIN_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(BEGIN_MAX);
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let certificates = stream.get_ref().1.peer_certificates();
    let peer = Peer(certificates.and_then(|certificates| certificate::key_in(certificates.first()?)));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(place.clone());
        TowerToHyperService::new(yards::router_of(&shared, &router, request.headers())).call(request)
    });
    // A broken connection is its client's concern.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
