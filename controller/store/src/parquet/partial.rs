//! A Parquet file that appears under its name when it is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use super::checksum::ChecksumWriter;
use crate::error::StoreError;

pub(super) type FileWriter = SerializedFileWriter<ChecksumWriter>;

/// A file that is written as `NAME.partial`. Deleted if it is dropped before [`Self::finish`].
pub(super) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
    /// Whether the partial file exists.
    exists: bool,
    writer: Option<FileWriter>,
}

impl PartialFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { partial: path.with_extension("partial"), path, exists: false, writer: None }
    }

    /// Name of the complete file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_created(&self) -> bool {
        self.exists
    }

    /// Creates the file with a schema and properties.
    pub(super) fn create(
        &mut self,
        layout: Result<(TypePtr, WriterPropertiesPtr), ParquetError>,
    ) -> Result<(), StoreError> {
        let file =
            File::create(&self.partial).map_err(StoreError::file("create", &self.partial))?;
        self.exists = true;
        let writer = layout.and_then(|(schema, properties)| {
            FileWriter::new(ChecksumWriter::new(file), schema, properties)
        });
        self.writer = Some(writer.map_err(|source| self.failed(source))?);
        Ok(())
    }

    /// Writes to the file if it has been created.
    pub(super) fn write(
        &mut self,
        write: impl FnOnce(&mut FileWriter) -> Result<(), ParquetError>,
    ) -> Result<(), StoreError> {
        let written = self.writer.as_mut().map_or(Ok(()), write);
        written.map_err(|source| self.failed(source))
    }

    /// Completes the file and returns its checksum; `None` if it has not been created. `seal` may
    /// change the partial file after its checksum is known.
    pub(super) fn finish(
        mut self,
        seal: impl FnOnce(&Path, u32) -> io::Result<()>,
    ) -> Result<Option<u32>, StoreError> {
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let file = writer.into_inner().map_err(|source| self.failed(source))?;
        let sealed = file.finish().and_then(|crc32| seal(&self.partial, crc32).map(|()| crc32));
        let crc32 = sealed.map_err(StoreError::file("write", &self.partial))?;
        fs::rename(&self.partial, &self.path).map_err(StoreError::file("rename", &self.path))?;
        self.exists = false;
        // The directory must be synced too, or the file could lose its name in a power failure
        // after the catalogue has recorded it.
        let dir = self.path.parent().unwrap_or(&self.path);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::file("write", dir))?;
        Ok(Some(crc32))
    }

    /// The error of a failed write.
    pub(super) fn failed(&self, source: ParquetError) -> StoreError {
        StoreError::Samples { what: "write", path: self.partial.clone(), source }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if self.exists {
            let _ = fs::remove_file(&self.partial);
        }
    }
}
