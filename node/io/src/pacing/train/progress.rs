//! Progress of a train: which packets are due next, until all have left or the train is stopped.
//!
//! A sender that is interrupted resumes at an instant of the schedule, shifted by whole mean gaps,
//! and does not catch up. Sending the missed packets back to back would make the rate look right,
//! but would be an unrequested burst. It resumes at the next instant, or at the one after that if
//! less than half of the gap would be left. A slow call is not an interruption: most of the
//! kernel's work in it comes after the packet.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_units::{Instant, Monotonic, Nanos};

use crate::clock::monotonic;
use crate::pacing::pacer::{self, WaitMode};

static NEVER_STOP: AtomicBool = AtomicBool::new(false);

/// The instants of a train, and how many have passed.
#[derive(Debug)]
pub struct TrainProgress<'a> {
    due: &'a [Instant<Monotonic>],
    stop: &'a AtomicBool,
    next: usize,
    /// Permanent shift of the schedule: instants that passed without a packet, in mean gaps.
    behind: Nanos,
    /// Mean gap between instants. A packet that is later than this has left a hole.
    mean_gap: Nanos,
}

impl<'a> TrainProgress<'a> {
    /// Creates a train whose packets are due at these instants, in ascending order.
    pub fn new(due: &'a [Instant<Monotonic>], stop: &'a AtomicBool) -> Self {
        Self { due, stop, next: 0, behind: Nanos::ZERO, mean_gap: mean_gap(due) }
    }

    /// Marks the first `leads` packets as lead-in. The mean gap is that of the others.
    #[must_use]
    pub fn led_by(self, leads: usize) -> Self {
        Self { mean_gap: mean_gap(self.due.get(leads..).unwrap_or_default()), ..self }
    }

    /// Creates a train without a stop signal.
    pub fn unstopped(due: &'a [Instant<Monotonic>]) -> Self {
        Self::new(due, &NEVER_STOP)
    }

    /// Limits the train to its first `packets` packets.
    pub(super) fn limited(self, packets: usize) -> Self {
        Self { due: &self.due[..self.due.len().min(packets)], ..self }
    }

    /// Returns the number of packets.
    pub(super) fn packets(&self) -> usize {
        self.due.len()
    }

    /// Waits for the next instant and returns the packets due then; `None` at the end of the train
    /// or after a stop.
    pub(super) fn next(&mut self, wait_mode: WaitMode) -> Option<Range<usize>> {
        let (which, due) = self.next_due()?;
        let now = self.wait(wait_mode, due)?;
        self.left(&which, due, now);
        Some(which)
    }

    /// Like [`Self::next`], but returns `lead` before the packets are due, for a sender that passes
    /// on their time of departure. Also returns that time.
    pub(super) fn next_ahead(&mut self, lead: Nanos) -> Option<(Range<usize>, Instant<Monotonic>)> {
        let (which, due) = self.next_due()?;
        let now = self.wait(WaitMode::CatchUp, due - lead)?;
        self.left(&which, due, now);
        Some((which, due))
    }

    /// Returns the next packet after sleeping for its gap, like programs that do not read the
    /// clock.
    pub(super) fn next_after_gap(&mut self) -> Option<usize> {
        let due = *self.due.get(self.next)?;
        let until = match self.next.checked_sub(1) {
            None => due,
            Some(before) => monotonic() + (due - self.due[before]),
        };
        self.wait(WaitMode::CatchUp, until)?;
        self.next += 1;
        Some(self.next - 1)
    }

    /// Returns the packets that are due next, and when; `None` at the end of the train.
    pub(super) fn next_due(&self) -> Option<(Range<usize>, Instant<Monotonic>)> {
        let due = *self.due.get(self.next)?;
        let together = self.due[self.next..].iter().take_while(|other| **other == due).count();
        Some((self.next..self.next + together, due + self.behind))
    }

    /// Returns the instant before the next one, shifted like the rest of the schedule; `None`
    /// before the first.
    pub(super) fn before(&self) -> Option<Instant<Monotonic>> {
        Some(*self.due.get(self.next.checked_sub(1)?)? + self.behind)
    }

    /// Records that packets due at `due` leave at `now`.
    fn left(&mut self, which: &Range<usize>, due: Instant<Monotonic>, now: Instant<Monotonic>) {
        self.next = which.end;
        let Some(next) = self.due.get(which.end) else { return };
        let (gap, mean, late) = (*next - self.due[which.start], self.mean_gap.0.max(1), now - due);
        if late <= gap.max(self.mean_gap) {
            return;
        }
        let past = late.0 % mean;
        let passed = if 2 * past > gap.0 { late.0 - past + mean } else { late.0 - past };
        self.behind += Nanos(passed);
    }

    /// Waits until `due` and returns the time then; `None` after a stop, which also ends a sleep.
    pub(super) fn wait(
        &self,
        wait_mode: WaitMode,
        due: Instant<Monotonic>,
    ) -> Option<Instant<Monotonic>> {
        pacer::wait(wait_mode, due, || self.stop.load(Ordering::Relaxed))
    }
}

