//! A connection with buffers: requests are taken out of what one read brought, and replies leave together.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The bytes of one read.
const INPUT_BYTES: usize = 256 << 10;
/// Replies leave when they are this long, or before the next read that may wait.
const OUTPUT_BYTES: usize = 256 << 10;

pub(super) struct Stream {
    socket: UnixStream,
    input: Vec<u8>,
    from: usize,
    to: usize,
    pub(super) output: Vec<u8>,
}

impl Stream {
    pub(super) fn new(socket: UnixStream) -> Stream {
        Stream { socket, input: vec![0; INPUT_BYTES], from: 0, to: 0, output: Vec::new() }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Waits for this many bytes.
    ///
    /// # Errors
    /// The connection ended: `UnexpectedEof`, with nothing left if it was between two messages.
    pub(super) fn need(&mut self, bytes: usize) -> io::Result<()> {
        while self.to - self.from < bytes {
            self.flush()?;
            if self.input.len() - self.from < bytes {
                self.input.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
                if self.input.len() < bytes {
                    self.input.resize(bytes, 0);
                }
            }
            match self.socket.read(&mut self.input[self.to..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.to += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next bytes, of which [`Stream::need`] has waited for enough, and the output.
    pub(super) fn next(&mut self, bytes: usize) -> (&[u8], &mut Vec<u8>) {
        let next = &self.input[self.from..self.from + bytes];
        self.from += bytes;
        (next, &mut self.output)
    }

    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.need(N)?;
        let mut taken = [0; N];
        taken.copy_from_slice(self.next(N).0);
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        Ok(taken)
    }

    /// Sends the output if it is long.
    pub(super) fn sent(&mut self) -> io::Result<()> {
        if self.output.len() >= OUTPUT_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.socket.write_all(&self.output)?;
        self.output.clear();
        // What a long request needed is given back after it.
        self.output.shrink_to(OUTPUT_BYTES);
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            self.input.truncate(INPUT_BYTES);
            self.input.shrink_to(INPUT_BYTES);
        }
        Ok(())
    }
}
