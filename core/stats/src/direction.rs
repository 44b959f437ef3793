//! Losses by direction, from the sequence numbers of a stateful STAMP reflector (RFC 8972 section
//! 3: it numbers its replies from 0 instead of copying the probe's number).
//!
//! The reply to probe i carries the number of packets answered before it. `seq - i` therefore rises
//! by one for each duplicate that reached the reflector and falls by one for each probe that did
//! not. A reflector without session state also counts the warm-up. Only differences are used, so
//! wrapping is harmless.

use dwell_sample::{Sample, State, WarmUpSession};

use crate::recent_ids::Recent;

/// Losses by direction: counted probes for which no reply arrived, not even late. Their sum is
/// exact. The split can be off by a few probes if packets were reordered on the forward path just
/// before the end, or if warm-up probes were lost together with probe 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossByDirection {
    /// Lost before the reflector counted them.
    pub forward: u64,
    /// The reflector counted the probe, and the reply was lost.
    pub backward: u64,
    /// Sent after the last probe that was answered in time; direction unknown.
    pub unknown: u64,
}

/// Tracks the reflector's sequence numbers.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    warm_up_sent: u64,
    /// The warm-up was a separate session that the reflector does not count.
    separate: bool,
    /// A number that is not a copy of the probe's was seen.
    stateful: bool,
    newest: Option<Newest>,
    /// Warm-up probes that reached the reflector, if the reply to probe 0 arrived.
    warm_up_counted: Option<u64>,
    /// Numbers of recent replies, to distinguish duplicated probes from duplicated replies.
    numbers: Recent<u32>,
    duplicated_forward: u64,
    /// State of each recent reflector number.
    arrivals: Recent<Arrival>,
    /// Number of duplicated probes with a single reply.
    missing_replies: u64,
    send_failed: u64,
    lost_before_newest: u64,
    lost_after_newest: u64,
}

/// State of a reflector number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Arrived,
    /// Later numbers arrived, and no lost probe explains the gap.
    Missed,
}

/// State at the reply to the highest id so far.
#[derive(Clone, Copy, Debug)]
struct Newest {
    id: u64,
    /// `seq - id`.
    shift: i64,
    duplicated_forward: u64,
    send_failed: u64,
}

impl Directions {
    /// `warm_up_sent` probes were sent before probe 0, numbered just below it.
    pub(crate) const fn new(warm_up_sent: u64) -> Self {
        Self {
            warm_up_sent,
            separate: false,
            stateful: false,
            newest: None,
            warm_up_counted: None,
            numbers: Recent::new(),
            duplicated_forward: 0,
            arrivals: Recent::new(),
            missing_replies: 0,
            send_failed: 0,
            lost_before_newest: 0,
            lost_after_newest: 0,
        }
    }

    /// Records the properties of the reflector found in the warm-up.
    pub(crate) fn note_warm_up(&mut self, warm_up: WarmUpSession) {
        self.stateful |= warm_up.stateful;
        self.separate |= warm_up.separate;
    }

    pub(crate) fn record(&mut self, sample: &Sample) {
        let seq = sample.remote.map(|remote| remote.seq);
        match sample.state {
            State::Received => self.received(sample.id, seq),
            State::Duplicate => self.answered(sample.id, seq),
            State::Lost => *self.lost_at(sample.id) += 1,
            State::Late => {
                let lost = self.lost_at(sample.id);
                *lost = lost.saturating_sub(1);
            }
            State::SendFailed => self.send_failed += 1,
            // Not a probe.
            State::Sent => {}
        }
    }

    /// `None` unless the reflector is known to count packets.
    pub(crate) fn loss(&self) -> Option<LossByDirection> {
        let newest = self.newest.filter(|_| self.stateful)?;
        let unknown = if self.separate { 0 } else { self.warm_up_sent };
        let warm_up = self.warm_up_counted.unwrap_or(unknown);
        // `seq - id` if every probe had arrived, minus its actual value.
        let missing = i128::from(warm_up)
            + i128::from(newest.duplicated_forward)
            + i128::from(self.missing_replies)
            - i128::from(newest.send_failed)
            - i128::from(newest.shift);
        let lost = self.lost_before_newest;
        // The far end controls these numbers, so they are limited by the total loss.
        let forward = missing.clamp(0, i128::from(lost)) as u64;
        Some(LossByDirection { forward, backward: lost - forward, unknown: self.lost_after_newest })
    }