/// Returns the mean gap between distinct instants.
fn mean_gap(due: &[Instant<Monotonic>]) -> Nanos {
    let gaps = due.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let time = due.first().zip(due.last()).map_or(Nanos::ZERO, |(first, last)| *last - *first);
    Nanos(time.0 / gaps.max(1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i64) -> Instant<Monotonic> {
        Instant::from_nanos(nanos)
    }

    /// Returns when packets leave if each takes `cost` and the sender is interrupted during
    /// `stall`.
    fn leave(due: &[Instant<Monotonic>], cost: i64, stall: Range<i64>) -> Vec<i64> {
        leave_on(TrainProgress::unstopped(due), cost, stall)
    }

    fn leave_on(mut progress: TrainProgress<'_>, cost: i64, stall: Range<i64>) -> Vec<i64> {
        let (mut now, mut left) = (at(0), Vec::new());
        while let Some((which, due)) = progress.next_due() {
            now = now.max(due);
            if stall.contains(&now.as_nanos()) {
                now = at(stall.end);
            }
            progress.left(&which, due, now);
            left.extend(which.map(|_| now.as_nanos()));
            now = now + Nanos(cost);
        }
        left
    }

    #[test]
    fn stall_longer_than_gap_shifts_schedule_without_burst() {
        let due: Vec<_> = (0..6).map(|n| at(n * 100)).collect();
        assert_eq!(leave(&due, 1, 0..0), [0, 100, 200, 300, 400, 500]);
        // Less than a gap late: the schedule holds.
        assert_eq!(leave(&due, 1, 150..290), [0, 100, 290, 300, 400, 500]);
        // More than a gap late: the instants that have passed are left out,
        assert_eq!(leave(&due, 1, 150..730), [0, 100, 730, 800, 900, 1_000]);
        // and one more if the next is close.
        assert_eq!(leave(&due, 1, 150..799), [0, 100, 799, 900, 1_000, 1_100]);
    }

    #[test]
    fn short_gaps_keep_their_length_after_stall() {
        // As in a trace: short gaps, then a long one.
        let due: Vec<_> = (0..10).chain([400]).map(|n| at(n * 10)).collect();
        let left = leave(&due, 1, 5..900);
        assert!(left[1] == 900, "{left:?}");
        assert!(left[1..10].windows(2).all(|pair| pair[1] - pair[0] >= 5), "no burst: {left:?}");
        assert!(left[3..10].windows(2).all(|pair| pair[1] - pair[0] == 10), "{left:?}");
    }

    #[test]
    fn packets_due_together_resume_on_schedule_after_stall() {
        let due: Vec<_> = (0..4).flat_map(|n| [at(n * 100); 3]).collect();
        let left = leave(&due, 1, 150..530);
        assert_eq!(left, [0, 0, 0, 100, 100, 100, 530, 530, 530, 600, 600, 600]);
    }

    #[test]
    fn lead_in_does_not_affect_mean_gap() {
        // The lead-in begins far ahead, as in trains with short gaps.
        let due: Vec<_> = [-1_000, 0, 100, 200, 300, 400].map(at).to_vec();
        let left = leave_on(TrainProgress::unstopped(&due).led_by(1), 1, 150..330);
        assert_eq!(left[2..], [100, 330, 400, 500], "no burst");
    }

    #[test]
    fn overloaded_sender_sends_as_fast_as_possible() {
        let due: Vec<_> = (0..40).map(|n| at(n * 100)).collect();
        let left = leave(&due, 130, 0..0);
        // As many gaps as fit, and no two packets closer than the time a packet takes.
        assert!(left.windows(2).all(|pair| pair[1] - pair[0] >= 130), "{left:?}");
        assert!(left[39] <= 39 * 130, "{left:?}");
    }

    #[test]
    fn gaps_shorter_than_send_time_do_not_stretch_schedule() {
        // As in a trace: two short gaps, one long one.
        let due: Vec<_> = (0..30).flat_map(|n| [0, 1, 2].map(|short| at(n * 50 + short))).collect();
        let left = leave(&due, 4, 0..0);
        assert_eq!(left[87..], [29 * 50, 29 * 50 + 4, 29 * 50 + 8], "{left:?}");
    }

    #[test]
    fn handing_over_ahead_does_not_shift_schedule() {
        let start = monotonic() + Nanos::from_secs(60);
        let due: Vec<_> = (0..50).map(|n| start + Nanos(n * 10)).collect();
        let mut progress = TrainProgress::unstopped(&due);
        let mut handed = Vec::new();
        while let Some((_, due)) = progress.next_ahead(Nanos::from_secs(3_600)) {
            handed.push(due);
        }
        assert_eq!(handed, due);
    }

    #[test]
    fn packets_due_at_one_instant_leave_together() {
        let due: Vec<_> = [0, 0, 50, 50, 50].map(at).to_vec();
        let mut progress = TrainProgress::unstopped(&due);
        assert_eq!(progress.next(WaitMode::Spin), Some(0..2));
        assert_eq!(progress.next(WaitMode::Spin), Some(2..5));
        assert_eq!(progress.next(WaitMode::Spin), None);
    }

    #[test]
    fn stop_ends_train_at_once() {
        let due = [monotonic() + Nanos::from_secs(3_600)];
        let stop = AtomicBool::new(true);
        for wait_mode in [WaitMode::Spin, WaitMode::SleepSpin] {
            assert_eq!(TrainProgress::new(&due, &stop).next(wait_mode), None);
        }
    }
}
