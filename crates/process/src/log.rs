//! The log of a stage: bounded in size (head and tail are kept), and compressed when finished.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// How much of a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// How many of the first bytes are kept.
    pub head_bytes_max: u64,
    /// How many of the last bytes are kept, if the log exceeds the head.
    pub tail_bytes_max: usize,
}

impl Default for LogLimits {
    /// 32 MiB and 2 MiB. The largest build logs of a Debian release (LLVM, LibreOffice) fit into the head. A larger log
    /// is a flood, and its end is what matters.
    fn default() -> Self {
        LogLimits { head_bytes_max: 32 << 20, tail_bytes_max: 2 << 20 }
    }
}

/// The size of a finished log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// What the commands wrote.
    pub bytes_total: u64,
    /// How much of that is missing from the log.
    pub bytes_dropped: u64,
}

/// A log that is being written. Followers read the plain file; [`Log::finish`] replaces it with a compressed one.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: fs_err::File,
    limits: LogLimits,
    bytes_total: u64,
    tail: VecDeque<u8>,
}

impl Log {
    /// Creates the log file and its parent folders.
    pub fn create(path: &Path, limits: LogLimits) -> io::Result<Log> {
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let file = fs_err::File::create(path)?;
        Ok(Log { path: path.to_owned(), file, limits, bytes_total: 0, tail: VecDeque::new() })
    }

    /// Appends output. Beyond the head, only the last bytes are kept, in memory.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.limits.head_bytes_max.saturating_sub(self.bytes_total);
        let (head, rest) = bytes.split_at(bytes.len().min(room.try_into().unwrap_or(usize::MAX)));
        self.bytes_total += bytes.len() as u64;
        if !head.is_empty() {
            self.file.write_all(head)?;
        }
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.limits.tail_bytes_max);
        self.tail.drain(..excess);
        Ok(())
    }

    /// Writes the tail, compresses the log to `PATH.zst` and removes the plain file.
    pub fn finish(mut self) -> io::Result<LogFacts> {
        let head = self.bytes_total.min(self.limits.head_bytes_max);
        let bytes_dropped = self.bytes_total - head - self.tail.len() as u64;
        if bytes_dropped > 0 {
            let limit = self.limits.head_bytes_max;
            write!(self.file, "\n[kilnyard: {bytes_dropped} bytes after the first {limit} omitted]\n")?;
        }
        let (first, second) = self.tail.as_slices();
        self.file.write_all(first)?;
        self.file.write_all(second)?;
        compress(&self.path)?;
        Ok(LogFacts { bytes_total: self.bytes_total, bytes_dropped })
    }
}

fn compress(path: &Path) -> io::Result<()> {
    let (compressed, part) = (with_suffix(path, ".zst"), with_suffix(path, ".zst.part"));
    let mut encoder = zstd::Encoder::new(fs_err::File::create(&part)?, 3)?;
    io::copy(&mut fs_err::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs_err::rename(&part, &compressed)?;
    fs_err::remove_file(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Reads a log, compressed or still being written. Invalid UTF-8 is replaced.
pub fn read_log(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_log_from(path, 0)?).into_owned())
}

/// Reads a log without its first bytes, compressed or still being written.
pub fn read_log_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs_err::File::open(with_suffix(path, ".zst")) {
        Ok(file) => {
            let mut text = zstd::Decoder::new(file)?;
            io::copy(&mut text.by_ref().take(offset), &mut io::sink())?;
            text.read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut file = fs_err::File::open(path)?;
            file.seek(io::SeekFrom::Start(offset))?;
            file.read_to_end(&mut bytes)?;
        }
        Err(error) => return Err(error),
    };
    Ok(bytes)
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Log::write(self, bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(limits: LogLimits, pieces: &[&[u8]]) -> (String, LogFacts, PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/build.log");
        let mut log = Log::create(&path, limits).unwrap();
        for piece in pieces {
            log.write(piece).unwrap();
        }
        let facts = log.finish().unwrap();
        (read_log(&path).unwrap(), facts, path, folder)
    }

    #[test]
    fn a_short_log_is_kept_whole_and_compressed() {
        let (text, facts, path, _folder) = written(LogLimits::default(), &[b"one\n", b"t\xffwo\n"]);
        assert_eq!(text, "one\nt\u{fffd}wo\n");
        assert_eq!(facts, LogFacts { bytes_total: 9, bytes_dropped: 0 });
        assert!(!path.exists());
    }

    #[test]
    fn a_flood_keeps_head_and_tail() {
        let limits = LogLimits { head_bytes_max: 10, tail_bytes_max: 5 };
        let (text, facts, ..) = written(limits, &[b"0123456", b"789abcdefghij", b"klmn"]);
        assert!(text.starts_with("0123456789\n[kilnyard: 9 bytes"), "{text}");
        assert!(text.ends_with("]\njklmn"), "{text}");
        assert_eq!(facts, LogFacts { bytes_total: 24, bytes_dropped: 9 });
    }

    #[test]
    fn nothing_is_dropped_while_head_and_tail_suffice() {
        let limits = LogLimits { head_bytes_max: 4, tail_bytes_max: 4 };
        let (text, facts, ..) = written(limits, &[b"01234567"]);
        assert_eq!((text.as_str(), facts.bytes_dropped), ("01234567", 0));
    }
}
