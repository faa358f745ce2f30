//! Test fixtures: packages, a key, a repository, and a private apt client.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kilnyard_publish::{
    BinaryEntry, BinaryIndex, KEYRING_FILE, Publication, Published, ReleaseFacts, Signatures, SignedText,
    Signer, SignerError, SourceEntry, SourceFile, ToSign, plan,
};
use sha2::{Digest, Sha256};

pub const ARCHITECTURE: &str = "amd64";
pub const CODENAME: &str = "kiln";
pub const DATE_SECONDS: i64 = 1_700_000_000;

/// Whether the test has to be skipped for lack of a tool. Prints the reason.
pub fn lacks(test: &str, tools: &[&str]) -> bool {
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {tool} is not installed");
            return true;
        }
    }
    false
}

pub const APT_TOOLS: [&str; 3] = ["apt-get", "dpkg-deb", "gpg"];

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    output
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn facts() -> ReleaseFacts {
    ReleaseFacts {
        origin: "Yard".into(),
        label: "Yard".into(),
        suite: "stable".into(),
        codename: CODENAME.into(),
        description: "Packages of the yard".into(),
        architectures: vec![ARCHITECTURE.into()],
        components: vec!["main".into()],
        date_seconds: DATE_SECONDS,
        valid_until_seconds: None,
    }
}

/// Signs with a temporary GnuPG key.
pub struct GnupgSigner {
    pub home: PathBuf,
}

impl GnupgSigner {
    pub fn generate(home: &Path) -> Self {
        fs::create_dir_all(home).unwrap();
        fs::set_permissions(home, fs::Permissions::from_mode(0o700)).unwrap();
        let signer = Self { home: home.to_owned() };
        run(signer.gpg().args([
            "--passphrase",
            "",
            "--quick-generate-key",
            "yard@example.org",
            "ed25519",
            "sign",
            "never",
        ]));
        signer
    }

    fn gpg(&self) -> Command {
        let mut command = Command::new("gpg");
        command.env("GNUPGHOME", &self.home).args([
            "--batch",
            "--quiet",
            "--no-tty",
            "--pinentry-mode",
            "loopback",
        ]);
        command
    }

    fn output(&self, arguments: &[&str], input: &str) -> Result<String, SignerError> {
        // In the GnuPG home, so that a killed test child leaves no files elsewhere.
        let file = tempfile::NamedTempFile::new_in(&self.home)?;
        fs::write(file.path(), input)?;
        let output = self.gpg().args(arguments).arg("--output").arg("-").arg(file.path()).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout)?),
            false => Err(text(&output).into()),
        }
    }
}

impl Signer for GnupgSigner {
    fn sign(&self, to_sign: &ToSign<'_>) -> Result<Signatures, SignerError> {
        let detached = |text| self.output(&["--armor", "--detach-sign"], text);
        match to_sign.text {
            SignedText::Release(text) => {
                let clear = Some(self.output(&["--clearsign"], text)?);
                Ok(Signatures { clear, detached: detached(text)? })
            }
            SignedText::Checksums(text) | SignedText::Lists(text) => {
                Ok(Signatures { clear: None, detached: detached(text)? })
            }
        }
    }

