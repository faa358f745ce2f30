//! The signer: in its sandbox, and on another machine. Readers are apt and gpgv.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, run};
use crate::support::farm::{Served, connected};
use crate::support::{self, Yard, until};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const CASES: &[Trial] = &[
    ("a_trojan_stays_out_and_the_rest_is_published", trojan),
    ("an_archive_says_which_sources_there_are", archive),
    ("keys_change_and_readers_follow", keys),
    ("the_signer_sees_its_keys_and_nothing_else", sandbox),
    ("a_token_signs_from_within_the_sandbox", token),
    ("a_signer_on_another_machine_signs_and_may_be_away", elsewhere),
];

/// What apt says of the repository with the keys that it publishes.
fn apt_reads(yard: &Yard) {
    let repository = yard.path("repository");
    let root = tempfile::tempdir().unwrap();
    for folder in ["lists/partial", "cache/archives/partial", "etc"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let list = root.path().join("etc/sources.list");
    let line = format!(
        "deb [signed-by={0}/kilnyard-archive-keyring.asc] file:{0} bookworm main\n",
        repository.display()
    );
    fs::write(&list, line).unwrap();
    let option = |name: &str, path: &str| format!("{name}={}", root.path().join(path).display());
    let options = [
        option("Dir::State::Lists", "lists"),
        option("Dir::Cache", "cache"),
        option("Dir::Etc::SourceList", "etc/sources.list"),
        "Dir::Etc::SourceParts=-".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    let mut arguments: Vec<&str> = options.iter().flat_map(|option| ["-o", option]).collect();
    arguments.push("update");
    let ended = run(root.path(), "apt-get", &arguments).exits(0);
    assert!(!ended.stderr.contains("W:") && !ended.stderr.contains("E:"), "{}", ended.stderr);
}

/// The fingerprints that gpgv names as signers of `InRelease`, by the published keyring.
fn signers(yard: &Yard) -> Vec<String> {
    let repository = yard.path("repository");
    let scratch = tempfile::tempdir().unwrap();
    let ring = scratch.path().join("ring.gpg").display().to_string();
    let keyring = repository.join("kilnyard-archive-keyring.asc").display().to_string();
    run(&repository, "gpg", &["--batch", "--dearmor", "--output", &ring, &keyring]).exits(0);
    let signed = repository.join("dists/bookworm/InRelease").display().to_string();
    let ended = run(&repository, "gpgv", &["--status-fd", "1", "--keyring", &ring, &signed]);
    let valid = ended.stdout.lines().filter_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "));
    valid.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect()
}

fn fingerprints(yard: &Yard) -> Vec<String> {
    let listed = yard.json(&["keys", "--json"]);
    listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["fingerprint"].as_str().unwrap().to_owned())
        .collect()
}

fn with_file(name: &'static str, file: &'static str) -> Fixture {
    let binary =
        format!("mkdir -p debian/tmp/usr/share/signing && echo {name} > debian/tmp/usr/share/signing/{file}");
    Fixture { binary: binary.leak(), ..good(name, "") }
}

fn trojan(shared: &Shared) {
    let (base, other) = (with_file("base", "base"), with_file("other", "other"));
    let yard =
        shared.yard("signing", &[with_file("base", "base"), with_file("other", "other"), good("third", "")]);
    yard.build().exits(0);
    apt_reads(&yard);
    assert_eq!(signers(&yard), fingerprints(&yard));
    yard.run(&["keys", "audit"]).exits(0).says(&[
        "the chain is whole",
        "3 packages in the repository",
        "0 findings",
    ]);
    // An update takes over a file of another package.
    let taking = with_file("other", "base");
    let _ = (base, other.change(&yard, "1.1", |fixture| Fixture { binary: taking.binary, ..fixture }));
    yard.build().exits(1).says(&[
        "the signer refuses other 1.1+bk1 (amd64): it takes over usr/share/signing/base of base without saying so",
        "keys approve",
    ]);
    let published = yard.published();
    assert!(
        published.contains(&"Version: 1.0+bk1".to_owned())
            && !published.iter().any(|line| line.contains("1.1+bk1"))
    );
    apt_reads(&yard);
    let listed = yard.json(&["keys", "--json"]);
    assert_eq!(listed["pending"][0]["package"], "other", "{listed}");
    yard.run(&["keys", "audit"])
        .exits(0)
        .says(&["1 refusal", "1 with a later build in the store; 0 findings"]);
    yard.run(&["keys", "approve", "absent"]).exits(2).says(&["there is no refusal absent"]);
    yard.approve_all();
    yard.run(&["publish"]).exits(0).says(&["published: 3 packages"]);
    assert!(yard.published().iter().any(|line| line.contains("1.1+bk1")));
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
    // A change of the repository or of the account is found out.
    let release = "repository/dists/bookworm/Release";
    let whole = yard.read(release);
    fs::write(yard.path(release), whole.replace("Origin: ", "Origin: x")).unwrap();
    yard.run(&["keys", "audit"])
        .exits(1)
        .says(&["bookworm: the account has no signature of what is published"]);
    fs::write(yard.path(release), &whole).unwrap();
    // So is one of what apt reads: the signed text, an index, a package.
    let deb = fs::read_dir(yard.path("repository/pool/main/t/third")).unwrap();
    let deb =
        deb.map(|file| file.unwrap().path()).find(|path| path.extension().is_some_and(|end| end == "deb"));
    let deb = deb.unwrap().strip_prefix(&yard.folder).unwrap().display().to_string();
    let dists = |name: &str| format!("repository/dists/bookworm/{name}");
    for (file, says) in [
        (dists("InRelease"), "InRelease"),
        (dists("main/binary-amd64/Packages.xz"), "is not the one that Release names"),
        (dists("main/binary-amd64/Packages"), "is not the one that Release names"),
        (deb, "has another content than its index says"),
    ] {
        let path = yard.path(&file);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        let at = if file.ends_with("InRelease") { 60 } else { changed.len() / 2 };
        changed[at] ^= 1;
        // A pool file may be a link to the yard's own copy.
        fs::remove_file(&path).unwrap();
        fs::write(&path, changed).unwrap();
        yard.run(&["keys", "audit", "--files"]).exits(1).says(&[says]);
        fs::remove_file(&path).unwrap();
        yard.run(&["keys", "audit"]).exits(1);
        fs::write(&path, whole).unwrap();
    }
    yard.run(&["keys", "audit", "--files"]).exits(0).says(&["0 findings"]);
    let account = yard.read("state/signer/account");
    fs::write(yard.path("state/signer/account"), account.replacen("base", "bass", 1)).unwrap();
    yard.run(&["keys", "audit"]).exits(3).says(&["of the account does not continue the line before it"]);
    yard.run(&["publish"]).exits(3).says(&["failed to start the signer", "account"]);
    fs::write(yard.path("state/signer/account"), account).unwrap();
    yard.run(&["publish"]).exits(0).says(&["unchanged"]);
}

/// The index of sources of a real archive, as the scan verified it.
fn archive(shared: &Shared) {
    let yard = shared.yard("signing-archive", &[good("only", "")]);
    let policy = yard.read("state/signer/policy.toml");
    let with = |rules: &str| {
        let keys = format!("keys = [\"main\"]\narchives = [\"debian\"]\n{rules}");
        let table = "\n[archive.debian]\nkeyring = \"debian.gpg\"\n";
        fs::write(yard.path("state/signer/policy.toml"), policy.replace("keys = [\"main\"]", &keys) + table)
            .unwrap();
    };
    with("");
    yard.build().exits(1).says(&["no archive or tree of the policy has the source only 1.0", "debian.gpg"]);
    let keyring = yard.read("kilnyard.toml");
    let keyring = keyring.lines().find_map(|line| line.strip_prefix("keyring = \"")).map(str::to_owned);
    let keyring = keyring.map_or_else(
        || "/usr/share/keyrings/debian-archive-keyring.gpg".to_owned(),
        |line| line.split('"').next().unwrap().to_owned(),
    );
    fs::copy(keyring, yard.path("state/signer/debian.gpg")).unwrap();
    yard.run(&["publish"]).exits(1).says(&["no archive or tree of the policy has the source only 1.0"]);
    // It was shown all sources of the release, once.
    let account = yard.read("state/signer/account");
    let shown: Vec<&str> = account.split("{\"sources\":{\"archive\":\"debian\"").skip(1).collect();
    assert!(!shown.is_empty(), "{account}");
    let count = |text: &str| -> u64 {
        let (_, rest) = text.split_once("\"sources\":").unwrap();
        rest.split('}').next().unwrap().parse().unwrap()
    };
    assert!(shown.iter().map(|text| count(text)).sum::<u64>() > 30_000, "{account}");
    yard.approve_all();
    yard.run(&["publish"]).exits(0).says(&["published: 1 package"]);
    with("own-sources = [\"only\"]");
    yard.run(&["publish"]).exits(0);
    let again = yard.read("state/signer/account");
    assert_eq!(again.matches("{\"sources\":").count(), shown.len());
    apt_reads(&yard);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
}

fn keys(shared: &Shared) {
    let yard = shared.yard("signing-keys", &[good("only", "")]);
    // As an earlier version left it.
    fs::rename(yard.path("state/signer/keys/main.asc"), yard.path("state/key.asc")).unwrap();
    fs::remove_dir_all(yard.path("state/signer")).unwrap();
    yard.build().exits(2).says(&["the yard's key is still in state/key.asc", "keys import"]);
    yard.run(&["doctor"]).exits(3).says(&["MISS signer"]);
    yard.run(&["keys", "import"]).exits(0).says(&["moved the key"]);
    assert!(!yard.path("state/key.asc").exists());
    yard.run(&["keys", "import"]).exits(2).says(&["there is no state/key.asc"]);
    yard.run(&["publish"]).exits(0);
    let first = fingerprints(&yard);
    assert_eq!(signers(&yard), first);
    // Rotation, with an overlap.
    yard.run(&["keys", "make", "next", "--days", "20"]).exits(0).says(&["keys rotate next"]);
    yard.run(&["publish"]).exits(0).says(&["unchanged"]);
    yard.run(&["keys", "rotate", "next"]).exits(0).says(&["signs too", "--finish"]);
    yard.run(&["publish"])
        .exits(0)
        .says(&["published", "note: the key next of the repository expires within 20 days"]);
    let both = fingerprints(&yard);
    assert_eq!((signers(&yard), both.len()), (both.clone(), 2));
    apt_reads(&yard);
    yard.run(&["doctor"]).says(&["MISS signer: the key next of the repository expires"]);
    yard.run(&["keys", "rotate", "next", "--finish"]).exits(0).says(&["signs alone"]);
    yard.run(&["publish"]).exits(0).says(&["published"]);
    assert_eq!(signers(&yard), both[1..]);
    yard.run(&["keys", "revoke", "main"]).exits(0).says(&["revoked main"]);
    yard.run(&["publish"]).exits(0);
    apt_reads(&yard);
    yard.run(&["keys", "revoke", "next"]).exits(2).says(&["is the only key of yard"]);
    // A wrong policy, a key that is damaged, a key with a passphrase.
    let policy = yard.read("state/signer/policy.toml");
    fs::write(yard.path("state/signer/policy.toml"), policy.replace("keys =", "kyes =")).unwrap();
    yard.run(&["publish"]).exits(3).says(&["policy.toml", "unknown field `kyes`", "line"]);
    yard.run(&["keys", "make", "more"]).exits(2).says(&["unknown field `kyes`"]);
    fs::write(yard.path("state/signer/policy.toml"), &policy).unwrap();
    let key = yard.read("state/signer/keys/next.asc");
    fs::write(yard.path("state/signer/keys/next.asc"), &key[..key.len() / 2]).unwrap();
    yard.run(&["publish"]).exits(3).says(&["the key next cannot be used"]);
    fs::write(yard.path("state/signer/keys/next.asc"), &key).unwrap();
    passphrase(&yard);
    let policy = yard.read("state/signer/policy.toml");
    let allowing = policy.replacen("keys = [", "documents = true\nkeys = [", 1);
    fs::write(yard.path("state/signer/policy.toml"), allowing).unwrap();
    let dsc = yard.path("a.dsc");
    fs::write(
        &dsc,
        "Format: 3.0 (quilt)\nSource: only\nVersion: 1\nChecksums-Sha256:\n 0 1 a\nFiles:\n 0 1 a\n",
    )
    .unwrap();
    let signed = yard.run(&["keys", "sign", dsc.to_str().unwrap()]).exits(0).stdout;
    assert!(
        signed.starts_with("-----BEGIN PGP SIGNED MESSAGE-----") && signed.contains("Source: only"),
        "{signed}"
    );
    yard.run(&["keys", "sign", yard.path("kilnyard.toml").to_str().unwrap()])
        .exits(3)
        .says(&["the signer refuses"]);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
}

/// A key with a passphrase signs if a credential has it.
fn passphrase(yard: &Yard) {
    let home = tempfile::tempdir().unwrap();
    let home_path = home.path().display().to_string();
    let gpg = |arguments: &[&str]| {
        run(
            home.path(),
            "gpg",
            &[&["--homedir", &home_path, "--batch", "--pinentry-mode", "loopback"], arguments].concat(),
        )
        .exits(0)
        .stdout
    };
    gpg(&[
        "--passphrase",
        "secret words",
        "--quick-generate-key",
        "Locked <l@example.org>",
        "ed25519",
        "sign",
        "never",
    ]);
    let file = home.path().join("locked.asc");
    fs::write(&file, gpg(&["--passphrase", "secret words", "--armor", "--export-secret-keys"])).unwrap();
    let file = file.to_str().unwrap();
    yard.run(&["keys", "import", file, "--name", "locked"])
        .exits(2)
        .says(&["has a passphrase", "--credential NAME"]);
    yard.run(&["keys", "import", file, "--name", "locked", "--credential", "words"]).exits(0);
    yard.run(&["keys", "rotate", "locked"]).exits(0);
    yard.run(&["publish"]).exits(3).says(&["the credential words is missing"]);
    let with = |words: &str| {
        fs::write(home.path().join("words"), words).unwrap();
        let mut command = yard.command(&["publish"]);
        support::Ended::from(command.env("CREDENTIALS_DIRECTORY", home.path()).output().unwrap())
    };
    with("wrong\n").exits(3).says(&["the passphrase does not open it"]);
    with("secret words\n").exits(0);
    asked(yard);
    assert_eq!(signers(yard).len(), 2);
    yard.run(&["keys", "rotate", "next", "--finish"]).exits(0);
    let _ = Command::new("gpgconf").args(["--homedir", &home_path, "--kill", "all"]).output();
}

/// On a terminal, a person is asked for a passphrase that is missing, and it is not shown.
fn asked(yard: &Yard) {
    let command = yard.command(&["publish"]);
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut typed = child.stdin.take().unwrap();
    // As a person would, once the question is there.
    let answer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        let _ = std::io::Write::write_all(&mut typed, b"secret wordsx\x7f\r");
        std::thread::sleep(std::time::Duration::from_secs(2));
    });
    let ended = child.wait_with_output().unwrap();
    answer.join().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.contains("words (a passphrase or PIN"), "{said}");
    assert!(!said.contains("secret words"), "{said}");
}

