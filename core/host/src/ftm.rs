//! Results of 802.11 Fine Timing Measurement (FTM) as text, with the defects of real devices.
//!
//! A frame leaves the responder at T1 and arrives at the initiator at T2; its acknowledgement leaves
//! at T3 and arrives at T4. The round trip is (T4 - T1) - (T3 - T2). Formats:
//!
//! - `iw dev X measurement ftm_request` (`parse_pmsr_peer` and `parse_pmsr_ftm_data` of event.c in
//!   iw 5.0 and later): a result per burst, times in picoseconds, distances in millimetres;
//! - the one-line results of Intel's older `iw` (read by github.com/HappyZ/iw_intel8260_localization);
//! - the report of ESP-IDF (`examples/wifi/ftm` with `CONFIG_ESP_FTM_REPORT_LOG_ENABLE`): a row per
//!   frame, in picoseconds;
//! - CSV with a header that names the same columns.
//!
//! Accepts any text. Rows without a valid measurement are counted.

mod iw;
mod table;

/// Step of FTM timestamps of ESP32 devices in picoseconds.
pub const FTM_STEP_PS: f64 = 1_562.5;

/// Period of their 32-bit counter of such steps: 6.711 s.
pub const FTM_WRAP_PS: i64 = 6_710_886_400_000;

/// Period of the 48-bit timestamps in FTM frames (IEEE 802.11-2016, 9.6.8.33): 281 s.
const FIELD_WRAP_PS: i64 = 1 << 48;

/// Maximum magnitude of a valid round trip: 15 km, or an offset of that size. The acknowledgement
/// time-out of 802.11 ends an exchange long before.
const MAX_RTT_PS: i64 = 100_000_000;

/// Maximum difference between a reported round trip and that of its timestamps: a step.
const MAX_MISMATCH_PS: i64 = 1_563;

/// Maximum number of results; further ones are ignored.
const MAX_RESULTS: usize = 1_000_000;

/// Maximum length of a line in bytes; longer lines are ignored.
const MAX_LINE_LEN: usize = 4_096;

/// Maximum number of peers.
const MAX_PEERS: usize = 256;

/// Round trips in a text, and its defects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FtmResults {
    /// Valid round trips in the order of the text.
    pub round_trips: Vec<FtmRoundTrip>,
    /// MAC addresses of all peers, in lower case.
    pub peers: Vec<String>,
    /// Invalid results: failed, incomplete, zero, impossible or contradictory.
    pub invalid: u64,
    /// Round trips computed again because a counter wrapped during the frame.
    pub wrapped: u64,
    /// More results than can be held; the rest is ignored.
    pub truncated: bool,
}

/// A valid round trip. It includes the constant offset of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FtmRoundTrip {
    /// Round-trip time in picoseconds; may be negative.
    pub rtt_ps: i64,
    /// Index of the peer in [`FtmResults::peers`]; `None` if the text does not name it.
    pub peer: Option<usize>,
}

impl FtmResults {
    /// Reads a text in any of the formats.
    pub fn read(text: &str) -> Self {
        let mut results = Self::default();
        let mut iw = iw::Reader::default();
        let mut table = table::Reader::default();
        for line in text.lines().filter(|line| line.len() <= MAX_LINE_LEN) {
            let is_known = iw.read(line, &mut results) || table.read(line, &mut results);
            if is_known && results.round_trips.len() >= MAX_RESULTS {
                results.truncated = true;
                break;
            }
        }
        iw.finish(&mut results);
        results
    }

    /// Round trips with one peer, or of all if `None`.
    pub fn rtts_ps(&self, peer: Option<usize>) -> Vec<i64> {
        let of_peer = |found: &&FtmRoundTrip| peer.is_none() || found.peer == peer;
        self.round_trips.iter().filter(of_peer).map(|found| found.rtt_ps).collect()
    }

