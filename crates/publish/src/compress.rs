//! The compressed forms of an index.

use std::io::{self, Read};

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
            Self::Zstd => zstd::encode_all(text, ZSTD_LEVEL),
        }
    }
}
