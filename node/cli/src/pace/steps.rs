//! Between which packets the clock that stamps them may have been stepped. Pure: whoever receives them
//! tells what it sees, and when.

use dwell_units::Pairing;

/// A step is noticed after it was made, and by then packets stamped before and after it may lie in the
/// queue. Those that were taken before the clocks were last seen unchanged are of one clock, and so are
/// those that come once the queue was empty after the step was noticed; between all others there may be it.
#[derive(Debug)]
pub(super) struct Steps {
    clocks: Pairing,
    state: State,
    epoch: u64,
    noticed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What comes is of the clock that the last packet was of.
    Settled,
    /// A step was noticed, and the queue was not empty since.
    Open,
    /// It was: of what comes, the first is of the new clock, and all others are.
    Emptied,
}

impl Steps {
    /// Begins before the first packet.
    pub(super) const fn since(clocks: Pairing) -> Self {
        Self { clocks, state: State::Settled, epoch: 0, noticed: 0 }
    }

    /// The queue was empty.
    pub(super) fn empty(&mut self) {
        if self.state == State::Open {
            self.state = State::Emptied;
        }
    }

    /// How the clocks are now; where they were stepped, they are read again with care. To be called after
    /// each look for a packet, before the packet is told of and after an empty queue is.
    pub(super) fn look(&mut self, now: &Pairing, with_care: impl FnOnce() -> Pairing) {
        if self.clocks.step_until(now).is_some() {
            self.clocks = with_care();
            self.state = State::Open;
            self.noticed += 1;
        }
    }

    /// A packet was taken. Stamps of two packets can be compared if both have this number in common.
    pub(super) fn packet(&mut self) -> u64 {
        if self.state != State::Settled {
            self.epoch += 1;
        }
        if self.state == State::Emptied {
            self.state = State::Settled;
        }
        self.epoch
    }

    /// How many steps were noticed.
    pub(super) const fn noticed(&self) -> u64 {
        self.noticed
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::{Instant, Nanos};

    use super::*;

    fn clocks(offset: i64) -> Pairing {
        Pairing {
            real: Instant::from_nanos(1_000 + offset),
            mono: Instant::from_nanos(1_000),
            width: Nanos(30),
        }
    }

    /// Takes a packet while the clocks are that far apart.
    fn packet(steps: &mut Steps, offset: i64) -> u64 {
        steps.look(&clocks(offset), || clocks(offset));
        steps.packet()
    }

    fn empty(steps: &mut Steps, offset: i64) {
        steps.empty();
        steps.look(&clocks(offset), || clocks(offset));
    }

    #[test]
    fn nothing_in_a_backlog_can_be_compared_and_all_that_comes_after_it_can() {
        let mut steps = Steps::since(clocks(0));
        assert_eq!([0, 0, 90].map(|offset| packet(&mut steps, offset)), [0; 3], "noise");
        // Which of these three was stamped first after the step, nobody knows.
        assert_eq!([5_000; 3].map(|offset| packet(&mut steps, offset)), [1, 2, 3]);
        empty(&mut steps, 5_000);
        // The third may have been stamped before the step; from here on, all after.
        assert_eq!([5_000; 3].map(|offset| packet(&mut steps, offset)), [4, 4, 4]);
        assert_eq!(steps.noticed(), 1);
    }

    #[test]
    fn a_step_while_nothing_comes_is_between_two_packets_only() {
        let mut steps = Steps::since(clocks(0));
        packet(&mut steps, 0);
        empty(&mut steps, 0);
        empty(&mut steps, -5_000);
        // One may have come between the look at the queue and that at the clocks.
        empty(&mut steps, -5_000);
        assert_eq!([-5_000; 2].map(|offset| packet(&mut steps, offset)), [1, 1]);
    }

    #[test]
    fn a_packet_that_came_while_the_step_was_noticed_stands_alone() {
        let mut steps = Steps::since(clocks(0));
        packet(&mut steps, 0);
        // The queue was empty, then the step was noticed, and a packet was there meanwhile.
        empty(&mut steps, 5_000);
        assert_eq!([5_000; 2].map(|offset| packet(&mut steps, offset)), [1, 2]);
        empty(&mut steps, 5_000);
        assert_eq!([5_000; 2].map(|offset| packet(&mut steps, offset)), [3, 3]);
    }

    #[test]
    fn a_step_back_and_forth_is_two() {
        let mut steps = Steps::since(clocks(0));
        empty(&mut steps, 5_000);
        empty(&mut steps, 0);
        empty(&mut steps, 0);
        assert_eq!((packet(&mut steps, 0), packet(&mut steps, 0), steps.noticed()), (1, 1, 2));
    }
}
