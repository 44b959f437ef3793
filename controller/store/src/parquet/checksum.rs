//! Checksums of whole files. The Parquet pages have no checksums here, and a flipped bit would be
//! read as a delay.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use super::general;
use crate::error::StoreError;

/// Bytes read or written at once.
const BUFFER_LEN: usize = 1 << 18;

/// A file and the checksum of the data written to it.
pub(super) struct ChecksumWriter {
    file: BufWriter<File>,
    hasher: crc32fast::Hasher,
}

impl ChecksumWriter {
    pub(super) fn new(file: File) -> Self {
        let file = BufWriter::with_capacity(BUFFER_LEN, file);
        Self { file, hasher: crc32fast::Hasher::new() }
    }

    /// Flushes the file to disk and returns the checksum.
    pub(super) fn finish(self) -> std::io::Result<u32> {
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(self.hasher.finalize())
    }
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Verifies the checksum of the file at `path`. All cores read parts of it, and their checksums are
/// combined.
pub(crate) fn verify(path: &Path, crc32: u32) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::file("open", path))?;
    let len = file.metadata().map_err(StoreError::file("read", path))?.len();
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = threads.min(len / BUFFER_LEN as u64).max(1);
    let part_sum = |number: u64| {
        let to = |number: u64| (u128::from(len) * u128::from(number) / u128::from(threads)) as u64;
        sum(&file, to(number)..to(number + 1))
    };
    let sums = thread::scope(|scope| {
        let part_sum = &part_sum;
        let others: Vec<_> =
            (1..threads).map(|number| scope.spawn(move || part_sum(number))).collect();
        let first = part_sum(0);
        let others = others.into_iter().map(|other| match other.join() {
            Ok(sum) => sum,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(first).chain(others).collect::<std::io::Result<Vec<_>>>()
    });
    let mut all = crc32fast::Hasher::new();
    sums.map_err(StoreError::file("read", path))?.iter().for_each(|sum| all.combine(sum));
    if all.finalize() == crc32 {
        return Ok(());
    }
    let source = general("the checksum does not match");
    Err(StoreError::Samples { what: "read", path: path.to_owned(), source })
}

/// Returns the checksum of a range of bytes; of fewer bytes if the file became shorter.
pub(super) fn sum(file: &File, bytes: Range<u64>) -> std::io::Result<crc32fast::Hasher> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; BUFFER_LEN];
    let mut at = bytes.start;
    while at < bytes.end {
        let wanted = (bytes.end - at).min(BUFFER_LEN as u64) as usize;
        match file.read_at(&mut buffer[..wanted], at) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_checksum_detects_any_flipped_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.parquet");
        for len in [
            0,
            1,
            BUFFER_LEN - 1,
            BUFFER_LEN,
            2 * BUFFER_LEN,
            2 * BUFFER_LEN + 1,
            5 * BUFFER_LEN + 12_345,
        ] {
            let mut bytes: Vec<_> = (0..len).map(|at| (at * at % 251) as u8).collect();
            let whole = crc32fast::hash(&bytes);
            std::fs::write(&path, &bytes).unwrap();
            verify(&path, whole).unwrap();
            for place in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|_| len > 0) {
                bytes[place] ^= 1;
                std::fs::write(&path, &bytes).unwrap();
                assert!(verify(&path, whole).is_err(), "{len} {place}");
                bytes[place] ^= 1;
            }
            bytes.push(0);
            std::fs::write(&path, &bytes).unwrap();
            assert!(verify(&path, whole).is_err(), "one byte more than {len}");
        }
    }
}
