//! Drives a real browser by the WebDriver protocol of chromedriver over loopback, with just enough of HTTP and
//! of the protocol for the tests of the page.

use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser that takes longer to respond is broken. The first start on a busy machine is slow.
const ANSWER_SECONDS_MAX: u64 = 120;

/// The browser has no network connections: no background services, and no host name resolves.
const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A running browser with one window. Ended on drop.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. If one cannot be started, prints why the test `name` is skipped and returns none.
    pub fn start(name: &str) -> Option<Browser> {
        for program in ["chromedriver", "chromium"] {
            if let Err(error) =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()
            {
                let _ = writeln!(std::io::stderr(), "skipped: {name}: cannot run {program}: {error}");
                return None;
            }
        }
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(driver.stdout.take().unwrap());
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok())
            .expect("chromedriver prints its port");
        let mut browser =
            Browser { driver, port, session: String::new(), profile: tempfile::tempdir().unwrap() };
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(|argument| (*argument).to_owned()).collect();
        arguments.push(format!("--user-data-dir={}", browser.profile.path().display()));
        let options = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
        let session = browser.request("POST", "/session", Some(&options)).expect("the browser starts");
        browser.session = session["sessionId"].as_str().expect("a session has an id").to_owned();
        Some(browser)
    }

    /// Sets the size of the viewport.
    pub fn resize(&self, width: u32, height: u32) {
        self.command(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// Sets the medium (`screen` or `print`) and the colour scheme (`light` or `dark`).
    pub fn scheme(&self, media: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", json!({"media": media, "features": features}));
    }

    /// Disables scripts in pages.
    pub fn without_scripts(&self) {
        self.command("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    }

    /// Opens a file, at `fragment` (`#id`) if that is not empty.
    pub fn open(&self, path: &Path, fragment: &str) {
        let address = format!("file://{}{fragment}", path.display());
        self.request("POST", &self.path("/url"), Some(&json!({"url": address}))).unwrap();
    }

    /// Opens an address.
    #[allow(dead_code, reason = "not every test has a server")]
    pub fn visit(&self, address: &str) {
        self.request("POST", &self.path("/url"), Some(&json!({"url": address}))).unwrap();
    }

    /// Evaluates a JavaScript expression that promises a value.
    #[allow(dead_code, reason = "not every test needs one")]
    pub fn ask_later(&self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.command("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{answer}");
        answer["result"].get("value").cloned().unwrap_or(Value::Null)
    }

    /// Evaluates a JavaScript expression in the page. This works even if the page may not run scripts.
    pub fn ask(&self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        let answer = self.command("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"].get("value").cloned().unwrap_or(Value::Null)
    }

    fn command(&self, name: &str, parameters: Value) -> Value {
        let body = json!({"cmd": name, "params": parameters});
        self.request("POST", &self.path("/goog/cdp/execute"), Some(&body)).unwrap()
    }

    fn path(&self, rest: &str) -> String {
        format!("/session/{}{rest}", self.session)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().map_err(Error::other)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        if status.split(' ').nth(1) == Some("200") {
            Ok(answer["value"].take())
        } else {
            Err(Error::other(format!("{method} {path}: {answer}")))
        }
    }
}

impl Drop for Browser {
    /// Ends the session first, which ends the browser. Killing only the driver would leave the browser running.
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.request("DELETE", &self.path(""), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
