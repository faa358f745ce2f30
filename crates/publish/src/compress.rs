//! The compressed forms of an index.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use liblzma::read::XzEncoder;
use liblzma::stream::{Check, Stream};

/// Preset 1 packs a package index to within a few percent of preset 6 in a tenth of the time.
const XZ_PRESET: u32 = 1;

/// zstd's own default; the file is for clients that want speed, and xz is there for those that want it small.
const ZSTD_LEVEL: i32 = 3;

/// How an index is stored, beside its plain text.
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

/// `text` as a zstd file.
pub(crate) fn zstd(text: &[u8]) -> io::Result<Vec<u8>> {
    zstd::encode_all(text, ZSTD_LEVEL)
}

/// gzip's own default.
const GZIP_LEVEL: u32 = 6;

/// What one thread packs at a time. The pieces are the same whatever the number of threads, and so is the result.
const PIECE_BYTES: usize = 2 << 20;

/// `text` as a gzip file of several members one after the other (RFC 1952, 2.2), packed by as many threads as there are
/// processors: gzip has no faster way, and every reader takes such a file for one.
pub(crate) fn gzip(text: &[u8]) -> io::Result<Vec<u8>> {
    let pieces = text.len().div_ceil(PIECE_BYTES).max(1);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(pieces);
    let share_bytes = pieces.div_ceil(threads) * PIECE_BYTES;
    thread::scope(|scope| {
        let workers: Vec<_> =
            text.chunks(share_bytes).map(|share| scope.spawn(move || gzip_members(share))).collect();
        // An empty text has no shares, and an empty member.
        let mut packed = if text.is_empty() { gzip_members(text)? } else { Vec::new() };
        for worker in workers {
            let broken = |_| io::Error::other("a thread that packs broke off");
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
