//! Which way packets were lost, as far as a stateful STAMP reflector tells (RFC 8972 section 3: it
//! numbers its replies itself, from 0, in place of copying the probe's number).
//!
//! The reply to probe i carries the number of packets the reflector had answered before it, so
//! `seq - i` rises by one for each warm-up probe and each duplicate that reached it and falls by
//! one for each probe that did not. Only the difference is used, hence wrapping does no harm.

use dwell_engine::stamps::{Sample, State};

use crate::recent::Recent;

/// Losses by direction: probes of the counted range for which no reply arrived, late or not. Their
/// sum is exact. The split is as good as the reflector's numbers: where packets overtake one
/// another on the way there just before the end, or warm-up probes are lost together with probe 0,
/// it may be off by those few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossByDirection {
    /// Lost before the reflector counted them.
    pub forward: u64,
    /// Counted by the reflector; the reply was lost.
    pub backward: u64,
    /// Sent after the last probe that was answered in time: nothing tells.
    pub unknown: u64,
}

/// Follows the reflector's numbers.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    warm_up_sent: u64,
    /// A number that is not a copy of the probe's has been seen.
    stateful: bool,
    newest: Option<Newest>,
    /// Warm-up probes that reached the reflector, where the reply to probe 0 told.
    warm_up_counted: Option<u64>,
    /// Numbers of recent replies, to tell a probe that was duplicated from a reply that was.
    numbers: Recent<u32>,
    duplicated_forward: u64,
    send_failed: u64,
    lost_before_newest: u64,
    lost_after_newest: u64,
}

