//! Reader for ITGSend's log of sent packets: records of 144 bytes, little-endian.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Length of a record.
const RECORD_LEN: usize = 144;

/// Maximum number of flows in a valid log, as in a job.
const MAX_FLOWS: usize = 1_000;

const DAY_S: f64 = 86_400.0;

/// Packets that ITGSend sent, by flow.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    flows: BTreeMap<u32, Flow>,
}

#[derive(Debug)]
struct Flow {
    packets: u64,
    /// Time of the first packet, in seconds of the day.
    first: f64,
    /// Time from the first packet to the last, in seconds.
    elapsed: f64,
}

impl SentLog {
    /// Returns the packets of all flows.
    pub(super) fn packets(&self) -> u64 {
        self.flows.values().map(|flow| flow.packets).sum()
    }

    /// Returns the number of flows with packets.
    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the sum of the flows' rates in packets per second, each over its own duration; NaN
    /// if no flow has a duration.
    pub(super) fn rate_pps(&self) -> f64 {
        let timed = self.flows.values().filter(|flow| flow.elapsed > 0.0);
        timed
            .map(|flow| (flow.packets - 1) as f64 / flow.elapsed)
            .reduce(|all, one| all + one)
            .unwrap_or(f64::NAN)
    }
}

/// Reads a log to its end and ignores a truncated record.
///
/// # Errors
/// The log cannot be read, is invalid, or has more flows than a job.
pub(super) fn read(mut from: impl Read) -> io::Result<SentLog> {
    let mut sent = SentLog::default();
    let mut record = [0; RECORD_LEN];
    loop {
        match from.read_exact(&mut record) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(sent),
            read => read?,
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        let seconds = f64::from_le_bytes(std::array::from_fn(|byte| record[128 + byte]));
        let at = f64::from(word(16)) * 3_600.0 + f64::from(word(20)) * 60.0 + seconds;
        if !at.is_finite() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a timestamp is not a number"));
        }
        let known = sent.flows.len();
        let flow =
            sent.flows.entry(word(0)).or_insert(Flow { packets: 0, first: at, elapsed: 0.0 });
        flow.packets += 1;
        // Times restart at midnight; a small step back of the clock is not a new day.
        let since = (at - flow.first).rem_euclid(DAY_S);
        flow.elapsed = flow.elapsed.max(if since < DAY_S / 2.0 { since } else { 0.0 });
        if known > MAX_FLOWS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many flows"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(flow: u32, (hour, minute, second): (u32, u32, f64)) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(&flow.to_le_bytes());
        bytes[16..20].copy_from_slice(&hour.to_le_bytes());
        bytes[20..24].copy_from_slice(&minute.to_le_bytes());
        bytes[128..136].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    #[test]
    fn itg_rate_sums_flows_across_midnight() {
        let mut log = Vec::new();
        for n in 0..11 {
            log.extend(record(1, (10, 0, f64::from(n) * 0.1)));
        }
        log.extend(record(2, (23, 59, 59.5)));
        log.extend(record(2, (0, 0, 0.0)));
        log.extend(record(2, (0, 0, 0.5)));
        log.extend([1; 100]);
        let sent = read(log.as_slice()).unwrap();
        assert_eq!((sent.packets(), sent.flows()), (14, 2));
        assert!((sent.rate_pps() - 12.0).abs() < 1e-9, "{}", sent.rate_pps());
    }

    #[test]
    fn itg_log_tolerates_small_clock_step() {
        let times = [5.0, 4.999_999, 5.5, 6.0];
        let log: Vec<u8> = times.iter().flat_map(|second| record(1, (10, 0, *second))).collect();
        assert!((read(log.as_slice()).unwrap().rate_pps() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn empty_itg_log_has_no_rate_and_invalid_log_fails() {
        assert!(read([].as_slice()).unwrap().rate_pps().is_nan());
        assert!(read(record(1, (0, 0, 1.0)).as_slice()).unwrap().rate_pps().is_nan());
        assert!(read(record(1, (0, 0, f64::NAN)).as_slice()).is_err());
        let many: Vec<u8> = (0..2_000).flat_map(|flow| record(flow, (0, 0, 1.0))).collect();
        assert!(read(many.as_slice()).is_err());
    }
}