    fn received(&mut self, id: u64, seq: Option<u32>) {
        self.answered(id, seq);
        let Some(seq) = seq else { return };
        let shift = i64::from(seq.wrapping_sub(id as u32).cast_signed());
        self.stateful |= shift != 0;
        if id == 0 {
            let counted = u64::try_from(shift).unwrap_or(0).min(self.warm_up_sent);
            self.warm_up_counted = Some(counted);
        }
        if let Some(newest) = self.newest.filter(|newest| newest.id < id) {
            self.look_for_missed(newest, id, shift);
        }
        if self.newest.is_none_or(|newest| newest.id < id) {
            self.newest = Some(Newest {
                id,
                shift,
                duplicated_forward: self.duplicated_forward,
                send_failed: self.send_failed,
            });
            // Probes time out in sending order, so those that timed out before this reply were sent
            // before its probe.
            self.lost_before_newest += std::mem::take(&mut self.lost_after_newest);
        }
    }

    /// Handles a reply. Two replies with different numbers mean a duplicated probe; with the same
    /// number, a duplicated reply. A duplicate may be reported before the first reply, if that one
    /// waits for its kernel timestamp.
    fn answered(&mut self, id: u64, seq: Option<u32>) {
        let Some(seq) = seq else { return };
        let number = number(id, i64::from(seq.wrapping_sub(id as u32).cast_signed()));
        let missed = self.arrivals.get(number) == Some(Arrival::Missed);
        self.arrivals.put(number, Arrival::Arrived);
        match self.numbers.get(id) {
            // A missing number is already counted.
            Some(first) => self.duplicated_forward += u64::from(first != seq && !missed),
            None => {
                self.numbers.put(id, seq);
                self.missing_replies -= u64::from(missed);
            }
        }
    }

    /// Marks numbers between two successively answered probes that no reply carried, beyond those
    /// that the lost probes between them can explain.
    fn look_for_missed(&mut self, before: Newest, id: u64, shift: i64) {
        let (first, end) = (number(before.id, before.shift).saturating_add(1), number(id, shift));
        let failed = self.send_failed - before.send_failed;
        let probes = (id - before.id - 1).saturating_sub(failed);
        let recent = end.saturating_sub(MAX_SEARCHED_NUMBERS).max(first)..end;
        let absent = |number: &u64| self.arrivals.get(*number).is_none();
        let missed: Vec<u64> = if end.saturating_sub(first) > probes {
            recent.rev().filter(absent).collect()
        } else {
            Vec::new()
        };
        let beyond = (missed.len() as u64).saturating_sub(probes);
        for number in missed.into_iter().take(beyond as usize) {
            self.arrivals.put(number, Arrival::Missed);
        }
        self.missing_replies += beyond;
    }

    fn lost_at(&mut self, id: u64) -> &mut u64 {
        if self.newest.is_some_and(|newest| id < newest.id) {
            &mut self.lost_before_newest
        } else {
            &mut self.lost_after_newest
        }
    }
}

/// Number of preceding reflector numbers to search.
const MAX_SEARCHED_NUMBERS: u64 = 64;

/// Reflector number of a reply, extended beyond 32 bits so that it does not wrap.
fn number(id: u64, shift: i64) -> u64 {
    // The offset keeps the result positive if the shift is negative at the first ids.
    id.saturating_add(1 << 32).saturating_add_signed(shift)
}

#[cfg(test)]
mod tests {
    use dwell_sample::{Remote, RxStamps, TxStamps};
    use dwell_units::Instant;
    use proptest::prelude::*;

    use super::*;

    fn sample(id: u64, state: State, seq: Option<u32>) -> Sample {
        let now = Instant::from_nanos(0);
        Sample {
            id,
            state,
            reordered: false,
            intended: Instant::from_nanos(0),
            tx: TxStamps { app: now, sched: None, tcx: None, kernel: None, hw: None },
            rx: seq.map(|_| RxStamps { hw: None, driver: None, kernel: None, app: now }),
            remote: seq.map(|seq| Remote { rx: now, tx: now, seq, ttl: None, same_clock: false }),
        }
    }

