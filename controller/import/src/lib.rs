//! Converts measurements of other programs to samples.
//!
//! [`detect`] determines the format of a file from its first bytes and [`read`] converts it to
//! batches of samples in bounded memory. `docs/import.md` lists which fields of each format are
//! read, their units and their clocks. This crate does not store samples.
//!
//! Ids are those of the source, unwrapped; some sources count from 1. A delay between two machines
//! is stored as [`dwell_record::Column::ForwardPlusOffset`], never as a one-way delay.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod capture;
mod decimal;
mod detect;
mod dwell_csv;
mod error;
mod imported;
mod iperf2;
mod iperf3;
mod irtt;
mod itg;
mod json;
mod lines;
mod mtr;
mod ping;
mod plausibility;
mod roundtrip_csv;
mod sequence;
mod sink;
mod sockperf;
mod warning;
mod witness;

use std::error::Error;
use std::io::BufRead;

use dwell_record::Batch;

pub use detect::{HEAD_LEN, detect, recognise};
pub use error::ImportError;
pub use imported::{Imported, ImportedFlow, Interval, SkippedRow};
pub use warning::ImportWarning;
pub use witness::{ProbeSignature, RunProbe, Witness, WitnessMatch};

use sink::Sink;

dwell_units::named! {
    /// A format that can be imported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Format {
        /// The round-trip CSV of Roedlach/Vock (S4.2), which `dwell ping --csv` also writes for
        /// `roundtrip://`.
        RoundTripCsv = "s4-csv",
        /// Output of `ping`: iputils or BusyBox.
        Ping = "ping",
        /// The JSON of `irtt client -o`.
        Irtt = "irtt",
        /// The file of `sockperf --full-log`.
        Sockperf = "sockperf",
        /// Output of `iperf -e` (version 2).
        Iperf2 = "iperf2",
        /// Binary log of D-ITG.
        Itg = "d-itg",
        /// A libpcap capture.
        Pcap = "pcap",
        /// A pcapng capture.
        Pcapng = "pcapng",
        /// The CSV of `dwell ping --csv`.
        DwellCsv = "dwell-csv",
        /// The JSON of `mtr --json`.
        Mtr = "mtr",
        /// The JSON of `iperf3 -J`.
        Iperf3 = "iperf3",
    }
}

impl Format {
    /// Short description.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::RoundTripCsv => "Roedlach/Vock round-trip CSV",
            Self::Ping => "output of ping",
            Self::Irtt => "JSON of irtt client -o",
            Self::Sockperf => "CSV of sockperf --full-log",
            Self::Iperf2 => "output of iperf 2 -e",
            Self::Itg => "binary log of D-ITG",
            Self::Pcap => "pcap capture",
            Self::Pcapng => "pcapng capture",
            Self::DwellCsv => "CSV of dwell ping",
            Self::Mtr => "JSON of mtr --json",
            Self::Iperf3 => "JSON of iperf3 -J",
        }
    }
}

/// Reads a file of `format` to its end. `each` is called with the name of a flow (empty if the
/// format has only one) and its next samples, at most 65,536 per call; flows may alternate.
///
/// Unreadable rows are counted and skipped, unless they outnumber the others. A truncated capture
/// or binary log yields what it holds, with a warning.
pub fn read<E: Into<Box<dyn Error + Send + Sync>>>(
    format: Format,
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(&str, Batch) -> Result<(), E>,
) -> Result<Imported, ImportError> {
    let mut each = |flow: &str, batch: Batch| each(flow, batch).map_err(Into::into);
    let sink = Sink::new(format, &mut each);
    match format {
        Format::RoundTripCsv => roundtrip_csv::read(input, sink),
        Format::Ping => ping::read(input, sink),
        Format::Irtt => irtt::read(input, sink),
        Format::Sockperf => sockperf::read(input, sink),
        Format::Iperf2 => iperf2::read(input, sink),
        Format::Itg => itg::read(input, sink),
        Format::Pcap => capture::read_pcap(input, sink),
        Format::Pcapng => capture::read_pcapng(input, sink),
        Format::DwellCsv => dwell_csv::read(input, sink),
        Format::Mtr => mtr::read(input, sink),
        Format::Iperf3 => iperf3::read(input, sink),
    }
}
