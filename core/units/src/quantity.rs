//! Rates, sizes and ratios, and the text formats of all quantities.

use std::fmt;
use std::str::FromStr;

use crate::text::{Unit, UnitError, parse, print};
use crate::time::Nanos;

/// A bit rate in bit/s.
///
/// ```
/// use dwell_units::{BitRate, Bytes, Nanos};
///
/// let rate: BitRate = "1Gbit/s".parse()?;
/// assert_eq!(rate.transmission_time(Bytes(1_500)), Some(Nanos::from_micros(12)));
/// # Ok::<(), dwell_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// A packet rate, stored in thousandths of packets per second, so that low rates keep their
/// precision.
///
/// ```
/// use dwell_units::{Nanos, PacketRate};
///
/// let rate: PacketRate = "0.5pps".parse()?;
/// assert_eq!(rate.gap(), Some(Nanos::from_secs(2)));
/// assert_eq!(PacketRate::from_millipps(0).gap(), None);
/// # Ok::<(), dwell_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketRate {
    millipps: u64,
}

/// A rate in bits or in packets.
///
/// ```
/// use dwell_units::{Bytes, Nanos, Rate};
///
/// let rate: Rate = "100Mbit/s".parse()?;
/// assert_eq!(rate.gap(Bytes(1_250)), Some(Nanos::from_micros(100)));
/// let rate: Rate = "200pps".parse()?;
/// assert_eq!(rate.gap(Bytes(1_250)), Some(Nanos::from_millis(5)));
/// assert!("100".parse::<Rate>().is_err());
/// # Ok::<(), dwell_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// `100Mbit/s`
    Bits(BitRate),
    /// `200pps`
    Packets(PacketRate),
}

/// A size in bytes.
///
/// ```
/// use dwell_units::Bytes;
///
/// assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
/// assert_eq!(Bytes(1_400).to_string(), "1400B");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A ratio between 0 and 1, stored in parts per million.
///
/// ```
/// use dwell_units::Ratio;
///
/// let loss: Ratio = "0.1%".parse()?;
/// assert_eq!(loss.ppm(), 1_000);
/// assert!("0.5".parse::<Ratio>().is_err(), "0.5 % or 50 %?");
/// # Ok::<(), dwell_units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    ppm: u32,
}

impl BitRate {
    /// Returns the transmission time of `size` at this rate, rounded up to the next nanosecond;
    /// `None` at rate 0.
    pub fn transmission_time(self, size: Bytes) -> Option<Nanos> {
        let bits = u128::from(size.0) * 8 * 1_000_000_000;
        let ns = bits.checked_add(u128::from(self.0).checked_sub(1)?)? / u128::from(self.0);
        Some(Nanos(i64::try_from(ns).unwrap_or(i64::MAX)))
    }
}

impl PacketRate {
    /// Creates a rate of `millipps` packets per 1,000 seconds.
    pub const fn from_millipps(millipps: u64) -> Self {
        Self { millipps }
    }

    /// Packets per second.
    pub fn as_f64(self) -> f64 {
        self.millipps as f64 / 1e3
    }

    /// Returns the gap between packets, rounded to the nearest nanosecond; `None` at rate 0.
    pub fn gap(self) -> Option<Nanos> {
        let half = self.millipps / 2;
        let ns = (1_000_000_000_000_u64.checked_add(half)?).checked_div(self.millipps)?;
        Some(Nanos(ns as i64))
    }
}

impl Rate {
    /// Returns the gap between departures of packets of `size`; `None` at rate 0.
    pub fn gap(self, size: Bytes) -> Option<Nanos> {
        match self {
            Self::Bits(rate) => rate.transmission_time(size),
            Self::Packets(rate) => rate.gap(),
        }
    }
}

impl Ratio {
    /// 0 %.
    pub const ZERO: Self = Self { ppm: 0 };
    /// 100 %.
    pub const ONE: Self = Self { ppm: 1_000_000 };

    /// Creates a ratio of `ppm` parts per million; `None` above 1,000,000.
    pub fn from_ppm(ppm: u32) -> Option<Self> {
        (ppm <= 1_000_000).then_some(Self { ppm })
    }

    /// Parts per million.
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// Value between 0.0 and 1.0.
    pub fn as_f64(self) -> f64 {
        f64::from(self.ppm) / 1e6
    }
}

// Units, largest first. Printing uses the first that fits; parsing accepts all.
const TIME: &[Unit] = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const TIME_PARSED: &[Unit] = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
];
const BIT_RATE: &[Unit] =
    &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];
