//! Output of a sandbox, kept in memory up to a limit.

use std::io::{self, Write};

/// What a sandbox printed. Writing more than the limit fails.
pub struct Captured {
    /// The bytes so far.
    pub bytes: Vec<u8>,
    /// Whether there were more than the limit.
    pub is_over: bool,
    bytes_max: usize,
}

impl Captured {
    /// Nothing yet.
    pub fn new(bytes_max: usize) -> Captured {
        Captured { bytes: Vec::new(), is_over: false, bytes_max }
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.is_over = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
