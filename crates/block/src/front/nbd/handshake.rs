//! The negotiation of a connection.

use super::stream::Stream;
use super::{PATIENCE, broken};
use crate::Disk;
use crate::disk::BLOCK_BYTES;
use std::io;
use std::time::Instant;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_FLAG_FIXED_NEWSTYLE`, `NBD_FLAG_NO_ZEROES`; the client's flags have the same bits.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const ERR_UNSUPPORTED: u32 = 1 << 31 | 1;
const ERR_INVALID: u32 = 1 << 31 | 3;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// The longest option: a name of 4,096 bytes and more than one context.
const OPTION_BYTES_MAX: u32 = 16 << 10;
/// The options of one connection.
const OPTIONS_MAX: usize = 1000;
/// The longest request: what fits into the buffers of a connection, of which there may be many.
pub(super) const REQUEST_BYTES_MAX: u32 = 4 << 20;
/// The context for the places of the device that are in use.
const CONTEXT: &[u8] = b"base:allocation";
/// Its number.
pub(super) const CONTEXT_NUMBER: u32 = 1;

/// `NBD_FLAG_HAS_FLAGS`, and flushes, forced writes, trim, zeroes, whole replies, several connections, fast zeroes.
const FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 11;
/// `NBD_FLAG_HAS_FLAGS`, and read-only, whole replies, several connections.
const READ_ONLY_FLAGS: u16 = 1 | 1 << 1 | 1 << 7 | 1 << 8;

/// What a client and this server agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreed {
    pub(super) is_structured: bool,
    /// Whether it may ask for the places that are in use.
    pub(super) has_context: bool,
}

/// Negotiates; `None` if the client left.
pub(super) fn agree(stream: &mut Stream, disk: &Disk) -> io::Result<Option<Agreed>> {
    let size_bytes = disk.size_bytes();
    let flags = if disk.is_read_only() { READ_ONLY_FLAGS } else { FLAGS };
    stream.output.extend(MAGIC.to_be_bytes());
    stream.output.extend(OPTION_MAGIC.to_be_bytes());
    stream.output.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    let client = u32::from_be_bytes(stream.take()?);
    if client & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(broken("unknown flags"));
    }
    let has_zeroes = client & u32::from(NO_ZEROES) == 0;
    let mut agreed = Agreed::default();
    let until = Instant::now() + PATIENCE;
    for _ in 0..OPTIONS_MAX {
        if Instant::now() > until {
            return Err(broken("a slow handshake"));
        }
        if u64::from_be_bytes(stream.take()?) != OPTION_MAGIC {
            return Err(broken("no option"));
        }
        let option = u32::from_be_bytes(stream.take()?);
        let bytes = u32::from_be_bytes(stream.take()?);
        if bytes > OPTION_BYTES_MAX {
            return Err(broken("a long option"));
        }
        stream.need(bytes as usize)?;
        let (data, output) = stream.next(bytes as usize);
        let mut reply = |kind: u32, data: &[u8]| answer(output, option, kind, data);
        match option {
            EXPORT_NAME => {
                output.extend(size_bytes.to_be_bytes());
                output.extend(flags.to_be_bytes());
                output.extend([0; 124].iter().filter(|_| has_zeroes));
                return Ok(Some(agreed));
            }
            ABORT => {
                reply(ACK, &[]);
                // It may have left already.
                let _ = stream.flush();
                return Ok(None);
            }
            LIST if data.is_empty() => {
                // One export, without a name.
                reply(SERVER, &0u32.to_be_bytes());
                reply(ACK, &[]);
            }
            INFO | GO => match information(data) {
                Some(wants_sizes) => {
                    let mut export = INFO_EXPORT.to_be_bytes().to_vec();
                    export.extend(size_bytes.to_be_bytes());
                    export.extend(flags.to_be_bytes());
                    reply(REPLY_INFO, &export);
                    if wants_sizes {
                        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                        for size in [1, BLOCK_BYTES as u32, REQUEST_BYTES_MAX] {
                            sizes.extend(size.to_be_bytes());
                        }
                        reply(REPLY_INFO, &sizes);
                    }
                    reply(ACK, &[]);
                    if option == GO {
                        return Ok(Some(agreed));
                    }
                }
                None => reply(ERR_INVALID, b"no name, or no list of information"),
            },
            STRUCTURED_REPLY if data.is_empty() => {
                agreed.is_structured = true;
                reply(ACK, &[]);
            }
            LIST_META_CONTEXT | SET_META_CONTEXT => match queries(data) {
                Some(queries) if agreed.is_structured => {
                    let is_list = option == LIST_META_CONTEXT;
                    let is_wanted = is_list && queries.is_empty()
                        || queries.iter().any(|query| *query == CONTEXT || is_list && *query == b"base:");
                    if is_wanted {
                        let number = if is_list { 0 } else { CONTEXT_NUMBER };
                        reply(META_CONTEXT, &[&number.to_be_bytes(), CONTEXT].concat());
                    }
                    if !is_list {
                        agreed.has_context = is_wanted;
                    }
                    reply(ACK, &[]);
                }
                _ => reply(ERR_INVALID, b"no list of contexts, or no structured replies"),
            },
            LIST | STRUCTURED_REPLY => reply(ERR_INVALID, b"data that was not expected"),
            _ => reply(ERR_UNSUPPORTED, &[]),
        }
    }
    Err(broken("too many options"))
}

fn answer(output: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    output.extend(REPLY_MAGIC.to_be_bytes());
    output.extend(option.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend((data.len() as u32).to_be_bytes());
    output.extend(data);
}

/// Splits off a string with its length before it.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// Whether a request for information is well-formed, and whether it asks for the sizes of blocks. Any name is the device.
fn information(data: &[u8]) -> Option<bool> {
    let (_, rest) = string(data)?;
    let (count, rest) = rest.split_first_chunk()?;
    if rest.len() != usize::from(u16::from_be_bytes(*count)) * 2 {
        return None;
    }
    Some(rest.chunks_exact(2).any(|kind| kind == INFO_BLOCK_SIZE.to_be_bytes()))
}

/// The contexts that are asked for.
fn queries(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, rest) = string(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, left) = string(rest)?;
        queries.push(query);
        rest = left;
    }
    rest.is_empty().then_some(queries)
}
