//! Files that may be packed: plain, gzip or zstd, told apart by what they begin with.

use std::io::{self, Read};
use std::path::Path;

/// The largest file that is read, unpacked: some twenty times the scan of the whole of pkgsrc.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;

/// Reads a file, or standard input where it is called `-`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(fs_err::File::open(path)?),
    };
    let mut text = Vec::new();
    (&mut file).take(4).read_to_end(&mut text)?;
    let packed = io::Cursor::new(text.clone()).chain(file);
    let mut unpacked: Box<dyn Read> = match text[..] {
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(packed)?),
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        _ => Box::new(packed),
    };
    text.clear();
    if unpacked.by_ref().take(UNPACKED_BYTES_MAX).read_to_end(&mut text)? as u64 == UNPACKED_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {UNPACKED_BYTES_MAX} bytes")));
    }
    Ok(text)
}
