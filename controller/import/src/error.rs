//! Errors of imports.

use std::error::Error;
use std::io;

use crate::Format;

/// Why a file could not be imported. Samples delivered before the error are valid.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum ImportError {
    #[error("unknown format{hint}; known formats: {known}", known = known())]
    Unknown {
        /// A hint at what the file is; empty, or begins with a space.
        hint: &'static str,
    },
    #[error("cannot read the file")]
    Read(#[source] io::Error),
    #[error("cannot store the samples")]
    Samples(#[source] Box<dyn Error + Send + Sync>),
    #[error(
        "cannot read {name}: {skipped} of {rows} rows do not match this format; the first is row \
         {row}: '{text}'", name = format.describe()
    )]
    Rows {
        format: Format,
        rows: u64,
        skipped: u64,
        /// Number of the first unreadable row: a line number in text formats, a record number in
        /// others.
        row: u64,
        text: String,
    },
    #[error("no sample in this {name}{left_out}", name = format.describe(), left_out = listed(left_out))]
    NoSamples {
        format: Format,
        /// The contents found instead of samples.
        left_out: Vec<String>,
    },
    #[error("cannot read {name}: {reason}", name = format.describe())]
    Malformed { format: Format, reason: String },
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
