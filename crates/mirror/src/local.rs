//! `file` URLs: mirrors on a local disk.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::AttemptError;

/// The path of a `file` URL; `None` for any other URL.
pub(crate) fn path_of(url: &str) -> Option<Result<PathBuf, AttemptError>> {
    let rest = url.strip_prefix("file:")?;
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
    };
    if !path.starts_with('/') {
        return Some(Err(AttemptError::BadUrl {
            reason: "a file URL needs an absolute path on this machine".to_owned(),
        }));
    }
    Some(decode(path).ok_or_else(|| AttemptError::BadUrl {
        reason: "a percent sign is not followed by two hexadecimal digits".to_owned(),
    }))
}

/// Opens a regular file and returns its size. Anything else (a pipe, a device) might never end.
pub(crate) fn open(path: &Path) -> Result<(File, u64), AttemptError> {
    let fail = |reason: String| AttemptError::LocalFile { reason };
    let is_file = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?.is_file();
    if !is_file {
        return Err(fail("it is not a regular file".to_owned()));
    }
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let size_bytes = file.metadata().map_err(|error| fail(error.to_string()))?.len();
    Ok((file, size_bytes))
}

fn decode(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            byte => byte,
        });
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        for (url, path) in
            [("file:///a/b", "/a/b"), ("file://localhost/a", "/a"), ("file:/a%20b%2Fc", "/a b/c")]
        {
            assert_eq!(path_of(url).unwrap().unwrap(), Path::new(path));
        }
        for url in ["file://host/a", "file:a", "file:///a%2", "file:///a%zz"] {
            assert!(path_of(url).unwrap().is_err(), "{url}");
        }
        assert!(path_of("http://a/b").is_none());
    }
}
