//! Where samples wait for the controller: a file without a name, so that nothing stays behind
//! however the process ends.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The most that a spool takes; what comes after is counted as a failure to write.
const MOST: u64 = 4 << 30;

/// A spool; clones are the same spool.
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

    /// Bytes in it.
    pub(super) fn len(&self) -> u64 {
        self.lock().len
    }

    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.lock();
        if inner.len + bytes.len() as u64 > MOST {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the spool is full"));
        }
        let written = inner.file.write(bytes)?;
        inner.len += written as u64;
        Ok(written)
    }

    /// Hands over all of it in pieces.
    pub(super) fn read(
        &self,
        piece: usize,
        each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut inner = self.lock();
        inner.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; piece];
        loop {
            match inner.file.read(&mut buffer) {
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