    fn public_armored(&self) -> Result<String, SignerError> {
        let output = self.gpg().args(["--armor", "--export"]).output()?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for GnupgSigner {
    fn drop(&mut self) {
        // Stop the agent that gpg started for this home.
        let _ = Command::new("gpgconf").env("GNUPGHOME", &self.home).args(["--kill", "all"]).output();
    }
}

/// A signer whose signatures are not verified, for tests without a client.
pub struct PlainSigner;

pub const PLAIN_KEY: &str = "a key\n";

impl Signer for PlainSigner {
    fn sign(&self, to_sign: &ToSign<'_>) -> Result<Signatures, SignerError> {
        let (clear, text) = match to_sign.text {
            SignedText::Release(text) => (Some(format!("signed\n{text}")), text),
            SignedText::Checksums(text) | SignedText::Lists(text) => (None, text),
        };
        Ok(Signatures { clear, detached: format!("signature of {}\n", text.len()) })
    }

    fn public_armored(&self) -> Result<String, SignerError> {
        Ok(PLAIN_KEY.into())
    }
}

/// A repository, and a key and packages to publish.
pub struct Yard {
    /// Dropped first: its agent is found through the directory.
    pub signer: GnupgSigner,
    pub directory: tempfile::TempDir,
}

impl Yard {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let signer = GnupgSigner::generate(&directory.path().join("gnupg"));
        Self { directory, signer }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn repository(&self) -> PathBuf {
        self.path("repository")
    }

    pub fn plan(&self, repository: &Path, binaries: &[BinaryEntry], sources: &[SourceEntry]) -> Publication {
        plan(repository, &facts(), binaries, sources, &self.signer.public_armored().unwrap()).unwrap()
    }

    pub fn publish(&self, binaries: &[BinaryEntry], sources: &[SourceEntry]) -> Published {
        self.plan(&self.repository(), binaries, sources).execute(&self.signer).unwrap()
    }

    pub fn deb(&self, name: &str, version: &str, architecture: &str) -> BinaryEntry {
        build_deb(&self.path("files"), name, version, architecture)
    }
}

/// Builds a small package with `dpkg-deb`.
pub fn build_deb(files: &Path, name: &str, version: &str, architecture: &str) -> BinaryEntry {
    let file_name = format!("{name}_{version}_{architecture}.deb");
    let file = files.join(&file_name);
    if !file.exists() {
        let tree = files.join(format!("{file_name}.tree"));
        write(
            &tree.join("DEBIAN/control"),
            format!(
                "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
                 Maintainer: A <a@example.org>\nDescription: a test\n With a longer text.\n"
            )
            .as_bytes(),
        );
        write(&tree.join(format!("usr/share/{name}/version")), version.as_bytes());
        run(Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&tree).arg(&file));
    }
    let control = run(Command::new("dpkg-deb").arg("--field").arg(&file));
    entry(file, String::from_utf8(control.stdout).unwrap(), architecture)
}

/// Makes an entry for a file with arbitrary content.
pub fn entry(file: PathBuf, stanza: String, architecture: &str) -> BinaryEntry {
    let content = fs::read(&file).unwrap();
    BinaryEntry {
        stanza,
        pool_path: format!("pool/main/{}", file.file_name().unwrap().to_str().unwrap()),
        file,
        sha256: sha256(&content),
        size_bytes: content.len() as u64,
        architecture: architecture.into(),
        component: "main".into(),
        index: BinaryIndex::Machine,
    }
}

/// A package with a valid stanza but arbitrary content, for tests without a client.
pub fn plain_entry(files: &Path, name: &str, version: &str, content: &[u8]) -> BinaryEntry {
    let file = files.join(format!("{name}_{version}_{ARCHITECTURE}.deb"));
    write(&file, content);
    let stanza = format!("Package: {name}\nVersion: {version}\nArchitecture: {ARCHITECTURE}\n");
    entry(file, stanza, ARCHITECTURE)
}

/// Builds a small native source package with `dpkg-source`.
pub fn build_source(files: &Path, name: &str, version: &str) -> SourceEntry {
    let tree = files.join(format!("{name}-{version}"));
    write(
        &tree.join("debian/control"),
        format!(
            "Source: {name}\nMaintainer: A <a@example.org>\nStandards-Version: 4.6.0\n\n\
             Package: {name}\nArchitecture: all\nDescription: a test\n With a longer text.\n"
        )
        .as_bytes(),
    );
    let date = "Tue, 14 Nov 2023 22:13:20 +0000";
    write(
        &tree.join("debian/changelog"),
        format!("{name} ({version}) unstable; urgency=low\n\n  * New.\n\n -- A <a@example.org>  {date}\n")
            .as_bytes(),
    );
    write(&tree.join("debian/rules"), b"#!/usr/bin/make -f\n");
    write(&tree.join("debian/source/format"), b"3.0 (native)\n");
    run(Command::new("dpkg-source").arg("--build").arg(&tree).current_dir(files));

    let directory = format!("pool/main/{name}");
    let mut source_files = Vec::new();
    let mut checksums = String::new();
    for file_name in [format!("{name}_{version}.dsc"), format!("{name}_{version}.tar.xz")] {
        let file = files.join(&file_name);
        let content = fs::read(&file).unwrap();
        checksums += &format!("\n {} {} {file_name}", sha256(&content), content.len());
        source_files.push(SourceFile {
            pool_path: format!("{directory}/{file_name}"),
            file,
            size_bytes: content.len() as u64,
            sha256: sha256(&content),
        });
    }
    let stanza = format!(
        "Package: {name}\nBinary: {name}\nVersion: {version}\nMaintainer: A <a@example.org>\nArchitecture: all\n\
         Format: 3.0 (native)\nDirectory: {directory}\nChecksums-Sha256:{checksums}\n"
    );
    SourceEntry { stanza, component: "main".into(), files: source_files }
}

/// An apt client with its own state, caches and configuration.
pub struct Client {
    pub directory: tempfile::TempDir,
}

impl Client {
    /// `location` is the URI of the repository. The key is copied from the repository's directory.
    pub fn new(location: &str, repository: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in
            ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "work"]
        {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["status", "etc/preferences"] {
            fs::write(root.join(name), "").unwrap();
        }
        let keyring = root.join("yard.asc");
        fs::copy(repository.join(KEYRING_FILE), &keyring).unwrap();
        let options = format!("[arch={ARCHITECTURE} signed-by={}]", keyring.display());
        let sources = format!(
            "deb {options} {location} {CODENAME} main\ndeb-src {options} {location} {CODENAME} main\n"
        );
        fs::write(root.join("etc/sources.list"), sources).unwrap();
        let root = root.display();
        let configuration = format!(
            "Dir::State \"{root}/state\";\nDir::State::status \"{root}/status\";\nDir::Cache \"{root}/cache\";\n\
             Dir::Etc \"{root}/etc\";\nAPT::Sandbox::User \"root\";\nAPT::Architecture \"{ARCHITECTURE}\";\n\
             APT::Architectures {{ \"{ARCHITECTURE}\"; }};\nAcquire::http::Proxy \"DIRECT\";\n\
             Acquire::Retries \"0\";\nAPT::Update::Error-Mode \"any\";\n"
        );
        fs::write(directory.path().join("apt.conf"), configuration).unwrap();
        Self { directory }
    }

