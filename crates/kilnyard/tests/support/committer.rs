//! A person who signs commits of git with gpg.

use super::{Ended, Yard};
use kilnyard_sign::YardKey;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Committer {
    folder: PathBuf,
}

impl Committer {
    /// A new key, below this folder.
    pub fn new(scratch: &Path) -> Committer {
        let folder = scratch.join("committer");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let key = YardKey::generate("Committer <committer@example.org>").unwrap();
        fs::write(folder.join("key.asc"), key.to_armored().unwrap().as_bytes()).unwrap();
        fs::write(folder.join("public.asc"), key.public_armored().unwrap()).unwrap();
        let program = format!("#!/bin/sh\nexec gpg --homedir {} --batch \"$@\"\n", folder.display());
        fs::write(folder.join("gpg"), program).unwrap();
        fs::set_permissions(folder.join("gpg"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut import = Command::new(folder.join("gpg"));
        Ended::from(import.arg("--import").arg(folder.join("key.asc")).output().unwrap()).exits(0);
        Committer { folder }
    }

    /// Commits what is added in a repository.
    pub fn commit(&self, repository: &Path, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(repository).args([
            "-c",
            "user.name=A",
            "-c",
            "user.email=committer@example.org",
        ]);
        command.arg("-c").arg(format!("gpg.program={}", self.folder.join("gpg").display()));
        Ended::from(command.args(["commit", "--quiet"]).args(arguments).output().unwrap()).exits(0);
    }

    /// Has the signer of a yard take sources from this person's commits alone.
    pub fn trusted_by(&self, yard: &Yard) {
        fs::copy(self.folder.join("public.asc"), yard.path("state/signer/own.asc")).unwrap();
        let policy = yard.read("state/signer/policy.toml");
        let policy = policy.replace("keys = [\"main\"]", "keys = [\"main\"]\ntrees = [\"own\"]");
        let table = "\n[tree.own]\nkeyring = \"own.asc\"\n";
        fs::write(yard.path("state/signer/policy.toml"), policy + table).unwrap();
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        let mut end = Command::new("gpgconf");
        let _ = end.arg("--homedir").arg(&self.folder).args(["--kill", "all"]).output();
    }
}
