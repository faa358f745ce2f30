#![allow(dead_code, reason = "each test uses a part of it")]
//! A server of object storage for tests, in a temporary folder, by an ordinary user, on a free port of this machine.
//!
//! S3Proxy (`java` and the jar `org.gaul:s3proxy:4.1.0:jar-with-dependencies`) is the file that `KILNYARD_S3PROXY` names,
//! or `target/s3proxy.jar` of this repository, where `.ci/run` puts it. versitygw is used if it is on the `PATH`.
//!
//! This needs nothing but `tempfile`, so that tests of other crates can include it by its path.

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The user who runs the server if root runs the tests.
const ORDINARY: u32 = 65534;
/// Java takes seconds, on a busy machine many.
const START_MAX: Duration = Duration::from_secs(120);

/// A program that serves buckets, which are folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    S3Proxy,
    Versity,
}

impl Kind {
    /// The program or the jar.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn find(self) -> Result<PathBuf, String> {
        let found = match self {
            Kind::S3Proxy => on_path("java").and_then(|_| {
                let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/s3proxy.jar");
                let named = std::env::var_os("KILNYARD_S3PROXY").map(PathBuf::from);
                named.into_iter().chain([built]).find(|path| path.is_file())
            }),
            Kind::Versity => on_path("versitygw"),
        };
        found.ok_or_else(|| match self {
            Kind::S3Proxy => {
                "S3Proxy is missing: java, or its jar as KILNYARD_S3PROXY or target/s3proxy.jar".to_owned()
            }
            Kind::Versity => "versitygw is not on the PATH".to_owned(),
        })
    }
}

/// See the module documentation. The server ends when this is dropped.
pub struct Server {
    pub kind: Kind,
    pub key_id: String,
    pub secret: String,
    program: PathBuf,
    port: u16,
    folder: tempfile::TempDir,
    user: Option<u32>,
    process: Mutex<Option<Child>>,
}

impl Server {
    /// Starts a server without buckets.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn start(kind: Kind) -> Result<Server, String> {
        let program = kind.find()?;
        Server::start_by(kind, &program).map_err(|error| format!("failed to start {kind:?}: {error}"))
    }

    fn start_by(kind: Kind, found: &Path) -> std::io::Result<Server> {
        let folder = tempfile::tempdir()?;
        let is_root = fs::metadata(folder.path())?.uid() == 0;
        let user = is_root.then_some(ORDINARY);
        // The ordinary user may not reach the folder where it is installed.
        let program = folder.path().join(found.file_name().unwrap_or_default());
        fs::copy(found, &program)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let random = |what: &str| format!("{what}{:016x}", RandomState::new().hash_one(what));
        let (key_id, secret) = (random("KEY"), random("secret"));
        let server = Server { kind, key_id, secret, program, port, folder, user, process: Mutex::new(None) };
        server.own(&server.data())?;
        server.begin().map(|()| server)
    }

    /// Starts it again after it was killed, with the same port, keys and buckets. Waits until it answers.
    pub fn begin(&self) -> std::io::Result<()> {
        let address = format!("127.0.0.1:{}", self.port);
        let mut command = match self.kind {
            Kind::S3Proxy => {
                let properties = self.folder.path().join("properties");
                let text = format!(
                    "s3proxy.authorization=aws-v2-or-v4\ns3proxy.endpoint=http://{address}\ns3proxy.identity={}\n\
                     s3proxy.credential={}\njclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={}\n",
                    self.key_id,
                    self.secret,
                    self.data().display()
                );
                fs::write(&properties, text)?;
                let mut command = Command::new("java");
                command.args(["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"]);
                command.arg(&self.program).arg("--properties").arg(properties);
                command
            }
            Kind::Versity => {
                let mut command = Command::new(&self.program);
                command.args(["--port", &address, "--access", &self.key_id, "--secret", &self.secret]);
                command.args(["--quiet", "--keep-alive", "posix"]).arg(self.data());
                command
            }
        };
        let log = File::create(self.folder.path().join("log"))?;
        command
            .current_dir(self.data())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let mut process = command.spawn()?;
        let end = Instant::now() + START_MAX;
        while !answers(&address) {
            let ended = process.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                let _ = process.kill();
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(std::io::Error::other(format!("it does not answer ({ended:?}): {log}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        *self.process.lock().unwrap() = Some(process);
        Ok(())
    }

    /// Kills it at once, and waits for its end.
    pub fn kill(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Kills it and removes its folder, for a server in a static, which is never dropped.
    pub fn end(&self) {
        self.kill();
        let _ = fs::remove_dir_all(self.folder.path());
    }

    /// Makes a bucket. Names are at least three of `a-z 0-9 -`.
    pub fn bucket(&self, name: &str) {
        self.own(&self.data().join(name)).unwrap();
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The files in a bucket's folder that have this text in their paths: what the server keeps, visible or not.
    pub fn files(&self, bucket: &str, text: &str) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.data().join(bucket)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => folders.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files.retain(|path| path.to_string_lossy().contains(text));
        files
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Makes a folder that the server may write.
    fn own(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        chown(folder, self.user, self.user)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a server speaks HTTP there, no matter what it says.
fn answers(address: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok::<bool, std::io::Error>(&answer == b"HTTP/")
    };
    ask().unwrap_or(false)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
