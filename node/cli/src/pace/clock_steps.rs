//! Detects between which packets the timestamping clock may have been stepped. Pure: the caller
//! passes clock readings and events.

use dwell_units::Pairing;

/// A step is noticed only after it happened, when packets from before and after it may be queued.
/// Packets taken before the last unchanged reading belong to the old clock. Packets that arrive
/// after the queue was empty belong to the new clock. The step may be between any two others.
#[derive(Debug)]
pub(super) struct ClockSteps {
    clocks: Pairing,
    state: State,
    epoch: u64,
    noticed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Packets belong to the same clock as the last one.
    Settled,
    /// A step was noticed, and the queue has not been empty since.
    Open,
    /// The queue was empty: all further packets belong to the new clock.
    Emptied,
}

impl ClockSteps {
    /// Starts before the first packet.
    pub(super) const fn since(clocks: Pairing) -> Self {
        Self { clocks, state: State::Settled, epoch: 0, noticed: 0 }
    }

    /// Notes that the queue was empty.
    pub(super) fn empty(&mut self) {
        if self.state == State::Open {
            self.state = State::Emptied;
        }
    }

    /// Compares a clock reading with the last. After a step, calls `accurate` for a more accurate
    /// reading. Call it after each receive, before [`ClockSteps::packet`] and after
    /// [`ClockSteps::empty`].
    pub(super) fn check(&mut self, now: &Pairing, accurate: impl FnOnce() -> Pairing) {
        if self.clocks.step_until(now).is_some() {
            self.clocks = accurate();
            self.state = State::Open;
            self.noticed += 1;
        }
    }

    /// Notes a packet and returns its epoch. Timestamps are comparable within an epoch.
    pub(super) fn packet(&mut self) -> u64 {
        if self.state != State::Settled {
            self.epoch += 1;
        }
        if self.state == State::Emptied {
            self.state = State::Settled;
        }
        self.epoch
    }

    /// Returns the number of steps noticed.
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

    /// Takes a packet at this offset between the clocks.
    fn packet(steps: &mut ClockSteps, offset: i64) -> u64 {
        steps.check(&clocks(offset), || clocks(offset));
        steps.packet()
    }

    fn empty(steps: &mut ClockSteps, offset: i64) {
        steps.empty();
        steps.check(&clocks(offset), || clocks(offset));
    }

    #[test]
    fn clock_step_separates_queued_packets() {
        let mut steps = ClockSteps::since(clocks(0));
        assert_eq!([0, 0, 90].map(|offset| packet(&mut steps, offset)), [0; 3], "noise");
        // Which of these was timestamped first after the step is unknown.
        assert_eq!([5_000; 3].map(|offset| packet(&mut steps, offset)), [1, 2, 3]);
        empty(&mut steps, 5_000);
        // The third may be from before the step; all later ones are from after it.
        assert_eq!([5_000; 3].map(|offset| packet(&mut steps, offset)), [4, 4, 4]);
        assert_eq!(steps.noticed(), 1);
    }

    #[test]
    fn idle_clock_step_starts_one_epoch() {
        let mut steps = ClockSteps::since(clocks(0));
        packet(&mut steps, 0);
        empty(&mut steps, 0);
        empty(&mut steps, -5_000);
        // A packet may arrive between the checks of queue and clocks.
        empty(&mut steps, -5_000);
        assert_eq!([-5_000; 2].map(|offset| packet(&mut steps, offset)), [1, 1]);
    }

    #[test]
    fn packet_during_step_has_own_epoch() {
        let mut steps = ClockSteps::since(clocks(0));
        packet(&mut steps, 0);
        // The queue was empty, then a packet arrived, then the step was noticed.
        empty(&mut steps, 5_000);
        assert_eq!([5_000; 2].map(|offset| packet(&mut steps, offset)), [1, 2]);
        empty(&mut steps, 5_000);
        assert_eq!([5_000; 2].map(|offset| packet(&mut steps, offset)), [3, 3]);
    }

    #[test]
    fn step_back_and_forth_counts_as_two() {
        let mut steps = ClockSteps::since(clocks(0));
        empty(&mut steps, 5_000);
        empty(&mut steps, 0);
        empty(&mut steps, 0);
        assert_eq!((packet(&mut steps, 0), packet(&mut steps, 0), steps.noticed()), (1, 1, 2));
    }
}
