//! 64-bit timestamps of STAMP packets (RFC 8762 section 4.2.1), either NTP's 32.32 fixed point or
//! PTPv2's truncated seconds and nanoseconds, and the error estimate that names the format.

use dwell_units::{Instant, Nanos, Realtime};

/// Seconds from the NTP epoch (1900) to the Unix epoch (1970).
const NTP_TO_UNIX: i64 = 2_208_988_800;

/// Format of a 64-bit timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Seconds since 1900 and a binary fraction.
    Ntp,
    /// Seconds since 1970 and nanoseconds.
    Ptp,
}

/// Reads a timestamp. Its 32-bit seconds wrap (NTP's in 2036); the era is chosen so that the result
/// is nearest to `pivot`.
///
/// ```
/// use dwell_units::{Instant, Nanos};
/// use dwell_wire::timestamp::{self, Format};
///
/// // In 2036, NTP's seconds start again from 0.
/// let at = Instant::from_parts(2_085_978_500, 125_000_000);
/// let read = timestamp::read(timestamp::write_ntp(at), Format::Ntp, at + Nanos::from_secs(60));
/// assert_eq!(read, at);
/// ```
pub fn read(bits: u64, format: Format, pivot: Instant<Realtime>) -> Instant<Realtime> {
    let (seconds, low) = ((bits >> 32) as u32, bits as u32);
    let (epoch, nanos) = match format {
        Format::Ntp => (NTP_TO_UNIX, fraction_to_nanos(low)),
        Format::Ptp => (0, i64::from(low.min(999_999_999))),
    };
    let now = pivot.as_nanos().div_euclid(1_000_000_000);
    // Signed distance to the pivot, modulo 2^32.
    let ahead = seconds.wrapping_sub((now + epoch) as u32) as i32;
    Instant::from_nanos(
        (now + i64::from(ahead)).saturating_mul(1_000_000_000).saturating_add(nanos),
    )
}

/// Writes a timestamp in NTP format, rounded to 2^-32 s.
pub fn write_ntp(at: Instant<Realtime>) -> u64 {
    let seconds = at.as_nanos().div_euclid(1_000_000_000) + NTP_TO_UNIX;
    let nanos = at.as_nanos().rem_euclid(1_000_000_000) as u64;
    let fraction = ((nanos << 32) + 500_000_000) / 1_000_000_000;
    (u64::from(seconds as u32) << 32) | fraction
}

/// Writes a timestamp in PTPv2's truncated format.
pub fn write_ptp(at: Instant<Realtime>) -> u64 {
    let seconds = at.as_nanos().div_euclid(1_000_000_000);
    let nanos = at.as_nanos().rem_euclid(1_000_000_000) as u64;
    (u64::from(seconds as u32) << 32) | nanos
}

fn fraction_to_nanos(fraction: u32) -> i64 {
    ((u64::from(fraction) * 1_000_000_000 + (1 << 31)) >> 32) as i64
}

/// Maximum offset of a clock from UTC (RFC 4656 section 4.1.2; the Z bit is from RFC 8186).
///
/// ```
/// use dwell_units::Nanos;
/// use dwell_wire::timestamp::ErrorEstimate;
///
/// let estimate = ErrorEstimate::of_clock(Some(Nanos::from_millis(2)));
/// assert!(estimate.synchronised);
/// assert_eq!(ErrorEstimate::from_bits(estimate.to_bits()), estimate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// Whether the clock is synchronised to an external source.
    pub synchronised: bool,
    /// Format of the timestamps in this packet.
    pub format: Format,
    /// error = multiplier * 2^-32 * 2^scale seconds.
    pub scale: u8,
    /// Never 0.
    pub multiplier: u8,
}

impl ErrorEstimate {
    /// Returns the estimate for a clock that is at most `utc_error` from UTC. `None`: not
    /// synchronised; the unknown error is given as 1 us, for reading the clock.
    pub fn of_clock(utc_error: Option<Nanos>) -> Self {
        Self::covering(utc_error.unwrap_or(Nanos::from_micros(1)), utc_error.is_some())
    }

    /// Returns the smallest estimate that covers `bound`, for NTP timestamps.
    pub fn covering(bound: Nanos, synchronised: bool) -> Self {
        let mut units = ((bound.0.max(1) as u128) << 32).div_ceil(1_000_000_000);
        let mut scale = 0;
        while units > 255 && scale < 63 {
            units = units.div_ceil(2);
            scale += 1;
        }
        let multiplier = units.clamp(1, 255) as u8;
        Self { synchronised, format: Format::Ntp, scale, multiplier }
    }

    /// Decodes the field.
    pub fn from_bits(bits: u16) -> Self {
        Self {
            synchronised: bits & 0x8000 != 0,
            format: if bits & 0x4000 != 0 { Format::Ptp } else { Format::Ntp },
            scale: (bits >> 8 & 0x3f) as u8,
            multiplier: bits as u8,
        }
    }

    /// Encodes the field.
    pub fn to_bits(self) -> u16 {
        u16::from(self.synchronised) << 15
            | u16::from(self.format == Format::Ptp) << 14
            | u16::from(self.scale & 0x3f) << 8
            | u16::from(self.multiplier)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ntp_seconds_wrap_in_2036() {
        let wrap = Instant::from_nanos((0x1_0000_0000 - NTP_TO_UNIX) * 1_000_000_000);
        assert_eq!(write_ntp(wrap), 0);
        let before = wrap - Nanos::from_secs(5);
        assert_eq!(read(write_ntp(wrap), Format::Ntp, before), wrap);
        assert_eq!(read(write_ntp(before), Format::Ntp, wrap), before);
    }

    #[test]
    fn error_estimate_covers_its_bound() {
        for bound in [0, 1, 100, 1_000, 1_000_000, 5_000_000_000_i64] {
            let estimate = ErrorEstimate::covering(Nanos(bound), true);
            assert_ne!(estimate.multiplier, 0);
            let covered =
                f64::from(estimate.multiplier) * 2_f64.powi(i32::from(estimate.scale) - 32);
            assert!(covered >= bound as f64 / 1e9, "{bound} ns {estimate:?}");
            assert_eq!(ErrorEstimate::from_bits(estimate.to_bits()), estimate);
        }
    }

    proptest! {
        #[test]
        fn timestamps_round_trip_within_a_nanosecond(ns in 0..4_000_000_000_000_000_000_i64, off in -60_i64..60) {
            let at = Instant::from_nanos(ns);
            let pivot = at + Nanos::from_secs(off * 86_400 * 365);
            let ntp = read(write_ntp(at), Format::Ntp, pivot);
            prop_assert!((ntp - at).0.abs() <= 1);
            prop_assert_eq!(read(write_ptp(at), Format::Ptp, pivot), at);
        }

        #[test]
        fn any_bits_are_read_without_panic(bits: u64, estimate: u16, ns: i64) {
            let pivot = Instant::from_nanos(ns);
            let _ = read(bits, Format::Ntp, pivot);
            let _ = read(bits, Format::Ptp, pivot);
            prop_assert_eq!(ErrorEstimate::from_bits(estimate).to_bits(), estimate);
        }
    }
}
