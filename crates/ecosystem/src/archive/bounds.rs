//! Limits on the unpacked size of a build's outputs.

use std::error::Error;
use std::io;

/// Limits on one output. Published packages are unpacked by other machines, and by later builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBounds {
    /// Total size of the unpacked archive.
    pub unpacked_bytes_max: u64,
    /// Number of entries in the archive.
    pub files_max: usize,
}

impl OutputBounds {
    /// The hard upper limits. The largest real packages (compilers for graphics cards, game data) unpack to under
    /// 10 GiB; those with the most files have about 200,000, and a reader keeps their names in memory.
    pub const WIDEST: OutputBounds = OutputBounds { unpacked_bytes_max: 64 << 30, files_max: 1_000_000 };
}

/// Formats an error from reading an output with all its causes. If a limit was exceeded, names the configuration key
/// that raises it.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    let mut key = None;
    while let Some(cause) = next {
        let is_too_large = |error: &io::Error| error.kind() == io::ErrorKind::FileTooLarge;
        if cause.downcast_ref::<io::Error>().is_some_and(is_too_large) {
            key = Some("unpacked");
        }
        // A transparent error replaces the error that it wraps in the chain.
        if cause.to_string().starts_with(&format!("its {} is over", super::contents::FILES)) {
            key = Some("unpacked-files");
        }
        next = cause.source();
        if let Some(cause) = next {
            let cause = cause.to_string();
            // A transparent error repeats the text of its cause.
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
        }
    }
    key.map_or(text.clone(), |key| format!("{text} (`{key}` of [limits])"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{ArchiveProblem, contents::FILES};

    #[test]
    fn a_refusal_names_the_key_that_allows_more() {
        let source = io::Error::new(io::ErrorKind::FileTooLarge, "it unpacks to more than that");
        let said = refusal(&ArchiveProblem::Content { member: "data archive", source });
        assert!(said.ends_with(": it unpacks to more than that (`unpacked` of [limits])"), "{said}");
        let said = refusal(&ArchiveProblem::TooLarge { what: FILES, limit: 7 });
        assert_eq!(said, "its number of files is over the limit of 7 (`unpacked-files` of [limits])");
        let said = refusal(&ArchiveProblem::TooLarge { what: "list of paths", limit: 7 });
        assert_eq!(said, "its list of paths is over the limit of 7");
    }
}