/// Accepted spellings of a bit rate: decimal prefix, then `bit/s`, `bit`, `bps`, `b/s` or nothing.
/// `m` alone is a minute, `MB/s` and `MBps` are bytes: neither is accepted.
const BIT_RATE_PARSED: &[Unit] = &[
    ("Gbit/s", 1_000_000_000),
    ("gbit/s", 1_000_000_000),
    ("Gbit", 1_000_000_000),
    ("gbit", 1_000_000_000),
    ("Gbps", 1_000_000_000),
    ("gbps", 1_000_000_000),
    ("Gb/s", 1_000_000_000),
    ("G", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("mbit/s", 1_000_000),
    ("Mbit", 1_000_000),
    ("mbit", 1_000_000),
    ("Mbps", 1_000_000),
    ("mbps", 1_000_000),
    ("Mb/s", 1_000_000),
    ("M", 1_000_000),
    ("kbit/s", 1_000),
    ("Kbit/s", 1_000),
    ("kbit", 1_000),
    ("Kbit", 1_000),
    ("kbps", 1_000),
    ("Kbps", 1_000),
    ("kb/s", 1_000),
    ("k", 1_000),
    ("K", 1_000),
    ("bit/s", 1),
    ("bit", 1),
    ("bps", 1),
    ("b/s", 1),
];
const SIZE: &[Unit] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SIZE_PARSED: &[Unit] = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];
const PACKET_RATE: &[Unit] = &[("Mpps", 1_000_000_000), ("kpps", 1_000_000), ("pps", 1_000)];
const PERCENT: &[Unit] = &[("%", 10_000)];

impl FromStr for Nanos {
    type Err = UnitError;

    /// Parses `10ms`, `250us`, `1.5s`, `-3ns`; also `min`, `m` and `h`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const LIMIT: &str = "a time must be a whole number of ns, at most 292 years";
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let ns = parse(digits, TIME_PARSED, "10ms, 250us or 1.5s", LIMIT)?;
        let ns = i64::try_from(ns)
            .map_err(|_| UnitError::OutOfRange { text: text.to_owned(), limit: LIMIT })?;
        Ok(Self(if negative { -ns } else { ns }))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = match self.0 {
            0 => "0s".to_owned(),
            ns => print(ns.unsigned_abs(), TIME),
        };
        f.pad(&format!("{sign}{text}"))
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    /// Parses `100Mbit/s`, `100Mbps`, `100mbit` or `100M`. Prefixes are decimal.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(
            text,
            BIT_RATE_PARSED,
            "100Mbit/s or 100M",
            "a bit rate must be a whole number of bit/s",
        )
        .map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&print(self.0, BIT_RATE))
    }
}

impl FromStr for PacketRate {
    type Err = UnitError;

    /// Parses `200pps`, `1.5kpps`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let limit = "a packet rate must be a multiple of 0.001pps";
        parse(text, PACKET_RATE, "200pps", limit).map(Self::from_millipps)
    }
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&print(self.millipps, PACKET_RATE))
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    /// Parses a bit rate (`100Mbit/s`, `100M`) or a packet rate (`200pps`).
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const EXAMPLE: &str = "100Mbit/s, 100M or 200pps";
        let result = if text.trim_end().ends_with("pps") {
            text.parse().map(Self::Packets)
        } else {
            text.parse().map(Self::Bits)
        };
        result.map_err(|error| match error {
            UnitError::NoUnit { text, .. } => UnitError::NoUnit { text, example: EXAMPLE },
            UnitError::UnknownUnit { text, unit, .. } => {
                UnitError::UnknownUnit { text, unit, example: EXAMPLE }
            }
            UnitError::NotANumber { text, .. } => UnitError::NotANumber { text, example: EXAMPLE },
            other => other,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(rate) => rate.fmt(f),
            Self::Packets(rate) => rate.fmt(f),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Parses `1400B`, `64KiB`, `1MB`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, SIZE_PARSED, "1400B or 64KiB", "a size must be a whole number of bytes")
            .map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&print(self.0, SIZE))
    }
}

impl FromStr for Ratio {
    type Err = UnitError;

