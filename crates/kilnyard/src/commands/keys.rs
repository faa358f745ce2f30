//! `kilnyard keys`: the keys of the signer, what it refused, and its account.

use super::{print, print_json};
use crate::cli::{InToken, Keys, KeysAction};
use crate::error::{Context, Error, Kind, Result};
use crate::words;
use crate::yard::{Yard, store_error};
use kilnyard_sign::{Keyring, YardKey};
use kilnyard_signer::audit::{Audit, Outputs, audit};
use kilnyard_signer::edit::{Device, EditError, Folder};
use kilnyard_signer::memory::{ACCOUNT, Memory, Pending};
use kilnyard_signer::message::KeyState;
use kilnyard_signer::pkcs11::{self, NewKey};
use kilnyard_signer::policy::{POLICY, Pkcs11};
use kilnyard_signer::setup;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::signing::{OLD_KEY, SIGNER, Signing, ends};
use serde_json::json;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The largest file that is read for a signature, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Performs the command. `yard` opens the yard; with `--signer`, most actions need none.
pub fn run(yard: impl Fn() -> Result<Yard>, options: &Keys) -> Result<ExitCode> {
    let folder = match &options.signer {
        Some(folder) => folder.clone(),
        None => {
            let yard = yard()?;
            let is_elsewhere =
                yard.config.signer.as_ref().filter(|_| !yard.home.join(SIGNER).join(POLICY).exists());
            let stays_here = matches!(
                options.action,
                None | Some(KeysAction::List | KeysAction::Audit { .. } | KeysAction::Sign { .. })
            );
            if let Some(signer) = is_elsewhere.filter(|_| !stays_here) {
                return Err(Error::usage(format!("the signer {} is on another machine", signer.name))
                    .hint("kilnyard keys --signer FOLDER, on that machine"));
            }
            yard.home.join(SIGNER)
        }
    };
    let now = words::now_seconds() as i64;
    match &options.action {
        None | Some(KeysAction::List) => {
            list(&folder, options.signer.is_none().then(yard), now, options.json)
        }
        Some(KeysAction::Make { name, user_id, days, token }) if token.pkcs11.is_some() => {
            make_in_token(&folder, name, user_id, *days, token, now)
        }
        Some(KeysAction::Make { name, user_id, days, .. }) => {
            let mut opened = open(&folder)?;
            let key = YardKey::generate_for(user_id, *days).context(Kind::Usage, "make the key")?;
            opened.add(now, "made", name, &key, None).map_err(failed)?;
            say!("made the key {name}: {}", key.fingerprint());
            say!("next: {}", words::command(&format!("keys rotate {name}")));
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Import { file: None, .. }) => move_old(&yard()?, &folder),
        Some(KeysAction::Import { file: Some(file), name, gpg_agent: Some(socket), .. }) => {
            let certificate = String::from_utf8(read(file)?).map_err(|_| {
                Error::usage(format!("{} is not armored: gpg --armor --export", file.display()))
            })?;
            let device = Device::Agent(socket);
            open(&folder)?
                .add_in_device(now, ("imported", name), &device, &certificate, None)
                .map_err(failed)?;
            say!("imported the key {name}; next: {}", words::command(&format!("keys rotate {name}")));
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Import {
            file: Some(file),
            name,
            credential,
            x509: Some(certificate),
            passphrase_file,
            ..
        }) => {
            let text = |path: &Path| {
                String::from_utf8(read(path)?).map_err(|_| {
                    Error::usage(format!("{} is not PEM", path.display())).hint("openssl's -outform PEM")
                })
            };
            let passphrase = passphrase_file.as_deref().map(text).transpose()?;
            let passphrase = passphrase.as_deref().map(|text| text.trim_end_matches('\n'));
            let (key, certificate) = (text(file)?, text(certificate)?);
            open(&folder)?
                .add_x509(now, name, (&key, &certificate), (credential.as_deref(), passphrase))
                .map_err(failed)?;
            say!("imported the X.509 key {name}; next: {}", words::command(&format!("keys rotate {name}")));
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Import { file: Some(file), name, credential, .. }) => {
            import(&folder, file, name, credential.as_deref(), now)
        }
        Some(KeysAction::Rotate { name, .. }) if open(&folder)?.policy().x509.contains_key(name) => {
            open(&folder)?.sign_packages_with(now, name).map_err(failed)?;
            say!("from the next publication on, {name} signs packages; all of them get its signature");
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Rotate { name, finish }) => {
            open(&folder)?.rotate(now, name, *finish).map_err(failed)?;
            match finish {
                true => say!("from the next publication on, {name} signs alone"),
                false => {
                    say!("from the next publication on, {name} signs too, and the published keyring has it");
                    say!(
                        "once readers have that keyring: {}",
                        words::command(&format!("keys rotate {name} --finish"))
                    );
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Update { name, file }) => {
            let certificate = String::from_utf8(read(file)?).map_err(|_| {
                Error::usage(format!("{} is not armored: gpg --armor --export", file.display()))
            })?;
            open(&folder)?.update(now, name, &certificate).map_err(failed)?;
            say!("the next publication has the new certificate of {name}");
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Revoke { name, reason }) => {
            let mut opened = open(&folder)?;
            let credentials = kilnyard_yard::signing::process::credentials_or_asked(opened.policy());
            let credentials = credentials.map_err(Error::usage)?;
            opened.revoke(now, name, reason, &credentials).map_err(failed)?;
            say!("revoked {name}: it signs nothing more, and the next publication tells readers");
            Ok(ExitCode::SUCCESS)
        }
        Some(KeysAction::Audit { files }) => check(&yard()?, &folder, *files, options.json),
        Some(KeysAction::Approve { ids, signed }) => approve(&folder, ids, signed.as_deref(), now),
        Some(KeysAction::Sign { file }) => sign(&yard()?, file),
    }
}

fn open(folder: &Path) -> Result<Folder> {
    Folder::open(folder).map_err(failed)
}

fn failed(error: EditError) -> Error {
    match error {
        EditError::Usage(reason) => Error::usage(reason),
        other => {
            let failed: std::result::Result<(), EditError> = Err(other);
            match failed.context(Kind::Machine, "change the signer") {
                Err(error) => error,
                Ok(()) => Error::new(Kind::Internal, "no error"),
            }
        }
    }
}

/// Moves the key that an earlier version kept in `state/key.asc` to the signer.
fn move_old(yard: &Yard, folder: &Path) -> Result<ExitCode> {
    let old = yard.home.join(OLD_KEY);
    if !old.exists() {
        let message = format!("there is no {OLD_KEY}, so name a file");
        return Err(Error::usage(message).hint(Remedy::command("keys import FILE")));
    }
    let _lock = yard.lock()?;
    let key = YardKey::read(&old).context(Kind::Machine, "read the yard's key")?;
    let fingerprint = key.fingerprint();
    setup::make(folder, || Ok(key)).context(Kind::Machine, "make the yard's signer")?;
    let moved = YardKey::read(&folder.join(setup::FIRST_KEY)).context(Kind::Machine, "read the moved key")?;
    if moved.fingerprint() != fingerprint {
        let message = format!("{} is another key than {OLD_KEY}", folder.join(setup::FIRST_KEY).display());
        return Err(Error::usage(message).hint(
            Remedy::command("keys list")
                .then(format!(", and removing {OLD_KEY}, if that is the right key").as_str()),
        ));
    }
    fs_err::remove_file(&old).context(Kind::Machine, "remove the old key")?;
    say!("moved the key {fingerprint} to the signer; the repository stays the same");
    Ok(ExitCode::SUCCESS)
}

/// Makes a key in a token, or uses the one with the label, and makes its certificate.
fn make_in_token(
    folder: &Path,
    name: &str,
    user_id: &str,
    days: Option<u32>,
    token: &InToken,
    now: i64,
) -> Result<ExitCode> {
    let kind = match token.kind.as_str() {
        "ed25519" => NewKey::Ed25519,
        "p256" => NewKey::P256,
        "rsa3072" => NewKey::Rsa3072,
        other => return Err(Error::usage(format!("{other:?} is no kind of key: ed25519, p256 or rsa3072"))),
    };
    let mut opened = open(folder)?;
    opened.check_new(name).map_err(failed)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let variable = |text: &String| {
        let parts = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        parts.ok_or_else(|| Error::usage(format!("{text:?} is not NAME=VALUE")))
    };
    let place = Pkcs11 {
        module: token.pkcs11.clone().unwrap_or_default(),
        token: text(&token.token),
        label: text(&token.label),
        paths: token.paths.clone(),
        environment: token.variables.iter().map(variable).collect::<Result<_>>()?,
        network: false,
    };
    let pin = token.pin_file.as_deref().map(read).transpose()?;
    let pin = pin.map(|pin| String::from_utf8_lossy(&pin).trim_end_matches('\n').to_owned());
    let refused = |reason: String| Error::new(Kind::Machine, reason);
    if !pkcs11::has(&place, pin.as_deref()).map_err(refused)? {
        pkcs11::generate(&place, pin.as_deref(), kind).map_err(refused)?;
    }
    let made = u32::try_from(now).unwrap_or(u32::MAX);
    let certificate = pkcs11::certificate(&place, pin.as_deref(), made, user_id, days).map_err(refused)?;
    let device = Device::Pkcs11(&place);
    opened
        .add_in_device(now, ("made in a token", name), &device, &certificate, token.pin.as_deref())
        .map_err(failed)?;
    say!("made the key {name} in the token {}", place.token);
    say!("next: {}", words::command(&format!("keys rotate {name}")));
    Ok(ExitCode::SUCCESS)
}

fn import(folder: &Path, file: &Path, name: &str, credential: Option<&str>, now: i64) -> Result<ExitCode> {
    let key = YardKey::read(file).context(Kind::Usage, "read the key")?;
    let fingerprint = key.fingerprint();
    if key.is_locked() && credential.is_none() {
        return Err(Error::usage("the key has a passphrase, which the signer needs at each start").hint(
            Remedy::from(
                "--credential NAME, the name of a systemd credential; or removing it first: gpg --passwd",
            ),
        ));
    }
    if folder.join(POLICY).exists() {
        open(folder)?.add(now, "imported", name, &key, credential).map_err(failed)?;
        say!("imported the key {name}: {fingerprint}");
        say!("next: {}", words::command(&format!("keys rotate {name}")));
        return Ok(ExitCode::SUCCESS);
    }
    setup::make_with(folder, credential, || Ok(key)).context(Kind::Machine, "make the signer")?;
    say!("imported the key main: {fingerprint}; it signs the repository");
    Ok(ExitCode::SUCCESS)
}

fn list(folder: &Path, yard: Option<Result<Yard>>, now: i64, as_json: bool) -> Result<ExitCode> {
    let yard = yard.transpose()?;
    let is_elsewhere = yard.as_ref().is_some_and(|yard| yard.config.signer.is_some());
    let is_here = folder.join(POLICY).exists() && !is_elsewhere;
    let keys: Vec<KeyState> = match yard {
        Some(yard) if !is_here => Signing::open(&yard)?.keys().to_vec(),
        _ => {
            let policy = open(folder)?;
            let keys =
                policy.policy().repository.keys().map(|repository| Signing::states(folder, repository));
            keys.collect::<Result<Vec<Vec<KeyState>>>>()?.concat()
        }
    };
    // That of a signer on another machine is there.
    let pending = match is_here {
        true => {
            let failed = "read what waits for an approval";
            let memory = Memory::open(folder).context(Kind::Machine, failed)?;
            memory.pending().context(Kind::Machine, failed)?
        }
        false => Vec::new(),
    };
    if as_json {
        return print_json(&json!({ "keys": keys, "pending": pending }));
    }
    let mut text = String::new();
    for key in &keys {
        let ends = match (&key.trouble, key.expires) {
            (Some(trouble), _) => trouble.clone(),
            (None, None) => "does not expire".to_owned(),
            (None, Some(expires)) if ends(expires, now).is_some() => {
                let when = ends(expires, now).unwrap_or_default();
                format!("{when}, on {}: make another one, and rotate", words::time(expires as f64))
            }
            (None, Some(expires)) => format!("expires on {}", words::time(expires as f64)),
        };
        let _ = writeln!(text, "{}  {}  {}  {ends}", key.name, key.fingerprint, key.kind);
    }
    // Keys of the policy that sign nothing.
    if is_here {
        let policy = open(folder)?;
        let policy = policy.policy();
        let mut unused = policy.key.keys().chain(policy.x509.keys()).collect::<Vec<_>>();
        unused.retain(|name| !keys.iter().any(|key| key.name == **name));
        for name in unused {
            let is_revoked = policy.repository.values().any(|rules| rules.revoked.contains(name));
            let _ = writeln!(
                text,
                "{name}  {}",
                if is_revoked { "revoked" } else { "signs nothing: keys rotate" }
            );
        }
    }
    for Pending { id, time, package, reason, .. } in &pending {
        let about = if package.is_some() { "" } else { "the repository: " };
        let _ = writeln!(text, "refused [{id}] on {}: {about}{reason}", words::time(*time as f64));
    }
    if !pending.is_empty() {
        say!(
            "{} can be approved: {}",
            words::count(pending.len() as u64, "refusal"),
            words::command("keys approve ID")
        );
    }
    print(&text)
}

fn approve(folder: &Path, ids: &[String], signed: Option<&Path>, now: i64) -> Result<ExitCode> {
    let opened = open(folder)?;
    let unknown = match signed {
        Some(file) => {
            let message = read(file)?;
            opened.approve_signed(now, &message)
        }
        None => opened.approve(now, ids, &crate::yard::user_name()),
    };
    let unknown = unknown.map_err(failed)?;
    match unknown.is_empty() {
        true => {
            say!("approved; next: {}", words::command("publish"));
            Ok(ExitCode::SUCCESS)
        }
        false => Err(Error::usage(format!("there is no refusal {}", unknown.join(", ").escape_debug()))
            .hint(Remedy::command("keys list"))),
    }
}

fn sign(yard: &Yard, file: &Path) -> Result<ExitCode> {
    let text = String::from_utf8(read(file)?)
        .map_err(|_| Error::usage(format!("{} is not UTF-8", file.display())))?;
    let signed = Signing::open(yard)?.sign_document(&text);
    print(&signed.context(Kind::Machine, format!("sign {}", file.display()))?)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened = fs_err::File::open(file);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.context(Kind::Usage, "read the file")?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::usage(format!("{} is too large", file.display())));
    }
    Ok(bytes)
}

