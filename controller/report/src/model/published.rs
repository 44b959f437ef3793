//! Values that documents publish, shown beside those of a run.

use std::fmt;

use dwell_units::{BitRate, Bytes};

/// Published values that apply to a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// Levels of parameters.
    pub levels: Vec<PublishedLevel>,
    /// Senders with their largest rates.
    pub senders: Vec<PublishedSender>,
    /// Measured rates.
    pub rates: Vec<PublishedRate>,
    /// Sentences about the senders.
    pub remarks: Vec<&'static str>,
}

/// Level at which figures of other parameters hold this one.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedLevel {
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Name of the axis.
    pub axis: &'static str,
    /// Value in the base unit of the axis.
    pub value: f64,
    /// Value with its unit.
    pub text: &'static str,
}

/// A sender of paced packets.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedSender {
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Name as printed.
    pub name: &'static str,
    /// Program or device that sends and timestamps the packets.
    pub engine: &'static str,
    /// Hardware and operating system.
    pub hardware: String,
    /// Largest rate by packet sizes, such as `all sizes`.
    pub largest: Vec<(&'static str, PublishedLimit)>,
}

/// Rates at which a sender is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedLimit {
    /// Up to this rate.
    UpTo(BitRate),
    /// Below this rate.
    Below(BitRate),
    /// None.
    NotSuitable,
}

/// A measured rate that a document gives as a number.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRate {
    /// Author and year, as in docs/references.md.
    pub cite: &'static str,
    /// Name of the sender as printed.
    pub sender: &'static str,
    /// Smallest and largest requested rate; equal if the document names one.
    pub requested: (BitRate, BitRate),
    /// Number of cross-traffic flows.
    pub flows: u32,
    /// Ethernet frame size.
    pub frame: Bytes,
    /// Size of the IP packet in the frame.
    pub ip: Bytes,
    /// Approximate measured rate.
    pub measured: BitRate,
}

impl Published {
    /// Adds the values of another document.
    pub fn extend(&mut self, other: Self) {
        self.levels.extend(other.levels);
        self.senders.extend(other.senders);
        self.rates.extend(other.rates);
        self.remarks.extend(other.remarks);
    }
}

impl PublishedLimit {
    /// Text of [`Self::NotSuitable`].
    pub(crate) const NOT_SUITABLE: &'static str = "not suitable";

    /// The limit.
    pub fn rate(self) -> Option<BitRate> {
        match self {
            Self::UpTo(rate) | Self::Below(rate) => Some(rate),
            Self::NotSuitable => None,
        }
    }
}

impl fmt::Display for PublishedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpTo(rate) => rate.fmt(f),
            Self::Below(rate) => write!(f, "below {rate}"),
            Self::NotSuitable => f.write_str(Self::NOT_SUITABLE),
        }
    }
}

impl PublishedRate {
    /// Name of the sender with the document.
    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.sender, self.cite)
    }

    /// The requested rate, if the document names one.
    pub(crate) fn requested_rate(&self) -> Option<BitRate> {
        Some(self.requested.0).filter(|rate| *rate == self.requested.1)
    }
}
