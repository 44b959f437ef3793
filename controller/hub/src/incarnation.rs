//! The starts of a node's agent: their receipts, and whether two of them ran at the same time.

use dwell_rollup::{BootId, Incarnation, RangeSet, Record};

use crate::dating::is_plausible;
use crate::period::SECOND_NS;
use crate::row::NodeId;

/// Time for which two agents of one node may seem to run at once: clocks are corrected by seconds.
const MAX_OVERLAP_NS: i64 = 60 * SECOND_NS;

/// Maximum number of ranges of sequence numbers of an incarnation, so that its receipts are at most
/// 800,000 bytes as text and fit into one message of any carrier.
pub(crate) const MAX_RANGES: usize = 20_000;

/// An incarnation of a node in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The node.
    pub node: NodeId,
    /// Start of the agent.
    pub incarnation: Incarnation,
}

/// What a hub knows about an incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncarnationState {
    /// Sequence numbers of committed records, and of samples that the node dropped.
    pub receipts: RangeSet,
    /// Sequence numbers of roll-ups and statuses that the node dropped.
    pub dropped: RangeSet,
    /// The kernel on which it ran.
    pub boot_id: BootId,
    /// First and last plausible CLOCK_REALTIME at which it wrote a record, in nanoseconds.
    pub wall_ns: Option<(i64, i64)>,
    /// The same on CLOCK_BOOTTIME, plausible or not.
    pub boot_ns: Option<(i64, i64)>,
}

impl IncarnationState {
    /// Whether a receipt for this number keeps the receipts within [`MAX_RANGES`].
    pub(crate) fn has_room_for(&self, sequence: u64) -> bool {
        self.receipts.range_count() < MAX_RANGES || self.receipts.touches(sequence)
    }

    /// Whether the hub knows the incarnation.
    pub(crate) fn is_known(&self) -> bool {
        *self != Self::default()
    }

    /// Notes the times of a record. The result does not depend on the order of the records.
    pub(crate) fn note(&mut self, record: &Record, arrival_ns: i64) {
        self.boot_id =
            if self.boot_id.is_known() { self.boot_id.min(record.boot_id) } else { record.boot_id };
        extend(&mut self.boot_ns, record.boot_ns);
        if is_plausible(record.wall_ns, arrival_ns) {
            extend(&mut self.wall_ns, record.wall_ns);
        }
    }

    /// Sequence numbers up to the largest committed one that are neither committed nor dropped. None of
    /// samples, which have no times here: they stay on the node.
    pub fn missing(&self) -> u64 {
        if self.boot_ns.is_none() {
            return 0;
        }
        let mut settled = self.receipts.clone();
        settled.merge(&self.dropped);
        let last = self.receipts.last().unwrap_or(0);
        let beyond = settled.gaps().filter(|gap| *gap.start() <= last);
        beyond.map(|gap| gap.end().min(&last) - gap.start() + 1).sum()
    }
}

fn extend(range: &mut Option<(i64, i64)>, value: i64) {
    *range =
        Some(range.map_or((value, value), |(first, last)| (first.min(value), last.max(value))));
}

/// Two incarnations of one node that ran at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimultaneousAgents {
    /// The incarnations.
    pub incarnations: [Incarnation; 2],
    /// Whether both ran on one kernel.
    pub on_one_kernel: bool,
}

/// Returns two incarnations that ran at the same time, if there are any: two machines from one copied
/// disk have the same name.
pub fn simultaneous_agents(
    incarnations: &[(Incarnation, IncarnationState)],
) -> Option<SimultaneousAgents> {
    let spans = |on_one_kernel: bool| {
        let spans = incarnations.iter().filter_map(move |(incarnation, state)| {
            let span = if on_one_kernel { state.boot_ns } else { state.wall_ns };
            Some((span?, state.boot_id, *incarnation))
        });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_unstable();
        spans
    };
    // On one kernel, CLOCK_BOOTTIME decides, because CLOCK_REALTIME may be set back.
    let mut by_boot = spans(true);
    by_boot.sort_by_key(|(_, boot_id, _)| *boot_id);
    let same = by_boot.chunk_by(|a, b| a.1 == b.1).filter(|group| group[0].1.is_known());
    for group in same {
        if let Some(incarnations) = overlapping(group, |_, _| true) {
            return Some(SimultaneousAgents { incarnations, on_one_kernel: true });
        }
    }
    let incarnations = overlapping(&spans(false), |a, b| a != b)?;
    Some(SimultaneousAgents { incarnations, on_one_kernel: false })
}

