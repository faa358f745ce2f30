//! Figures for monitoring, over plain HTTP at an address of their own. They name pools and count; nothing can be changed there.

use super::{BEGIN_MAX, Shared};
use crate::relay::Status;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The most connections at once; further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may last: monitoring asks every few seconds, with a new one if it has to.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// The type of the text format of Prometheus.
const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the figures as text. It may read disks.
#[derive(Clone)]
pub struct Text(pub Arc<dyn Fn(&Status) -> String + Send + Sync>);

impl std::fmt::Debug for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Text")
    }
}

/// Answers requests for the figures until the process ends.
pub async fn answer(shared: Arc<Shared>, listener: TcpListener, text: Text) {
    let router: Router = Router::new().route("/metrics", get(figures)).with_state((shared, text));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(BEGIN_MAX);
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            // A broken connection is its client's concern.
            let _ = tokio::time::timeout(CONNECTION_MAX, serving).await;
        });
    }
}

async fn figures(State((shared, text)): State<(Arc<Shared>, Text)>) -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, TYPE)];
    let failed = |error: &dyn std::fmt::Display| {
        (StatusCode::INTERNAL_SERVER_ERROR, headers.clone(), error.to_string())
    };
    match super::runs::status(&shared) {
        Ok(status) => match tokio::task::spawn_blocking(move || (text.0)(&status)).await {
            Ok(text) => (StatusCode::OK, headers.clone(), text),
            Err(error) => failed(&error),
        },
        Err(error) => failed(&error),
    }
}
