//! Parquet files that contain their own checksum, because no row of the catalogue names it. It
//! follows the first four bytes of the file, where Parquet readers do not look.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::reader::SerializedFileReader;
use parquet::schema::types::TypePtr;

use super::checksum::sum;
use super::general;
use super::partial::PartialFile;
use crate::error::StoreError;

/// Position of the file's CRC-32 (IEEE, little-endian), which is computed with zeros in its place.
const CHECKSUM_AT: u64 = 4;

const CHECKSUM_LEN: usize = 4;

/// Creates a file with space for its checksum.
pub(super) fn create(
    file: &mut PartialFile,
    layout: Result<(TypePtr, WriterPropertiesPtr), ParquetError>,
) -> Result<(), StoreError> {
    file.create(layout)?;
    file.write(|writer| Ok(writer.write_all(&[0; CHECKSUM_LEN])?))
}

/// Finishes a file. If it was not created, an existing one of its name is removed.
pub(super) fn finish(file: PartialFile) -> Result<(), StoreError> {
    if !file.is_created() {
        return remove(file.path());
    }
    file.finish(write_checksum).map(drop)
}

/// Passes a reader of the file at `path` to `rows`, after its checksum was verified: the Parquet
/// reader does not validate its input.
pub(super) fn read(
    path: &Path,
    rows: &mut dyn FnMut(&SerializedFileReader<File>) -> Result<(), ParquetError>,
) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::file("open", path))?;
    let failed = |source| StoreError::Samples { what: "read", path: path.to_owned(), source };
    if !is_intact(&file).map_err(StoreError::file("read", path))? {
        return Err(failed(general("the checksum does not match")));
    }
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    rows(&reader).map_err(failed)
}

/// Removes a file if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::file("delete", path)(error))
        }
        _ => Ok(()),
    }
}

/// Writes the checksum into its place.
fn write_checksum(path: &Path, crc32: u32) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&crc32.to_le_bytes(), CHECKSUM_AT)?;
    file.sync_all()
}

/// Verifies the checksum.
fn is_intact(file: &File) -> io::Result<bool> {
    let after = CHECKSUM_AT + CHECKSUM_LEN as u64;
    let len = file.metadata()?.len();
    if len < after {
        return Ok(false);
    }
    let mut stored = [0; CHECKSUM_LEN];
    file.read_exact_at(&mut stored, CHECKSUM_AT)?;
    let mut hasher = sum(file, 0..CHECKSUM_AT)?;
    hasher.update(&[0; CHECKSUM_LEN]);
    hasher.combine(&sum(file, after..len)?);
    Ok(hasher.finalize().to_le_bytes() == stored)
}
