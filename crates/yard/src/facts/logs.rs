//! The logs of builds: whole, in parts, and as they grow.

use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, bring_log};
use kilnyard_model::order::Stage;
use kilnyard_model::sha256::Sha256Hex;
use kilnyard_store::BuildRow;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// A log that a build has or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The stage.
    pub stage: Stage,
    /// Its path in the yard, without the suffix of the compression.
    pub relative: String,
    /// The hash of the compressed file, once its stage has ended.
    pub sha256: Option<Sha256Hex>,
    /// Whether it is being written.
    pub is_open: bool,
}

/// The log of a stage; by default of the one that failed, else the one that is running, else the build stage.
pub fn log_of(yard: &Yard, build: &BuildRow, wanted: Option<Stage>) -> Option<Found> {
    let of = |stage: Stage| {
        let found = || {
            let result = build.stages.iter().rev().find(|result| result.stage == stage)?;
            let (relative, sha256) = (result.log.clone()?, result.log_sha256.clone());
            Some(Found { stage, relative, sha256, is_open: false })
        };
        // The log of a running stage comes before those of its parts.
        let open = yard.open_log(build, stage).filter(|_| build.ended_seconds.is_none());
        open.map(|relative| Found { stage, relative, sha256: None, is_open: true }).or_else(found)
    };
    if let Some(stage) = wanted {
        return of(stage);
    }
    let failed = build.failure.as_ref().and_then(|failure| of(failure.stage));
    failed.or_else(|| of(Stage::Build)).or_else(|| Stage::ALL.into_iter().rev().find_map(of))
}

/// Removes whole lines at the beginning of a text until it has at most this many bytes; returns their number.
fn drop_first(text: &mut Vec<u8>, bytes_max: usize) -> u64 {
    let excess = text.len().saturating_sub(bytes_max);
    if excess == 0 {
        return 0;
    }
    let end = text[excess..].iter().position(|byte| *byte == b'\n').map_or(excess, |end| excess + end + 1);
    let lines = text[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
    text.drain(..end);
    lines
}

/// A log on this machine.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// Finds the file of a log, and brings it here if another machine of the yard has it.
    ///
    /// # Errors
    /// It is nowhere.
    pub fn open(yard: &Yard, found: &Found) -> Result<Log> {
        let path = yard.path(&found.relative);
        let log = Log { path };
        if log.compressed().is_none() && !log.path.exists() {
            match &found.sha256 {
                Some(sha256) => bring_log(yard, &log.path, sha256)?,
                None => return Err(Error::usage("the log is not here: it may have been removed")),
            }
        }
        Ok(log)
    }

    /// The file of the compressed log (zstd), once its stage has ended.
    pub fn compressed(&self) -> Option<PathBuf> {
        let compressed = PathBuf::from(format!("{}.zst", self.path.display()));
        compressed.exists().then_some(compressed)
    }

    /// Its text from the byte `offset` on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn reader(&self, offset: u64) -> Result<Box<dyn Read + Send>> {
        let open = || -> std::io::Result<Box<dyn Read + Send>> {
            Ok(match self.compressed() {
                Some(path) => {
                    let mut text = zstd::Decoder::new(fs_err::File::open(path)?)?;
                    std::io::copy(&mut text.by_ref().take(offset), &mut std::io::sink())?;
                    Box::new(text)
                }
                None => {
                    let mut file = fs_err::File::open(&self.path)?;
                    file.seek(SeekFrom::Start(offset))?;
                    Box::new(file)
                }
            })
        };
        open().context(Kind::Machine, "read the log")
    }

    /// The end of its text, at most this many bytes; the number of lines before that; and the size of the whole text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn end(&self, bytes_max: usize) -> Result<(Vec<u8>, u64, u64)> {
        let failed = "read the log";
        let mut reader = self.reader(0)?;
        let (mut kept, mut lines, mut size) = (Vec::new(), 0, 0);
        let mut piece = vec![0; 256 << 10];
        loop {
            let count = reader.read(&mut piece).context(Kind::Machine, failed)?;
            if count == 0 {
                break;
            }
            size += count as u64;
            kept.extend_from_slice(&piece[..count]);
            // Now and then, so that it is moved seldom.
            if kept.len() > bytes_max * 2 {
                lines += drop_first(&mut kept, bytes_max);
            }
        }
        lines += drop_first(&mut kept, bytes_max);
        Ok((kept, lines, size))
    }
}
