//! Delays of one probe: the meaningful differences between its timestamps.

use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_units::{Clock, Instant, Nanos, Pairing, Realtime};

use crate::clock_bounds::ClockRelation;

/// Delays of one probe; a field is `None` if one of its timestamps is missing. [`crate::Metric`]
/// defines them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// See [`crate::Metric::Rtt`].
    pub rtt: Option<Nanos>,
    /// See [`crate::Metric::RttKernel`].
    pub rtt_kernel: Option<Nanos>,
    /// See [`crate::Metric::RttDriver`].
    pub rtt_driver: Option<Nanos>,
    /// See [`crate::Metric::RttHw`].
    pub rtt_hw: Option<Nanos>,
    /// See [`crate::Metric::RttIntended`].
    pub rtt_intended: Option<Nanos>,
    /// See [`crate::Metric::RttMinusResidence`].
    pub rtt_minus_residence: Option<Nanos>,
    /// See [`crate::Metric::Residence`].
    pub residence: Option<Nanos>,
    /// See [`crate::Metric::OneWayForward`].
    pub one_way_forward: Option<Nanos>,
    /// See [`crate::Metric::OneWayBackward`].
    pub one_way_backward: Option<Nanos>,
    /// T2 - T1 across two clocks: a delay plus an unknown offset. Only differences between two such
    /// values are meaningful.
    pub forward_plus_offset: Option<Nanos>,
    /// T4 - T3 across two clocks: a delay minus the same offset.
    pub backward_minus_offset: Option<Nanos>,
    /// See [`crate::Metric::QueueingIn`].
    pub queueing_in: Option<Nanos>,
    /// See [`crate::Metric::ScheduleError`].
    pub schedule_error: Option<Nanos>,
}

impl Delays {
    /// Computes the delays of `sample` in any state.
    ///
    /// `bridge` converts the schedule's clock to the clock of the timestamps. Without it a clock
    /// was stepped, the sample is void and has no delays. `near` selects which local timestamps are
    /// compared with the far end's, whatever source the far end has. A sample without that source
    /// lacks those delays, so that one distribution never mixes two sources.
    pub fn of(sample: &Sample, bridge: Option<&Pairing>, near: TimestampSource) -> Self {
        let Some(bridge) = bridge else { return Self::default() };
        if sample.state == State::SendFailed {
            return Self::default();
        }
        let intended = bridge.to_real(sample.intended);
        let tx = sample.tx;
        let sent = Self { schedule_error: Some(tx.app - intended), ..Self::default() };
        let Some(rx) = sample.rx else { return sent };
        let ends = local_timestamps(&tx, &rx, near);
        let remote = sample.remote;
        let residence = remote.map(|r| r.tx - r.rx);
        let forward_plus_offset = ends.zip(remote).map(|((t1, _), r)| r.rx - t1);
        let backward_minus_offset = ends.zip(remote).map(|((_, t4), r)| t4 - r.tx);
        let one_clock = remote.is_some_and(|r| r.same_clock);
        Self {
            rtt: Some(rx.app - tx.app),
            rtt_kernel: between(tx.kernel, rx.kernel),
            rtt_driver: between(tx.tcx.or(tx.kernel), rx.driver),
            rtt_hw: between(tx.hw, rx.hw),
            rtt_intended: Some(rx.app - intended),
            // The far end's timestamps are arbitrary, so the difference saturates.
            rtt_minus_residence: ends
                .zip(residence)
                .map(|((t1, t4), residence)| Nanos((t4 - t1).0.saturating_sub(residence.0))),
            residence,
            one_way_forward: forward_plus_offset.filter(|_| one_clock),
            one_way_backward: backward_minus_offset.filter(|_| one_clock),
            forward_plus_offset,
            backward_minus_offset,
            queueing_in: rx.kernel.map(|kernel| rx.app - kernel),
            ..sent
        }
    }

    /// Adds the one-way delays of `sample` if its ends have two clocks. `far` is the lead of the far
    /// end's clock, whose error is also that of these delays.
    #[must_use]
    pub fn with_far_clock(self, sample: &Sample, far: &ClockRelation) -> Self {
        let Some(remote) = sample.remote.filter(|remote| !remote.same_clock) else { return self };
        let near = ClockRelation::between(far, &ClockRelation::default());
        let forward = self.forward_plus_offset;
        let backward = self.backward_minus_offset;
        Self {
            one_way_forward: forward.map(|forward| far.delay(forward, sample.tx.app)),
            one_way_backward: backward.map(|backward| near.delay(backward, remote.tx)),
            ..self
        }
    }
}

fn between<C: Clock>(from: Option<Instant<C>>, to: Option<Instant<C>>) -> Option<Nanos> {
    Some(to? - from?)
}