    #[test]
    fn stateless_reflector_gives_no_direction() {
        let mut directions = Directions::new(3);
        for id in 0..10 {
            directions.record(&sample(id, State::Received, Some(id as u32)));
        }
        directions.record(&sample(10, State::Lost, None));
        assert_eq!(directions.loss(), None);
    }

    #[test]
    fn separate_warm_up_proves_state_and_is_not_counted() {
        let mut directions = Directions::new(8);
        // Probe 0 is lost on the forward path, probe 2 on the backward path.
        directions.record(&sample(0, State::Lost, None));
        directions.record(&sample(1, State::Received, Some(0)));
        directions.record(&sample(2, State::Lost, None));
        directions.record(&sample(3, State::Received, Some(2)));
        directions.note_warm_up(WarmUpSession { stateful: true, separate: true });
        let expected = LossByDirection { forward: 1, backward: 1, unknown: 0 };
        assert_eq!(directions.loss(), Some(expected));
        // Without loss the numbers equal those of a stateless reflector.
        let mut directions = Directions::new(8);
        directions.record(&sample(0, State::Received, Some(0)));
        assert_eq!(directions.loss(), None);
        directions.note_warm_up(WarmUpSession { stateful: true, separate: true });
        assert_eq!(directions.loss(), Some(LossByDirection::default()));
    }

    #[test]
    fn duplicated_probe_does_not_hide_a_lost_one() {
        let mut directions = Directions::new(0);
        directions.record(&sample(0, State::Received, Some(0)));
        directions.record(&sample(0, State::Duplicate, Some(1)));
        directions.record(&sample(1, State::Received, Some(2)));
        // A duplicated reply repeats its number and changes nothing.
        directions.record(&sample(1, State::Duplicate, Some(2)));
        // The first reply to probe 2 waits for a timestamp and is reported after the second.
        directions.record(&sample(2, State::Duplicate, Some(4)));
        directions.record(&sample(2, State::Received, Some(3)));
        directions.record(&sample(4, State::Received, Some(5)));
        directions.record(&sample(3, State::Lost, None));
        let expected = LossByDirection { forward: 1, backward: 0, unknown: 0 };
        assert_eq!(directions.loss(), Some(expected));
    }

    #[test]
    fn half_answered_duplicate_does_not_hide_a_loss() {
        let mut directions = Directions::new(0);
        let mut received = |id, seq| directions.record(&sample(id, State::Received, Some(seq)));
        received(0, 0);
        // Probe 1 has numbers 1 and 2, and the second reply is lost; of probe 4 the first reply,
        // number 5, is lost.
        for (id, seq) in [(1, 1), (2, 3), (3, 4), (4, 6), (5, 7)] {
            received(id, seq);
        }
        // Probe 6 is lost on the forward path.
        received(7, 8);
        directions.record(&sample(6, State::Lost, None));
        let expected = LossByDirection { forward: 1, backward: 0, unknown: 0 };
        assert_eq!(directions.loss(), Some(expected));
    }

    #[test]
    fn reordered_probes_are_not_counted_as_duplicates() {
        let mut directions = Directions::new(0);
        // The reflector saw 2 before 1, and replies were reordered again.
        for (id, seq) in [(0, 0), (2, 1), (3, 3), (1, 2), (4, 4), (6, 5), (7, 7), (5, 6), (9, 8)] {
            directions.record(&sample(id, State::Received, Some(seq)));
        }
        directions.record(&sample(8, State::Lost, None));
        let expected = LossByDirection { forward: 1, backward: 0, unknown: 0 };
        assert_eq!(directions.loss(), Some(expected));
    }

