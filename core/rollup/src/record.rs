//! Records: the unit that a node spools, a carrier ships and a hub receipts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::{Reader, put_i64, put_unsigned};
use crate::codec::Identity;
use crate::rollup::{Level, Rollup, Stream};
use crate::status::Status;

/// Random number of one start of an agent. Its text has 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Incarnation {
    type Err = InvalidIncarnation;

    fn from_str(text: &str) -> Result<Self, InvalidIncarnation> {
        let is_form =
            text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = is_form.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(InvalidIncarnation)
    }
}

/// Text that is not an [`Incarnation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an incarnation has 16 hexadecimal digits")]
pub struct InvalidIncarnation;

impl TryFrom<String> for Incarnation {
    type Error = InvalidIncarnation;

    fn try_from(text: String) -> Result<Self, InvalidIncarnation> {
        text.parse()
    }
}

impl From<Incarnation> for String {
    fn from(incarnation: Incarnation) -> Self {
        incarnation.to_string()
    }
}

/// Id of a running kernel (`/proc/sys/kernel/random/boot_id`): CLOCK_BOOTTIME of two records with the
/// same id is comparable. All zeros if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Whether the kernel reported its id.
    pub fn is_known(&self) -> bool {
        self.0 != [0; 16]
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Node, incarnation and sequence number.
    pub identity: Identity,
    /// CLOCK_REALTIME when the record was written, in nanoseconds.
    pub wall_ns: i64,
    /// CLOCK_BOOTTIME at the same time.
    pub boot_ns: i64,
    /// The running kernel.
    pub boot_id: BootId,
    /// Content.
    pub body: Body,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Probes of an interval.
    Rollup(Rollup),
    /// State of the node.
    Status(Box<Status>),
    /// Samples.
    Samples(SampleBlock),
}

impl Body {
    /// Level whose place in a full spool the record has. A status counts as a roll-up of 5 min.
    pub fn level(&self) -> Level {
        match self {
            Self::Rollup(rollup) => rollup.level,
            Self::Status(_) => Level::FiveMinutes,
            Self::Samples(_) => Level::Samples,
        }
    }

    /// Start of the measured time on both clocks: of the interval, the samples, or for a status of the
    /// record itself.
    pub fn measured_at(&self, record: &Record) -> (i64, i64) {
        match self {
            Self::Rollup(rollup) => (rollup.start_wall_ns, rollup.start_boot_ns),
            Self::Status(_) => (record.wall_ns, record.boot_ns),
            Self::Samples(samples) => (samples.start_wall_ns, samples.start_boot_ns),
        }
    }
}

/// Successive samples of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleBlock {
    /// The stream.
    pub stream: Stream,
    /// Version of the schedule that the probes follow.
    pub schedule_version: u64,
    /// Smallest intended send time on CLOCK_REALTIME.
    pub start_wall_ns: i64,
    /// The same on CLOCK_BOOTTIME.
    pub start_boot_ns: i64,
    /// Time to the largest intended send time.
    pub duration_ns: u64,
    /// Number of samples.
    pub samples: u64,
    /// A complete segment (`dwell_record::segment`) with these samples.
    pub segment: Vec<u8>,
}

impl SampleBlock {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.stream.encode(out);
        put_unsigned(out, self.schedule_version);
        put_i64(out, self.start_wall_ns);
        put_i64(out, self.start_boot_ns);
        put_unsigned(out, self.duration_ns);
        put_unsigned(out, self.samples);
        out.extend_from_slice(&self.segment);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            stream: Stream::decode(reader)?,
            schedule_version: reader.unsigned()?,
            start_wall_ns: reader.i64()?,
            start_boot_ns: reader.i64()?,
            duration_ns: reader.unsigned()?,
            samples: reader.unsigned()?,
            segment: reader.take(reader.0.len())?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnation_has_one_text() {
        let incarnation = Incarnation(0x2f);
        assert_eq!(incarnation.to_string(), "000000000000002f");
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
        for text in ["2f", "000000000000002F", "+00000000000002f", "00000000000000002f", ""] {
            assert_eq!(text.parse::<Incarnation>(), Err(InvalidIncarnation), "{text}");
        }
    }
}
