//! Segments being received from nodes, as files that are deleted when dropped.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;

use crate::runner::RunnerError;

/// The segment of a job while it is received.
pub(crate) struct Incoming {
    segment: Segment,
    file: BufWriter<File>,
    hasher: crc32fast::Hasher,
    bytes: u64,
    /// Whether length and checksum match those sent.
    whole: bool,
    failure: Option<std::io::Error>,
}

/// The file of a segment; deleted when dropped.
pub(crate) struct Segment(PathBuf);

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Incoming {
    pub(crate) fn create(path: PathBuf) -> Result<Self, RunnerError> {
        let file = File::create(&path)
            .map_err(|source| RunnerError::Incoming { path: path.clone(), source })?;
        Ok(Self {
            segment: Segment(path),
            file: BufWriter::new(file),
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
            whole: false,
            failure: None,
        })
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        if self.failure.is_none() {
            self.failure = self.file.write_all(bytes).err();
        }
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn check(&mut self, bytes: u64, crc32: u32) {
        self.whole = bytes == self.bytes && crc32 == self.hasher.clone().finalize();
    }

    /// Returns the segment, or `None` if it is incomplete or damaged.
    pub(crate) fn finish(mut self) -> Result<Option<Segment>, RunnerError> {
        let flushed = self.file.flush();
        match self.failure.take().or(flushed.err()) {
            Some(source) => Err(RunnerError::Incoming { path: self.segment.0.clone(), source }),
            None => Ok(self.whole.then_some(self.segment)),
        }
    }
}

impl Segment {
    /// Opens the segment.
    pub(crate) fn open(&self) -> Result<BufReader<File>, RunnerError> {
        let file = File::open(&self.0)
            .map_err(|source| RunnerError::Incoming { path: self.0.clone(), source })?;
        Ok(BufReader::new(file))
    }
}
