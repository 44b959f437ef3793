//! Errors of imports.

use std::error::Error;
use std::io;

use crate::Format;

/// Why a file could not be imported. Samples delivered before the error are valid.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The format is unknown.
    #[error("unknown format{hint}; known formats: {known}", known = known())]
    Unknown {
        /// A hint at what the file is; empty, or begins with a space.
        hint: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    /// The receiver of the samples failed.
    #[error("cannot store the samples")]
    Samples(#[source] Box<dyn Error + Send + Sync>),
    /// Most rows do not match the format.
    #[error(
        "cannot read {name}: {skipped} of {rows} rows do not match this format; the first is row \
         {row}: '{text}'", name = format.describe()
    )]
    Rows {
        /// The detected format.
        format: Format,
        /// Number of rows.
        rows: u64,
        /// Number of unreadable rows.
        skipped: u64,
        /// Number of the first unreadable row: a line number in text formats, a record number in
        /// others.
        row: u64,
        /// The beginning of that row.
        text: String,
    },
    /// The file matches the format and holds no measurement.
    #[error("no sample in this {name}{left_out}", name = format.describe(), left_out = listed(left_out))]
    NoSamples {
        /// The format of the file.
        format: Format,
        /// What was found instead of samples.
        left_out: Vec<String>,
    },
    /// The structure of the file is broken.
    #[error("cannot read {name}: {reason}", name = format.describe())]
    Malformed {
        /// The detected format.
        format: Format,
        /// What is wrong, and where.
        reason: String,
    },
}

fn listed(left_out: &[String]) -> String {
    if left_out.is_empty() { String::new() } else { format!(": {}", left_out.join("; ")) }
}

fn known() -> String {
    let known: Vec<_> =
        Format::ALL.iter().map(|f| format!("{} ({})", f.name(), f.describe())).collect();
    // `dwell import` reads segments without this crate.
    known.join(", ") + ", segment (samples written by dwell)"
}
