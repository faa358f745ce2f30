//! `kilnyard mirror`: the mirror of a site.

use super::{print, print_json};
use crate::cli::{Mirror, MirrorAction};
use crate::environment::Environment;
use crate::error::{Context, Error, Kind, Result};
use crate::{environment_of_process, signals, words};
use kilnyard_artifacts::Depot;
use kilnyard_mirror_server::{
    Cache, Checksums, Config, Expected, FileDigest, Hasher, Listed, Manifests, Pins,
};
use kilnyard_yard::config::artifacts::ArtifactsTable;
use serde_json::json;
use std::cell::Cell;
use std::fmt::Write;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// How many missing files are named.
const NAMED_MAX: usize = 20;

pub fn run(options: &Mirror) -> Result<ExitCode> {
    let text = fs_err::read_to_string(&options.config).map_err(|error| {
        let failed = Error::usage(format!("failed to {error}"));
        failed.hint("a file mirror.toml: docs/mirror.md has a first one; or --config FILE")
    })?;
    let mut config = Config::parse(&text)
        .map_err(|error| Error::usage(format!("{}: {error}", options.config.display())))?;
    if config.proxy.is_none() {
        let (proxy, no_proxy) = proxy_of_environment(&environment_of_process());
        config.proxy = proxy;
        config.no_proxy = config.no_proxy.or(no_proxy);
    }
    let base = match options.config.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => folder.to_owned(),
        None => PathBuf::from("."),
    };
    match &options.action {
        MirrorAction::Serve { listen } => serve(config, &base, *listen),
        MirrorAction::List { json } => list(&open(&config, &base)?, *json),
        MirrorAction::Add { files, below, unlisted } => add(&config, &base, files, below, *unlisted),
        MirrorAction::Fetch { what, all, manifests, pin } => {
            fetch(config, &base, what, (*all, *manifests), pin.as_deref())
        }
        MirrorAction::Unpin { name } => {
            pins(&config, &base, name)?.end(name).context(Kind::Machine, "remove the pins")?;
            Ok(ExitCode::SUCCESS)
        }
        MirrorAction::Verify { remove } => verify(&open(&config, &base)?, *remove),
        MirrorAction::Gc => {
            let removed =
                open(&config, &base)?.collect().context(Kind::Machine, "read the mirror's folder")?;
            say!("removed {}", words::count(removed, "file"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The proxy through which origins are reached, and the hosts that are reached without it.
pub fn proxy_of_environment(environment: &Environment) -> (Option<String>, Option<String>) {
    let variable = |name| environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    (
        ["http_proxy", "https_proxy"].into_iter().find_map(variable),
        ["no_proxy", "NO_PROXY"].into_iter().find_map(variable),
    )
}

fn open(config: &Config, base: &Path) -> Result<Cache> {
    Cache::read(&base.join(&config.folder), config.keep_bytes)
        .context(Kind::Machine, "open the mirror's folder")
}

fn serve(mut config: Config, base: &Path, listen: Option<SocketAddr>) -> Result<ExitCode> {
    signals::install();
    super::serve::allow_files();
    config.listen = listen.unwrap_or(config.listen);
    let at = config.listen;
    let named = config.archive.keys().chain(config.registry.keys());
    let mut paths: Vec<String> = named.map(|name| format!("/{name}/")).collect();
    paths.extend(config.distfiles.as_ref().map(|_| "/distfiles/".to_owned()));
    paths.extend(config.tooltool.as_ref().map(|_| "/tooltool/".to_owned()));
    let bucket = bucket(&config, base)?;
    let listens = |address: SocketAddr, cache: &Cache| {
        let (files, bytes) = cache.size();
        say!(
            "the mirror listens at http://{address}/; it has {} of {bytes} bytes",
            words::count(files, "file")
        );
        say!("paths: {}; Ctrl-C ends it", paths.join(" "));
    };
    let served = kilnyard_mirror_server::serve(config, base, bucket, listens, || signals::count() > 0);
    served.context(Kind::Machine, format!("serve the mirror at {at}"))?;
    Ok(ExitCode::SUCCESS)
}

fn list(cache: &Cache, as_json: bool) -> Result<ExitCode> {
    let mut listed = cache.list().context(Kind::Machine, "read the mirror's folder")?;
    listed.sort_by(|one, other| one.key.cmp(&other.key));
    if as_json {
        let files = listed.iter().map(|Listed { key, facts, used, is_here }| {
            json!({
                "path": key, "size_bytes": facts.size, "sha256": facts.sha256, "used_seconds": used, "is_here": is_here,
            })
        });
        return print_json(&json!(files.collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for Listed { key, facts, used, is_here } in &listed {
        let place = if *is_here { "" } else { "  in the bucket" };
        let _ = writeln!(text, "{:>12}  {}  {key}{place}", facts.size, words::time(*used as f64));
    }
    print(&text)
}

/// The object storage behind the folder.
fn bucket(config: &Config, base: &Path) -> Result<Option<Arc<dyn Depot>>> {
    let Some(bucket) = &config.bucket else { return Ok(None) };
    let table = ArtifactsTable {
        url: Some(bucket.url.clone()),
        endpoint: bucket.endpoint.clone(),
        region: bucket.region.clone(),
        credentials_file: bucket.credentials_file.clone(),
        certificates: bucket.certificates.clone(),
        ..ArtifactsTable::default()
    };
    kilnyard_yard::yard::depot_of(&table, base)
}

/// A time in seconds since 1970 that is never reached.
const FOR_EVER: u64 = u64::MAX;

/// The pins of a mirror.
fn pins(config: &Config, base: &Path, name: &str) -> Result<Pins> {
    if !Pins::is_name(name) {
        return Err(Error::usage(format!("`{name}` is no name of pins"))
            .hint("letters, digits, dashes and underscores"));
    }
    Pins::open(&base.join(&config.folder)).context(Kind::Machine, "open the mirror's folder")
}

/// Fetches files ahead of a run.
fn fetch(
    mut config: Config,
    base: &Path,
    what: &[String],
    (all, manifests): (bool, bool),
    pin: Option<&str>,
) -> Result<ExitCode> {
    signals::install();
    let paths = paths_of(&config, base, what, (all, manifests))?;
    if let Some(name) = pin {
        let keys = paths.iter().map(|path| path.trim_start_matches('/').to_owned()).collect();
        // Before they are fetched: none is removed for the next one.
        let pinned = pins(&config, base, name)?.set(name, keys, FOR_EVER);
        pinned.context(Kind::Machine, "write the pins")?;
    }
    let count = paths.len();
    // The mirror may serve meanwhile.
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let bucket = bucket(&config, base)?;
    let (bytes, done, missing) = (Cell::new(0), Cell::new(0), Cell::new(Vec::new()));
    let report = |path: &str, filled: std::result::Result<u64, String>| match filled {
        Ok(size) => {
            done.set(done.get() + 1);
            bytes.set(bytes.get() + size);
            if done.get() % 100 == 0 {
                say!(
                    "{} of {}, {}",
                    done.get(),
                    words::count(count as u64, "file"),
                    words::size(bytes.get())
                );
            }
        }
        Err(reason) => {
            let mut named = missing.take();
            named.push(format!("{path}: {reason}"));
            missing.set(named);
        }
    };
    let filled = kilnyard_mirror_server::fill(config, base, bucket, paths, report, || signals::count() > 0);
    filled.context(Kind::Machine, "fetch files to the mirror")?;
    let missing = missing.take();
    say!("{} of {} here, {}", done.get(), words::count(count as u64, "file"), words::size(bytes.get()));
    for line in missing.iter().take(NAMED_MAX) {
        say!("missing: {line}");
    }
    if missing.len() > NAMED_MAX {
        say!("… and {} more", missing.len() - NAMED_MAX);
    }
    Ok(match (signals::count() > 0, missing.is_empty()) {
        (true, _) => ExitCode::from(Kind::Interrupted as u8),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(Kind::Packages as u8),
    })
}

/// The paths of what is to be fetched.
fn paths_of(
    config: &Config,
    base: &Path,
    what: &[String],
    (all, manifests): (bool, bool),
) -> Result<Vec<String>> {
    let (mut paths, mut packages) = (Vec::new(), Vec::new());
    for one in what {
        match one.starts_with('/') {
            true => paths.push(one.clone()),
            false => packages.push(one.trim_end_matches('/')),
        }
    }
    if all || !packages.is_empty() {
        let checksums = config.checksums(base);
        if checksums.is_empty() {
            let error = Error::usage("there are no checksums, so that packages have no known files");
            return Err(error.hint("checksums = [\"/srv/tree\"] in [distfiles] of mirror.toml"));
        }
        let known = checksums.all().context(Kind::Machine, "read the checksums")?;
        let serves = |package: &str| known.values().any(|file| file.packages.contains(package));
        if let Some(unknown) = packages.iter().find(|package| !serves(package)) {
            return Err(Error::usage(format!("no distfile of a package {unknown} is known"))
                .hint("CATEGORY/PACKAGE, as its folder in the tree; or a path of the mirror, which begins with a slash"));
        }
        let is_wanted = |package: &String| packages.contains(&package.as_str());
        let wanted = known.iter().filter(|(_, file)| all || file.packages.iter().any(is_wanted));
        paths.extend(wanted.map(|(name, _)| format!("/distfiles/{name}")));
    }
    if manifests {
        let known = config.manifests(base).context(Kind::Usage, "read the manifests")?;
        paths.extend(known.keys().map(|digest| format!("/tooltool/{digest}")));
    }
    paths.sort();
    Ok(paths)
}

fn add(config: &Config, base: &Path, files: &[PathBuf], below: &str, unlisted: bool) -> Result<ExitCode> {
    let cache = open(config, base)?;
    let checksums = config.checksums(base);
    let manifests = config.manifests(base).context(Kind::Usage, "read the manifests")?;
    for file in files {
        let failed = || format!("add {}", file.display());
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::usage(format!("{} has no name", file.display())))?;
        let place = place(&checksums, &manifests, file, name, below.trim_matches('/'), unlisted)?;
        let is_new = cache.add(&place.key, file, &place.expected).context(Kind::Machine, failed())?;
        let added = if is_new { "added" } else { "the mirror has it" };
        match place.packages.is_empty() {
            true => say!("{}: {added}", place.key),
            false => say!("{}: {added}; for {}", place.key, place.packages.join(", ")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a file belongs.
struct Place {
    key: String,
    expected: Vec<Expected>,
    packages: Vec<String>,
}

/// Finds where a file belongs: by its digest in a manifest, or by its name in a list of checksums.
fn place(
    checksums: &Checksums,
    manifests: &Manifests,
    file: &Path,
    name: &str,
    below: &str,
    unlisted: bool,
) -> Result<Place> {
    if !manifests.is_empty() {
        let found = digest_of(file).context(Kind::Machine, format!("read {}", file.display()))?;
        let digests =
            [format!("sha512/{}", found.sha512.unwrap_or_default()), format!("sha256/{}", found.sha256)];
        if let Some(digest) = digests.into_iter().find(|digest| manifests.contains_key(digest)) {
            let expected = manifests.get(&digest).cloned().into_iter().collect();
            return Ok(Place { key: format!("tooltool/{digest}"), expected, packages: Vec::new() });
        }
    }
    let mut path = match below {
        "" => name.to_owned(),
        below => format!("{below}/{name}"),
    };
    let known = checksums.all().context(Kind::Machine, "read the checksums")?;
    if !checksums.is_empty() && below.is_empty() && !known.contains_key(name) {
        // A package may keep its distfiles in a folder of their own.
        let end = format!("/{name}");
        let found = digest_of(file).context(Kind::Machine, format!("read {}", file.display()))?;
        let is_it = |path: &&String| path.ends_with(&end) && found.is_one_of(&known[*path].expected);
        if let Some(found) = known.keys().find(is_it) {
            path.clone_from(found);
        }
    }
    match known.get(&path) {
        Some(distfile) => {
            let found = digest_of(file).context(Kind::Machine, format!("read {}", file.display()))?;
            if !found.is_one_of(&distfile.expected) {
                let mut error = Error::usage(format!("{} is not the file that is listed", file.display()));
                let wanted = distfile.expected.iter().map(|expected| match &expected.digest {
                    FileDigest::Sha512(digest) => format!("SHA512 {digest}"),
                    FileDigest::Sha256(digest) => format!("SHA256 {digest}"),
                });
                error.causes.extend(wanted.map(|wanted| format!("listed: {wanted}")));
                error.causes.push(format!("this one: SHA512 {}", found.sha512.unwrap_or_default()));
                return Err(error);
            }
            let packages = distfile.packages.iter().cloned().collect();
            Ok(Place { key: format!("distfiles/{path}"), expected: distfile.expected.clone(), packages })
        }
        None if checksums.is_empty() || unlisted => {
            Ok(Place { key: format!("distfiles/{path}"), expected: Vec::new(), packages: Vec::new() })
        }
        None => Err(Error::usage(format!("no list of checksums has a file {path}")).hint(
            "--below FOLDER, if packages expect it there (DIST_SUBDIR); --unlisted adds it all the same",
        )),
    }
}

fn digest_of(file: &Path) -> std::io::Result<kilnyard_mirror_server::Found> {
    let (mut hasher, mut part) = (Hasher::new(true), vec![0; 256 << 10]);
    let mut file = fs_err::File::open(file)?;
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&part[..count]),
        }
    }
}

fn verify(cache: &Cache, removes: bool) -> Result<ExitCode> {
    let listed = cache.list().context(Kind::Machine, "read the mirror's folder")?;
    let mut damaged = 0_u64;
    let here: Vec<Listed> = listed.into_iter().filter(|listed| listed.is_here).collect();
    for one in &here {
        if cache.verify(one).unwrap_or(false) {
            continue;
        }
        damaged += 1;
        say!("{} is damaged", one.key);
        if removes {
            cache.remove(&one.key).context(Kind::Machine, "remove a damaged file")?;
        }
    }
    say!("read {}: {} damaged", words::count(here.len() as u64, "file"), damaged);
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}
