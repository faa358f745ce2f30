//! Bytes for one command alone, such as a passphrase: in memory, behind a descriptor that no other process gets.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::FdFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives bytes to a command. Returns the path at which it reads them.
///
/// # Errors
/// The kernel has no memory for them.
pub fn hand_over(command: &mut Command, bytes: &[u8]) -> io::Result<String> {
    let mut memory = File::from(memfd_create("handover", MemfdFlags::CLOEXEC)?);
    memory.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let keep = move || Ok(rustix::io::fcntl_setfd(&memory, FdFlags::empty())?);
    // SAFETY: the closure neither allocates nor locks; it makes one system call, on a descriptor that it owns.
    unsafe { command.pre_exec(keep) };
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_reads_them_and_no_other() {
        let mut command = Command::new("cat");
        let path = hand_over(&mut command, b"secret").unwrap();
        let other = Command::new("cat").arg(&path).output().unwrap();
        assert!(!other.stdout.starts_with(b"secret"), "{other:?}");
        let output = command.arg(&path).output().unwrap();
        assert_eq!(output.stdout, b"secret");
    }
}