    /// Step of the timestamps in picoseconds: that of ESP32 devices if most round trips differ by
    /// multiples of it (within the picoseconds that rounding changes), otherwise 1. Corrections by
    /// the firmware shift single ones by parts of a step.
    pub fn step_ps(&self) -> f64 {
        const ROUNDING_PS: f64 = 2.0;
        let residue = |found: &FtmRoundTrip| (found.rtt_ps as f64).rem_euclid(FTM_STEP_PS);
        let mut residues: Vec<f64> = self.round_trips.iter().map(residue).collect();
        let n = residues.len();
        residues.sort_unstable_by(f64::total_cmp);
        // Residues are on a circle.
        residues.extend_from_within(..);
        residues[n..].iter_mut().for_each(|residue| *residue += FTM_STEP_PS);
        let mut most = 0;
        let mut first = 0;
        for last in 0..residues.len() {
            while residues[last] - residues[first] > ROUNDING_PS {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        if n > 1 && 2 * most > n { FTM_STEP_PS } else { 1.0 }
    }

    fn push(&mut self, rtt: Option<RoundTrip>, peer: Option<usize>) {
        match rtt {
            Some(RoundTrip { rtt_ps, wrapped }) => {
                self.wrapped += u64::from(wrapped);
                self.round_trips.push(FtmRoundTrip { rtt_ps, peer });
            }
            None => self.invalid += 1,
        }
    }

    /// Index of a peer; `None` if the text is no MAC address or there are too many peers.
    fn peer(&mut self, text: &str) -> Option<usize> {
        let address = mac_address(text)?;
        let known = self.peers.iter().position(|peer| *peer == address);
        known.or_else(|| {
            (self.peers.len() < MAX_PEERS).then(|| {
                self.peers.push(address);
                self.peers.len() - 1
            })
        })
    }
}

/// A round trip with the repair that it needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundTrip {
    rtt_ps: i64,
    wrapped: bool,
}

impl RoundTrip {
    /// A reported round trip without timestamps. 0 means that there was none. ESP-IDF reports
    /// 32 bits without a sign, so a small negative value appears as nearly 2^32.
    fn reported(rtt_ps: i64) -> Option<Self> {
        let signed = match u32::try_from(rtt_ps) {
            Ok(unsigned) if rtt_ps > MAX_RTT_PS => i64::from(unsigned.cast_signed()),
            _ => rtt_ps,
        };
        let is_valid = signed != 0 && signed.unsigned_abs() <= MAX_RTT_PS.unsigned_abs();
        is_valid.then_some(Self { rtt_ps: signed, wrapped: false })
    }

