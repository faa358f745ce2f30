//! Decompression within limits on memory and length.

use std::io::{self, BufRead, BufReader, Read};

/// Memory limit of the xz decoder. `xz -9` needs 65 MiB; the package tools' default needs 9 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Window limit for zstd: 2^27 bytes, which the reference decoder accepts by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip, possibly several concatenated members.
    Gzip,
    /// xz, possibly several concatenated streams.
    Xz,
    /// zstd.
    Zstd,
}

impl Compression {
    /// The compression that a file name suffix such as `.gz` stands for; `None` if it is not supported.
    pub fn of_suffix(suffix: &str) -> Option<Self> {
        match suffix {
            "" => Some(Self::None),
            ".gz" => Some(Self::Gzip),
            ".xz" => Some(Self::Xz),
            ".zst" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Detects the compression from the first bytes of a file. Anything that matches no supported format is taken
    /// for an uncompressed archive; the reader finds out.
    pub(crate) fn of_magic(begin: &[u8]) -> Self {
        match begin {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// A reader of the decompressed bytes that fails after `limit_bytes`.
pub fn decompress<'a>(
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
    Ok(Bounded { inner, left_bytes: limit_bytes, limit_bytes })
}

/// A reader that fails, rather than ending early, when its source exceeds the limit.
pub struct Bounded<'a> {
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
                format!("it unpacks to more than the limit of {} bytes", self.limit_bytes),
            )
        })?;
        Ok(count)
    }
}
