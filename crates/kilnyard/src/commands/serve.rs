//! `kilnyard serve`: the door of a yard, through which workers on other machines take part in its builds.

mod api;
mod coordinate;
mod delayed;
mod further;
mod metrics;
mod mirror;
mod mover;
mod pools;
mod quotas;
pub mod standby;
mod successor;

pub use pools::driver;

use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::run::door;
use crate::yard::Yard;
use crate::{input, run, signals};
use coordinate::{Coordinating, Sharing};
use further::Further;
use kilnyard_farm::door::{ClientCertificates, Door};
use kilnyard_farm::identity::{Fingerprint, Identity};
use kilnyard_farm::roster::{Roster, Terms, Token};
use kilnyard_yard::config::farm::Approval;
use kilnyard_yard::notify::Notifier;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A worker asks for messages at least this often, in seconds.
pub const SILENT_SECONDS_MAX: f64 = 40.0;

pub fn run(yard: &Yard, options: &cli::Serve) -> Result<ExitCode> {
    signals::install();
    if options.only_pages {
        return only_pages(yard, options);
    }
    if let (None, Some(reason)) = (&yard.target_name, yard.config.family.confined()) {
        return Err(Error::usage(format!(
            "workers on other machines cannot build for this yard yet: {reason}"
        )));
    }
    let folder = folder(yard)?;
    let _lock = lock(&folder)?;
    // Of a site that ended without removing it.
    let _ = fs_err::remove_file(folder.join(door::SITE));
    let certificates = match yard.config.farm.client_certificates {
        true => ClientCertificates::Required,
        false => ClientCertificates::Optional,
    };
    allow_files();
    let own = run::host_name();
    let door = Door::open(&folder, options.listen, &own, certificates, kilnyard_process::time_of_day_seconds);
    let door = door.map_err(|error| explained(error, options, yard))?;
    let url = match &options.address {
        Some(url) => url.clone(),
        None => format!("https://{}:{}", run::host_name(), door.address().port()),
    };
    let door = match yard.depot()? {
        Some(depot) => door.with_depot(depot, yard.config.artifacts.direct),
        None => door,
    };
    let door = match options.metrics {
        Some(address) => door
            .with_metrics(address, metrics::writer(yard))
            .context(Kind::Machine, format!("show figures at {address}"))?,
        None => door,
    };
    let sharing = Sharing::new(yard)?;
    let door = match sharing.clone() {
        Some(sharing) => {
            door.with_share(move || sharing.share().map_err(|error| std::io::Error::other(error.one_line())))
        }
        None => door,
    };
    if let Some(sharing) = &sharing {
        // What was used or removed elsewhere does not count here, from the first request.
        sharing.share()?;
    }
    let coordinating = Coordinating::new(yard, door.control(), &url, sharing)?;
    mirror::start(yard)?;
    door.control().set_mirrors(yard.config.farm.mirrors());
    say!("workers of {} connect to {}", yard.home.display(), door.address());
    let further = Further::serve(yard, &door.control(), &folder)?;
    if coordinating.is_some() && !further.is_empty() {
        return Err(Error::usage("a yard that several machines can have is served without further yards")
            .hint("remove [farm.yards] or [store] in kilnyard.toml"));
    }
    if coordinating.is_none() {
        further::serve_tries(yard.clone(), door.control(), folder.clone());
        quotas::watch(yard.clone(), door.control());
    }
    delayed::watch(yard.clone(), door.control());
    let notifiers = notifiers(yard)?;
    let _api = options.api.map(|address| api::start(yard, address)).transpose()?;
    let token = token(yard, &options.admission, door.roster(), door.identity())?;
    say!("on another machine, as any user:");
    say!("  echo {token} > token");
    say!("  kilnyard worker --join {url} --token-file token");
    say!("each token admits one worker, within a day; for more: {}", crate::words::command("workers token"));
    say!("kilnyard build, in another terminal, then builds on all of them; Ctrl-C ends the connection");
    pools::start(yard, door.control(), (door.identity().fingerprint(), token.proxy), &url)?;
    let coordinating = coordinating.map(|coordinating| std::thread::spawn(|| coordinating.run()));
    door.answer(&|| signals::count() > 0).context(Kind::Machine, "answer workers")?;
    drop(notifiers);
    // It waits for a run that it has started.
    let _ = coordinating.map(std::thread::JoinHandle::join);
    Ok(ExitCode::SUCCESS)
}