/// Local T1 and T4 at `source`, on a clock comparable with the far end's timestamps. For the driver,
/// which only timestamps received packets, and the network card, which has its own clock, these are
/// the kernel timestamps.
pub(crate) fn local_timestamps(
    tx: &TxStamps,
    rx: &RxStamps,
    source: TimestampSource,
) -> Option<(Instant<Realtime>, Instant<Realtime>)> {
    match source {
        TimestampSource::User => Some((tx.app, rx.app)),
        TimestampSource::KernelSw | TimestampSource::Driver | TimestampSource::Hw => {
            tx.kernel.zip(rx.kernel)
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_sample::Remote;

    use super::*;

    fn at(nanos: i64) -> Instant<Realtime> {
        Instant::from_nanos(nanos)
    }

    /// CLOCK_MONOTONIC reads 1,000,000 less than CLOCK_REALTIME.
    const BRIDGE: Pairing = Pairing {
        real: Instant::from_nanos(1_000_000),
        mono: Instant::from_nanos(0),
        width: Nanos(28),
    };

    fn sample() -> Sample {
        Sample {
            id: 0,
            state: State::Received,
            reordered: false,
            intended: Instant::from_nanos(100),
            tx: TxStamps {
                app: at(1_000_130),
                sched: None,
                tcx: None,
                kernel: Some(at(1_000_140)),
                hw: None,
            },
            rx: Some(RxStamps {
                hw: None,
                driver: None,
                kernel: Some(at(1_000_940)),
                app: at(1_000_990),
            }),
            remote: Some(Remote {
                rx: at(7_000_000),
                tx: at(7_000_300),
                seq: 0,
                ttl: None,
                same_clock: false,
            }),
        }
    }

    #[test]
    fn each_delay_is_the_difference_of_its_own_stamps() {
        let delays = Delays::of(&sample(), Some(&BRIDGE), TimestampSource::KernelSw);
        let expected = Delays {
            rtt: Some(Nanos(860)),
            rtt_kernel: Some(Nanos(800)),
            rtt_driver: None,
            rtt_hw: None,
            rtt_intended: Some(Nanos(890)),
            rtt_minus_residence: Some(Nanos(500)),
            residence: Some(Nanos(300)),
            one_way_forward: None,
            one_way_backward: None,
            forward_plus_offset: Some(Nanos(5_999_860)),
            backward_minus_offset: Some(Nanos(-5_999_360)),
            queueing_in: Some(Nanos(50)),
            schedule_error: Some(Nanos(30)),
        };
        assert_eq!(delays, expected);
    }

    #[test]
    fn one_way_delay_needs_a_common_clock() {
        let mut sample = sample();
        let remote =
            Remote { rx: at(1_000_500), tx: at(1_000_600), same_clock: true, seq: 0, ttl: None };
        sample.remote = Some(remote);
        let delays = Delays::of(&sample, Some(&BRIDGE), TimestampSource::User);
        assert_eq!(delays.one_way_forward, Some(Nanos(370)));
        assert_eq!(delays.one_way_backward, Some(Nanos(390)));
    }

    #[test]
    fn one_way_delays_across_clocks_use_their_relation() {
        let sample = sample();
        let far = ClockRelation {
            at: at(1_000_130),
            offset: Nanos(5_999_500),
            error: Nanos(40),
            ..ClockRelation::default()
        };
        let delays = Delays::of(&sample, Some(&BRIDGE), TimestampSource::KernelSw);
        let both = delays.with_far_clock(&sample, &far);
        assert_eq!(both.one_way_forward, Some(Nanos(360)));
        assert_eq!(both.one_way_backward, Some(Nanos(140)));
        assert_eq!(both.rtt_minus_residence, Some(Nanos(360 + 140)));
        let mut one_clock = sample;
        one_clock.remote.as_mut().unwrap().same_clock = true;
        let delays = Delays::of(&one_clock, Some(&BRIDGE), TimestampSource::KernelSw);
        assert_eq!(delays.with_far_clock(&one_clock, &far), delays);
        let void = Delays::default().with_far_clock(&sample, &far);
        assert_eq!((void.one_way_forward, void.one_way_backward), (None, None));
    }

    #[test]
    fn missing_source_is_not_replaced_by_another() {
        let mut sample = sample();
        sample.tx.kernel = None;
        let delays = Delays::of(&sample, Some(&BRIDGE), TimestampSource::KernelSw);
        assert_eq!((delays.rtt_minus_residence, delays.forward_plus_offset), (None, None));
        assert_eq!((delays.rtt, delays.residence), (Some(Nanos(860)), Some(Nanos(300))));
    }

    #[test]
    fn lost_probe_has_only_a_schedule_error() {
        let lost = Sample { state: State::Lost, rx: None, remote: None, ..sample() };
        let only = Delays { schedule_error: Some(Nanos(30)), ..Delays::default() };
        assert_eq!(Delays::of(&lost, Some(&BRIDGE), TimestampSource::User), only);
        let failed = Sample { state: State::SendFailed, ..lost };
        assert_eq!(Delays::of(&failed, Some(&BRIDGE), TimestampSource::User), Delays::default());
        assert_eq!(Delays::of(&sample(), None, TimestampSource::User), Delays::default());
    }

    #[test]
    fn hostile_far_stamps_do_not_overflow() {
        for (rx, tx) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, i64::MIN)] {
            let remote = Remote { rx: at(rx), tx: at(tx), seq: 0, ttl: None, same_clock: true };
            let sample = Sample { remote: Some(remote), ..sample() };
            Delays::of(&sample, Some(&BRIDGE), TimestampSource::User);
        }
    }
}