    /// Parses `50%`, `0.1%`; at most `100%`, in steps of `0.0001%`. A bare number above 1 is a
    /// percentage (`50`), and so is `0`. Other bare numbers are refused, because `0.5` may mean 0.5
    /// % or 50 %.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const LIMIT: &str = "a ratio must be between 0% and 100%, in steps of 0.0001%";
        let ppm = match parse(text, PERCENT, "50%", LIMIT) {
            Err(UnitError::NoUnit { .. }) => {
                let ppm = parse(&format!("{}%", text.trim()), PERCENT, "50%", LIMIT)?;
                if (1..=PERCENT[0].1).contains(&ppm) {
                    let (text, example) = (text.to_owned(), "0.5% or 50%");
                    return Err(UnitError::NoUnit { text, example });
                }
                ppm
            }
            read => read?,
        };
        u32::try_from(ppm)
            .ok()
            .and_then(Self::from_ppm)
            .ok_or(UnitError::OutOfRange { text: text.to_owned(), limit: LIMIT })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.ppm / 10_000, self.ppm % 10_000);
        let text = match rest {
            0 => format!("{whole}%"),
            _ => format!("{whole}.{}%", format!("{rest:04}").trim_end_matches('0')),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn common_spellings_of_quantities_are_parsed() {
        assert_eq!("10ms".parse(), Ok(Nanos::from_millis(10)));
        assert_eq!("1.5s".parse(), Ok(Nanos::from_millis(1_500)));
        assert_eq!("250us".parse(), Ok(Nanos::from_micros(250)));
        assert_eq!("250µs".parse(), Ok(Nanos::from_micros(250)));
        assert_eq!("-3ns".parse(), Ok(Nanos(-3)));
        assert_eq!("100Mbit/s".parse(), Ok(BitRate(100_000_000)));
        assert_eq!("1400B".parse(), Ok(Bytes(1_400)));
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!("0.5pps".parse(), Ok(PacketRate::from_millipps(500)));
        assert_eq!("50%".parse::<Ratio>().map(Ratio::ppm), Ok(500_000));
        assert!(matches!("200pps".parse(), Ok(Rate::Packets(_))));
    }

    #[test]
    fn invalid_quantity_shows_a_valid_example() {
        let text = |r: Result<Nanos, UnitError>| r.unwrap_err().to_string();
        assert_eq!(text("10".parse()), "'10' has no unit; write it like 10ms, 250us or 1.5s");
        assert!(text("10parsec".parse()).contains("unknown unit 'parsec'"));
        assert!(text("1.2.3s".parse()).contains("not a number"));
        assert!(text("0.5ns".parse()).contains("out of range"));
        assert!("101%".parse::<Ratio>().is_err());
        assert!("ten".parse::<Rate>().unwrap_err().to_string().contains("200pps"));
    }

    #[test]
    fn bare_percentage_is_parsed_only_above_one() {
        assert_eq!("50".parse::<Ratio>().map(Ratio::ppm), Ok(500_000));
        assert_eq!("12.5".parse::<Ratio>().map(Ratio::ppm), Ok(125_000));
        assert_eq!("0".parse::<Ratio>().map(Ratio::ppm), Ok(0));
        for ambiguous in ["1", "0.5", "0.0001"] {
            let error = ambiguous.parse::<Ratio>().unwrap_err().to_string();
            assert!(error.contains("has no unit; write it like 0.5% or 50%"), "{error}");
        }
        assert!("101".parse::<Ratio>().is_err());
    }

    #[test]
    fn unit_of_another_quantity_is_refused_in_a_bit_rate() {
        // Bytes, minutes and packets.
        for text in ["100MB/s", "100MBps", "100MB", "100m", "100Mpps", "100MiB", "100"] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
        let error = "100".parse::<Rate>().unwrap_err().to_string();
        assert!(error.contains("write it like 100Mbit/s, 100M or 200pps"), "{error}");
    }

    #[test]
    fn gaps_follow_from_rates() {
        // Mok 2015: 576 B at 10 Mbit/s are sent every 460.8 us.
        assert_eq!(BitRate(10_000_000).transmission_time(Bytes(576)), Some(Nanos(460_800)));
        assert_eq!(PacketRate::from_millipps(200_000).gap(), Some(Nanos(5_000_000)));
        assert_eq!(BitRate(0).transmission_time(Bytes(1)), None);
        assert_eq!(PacketRate::from_millipps(0).gap(), None);
    }

    proptest! {
        #[test]
        fn printed_quantity_is_parsed_back(
            ns in -i64::MAX..=i64::MAX, big in any::<u64>(), ppm in 0..=1_000_000_u32,
        ) {
            prop_assert_eq!(Nanos(ns).to_string().parse(), Ok(Nanos(ns)));
            prop_assert_eq!(BitRate(big).to_string().parse(), Ok(BitRate(big)));
            prop_assert_eq!(Bytes(big).to_string().parse(), Ok(Bytes(big)));
            let pps = PacketRate::from_millipps(big);
            prop_assert_eq!(pps.to_string().parse(), Ok(pps));
            let ratio = Ratio::from_ppm(ppm).unwrap();
            prop_assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }

        #[test]
        fn every_spelling_of_a_bit_rate_has_one_value(
            thousandths in 0..=999_999_u64, spelling in 0..BIT_RATE_PARSED.len(), space in any::<bool>(),
        ) {
            let (unit, scale) = BIT_RATE_PARSED[spelling];
            let space = if space { " " } else { "" };
            let text = format!("{}.{:03}{space}{unit}", thousandths / 1_000, thousandths % 1_000);
            let bits = thousandths * scale;
            let read = text.parse::<BitRate>().ok();
            prop_assert_eq!(read, (bits % 1_000 == 0).then_some(BitRate(bits / 1_000)));
            let as_rate = text.parse::<Rate>().ok();
            prop_assert_eq!(as_rate, read.map(Rate::Bits), "plans and flags accept the same texts");
            // No other quantity accepts this text, so a value in a plan is unambiguous.
            prop_assert!(text.parse::<Nanos>().is_err() && text.parse::<Bytes>().is_err());
            prop_assert!(text.parse::<PacketRate>().is_err() && text.parse::<Ratio>().is_err());
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC*") {
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<Rate>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Ratio>();
        }
    }
}
