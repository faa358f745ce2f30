//! The connection between a yard and workers on other machines: HTTPS, with the worker always as the client.
//!
//! ```text
//! worker --HTTPS--> door (`kilnyard serve`) --Unix socket--> run (`kilnyard build`)
//! ```
//!
//! - [`door`]: the server. It admits workers, relays their messages, and serves and accepts files by hash. It has no part
//!   in decisions: while no run is in progress, messages are dropped, and workers repeat theirs.
//! - [`relay`]: the frames between the door and a run.
//! - [`shell`]: shells in roots that workers keep.
//! - [`client`]: the worker's side.
//! - [`api`] and [`encoding`]: the bodies of requests and answers, and how messages are compressed.
//! - [`streams`]: the logs of a worker's running builds.
//! - [`roster`]: which workers have joined, and tokens that admit new ones.
//! - [`identity`]: the server's key and certificate, and their fingerprint, which a token contains.
//! - `certificate`: the worker's certificate, which shows its key in TLS.
//! - [`proof`]: the worker's key, and how it proves that it has it.
//! - [`ticket`]: what a worker shows to the mirror of its site.
//!
//! Invariants: a worker reads only the files that its leases name, and writes only under the hash of the content, which the
//! door computes itself. Messages are those of `protocol`, as bytes; the door does not decode them, and the run checks them.
//!
//! Known downside: each message is a request of its own.

pub mod api;
mod batch;
mod certificate;
pub mod client;
pub mod connections;
pub mod door;
pub mod encoding;
pub mod identity;
pub mod proof;
pub mod relay;
pub mod roster;
pub mod shell;
pub mod streams;
pub mod ticket;

pub use api::{About, Shell};

/// The port of a door, unless another is given.
pub const PORT: u16 = 7878;

/// Writes a file that only its owner can read, in place of an earlier one.
///
/// # Errors
/// It cannot be written.
pub fn write_private(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let part = path.with_extension("part");
    // An earlier process may have left it, with another mode.
    let _ = fs_err::remove_file(&part);
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true);
    fs_err::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs_err::rename(&part, path)
}

/// A random string of 256 bits, in hexadecimal.
pub(crate) fn random_hex() -> String {
    let mut bytes = [0; 32];
    rand::RngCore::fill_bytes(&mut rand::rngs::OsRng, &mut bytes);
    hex(&bytes)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a string in hexadecimal, if it has exactly `COUNT` of them.
pub(crate) fn from_hex<const COUNT: usize>(text: &str) -> Option<[u8; COUNT]> {
    if text.len() != COUNT * 2 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; COUNT];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}
