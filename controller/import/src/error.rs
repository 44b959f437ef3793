//! Why a file could not be imported.

use std::error::Error;
use std::io;

use crate::Format;

/// Why a file could not be imported. Samples that were handed over before it are good.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// No known format.
    #[error("its format is not known{hint}; known are: {known}", known = known())]
    Unknown {
        /// What it may be instead; empty, or begins with a blank.
        hint: &'static str,
    },
    /// The file cannot be read.
    #[error("read the file")]
    Read(#[source] io::Error),
    /// The receiver of the samples refused them.
    #[error("keep the samples")]
    Samples(#[source] Box<dyn Error + Send + Sync>),
    /// Most rows are not of the format.
    #[error(
        "read {name}: {skipped} rows of {rows} are not of this format; the first is row {row}: \
         '{text}'", name = format.describe()
    )]
    Rows {
        /// The format that the file seemed to have.
        format: Format,
        /// How many rows there are.
        rows: u64,
        /// How many of them could not be read.
        skipped: u64,
        /// The number of the first of these: of lines where the format has lines, else of records.
        row: u64,
        /// The beginning of that row.
        text: String,
    },
    /// The file is of the format and holds no measurement.
    #[error("no sample in this {name}{left_out}", name = format.describe(), left_out = listed(left_out))]
    NoSamples {
        /// The format of the file.
        format: Format,
        /// What was found instead of samples.
        left_out: Vec<String>,
    },
    /// The structure of the file is broken.
    #[error("read {name}: {reason}", name = format.describe())]
    Malformed {
        /// The format that the file seemed to have.
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
    // `dwell import` reads its own samples without this crate.
    known.join(", ") + ", segment (samples that dwell itself wrote)"
}
