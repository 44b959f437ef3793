//! Segments on their way from nodes: files that are there as long as somebody wants them.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;

use crate::runner::RunnerError;

/// The segment of a job, on its way.
pub(crate) struct Incoming {
    segment: Segment,
    file: BufWriter<File>,
    hasher: crc32fast::Hasher,
    bytes: u64,
    /// What was sent is what came.
    whole: bool,
    failure: Option<std::io::Error>,
}

/// The file of a segment, there as long as somebody wants it.
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

    pub(crate) fn check(&mut self, bytes: u64, crc32: u32) {
        self.whole = bytes == self.bytes && crc32 == self.hasher.clone().finalize();
    }

    /// `None` when it did not come whole.
    pub(crate) fn finish(mut self) -> Result<Option<Segment>, RunnerError> {
        let flushed = self.file.flush();
        match self.failure.take().or(flushed.err()) {
            Some(source) => Err(RunnerError::Incoming { path: self.segment.0.clone(), source }),
            None => Ok(self.whole.then_some(self.segment)),
        }
    }
}

impl Segment {
    /// What is in it.
    pub(crate) fn open(&self) -> Result<BufReader<File>, RunnerError> {
        let file = File::open(&self.0)
            .map_err(|source| RunnerError::Incoming { path: self.0.clone(), source })?;
        Ok(BufReader::new(file))
    }
}
