use dwell_sample::{Remote, RxStamps, TxStamps};
use proptest::prelude::*;

use super::*;

const START_REAL: i64 = 1_700_000_107;
const START_MONO: i64 = 5_000;

fn pairing() -> Pairing {
    Pairing {
        real: Instant::from_parts(START_REAL, 0),
        mono: Instant::from_parts(START_MONO, 0),
        width: Nanos(30),
    }
}

fn clocks(pairing: Pairing) -> NodeClocks {
    NodeClocks {
        pairing,
        suspended: Nanos::from_secs(1_000),
        is_synchronised: true,
        bound_ns: Some(7),
    }
}

fn stream() -> Stream {
    let name = |name: &str| name.parse().unwrap();
    Stream { reflector: name("n2"), protocol: name("stamp"), entry: name("mesh") }
}

fn collector() -> Collector {
    Collector::new(stream(), 3, &pairing())
}

fn mono(ms: i64) -> Instant<Monotonic> {
    pairing().mono + Nanos::from_millis(ms)
}

/// A probe intended `ms` after the start, answered after `rtt`.
fn sample(id: u64, ms: i64, state: State, rtt: Nanos) -> Sample {
    let app = pairing().to_real(mono(ms));
    let has_reply = matches!(state, State::Received | State::Late | State::Duplicate);
    Sample {
        id,
        state,
        reordered: false,
        intended: mono(ms),
        tx: TxStamps { app, sched: None, tcx: None, kernel: None, hw: None },
        rx: has_reply.then_some(RxStamps { hw: None, driver: None, kernel: None, app: app + rtt }),
        remote: None,
    }
}

fn record(collector: &mut Collector, sample: &Sample) {
    collector.record(sample, Some(&pairing()), TimestampSource::User);
}

fn settle(collector: &mut Collector, ms: i64) -> Vec<Rollup> {
    let mut rollups = Vec::new();
    collector.settle(mono(ms), &clocks(pairing()), &mut |rollup| rollups.push(rollup));
    rollups
}

fn finish(collector: &mut Collector) -> Vec<Rollup> {
    let mut rollups = Vec::new();
    collector.finish(&clocks(pairing()), &mut |rollup| rollups.push(rollup));
    rollups
}

fn of(level: Level, rollups: &[Rollup]) -> Vec<&Rollup> {
    rollups.iter().filter(|rollup| rollup.level == level).collect()
}

#[test]
fn interval_is_rolled_up_once_when_its_probes_are_decided() {
    let mut collector = collector();
    // The interval of 10 s ends 3 s after the start.
    record(&mut collector, &sample(0, 2_000, State::Received, Nanos(500)));
    assert_eq!(settle(&mut collector, 2_999), []);
    record(&mut collector, &sample(1, 2_999, State::Lost, Nanos(0)));
    record(&mut collector, &sample(2, 3_000, State::Received, Nanos(700)));
    let [first] = &settle(&mut collector, 3_000)[..] else { panic!("one interval has ended") };
    assert_eq!((first.counts.sent, first.counts.received, first.counts.lost), (2, 1, 1));
    assert_eq!(first.delays(RollupMetric::Rtt).unwrap().max(), Some(Nanos(500)));
    assert_eq!(first.start_wall_ns, 1_700_000_100_000_000_000);
    assert_eq!(first.start_boot_ns, (START_MONO - 7 + 1_000) * 1_000_000_000);
    assert_eq!((first.level, first.schedule_version), (Level::TenSeconds, 3));
    let expected = ClockQuality { is_synchronised: true, bound_ns: Some(7), ..Default::default() };
    assert_eq!(first.clock, expected);
    assert_eq!(settle(&mut collector, 3_000), []);
    let rest = finish(&mut collector);
    let [second] = of(Level::TenSeconds, &rest)[..] else { panic!("{rest:?}") };
    assert_eq!((second.counts.sent, second.start_wall_ns), (1, 1_700_000_110_000_000_000));
}

#[test]
fn five_minutes_are_aligned_and_sum_up_their_ten_seconds() {
    let mut collector = collector();
    let mut rollups = Vec::new();
    // 1,700,000,107 is 7 s into its five minutes, so 293 s are left.
    for id in 0..400 {
        let ms = id as i64 * 1_000;
        record(&mut collector, &sample(id, ms, State::Received, Nanos(1_000 + id as i64)));
        rollups.extend(settle(&mut collector, ms + 1));
    }
    let long = of(Level::FiveMinutes, &rollups);
    let [first] = long[..] else { panic!("{long:?}") };
    assert_eq!((first.counts.sent, first.start_wall_ns), (293, 1_700_000_100_000_000_000));
    assert_eq!(first.delays(RollupMetric::Rtt).unwrap().max(), Some(Nanos(1_292)));
    assert_eq!(of(Level::TenSeconds, &rollups).len(), 40);
    rollups.extend(finish(&mut collector));
    let sent = |level| of(level, &rollups).iter().map(|rollup| rollup.counts.sent).sum::<u64>();
    assert_eq!((sent(Level::TenSeconds), sent(Level::FiveMinutes)), (400, 400));
}

