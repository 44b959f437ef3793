//! State of a machine's clock, as its kernel and its synchronisation daemons report it: parsers of
//! `chronyc -c tracking` and `pmc GET TIME_STATUS_NP`. The parsers accept any text.

use serde::{Deserialize, Serialize};

/// Maximum length of a name that a daemon reports.
const MAX_NAME_LEN: usize = 64;

/// Largest error, offset or frequency that is accepted, in nanoseconds or ppm: 146 years.
const MAX_VALUE: f64 = (i64::MAX / 2) as f64;

/// State of CLOCK_REALTIME and of the daemons that steer it. A source that is not installed, not
/// running or unreadable is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockState {
    /// The kernel's record of the clock.
    #[serde(default)]
    pub kernel: Option<KernelClock>,
    /// chronyd.
    #[serde(default)]
    pub chrony: Option<ChronyTracking>,
    /// ptp4l.
    #[serde(default)]
    pub ptp: Option<PtpStatus>,
}

/// The kernel's record of CLOCK_REALTIME (adjtimex(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelClock {
    /// Whether a daemon has declared the clock synchronised.
    pub synchronised: bool,
    /// Maximum error against UTC, as declared by the daemon and increased by the kernel, in
    /// nanoseconds. Meaningless unless synchronised.
    pub max_error_ns: i64,
    /// Frequency correction in ppm.
    pub frequency_ppm: f64,
}

/// State of chronyd (`chronyc tracking`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChronyTracking {
    /// Name or address of the current time source; empty if none.
    pub source: String,
    /// Distance from a reference clock, in hops.
    pub stratum: u32,
    /// Maximum error in nanoseconds, if the stratum-1 server is right: |remaining correction| + root
    /// dispersion + root delay / 2 (chronyc(1)).
    pub error_ns: i64,
}

/// State of ptp4l (`pmc GET TIME_STATUS_NP`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PtpStatus {
    /// Offset of the clock that ptp4l steers from its master, in nanoseconds. This is the clock of
    /// the network card if that has one.
    pub offset_ns: i64,
    /// Identity of the grandmaster; empty if unknown.
    pub grandmaster: String,
}

impl ChronyTracking {
    /// Reads the output of `chronyc -c tracking`; `None` if it is malformed or chronyd is not
    /// synchronised.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.lines().next()?.trim_end().split(',').collect();
        let [_, source, stratum, _, correction, _, _, _, _, _, delay, dispersion, _, leap] =
            fields[..]
        else {
            return None;
        };
        if leap == "Not synchronised" {
            return None;
        }
        let correction = nanos(correction)?;
        let (delay, dispersion) = (nanos(delay)?, nanos(dispersion)?);
        if delay < 0 || dispersion < 0 {
            return None;
        }
        let error_ns = correction.abs().saturating_add(dispersion).saturating_add(delay / 2 + 1);
        Some(Self { source: name(source), stratum: stratum.parse().ok()?, error_ns })
    }
}

impl PtpStatus {
    /// Reads the output of `pmc GET TIME_STATUS_NP`; `None` if it has no response or no
    /// grandmaster is present.
    pub fn parse(text: &str) -> Option<Self> {
        let field = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.trim().split_once(char::is_whitespace)?;
                (name == key).then(|| value.trim())
            })
        };
        if field("gmPresent")? != "true" {
            return None;
        }
        let grandmaster = name(field("gmIdentity").unwrap_or_default());
        Some(Self { offset_ns: field("master_offset")?.parse().ok()?, grandmaster })
    }
}

/// Parses seconds as nanoseconds.
fn nanos(seconds: &str) -> Option<i64> {
    let nanos = (number(seconds)? * 1e9).round();
    (nanos.abs() < MAX_VALUE).then_some(nanos as i64)
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && value.abs() < MAX_VALUE)
}

/// Returns the printable part of a name, of limited length.
fn name(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(MAX_NAME_LEN).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHRONY: &str = "C0248F95,192.36.143.149,2,1732631111.123456789,-0.000012345,\
        -0.000001234,0.000056789,-12.345,-0.001,0.123,0.012345678,0.001234567,64.5,Normal\n";

    const PTP: &str = "sending: GET TIME_STATUS_NP\n\t112233.fffe.445566-0 seq 0 RESPONSE \
        MANAGEMENT TIME_STATUS_NP \n\t\tmaster_offset              -12\n\t\tingress_time   \
        1732631111123456789\n\t\tgmPresent                  true\n\t\tgmIdentity                 \
        001122.fffe.334455\n";

    #[test]
    fn chrony_error_is_correction_dispersion_and_half_the_delay() {
        let tracking = ChronyTracking::parse(CHRONY).unwrap();
        assert_eq!((&*tracking.source, tracking.stratum), ("192.36.143.149", 2));
        assert_eq!(tracking.error_ns, 12_345 + 1_234_567 + 6_172_839 + 1);
        let lost = CHRONY.replace("Normal", "Not synchronised");
        assert_eq!(ChronyTracking::parse(&lost), None);
    }

    #[test]
    fn ptp_offset_needs_a_grandmaster() {
        let status = PtpStatus::parse(PTP).unwrap();
        assert_eq!((status.offset_ns, &*status.grandmaster), (-12, "001122.fffe.334455"));
        assert_eq!(PtpStatus::parse(&PTP.replace("true", "false")), None);
        assert_eq!(PtpStatus::parse("sending: GET TIME_STATUS_NP\n"), None);
    }

    #[test]
    fn value_without_a_meaning_is_refused() {
        for bad in ["nan", "inf", "1e300", "", "x", "--1"] {
            for good in ["-0.000012345", "0.012345678", "0.001234567"] {
                assert_eq!(ChronyTracking::parse(&CHRONY.replace(good, bad)), None, "{good} {bad}");
            }
        }
        assert_eq!(ChronyTracking::parse(&CHRONY.replace("0.012345678", "-1")), None);
        assert_eq!(PtpStatus::parse(&PTP.replace("-12", "99999999999999999999")), None);
    }

    proptest! {
        #[test]
        fn damaged_output_never_panics(
            ptp in any::<bool>(),
            damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
            len in 0_usize..600,
        ) {
            let mut bytes = if ptp { PTP } else { CHRONY }.as_bytes().to_vec();
            for (at, byte) in damage {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(len);
            let text = String::from_utf8_lossy(&bytes);
            if let Some(tracking) = ChronyTracking::parse(&text) {
                prop_assert!(tracking.error_ns > 0);
                prop_assert!(tracking.source.len() <= MAX_NAME_LEN);
            }
            if let Some(status) = PtpStatus::parse(&text) {
                prop_assert!(status.grandmaster.len() <= MAX_NAME_LEN);
            }
        }

        #[test]
        fn any_text_is_read(text in "\\PC*") {
            let _ = (ChronyTracking::parse(&text), PtpStatus::parse(&text));
        }
    }
}
