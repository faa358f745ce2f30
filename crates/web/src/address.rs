//! Turns the path of a log into the target of a link.

use std::fmt::Write;

/// No file system accepts longer paths.
const PATH_BYTES_MAX: usize = 4096;

/// Converts a path relative to the page to a link target. Absent if the path cannot be linked to. Every byte
/// that is not plainly part of a path is percent-encoded, so a path can become neither a scheme
/// (`javascript:`), nor a host (`//host`), nor a query or fragment.
pub(crate) fn relative(path: &str) -> Option<String> {
    if path.is_empty() || path.starts_with('/') || path.len() > PATH_BYTES_MAX {
        return None;
    }
    Some(encoded(path))
}

/// A text as part of an address. Slashes stay.
pub fn encoded(text: &str) -> String {
    let mut target = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                target.push(byte as char)
            }
            // Writing to a string cannot fail.
            _ => _ = write!(target, "%{byte:02X}"),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_stay_and_odd_ones_are_encoded() {
        assert_eq!(relative("logs/zlib/build.log").unwrap(), "logs/zlib/build.log");
        assert_eq!(relative("../logs/g++_1.2~rc1").unwrap(), "../logs/g%2B%2B_1.2~rc1");
        assert_eq!(relative("a b/ä?#%").unwrap(), "a%20b/%C3%A4%3F%23%25");
    }

    #[test]
    fn paths_cannot_become_schemes_or_hosts() {
        assert_eq!(relative("javascript:alert(1)").unwrap(), "javascript%3Aalert%281%29");
        assert_eq!(relative("\\\\host\\x").unwrap(), "%5C%5Chost%5Cx");
        assert_eq!(relative("java\nscript:x").unwrap(), "java%0Ascript%3Ax");
        assert_eq!(relative("//host/x"), None);
        assert_eq!(relative("/etc/passwd"), None);
        assert_eq!(relative(""), None);
    }
}
