//! Goals for a reflector on a hostile network, and their verdicts.

use serde::{Deserialize, Serialize};

use super::pool::{Kind, Protocol};
use crate::judge::{Bound, Estimate, Judged, Unit};

/// Maximum growth of resident memory, in megabytes.
const MAX_GROWTH_MB: f64 = 4.0;

/// Maximum share of a prober's packets that may be lost unreported.
const MAX_LOSS: f64 = 0.01;

/// Minimum share of hostile datagrams that a reflector must read; without it, reading nothing would
/// reach every other goal.
const MIN_READ: f64 = 0.5;

/// Output of bench/c/hostile.c.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flood {
    pub(super) sent: u64,
    pub(super) not_sent: u64,
    pub(super) payload_bytes: u64,
    pub(super) seconds: f64,
    pub(super) frames_in: u64,
    pub(super) bytes_in: u64,
    pub(super) frames_out: u64,
    pub(super) bytes_out: u64,
    pub(super) longer_replies: u64,
    pub(super) longest_longer_reply: u64,
}

/// A class of datagrams, and the replies to it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Class {
    pub(super) protocol: Protocol,
    pub(super) kind: Kind,
    #[serde(flatten)]
    pub(super) flood: Flood,
}

impl Class {
    /// Whether any reply was longer than allowed.
    fn is_amplified(&self) -> bool {
        let Flood { longer_replies, longest_longer_reply, bytes_in, bytes_out, .. } = self.flood;
        let allowed = self.protocol.longer_reply();
        match allowed {
            0 => longer_replies > 0 || bytes_out > bytes_in,
            allowed => longest_longer_reply > allowed,
        }
    }
}

/// Results of a prober during a flood.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Prober {
    pub(super) flood: Flood,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Drops of the reflector's socket, as reported by the prober.
    pub(super) far_socket_drops: Option<u64>,
    /// Drops of the socket, as reported by the reflector.
    pub(super) socket_drops: u64,
    /// Requests that the reflector dropped because of its rate limit.
    pub(super) limited: u64,
}

/// All measurements.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) classes: Vec<Class>,
    /// Requests read by the reflectors, and packets dropped by their sockets.
    pub(super) requests: u64,
    pub(super) socket_drops: u64,
    /// Resident memory of each reflector before and after, in bytes.
    pub(super) resident: Vec<(u64, u64)>,
    /// Reflectors that ended by a signal or with an exit code other than 0.
    pub(super) failed: Vec<String>,
    pub(super) prober: Option<Prober>,
}

/// Judges the attack with hostile datagrams.
pub(super) fn judge_datagrams(measured: &Measured) -> Vec<Judged> {
    let any = (!measured.classes.is_empty()).then_some(());
    let sent: u64 = measured.classes.iter().map(|class| class.flood.sent).sum();
    let amplified = measured.classes.iter().filter(|class| class.is_amplified()).count();
    let growth = measured.resident.iter().map(|(before, after)| after.saturating_sub(*before));
    let has_resident = (!measured.resident.is_empty()).then_some(());
    let judged = |goal, value: Option<f64>, bound, unit| {
        Judged::new(goal, value.map(Estimate::exact), bound, unit)
    };
    let none = Bound::AtMost(0.0);
    vec![
        judged("classes of datagrams amplified", any.map(|()| amplified as f64), none, Unit::Count),
        judged(
            "reflectors that failed",
            any.map(|()| measured.failed.len() as f64),
            none,
            Unit::Count,
        ),
        judged(
            "growth of resident memory of any reflector",
            has_resident.and(growth.max()).map(|bytes| bytes as f64 / 1e6),
            Bound::AtMost(MAX_GROWTH_MB),
            Unit::Mb,
        ),
        judged(
            "share of the datagrams that the reflectors read",
            (sent > 0).then(|| measured.requests as f64 / sent as f64),
            Bound::AtLeast(MIN_READ),
            Unit::Ratio,
        ),
    ]
}

/// Judges the prober. Loss above the limit is allowed if the prober reports at least as many drops
/// of the reflector's socket.
pub(super) fn judge_prober(prober: Option<&Prober>) -> Vec<Judged> {
    let unreported = prober.filter(|prober| prober.sent > 0).map(|prober| {
        let lost = prober.lost as f64 / prober.sent as f64;
        let is_reported = prober.far_socket_drops.is_some_and(|drops| drops >= prober.lost);
        if is_reported { 0.0 } else { lost }
    });
    let goal = "loss of a prober beside a flood that is not reported";
    let estimate = unreported.map(Estimate::exact);
    vec![Judged::new(goal, estimate, Bound::AtMost(MAX_LOSS), Unit::Ratio)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;

    fn flood() -> Flood {
        Flood {
            sent: 1_000,
            not_sent: 0,
            payload_bytes: 44_000,
            seconds: 0.01,
            frames_in: 1_000,
            bytes_in: 86_000,
            frames_out: 1_000,
            bytes_out: 86_000,
            longer_replies: 0,
            longest_longer_reply: 0,
        }
    }

    fn measured(protocol: Protocol, flood: Flood) -> Measured {
        let class = Class { protocol, kind: Kind::Valid, flood };
        let (classes, resident) = (vec![class], vec![(1_000_000, 1_500_000)]);
        Measured { classes, requests: 1_000, resident, ..Measured::default() }
    }

    fn missed(judged: &[Judged]) -> Vec<&str> {
        let missed = judged.iter().filter(|row| row.outcome == Outcome::Missed);
        missed.map(|row| row.goal.as_str()).collect()
    }

    #[test]
    fn nothing_measured_misses_every_goal() {
        let all = [judge_datagrams(&Measured::default()), judge_prober(None)].concat();
        assert_eq!(missed(&all).len(), all.len(), "{all:?}");
    }

    #[test]
    fn goals_are_documented() {
        let judged = [judge_datagrams(&Measured::default()), judge_prober(None)].concat();
        crate::judge::assert_documented(judged.iter().map(|row| &*row.goal));
    }

    #[test]
    fn one_longer_reply_is_amplification_except_an_acknowledge() {
        assert!(missed(&judge_datagrams(&measured(Protocol::Udp, flood()))).is_empty());
        let longer =
            |longest| Flood { longer_replies: 1, longest_longer_reply: longest, ..flood() };
        let goals = |protocol, longest| {
            missed(&judge_datagrams(&measured(protocol, longer(longest)))).len()
        };
        assert_eq!(goals(Protocol::Udp, 45), 1);
        assert_eq!(goals(Protocol::Text, 11), 0);
        assert_eq!(goals(Protocol::Text, 12), 1);
    }

    #[test]
    fn loss_is_allowed_if_its_count_is_reported() {
        let prober = |lost, far_socket_drops| Prober {
            flood: flood(),
            sent: 1_000,
            lost,
            far_socket_drops,
            socket_drops: 0,
            limited: 0,
        };
        let is_reached = |prober| judge_prober(Some(&prober))[0].outcome == Outcome::Reached;
        assert!(is_reached(prober(10, None)));
        assert!(!is_reached(prober(11, None)));
        assert!(!is_reached(prober(11, Some(10))));
        assert!(is_reached(prober(400, Some(30_000))));
    }
}
