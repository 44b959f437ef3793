//! One-way delays to a device whose clock does not show the time of day, such as one that counts from
//! its start. The probes themselves bound the offset and rate of that clock ([`ClockBounds`]): T2 and
//! T3 are read between T1 and T4.

use dwell_sample::{Sample, State, TimestampSource};
use dwell_units::{Instant, Nanos, Realtime};

use crate::clock_bounds::{ClockBounds, ClockExchange, ClockFault, ClockReading, ClockRelation};
use crate::delays::local_timestamps;
use crate::distribution::Distribution;

/// Minimum difference between two clocks of which one does not show the time of day. Clocks that do
/// are compared by other means: a controller's exchanges, or the bounds of their daemons.
const MIN_DEVICE_LEAD: Nanos = Nanos::from_secs(3_600);

/// Maximum number of exchanges that bound the clock, and of replies whose delays are computed. Beyond
/// them, the better exchange of each two and every second reply are kept.
const MAX_EXCHANGES: usize = 1 << 11;
const MAX_REPLIES: usize = 1 << 16;

/// Timestamps of a reply: T1 and T4 of the local clock, T2 and T3 of the far one.
#[derive(Clone, Copy, Debug)]
struct Reply {
    t1: Instant<Realtime>,
    t2: Instant<Realtime>,
    t3: Instant<Realtime>,
    t4: Instant<Realtime>,
}

impl Reply {
    /// Returns the timestamps of a received probe whose far end has a device's clock.
    fn of(sample: &Sample, near: TimestampSource) -> Option<Self> {
        let (remote, rx) = (sample.remote?, sample.rx?);
        let (t1, t4) = local_timestamps(&sample.tx, &rx, near)?;
        let lead = remote.rx.as_nanos().checked_sub(t1.as_nanos())?;
        let is_device = !remote.same_clock && lead.unsigned_abs() > MIN_DEVICE_LEAD.0 as u64;
        let is_valid = sample.state == State::Received && remote.tx >= remote.rx && t4 >= t1;
        (is_device && is_valid).then_some(Self { t1, t2: remote.rx, t3: remote.tx, t4 })
    }

    fn path_delay(&self) -> i64 {
        (self.t4 - self.t1).0.saturating_sub((self.t3 - self.t2).0)
    }
}

/// Collects replies of a far end whose clock does not show the time of day.
#[derive(Clone, Debug, Default)]
pub struct FarClock {
    replies: Vec<Reply>,
    /// Every n-th reply is kept.
    reply_stride: usize,
    replies_seen: usize,
    /// The best exchange of each `exchange_window` replies, with the local clocks at its end.
    exchanges: Vec<(Reply, ClockReading)>,
    exchange_window: usize,
    in_window: usize,
}

/// Clock of the far end, and the one-way delays that it gives.
#[derive(Clone, Debug)]
pub struct FarClockResult {
    /// Relation of the far clock to the local one.
    pub bounds: ClockBounds,
    /// Delays from the local to the far end, each off by at most the error of the relation.
    pub forward: Distribution,
    /// Delays back, likewise.
    pub backward: Distribution,
}

impl FarClock {
    /// Adds a sample. `near` selects the local timestamps; `before` and `after` are readings of the local
    /// clocks around the sample.
    pub fn record(
        &mut self,
        sample: &Sample,
        near: TimestampSource,
        before: &ClockReading,
        after: &ClockReading,
    ) {
        let Some(reply) = Reply::of(sample, near) else { return };
        self.keep_reply(reply);
        self.keep_exchange(reply, ClockReading::between(before, after, reply.t4));
    }

    fn keep_reply(&mut self, reply: Reply) {
        self.reply_stride = self.reply_stride.max(1);
        if self.replies_seen.is_multiple_of(self.reply_stride) {
            if self.replies.len() == MAX_REPLIES {
                keep_each_second(&mut self.replies);
                self.reply_stride *= 2;
            }
            self.replies.push(reply);
        }
        self.replies_seen += 1;
    }

