//! Repositories of git for trials.

use std::path::Path;
use std::process::Command;

/// Runs git with nothing of the user's configuration.
pub fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_COMMITTER_DATE", "2024-01-02T03:04:05Z")
        .env("GIT_AUTHOR_DATE", "2024-01-02T03:04:05Z")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org"])
        .args(["-c", "protocol.allow=always", "-c", "commit.gpgsign=false"])
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