/// How often a server without workers checks whether it is to end.
const STEP: std::time::Duration = std::time::Duration::from_millis(200);

/// Serves people and programs of this machine, and no workers.
fn only_pages(yard: &Yard, options: &cli::Serve) -> Result<ExitCode> {
    allow_files();
    folder(yard)?;
    let notifiers = notifiers(yard)?;
    let _api = api::start(yard, options.api.unwrap_or(cli::API_ADDRESS))?;
    say!("Ctrl-C ends it; runs do not need it");
    while signals::count() == 0 {
        std::thread::sleep(STEP);
    }
    drop(notifiers);
    Ok(ExitCode::SUCCESS)
}

/// Sends the notifications of the site's own yard and of further ones, each by its own configuration.
fn notifiers(yard: &Yard) -> Result<Vec<Notifier>> {
    let mut yards = yard.targets()?;
    for further in yard.config.farm.yards.values() {
        match super::open(&yard.home.join(&further.path)).and_then(|yard| yard.targets()) {
            Ok(targets) => yards.extend(targets),
            // The yard itself is reported where it is served.
            Err(error) => {
                say!("warning: no notifications of {}: {}", further.path.display(), error.one_line())
            }
        }
    }
    Ok(yards.iter().map(|yard| Notifier::start(yard, |text| say!("warning: {text}"))).collect())
}

/// Lets this process have as many files open as the user may allow it: each connection is one. Without that, the door has
/// fewer places.
pub fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Prints the description of what workers may ask.
pub fn openapi() -> Result<ExitCode> {
    let text = kilnyard_farm::door::openapi().or_internal("describe the requests")?;
    super::print(&format!("{text}\n"))
}

/// A new token, by options and configuration.
pub fn token(yard: &Yard, options: &cli::Admission, roster: &Roster, identity: &Identity) -> Result<Token> {
    let proxy = options.certificate.as_deref().map(proxy).transpose()?;
    let (fingerprint, terms) = (identity.fingerprint(), terms(yard, options)?);
    let token = roster.issue(fingerprint, terms, crate::words::now_seconds() as u64);
    Ok(Token { proxy, ..token.context(Kind::Machine, "make a token")? })
}

/// The key of the proxy with the certificate in this file.
fn proxy(path: &Path) -> Result<Fingerprint> {
    let failed = format!("read the certificate in {}", path.display());
    let text = input::read(path).context(Kind::Usage, &failed)?;
    Fingerprint::of_key_in(&text).context(Kind::Usage, failed)
}

/// What a token admits a worker to, by options and configuration.
fn terms(yard: &Yard, options: &cli::Admission) -> Result<Terms> {
    let farm = &yard.config.farm;
    let pool = farm.pool(&options.pool).ok_or_else(|| {
        Error::usage(format!("there is no pool {} in kilnyard.toml", options.pool)).hint(format!(
            "[farm.pool.{}] in kilnyard.toml, or one of: {}",
            options.pool,
            farm.pools().join(", ")
        ))
    })?;
    let roles = match options.roles.is_empty() {
        true => pool.roles,
        false => options.roles.iter().copied().collect(),
    };
    let approval = options.approve.unwrap_or(farm.approval(&options.pool));
    Ok(Terms { pool: options.pool.clone(), roles, needs_approval: approval == Approval::ByHand, name: None })
}

/// The folder of the yard's door, made if it is missing.
pub fn folder(yard: &Yard) -> Result<PathBuf> {
    Yard::make_folders(&yard.home)?;
    let folder = door::folder(yard);
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.context(Kind::Machine, format!("create {}", folder.display()))?,
    }
    Ok(folder)
}

/// Takes the lock that only one door of a yard holds.
fn lock(folder: &Path) -> Result<std::fs::File> {
    let failed = "lock the door of the yard";
    let file = fs_err::File::create(folder.join("lock")).context(Kind::Machine, failed)?;
    let (file, _) = file.into_parts();
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::usage("kilnyard serve runs in this yard already"))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error).context(Kind::Machine, failed),
    }
}

fn explained(error: std::io::Error, options: &cli::Serve, yard: &Yard) -> Error {
    let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
    let mut made = Error::new(Kind::Machine, format!("failed to serve {}", yard.home.display()));
    made.causes.push(error.to_string());
    match is_taken {
        true => made.hint(format!("another program uses {}: --listen ADDRESS:PORT", options.listen)),
        false => made,
    }
}