    fn keep_exchange(&mut self, reply: Reply, local: ClockReading) {
        self.exchange_window = self.exchange_window.max(1);
        if self.in_window == 0 {
            if self.exchanges.len() == MAX_EXCHANGES {
                self.merge_exchanges();
            }
            self.exchanges.push((reply, local));
        } else if let Some(best) = self.exchanges.last_mut()
            && reply.path_delay() < best.0.path_delay()
        {
            *best = (reply, local);
        }
        self.in_window = (self.in_window + 1) % self.exchange_window;
    }

    /// Keeps the better exchange of each two.
    fn merge_exchanges(&mut self) {
        let pairs = self.exchanges.chunks(2);
        let better = pairs.filter_map(|pair| pair.iter().min_by_key(|(it, _)| it.path_delay()));
        self.exchanges = better.copied().collect();
        self.exchange_window *= 2;
    }

    /// Computes the clock and the delays; `None` without any reply of such a far end.
    pub fn finish(self) -> Option<Result<FarClockResult, ClockFault>> {
        if self.replies.is_empty() {
            return None;
        }
        Some(self.bounds().map(|bounds| {
            let far = bounds.relation;
            let near = ClockRelation::between(&far, &ClockRelation::default());
            let (mut forward, mut backward) = (Distribution::new(), Distribution::new());
            for Reply { t1, t2, t3, t4 } in &self.replies {
                forward.record(far.delay(*t2 - *t1, *t1));
                backward.record(near.delay(*t4 - *t3, *t3));
            }
            FarClockResult { bounds, forward, backward }
        }))
    }

    /// Computes the bounds: an exchange for T2 and one for T3 of each reply.
    fn bounds(&self) -> Result<ClockBounds, ClockFault> {
        let mut all = Vec::with_capacity(2 * self.exchanges.len());
        for (reply, local) in &self.exchanges {
            for far in [reply.t2, reply.t3] {
                // Nothing steps or steers the clock of a device.
                let remote = ClockReading::new(far.as_nanos(), far.as_nanos(), far.as_nanos(), 0);
                let remote = remote.ok_or(ClockFault::NoExchange)?;
                all.push(ClockExchange { sent: reply.t1, remote, received: *local });
            }
        }
        ClockBounds::of(&all)
    }
}

fn keep_each_second<T>(all: &mut Vec<T>) {
    let mut kept = false;
    all.retain(|_| {
        kept = !kept;
        kept
    });
}

#[cfg(test)]
mod tests {
    use dwell_sample::{Remote, RxStamps, TxStamps};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const START: i64 = 1_790_000_000_000_000_000;
    /// The device counts from 2036.
    const LEAD: i64 = 295_000_000_000_000_000;

    fn at(nanos: i64) -> Instant<Realtime> {
        Instant::from_nanos(nanos)
    }

    /// A reply to a probe sent at `sent`, with these delays, of a device that runs `rate` too fast.
    fn sample(id: u64, sent: i64, delays: [i64; 3], rate: f64) -> Sample {
        let [forward, residence, backward] = delays;
        let far = |local: i64| at(local + LEAD + ((local - START) as f64 * rate) as i64);
        let received = sent + forward + residence + backward;
        Sample {
            id,
            state: State::Received,
            reordered: false,
            intended: Instant::from_nanos(0),
            tx: TxStamps { app: at(sent), sched: None, tcx: None, kernel: None, hw: None },
            rx: Some(RxStamps { hw: None, driver: None, kernel: None, app: at(received) }),
            remote: Some(Remote {
                rx: far(sent + forward),
                tx: far(sent + forward + residence),
                seq: id as u32,
                ttl: None,
                same_clock: false,
            }),
        }
    }

    fn reading(real: i64) -> ClockReading {
        ClockReading::new(real, real - 1_000, real - 2_000, 50).unwrap()
    }

