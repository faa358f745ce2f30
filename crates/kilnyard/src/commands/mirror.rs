//! `kilnyard mirror`: the mirror of a site.

use super::{print, print_json};
use crate::cli::{Mirror, MirrorAction};
use crate::error::{Context, Error, Kind, Result};
use crate::{environment_of_process, signals, words};
use kilnyard_mirror_server::{Cache, Config, Listed};
use serde_json::json;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(options: &Mirror) -> Result<ExitCode> {
    let text = fs_err::read_to_string(&options.config).map_err(|error| {
        let failed = Error::usage(format!("failed to {error}"));
        failed.hint("a file mirror.toml: docs/mirror.md has a first one; or --config FILE")
    })?;
    let mut config = Config::parse(&text)
        .map_err(|error| Error::usage(format!("{}: {error}", options.config.display())))?;
    let environment = environment_of_process();
    if config.proxy.is_none() {
        let variable = |name| environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
        config.proxy = ["http_proxy", "https_proxy"].into_iter().find_map(variable);
        config.no_proxy = config.no_proxy.or_else(|| ["no_proxy", "NO_PROXY"].into_iter().find_map(variable));
    }
    let base = match options.config.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => folder.to_owned(),
        None => PathBuf::from("."),
    };
    match &options.action {
        MirrorAction::Serve { listen } => serve(config, &base, *listen),
        MirrorAction::List { json } => list(&open(&config, &base)?, *json),
        MirrorAction::Add { files, below } => add(&open(&config, &base)?, files, below),
        MirrorAction::Verify { remove } => verify(&open(&config, &base)?, *remove),
        MirrorAction::Gc => {
            let removed =
                open(&config, &base)?.collect().context(Kind::Machine, "read the mirror's folder")?;
            say!("removed {}", words::count(removed, "file"));
            Ok(ExitCode::SUCCESS)
        }
    }
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
    let mut paths: Vec<String> = config.archive.keys().map(|name| format!("/{name}/")).collect();
    paths.extend(config.distfiles.as_ref().map(|_| "/distfiles/".to_owned()));
    let listens = |address: SocketAddr, cache: &Cache| {
        let (files, bytes) = cache.size();
        say!(
            "the mirror listens at http://{address}/; it has {} of {bytes} bytes",
            words::count(files, "file")
        );
        say!("paths: {}; Ctrl-C ends it", paths.join(" "));
    };
    let served = kilnyard_mirror_server::serve(config, base, listens, || signals::count() > 0);
    served.context(Kind::Machine, format!("serve the mirror at {at}"))?;
    Ok(ExitCode::SUCCESS)
}

fn list(cache: &Cache, as_json: bool) -> Result<ExitCode> {
    let mut listed = cache.list().context(Kind::Machine, "read the mirror's folder")?;
    listed.sort_by(|one, other| one.key.cmp(&other.key));
    if as_json {
        let files = listed.iter().map(|Listed { key, facts, used }| {
            json!({ "path": key, "size_bytes": facts.size, "sha256": facts.sha256, "used_seconds": used })
        });
        return print_json(&json!(files.collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for Listed { key, facts, used } in &listed {
        let _ = writeln!(text, "{:>12}  {}  {key}", facts.size, words::time(*used as f64));
    }
    print(&text)
}

fn add(cache: &Cache, files: &[PathBuf], below: &str) -> Result<ExitCode> {
    for file in files {
        let failed = || format!("add {}", file.display());
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::usage(format!("{} has no name", file.display())))?;
        let key = match below.trim_matches('/') {
            "" => format!("distfiles/{name}"),
            below => format!("distfiles/{below}/{name}"),
        };
        let is_new = cache.add(&key, file).context(Kind::Machine, failed())?;
        say!("{key}: {}", if is_new { "added" } else { "the mirror has it" });
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(cache: &Cache, removes: bool) -> Result<ExitCode> {
    let listed = cache.list().context(Kind::Machine, "read the mirror's folder")?;
    let mut damaged = 0_u64;
    for one in &listed {
        if cache.verify(one).unwrap_or(false) {
            continue;
        }
        damaged += 1;
        say!("{} is damaged", one.key);
        if removes {
            cache.remove(&one.key).context(Kind::Machine, "remove a damaged file")?;
        }
    }
    say!("read {}: {} damaged", words::count(listed.len() as u64, "file"), damaged);
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}
