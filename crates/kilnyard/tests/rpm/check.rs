//! Repositories of real RPM packages, made by rpmbuild and createrepo_c.

use crate::support::trials::{Case, case};
use crate::support::{folder, kilnyard};
use kilnyard_sign::YardKey;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A source with a package that installs, one that needs what is not there, and one that conflicts with what it needs.
const SPEC: &str = "\
Name: hello
Version: 1.0~rc1
Release: 1
Summary: Hello
License: MIT
BuildArch: noarch
BuildRequires: (nothing-provides-this or hello-data)
Provides: greeter = 2
%description
Hello.
%package data
Summary: Data
Requires: (hello >= 1.0~rc1 if greeter)
Requires: /usr/share/hello/deep/file
%description data
Data.
%package broken
Summary: Broken
Requires: (nothing-provides-this or nor-this)
%description broken
Broken.
%package torn
Summary: Torn
Requires: hello-data
Conflicts: greeter < 3
%description torn
Torn.
%prep
%build
%install
mkdir -p %{buildroot}/usr/share/hello/deep %{buildroot}/etc
echo hello > %{buildroot}/usr/share/hello/deep/file
echo data > %{buildroot}/etc/hello-data
%files
/usr/share/hello
%files data
/etc/hello-data
%files broken
%files torn
";

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Builds the source, and makes a repository of all packages.
fn repository(at: &Path) {
    let work = at.with_extension("work");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(at).unwrap();
    fs::write(work.join("hello.spec"), SPEC).unwrap();
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-ba", "--quiet", "--nodeps", "--define"]).arg(format!("_topdir {}", work.display()));
    run(rpmbuild.arg(work.join("hello.spec")).env("HOME", &work));
    for made in ["RPMS/noarch", "SRPMS"] {
        for entry in fs::read_dir(work.join(made)).unwrap().flatten() {
            fs::copy(entry.path(), at.join(entry.file_name())).unwrap();
        }
    }
    run(Command::new("createrepo_c").arg("-q").arg(at));
}

fn a_repository_is_checked() {
    let folder = folder("rpm-check");
    let (repository_at, yard) = (folder.path().join("repo"), folder.path().join("yard"));
    repository(&repository_at);
    let (repo, yard) = (repository_at.to_str().unwrap(), yard.to_str().unwrap());
    let init = kilnyard(&["--yard", yard, "init", "rpm", "--release", "kt1", "--repo", repo]).exits(0);
    assert!(init.stderr.ends_with(" check\n"), "{}", init.stderr);
    let checked = kilnyard(&["--yard", yard, "check"]).exits(0);
    let expected = "\
hello-broken 1.0~rc1-1 (noarch)
  hello-broken 1.0~rc1-1 needs (nothing-provides-this or nor-this)
    nothing-provides-this is provided by no package
    nor-this is provided by no package
hello-torn 1.0~rc1-1 (noarch)
";
    assert!(checked.stdout.starts_with(expected), "{}", checked.stdout);
    assert!(
        checked.stderr.contains("4 packages and 1 source checked; 2 cannot be installed or built"),
        "{}",
        checked.stderr
    );
    let json = kilnyard(&["--yard", yard, "check", "--json"]).exits(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json["checked"].as_u64(), json["broken"].as_array().map(Vec::len)), (Some(5), Some(2)));
    assert!(
        json["broken"][0]["location"].as_str().unwrap().ends_with("hello-broken-1.0~rc1-1.noarch.rpm"),
        "{json}"
    );
    kilnyard(&["--yard", yard, "scan"]).exits(0).says(&["nothing new"]);
    // Where several repositories have a package, it is said which is meant.
    let (copy, both) = (folder.path().join("copy"), folder.path().join("both"));
    run(Command::new("cp").arg("-r").args([&repository_at, &copy]));
    let (copy, both) = (copy.to_str().unwrap(), both.to_str().unwrap());
    kilnyard(&["--yard", both, "init", "rpm", "--release", "kt1", "--repo", repo, "--repo", copy]).exits(0);
    let checked = kilnyard(&["--yard", both, "check"]).exits(0);
    for repository in [repo, copy] {
        let line = format!("hello-broken 1.0~rc1-1 (noarch) of file://{repository}\n");
        assert_eq!(checked.stdout.matches(&line).count(), 1, "{}", checked.stdout);
    }
    kilnyard(&["--yard", yard, "check", "--dependent"]).exits(2).says(&["--dependent is for Debian"]);
    // A file of the index that was changed on the way is noticed.
    let repomd = fs::read_to_string(repository_at.join("repodata/repomd.xml")).unwrap();
    let primary = fs::read_dir(repository_at.join("repodata")).unwrap().flatten();
    let primary =
        primary.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("primary.xml"));
    let primary = primary.unwrap();
    let mut bytes = fs::read(&primary).unwrap();
    bytes[20] ^= 1;
    fs::write(&primary, bytes).unwrap();
    fs::write(repository_at.join("repodata/repomd.xml"), repomd + "<!-- new -->").unwrap();
    fs::remove_dir_all(Path::new(yard).join("index")).unwrap();
    kilnyard(&["--yard", yard, "scan"]).exits(3).says(&["primary.xml"]);
}

