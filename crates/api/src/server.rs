//! The server of the API.

use crate::entrance::Entrance;
use crate::feed::Feed;
use crate::requests::{self, Refusal, Site, Trouble};
use crate::tokens::Tokens;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kilnyard_farm::connections::{Connections, Place};
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How long a client may take to begin: the handshake, and the header of a request.
const BEGIN_MAX: Duration = Duration::from_secs(15);
/// How long a request may take until its answer begins, with its body.
const REQUEST_MAX: Duration = Duration::from_secs(90);
/// The most requests at once over one connection of HTTP/2.
const STREAMS_MAX: u32 = 16;
/// The most requests that read or write stores at once; further ones wait.
const ASKING_MAX: usize = 4;
/// The part of the open files of the process that this server may take: one in this many.
const FILES_SHARE: u64 = 4;

/// A certificate with its intermediate ones, and the key, both as PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificates, the server's own first.
    pub chain: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Certificate")
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) entrance: Entrance,
    pub(crate) tokens: Tokens,
    pub(crate) clock: fn() -> f64,
    pub(crate) feed: Feed,
    /// Whether browsers reach it over TLS alone.
    pub(crate) is_secure: bool,
    site: Arc<dyn Site>,
    asking: Arc<Semaphore>,
    /// For questions that read much.
    asking_much: Arc<Semaphore>,
}

impl Shared {
    /// Asks the site, in a thread that may wait for disks.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Site) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.ask_within(&self.asking, ask).await
    }

    /// Asks something for which the site reads much: one such question at a time, beside the others.
    pub(crate) async fn ask_much<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Site) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.ask_within(&self.asking_much, ask).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        ask: impl FnOnce(&dyn Site) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Refusal> {
        // A panic has been printed; its message is not for the client.
        let broken = || Refusal::from(Trouble::Machine("the server panicked, and says why".to_owned()));
        let place = places.clone().acquire_owned().await.map_err(|_| broken())?;
        let site = self.site.clone();
        let asked = tokio::task::spawn_blocking(move || {
            // Until the thread is done, even if the client is gone.
            let _place = place;
            ask(&*site)
        });
        Ok(asked.await.map_err(|_| broken())??)
    }
}

/// A server that answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Answers at an address: over TLS if there is a certificate, by plain HTTP otherwise. `clock` gives the seconds since 1970.
    ///
    /// # Errors
    /// The address is in use, or the certificate or its key is invalid.
    pub fn start(
        address: SocketAddr,
        certificate: Option<&Certificate>,
        entrance: Entrance,
        tokens: Tokens,
        site: Arc<dyn Site>,
        clock: fn() -> f64,
    ) -> io::Result<Server> {
        let tls = certificate.map(config).transpose()?.map(|config| TlsAcceptor::from(Arc::new(config)));
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let asking = Arc::new(Semaphore::new(ASKING_MAX));
        let router = requests::router(Arc::new(Shared {
            entrance,
            tokens,
            clock,
            feed: Feed::default(),
            is_secure: tls.is_some(),
            site,
            asking,
            asking_much: Arc::new(Semaphore::new(1)),
        }));
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        runtime.spawn(accept(listener, tls, router));
        Ok(Server { address, _runtime: runtime })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The configuration for a certificate.
fn config(certificate: &Certificate) -> io::Result<rustls::ServerConfig> {
    let invalid = |error: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
    let chain = chain.map_err(|error| invalid(&format!("the certificate: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key);
    let key = key.map_err(|error| invalid(&format!("the certificate's key: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| invalid(&error))?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(|error| invalid(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let files_max = getrlimit(Resource::Nofile).current;
    let connections = Connections::new(files_max.map(|files| files / FILES_SHARE));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Too many open files, for instance.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, router, place) = (tls.clone(), router.clone(), Arc::new(connections.open(from.ip())));
        tokio::spawn(async move {
            let serving = async {
                let _ = stream.set_nodelay(true);
                match tls {
                    None => serve(stream, router, &place).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = tokio::time::timeout(BEGIN_MAX, tls.accept(stream)).await {
                            serve(stream, router, &place).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = place.end.cancelled() => {}
                () = serving => {}
            }
        });
    }
}

/// Serves one connection until its client ends it.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    place: &Arc<Place>,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(BEGIN_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(BEGIN_MAX);
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let place = place.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(place.clone());
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move {
            match tokio::time::timeout(REQUEST_MAX, answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            }
        }
    });
    // A broken connection is its client's concern.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
