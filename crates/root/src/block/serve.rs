//! The servers of devices, and other programs that run in the background until they are stopped.

use super::file_system::{last_line, missing};
use super::{holders, needs};
use crate::Flushes;
use kilnyard_block::{Front, Service};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Copy-on-write granularity: the block size of the file system, so that a write never has to read the rest of a piece
/// first.
const PIECE: &str = "cow-block-size=4096";

/// A program in the background.
pub(super) struct Server {
    child: Child,
    /// Files in the root's folder to remove at its end.
    files: Vec<PathBuf>,
}

/// Serves an image at a socket; written data goes to an unlinked file in the folder `written`.
pub(super) fn serve(
    image: &Path,
    socket: &Path,
    written: &Path,
    flushes: Flushes,
    requests: Option<&Path>,
) -> io::Result<Server> {
    // A socket address is limited to 108 bytes, and nbdkit requires an absolute path: this one leads to the yard, which
    // is the working folder of the keeper and so of nbdkit.
    let address = Path::new("/proc/self/cwd").join(socket);
    let (filters, settings) = filters(flushes, requests.is_some());
    let mut arguments: Vec<String> = ["--foreground", "--unix"].map(str::to_owned).into();
    arguments.push(address.display().to_string());
    arguments.extend(filters.iter().map(|filter| format!("--filter={filter}")));
    arguments.push("file".to_owned());
    arguments.push(format!("file={}", image.display()));
    arguments.extend(settings.iter().map(|setting| (*setting).to_owned()));
    arguments.extend(requests.map(|path| format!("logfile={}", path.display())));
    let folder = std::env::current_dir()?.join(written);
    let mut server = Server::start("nbdkit", &arguments, socket, &folder)?;
    server.files.push(socket.to_owned());
    Ok(server)
}

/// The filters, from the client to the file, and their settings.
fn filters(flushes: Flushes, is_logged: bool) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut filters, mut settings) = (Vec::new(), vec![PIECE]);
    if is_logged {
        filters.push("log");
    }
    if flushes == Flushes::Discard {
        filters.push("fua");
        settings.push("fuamode=discard");
    }
    filters.push("cow");
    (filters, settings)
}

/// Shows an image in this folder, as a file or by a link to a device, by a process of this program.
pub(super) fn show(mut service: Service, folder: &Path) -> io::Result<Server> {
    match &mut service.front {
        Front::Fuse { name, .. } => *name = file_name(&std::env::current_dir()?.join(folder)),
        Front::Ublk { link } => *link = std::env::current_dir()?.join(&*link),
        Front::Nbd { .. } => return Err(io::Error::other("a device is not shown by a socket")),
    }
    service.ready = number(folder);
    Server::wait("the server of the device", &mut service.command()?, folder)
}

/// The name of the file that backs a device. It contains the path of the root, since `losetup` shows nothing else.
pub(super) fn file_name(folder: &Path) -> String {
    const BYTES_MAX: usize = 255;
    let name = folder.to_string_lossy().replace('/', "~");
    let start = (0..name.len()).find(|at| name.is_char_boundary(*at) && name.len() - at <= BYTES_MAX);
    name[start.unwrap_or(name.len())..].to_owned()
}

/// The file for the process id of a server of this name.
fn number(name: &Path) -> PathBuf {
    name.with_extension("number")
}

impl Server {
    /// Starts a program that writes its process id to a file when it is ready, as nbdkit and nbdfuse do.
    pub(super) fn start(
        program: &'static str,
        arguments: &[String],
        name: &Path,
        temporary: &Path,
    ) -> io::Result<Server> {
        let path = needs::program(program).ok_or_else(|| missing(program))?;
        let mut command = Command::new(path);
        command.arg("--pidfile").arg(number(name)).args(arguments).env("TMPDIR", temporary);
        Server::wait(program, &mut command, name)
    }

    /// Starts a program and waits until it has written its process id. The file for it and the log have the path `name`
    /// with another extension.
    fn wait(program: &str, command: &mut Command, name: &Path) -> io::Result<Server> {
        let (number, log) = (number(name), name.with_extension("said"));
        let output = File::create(&log)?;
        let child = spawn(command, output)?;
        let mut server = Server { child, files: vec![number.clone(), log.clone()] };
        let is_ready = holders::wait_until(|| match server.child.try_wait()? {
            None => Ok(std::fs::metadata(&number).is_ok_and(|metadata| metadata.len() > 0)),
            Some(status) => {
                let last = last_line(&std::fs::read(&log).unwrap_or_default());
                Err(io::Error::other(format!("{program} ended with {status}: {last}")))
            }
        })?;
        if is_ready { Ok(server) } else { Err(io::Error::other(format!("{program} did not become ready"))) }
    }

    /// Starts a program that does not report when it is ready.
    pub(super) fn start_unready(
        program: &'static str,
        arguments: &[String],
        name: &Path,
    ) -> io::Result<Server> {
        let path = needs::program(program).ok_or_else(|| missing(program))?;
        let log = name.with_extension("said");
        let child = spawn(Command::new(path).args(arguments), File::create(&log)?)?;
        Ok(Server { child, files: vec![log] })
    }

    /// The exit status and the last line of output, if it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<String>> {
        let log = self.files.iter().find(|path| path.extension().is_some_and(|end| end == "said"));
        let last = || last_line(&log.and_then(|path| std::fs::read(path).ok()).unwrap_or_default());
        Ok(self.child.try_wait()?.map(|status| format!("{status}: {}", last())))
    }

    /// Kills it: none of its data is needed any more.
    pub(super) fn stop(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.finish()
    }

    /// Asks it to end, which gives it the time to remove its device.
    pub(super) fn end(self) -> io::Result<()> {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.finish()
    }

    /// Waits until it has exited, which must be imminent, and removes its files.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !holders::wait_until(|| Ok(self.child.try_wait()?.is_some()))? {
            return Err(io::Error::other(format!("process {} did not exit", self.child.id())));
        }
        for file in &self.files {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Starts a program in its own process group, without standard input: signals typed at Kilnyard's terminal must not
/// reach it, since it is needed until the keeper exits.
fn spawn(command: &mut Command, output: File) -> io::Result<Child> {
    let errors = output.try_clone()?;
    command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_in_the_order_in_which_requests_meet_them() {
        assert_eq!(filters(Flushes::Discard, true).0, ["log", "fua", "cow"]);
        assert_eq!(filters(Flushes::Keep, false), (vec!["cow"], vec![PIECE]));
    }
}
