//! Statistics of a stream of probes: counters, delays and losses by direction.

use dwell_sample::{Sample, State, TimestampSource, WarmUpSession};
use dwell_units::{Nanos, Pairing};

use crate::delays::Delays;
use crate::direction::{Directions, LossByDirection};
use crate::distribution::{Distribution, Figures, Resolution};
use crate::metric::Metric;
use crate::threshold::{Evidence, Values};
use crate::variation::{Ipdv, Jitter};

/// Number of probes per final state, without warm-up probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Answered within the time-out.
    pub received: u64,
    /// Not answered within the time-out or later.
    pub lost: u64,
    /// Answered after the time-out.
    pub late: u64,
    /// Additional replies; these are not probes.
    pub duplicate: u64,
    /// Received probes whose reply arrived after the reply to a later probe.
    pub reordered: u64,
    /// Probes that could not be sent; not included in the sent count.
    pub send_failed: u64,
}

/// Statistics of a round-trip measurement. Samples are recorded in the order in which the pinger
/// decides their states. For received probes this is the order of arrival, except that a probe
/// without its kernel timestamp is decided slightly later. Only the RFC 3550 jitter depends on the
/// order.
///
/// Late and duplicate replies are counted but not part of any distribution: figures describe
/// received probes, and the loss and late counts state how many are excluded. Void samples (a clock
/// was stepped) are counted in their state and are not part of any distribution either.
///
/// ```
/// use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
/// use dwell_stats::{Metric, RoundTrip};
/// use dwell_units::{Instant, Nanos, Pairing};
///
/// let bridge = Pairing { real: Instant::EPOCH, mono: Instant::EPOCH, width: Nanos(28) };
/// let tx = TxStamps { app: Instant::from_nanos(1_000), sched: None, tcx: None, kernel: None, hw: None };
/// let answered = Sample {
///     id: 0,
///     state: State::Received,
///     reordered: false,
///     intended: Instant::from_nanos(900),
///     tx,
///     rx: Some(RxStamps { hw: None, driver: None, kernel: None, app: Instant::from_nanos(21_000) }),
///     remote: None,
/// };
/// let lost = Sample { id: 1, state: State::Lost, rx: None, ..answered };
///
/// let mut figures = RoundTrip::new(TimestampSource::User, 0);
/// figures.record(&answered, Some(&bridge));
/// figures.record(&lost, Some(&bridge));
/// assert_eq!(figures.figures(Metric::Rtt).max, Some(Nanos(20_000)));
/// assert_eq!(figures.packets().loss_ratio(), Some(0.5));
/// ```
#[derive(Clone, Debug)]
pub struct RoundTrip {
    near: TimestampSource,
    packets: Packets,
    void: u64,
    /// By metric; empty for variations, which are derived from other values.
    distributions: [Distribution; Metric::ALL.len()],
    ipdv: Ipdv,
    ipdv_forward: Ipdv,
    ipdv_backward: Ipdv,
    jitter: Jitter,
    directions: Directions,
}

impl Packets {
    /// Probes sent: received, lost and late.
    pub fn sent(&self) -> u64 {
        self.received + self.lost + self.late
    }

    /// Lost probes as a share of sent probes, between 0 and 1; `None` if none was sent.
    pub fn loss_ratio(&self) -> Option<f64> {
        share(self.lost, self.sent())
    }

    /// Late probes as a share of sent probes, between 0 and 1; `None` if none was sent.
    pub fn late_ratio(&self) -> Option<f64> {
        share(self.late, self.sent())
    }
}

impl RoundTrip {
    /// Creates an empty measurement.
    ///
    /// `near` is the source closest to the wire for which the warm-up delivered both TX and RX timestamps; it is
    /// used on the local side of every figure that also needs timestamps of the far end.
    /// `warm_up_sent` probes were sent before probe 0 and are not recorded; a reflector without
    /// session state counts them too.
    pub fn new(near: TimestampSource, warm_up_sent: u64) -> Self {
        Self {
            near,
            packets: Packets::default(),
            void: 0,
            distributions: [const { Distribution::new() }; Metric::ALL.len()],
            ipdv: Ipdv::new(),
            ipdv_forward: Ipdv::new(),
            ipdv_backward: Ipdv::new(),
            jitter: Jitter::default(),
            directions: Directions::new(warm_up_sent),
        }
    }

