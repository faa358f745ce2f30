//! Compressed forms of indexes.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use liblzma::read::XzEncoder;
use liblzma::stream::{Check, Stream};

/// Preset 1 comes within a few percent of preset 6 for a package index, in a tenth of the time.
const XZ_PRESET: u32 = 1;

/// zstd's default: this form is for clients that want speed, xz for those that want small files.
const ZSTD_LEVEL: i32 = 3;

/// A compressed form of an index, stored in addition to the plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Xz,
    Zstd,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::Xz, Self::Zstd];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Xz => "xz",
            Self::Zstd => "zst",
        }
    }

    pub(crate) fn compress(self, text: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Xz => {
                let mut packed = Vec::new();
                let stream = Stream::new_easy_encoder(XZ_PRESET, Check::Crc64)?;
                XzEncoder::new_stream(text, stream).read_to_end(&mut packed)?;
                Ok(packed)
            }
            Self::Zstd => zstd(text),
        }
    }
}

/// Compresses `text` as a zstd file.
pub(crate) fn zstd(text: &[u8]) -> io::Result<Vec<u8>> {
    zstd::encode_all(text, ZSTD_LEVEL)
}

/// gzip's default.
const GZIP_LEVEL: u32 = 6;

/// Size of a gzip member. It does not depend on the number of threads, so neither does the result.
const PIECE_BYTES: usize = 2 << 20;

/// Compresses `text` as a gzip file of several members (RFC 1952, 2.2), with one thread per processor. gzip has
/// no faster way, and every reader treats such a file as one stream.
pub(crate) fn gzip(text: &[u8]) -> io::Result<Vec<u8>> {
    let pieces = text.len().div_ceil(PIECE_BYTES).max(1);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(pieces);
    let share_bytes = pieces.div_ceil(threads) * PIECE_BYTES;
    thread::scope(|scope| {
        let workers: Vec<_> =
            text.chunks(share_bytes).map(|share| scope.spawn(move || gzip_members(share))).collect();
        // An empty text has no shares, but needs one empty member.
        let mut packed = if text.is_empty() { gzip_members(text)? } else { Vec::new() };
        for worker in workers {
            let broken = |_| io::Error::other("a compression thread panicked");
            packed.extend(worker.join().map_err(broken)??);
        }
        Ok(packed)
    })
}

fn gzip_members(share: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    let mut rest = share;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(PIECE_BYTES));
        let mut encoder = GzEncoder::new(packed, Compression::new(GZIP_LEVEL));
        encoder.write_all(piece)?;
        packed = encoder.finish()?;
        if after.is_empty() {
            return Ok(packed);
        }
        rest = after;
    }
}