/// Checks account, store and repository against each other.
fn check(yard: &Yard, folder: &Path, reads_all: bool, as_json: bool) -> Result<ExitCode> {
    let path: PathBuf = folder.join(ACCOUNT);
    if yard.config.signer.is_some() && !path.exists() {
        return Err(Error::usage("the account is on the signer's machine").hint(
            "a copy of the file signer/account of its folder, in a folder here: kilnyard keys audit --signer FOLDER",
        ));
    }
    let account = match fs_err::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.context(Kind::Machine, "read the account")?,
    };
    let keyring = yard.repository().join(kilnyard_publish::KEYRING_FILE);
    let keyring = match keyring.exists() {
        true => Some(Keyring::read(&keyring).context(Kind::Machine, "read the published keys")?),
        false => None,
    };
    let mut outputs = Outputs::new();
    for target in yard.targets()? {
        let store = target.store()?;
        for row in store.outputs().map_err(store_error)? {
            let digests = outputs.entry(row.output.name.clone()).or_default();
            digests.extend(yard.config.family.listed_digests(&target, &row.output));
        }
    }
    let found = audit(&account, keyring.as_ref(), &yard.repository(), Some(&outputs), reads_all);
    let found = found.map_err(|error| {
        let mut failed = Error::new(Kind::Machine, "the audit failed");
        failed.causes.push(error.to_string());
        failed
    })?;
    if as_json {
        print_json(&json!(found))?;
    } else {
        shown(&found)?;
    }
    Ok(if found.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Kind::Packages as u8) })
}

fn shown(found: &Audit) -> Result<ExitCode> {
    let mut text = String::new();
    for finding in &found.findings {
        let _ = writeln!(text, "{finding}");
    }
    let _ = writeln!(
        text,
        "{}, the chain is whole, the last one is {}; {}, {}",
        words::count(found.lines, "line"),
        if found.last.is_empty() { "none" } else { &found.last },
        words::count(found.signatures, "signature"),
        words::count(found.refusals, "refusal"),
    );
    let _ = writeln!(
        text,
        "{} in the repository: {} from before the account, {} with a later build in the store; {}",
        words::count(found.packages, "package"),
        found.before,
        found.superseded,
        words::count(found.findings.len() as u64, "finding"),
    );
    print(&text)
}
