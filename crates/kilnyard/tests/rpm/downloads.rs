//! Sources that are downloaded, by the lists of dist-git.

use crate::builds::{Yard, pool, real};
use crate::support::server::{Manner, Server};
use crate::support::trials::{Case, case};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// A package of one file, which is a downloaded source.
fn spec(name: &str, source: &str) -> String {
    format!(
        "Name: {name}\nVersion: 1.0\nRelease: 1%{{?dist}}\nSummary: x\nLicense: MIT\nBuildArch: noarch\nURL: http://127.0.0.1\n\
         Source0: {source}\n%description\nx\n%prep\n%build\n%install\n\
         install -D -m644 %{{SOURCE0}} %{{buildroot}}/usr/share/{name}/data\n%files\n/usr/share/{name}\n"
    )
}

fn sha512(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let said = Command::new("sha512sum").arg(file.path()).output().unwrap();
    String::from_utf8(said.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn files_with_digests_are_downloaded() {
    let yard = Yard::new("rpm-downloads");
    let data = |name: &str| format!("data of {name}\n").repeat(10_000).into_bytes();
    let digest = |name: &str| sha512(&data(name));
    let cached = format!("/cache/looked/looked-1.0.tar/sha512/{}/looked-1.0.tar", digest("looked"));
    let paths = [
        ("direct", "/direct-1.0.tar"),
        ("late", "/late-1.0.tar"),
        ("renamed", "/get?file=1"),
        ("wrong", "/wrong-1.0.tar"),
        ("old", "/old-1.0.tar"),
        ("looked", &cached),
    ];
    let files = paths.map(|(name, path)| (path.to_owned(), data(name)));
    let server = Server::start(BTreeMap::from(files));
    let url = server.url();
    let put = |name: &str, source: &str, list: Option<String>| {
        yard.write(name, &spec(name, source));
        let at = yard.specs().join(name).join("sources");
        if let Some(list) = list {
            fs::write(at, list).unwrap();
        }
    };
    let listed = |name: &str, file: &str| Some(format!("SHA512 ({file}) = {}\n", digest(name)));
    put("direct", &format!("{url}/%{{name}}-%{{version}}.tar"), listed("direct", "direct-1.0.tar"));
    put("renamed", &format!("{url}/get?file=1#/renamed.tar"), listed("renamed", "renamed.tar"));
    put("looked", "looked-1.0.tar", listed("looked", "looked-1.0.tar"));
    put("late", &format!("{url}/late-1.0.tar"), listed("late", "late-1.0.tar"));
    let other = format!("SHA512 (wrong-1.0.tar) = {}\n", "0".repeat(128));
    put("wrong", &format!("{url}/wrong-1.0.tar"), Some(other));
    put(
        "old",
        &format!("{url}/old-1.0.tar"),
        Some("d41d8cd98f00b204e9800998ecf8427e  old-1.0.tar\n".to_owned()),
    );
    put("unlisted", &format!("{url}/old-1.0.tar\nSource1: {url}/second.tar"), None);
    put(
        "own-files",
        "file:///etc/passwd",
        Some(format!("SHA512 (passwd) = {}\n", sha512(&fs::read("/etc/passwd").unwrap()))),
    );
    let configuration = yard.folder.path().join("yard/kilnyard.toml");
    let text = fs::read_to_string(&configuration).unwrap();
    let lookaside =
        format!("lookaside = \"{url}/cache/{{name}}/{{file}}/{{type}}/{{digest}}/{{file}}\"\n# macros");
    fs::write(&configuration, text.replacen("# macros", &lookaside, 1)).unwrap();
    // A server that ends in the middle: nothing incomplete is kept, and the next scan tries again.
    server.behave("/late-1.0.tar", Some(Manner::Truncate(1000)));
    yard.run(&["build"]).says(&[
        "fetching direct-1.0.tar of direct",
        "wrong",
        "its SHA512 is ",
        "old-1.0.tar is not downloaded: MD5 is no digest that protects it",
        "old-1.0.tar is not next to unlisted.spec, and no file `sources` has its digest",
        "second.tar is not next to unlisted.spec",
        "passwd",
        "3 built",
    ]);
    assert!(server.answers("/old-1.0.tar").is_empty(), "nothing without a strong digest is asked for");
    server.behave("/late-1.0.tar", None);
    // A process that was killed left a part. What stays missing until its source changes is not asked about again.
    let left = yard.folder.path().join("yard/index/0123.download");
    fs::write(&left, "part").unwrap();
    let scanned = yard.run(&["scan"]).exits(0);
    scanned.says(&["asking 3 sources about themselves", "fetching late-1.0.tar of late"]);
    assert!(!left.exists());
    yard.run(&["build"]).says(&["built late 1.0-1.kt1.bk1", "3 up-to-date"]);
    let built = pool(&yard.repository()).join("direct-1.0-1.kt1.bk1.src.rpm");
    let said = Command::new("rpm").args(["-qpl", "--nosignature"]).arg(built).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "direct-1.0.tar\ndirect.spec\n");
    // What was fetched once is not fetched again; a new digest is noticed.
    let before = server.answers("/direct-1.0.tar");
    fs::write(yard.specs().join("direct/direct.spec"), spec("direct", &format!("{url}/direct-1.0.tar")))
        .unwrap();
    yard.run(&["scan"]).exits(0);
    assert_eq!(server.answers("/direct-1.0.tar"), before);
    server.change(&cached, |bytes| bytes.push(b'x'));
    fs::write(
        yard.specs().join("looked/sources"),
        format!("SHA512 (looked-1.0.tar) = {}\n", sha512(&[&data("looked")[..], b"x"].concat())),
    )
    .unwrap();
    yard.run(&["scan"]).exits(0);
    // Only the address of the old digest has the new file.
    yard.run(&["plan"]).exits(0).says(&["looked-1.0.tar"]);
    let leftovers = fs::read_dir(yard.folder.path().join("yard/index")).unwrap().flatten();
    assert!(!leftovers.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(".download")));
    // A file that the yard lost is downloaded again when it is built.
    fs::remove_dir_all(yard.folder.path().join("yard/distfiles")).unwrap();
    yard.run(&["build", "--force", "renamed"]).exits(0).says(&["1 built"]);
    assert_eq!(server.answers("/get?file=1"), [200, 200]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    vec![real(case("files_with_digests_are_downloaded", files_with_digests_are_downloaded), has_tools)]
}
