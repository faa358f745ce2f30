//! HTTP for `object_store`: one client for everything, with the TLS of this program and limits on silence.

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::signer::Method;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A request whose content moves more slowly than this, in bytes per second, is given up.
pub(crate) const RATE_MIN: u64 = 32 << 10;
/// How long a connection without a request is kept.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Makes clients.
#[derive(Debug)]
pub(crate) struct Connector {
    pub tls: Arc<rustls::ClientConfig>,
    /// How long connecting may take.
    pub connect_max: Duration,
    /// How long a server may take to begin its answer, after it has got the content of the request.
    pub silence_max: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let builder = reqwest::Client::builder()
            .use_preconfigured_tls((*self.tls).clone())
            .https_only(!allows_http)
            // A redirect would be followed with a signature for another server.
            .redirect(reqwest::redirect::Policy::none())
            // Otherwise it would be taken from the environment.
            .no_proxy()
            .http1_only()
            .connect_timeout(self.connect_max)
            // A dead network is noticed while content is sent, too.
            .tcp_user_timeout(self.silence_max)
            .pool_idle_timeout(IDLE_MAX)
            .user_agent(concat!("kilnyard/", env!("CARGO_PKG_VERSION")));
        let http = builder
            .build()
            .map_err(|source| object_store::Error::Generic { store: "HTTP", source: Box::new(source) })?;
        Ok(HttpClient::new(Client { http, silence_max: self.silence_max }))
    }
}

#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    silence_max: Duration,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let url = head.uri.to_string().parse();
        let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, Malformed(error)))?;
        let sending = Duration::from_secs(body.content_length() as u64 / RATE_MIN);
        // A server may take minutes to join the parts of an upload; the caller limits that.
        let answer_max = (head.method != Method::POST).then(|| self.silence_max + sending);
        let mut request = reqwest::Request::new(head.method, url);
        *request.headers_mut() = head.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let answer = self.http.execute(request);
        let answer = match answer_max {
            None => answer.await,
            Some(answer_max) => tokio::time::timeout(answer_max, answer)
                .await
                .map_err(|_| HttpError::new(HttpErrorKind::Timeout, Silence(answer_max)))?,
        };
        let mut answer = answer.map_err(failed)?;
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        let body = reqwest::Body::from(answer).map_err(failed);
        let mut response = HttpResponse::new(HttpResponseBody::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no answer within {} seconds", .0.as_secs_f64())]
struct Silence(Duration);

#[derive(Debug, thiserror::Error)]
#[error("the address of the request is malformed: {0}")]
struct Malformed<E>(E);

/// The kind decides whether a request is repeated. Any of ours may be: it is read-only, or writes the same again.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_builder() || is_of_certificate(&error) {
        HttpErrorKind::Unknown
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_body() || error.is_decode() {
        // Nothing is compressed: an answer that cannot be decoded ended early.
        HttpErrorKind::Interrupted
    } else {
        HttpErrorKind::Request
    };
    // It could have a signature.
    HttpError::new(kind, error.without_url())
}

/// A certificate that is rejected once is rejected again.
fn is_of_certificate(error: &(dyn Error + 'static)) -> bool {
    let is_it = matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
    // An error of I/O hides the one that it wraps from `source`.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    is_it
        || wrapped.is_some_and(|error| is_of_certificate(error))
        || error.source().is_some_and(is_of_certificate)
}