fn a_signature_is_required_and_verified() {
    let folder = folder("rpm-signed");
    let (at, yard) = (folder.path().join("repo"), folder.path().join("yard"));
    repository(&at);
    let (key, other) = (
        YardKey::generate("One <one@localhost>").unwrap(),
        YardKey::generate("Other <other@localhost>").unwrap(),
    );
    let path = folder.path().join("key.asc");
    fs::write(&path, key.public_armored().unwrap()).unwrap();
    let (repo, yard, key_path) = (at.to_str().unwrap(), yard.to_str().unwrap(), path.to_str().unwrap());
    kilnyard(&["--yard", yard, "init", "rpm", "--repo", repo, "--key", key_path]).exits(0);
    kilnyard(&["--yard", yard, "scan"]).exits(3).says(&["fetch the signature of repomd.xml"]);
    let repomd = fs::read(at.join("repodata/repomd.xml")).unwrap();
    let sign = |key: &YardKey| {
        fs::write(at.join("repodata/repomd.xml.asc"), key.sign_detached(&repomd).unwrap()).unwrap()
    };
    sign(&other);
    kilnyard(&["--yard", yard, "scan"]).exits(3).says(&["verify repomd.xml"]);
    sign(&key);
    kilnyard(&["--yard", yard, "scan"]).exits(0).says(&["a new index"]);
    fs::write(at.join("repodata/repomd.xml"), [&repomd[..], b" "].concat()).unwrap();
    kilnyard(&["--yard", yard, "scan"]).exits(3).says(&["verify repomd.xml"]);
}

fn what_is_not_supported_is_named() {
    let folder = folder("rpm-refused");
    let yard = folder.path().join("yard");
    let yard = yard.to_str().unwrap();
    kilnyard(&["--yard", yard, "init", "rpm", "--repo", "http://repo.invalid/os"])
        .exits(2)
        .says(&["nothing protects"]);
    let at = folder.path().join("repo");
    fs::create_dir_all(at.join("repodata")).unwrap();
    let digest = "00".repeat(32);
    let data = |kind: &str, location: &str| {
        format!(
            "<data type=\"{kind}\"><checksum type=\"sha256\">{digest}</checksum><location href=\"{location}\"/><size>9</size></data>"
        )
    };
    kilnyard(&["--yard", yard, "init", "rpm", "--repo", at.to_str().unwrap()]).exits(0);
    for (files, error) in [
        (data("modules", "repodata/m.yaml.gz"), "has modules"),
        (data("other", "repodata/o.xml.gz"), "lists no primary.xml"),
        (data("primary", "../../secret.xml.gz"), "not within the repository"),
        (data("primary", "repodata/p.xml.zck"), "compression is not supported"),
        (data("primary", "repodata/p.xml.gz").replace("<size>9", "<size>99999999999"), "above the limit"),
    ] {
        fs::write(at.join("repodata/repomd.xml"), format!("<repomd>{files}</repomd>")).unwrap();
        kilnyard(&["--yard", yard, "scan"]).exits(3).says(&[error]);
    }
}

fn a_configuration_of_mock_is_carried_over() {
    let folder = folder("rpm-mock");
    let (config, yard) = (folder.path().join("kt-1-x86_64.cfg"), folder.path().join("yard"));
    let (path, yard_path) = (config.to_str().unwrap(), yard.to_str().unwrap());
    fs::create_dir(folder.path().join("templates")).unwrap();
    fs::write(&config, "config_opts['target_arch'] = 'x86_64'\ninclude('templates/kt.tpl')\nimport os\n")
        .unwrap();
    let template = "config_opts['dist'] = 'kt1'\nconfig_opts['dnf.conf'] = \"\"\"\n[main]\n[a]\nmetalink=https://a.example\n\"\"\"\n";
    fs::write(folder.path().join("templates/kt.tpl"), template).unwrap();
    let init =
        |more: &[&str]| kilnyard(&[&["--yard", yard_path, "init", "rpm", "--mock-cfg", path], more].concat());
    init(&[]).exits(2).says(&["names no repository", "templates/kt.tpl:5", "--repo URL"]);
    init(&["--repo", "https://b.example/os"]).exits(0).says(&[
        "kt-1-x86_64.cfg:3 is not carried over: only assignments",
        "templates/kt.tpl:5 is not carried over",
    ]);
    let written = fs::read_to_string(yard.join("kilnyard.toml")).unwrap();
    assert!(
        written.contains("release = \"kt1\"") && written.contains("\narchitecture = \"x86_64\"\n"),
        "{written}"
    );
    assert!(written.contains("\"https://b.example/os\""), "{written}");
    fs::write(&config, "include('gone.tpl')").unwrap();
    fs::remove_dir_all(&yard).unwrap();
    init(&["--repo", "https://b.example/os"]).exits(2).says(&["gone.tpl"]);
}

/// The trials; `has_tools` says whether rpmbuild and createrepo_c are there.
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| case.needs(has_tools, "rpmbuild or createrepo_c is not installed");
    vec![
        real(case("a_repository_is_checked", a_repository_is_checked)),
        real(case("a_signature_is_required_and_verified", a_signature_is_required_and_verified)),
        case("what_is_not_supported_is_named", what_is_not_supported_is_named),
        case("a_configuration_of_mock_is_carried_over", a_configuration_of_mock_is_carried_over),
    ]
}
