//! `kilnyard signer`: the signer of a yard on another machine. It dials out to the yard, and starts the process with the keys for each
//! publication.

use super::worker::join::{self, Joining};
use super::worker::shells::{Host, Shells};
use crate::cli;
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use crate::{signals, words};
use kilnyard_sign::YardKey;
use kilnyard_signer::edit::Folder;
use kilnyard_signer::setup;
use kilnyard_yard::signing::Signing;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The folder with keys, policy and account, in the signer's.
const SIGNER: &str = "signer";
/// How often signals are checked.
const STEP: Duration = Duration::from_millis(100);

pub fn run(options: &cli::Signer) -> Result<ExitCode> {
    signals::install();
    let folder = std::path::absolute(&options.folder).context(Kind::Usage, "find the signer's folder")?;
    Yard::make_folders(&folder)?;
    let _lock = join::lock(&folder)?;
    let signer = folder.join(SIGNER);
    let generate = || YardKey::generate("Kilnyard repository <kilnyard@localhost>");
    setup::make(&signer, generate).context(Kind::Machine, "make the signer")?;
    // Whatever is wrong with a key or the policy is said here, where a person starts it.
    let policy = Folder::open(&signer).map_err(|error| crate::error::Error::usage(error.to_string()))?;
    for repository in policy.policy().repository.keys() {
        for key in Signing::open_folder(&signer, repository)?.keys() {
            let trouble = key.trouble.as_deref().map_or(String::new(), |trouble| format!(": {trouble}"));
            say!("{repository}: {} {}{trouble}", key.name, key.fingerprint);
        }
    }
    let joining = Joining { url: &options.join, token_file: &options.token_file, name: &options.name };
    let (name, url, client) = join::connect_as_other(&joining, &folder)?;
    let client = Arc::new(client);
    Shells { client: client.clone(), host: Host::Signer(signer.clone()), name: name.clone() }.start();
    say!("signer {name} of {url}: it waits for publications, and Ctrl-C ends it");
    say!(
        "its policy: {}/policy.toml; its keys: {}",
        signer.display(),
        words::command(&format!("keys --signer {}", signer.display()))
    );
    while signals::count() == 0 {
        std::thread::sleep(STEP);
    }
    client.close();
    Ok(ExitCode::SUCCESS)
}
