//! Holds samples for the controller in an unnamed file, which disappears with the process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use dwell_protocol::MAX_SEGMENT_LEN;

/// A spool of at most [`MAX_SEGMENT_LEN`] bytes; further writes fail. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Spool(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    file: File,
    len: u64,
}

impl Spool {
    pub(super) fn new() -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        Ok(Self(Arc::new(Mutex::new(Inner { file, len: 0 }))))
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.lock().len
    }

    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.lock();
        if inner.len + bytes.len() as u64 > MAX_SEGMENT_LEN {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the spool is full"));
        }
        let written = inner.file.write(bytes)?;
        inner.len += written as u64;
        Ok(written)
    }

    /// Passes at most `len` bytes from offset `from` to `each`, in chunks of at most `piece` bytes.
    pub(super) fn read(
        &self,
        from: u64,
        len: u64,
        piece: usize,
        each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut inner = self.lock();
        inner.file.seek(SeekFrom::Start(from))?;
        let mut part = Read::by_ref(&mut inner.file).take(len);
        let mut buffer = vec![0; piece];
        loop {
            match part.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => each(&buffer[..len])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