type Spans = [((i64, i64), BootId, Incarnation)];

/// Returns two spans that overlap and whose kernels `differ`. The spans are in ascending order.
fn overlapping(spans: &Spans, differ: impl Fn(BootId, BootId) -> bool) -> Option<[Incarnation; 2]> {
    // The spans that end last, of two different kernels.
    let mut latest: Vec<((i64, i64), BootId, Incarnation)> = Vec::new();
    for &(span, boot_id, incarnation) in spans {
        let other = latest.iter().find(|(other, of, _)| {
            differ(*of, boot_id) && other.1.min(span.1).saturating_sub(span.0) > MAX_OVERLAP_NS
        });
        if let Some((_, _, other)) = other {
            return Some([*other, incarnation]);
        }
        latest.push((span, boot_id, incarnation));
        latest.sort_unstable_by_key(|(span, ..)| std::cmp::Reverse(span.1));
        latest.dedup_by_key(|(_, boot_id, _)| *boot_id);
        latest.truncate(2);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(boot: u8, wall_s: (i64, i64), boot_s: (i64, i64)) -> IncarnationState {
        let ns = |(first, last): (i64, i64)| Some((first * SECOND_NS, last * SECOND_NS));
        IncarnationState {
            boot_id: BootId([boot; 16]),
            wall_ns: ns(wall_s),
            boot_ns: ns(boot_s),
            ..IncarnationState::default()
        }
    }

    fn numbered(states: &[IncarnationState]) -> Vec<(Incarnation, IncarnationState)> {
        (1..).map(Incarnation).zip(states.iter().cloned()).collect()
    }

    #[test]
    fn successive_agents_are_one_machine() {
        let restarted = [
            state(1, (1_000, 2_000), (10, 1_010)),
            state(1, (2_001, 3_000), (1_011, 2_010)),
            state(2, (3_100, 9_000), (5, 5_905)),
            state(3, (8_950, 9_100), (5, 155)),
        ];
        assert_eq!(simultaneous_agents(&numbered(&restarted)), None);
        let stepped_back =
            [state(1, (5_000, 6_000), (10, 1_010)), state(1, (1_000, 5_500), (1_011, 5_511))];
        assert_eq!(simultaneous_agents(&numbered(&stepped_back)), None, "one kernel, later");
    }

    #[test]
    fn copied_card_is_noticed() {
        let copies = [
            state(1, (1_000, 90_000), (10, 89_010)),
            state(2, (2_000, 2_100), (10, 110)),
            state(3, (2_200, 5_000), (10, 2_810)),
        ];
        let found = simultaneous_agents(&numbered(&copies)).unwrap();
        assert_eq!(found.incarnations, [Incarnation(1), Incarnation(2)]);
        assert!(!found.on_one_kernel);
        let same_kernel =
            [state(1, (1_000, 2_000), (10, 1_010)), state(1, (1_100, 2_100), (110, 1_110))];
        assert!(simultaneous_agents(&numbered(&same_kernel)).unwrap().on_one_kernel);
    }

    #[test]
    fn receipts_have_a_maximum_number_of_ranges() {
        let odd = |count: usize| (0..count as u64).map(|n| 2 * n + 1).collect::<RangeSet>();
        let state = IncarnationState { receipts: odd(MAX_RANGES - 1), ..Default::default() };
        assert!(state.has_room_for(u64::MAX));
        let full = IncarnationState { receipts: odd(MAX_RANGES), ..Default::default() };
        assert!(!full.has_room_for(u64::MAX));
        assert!(full.has_room_for(2), "it joins two ranges");
        assert!(full.is_known() && !IncarnationState::default().is_known());
    }

    #[test]
    fn missing_records_are_neither_committed_nor_dropped() {
        let state = IncarnationState {
            receipts: "1-5,8-9,20".parse().unwrap(),
            dropped: "6,30".parse().unwrap(),
            boot_ns: Some((1, 2)),
            ..IncarnationState::default()
        };
        assert_eq!(state.missing(), 1 + 10);
        let of_samples = IncarnationState { boot_ns: None, ..state };
        assert_eq!(of_samples.missing(), 0);
    }
}
