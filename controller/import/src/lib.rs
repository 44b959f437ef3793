//! What other programs measured, as samples.
//!
//! [`detect`] tells the format of a file by its first bytes and [`read`] turns it into batches of
//! samples, with bounded memory however long the file is. What is taken from each format, in which
//! unit and from which clock, is in `docs/import.md`. Where samples are kept is not known here.
//!
//! Ids are those of the source, counted on where its counter wraps; some count from 1. A delay
//! across two machines is never called one: it goes to [`dwell_record::Column::ForwardPlusOffset`].

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
mod plausible;
mod s4;
mod sequence;
mod sink;
mod sockperf;
mod witness;

use std::error::Error;
use std::io::BufRead;

use dwell_record::Batch;

pub use detect::{HEAD, detect, recognise};
pub use error::ImportError;
pub use imported::{Flow, Imported, Interval, SkippedRow};
pub use witness::{Joined, Look, Own, Witness};

use sink::Sink;

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The round-trip CSV of S4 (S4.2), which `dwell ping --csv` also writes for `roundtrip://`.
    S4Csv,
    /// Output of `ping`: iputils or BusyBox.
    Ping,
    /// The JSON of `irtt client -o`.
    Irtt,
    /// The file of `sockperf --full-log`.
    Sockperf,
    /// What `iperf -e` (version 2) prints.
    Iperf2,
    /// D-ITG's binary log.
    Itg,
    /// A capture of libpcap.
    Pcap,
    /// A capture in the pcapng format.
    Pcapng,
    /// The CSV of `dwell ping --csv`.
    DwellCsv,
    /// The JSON of `mtr --json`.
    Mtr,
    /// The JSON of `iperf3 -J`.
    Iperf3,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 11] = [
        Self::S4Csv,
        Self::Ping,
        Self::Irtt,
        Self::Sockperf,
        Self::Iperf2,
        Self::Itg,
        Self::Pcap,
        Self::Pcapng,
        Self::DwellCsv,
        Self::Mtr,
        Self::Iperf3,
    ];

    /// Its name in results and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S4Csv => "s4-csv",
            Self::Ping => "ping",
            Self::Irtt => "irtt",
            Self::Sockperf => "sockperf",
            Self::Iperf2 => "iperf2",
            Self::Itg => "d-itg",
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
            Self::DwellCsv => "dwell-csv",
            Self::Mtr => "mtr",
            Self::Iperf3 => "iperf3",
        }
    }

    /// What it is, in a few words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::S4Csv => "round-trip CSV of S4",
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

/// Reads a file of `format` to its end. `each` takes the name of a flow (empty where the format
/// has one only) and its next samples, at most 65,536 at a time; batches of several flows take
/// turns.
///
/// Rows that cannot be read are counted and skipped, unless they are more than the others. A
/// capture or binary log that breaks off gives what it holds, with a warning.
pub fn read<E: Into<Box<dyn Error + Send + Sync>>>(
    format: Format,
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(&str, Batch) -> Result<(), E>,
) -> Result<Imported, ImportError> {
    let mut each = |flow: &str, batch: Batch| each(flow, batch).map_err(Into::into);
    let sink = Sink::new(format, &mut each);
    match format {
        Format::S4Csv => s4::read(input, sink),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_stands_at_its_own_number_under_its_own_name() {
        for (number, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(format as usize, number);
            let same = Format::ALL.into_iter().filter(|other| other.name() == format.name());
            assert_eq!(same.count(), 1);
        }
    }
}