    #[test]
    fn losses_by_direction_are_within_5_percent() {
        use rand::{RngExt as _, SeedableRng as _};
        const SEED: u64 = 5;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut directions = Directions::new(0);
        let (mut seq, mut forward, mut backward) = (0, 0_u64, 0_u64);
        for id in 0..100_000 {
            let lost_forward = id > 0 && random.random_bool(0.03);
            let mut replies = Vec::new();
            let copies = u32::from(!lost_forward) + u32::from(random.random_bool(0.02));
            let arrived = if lost_forward { 0 } else { copies };
            for _ in 0..arrived {
                if id == 0 || !random.random_bool(0.03) {
                    replies.push(seq);
                }
                seq += 1;
            }
            forward += u64::from(lost_forward);
            backward += u64::from(!lost_forward && replies.is_empty());
            match replies.as_slice() {
                [] => directions.record(&sample(id, State::Lost, None)),
                [first, others @ ..] => {
                    directions.record(&sample(id, State::Received, Some(*first)));
                    others.iter().for_each(|other| {
                        directions.record(&sample(id, State::Duplicate, Some(*other)));
                    });
                }
            }
        }
        let found = directions.loss().unwrap();
        let close = |found: u64, true_one: u64| found.abs_diff(true_one) * 20 < true_one;
        assert!(
            close(found.forward, forward) && close(found.backward, backward),
            "seed {SEED}: {found:?} for {forward} and {backward}"
        );
    }

    #[test]
    fn late_reply_removes_its_loss() {
        let mut directions = Directions::new(1);
        directions.record(&sample(0, State::Received, Some(1)));
        directions.record(&sample(1, State::Lost, None));
        directions.record(&sample(2, State::Received, Some(3)));
        assert_eq!(directions.loss().map(|loss| loss.backward), Some(1));
        directions.record(&sample(1, State::Late, Some(2)));
        assert_eq!(directions.loss(), Some(LossByDirection::default()));
    }

    #[test]
    fn numbers_wrap_at_32_bits_without_effect() {
        let first = u64::from(u32::MAX) - 1;
        let mut directions = Directions::new(2);
        directions.record(&sample(first, State::Received, Some(0)));
        directions.record(&sample(first + 1, State::Lost, None));
        directions.record(&sample(first + 2, State::Received, Some(1)));
        assert_eq!(directions.loss().map(|loss| loss.forward), Some(1));
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum ProbeOutcome {
        Answered,
        LostForward,
        LostBackward,
        SendFailed,
    }

    proptest! {
        #[test]
        fn stateful_reflector_separates_losses_by_direction(
            warm_ups in proptest::collection::vec(any::<bool>(), 1..8),
            outcomes in proptest::collection::vec(prop_oneof![
                6 => Just(ProbeOutcome::Answered),
                1 => Just(ProbeOutcome::LostForward),
                1 => Just(ProbeOutcome::LostBackward),
                1 => Just(ProbeOutcome::SendFailed),
            ], 1..200),
        ) {
            // Probe 0 is answered, so the number of received warm-up probes is known.
            let outcomes = [&[ProbeOutcome::Answered], outcomes.as_slice()].concat();
            let mut seq = warm_ups.iter().filter(|&&arrived| arrived).count() as u32;
            prop_assume!(seq > 0);
            let mut directions = Directions::new(warm_ups.len() as u64);
            let (mut lost, mut expected, mut tail) = (vec![], LossByDirection::default(), vec![]);
            for (id, &outcome) in outcomes.iter().enumerate() {
                let id = id as u64;
                if matches!(outcome, ProbeOutcome::Answered | ProbeOutcome::LostBackward) {
                    seq += 1;
                }
                match outcome {
                    ProbeOutcome::Answered => {
                        directions.record(&sample(id, State::Received, Some(seq - 1)));
                        for outcome in tail.drain(..) {
                            match outcome {
                                ProbeOutcome::LostForward => expected.forward += 1,
                                _ => expected.backward += 1,
                            }
                        }
                    }
                    ProbeOutcome::SendFailed => directions.record(&sample(id, State::SendFailed, None)),
                    ProbeOutcome::LostForward | ProbeOutcome::LostBackward => {
                        lost.push(id);
                        tail.push(outcome);
                    }
                }
            }
            lost.iter().for_each(|&id| directions.record(&sample(id, State::Lost, None)));
            expected.unknown = tail.len() as u64;
            prop_assert_eq!(directions.loss(), Some(expected));
        }
    }
}
