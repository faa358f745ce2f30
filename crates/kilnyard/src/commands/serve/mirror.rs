//! The mirror within `kilnyard serve`: the archives of the yard, and its distfiles.

use crate::error::{Context, Kind, Result};
use crate::signals;
use crate::yard::Yard;
use kilnyard_farm::write_private;
use kilnyard_mirror_server::{Archive, Config, Distfiles};
use kilnyard_yard::mirror::OWN_TOKEN;
use rand::RngCore;
use std::collections::BTreeMap;
use std::sync::mpsc;

/// The folder of its files, relative to the yard.
const FOLDER: &str = "mirror";

/// Serves it in threads of its own until this process ends, if the configuration wants one.
pub fn start(yard: &Yard) -> Result<()> {
    let table = &yard.config.mirror;
    let Some(listen) = table.listen else { return Ok(()) };
    let token = yard.home.join(OWN_TOKEN);
    if !token.exists() {
        let mut bytes = [0; 32];
        rand::rngs::OsRng.fill_bytes(&mut bytes);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        write_private(&token, &format!("{text}\n")).context(Kind::Machine, "make a token for the mirror")?;
    }
    let distfiles = Distfiles {
        urls: table.distfiles.clone(),
        tokens: Some(token),
        checksums: yard.config.family.checksums(),
    };
    let (proxy, no_proxy) = crate::commands::mirror::proxy_of_environment(&yard.environment);
    let config = Config {
        listen,
        folder: yard.home.join(FOLDER),
        keep_bytes: table.keep.map(|keep| keep.0),
        proxy,
        no_proxy,
        archive: archives(&yard.config.family.mirrors()),
        distfiles: Some(distfiles),
        ..Config::default()
    };
    let home = yard.home.clone();
    let (sender, begun) = mpsc::channel();
    std::thread::spawn(move || {
        let listens = |address, _: &_| drop(sender.send(Ok(address)));
        let served = kilnyard_mirror_server::serve(config, &home, None, listens, || signals::count() > 0);
        if let Err(error) = served {
            // After it has begun, there is no receiver.
            if let Err(mpsc::SendError(Err(error))) = sender.send(Err(error)) {
                say!("warning: the mirror ended: {error}");
            }
        }
    });
    let failed = format!("serve a mirror at {listen}");
    let address = begun.recv().or_internal(&failed)?.context(Kind::Machine, failed)?;
    say!("a mirror for this site listens at http://{address}/");
    Ok(())
}

/// Archives by the last part of their path: mirrors of the same one have the same.
fn archives(mirrors: &[String]) -> BTreeMap<String, Archive> {
    let mut archives: BTreeMap<String, Archive> = BTreeMap::new();
    for url in mirrors.iter().filter(|url| url.starts_with("http://") || url.starts_with("https://")) {
        let url = url.trim_end_matches('/');
        let path = url.split("://").nth(1).and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path);
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_name = |byte: char| byte.is_ascii_alphanumeric() || "-_".contains(byte);
        let mut name: String = last.chars().filter(|byte| is_name(*byte)).collect();
        if name.is_empty() || ["distfiles", "blobs", "tooltool", "pins"].contains(&&*name) {
            name = format!("archive-{name}");
        }
        let of_name = archives.entry(name).or_insert_with(|| Archive { urls: Vec::new(), keyring: None });
        of_name.urls.push(url.to_owned());
    }
    archives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_named_by_their_paths() {
        let mirrors =
            ["http://a.example/debian/", "https://b.example/x/debian", "http://c.example", "file:///d/pool"];
        let archives = archives(&mirrors.map(str::to_owned));
        let urls = |name: &str| archives[name].urls.clone();
        assert_eq!(urls("debian"), ["http://a.example/debian", "https://b.example/x/debian"]);
        assert_eq!(urls("archive-"), ["http://c.example"]);
        assert_eq!(archives.len(), 2);
    }
}
