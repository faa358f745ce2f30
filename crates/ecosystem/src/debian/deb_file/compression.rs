//! From a compressed member to its bytes, within bounds of memory and length.

use std::io::{self, BufRead, BufReader, Read};

use super::DebProblem;

/// Decoder memory for xz. `xz -9` needs 65 MiB; the package tools' own default needs 9 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Window for zstd: 2^27 bytes is what the reference decoder accepts by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How a member is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

/// The compression of the member `name`, which must be `stem` with one of the known suffixes.
pub(super) fn from_member_name(name: &str, stem: &'static str) -> Result<Compression, DebProblem> {
    let Some(suffix) = name.strip_prefix(stem) else {
        return Err(DebProblem::UnexpectedMember {
            found: name.to_owned(),
            expected: stem,
        });
    };
    match suffix {
        "" => Ok(Compression::None),
        ".gz" => Ok(Compression::Gzip),
        ".xz" => Ok(Compression::Xz),
        ".zst" => Ok(Compression::Zstd),
        _ => Err(DebProblem::UnsupportedCompression {
            member: name.to_owned(),
        }),
    }
}

/// A reader of the decompressed bytes that fails past `limit_bytes`.
pub(super) fn decompress<'a>(
    member: &'a mut dyn Read,
    compression: Compression,
    limit_bytes: u64,
) -> io::Result<Bounded<'a>> {
    let mut member = BufReader::with_capacity(64 << 10, member);
    // An empty member holds no stream; some decoders would call that a clean end.
    if compression != Compression::None && member.fill_buf()?.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let inner: Box<dyn Read + 'a> = match compression {
        Compression::None => Box::new(member),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(member)),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(
                XZ_MEMORY_BYTES_MAX,
                liblzma::stream::CONCATENATED,
            )?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(member, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(member)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    };
    Ok(Bounded {
        inner,
        left_bytes: limit_bytes,
        limit_bytes,
    })
}

/// Fails, instead of ending, when more than the limit comes.
pub(super) struct Bounded<'a> {
    inner: Box<dyn Read + 'a>,
    left_bytes: u64,
    limit_bytes: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left_bytes = self.left_bytes.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!(
                    "it unpacks to more than the limit of {} bytes",
                    self.limit_bytes
                ),
            )
        })?;
        Ok(count)
    }
}