/// What was known when the reply to the highest id so far arrived.
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
            stateful: false,
            newest: None,
            warm_up_counted: None,
            numbers: Recent::new(),
            duplicated_forward: 0,
            send_failed: 0,
            lost_before_newest: 0,
            lost_after_newest: 0,
        }
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
        }
    }

    /// `None` unless the reflector proved that it counts.
    pub(crate) fn loss(&self) -> Option<LossByDirection> {
        let newest = self.newest.filter(|_| self.stateful)?;
        let warm_up = self.warm_up_counted.unwrap_or(self.warm_up_sent);
        // What `seq - id` would be had every probe arrived, less what it is.
        let missing = i128::from(warm_up) + i128::from(newest.duplicated_forward)
            - i128::from(newest.send_failed)
            - i128::from(newest.shift);
        let lost = self.lost_before_newest;
        // The numbers are the far end's to write; what was lost in all bounds them.
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
        if self.newest.is_none_or(|newest| newest.id < id) {
            self.newest = Some(Newest {
                id,
                shift,
                duplicated_forward: self.duplicated_forward,
                send_failed: self.send_failed,
            });
            // Probes are given up in the order in which they were sent, so those given up before a
            // reply came in time were sent before it was asked for.
            self.lost_before_newest += std::mem::take(&mut self.lost_after_newest);
        }
    }

    /// Two replies with different numbers mean that the probe arrived twice; two with the same,
    /// that the reply did. A duplicate may be told before the reply that it repeats, when that one
    /// waits for its kernel stamp.
    fn answered(&mut self, id: u64, seq: Option<u32>) {
        let Some(seq) = seq else { return };
        match self.numbers.get(id) {
            Some(first) => self.duplicated_forward += u64::from(first != seq),
            None => self.numbers.put(id, seq),
        }
    }

    fn lost_at(&mut self, id: u64) -> &mut u64 {
        if self.newest.is_some_and(|newest| id < newest.id) {
            &mut self.lost_before_newest
        } else {
            &mut self.lost_after_newest
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::stamps::{Remote, RxStamps, TxStamps};
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
            tx: TxStamps { app: now, sched: None, kernel: None, hw: None },
            rx: seq.map(|_| RxStamps { hw: None, kernel: None, app: now }),
            remote: seq.map(|seq| Remote { rx: now, tx: now, seq, ttl: None, same_clock: false }),
        }
    }

    #[test]
    fn a_stateless_reflector_tells_nothing() {
        let mut directions = Directions::new(3);
        for id in 0..10 {
            directions.record(&sample(id, State::Received, Some(id as u32)));
        }
        directions.record(&sample(10, State::Lost, None));
        assert_eq!(directions.loss(), None);
    }

    #[test]
    fn a_duplicated_probe_does_not_hide_a_lost_one() {
        let mut directions = Directions::new(0);
        directions.record(&sample(0, State::Received, Some(0)));
        directions.record(&sample(0, State::Duplicate, Some(1)));
        directions.record(&sample(1, State::Received, Some(2)));
        // A reply that was duplicated brings its number again and says nothing.
        directions.record(&sample(1, State::Duplicate, Some(2)));
        // The first reply to probe 2 waits for a stamp and is told after the second.
        directions.record(&sample(2, State::Duplicate, Some(4)));
        directions.record(&sample(2, State::Received, Some(3)));
        directions.record(&sample(4, State::Received, Some(5)));
        directions.record(&sample(3, State::Lost, None));
        let expected = LossByDirection { forward: 1, backward: 0, unknown: 0 };
        assert_eq!(directions.loss(), Some(expected));
    }

    #[test]
    fn a_late_reply_takes_its_loss_back() {
        let mut directions = Directions::new(1);
        directions.record(&sample(0, State::Received, Some(1)));
        directions.record(&sample(1, State::Lost, None));
        directions.record(&sample(2, State::Received, Some(3)));
        assert_eq!(directions.loss().map(|loss| loss.backward), Some(1));
        directions.record(&sample(1, State::Late, Some(2)));
        assert_eq!(directions.loss(), Some(LossByDirection::default()));
    }

    #[test]
    fn numbers_that_wrap_at_32_bits_do_no_harm() {
        let first = u64::from(u32::MAX) - 1;
        let mut directions = Directions::new(2);
        directions.record(&sample(first, State::Received, Some(0)));
        directions.record(&sample(first + 1, State::Lost, None));
        directions.record(&sample(first + 2, State::Received, Some(1)));
        assert_eq!(directions.loss().map(|loss| loss.forward), Some(1));
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Answered,
        LostForward,
        LostBackward,
        SendFailed,
    }

    proptest! {
        #[test]
        fn losses_are_told_apart_by_a_reflector_that_counts(
            warm_ups in proptest::collection::vec(any::<bool>(), 1..8),
            fates in proptest::collection::vec(prop_oneof![
                6 => Just(Fate::Answered),
                1 => Just(Fate::LostForward),
                1 => Just(Fate::LostBackward),
                1 => Just(Fate::SendFailed),
            ], 1..200),
        ) {
            // Probe 0 is answered, which tells how many warm-up probes arrived.
            let fates = [&[Fate::Answered], fates.as_slice()].concat();
            let mut seq = warm_ups.iter().filter(|&&arrived| arrived).count() as u32;
            prop_assume!(seq > 0);
            let mut directions = Directions::new(warm_ups.len() as u64);
            let (mut lost, mut expected, mut tail) = (vec![], LossByDirection::default(), vec![]);
            for (id, &fate) in fates.iter().enumerate() {
                let id = id as u64;
                if matches!(fate, Fate::Answered | Fate::LostBackward) {
                    seq += 1;
                }
                match fate {
                    Fate::Answered => {
                        directions.record(&sample(id, State::Received, Some(seq - 1)));
                        for fate in tail.drain(..) {
                            match fate {
                                Fate::LostForward => expected.forward += 1,
                                _ => expected.backward += 1,
                            }
                        }
                    }
                    Fate::SendFailed => directions.record(&sample(id, State::SendFailed, None)),
                    Fate::LostForward | Fate::LostBackward => {
                        lost.push(id);
                        tail.push(fate);
                    }
                }
            }
            lost.iter().for_each(|&id| directions.record(&sample(id, State::Lost, None)));
            expected.unknown = tail.len() as u64;
            prop_assert_eq!(directions.loss(), Some(expected));
        }
    }
}
