//! Answers requests of people for the yards of the site: `kilnyard serve --api`.

mod facts;
mod follow;
mod opened;
mod shown;

use super::super::{open, requests};
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::yard::{Yard, store_error};
use kilnyard_api::bodies::{self, Ask, Asked, Made, OWN_YARD, Of};
use kilnyard_api::entrance::{Entrance, Proxy, SECRET_BYTES_MIN};
use kilnyard_api::requests::{Site, Trouble};
use kilnyard_api::server::{Certificate, Server};
use kilnyard_api::tokens::Tokens;
use kilnyard_store::{EventKind, RequestKind};
use kilnyard_yard::facts::status::state_of;
use opened::Open;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Answers at an address until this is dropped.
///
/// # Errors
/// The address cannot be used, or a file that the table `people` names cannot be read.
pub fn start(yard: &Yard, address: SocketAddr) -> Result<Server> {
    let people = &yard.config.people;
    let certificate = match (&people.certificate, &people.key) {
        (Some(chain), Some(key)) => {
            Some(Certificate { chain: read(yard, chain, false)?, key: read(yard, key, true)? })
        }
        _ if address.ip().is_loopback() => None,
        _ => {
            return Err(Error::usage(format!("tokens would cross the network to {address} in the clear"))
                .hint("certificate and key in [people] of kilnyard.toml; or an address of this machine alone, behind a proxy"));
        }
    };
    let proxy = people.proxy.as_ref().map(|proxy| -> Result<Proxy> {
        let header = proxy.header.parse().context(Kind::Usage, "read header in [people.proxy]")?;
        let secret = String::from_utf8(read(yard, &proxy.secret_file, true)?);
        let secret = secret.map(|secret| secret.trim().to_owned()).unwrap_or_default();
        if secret.len() < SECRET_BYTES_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let path = proxy.secret_file.display();
            let message = format!("{path} has no secret of {SECRET_BYTES_MIN} or more printable characters");
            return Err(Error::usage(message).hint("openssl rand -hex 32 > FILE"));
        }
        let users = people.user.iter();
        let users =
            users.map(|(name, user)| (name.clone(), (user.scopes.clone(), user.yards.clone()))).collect();
        Ok(Proxy { header, secret, scopes: proxy.scopes.clone(), users })
    });
    let entrance = Entrance {
        anonymous: people.anonymous.clone(),
        proxy: proxy.transpose()?,
        origins: people.origins.clone(),
    };
    let (tokens, site) = (
        Tokens::open(&door::folder(yard)),
        Arc::new(Yards { home: yard.home.clone(), open: Open::default() }),
    );
    let clock = kilnyard_process::time_of_day_seconds;
    let server = Server::start(address, certificate.as_ref(), entrance, tokens, site, clock);
    let server = server.context(Kind::Machine, format!("answer requests of people at {address}"))?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let address = server.address();
    say!("pages: {scheme}://{address}/");
    say!(
        "people and programs: {scheme}://{address}/api/v1/; a token: {}",
        crate::words::command("people token NAME")
    );
    Ok(server)
}

/// A file that the table `people` names. One with a secret must be its owner's alone.
fn read(yard: &Yard, path: &Path, is_secret: bool) -> Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let path = yard.home.join(path);
    let failed = || format!("read {}, which [people] in kilnyard.toml names", path.display());
    let mode = fs_err::metadata(&path).context(Kind::Usage, failed())?.mode();
    if is_secret && mode & 0o077 != 0 {
        let message = format!("{} can be read or written by other users", path.display());
        return Err(Error::usage(message).hint(format!("chmod 600 {}", path.display())));
    }
    crate::input::read(&path).context(Kind::Usage, failed())
}

/// The yards of a site. Configurations are read for each request, so that changes count at once.
#[derive(Debug)]
struct Yards {
    home: std::path::PathBuf,
    open: Open,
}

/// The trouble with a request that was understood. Its reason is for the one who asks.
fn refused(error: Error) -> Trouble {
    match error.kind {
        Kind::Usage => Trouble::Refused(error.message),
        _ => unreadable(error),
    }
}

/// The trouble with a configuration or records: messages name paths, and quote lines that may have passwords. They are for who
/// runs the server.
fn unreadable(error: Error) -> Trouble {
    say!("warning: a request of a person cannot be answered: {}", error.one_line());
    Trouble::Machine("the yard cannot be read; its server says why".to_owned())
}