/// The process that holds the keys, while a person would look at it.
fn sandbox(shared: &Shared) {
    let yard = shared.yard("signing-sandbox", &[good("only", "")]);
    let program = support::command().get_program().to_owned();
    let mut child = Command::new(program)
        .arg("kilnyard-signer-process")
        .arg(yard.path("state/signer"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = |name: &str| Path::new("/proc").join(child.id().to_string()).join(name);
    // Only root may look: no process of its user can trace it.
    let names = || -> Vec<String> {
        let entries = fs::read_dir(process("root")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let top = yard.folder.components().nth(1).unwrap().as_os_str().to_str().unwrap().to_owned();
    until("its root has nothing but the way to its folder", || names() == [top.as_str()]);
    let open = || -> Vec<String> {
        let entries = fs::read_dir(process("fd")).unwrap();
        entries
            .filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
            .collect()
    };
    // It opens its memory once it is confined.
    until("it waits for questions", || open().iter().any(|path| path.ends_with("/memory.sqlite")));
    let status = fs::read_to_string(process("status")).unwrap();
    let value =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(
        (value("CapEff:"), value("CapPrm:"), value("NoNewPrivs:")),
        ("0".repeat(16), "0".repeat(16), "1".to_owned())
    );
    let network = fs::read_to_string(process("net/dev")).unwrap();
    assert_eq!(network.lines().filter(|line| line.contains(':')).count(), 1, "{network}");
    let open = open();
    let is_own = |path: &&String| path.contains("state/signer/") || path.starts_with("pipe:");
    let foreign: Vec<&String> = open.iter().filter(|path| !is_own(path) && !path.contains("/dev/")).collect();
    assert!(foreign.len() <= 1, "{open:?}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// SoftHSM, whose module and tokens the sandbox has to show.
fn token(shared: &Shared) {
    let yard = shared.yard("signing-token", &[good("only", "")]);
    let folder = shared.path("token");
    fs::create_dir_all(folder.join("tokens")).unwrap();
    let conf = folder.join("softhsm2.conf");
    let text = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        folder.join("tokens").display()
    );
    fs::write(&conf, text).unwrap();
    let mut making = Command::new("softhsm2-util");
    making.env("SOFTHSM2_CONF", &conf).args([
        "--init-token",
        "--free",
        "--label",
        "yard",
        "--so-pin",
        "0000",
        "--pin",
        "1234",
    ]);
    assert!(making.output().unwrap().status.success());
    fs::write(folder.join("pin"), "1234\n").unwrap();
    let (pin, folder_text) = (folder.join("pin").display().to_string(), folder.display().to_string());
    let variable = format!("SOFTHSM2_CONF={}", conf.display());
    let make = |name: &str, pin: &str, module: &str| {
        let mut command = yard.command(&[
            "keys", "make", name, "--pkcs11", module, "--token", "yard", "--label", "signing", "--pin", "pin",
        ]);
        command.args(["--pin-file", pin, "--module-path", &folder_text, "--module-variable", &variable]);
        support::Ended::from(command.env("SOFTHSM2_CONF", &conf).output().unwrap())
    };
    make("vault", &pin, "/nonexistent.so").exits(3).says(&["the module /nonexistent.so cannot be used"]);
    fs::write(folder.join("wrong"), "9999").unwrap();
    make("vault", folder.join("wrong").to_str().unwrap(), MODULE)
        .exits(3)
        .says(&["the token yard refuses the PIN"]);
    make("vault", &pin, MODULE).exits(0).says(&["made the key vault in the token yard", "keys rotate vault"]);
    make("vault", &pin, MODULE).exits(2).says(&["there is a key vault"]);
    yard.run(&["keys", "rotate", "vault"]).exits(0);
    let with = |arguments: &[&str]| {
        let mut command = yard.command(arguments);
        support::Ended::from(command.env("CREDENTIALS_DIRECTORY", &folder).output().unwrap())
    };
    yard.run(&["publish"]).exits(3).says(&["the credential pin is missing"]);
    with(&["build"]).exits(0);
    assert_eq!(signers(&yard).len(), 2);
    with(&["keys"]).exits(0).says(&["pkcs11", "file"]);
    yard.run(&["keys", "rotate", "vault", "--finish"]).exits(0);
    with(&["publish"]).exits(0).says(&["published"]);
    apt_reads(&yard);
    assert_eq!(signers(&yard).len(), 1);
    // Pulled out.
    fs::rename(folder.join("tokens"), folder.join("away")).unwrap();
    fs::create_dir(folder.join("tokens")).unwrap();
    with(&["publish"]).exits(3).says(&["the key vault cannot be used: the token yard is not there"]);
}

/// The module of SoftHSM.
pub const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// A signer in a mount namespace without the yard.
fn start_signer(folder: &Path, yard: &Yard, arguments: &[&str]) -> Child {
    let hidden = r#"mount -t tmpfs none "$1"; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-euc", hidden, "sh"])
        .arg(&yard.folder);
    command.arg(support::command().get_program()).arg("signer").arg("--folder").arg(folder.join("vault"));
    command.args(arguments).current_dir("/").stdout(Stdio::null());
    command.stderr(fs::File::create(folder.join("log")).unwrap()).spawn().unwrap()
}

fn elsewhere(shared: &Shared) {
    let yard = shared.yard("signing-elsewhere", &[good("one", ""), good("two", "")]);
    fs::remove_dir_all(yard.path("state/signer")).unwrap();
    let text = yard.read("kilnyard.toml");
    yard.configure(&format!("{text}\n[signer]\nname = \"vault\"\n"));
    // Without a server, and without a signer, builds succeed and nothing is published.
    yard.run(&["build", "--no-scan"]).exits(0).says(&[
        "2 built",
        "not published yet: the signer is away",
        "kilnyard serve",
    ]);
    assert!(!yard.path("repository/dists/bookworm").exists());
    yard.run(&["status"]).exits(0).says(&["waits: the publication, since", "for the signer, which is away"]);
    let served = Served::start(&yard);
    yard.run(&["publish"]).exits(3).says(&["the signer is away", "there is no worker vault"]);
    let folder = shared.path("signer");
    fs::create_dir_all(&folder).unwrap();
    let token = folder.join("token");
    fs::write(&token, yard.run(&["workers", "token"]).exits(0).stdout).unwrap();
    let join = ["--join", &served.url, "--token-file", token.to_str().unwrap(), "--name", "vault"];
    let mut signer = start_signer(&folder, &yard, &join);
    let said = || fs::read_to_string(folder.join("log")).unwrap();
    until("the signer is connected", || connected(&yard).contains("vault"));
    // The server notices, and publishes.
    until("it is published", || yard.path("repository/dists/bookworm/InRelease").exists());
    until("the note is gone", || !yard.path("state/unpublished.json").exists());
    apt_reads(&yard);
    assert!(!yard.path("state/signer").exists() && said().contains("waits for publications"), "{}", said());
    // It checks what it is asked: the machine of the yard signed its results, too.
    let vault = folder.join("vault/signer");
    let account = fs::read_to_string(vault.join("account")).unwrap();
    assert!(account.contains("\"name\":\"one\""), "{account}");
    assert_eq!(yard.run(&["doctor"]).stdout.matches("signer: signs with").count(), 1);
    yard.run(&["keys"]).exits(0).says(&["does not expire"]);
    yard.run(&["keys", "audit"]).exits(2).says(&["the account is on the signer's machine"]);
    yard.run(&["keys", "audit", "--signer", vault.to_str().unwrap()]).exits(0).says(&["0 findings"]);
    // A run does not wait for it as for a worker, and it gets no builds.
    yard.run(&["build", "--no-scan", "--force", "one"]).exits(0).says(&["1 unchanged"]);
    // Away again: a killed one, in the middle of nothing.
    signer.kill().unwrap();
    signer.wait().unwrap();
    let mut again = start_signer(&folder, &yard, &[]);
    until("the signer is connected again", || said().contains("waits for publications"));
    until("it publishes", || yard.run(&["publish"]).code == Some(0));
    let listed = yard.run(&["keys", "--signer", vault.to_str().unwrap(), "--json"]).exits(0).json();
    assert_eq!(signers(&yard), [listed["keys"][0]["fingerprint"].as_str().unwrap()]);
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(again.id() as i32, libc::SIGINT) };
    assert!(again.wait().unwrap().success());
}