#[test]
fn late_reply_replaces_the_loss_until_the_record_is_written() {
    let mut collector = collector();
    for (id, ms) in [(0, 0), (1, 1_000)] {
        record(&mut collector, &sample(id, ms, State::Lost, Nanos(0)));
    }
    record(&mut collector, &sample(0, 0, State::Late, Nanos::from_secs(1)));
    record(&mut collector, &sample(0, 0, State::Duplicate, Nanos::from_secs(1)));
    let [rollup] = &settle(&mut collector, 3_000)[..] else { panic!() };
    let counts = rollup.counts;
    assert_eq!((counts.sent, counts.lost, counts.late, counts.duplicate), (2, 1, 1, 1));
    assert_eq!(rollup.delays, [], "late replies have no delay in a roll-up");
    record(&mut collector, &sample(1, 1_000, State::Late, Nanos::from_secs(3)));
    record(&mut collector, &sample(0, 0, State::Duplicate, Nanos::from_secs(3)));
    assert_eq!((collector.replies_after_record(), collector.probes_after_record()), (2, 0));
    let rest = finish(&mut collector);
    assert_eq!(of(Level::TenSeconds, &rest).len(), 0);
    assert_eq!(of(Level::FiveMinutes, &rest)[0].counts, counts);
}

#[test]
fn failed_sends_are_not_sent_probes() {
    let mut collector = collector();
    record(&mut collector, &sample(0, 0, State::SendFailed, Nanos(0)));
    let counts = settle(&mut collector, 3_000)[0].counts;
    assert_eq!((counts.sent, counts.send_failed, counts.due()), (0, 1, 1));
}

#[test]
fn stepped_clock_neither_repeats_nor_skips_an_interval() {
    let mut collector = collector();
    let mut watch = StepWatch::new(pairing());
    // The clock is set from 2023 back by 50 years between seconds 4 and 5.
    let by = -50 * 365 * 86_400;
    let stepped = Pairing {
        real: Instant::from_parts(START_REAL + 5 + by, 0),
        mono: mono(5_000),
        width: Nanos(30),
    };
    let mut rollups = Vec::new();
    for id in 0..25_u64 {
        let ms = id as i64 * 1_000;
        if id == 5 {
            let step = watch.update(stepped).unwrap();
            assert_eq!(step.by, Nanos::from_secs(by));
            collector.note_step(step.after, step.before);
        }
        let bridge = (id != 4).then_some(watch.last()).copied();
        let probe = sample(id, ms, State::Received, Nanos(1_000));
        collector.record(&probe, bridge.as_ref(), TimestampSource::User);
        let now = clocks(*watch.last());
        collector.settle(mono(ms), &now, &mut |rollup| rollups.push(rollup));
    }
    collector.finish(&clocks(stepped), &mut |rollup| rollups.push(rollup));
    let short = of(Level::TenSeconds, &rollups);
    assert_eq!(short.iter().map(|rollup| rollup.counts.sent).collect::<Vec<_>>(), [3, 10, 10, 2]);
    assert_eq!(
        short.iter().map(|r| r.clock.was_stepped).collect::<Vec<_>>(),
        [false, true, false, false]
    );
    let boot: Vec<_> = short.iter().map(|rollup| rollup.start_boot_ns).collect();
    assert!(boot.windows(2).all(|pair| pair[1] - pair[0] == SHORT_INTERVAL.0), "{boot:?}");
    let second = short[1];
    assert_eq!(second.start_wall_ns, (1_700_000_110 + by) * 1_000_000_000, "dated when written");
    assert_eq!(second.delays(RollupMetric::Rtt).unwrap().count(), 9, "one sample is void");
    assert_eq!(of(Level::FiveMinutes, &rollups).len(), 1);
    assert!(of(Level::FiveMinutes, &rollups)[0].clock.was_stepped);
    assert_eq!(watch.steps(), 1);
}

#[test]
fn one_way_delays_state_whether_both_ends_read_one_clock() {
    let replied = |id, same_clock, offset: i64| {
        let probe = sample(id, 0, State::Received, Nanos(1_000));
        let at = |delay: i64| probe.tx.app + Nanos(delay + offset);
        let remote = Remote { rx: at(400), tx: at(500), seq: 0, ttl: None, same_clock };
        Sample { remote: Some(remote), ..probe }
    };
    let rolled_up = |samples: &[Sample]| {
        let mut collector = collector();
        samples.iter().for_each(|sample| record(&mut collector, sample));
        settle(&mut collector, 3_000).remove(0)
    };
    let same = rolled_up(&[replied(0, true, 0)]);
    assert!(same.clock.is_one_clock);
    let ends =
        |rollup: &Rollup, metric| rollup.delays(metric).map(|delays| delays.min().unwrap().0);
    assert_eq!(ends(&same, RollupMetric::OneWayForward), Some(400));
    assert_eq!(ends(&same, RollupMetric::OneWayBackward), Some(500));
    let other = rolled_up(&[replied(0, true, 0), replied(1, false, -10_000)]);
    assert!(!other.clock.is_one_clock);
    assert_eq!(ends(&other, RollupMetric::OneWayForward), Some(-9_600));
    let unrelated = rolled_up(&[replied(0, false, i64::MAX / 2)]);
    assert_eq!(ends(&unrelated, RollupMetric::OneWayForward), None);
    assert_eq!(ends(&unrelated, RollupMetric::Rtt), Some(1_000));
}