    /// Sets the local source, if it is only known with the first reply, before any delay is recorded.
    pub fn set_near(&mut self, near: TimestampSource) {
        self.near = near;
    }

    /// Records the properties of the far end's sequence numbers found in the warm-up, for losses by
    /// direction.
    pub fn note_warm_up(&mut self, warm_up: WarmUpSession) {
        self.directions.note_warm_up(warm_up);
    }

    /// Replaces the packet counts with exact ones from a source that lost no samples.
    pub fn set_packets(&mut self, packets: Packets) {
        self.packets = packets;
    }

    /// Sets the one-way delays, computed after the measurement, of a far end with another clock.
    pub fn set_one_way(&mut self, forward: Distribution, backward: Distribution) {
        self.distributions[Metric::OneWayForward as usize] = forward;
        self.distributions[Metric::OneWayBackward as usize] = backward;
    }

    /// Adds the state of a probe. `bridge` converts the schedule's clock to the clock of the
    /// timestamps; `None` for a void sample.
    pub fn record(&mut self, sample: &Sample, bridge: Option<&Pairing>) {
        self.packets.count(sample);
        self.directions.record(sample);
        // A late reply replaces a loss whose departure is already recorded.
        if !matches!(sample.state, State::Received | State::Lost) {
            return;
        }
        if bridge.is_none() {
            self.void += 1;
            return;
        }
        let delays = Delays::of(sample, bridge, self.near);
        let simple = [
            (Metric::ScheduleError, delays.schedule_error),
            (Metric::Rtt, delays.rtt),
            (Metric::RttKernel, delays.rtt_kernel),
            (Metric::RttDriver, delays.rtt_driver),
            (Metric::RttHw, delays.rtt_hw),
            (Metric::RttIntended, delays.rtt_intended),
            (Metric::RttMinusResidence, delays.rtt_minus_residence),
            (Metric::Residence, delays.residence),
            (Metric::OneWayForward, delays.one_way_forward),
            (Metric::OneWayBackward, delays.one_way_backward),
            (Metric::QueueingIn, delays.queueing_in),
        ];
        for (metric, delay) in simple {
            if let Some(delay) = delay {
                self.distributions[metric as usize].record(delay);
            }
        }
        let by_pair = [
            (&mut self.ipdv, delays.rtt),
            (&mut self.ipdv_forward, delays.forward_plus_offset),
            (&mut self.ipdv_backward, delays.backward_minus_offset),
        ];
        for (ipdv, delay) in by_pair {
            if let Some(delay) = delay {
                ipdv.record(sample.id, delay);
            }
        }
        if let Some(rtt) = delays.rtt {
            self.jitter.record(rtt);
        }
    }

    /// Number of probes per state.
    pub fn packets(&self) -> Packets {
        self.packets
    }

    /// Received and lost probes excluded from distributions because a clock was stepped.
    pub fn void(&self) -> u64 {
        self.void
    }

    /// Losses by direction; `None` unless the far end is a STAMP reflector that counts packets.
    pub fn loss(&self) -> Option<LossByDirection> {
        self.directions.loss()
    }

    /// RFC 3550 jitter of the round-trip delay in nanoseconds, in order of arrival.
    pub fn jitter(&self) -> Option<f64> {
        self.jitter.nanos()
    }

    /// Round-trip delays seen by the program, for progress and the histogram.
    pub fn rtt(&self) -> &Distribution {
        &self.distributions[Metric::Rtt as usize]
    }

    /// Figures of one metric; all `None` without values.
    pub fn figures(&self, metric: Metric) -> Figures {
        let figures = self.distribution(metric).figures();
        match (metric, self.rtt().min()) {
            (Metric::Pdv, Some(min)) => figures.relative_to(min),
            _ => figures,
        }
    }