    /// The round trip of four timestamps, compared with the reported one. Timestamps of 0 were not
    /// taken.
    fn of_timestamps([t1, t2, t3, t4]: [i64; 4], reported: Option<i64>) -> Option<Self> {
        if [t1, t2, t3, t4].iter().any(|&t| t <= 0) {
            return None;
        }
        let raw = (t4 - t1).checked_sub(t3 - t2)?;
        let is_possible = |rtt: &i64| rtt.unsigned_abs() <= MAX_RTT_PS.unsigned_abs();
        if let Some(rtt_ps) = Some(raw).filter(is_possible) {
            let agrees = |rtt: i64| {
                Self::reported(rtt)
                    .is_some_and(|found| found.rtt_ps.abs_diff(rtt_ps) <= MAX_MISMATCH_PS as u64)
            };
            let is_valid = rtt_ps != 0 && reported.is_none_or(agrees);
            return is_valid.then_some(Self { rtt_ps, wrapped: false });
        }
        // A wrapped counter makes T3 - T2 or T4 - T1 too small by its period. The reported value was
        // computed from the wrapped difference, so it is no evidence.
        let periods = [FTM_WRAP_PS, FIELD_WRAP_PS];
        let repairs =
            periods.iter().flat_map(|period| [raw.checked_add(*period), raw.checked_sub(*period)]);
        let repaired = repairs.flatten().find(|rtt| is_possible(rtt) && *rtt != 0)?;
        // Only a wrap makes a later timestamp of one clock the smaller one.
        (t4 < t1 || t3 < t2).then_some(Self { rtt_ps: repaired, wrapped: true })
    }
}

/// A MAC address in lower case.
fn mac_address(text: &str) -> Option<String> {
    let text = text.trim();
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let is_address =
        text.len() == 17 && text.split(':').count() == 6 && text.split(':').all(is_byte);
    is_address.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrapped_counter_is_repaired() {
        // 370 steps of round trip and 75,000 of turnaround; T3 is after the wrap of 6.711 s.
        let (rtt, turnaround) = (578_125, 117_187_500);
        let t2 = FTM_WRAP_PS - 50_000_000;
        let t3 = t2 + turnaround - FTM_WRAP_PS;
        let t1 = 71_468_718_377_125;
        let frame = [t1, t2, t3, t1 + turnaround + rtt];
        let expected = Some(RoundTrip { rtt_ps: rtt, wrapped: true });
        assert_eq!(RoundTrip::of_timestamps(frame, None), expected);
        assert_eq!(RoundTrip::of_timestamps(frame, Some(4_294_000_000)), expected);
        // The responder's 48-bit field, and its 32-bit counter.
        for period in [FIELD_WRAP_PS, FTM_WRAP_PS] {
            let t1 = period - 1_000_000;
            let frame = [t1, 5_000, 5_000 + turnaround, t1 + turnaround + rtt - period];
            assert_eq!(RoundTrip::of_timestamps(frame, None), expected, "{period}");
        }
    }

    #[test]
    fn impossible_frames_are_invalid() {
        let of = RoundTrip::of_timestamps;
        let (t1, turnaround) = (71_468_718_377_125, 117_075_000);
        let frame = [t1, 3_121_737_385_937, 3_121_854_460_937, 71_468_836_029_063];
        assert_eq!(frame[2] - frame[1], turnaround);
        assert_eq!(of(frame, Some(576_938)), Some(RoundTrip { rtt_ps: 576_938, wrapped: false }));
        assert_eq!(of(frame, Some(676_938)), None, "the reported value contradicts");
        assert_eq!(of(frame, Some(0)), None, "the device reported none");
        assert_eq!(of([0, frame[1], frame[2], frame[3]], None), None, "no timestamp");
        assert_eq!(of([frame[0], frame[1], frame[2], frame[3] * 2], None), None, "too long");
        assert_eq!(of([t1, 5, 5 + turnaround, t1 + turnaround], None), None, "no flight at all");
        let extreme = [i64::MAX, 1, i64::MAX, 1];
        assert_eq!(of(extreme, None), None);
    }

    #[test]
    fn reported_round_trip_has_a_sign() {
        let rtt = |value| RoundTrip::reported(value).map(|found| found.rtt_ps);
        assert_eq!(rtt(576_938), Some(576_938));
        assert_eq!(rtt(4_294_966_296), Some(-1_000));
        assert_eq!(rtt(-1_000), Some(-1_000));
        assert_eq!([rtt(0), rtt(200_000_000), rtt(i64::MIN), rtt(i64::MAX)], [None; 4]);
    }

    #[test]
    fn step_is_found_despite_rounding() {
        let of = |values: &[i64]| FtmResults {
            round_trips: values.iter().map(|&rtt_ps| FtmRoundTrip { rtt_ps, peer: None }).collect(),
            ..FtmResults::default()
        };
        assert_eq!(of(&[618_938, 617_376, 604_875, 606_438, 576_938]).step_ps(), FTM_STEP_PS);
        assert_eq!(of(&[1_562, 3_125, 1]).step_ps(), FTM_STEP_PS);
        assert_eq!(of(&[576_938, 577_500]).step_ps(), 1.0);
        assert_eq!((of(&[576_938]).step_ps(), of(&[]).step_ps()), (1.0, 1.0));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC*", rows in proptest::collection::vec(
            "[|,;\t 0-9a-fTRrt:xX.-]{0,60}", 0..20,
        )) {
            FtmResults::read(&text);
            let table = format!("diag,rtt,t1,t2,t3,t4\n{}", rows.join("\n"));
            let results = FtmResults::read(&table);
            let is_possible = |found: &FtmRoundTrip| found.rtt_ps.abs() <= MAX_RTT_PS;
            prop_assert!(results.round_trips.iter().all(is_possible));
        }
    }
}
