//! Access to mirrors, and the store of downloaded files.

use crate::environment::Environment;
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use kilnyard_mirror::{AttemptError, Client, FetchError, FileStore, Limits, Site};
use std::sync::Arc;

/// A client with the yard's proxy and speed limit, which asks the mirror of the site first.
pub fn client(yard: &Yard) -> Client {
    client_of(&yard.config.family.mirrors(), limits(yard), &yard.environment).with_site(site(yard))
}

/// The file of the token for a mirror within `kilnyard serve`, relative to the yard.
pub const OWN_TOKEN: &str = "state/mirror.token";

/// The mirror of the yard's site, if it has one.
pub fn site(yard: &Yard) -> Option<Arc<Site>> {
    let table = &yard.config.mirror;
    let path = table.token_file.clone().unwrap_or_else(|| OWN_TOKEN.into());
    // Without one, nothing is uploaded.
    let token = fs_err::read_to_string(yard.home.join(path)).ok().map(|token| token.trim().to_owned());
    Some(Arc::new(Site::new(&table.address()?, token.filter(|token| !token.is_empty()))))
}

/// A client with the proxy from the environment, if one is set for these mirrors.
pub fn client_of(mirrors: &[String], limits: Limits, environment: &Environment) -> Client {
    let uses_http = mirrors.iter().any(|mirror| mirror.starts_with("http:"));
    let names: &[&str] =
        if uses_http { &["http_proxy", "HTTP_PROXY"] } else { &["https_proxy", "HTTPS_PROXY"] };
    let proxy = names.iter().find_map(|name| environment.get(name)).filter(|proxy| !proxy.is_empty());
    proxy
        .and_then(|proxy| Client::with_proxy(limits.clone(), proxy).ok())
        .unwrap_or_else(|| Client::new(limits))
}

fn limits(yard: &Yard) -> Limits {
    Limits { speed_min_bytes_per_second: yard.config.build.mirror_bytes_per_second_min, ..Limits::default() }
}

/// Opens the yard's distfiles.
pub fn open_files(yard: &Yard) -> Result<FileStore> {
    let files = FileStore::open_with(&yard.path("distfiles"), client(yard))
        .context(Kind::Machine, "open the yard's distfiles")?;
    Ok(match yard.depot()? {
        Some(depot) => files.with_depot(depot),
        None => files,
    })
}

/// Whether every mirror answered that it does not have the file.
pub fn is_absent(error: &FetchError) -> bool {
    match error.root() {
        FetchError::Failed { failed, .. } => {
            failed.iter().all(|attempt| matches!(attempt.error, AttemptError::Status { code: 404 | 410 }))
        }
        _ => false,
    }
}
