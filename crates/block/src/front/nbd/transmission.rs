//! Requests and replies, once a connection is negotiated.

use super::broken;
use super::handshake::{Agreed, CONTEXT_NUMBER, REQUEST_BYTES_MAX};
use super::stream::Stream;
use crate::Disk;
use std::io;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// A request without its data.
const HEADER_BYTES: usize = 28;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// The reply ends when the request is durable.
const FORCED: u16 = 1;
/// The reply has one extent only.
const ONE_EXTENT: u16 = 1 << 3;
/// `FUA`, `NO_HOLE`, `DF`, `REQ_ONE`, `FAST_ZERO`.
const FLAGS: u16 = 0b1_1111;

const DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 1 << 15 | 1;

/// A hole, and zeros in it.
const HOLE_OF_ZEROS: u32 = 0b11;
/// The extents of one reply.
const EXTENTS_MAX: usize = 1024;

/// A request without its data.
#[derive(Clone, Copy)]
struct Request {
    flags: u16,
    kind: u16,
    /// The client's name for it.
    cookie: u64,
    offset: u64,
    bytes: u32,
}

impl Request {
    fn parse(header: &[u8; HEADER_BYTES]) -> io::Result<Request> {
        let at = |from: usize| u64::from_be_bytes(std::array::from_fn(|byte| header[from + byte]));
        let start = at(0);
        if (start >> 32) as u32 != REQUEST_MAGIC {
            return Err(broken("no request"));
        }
        let bytes = u32::from_be_bytes(std::array::from_fn(|byte| header[24 + byte]));
        Ok(Request { flags: (start >> 16) as u16, kind: start as u16, cookie: at(8), offset: at(16), bytes })
    }
}

/// Answers requests until the client leaves.
pub(super) fn answer(stream: &mut Stream, disk: &Disk, agreed: Agreed) -> io::Result<()> {
    loop {
        let request = match stream.take() {
            Ok(header) => Request::parse(&header)?,
            // Not within a message: clients leave like this too.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        match request.kind {
            READ if request.bytes > REQUEST_BYTES_MAX => {
                error(&mut stream.output, request, agreed, libc::EINVAL)
            }
            READ => read(&mut stream.output, disk, request, agreed),
            WRITE => {
                // Nothing but the end of the connection can skip such data.
                if request.bytes > REQUEST_BYTES_MAX {
                    return Err(broken("a long request"));
                }
                stream.need(request.bytes as usize)?;
                let (data, output) = stream.next(request.bytes as usize);
                let done = check(request).and_then(|()| disk.write(request.offset, data));
                end(output, disk, request, agreed, done);
            }
            DISCONNECT => return stream.flush(),
            FLUSH => {
                end(&mut stream.output, disk, request, agreed, check(request).and_then(|()| disk.flush()))
            }
            TRIM | WRITE_ZEROES => {
                let done = check(request).and_then(|()| match request.kind {
                    TRIM => disk.discard(request.offset, request.bytes.into()),
                    _ => disk.zero(request.offset, request.bytes.into()),
                });
                end(&mut stream.output, disk, request, agreed, done);
            }
            BLOCK_STATUS if agreed.has_context => status(&mut stream.output, disk, request, agreed),
            _ => error(&mut stream.output, request, agreed, libc::EINVAL),
        }
        stream.sent()?;
    }
}

fn check(request: Request) -> io::Result<()> {
    if request.flags & !FLAGS != 0 { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
}

/// The end of a request without data in its reply.
fn end(output: &mut Vec<u8>, disk: &Disk, request: Request, agreed: Agreed, done: io::Result<()>) {
    let done = match request.flags & FORCED != 0 && request.kind != FLUSH {
        true => done.and_then(|()| disk.flush()),
        false => done,
    };
    match done {
        Ok(()) if agreed.is_structured => chunk(output, request, DONE, CHUNK_NONE, 0),
        Ok(()) => simple(output, request, 0),
        Err(why) => error(output, request, agreed, number(&why)),
    }
}

fn read(output: &mut Vec<u8>, disk: &Disk, request: Request, agreed: Agreed) {
    let start = output.len();
    match agreed.is_structured {
        true => {
            chunk(output, request, DONE, CHUNK_DATA, request.bytes + 8);
            output.extend(request.offset.to_be_bytes());
        }
        false => simple(output, request, 0),
    }
    let data = output.len();
    output.resize(data + request.bytes as usize, 0);
    let read = check(request).and_then(|()| disk.read(request.offset, &mut output[data..]));
    if let Err(why) = read {
        output.truncate(start);
        error(output, request, agreed, number(&why));
    }
}

fn status(output: &mut Vec<u8>, disk: &Disk, request: Request, agreed: Agreed) {
    let most = if request.flags & ONE_EXTENT != 0 { 1 } else { EXTENTS_MAX };
    let mut extents = Vec::new();
    let asked = match request.bytes {
        0 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        bytes => check(request).and_then(|()| {
            disk.extents(request.offset, bytes.into(), |extent| {
                extents.push(extent);
                extents.len() < most
            })
        }),
    };
    if let Err(why) = asked {
        return error(output, request, agreed, number(&why));
    }
    chunk(output, request, DONE, CHUNK_STATUS, 4 + 8 * extents.len() as u32);
    output.extend(CONTEXT_NUMBER.to_be_bytes());
    for extent in extents {
        output.extend((extent.bytes as u32).to_be_bytes());
        output.extend((if extent.is_zero { HOLE_OF_ZEROS } else { 0 }).to_be_bytes());
    }
}

fn simple(output: &mut Vec<u8>, request: Request, error: u32) {
    output.extend(SIMPLE_MAGIC.to_be_bytes());
    output.extend(error.to_be_bytes());
    output.extend(request.cookie.to_be_bytes());
}

fn chunk(output: &mut Vec<u8>, request: Request, flags: u16, kind: u16, bytes: u32) {
    output.extend(CHUNK_MAGIC.to_be_bytes());
    output.extend(flags.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend(request.cookie.to_be_bytes());
    output.extend(bytes.to_be_bytes());
}

fn error(output: &mut Vec<u8>, request: Request, agreed: Agreed, number: i32) {
    match agreed.is_structured {
        true => {
            chunk(output, request, DONE, CHUNK_ERROR, 6);
            output.extend((number as u32).to_be_bytes());
            output.extend([0, 0]);
        }
        false => simple(output, request, number as u32),
    }
}

/// The error's number in the protocol, which has those of Linux, but only some.
fn number(error: &io::Error) -> i32 {
    match error.raw_os_error() {
        Some(number @ (libc::EPERM | libc::ENOMEM | libc::EINVAL | libc::ENOSPC)) => number,
        _ => libc::EIO,
    }
}
