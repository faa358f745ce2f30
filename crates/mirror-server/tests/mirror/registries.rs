//! Registries of programming languages, with their own clients: pip, cargo, npm and go.

use crate::origin::{Manner, Mirror, Origin, hex};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str], at: &Path, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(at);
    // Settings of the user would choose another registry.
    for (name, _) in std::env::vars() {
        let name = name.to_ascii_uppercase();
        if ["PIP_", "NPM_", "GO", "CARGO_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
            .iter()
            .any(|start| name.starts_with(start))
            && name != "CARGO_HOME"
        {
            command.env_remove(&name).env_remove(name.to_ascii_lowercase());
        }
    }
    command.env("HOME", at).envs(environment.iter().copied());
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Whether this machine has a program.
fn is_there(program: &str, argument: &str) -> bool {
    let is_there = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: {program} is not installed");
    }
    is_there
}

fn succeeds(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn mirror(name: &str, kind: &str, origin: &Origin, files: &str) -> Mirror {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[registry.{name}]\nkind = \"{kind}\"\nurls = [\"http://{0}/index\"]\nfiles = [\"http://{0}{files}\"]\n",
        origin.address
    );
    Mirror::of(tempfile::tempdir().unwrap(), &text, None)
}

/// Packs files with Python, which is what knows zip here.
fn zip(at: &Path, files: &[(&str, &str)]) -> Vec<u8> {
    let script = "import sys, zipfile, json\nz = zipfile.ZipFile('made.zip', 'w')\n\
                  for name, text in json.loads(sys.stdin.read()): z.writestr(name, text)\nz.close()";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .current_dir(at)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let listed = serde_json::to_string(files).unwrap();
    python.stdin.take().unwrap().write_all(listed.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
    std::fs::read(at.join("made.zip")).unwrap()
}

fn tar(at: &Path, folder: &str, files: &[(&str, &str)]) -> Vec<u8> {
    for (name, text) in files {
        let path = at.join(folder).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let packed = Command::new("tar").args(["-czf", "made.tgz", folder]).current_dir(at).status();
    assert!(packed.unwrap().success());
    std::fs::read(at.join("made.tgz")).unwrap()
}

#[test]
fn pip_installs_through_it_and_without_its_origin() {
    let scratch = tempfile::tempdir().unwrap();
    let wheel = zip(
        scratch.path(),
        &[
            ("tiny.py", "there = True\n"),
            ("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"),
            (
                "tiny-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            ),
            (
                "tiny-1.0.dist-info/RECORD",
                "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n",
            ),
        ],
    );
    let path = "/files/ab/tiny-1.0-py3-none-any.whl";
    let origin = Origin::start(&[(path, &wheel)]);
    let index = format!(
        "<!DOCTYPE html><html><body><a href=\"http://{}{path}#sha256={}\">tiny-1.0-py3-none-any.whl</a></body></html>",
        origin.address,
        hex(&wheel)
    );
    origin.files.lock().unwrap().insert("/index/simple/tiny/".to_owned(), index.into_bytes());
    let mirror = mirror("pypi", "pypi", &origin, "/files");
    let index = format!("{}/pypi/simple/", mirror.url);
    let install = |to: &str| {
        run(
            "python3",
            &[
                "-m",
                "pip",
                "install",
                "--isolated",
                "--disable-pip-version-check",
                "--no-cache-dir",
                "--index-url",
                &index,
                "--target",
                to,
                "tiny",
            ],
            scratch.path(),
            &[],
        )
    };
    succeeds(&install("first"));
    assert!(scratch.path().join("first/tiny.py").is_file());
    origin.set(Manner::Gone);
    succeeds(&install("second"));
    assert_eq!(origin.requests(), 2, "the index and the wheel, once");
    assert_eq!(mirror.status("/pypi/simple/absent/", &[]), "502");
}

#[test]
fn cargo_fetches_through_it_and_without_its_origin() {
    let scratch = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    let package = tar(scratch.path(), "tiny-1.0.0", &[("Cargo.toml", manifest), ("src/lib.rs", "")]);
    let origin = Origin::start(&[("/crates/tiny/1.0.0/download", &package)]);
    let line = format!(
        "{{\"name\":\"tiny\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{}\",\"features\":{{}},\"yanked\":false}}\n",
        hex(&package)
    );
    origin.files.lock().unwrap().insert("/index/ti/ny/tiny".to_owned(), line.into_bytes());
    let mirror = mirror("crates", "crates", &origin, "/crates");
    let project = scratch.path().join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::write(project.join("src/lib.rs"), "").unwrap();
    let manifest = "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntiny = \"1\"\n[workspace]\n";
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let config = format!(
        "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+{}/crates/index/\"\n",
        mirror.url
    );
    std::fs::create_dir(project.join(".cargo")).unwrap();
    std::fs::write(project.join(".cargo/config.toml"), config).unwrap();
    for (home, manner) in [("one", Manner::Honest), ("two", Manner::Gone)] {
        origin.set(manner);
        let home = scratch.path().join(home);
        let _ = std::fs::remove_file(project.join("Cargo.lock"));
        let rustup = std::env::var("RUSTUP_HOME")
            .unwrap_or_else(|_| format!("{}/.rustup", std::env::var("HOME").unwrap()));
        let environment = [("CARGO_HOME", home.to_str().unwrap()), ("RUSTUP_HOME", &*rustup)];
        succeeds(&run("cargo", &["fetch"], &project, &environment));
    }
    assert_eq!(origin.requests(), 2, "the entry of the index and the crate, once");
}

#[test]
fn npm_packages_are_named_at_the_mirror() {
    let scratch = tempfile::tempdir().unwrap();
    let package =
        tar(scratch.path(), "package", &[("package.json", "{\"name\":\"@s/tiny\",\"version\":\"1.0.0\"}")]);
    let origin = Origin::start(&[("/index/@s/tiny/-/tiny-1.0.0.tgz", &package)]);
    let shasum = {
        let output = Command::new("sha1sum").arg(scratch.path().join("made.tgz")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..40].to_owned()
    };
    let index = format!(
        "{{\"name\":\"@s/tiny\",\"dist-tags\":{{\"latest\":\"1.0.0\"}},\"versions\":{{\"1.0.0\":{{\"name\":\"@s/tiny\",\"version\":\"1.0.0\",\
         \"dist\":{{\"tarball\":\"http://{}/index/@s/tiny/-/tiny-1.0.0.tgz\",\"shasum\":\"{shasum}\"}}}}}}}}",
        origin.address
    );
    origin.files.lock().unwrap().insert("/index/@s%2ftiny".to_owned(), index.into_bytes());
    let mirror = mirror("npm", "npm", &origin, "/none");
    // As npm writes the name, and as others do.
    for path in ["/npm/@s%2ftiny", "/npm/@s%2Ftiny", "/npm/@s/tiny"] {
        let text = String::from_utf8(mirror.get(path)).unwrap();
        let tarball = format!("{}/npm/@s/tiny/-/tiny-1.0.0.tgz", mirror.url);
        assert!(text.contains(&tarball) && !text.contains(&origin.address.to_string()), "{text}");
    }
    assert_eq!(mirror.get("/npm/@s/tiny/-/tiny-1.0.0.tgz"), package);
    assert_eq!(mirror.status("/npm/@s%2f..%2fx", &["--path-as-is"]), "400");
    assert_eq!(mirror.status("/npm/-/whoami", &[]), "404");
    assert_eq!(origin.requests(), 2);
    if is_there("npm", "--version") {
        let project = scratch.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("package.json"), "{\"name\":\"user\",\"version\":\"1.0.0\"}").unwrap();
        let registry = format!("{}/npm/", mirror.url);
        let arguments = [
            "install",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--registry",
            &registry,
            "@s/tiny",
        ];
        succeeds(&run("npm", &arguments, &project, &[]));
        assert!(project.join("node_modules/@s/tiny/package.json").is_file());
    }
}

#[test]
fn go_modules_come_from_it_and_without_their_origin() {
    let scratch = tempfile::tempdir().unwrap();
    let module = "module example.test/Tiny\n\ngo 1.19\n";
    let packed = zip(
        scratch.path(),
        &[
            ("example.test/Tiny@v1.0.0/go.mod", module),
            ("example.test/Tiny@v1.0.0/tiny.go", "package tiny\n"),
        ],
    );
    let base = "/index/example.test/!tiny/@v";
    let origin = Origin::start(&[
        (&format!("{base}/list"), b"v1.0.0\n"),
        (&format!("{base}/v1.0.0.info"), b"{\"Version\":\"v1.0.0\",\"Time\":\"2024-01-01T00:00:00Z\"}"),
        (&format!("{base}/v1.0.0.mod"), module.as_bytes()),
        (&format!("{base}/v1.0.0.zip"), &packed),
    ]);
    let mirror = mirror("go", "go", &origin, "/none");
    let at = "/go/example.test/!tiny/@v";
    for (file, bytes) in
        [("list", &b"v1.0.0\n"[..]), ("v1.0.0.mod", module.as_bytes()), ("v1.0.0.zip", &packed)]
    {
        assert_eq!(mirror.get(&format!("{at}/{file}")), bytes);
    }
    if is_there("go", "version") {
        let project = scratch.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(
            project.join("go.mod"),
            "module user\n\ngo 1.19\n\nrequire example.test/Tiny v1.0.0\n",
        )
        .unwrap();
        std::fs::write(project.join("user.go"), "package user\n\nimport _ \"example.test/Tiny\"\n").unwrap();
        let proxy = format!("{}/go", mirror.url);
        for (cache, manner) in [("one", Manner::Honest), ("two", Manner::Gone)] {
            origin.set(manner);
            let _ = std::fs::remove_file(project.join("go.sum"));
            let cache = scratch.path().join(cache);
            let environment = [
                ("GOPROXY", &*proxy),
                ("GONOSUMDB", "*"),
                ("GOFLAGS", "-mod=mod -modcacherw"),
                ("GOTOOLCHAIN", "local"),
                ("GOPATH", cache.to_str().unwrap()),
            ];
            succeeds(&run("go", &["mod", "download", "example.test/Tiny"], &project, &environment));
        }
    }
    let module_requests = 4;
    assert!(origin.requests() <= module_requests + 1, "{}", origin.requests());
}
