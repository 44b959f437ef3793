//! Results printed by `iw`.

use super::{FtmResults, RoundTrip};

/// Speed of light in millimetres per picosecond, for results that state a distance only.
const MM_PER_PS: f64 = 0.299_792_458;

/// Reads results line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The result whose lines are being read.
    open: Option<Burst>,
}

/// One result of a peer.
#[derive(Debug, Default)]
struct Burst {
    peer: Option<usize>,
    failed: bool,
    rtt_ps: Option<i64>,
    distance_mm: Option<i64>,
}

impl Reader {
    /// Reads a line. Returns whether it is one of `iw`.
    pub(super) fn read(&mut self, line: &str, results: &mut FtmResults) -> bool {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Target: ") {
            self.finish(results);
            one_line(rest, results);
        } else if line.starts_with("Peer measurements") {
            self.finish(results);
        } else if let Some(rest) = line.strip_prefix("Peer ") {
            self.finish(results);
            let peer = rest.get(..17).and_then(|address| results.peer(address));
            let Some(state) = rest.get(18..).filter(|_| peer.is_some()) else {
                results.invalid += 1;
                return true;
            };
            // A partial result without data is followed by others.
            let failed = state.contains(" no response!")
                || state.contains("failed to parse")
                || state.contains(" no data!")
                || (state.contains("status=") && !state.contains("status=0 "));
            self.open = Some(Burst { peer, failed, ..Burst::default() });
        } else if let Some(open) = &mut self.open {
            let value = |name: &str| line.strip_prefix(name)?.trim().parse().ok();
            if line.starts_with("FTM failed") {
                open.failed = true;
            } else if line.starts_with("RTT_AVG:") {
                open.rtt_ps = value("RTT_AVG:");
            } else if line.starts_with("DIST_AVG:") {
                open.distance_mm = value("DIST_AVG:");
            } else if line.starts_with('|') || line.is_empty() {
                return false;
            }
        } else {
            return false;
        }
        true
    }

    /// Adds the open result.
    pub(super) fn finish(&mut self, results: &mut FtmResults) {
        let Some(burst) = self.open.take() else { return };
        // One of both is present (NL80211_PMSR_FTM_RESP_ATTR_RTT_AVG in nl80211.h).
        let of_distance = |mm: i64| (2.0 * mm as f64 / MM_PER_PS) as i64;
        let rtt_ps = burst.rtt_ps.or(burst.distance_mm.map(of_distance));
        let rtt = rtt_ps.filter(|_| !burst.failed).and_then(RoundTrip::reported);
        results.push(rtt, burst.peer);
    }
}

/// Reads `MAC, status: 0, rtt: N (+-V) psec, distance: ...`.
fn one_line(rest: &str, results: &mut FtmResults) {
    let fields = || rest.split(',').map(str::trim);
    let peer = fields().next().and_then(|address| results.peer(address));
    let field = |name: &str| -> Option<i64> {
        let value = fields().find_map(|field| field.strip_prefix(name))?;
        value.split_ascii_whitespace().next()?.parse().ok()
    };
    let rtt = field("rtt:").filter(|_| field("status:") == Some(0) && peer.is_some());
    results.push(rtt.and_then(RoundTrip::reported), peer);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
wlan0 (phy #0): Peer measurements (cookie 1):
  Peer 02:00:00:00:00:01: status=0 (SUCCESS) @1234567 tsf=99 (final)
    FTM
      BURST_INDEX: 0
      NUM_FTMR_ATTEMPTS: 1
      FTMS_PER_BURST: 8
      RSSI_AVG: -80
      RTT_AVG: 33750
      RTT_VARIANCE: 1562500
      RTT_SPREAD: 3125
      DIST_AVG: 5058
      TX bitrate: 6.5 MBit/s MCS 0
wlan0 (phy #0): peer measurement complete
  Peer 02:00:00:00:00:01: status=0 (SUCCESS) (final)
    FTM
      RTT_AVG: -1250
  Peer 02:00:00:00:00:01: status=0 (SUCCESS) (final)
    FTM
      DIST_AVG: 3000
  Peer 02:00:00:00:00:01: status=3 (FAILURE) @1 (final)
    FTM failed: INVALID_TIMESTAMP (5)
  Peer 02:00:00:00:00:01: status=2 (TIMEOUT) - no data!
  Peer 02:00:00:00:00:02: no response!
  Peer 02:00:00:00:00:02: status=0 (SUCCESS) (final)
    FTM
";

    #[test]
    fn results_of_iw_are_read_and_failures_counted() {
        let results = FtmResults::read(PRINTED);
        // 3 m and back take 20.01 ns.
        assert_eq!(results.rtts_ps(None), [33_750, -1_250, 20_013]);
        assert_eq!(results.peers, ["02:00:00:00:00:01", "02:00:00:00:00:02"]);
        assert_eq!((results.rtts_ps(Some(1)), results.invalid), (vec![], 4));
    }

    #[test]
    fn one_line_results_are_read_and_failures_counted() {
        let results = FtmResults::read(
            "Target: 34:F6:4b:5e:69:1f, status: 0, rtt: 6333 (\u{b1}20) psec, distance: 95 (\u{b1}3) cm, rssi: -40 dBm\n\
             Target: 34:f6:4b:5e:69:1f, status: 1, rtt: 6333 (\u{b1}20) psec, distance: 95 (\u{b1}3) cm, rssi: -40 dBm\n\
             Target: 34:f6:4b:5e:69:1f, status: 0, rtt: 0 psec\n\
             Target: nonsense, status: 0, rtt: 6333 psec\n",
        );
        assert_eq!((results.rtts_ps(Some(0)), results.invalid), (vec![6_333], 3));
        assert_eq!(results.peers, ["34:f6:4b:5e:69:1f"]);
    }
}