/// Outcome of a probe: whether it is answered, after how long, and how often.
fn outcomes() -> impl Strategy<Value = Vec<(u8, i64, u8)>> {
    prop::collection::vec((0..10_u8, 1..4_000_i64, 0..3_u8), 1..400)
}

proptest! {
    /// Probes every 200 ms with a time-out of 1 s; samples arrive in the order of their decisions.
    #[test]
    fn every_probe_is_in_exactly_one_interval(outcomes in outcomes(), turn in 1..40_usize) {
        const TIMEOUT_MS: i64 = 1_000;
        let mut events = Vec::new();
        for (id, (kind, delay_ms, duplicates)) in outcomes.iter().enumerate() {
            let (id, ms) = (id as u64, id as i64 * 200);
            let rtt = Nanos::from_millis(*delay_ms);
            match *kind {
                0 => events.push((ms, sample(id, ms, State::SendFailed, Nanos(0)))),
                1 => events.push((ms + TIMEOUT_MS, sample(id, ms, State::Lost, Nanos(0)))),
                _ if *delay_ms > TIMEOUT_MS => {
                    events.push((ms + TIMEOUT_MS, sample(id, ms, State::Lost, Nanos(0))));
                    events.push((ms + delay_ms, sample(id, ms, State::Late, rtt)));
                }
                _ => {
                    events.push((ms + delay_ms, sample(id, ms, State::Received, rtt)));
                    for _ in 0..*duplicates {
                        events.push((ms + delay_ms + 1, sample(id, ms, State::Duplicate, rtt)));
                    }
                }
            }
        }
        events.sort_by_key(|(at, _)| *at);
        // A probe is undecided until its first event.
        let mut undecided: std::collections::BTreeSet<_> = (0..outcomes.len() as u64).collect();
        let mut collector = collector();
        let mut rollups = Vec::new();
        let mut replies = 0;
        for chunk in events.chunks(turn) {
            for (_, sample) in chunk {
                record(&mut collector, sample);
                replies += u64::from(matches!(sample.state, State::Late | State::Duplicate));
            }
            chunk.iter().for_each(|(_, sample)| { undecided.remove(&sample.id); });
            let now = chunk[chunk.len() - 1].0;
            let first = undecided.first().map(|id| *id as i64 * 200);
            rollups.extend(settle(&mut collector, first.unwrap_or(now).min(now)));
        }
        rollups.extend(finish(&mut collector));
        prop_assert_eq!(collector.probes_after_record(), 0);
        for level in [Level::TenSeconds, Level::FiveMinutes] {
            let mut sum = ProbeCounts::default();
            let mut starts = std::collections::BTreeSet::new();
            let mut rtt = DelayRollup::default();
            for rollup in of(level, &rollups) {
                prop_assert!(rollup.counts.is_consistent());
                prop_assert!(starts.insert(rollup.start_boot_ns), "an interval is written twice");
                sum.add(&rollup.counts);
                if let Some(delays) = rollup.delays(RollupMetric::Rtt) {
                    rtt.merge(delays);
                }
            }
            prop_assert_eq!(sum.due(), outcomes.len() as u64);
            prop_assert_eq!(sum.late + sum.duplicate + collector.replies_after_record(), replies);
            prop_assert_eq!(sum.received, rtt.count());
            let in_time = |(kind, delay, _): &&(u8, i64, u8)| *kind > 1 && *delay <= TIMEOUT_MS;
            prop_assert_eq!(sum.received, outcomes.iter().filter(in_time).count() as u64);
        }
    }
}

#[test]
fn start_of_interval_ignores_the_noise_of_pairings() {
    // Nanoseconds by which a later pairing differs, and the start of the interval in it.
    for (noise, start) in [
        (-12, 1_700_000_100_000_000_000),
        (15, 1_700_000_100_000_000_000),
        (-1_000_000, 1_700_000_100_000_000_000),
        (1_000_000, 1_700_000_100_000_000_000),
        (-1_000_001, 1_700_000_099_998_999_999),
        (400_000_000, 1_700_000_100_400_000_000),
    ] {
        let mut collector = collector();
        record(&mut collector, &sample(0, 2_000, State::Received, Nanos(500)));
        let later = Pairing { real: pairing().real + Nanos(noise), ..pairing() };
        let mut rollups = Vec::new();
        collector.finish(&clocks(later), &mut |rollup| rollups.push(rollup));
        assert!(rollups.iter().all(|rollup| rollup.start_wall_ns == start), "{noise}: {rollups:?}");
        assert_eq!(rollups.len(), 2);
    }
}
