//! Builds from an archive with missing files or hostile file names.

use crate::fixtures::{Packages, Shared, Trial, said};
use crate::support::Yard;
use crate::support::archive::{Archive, write_keyring};
use crate::support::server::Server;

pub const CASES: &[Trial] = &[
    ("files_missing_from_a_mirror_are_one_cause", files_missing_from_a_mirror),
    ("a_hostile_index_builds_nothing_and_is_printed_safely", a_hostile_index),
];

/// A package that the base root already has, so that a build needs nothing more.
const PACKAGES: &str = "Package: build-essential\nVersion: 12.9\nArchitecture: amd64\n";

fn stanza(name: &str, needs: &str, more: &str) -> String {
    let hash = "a".repeat(64);
    format!(
        "Package: {name}\nVersion: 1-1\nArchitecture: any\n{needs}{more}Checksums-Sha256:\n {hash} 10 {name}_1-1.dsc\n\n"
    )
}

/// A yard of packages from our own archive, with the shared base root.
fn yard(shared: &Shared, name: &str, archive: &Archive, names: &[&str]) -> (Yard, Server) {
    let yard = shared.yard(name, &[]);
    let files = archive.files().into_iter();
    let files = files.map(|(path, bytes)| (path.replace("/dists/tiny/", "/dists/bookworm/"), bytes));
    let server = Server::start(files.collect());
    let keyring = yard.path("archive.gpg");
    write_keyring(&keyring);
    let keyring = format!("keyring = \"{}\"", keyring.display());
    let names: String = names.iter().map(|name| format!("  \"{name}\",\n")).collect();
    let config: String = yard
        .read("kilnyard.toml")
        .lines()
        .map(|line| match line {
            line if line.starts_with("mirror = ") => format!("mirror = \"{}\"\n{keyring}\n", server.url()),
            line => format!("{line}\n"),
        })
        .collect();
    yard.configure(&config.replace("packages = [\n]", &format!("packages = [\n{names}]")));
    yard.run(&["clean", "--index"]).exits(0);
    yard.run(&["scan"]).exits(0);
    (yard, server)
}

fn files_missing_from_a_mirror(shared: &Shared) {
    let names: Vec<String> = (0..12).map(|number| format!("absent{number:02}")).collect();
    let sources = names.iter().map(|name| stanza(name, "", "Directory: pool\n")).collect();
    let codename = "bookworm".to_owned();
    let archive = Archive { codename, packages: PACKAGES.to_owned(), sources, ..Archive::default() };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (yard, _server) = yard(shared, "absent", &archive, &names);
    let ended = yard.build().exits(1);
    let cause = "failed: 12 packages: the server returned status 404: absent";
    let ended =
        ended.says(&[cause, "and 2 more", "snapshot", "a second address", "are only counted, and listed"]);
    assert_eq!(ended.stderr.matches("] FAILED absent").count(), 3, "{}", ended.stderr);
    let status = yard.run(&["status"]).exits(0).says(&[cause, "snapshot"]);
    assert_eq!(status.stdout.matches("\nfailed: ").count(), 1, "{}", status.stdout);
    yard.run(&["why", "absent11"]).exits(0).says(&["status 404"]);
}

fn a_hostile_index(shared: &Shared) {
    let escape = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\0";
    let tool = |name: &str, path: &str| {
        let hash = "b".repeat(64);
        format!(
            "\nPackage: {name}\nVersion: 1\nArchitecture: amd64\nFilename: {path}\nSize: 4\nSHA256: {hash}\n"
        )
    };
    let packages = [
        PACKAGES.to_owned(),
        tool("tool-escape", &format!("pool/tool{escape}.deb")),
        tool("tool-outside", "../../etc/passwd"),
        tool("tool-option", "pool/-oops.deb"),
    ];
    let sources = [
        stanza("escape", "Build-Depends: tool-escape\n", "Directory: pool\n"),
        stanza("outside", "Build-Depends: tool-outside\n", "Directory: pool\n"),
        stanza("option", "Build-Depends: tool-option\n", "Directory: pool\n"),
        stanza("folder", "", &format!("Directory: pool/{escape}\n")),
    ];
    let codename = "bookworm".to_owned();
    let archive =
        Archive { codename, packages: packages.concat(), sources: sources.concat(), ..Archive::default() };
    let names = ["escape", "outside", "option", "folder"];
    let (yard, _server) = yard(shared, "hostile", &archive, &names);
    let built =
        yard.build().exits(1).says(&["no valid Filename for tool-escape", "no valid Directory for folder"]);
    let asked = [&["status"][..], &["why", "escape"], &["why", "folder"], &["plan"], &["history"]];
    for ended in asked.iter().map(|words| yard.run(words).exits(0)).chain([built]) {
        let bad = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!said(&ended).contains(bad), "{:?}", said(&ended));
    }
    assert_eq!(yard.names("distfiles").iter().filter(|name| name.contains("tool")).count(), 0);
}
