//! Messages that are compressed on their way: the content coding `zstd` of HTTP (RFC 8878), if the other side knows it.

use std::io::{self, Read};

/// The name of the coding.
pub const ZSTD: &str = "zstd";
/// The largest message, compressed or not: what `protocol` allows.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Messages up to this size are sent as they are: compressing them saves no packet.
const PLAIN_BYTES_MAX: usize = 1 << 10;
/// The level of zstd: a lease shrinks to a fifth at more than 100 MB/s.
const LEVEL: i32 = 3;
/// The largest window, as a power of two: 8 MiB, which is the limit of the coding (RFC 9659). Each window is memory.
const WINDOW_LOG_MAX: u32 = 23;

/// Why a compressed message cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It is larger than the limit.
    #[error("the message unpacks to more than {0} bytes")]
    TooLarge(usize),
    /// It is malformed, or needs too much memory.
    #[error("the message is not valid zstd: {0}")]
    Malformed(io::Error),
}

/// Compresses a message. Returns none if it is small, or if it would not shrink.
pub fn packed(message: &[u8]) -> Option<Vec<u8>> {
    if message.len() <= PLAIN_BYTES_MAX {
        return None;
    }
    zstd::bulk::compress(message, LEVEL).ok().filter(|packed| packed.len() < message.len())
}

/// Unpacks a message of at most `bytes_max` bytes, whatever its header says.
///
/// # Errors
/// See [`UnpackError`].
pub fn unpacked(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
    let unpack = || {
        let mut decoder = zstd::Decoder::with_buffer(packed)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        let mut message = Vec::new();
        decoder.take(bytes_max as u64 + 1).read_to_end(&mut message)?;
        Ok(message)
    };
    let message: Vec<u8> = unpack().map_err(UnpackError::Malformed)?;
    match message.len() <= bytes_max {
        true => Ok(message),
        false => Err(UnpackError::TooLarge(bytes_max)),
    }
}

/// Whether a list of codings (RFC 9110, 12.5.3) has this one.
pub fn is_accepted(list: &str) -> bool {
    list.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case(ZSTD) && weight.parse().is_ok_and(|weight: f32| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_small_or_random_ones_stay_as_they_are() {
        let message = b"message ".repeat(1000);
        let small = packed(&message).unwrap();
        assert!(small.len() < 100);
        assert_eq!(unpacked(&small, message.len()).unwrap(), message);
        assert!(packed(&message[..PLAIN_BYTES_MAX]).is_none());
        let mut random = [0; 4096];
        rand::RngCore::fill_bytes(&mut rand::rngs::OsRng, &mut random);
        assert!(packed(&random).is_none());
    }

    #[test]
    fn what_unpacks_to_more_than_its_limit_is_an_error() {
        let bomb = zstd::encode_all(io::repeat(0).take(9000), 1).unwrap();
        assert!(matches!(unpacked(&bomb, 8999), Err(UnpackError::TooLarge(_))));
        assert_eq!(unpacked(&bomb, 9000).unwrap().len(), 9000);
        // Several frames count together.
        let frames = [bomb.clone(), bomb].concat();
        assert!(matches!(unpacked(&frames, 17_999), Err(UnpackError::TooLarge(_))));
        for bad in [&b"no"[..], &frames[..frames.len() - 1], &[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff]] {
            assert!(matches!(unpacked(bad, 1 << 20), Err(UnpackError::Malformed(_))), "{bad:?}");
        }
        // A frame of a few bytes that wants a window of 128 MiB.
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01, 0x00, 0x00];
        assert!(matches!(unpacked(&wide, 1 << 20), Err(UnpackError::Malformed(_))));
        let narrow = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3, 0x01, 0x00, 0x00];
        assert_eq!(unpacked(&narrow, 1 << 20).unwrap(), b"");
    }

    #[test]
    fn lists_of_codings_are_read() {
        for list in ["zstd", "gzip, zstd", "ZSTD;q=0.5, br", "br,zstd; q=1"] {
            assert!(is_accepted(list), "{list}");
        }
        for list in ["", "gzip", "zstd;q=0", "zstd;q=0.0", "zstdx", "zstd;q=x"] {
            assert!(!is_accepted(list), "{list}");
        }
    }
}
