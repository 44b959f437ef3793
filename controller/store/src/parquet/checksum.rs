//! The checksum of a whole file: pages of Parquet have none here, and a flipped bit in one would
//! pass for a delay.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use parquet::errors::ParquetError;

use crate::error::StoreError;

/// Bytes that are read or written at once.
const BUFFER: usize = 1 << 18;

/// A file and the checksum of what was written to it.
pub(super) struct Summed {
    file: BufWriter<File>,
    hasher: crc32fast::Hasher,
}

impl Summed {
    pub(super) fn new(file: File) -> Self {
        let file = BufWriter::with_capacity(BUFFER, file);
        Self { file, hasher: crc32fast::Hasher::new() }
    }

    /// Puts all on the disk; returns the checksum.
    pub(super) fn finish(self) -> std::io::Result<u32> {
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(self.hasher.finalize())
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Whether the file at `path` is the one that was written.
pub(crate) fn verify(path: &Path, crc32: u32) -> Result<(), StoreError> {
    let mut file = File::open(path).map_err(StoreError::file("open", path))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => hasher.update(&buffer[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StoreError::file("read", path)(error)),
        }
    }
    if hasher.finalize() == crc32 {
        return Ok(());
    }
    let source = ParquetError::General("the file is not the one that was written".to_owned());
    Err(StoreError::Samples { what: "read", path: path.to_owned(), source })
}