    pub fn of_directory(repository: &Path) -> Self {
        Self::new(&format!("file:{}", repository.display()), repository)
    }

    pub fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.work())
            .env("APT_CONFIG", self.directory.path().join("apt.conf"))
            .env("LC_ALL", "C");
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }

    pub fn get(&self, arguments: &[&str]) -> Output {
        self.command("apt-get").args(arguments).output().unwrap()
    }

    /// Runs `apt-get update`. Any warning or error fails the test.
    pub fn update(&self) {
        let output = self.get(&["update"]);
        let said = text(&output);
        let is_clean = !said.lines().any(|line| line.starts_with("W:") || line.starts_with("E:"));
        assert!(output.status.success() && is_clean, "{said}");
    }

    /// The version that apt would install.
    pub fn candidate(&self, package: &str) -> Option<String> {
        let said = text(&run(self.command("apt-cache").args(["policy", package])));
        let version = said.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
        (version != "(none)").then(|| version.to_owned())
    }
}

/// Returns every file below `directory` with its checksum, and every link with its target.
pub fn snapshot(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let value = if metadata.is_dir() {
                pending.push(path);
                "directory".to_owned()
            } else if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                sha256(&fs::read(&path).unwrap())
            };
            found.insert(name, value);
        }
    }
    found
}

/// Like [`snapshot`], without the signatures, which differ each time the same text is signed.
pub fn unsigned_snapshot(directory: &Path) -> BTreeMap<String, String> {
    let mut found = snapshot(directory);
    found.retain(|name, _| !name.ends_with("/InRelease") && !name.ends_with("/Release.gpg"));
    found
}