    fn record(clock: &mut FarClock, sample: &Sample) {
        let received = sample.rx.unwrap().app.as_nanos();
        let (before, after) = (reading(received - 50_000_000), reading(received + 50_000_000));
        clock.record(sample, TimestampSource::User, &before, &after);
    }

    #[test]
    fn delays_of_a_device_are_known_within_the_bound() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(29);
        for rate in [0.0, 40e-6, -200e-6] {
            let mut clock = FarClock::default();
            let (mut forward, mut backward) = (Distribution::new(), Distribution::new());
            for id in 0..1_000 {
                let mut delay = |least: i64| least + random.random_range(0..500_000);
                let delays = [delay(100_000), delay(50_000), delay(200_000)];
                record(&mut clock, &sample(id, START + id as i64 * 10_000_000, delays, rate));
                forward.record(Nanos(delays[0]));
                backward.record(Nanos(delays[2]));
            }
            let found = clock.finish().unwrap().unwrap();
            let FarClockResult { bounds, .. } = found;
            let error = bounds.relation.error.0;
            // The bounds cannot be tighter than half of the shortest delays.
            assert!((150_000..300_000).contains(&error), "{bounds:?}");
            assert!((bounds.relation.rate - rate).abs() <= bounds.rate_error, "{bounds:?}");
            for (found, actual) in [(found.forward, forward), (found.backward, backward)] {
                assert_eq!(found.count(), 1_000);
                let off = |found: Option<Nanos>, actual: Option<Nanos>| {
                    (found.unwrap() - actual.unwrap()).0.abs()
                };
                assert!(off(found.min(), actual.min()) <= error);
                assert!(off(found.max(), actual.max()) <= error);
            }
        }
    }

    #[test]
    fn clock_that_shows_the_time_of_day_is_not_a_device() {
        let mut near = sample(0, START, [1_000, 1_000, 1_000], 0.0);
        let remote = near.remote.as_mut().unwrap();
        (remote.rx, remote.tx) = (at(START + 1_000), at(START + 2_000));
        let mut same = sample(1, START, [1_000, 1_000, 1_000], 0.0);
        same.remote.as_mut().unwrap().same_clock = true;
        let lost = Sample { state: State::Lost, rx: None, ..sample(2, START, [1, 1, 1], 0.0) };
        let mut clock = FarClock::default();
        for sample in [near, same] {
            record(&mut clock, &sample);
        }
        clock.record(&lost, TimestampSource::User, &reading(START), &reading(START));
        assert!(clock.finish().is_none());
    }

    #[test]
    fn device_that_restarts_has_no_delays() {
        let mut clock = FarClock::default();
        for id in 0..10 {
            let mut sample = sample(id, START + id as i64 * 10_000_000, [9_000; 3], 0.0);
            if id >= 5 {
                let remote = sample.remote.as_mut().unwrap();
                remote.rx = remote.rx - Nanos::from_secs(1);
                remote.tx = remote.tx - Nanos::from_secs(1);
            }
            record(&mut clock, &sample);
        }
        assert_eq!(clock.finish().unwrap().unwrap_err(), ClockFault::Unsteady);
    }

    #[test]
    fn memory_is_bounded_and_the_best_exchange_is_kept() {
        let mut clock = FarClock::default();
        let count = 4 * MAX_REPLIES as u64;
        for id in 0..count {
            let delay = if id == 7_777 { 10_000 } else { 100_000 };
            let sample = sample(id, START + id as i64 * 1_000_000, [delay; 3], 0.0);
            record(&mut clock, &sample);
        }
        assert!(clock.replies.len() <= MAX_REPLIES && clock.exchanges.len() <= MAX_EXCHANGES);
        assert!(clock.replies.len() >= MAX_REPLIES / 2);
        let best = clock.exchanges.iter().map(|(it, _)| it.path_delay()).min();
        assert_eq!(best, Some(20_000));
        let result = clock.finish().unwrap().unwrap();
        assert_eq!(result.bounds.min_round_trip, Nanos(30_000));
    }
}
