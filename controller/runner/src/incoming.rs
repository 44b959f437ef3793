//! Segments being received from nodes, as files that are deleted when dropped.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;

use dwell_protocol::{MAX_PULL_LEN, MAX_SEGMENT_LEN};

use crate::runner::RunnerError;

/// The segment of a job while it is received.
pub(crate) struct Incoming {
    segment: Segment,
    file: BufWriter<File>,
    /// Length of the verified parts in bytes.
    verified: u64,
    /// Checksum and length of the current part.
    hasher: crc32fast::Hasher,
    part_len: u64,
    /// Whether a damaged part was requested again.
    repeated: bool,
    /// Whether all parts were verified.
    whole: bool,
    failure: Option<std::io::Error>,
}

/// A part of a segment as the node sent it.
pub(crate) struct Part {
    /// Offset in bytes.
    pub(crate) from: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
    /// Length of the segment after the part in bytes.
    pub(crate) left: u64,
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
            verified: 0,
            hasher: crc32fast::Hasher::new(),
            part_len: 0,
            repeated: false,
            whole: false,
            failure: None,
        })
    }

    /// Adds bytes to the current part. Returns `false`, without adding them, if the part would be longer
    /// than was requested, or the segment longer than a node keeps.
    #[must_use]
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let part_len = self.part_len + bytes.len() as u64;
        if part_len > MAX_PULL_LEN || self.verified + part_len > MAX_SEGMENT_LEN {
            return false;
        }
        self.hasher.update(bytes);
        self.part_len = part_len;
        if self.failure.is_none() {
            self.failure = self.file.write_all(bytes).err();
        }
        true
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.verified + self.part_len
    }

    /// Ends a part. Returns the offset of the part to request next: the following one, or the same one
    /// if it is damaged for the first time; `None` at the end.
    pub(crate) fn end_part(&mut self, part: &Part) -> Option<u64> {
        let len = std::mem::take(&mut self.part_len);
        let crc32 = std::mem::take(&mut self.hasher).finalize();
        let is_intact = (part.from, part.bytes, part.crc32) == (self.verified, len, crc32);
        if is_intact && part.left == 0 {
            self.verified += len;
            self.whole = true;
            return None;
        }
        if is_intact && len > 0 {
            self.verified += len;
            return Some(self.verified);
        }
        if std::mem::replace(&mut self.repeated, true) {
            return None;
        }
        let cut = self.cut();
        self.failure = self.failure.take().or(cut.err());
        Some(self.verified)
    }

    /// Removes what follows the verified parts.
    fn cut(&mut self) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(self.verified))?;
        self.file.get_ref().set_len(self.verified)
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn part(from: u64, bytes: &[u8], left: u64) -> Part {
        Part { from, bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes), left }
    }

    #[test]
    fn segment_is_not_longer_than_a_node_keeps() {
        let dir = tempfile::tempdir().unwrap();
        let mut incoming = Incoming::create(dir.path().join("x")).unwrap();
        incoming.verified = MAX_SEGMENT_LEN - 2;
        assert!(!incoming.take(b"abc"));
        assert!(incoming.take(b"ab") && !incoming.take(b"c"));
    }

    #[test]
    fn damaged_part_is_requested_once_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut incoming = Incoming::create(dir.path().join("x")).unwrap();
        assert!(incoming.take(b"abc"));
        assert_eq!(incoming.end_part(&part(0, b"abc", 4)), Some(3));
        assert!(incoming.take(b"dxfg"));
        assert_eq!(incoming.bytes(), 7);
        assert_eq!(incoming.end_part(&part(3, b"defg", 0)), Some(3));
        assert!(incoming.take(b"defg"));
        assert_eq!(incoming.end_part(&part(3, b"defg", 0)), None);
        let segment = incoming.finish().unwrap().unwrap();
        let mut text = String::new();
        segment.open().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcdefg");
    }

    #[test]
    fn part_is_no_longer_than_requested() {
        let dir = tempfile::tempdir().unwrap();
        let mut incoming = Incoming::create(dir.path().join("x")).unwrap();
        let whole = vec![7; MAX_PULL_LEN as usize];
        assert!(incoming.take(&whole));
        assert!(!incoming.take(b"x"));
        assert_eq!(incoming.bytes(), MAX_PULL_LEN);
        assert_eq!(incoming.end_part(&part(0, &whole, 1)), Some(MAX_PULL_LEN));
        assert!(incoming.take(b"x"), "a part of its own");
    }

    #[test]
    fn part_damaged_twice_ends_the_transfer() {
        let dir = tempfile::tempdir().unwrap();
        let mut incoming = Incoming::create(dir.path().join("x")).unwrap();
        for expected in [Some(0), None] {
            assert!(incoming.take(b"ab"));
            assert_eq!(incoming.end_part(&part(0, b"abc", 0)), expected);
        }
        assert!(incoming.finish().unwrap().is_none());
        // A node that sends nothing is not asked forever.
        let mut incoming = Incoming::create(dir.path().join("y")).unwrap();
        let empty = part(0, b"", 9);
        assert_eq!((incoming.end_part(&empty), incoming.end_part(&empty)), (Some(0), None));
    }
}