    /// Figures of every metric with values, in the order of results.
    pub fn metrics(&self) -> impl Iterator<Item = (Metric, Figures)> + '_ {
        Metric::ALL
            .into_iter()
            .filter(|&metric| self.distribution(metric).count() > 0)
            .map(|metric| (metric, self.figures(metric)))
    }

    /// Evidence for a threshold on `metric`, on jitter or on probe states. `timeout` is the probes'
    /// time-out. Only the schedule error is also known for late and lost probes.
    pub fn evidence(&self, metric: Metric, timeout: Nanos) -> Evidence<'_> {
        let distribution = self.distribution(metric);
        let base = match metric {
            Metric::Pdv => self.rtt().min().unwrap_or(Nanos::ZERO),
            _ => Nanos::ZERO,
        };
        let missing = match metric {
            Metric::ScheduleError => 0,
            _ => self.packets.lost + self.packets.late,
        };
        // If received probes have no value, the timestamps are unavailable here.
        let is_known = distribution.count() > 0 || self.packets.received == 0;
        Evidence {
            packets: Some(self.packets),
            values: is_known.then_some(Values { distribution, base, missing }),
            jitter: self.jitter(),
            timeout: Some(timeout),
            unusable: None,
        }
    }

    /// Scalar results by name; `None` if unavailable.
    pub fn values(&self) -> [(&'static str, Option<f64>); 5] {
        let of_sent = |n: fn(LossByDirection) -> u64| share(n(self.loss()?), self.packets.sent());
        [
            ("loss_ratio", self.packets.loss_ratio()),
            ("late_ratio", self.packets.late_ratio()),
            ("loss_forward_ratio", of_sent(|loss| loss.forward)),
            ("loss_backward_ratio", of_sent(|loss| loss.backward)),
            ("jitter_rfc3550_ns", self.jitter()),
        ]
    }

    /// The coarsest resolution of any percentile.
    pub fn resolution(&self) -> Resolution {
        let all = Metric::ALL.into_iter().map(|metric| self.distribution(metric).resolution());
        all.max().unwrap_or(Resolution::Exact)
    }

    /// The distribution of a metric; PDV uses the round-trip delays.
    fn distribution(&self, metric: Metric) -> &Distribution {
        match metric {
            Metric::Pdv => self.rtt(),
            Metric::Ipdv => self.ipdv.magnitudes(),
            Metric::IpdvForward => self.ipdv_forward.magnitudes(),
            Metric::IpdvBackward => self.ipdv_backward.magnitudes(),
            other => &self.distributions[other as usize],
        }
    }
}

