//! Requests of people over the network: with tokens, and through a proxy that logs them in.

use crate::fixtures::{Packages, Shared, Trial, good, slow};
use crate::support::farm::{Served, served};
use crate::support::{Yard, until};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub const CASES: &[Trial] = &[("people_request_over_the_network", requested)];

const SECRET: &str = "5f1c0a53e2d7469bb0e1c9a8d3f40721";

/// A request by curl: its status and answer.
fn curl(arguments: &[&str]) -> (u64, Value) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--write-out", "\n%{http_code}"]);
    let ended = command.args(arguments).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(answer).unwrap_or(Value::Null))
}

/// nginx that logs users in by their passwords.
struct Proxy(Child);

impl Proxy {
    fn start(folder: &Path, port: u16, behind: &str) -> Proxy {
        fs::create_dir(folder).unwrap();
        // Its own processes have an account that may not read the folders of the trial.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("users"), "anna:{PLAIN}a\neve:{PLAIN}e\n").unwrap();
        let path = folder.display();
        let text = format!(
            "user root; daemon off; worker_processes 1; pid {path}/pid; error_log {path}/errors;\n\
             events {{}}\n\
             http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
             server {{ listen 127.0.0.1:{port};\n\
             location / {{\n\
             auth_basic kilnyard; auth_basic_user_file {path}/users;\n\
             proxy_set_header Authorization \"\";\n\
             proxy_set_header Host $http_host;\n\
             proxy_set_header X-Remote-User $remote_user;\n\
             proxy_set_header Kilnyard-Proxy-Secret {SECRET};\n\
             proxy_pass http://{behind};\n\
             }} }} }}\n"
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(folder.join("conf")).arg("-e").arg(folder.join("errors"));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        until("the proxy listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Proxy(child)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // SAFETY: the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        self.0.wait().unwrap();
    }
}

/// The address of the API, as the server prints it.
fn api(yard: &Yard) -> String {
    let said = served(yard);
    let address = said.split("people and programs: ").nth(1).and_then(|rest| rest.split(';').next());
    address.unwrap_or_else(|| panic!("{said}")).to_owned()
}

fn requested(shared: &Shared) {
    // Only a request ends its run.
    let lab = shared.yard("people-lab", &[slow("one", "sleep 600")]);
    let site = shared.yard("people", &[good("two", "")]);
    let config = site.read("kilnyard.toml").replace(
        "\n[repository]",
        &format!("\n[farm.yards.lab]\npath = \"{}\"\n\n[repository]", lab.folder.display()),
    );
    site.configure(&config);

    // Nothing is open that should not be.
    site.run(&["serve", "--listen", "127.0.0.1:0", "--api", "0.0.0.0:0"])
        .exits(2)
        .says(&["tokens would cross the network", "certificate and key in [people]"]);
    site.run(&["people"]).exits(0).says(&["there are no tokens"]);
    let anna = site.run(&["people", "token", "anna", "--scopes", "request", "--only", "lab"]).exits(0);
    let anna = anna.stdout.trim().to_owned();
    let reader = site.run(&["people", "token", "bot"]).exits(0).stdout.trim().to_owned();
    for (arguments, words) in [
        (&["people", "token", "anna", "--only", "lb"][..], "there is no yard lb"),
        (&["people", "token", "anna smith"], "cannot name a person"),
        (&["people", "token", "anna", "--scopes", "write"], "`write` is not a scope"),
        (&["people", "token", "anna", "--days", "0"], "1..=3650"),
        (&["people", "remove", "otto"], "there is no token otto"),
    ] {
        site.run(arguments).exits(2).says(&[words]);
    }

    let mut server = Served::start_with(&site, "127.0.0.1:0", &["--api", "127.0.0.1:0"]);
    let url = api(&site);
    let bearer = |token: &str| format!("authorization: Bearer {token}");
    let get = |path: &str, token: &str| curl(&["-H", &bearer(token), &format!("{url}{path}")]);
    let post = |token: &str, body: &Value| {
        curl(&["-H", &bearer(token), "--json", &body.to_string(), &format!("{url}requests")])
    };
    assert_eq!(curl(&[&format!("{url}yards")]).0, 401);
    let (status, yards) = get("yards", &reader);
    assert_eq!((status, yards.as_array().unwrap().len()), (200, 2), "{yards}");
    let build = lab.begin(&[]);
    until("it is being built", || lab.building() == ["one"]);
    let lab_alone = json!([{"name": "lab", "targets": [{"name": null, "run": 1, "state": "running"}]}]);
    assert_eq!(get("yards", &anna), (200, lab_alone));
    let retry = json!({ "yard": "lab", "request": "retry", "packages": ["one"] });
    assert_eq!(post(&reader, &retry).0, 403);
    assert_eq!(post(&anna, &json!({ "request": "retry", "packages": ["two"] })).0, 404, "not her yard");
    assert_eq!(post(&anna, &json!({ "yard": "lab", "request": "retry", "packages": ["../one"] })).0, 404);
    let skip = json!({ "yard": "lab", "request": "skip", "packages": ["one"] });
    assert_eq!(post(&anna, &skip), (202, json!({ "run": 1 })));
    let output = build.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lab.state("one"), "skipped");
    let (status, answer) = post(&anna, &skip);
    assert!(status == 409 && answer["error"].as_str().unwrap().contains("no run is in progress"), "{answer}");
    assert_eq!(post(&anna, &retry), (202, json!({ "run": null })));
    let (_, made) = get("requests?yard=lab", &reader);
    let made: Vec<(&str, &str, &str)> = made
        .as_array()
        .unwrap()
        .iter()
        .map(|made| {
            let text = |key: &str| made[key].as_str().unwrap();
            (text("author"), text("request"), text("package"))
        })
        .collect();
    assert_eq!(made, [("anna", "skip", "one"), ("anna", "retry", "one")]);

    // The tokens are read for each request.
    site.run(&["people"]).exits(0).says(&["anna", "request", "lab", "until", "bot", "all yards"]);
    site.run(&["people", "remove", "anna"]).exits(0);
    assert_eq!(post(&anna, &retry).0, 401);
    server.signal(libc::SIGINT);

    // Through a proxy.
    let secret = site.path("proxy-secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let people = "[people]\nanonymous = [\"read\"]\n\n[people.proxy]\nheader = \"X-Remote-User\"\nsecret-file = \"proxy-secret\"\n\n\
                  [people.user.anna]\nscopes = [\"request\"]\n";
    site.configure(&config.replace("\n[people]", &format!("\n{people}\n")));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    site.run(&["serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"])
        .exits(2)
        .says(&["can be read or written by other users", "chmod 600"]);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let _server = Served::start_with(&site, "127.0.0.1:0", &["--api", "127.0.0.1:0"]);
    let behind = api(&site).trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _proxy = Proxy::start(&shared.path("people-proxy"), port, &behind);
    let url = format!("http://127.0.0.1:{port}/api/v1/");
    assert_eq!(curl(&[&format!("{url}who")]).0, 401, "nginx asks for a password");
    let who = |arguments: &[&str]| curl(&[arguments, &[&format!("{url}who")]].concat()).1;
    assert_eq!(who(&["-u", "anna:a"])["scopes"], json!(["request"]));
    // What a client says of itself does not reach the server.
    let forged = who(&["-u", "eve:e", "-H", "X-Remote-User: anna", "-H", "Kilnyard-Proxy-Secret: x"]);
    assert_eq!((&forged["name"], &forged["scopes"]), (&json!("eve"), &json!([])));
    // Nor does it count beside the proxy: any user of this machine can connect.
    let beside = format!("http://{behind}/api/v1/");
    assert_eq!(curl(&["-H", "X-Remote-User: anna", &format!("{beside}who")]).0, 401);
    assert_eq!(curl(&[&format!("{beside}who")]).1["name"], Value::Null);
    let ask = |user: &str, further: &[&str]| {
        let requests = format!("{url}requests");
        curl(&[&["-u", user, "--json", &*retry.to_string()], further, &[&*requests]].concat()).0
    };
    assert_eq!(ask("eve:e", &[]), 404, "she may see nothing");
    assert_eq!(ask("anna:a", &["-H", "Origin: https://evil.example"]), 403);
    assert_eq!(ask("anna:a", &["-H", &format!("Origin: http://127.0.0.1:{port}")]), 202);
    let (_, made) = curl(&["-u", "anna:a", &format!("{url}requests?yard=lab")]);
    assert_eq!((&made[2]["author"], &made[2]["request"]), (&json!("anna"), &json!("retry")), "{made}");
}
