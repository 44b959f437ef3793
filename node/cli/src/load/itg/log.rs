//! Reader for ITGSend's log of sent packets: records of 144 bytes, little-endian.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Length of a record.
const RECORD: usize = 144;

/// Maximum number of flows in a valid log, as in a job.
const MOST_FLOWS: usize = 1_000;

const DAY_S: f64 = 86_400.0;

/// Packets that ITGSend sent, by flow.
#[derive(Debug, Default)]
pub(super) struct Left {
    flows: BTreeMap<u32, Flow>,
}

#[derive(Debug)]
struct Flow {
    packets: u64,
    /// Time of the first packet, in seconds of the day.
    first: f64,
    /// Time from the first packet to the last, in seconds.
    took: f64,
}

impl Left {
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
        let timed = self.flows.values().filter(|flow| flow.took > 0.0);
        timed
            .map(|flow| (flow.packets - 1) as f64 / flow.took)
            .reduce(|all, one| all + one)
            .unwrap_or(f64::NAN)
    }
}

/// Reads a log to its end and ignores a truncated record.
///
/// # Errors
/// The log cannot be read, is invalid, or has more flows than a job.
pub(super) fn read(mut from: impl Read) -> io::Result<Left> {
    let mut left = Left::default();
    let mut record = [0; RECORD];
    loop {
        match from.read_exact(&mut record) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(left),
            read => read?,
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        let seconds = f64::from_le_bytes(std::array::from_fn(|byte| record[128 + byte]));
        let at = f64::from(word(16)) * 3_600.0 + f64::from(word(20)) * 60.0 + seconds;
        if !at.is_finite() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a timestamp is not a number"));
        }
        let known = left.flows.len();
        let flow = left.flows.entry(word(0)).or_insert(Flow { packets: 0, first: at, took: 0.0 });
        flow.packets += 1;
        // Times restart at midnight; a small step back of the clock is not a new day.
        let since = (at - flow.first).rem_euclid(DAY_S);
        flow.took = flow.took.max(if since < DAY_S / 2.0 { since } else { 0.0 });
        if known > MOST_FLOWS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many flows"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(flow: u32, (hour, minute, second): (u32, u32, f64)) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&flow.to_le_bytes());
        bytes[16..20].copy_from_slice(&hour.to_le_bytes());
        bytes[20..24].copy_from_slice(&minute.to_le_bytes());
        bytes[128..136].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    #[test]
    fn the_rate_is_the_sum_over_flows_each_in_its_own_time_even_over_midnight() {
        let mut log = Vec::new();
        for n in 0..11 {
            log.extend(record(1, (10, 0, f64::from(n) * 0.1)));
        }
        log.extend(record(2, (23, 59, 59.5)));
        log.extend(record(2, (0, 0, 0.0)));
        log.extend(record(2, (0, 0, 0.5)));
        log.extend([1; 100]);
        let left = read(log.as_slice()).unwrap();
        assert_eq!((left.packets(), left.flows()), (14, 2));
        assert!((left.rate_pps() - 12.0).abs() < 1e-9, "{}", left.rate_pps());
    }

    #[test]
    fn a_clock_that_was_stepped_back_makes_no_day_of_a_flow() {
        let times = [5.0, 4.999_999, 5.5, 6.0];
        let log: Vec<u8> = times.iter().flat_map(|second| record(1, (10, 0, *second))).collect();
        assert!((read(log.as_slice()).unwrap().rate_pps() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_log_of_nothing_has_no_rate_and_one_of_rubbish_is_refused() {
        assert!(read([].as_slice()).unwrap().rate_pps().is_nan());
        assert!(read(record(1, (0, 0, 1.0)).as_slice()).unwrap().rate_pps().is_nan());
        assert!(read(record(1, (0, 0, f64::NAN)).as_slice()).is_err());
        let many: Vec<u8> = (0..2_000).flat_map(|flow| record(flow, (0, 0, 1.0))).collect();
        assert!(read(many.as_slice()).is_err());
    }
}
