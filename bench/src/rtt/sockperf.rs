//! Parser for sockperf's full log: some messages, a heading, one row per round trip.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::contestant::RoundTrip;

/// The heading; with `--full-rtt` the last column is the full round trip, otherwise half of it.
const HEADING: &str = "packet, txTime(sec), rxTime(sec), rtt(usec)";

/// Returns median and p99 of the round trips in the log at `path`.
pub(super) fn read_log(path: &Path) -> Result<RoundTrip> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    parse(BufReader::new(file)).with_context(|| format!("in {}", path.display()))
}

fn parse(log: impl BufRead) -> Result<RoundTrip> {
    let mut lines = log.lines();
    loop {
        let line = lines.next().context("no heading 'packet, ... rtt(usec)'")??;
        if line.trim() == HEADING {
            break;
        }
    }
    let mut nanos = Vec::new();
    for line in lines {
        let line = line?;
        if line.starts_with('-') {
            break;
        }
        let micros = line.rsplit(',').next().and_then(|cell| cell.trim().parse::<f64>().ok());
        nanos.push(micros.with_context(|| format!("no round trip in '{line}'"))? * 1e3);
    }
    ensure!(!nanos.is_empty(), "the log has no round trips");
    nanos.sort_by(f64::total_cmp);
    Ok(RoundTrip { p50: nearest_rank(&nanos, 0.5), p99: nearest_rank(&nanos, 0.99) })
}

/// Nearest rank: the smallest sample that at least a share `q` of the samples does not exceed.
fn nearest_rank(sorted: &[f64], q: f64) -> f64 {
    let rank = (sorted.len() as f64 * q).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockperf_log_is_read_from_heading_to_end() {
        let log = format!(
            "talk\n{HEADING}\n0, 2.1, 2.2, 4.008\n1, 2.3, 2.4, 3.5\n2, 2.5, 2.6, 9.25\n---\n"
        );
        let expected = RoundTrip { p50: 4008.0, p99: 9250.0 };
        assert_eq!(parse(log.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_log_of_half_round_trips_is_refused() {
        let log = "packet, txTime(sec), rxTime(sec), latency(usec)\n0, 2.1, 2.2, 4.008\n";
        assert!(parse(log.as_bytes()).is_err());
    }

    #[test]
    fn a_broken_row_is_named() {
        let error = parse(format!("{HEADING}\n0, x\n").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("'0, x'"), "{error}");
    }
}