impl Packets {
    fn count(&mut self, sample: &Sample) {
        match sample.state {
            State::Received => {
                self.received += 1;
                self.reordered += u64::from(sample.reordered);
            }
            State::Lost => self.lost += 1,
            State::Late => {
                self.lost = self.lost.saturating_sub(1);
                self.late += 1;
            }
            State::Duplicate => self.duplicate += 1,
            State::SendFailed => self.send_failed += 1,
            // Not a probe.
            State::Sent => {}
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dwell_sample::{Remote, RxStamps, TxStamps};
    use dwell_units::Instant;
    use proptest::prelude::*;

    use super::*;

    const BRIDGE: Pairing =
        Pairing { real: Instant::from_nanos(0), mono: Instant::from_nanos(0), width: Nanos(28) };

    /// Probe `id`, due every millisecond and sent 5 ns late, answered after `rtt`.
    fn sample(id: u64, state: State, rtt: Option<i64>) -> Sample {
        let due = id as i64 * 1_000_000;
        let tx = Instant::from_nanos(due + 5);
        Sample {
            id,
            state,
            reordered: false,
            intended: Instant::from_nanos(due),
            tx: TxStamps { app: tx, sched: None, tcx: None, kernel: None, hw: None },
            rx: rtt.map(|rtt| RxStamps {
                hw: None,
                driver: None,
                kernel: None,
                app: tx + Nanos(rtt),
            }),
            remote: rtt.map(|rtt| Remote {
                rx: tx + Nanos(77_000 + rtt / 4),
                tx: tx + Nanos(77_000 + rtt / 4 + 10),
                seq: id as u32,
                ttl: None,
                same_clock: false,
            }),
        }
    }

    #[test]
    fn late_reply_moves_probe_from_lost_to_late() {
        let mut all = RoundTrip::new(TimestampSource::User, 0);
        all.record(&sample(0, State::Lost, None), Some(&BRIDGE));
        all.record(&sample(1, State::Received, Some(400)), Some(&BRIDGE));
        all.record(&sample(0, State::Late, Some(9_000_000)), Some(&BRIDGE));
        all.record(&sample(1, State::Duplicate, Some(700)), Some(&BRIDGE));
        let packets = all.packets();
        assert_eq!((packets.sent(), packets.received, packets.lost, packets.late), (2, 1, 0, 1));
        assert_eq!((packets.duplicate, packets.loss_ratio()), (1, Some(0.0)));
        assert_eq!(all.rtt().max(), Some(Nanos(400)));
        assert_eq!(all.figures(Metric::ScheduleError).count, 2, "one per sent probe");
    }

    #[test]
    fn void_sample_is_counted_and_has_no_delay() {
        let mut all = RoundTrip::new(TimestampSource::User, 0);
        all.record(&sample(0, State::Received, Some(400)), None);
        assert_eq!((all.packets().received, all.void()), (1, 1));
        assert_eq!(all.metrics().count(), 0);
        assert_eq!(all.jitter(), None);
    }

    #[test]
    fn variation_by_direction_needs_no_common_clock() {
        let mut all = RoundTrip::new(TimestampSource::User, 0);
        all.record(&sample(0, State::Received, Some(400)), Some(&BRIDGE));
        all.record(&sample(1, State::Received, Some(800)), Some(&BRIDGE));
        assert_eq!(all.figures(Metric::IpdvForward).max, Some(Nanos(100)));
        assert_eq!(all.figures(Metric::IpdvBackward).max, Some(Nanos(300)));
        assert_eq!(all.figures(Metric::Ipdv).max, Some(Nanos(400)));
        assert_eq!(all.figures(Metric::OneWayForward).count, 0);
        assert_eq!(all.figures(Metric::RttMinusResidence).min, Some(Nanos(390)));
        assert_eq!(all.figures(Metric::Pdv).max, Some(Nanos(400)));
        assert_eq!(all.figures(Metric::Pdv).min, Some(Nanos(0)));
    }

    #[test]
    fn metrics_without_timestamps_are_omitted() {
        let mut all = RoundTrip::new(TimestampSource::User, 0);
        all.record(&sample(0, State::Received, Some(400)), Some(&BRIDGE));
        let names: Vec<_> = all.metrics().map(|(metric, _)| metric.name()).collect();
        let expected = [
            "rtt_ns",
            "rtt_intended_ns",
            "rtt_minus_residence_ns",
            "residence_ns",
            "pdv_ns",
            "schedule_error_ns",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn nothing_sent_has_no_loss_ratio() {
        let values = RoundTrip::new(TimestampSource::User, 0).values();
        assert!(values.iter().all(|(_, value)| value.is_none()), "{values:?}");
    }

    proptest! {
        #[test]
        fn counters_match_the_last_state_of_every_probe(
            events in proptest::collection::vec((0..40_u64, 0..3_u8, any::<bool>()), 0..200),
        ) {
            let mut all = RoundTrip::new(TimestampSource::User, 0);
            let mut states: BTreeMap<u64, State> = BTreeMap::new();
            let (mut duplicates, mut reordered) = (0, 0);
            for (id, choice, overtaken) in events {
                // Possible next states of this probe, in the order of a pinger.
                let state = match (states.get(&id), choice) {
                    (None, 0) => State::Lost,
                    (None, 1) => State::SendFailed,
                    (None, _) => State::Received,
                    (Some(State::Lost), _) => State::Late,
                    (Some(State::SendFailed), _) => continue,
                    (Some(_), _) => State::Duplicate,
                };
                let rtt = (!matches!(state, State::Lost | State::SendFailed)).then_some(100);
                let overtaken = overtaken && state == State::Received;
                let event = Sample { reordered: overtaken, ..sample(id, state, rtt) };
                all.record(&event, Some(&BRIDGE));
                reordered += u64::from(overtaken);
                if state == State::Duplicate {
                    duplicates += 1;
                } else {
                    states.insert(id, state);
                }
            }
            let count = |state| states.values().filter(|&&s| s == state).count() as u64;
            let expected = Packets {
                received: count(State::Received),
                lost: count(State::Lost),
                late: count(State::Late),
                duplicate: duplicates,
                reordered,
                send_failed: count(State::SendFailed),
            };
            prop_assert_eq!(all.packets(), expected);
            let sent = states.len() as u64 - expected.send_failed;
            prop_assert_eq!(expected.sent(), sent);
            prop_assert_eq!(all.figures(Metric::ScheduleError).count, sent);
            prop_assert_eq!(all.figures(Metric::Rtt).count, expected.received);
        }
    }
}