impl Yards {
    /// The yard of a name.
    fn yard(&self, name: &str) -> std::result::Result<Yard, Trouble> {
        let site = open(&self.home).map_err(unreadable)?;
        if name == OWN_YARD {
            return Ok(site);
        }
        let further = site.config.farm.yards.get(name);
        let further = further.ok_or_else(|| Trouble::Absent(format!("there is no yard {name:?} here")))?;
        open(&site.home.join(&further.path)).map_err(unreadable)
    }

    /// The only target of a yard, or the one of this name.
    fn target(&self, name: &str, target: Option<&str>) -> std::result::Result<Yard, Trouble> {
        let yard = self.yard(name)?;
        let targets = match target {
            None => yard.targets(),
            Some(word) => yard.targets_named(word),
        };
        let mut targets = targets.map_err(|error| match (error.kind, target) {
            (Kind::Usage, Some(_)) => Trouble::Absent(error.message),
            _ => unreadable(error),
        })?;
        match (targets.pop(), targets.is_empty()) {
            (Some(yard), true) => Ok(yard),
            (last, _) => {
                targets.extend(last);
                let names: Vec<&str> =
                    targets.iter().filter_map(|yard| yard.target_name.as_deref()).collect();
                Err(Trouble::Refused(format!("name one of the targets: {}", names.join(", "))))
            }
        }
    }
}

impl Site for Yards {
    fn yards(&self) -> std::result::Result<Vec<bodies::Yard>, Trouble> {
        let site = open(&self.home).map_err(unreadable)?;
        let further = site.config.farm.yards.iter();
        let further = further.map(|(name, further)| (name.clone(), open(&site.home.join(&further.path))));
        let described = |(name, yard): (String, Result<Yard>)| match yard
            .and_then(|yard| yard.targets()?.iter().map(described).collect())
        {
            Ok(targets) => bodies::Yard { name, targets, trouble: None },
            Err(error) => {
                say!("warning: the yard {name} cannot be read: {}", error.one_line());
                let trouble = Some("it cannot be read; its server says why".to_owned());
                bodies::Yard { name, targets: Vec::new(), trouble }
            }
        };
        let own = std::iter::once((OWN_YARD.to_owned(), Ok(site.clone())));
        Ok(own.chain(further).map(described).collect())
    }

    fn ask(&self, ask: &Ask, author: &str) -> std::result::Result<Asked, Trouble> {
        let yard = self.target(&ask.yard, ask.target.as_deref())?;
        {
            let store = yard.store().map_err(unreadable)?;
            for package in &ask.packages {
                if store.planned(package).map_err(|error| unreadable(store_error(error)))?.is_none() {
                    let why = format!("the yard has no plan with a package {package:?}");
                    return Err(Trouble::Absent(why));
                }
            }
        }
        let kind = match ask.request {
            bodies::Kind::Retry => RequestKind::Retry,
            bodies::Kind::Skip => RequestKind::Skip,
            bodies::Kind::Bump => RequestKind::Bump,
        };
        let run = requests::ask(&yard, kind, &ask.packages, author).map_err(refused)?;
        say!("{author} asks to {} {}", kind.as_str(), ask.packages.join(", "));
        Ok(Asked { run })
    }

    fn made(&self, of: &Of) -> std::result::Result<Vec<Made>, Trouble> {
        let yard = self.target(&of.yard, of.target.as_deref())?;
        let store = yard.store().map_err(unreadable)?;
        let events =
            store.requests_made(of.count as usize).map_err(|error| unreadable(store_error(error)))?;
        let made = events.into_iter().rev().filter_map(|event| {
            let EventKind::Requested { request, author } = event.kind else { return None };
            let (request, package) = (request.as_str().to_owned(), event.ids.package);
            Some(Made { seq: event.seq, at_seconds: event.at, request, package, author })
        });
        Ok(made.collect())
    }
}

/// What a target of a yard does.
fn described(target: &Yard) -> Result<bodies::Target> {
    let run = target.store()?.last_run().map_err(store_error)?;
    Ok(bodies::Target {
        name: target.target_name.clone(),
        run: run.as_ref().map(|run| run.number),
        state: run.as_ref().map(|run| state_of(target, run).to_owned()),
    })
}
