#![allow(dead_code, reason = "each test uses a part of it")]
//! A PostgreSQL server for tests: a cluster of its own in a temporary folder, by an ordinary user, on a socket.

use kilnyard_store_postgres::Address;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user who runs the server if root runs the tests: PostgreSQL refuses root.
const ORDINARY: u32 = 65534;

/// See the module documentation.
pub struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    user: Option<u32>,
}

impl Server {
    /// Makes a cluster and starts it.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn start() -> Result<Server, String> {
        let server = Server::new()?;
        let data = server.data();
        server.run("initdb", &["-D", &data, "-A", "trust", "-U", "kiln", "--no-sync", "--locale=C.UTF-8"])?;
        server.begin()?;
        Ok(server)
    }

    /// A replica, which receives what this server writes.
    ///
    /// # Errors
    /// What a program said.
    pub fn replica(&self) -> Result<Server, String> {
        let (server, socket) = (Server::new()?, self.folder.path().display().to_string());
        let data = server.data();
        server.run("pg_basebackup", &["-h", &socket, "-U", "kiln", "-D", &data, "-R", "-c", "fast"])?;
        server.begin()?;
        Ok(server)
    }

    /// Makes a replica the server.
    ///
    /// # Errors
    /// What it said.
    pub fn promote(&self) -> Result<(), String> {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "promote"])
    }

    /// Kills all of its processes, as a machine without power would. It can begin again.
    ///
    /// # Errors
    /// Its process is not known.
    pub fn kill(&self) -> Result<(), String> {
        let note = Path::new(&self.data()).join("postmaster.pid");
        let text = fs::read_to_string(&note).map_err(|error| error.to_string())?;
        let first: i32 = text.lines().next().and_then(|line| line.parse().ok()).ok_or("no process id")?;
        let parent = |pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<i32>().ok()
        };
        let all = fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let mut victims: Vec<i32> = pids.filter(|pid| parent(*pid) == Some(first)).collect();
        victims.insert(0, first);
        let numbers: Vec<String> = victims.iter().map(i32::to_string).collect();
        let killed = Command::new("kill").arg("-9").args(&numbers).status();
        if !killed.is_ok_and(|status| status.success()) {
            return Err("its processes were not killed".to_owned());
        }
        // Until they are reaped they look alive.
        fs::remove_file(note).map_err(|error| error.to_string())?;
        let _ = fs::remove_file(self.folder.path().join(".s.PGSQL.5432.lock"));
        Ok(())
    }

    fn new() -> Result<Server, String> {
        let programs = programs().ok_or("PostgreSQL 15 or later is not installed: no initdb is found")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let is_root = fs::metadata(folder.path()).is_ok_and(|facts| facts.uid() == 0);
        let user = is_root.then_some(ORDINARY);
        if let Some(user) = user {
            chown(folder.path(), Some(user), Some(user)).map_err(|error| error.to_string())?;
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
                .map_err(|error| error.to_string())?;
        }
        Ok(Server { programs, folder, user })
    }

    /// Starts it again after it was ended.
    ///
    /// # Errors
    /// What it said.
    pub fn begin(&self) -> Result<(), String> {
        let socket = self.folder.path().display();
        let options = format!("-c listen_addresses='' -c unix_socket_directories='{socket}' -c port=5432");
        let log = format!("{socket}/log");
        self.run("pg_ctl", &["-D", &self.data(), "-l", &log, "-w", "-o", &options, "start"])
    }

    /// Ends it at once, and breaks all connections.
    pub fn end(&self) {
        // It may have ended already.
        let _ = self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }

    /// The address of a new, empty database.
    ///
    /// # Errors
    /// What the server said.
    pub fn database(&self, name: &str) -> Result<Address, String> {
        // Names are cut at 63 bytes.
        let name: String = name.chars().take(60).collect();
        let socket = self.folder.path().display().to_string();
        self.run("createdb", &["-h", &socket, "-U", "kiln", &name])?;
        Address::parse(&self.url(&name), None, None).map_err(|error| error.to_string())
    }

    /// The URL of a database.
    pub fn url(&self, name: &str) -> String {
        format!("postgres://kiln@{}/{name}", self.folder.path().display().to_string().replace('/', "%2F"))
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }

    /// Performs a statement in a database, as its superuser.
    ///
    /// # Errors
    /// What the server said.
    pub fn query(&self, database: &str, sql: &str) -> Result<(), String> {
        self.answer(database, sql).map(drop)
    }

    /// The rows of a statement, one a line, with `|` between their columns.
    ///
    /// # Errors
    /// What the server said.
    pub fn answer(&self, database: &str, sql: &str) -> Result<String, String> {
        let socket = self.folder.path().display().to_string();
        let stops = "ON_ERROR_STOP=1";
        self.run("psql", &["-XAtq", "-h", &socket, "-U", "kiln", "-d", database, "-v", stops, "-c", sql])?;
        let answer = fs::read_to_string(self.folder.path().join("psql-output"));
        answer.map(|text| text.trim_end().to_owned()).map_err(|error| error.to_string())
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        // A server keeps the output of the program that starts it.
        let log = self.folder.path().join(format!("{program}-output"));
        let output = fs::File::create(&log).map_err(|error| error.to_string())?;
        let other = output.try_clone().map_err(|error| error.to_string())?;
        let status = command.stdin(Stdio::null()).stdout(output).stderr(other).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("{program}: {}", fs::read_to_string(&log).unwrap_or_default())),
            Err(error) => Err(format!("{program}: {error}")),
        }
    }
}

/// The folder of the latest installed version's programs.
fn programs() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = installed.filter_map(|entry| Some((number(&entry.path())?, entry.path().join("bin"))));
    let debian = versions.filter(|(version, _)| *version >= 15).max_by_key(|(version, _)| *version);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file());
    debian.map(|(_, folder)| folder).filter(|folder| folder.join("initdb").is_file()).or(found)
}
