//! Bounds against simulated clocks, whose relation is known, and against an independent computation.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const MILLISECOND: f64 = 1e6;
const SECOND: f64 = 1e9;

/// CLOCK_REALTIME of a clock without an offset at the start of a simulation.
const EPOCH: i64 = 1_700_000_000_000_000_000;

/// Number of runs of a simulation.
const RUNS: u64 = 1_000;

/// A clock: its time as a function of the true time, both in nanoseconds since the start.
#[derive(Clone, Debug)]
struct SimulatedClock {
    offset: f64,
    /// Rate of the unsteered clock, minus 1.
    crystal: f64,
    /// Starts of periods, and the frequency correction in each. The first starts at 0.
    steering: Vec<(f64, f64)>,
    /// Time and size of a step.
    step: Option<(f64, f64)>,
}

impl SimulatedClock {
    fn raw(&self, at: f64) -> f64 {
        at * (1.0 + self.crystal)
    }

    fn monotonic(&self, at: f64) -> f64 {
        let ends = self.steering.iter().skip(1).map(|(start, _)| *start).chain([f64::INFINITY]);
        let corrected = self.steering.iter().zip(ends).map(|((start, correction), end)| {
            (self.raw(at.min(end)) - self.raw(*start)).max(0.0) * correction
        });
        self.raw(at) + corrected.sum::<f64>()
    }

    /// CLOCK_REALTIME minus [`EPOCH`].
    fn real(&self, at: f64) -> f64 {
        let step = self.step.filter(|(from, _)| at >= *from).map_or(0.0, |(_, by)| by);
        self.monotonic(at) + self.offset + step
    }

    fn read(&self, at: f64) -> ClockReading {
        let real = EPOCH + self.real(at).floor() as i64;
        // Both started before the simulation.
        let [monotonic, raw] =
            [self.monotonic(at), self.raw(at)].map(|nanos| SECOND as i64 + nanos.floor() as i64);
        ClockReading::new(real, monotonic, raw, 30).unwrap()
    }
}

/// Two clocks and the exchanges between them.
#[derive(Clone, Debug)]
struct Simulation {
    local: SimulatedClock,
    remote: SimulatedClock,
    duration: f64,
    exchanges: Vec<ClockExchange>,
    /// True time at which each exchange began.
    begun: Vec<f64>,
}

impl Simulation {
    /// Returns a trial with a burst at either end and an exchange every 5 s between. A fifth of the
    /// exchanges is lost. Either direction may be 20 times as slow as the other.
    fn new(local: SimulatedClock, remote: SimulatedClock, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let duration = 10_f64.powf(random.random_range(7.5..11.0));
        let fastest = 10_f64.powf(random.random_range(4.0..6.5));
        let mut delays = [fastest, fastest * random.random_range(1.0..20.0)];
        if random.random() {
            delays.reverse();
        }
        let mut simulation = Self { local, remote, duration, exchanges: vec![], begun: vec![] };
        let mut exchange = |at: f64, is_last: bool| {
            let delays = delays.map(|delay| delay * (1.0 - random.random_range(0.0_f64..1.0).ln()));
            let is_lost = !is_last && random.random_bool(0.2);
            simulation.exchange(at, delays, is_lost)
        };
        let mut at = 0.0;
        for number in 0..16 {
            at = exchange(at, number == 15);
        }
        let mut keepalive = at + 5.0 * SECOND;
        while keepalive < duration {
            at = exchange(keepalive, false);
            keepalive += 5.0 * SECOND;
        }
        at = at.max(duration);
        for number in 0..16 {
            at = exchange(at, number == 15);
        }
        simulation
    }

    /// Exchanges a request, and returns the time of its answer.
    fn exchange(&mut self, at: f64, [there, back]: [f64; 2], is_lost: bool) -> f64 {
        let end = at + there + back;
        if !is_lost {
            self.begun.push(at);
            self.exchanges.push(ClockExchange {
                sent: self.local.read(at).real,
                remote: self.remote.read(at + there),
                received: self.local.read(end),
            });
        }
        end
    }

    /// Greatest difference between the lead by the relation and the actual lead, from the first
    /// exchange to the last.
    fn worst_miss(&self, relation: &ClockRelation) -> f64 {
        let (first, last) = (self.exchanges[0].sent, self.exchanges.last().unwrap().received.real);
        let start = self.begun[0];
        let span = (last - first).0 as f64;
        (0..=400)
            .map(|part| {
                let at = start + span * f64::from(part) / 400.0;
                let local = EPOCH + self.local.real(at).round() as i64;
                let lead = self.remote.real(at) - self.local.real(at);
                (lead - relation.lead_at(Instant::from_nanos(local)).0 as f64).abs()
            })
            .fold(0.0, f64::max)
    }
}

fn clock(random: &mut Xoshiro256PlusPlus, max_offset: f64) -> SimulatedClock {
    SimulatedClock {
        offset: random.random_range(-max_offset..max_offset),
        crystal: random.random_range(-100e-6..100e-6),
        steering: vec![(0.0, random.random_range(-50e-6..50e-6))],
        step: None,
    }
}

/// Returns a simulation of two steady clocks that are up to an hour apart.
fn steady(seed: u64) -> Simulation {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9e37));
    let clocks = [0.0, 0.0].map(|_| clock(&mut random, 3_600.0 * SECOND));
    let [local, remote] = clocks;
    Simulation::new(local, remote, seed)
}

#[test]
fn bounds_of_steady_clocks_never_miss() {
    let (mut rtt_half_misses, mut known_steady, mut loosest) = (0, 0, 0.0_f64);
    for seed in 0..RUNS {
        let simulation = steady(seed);
        let bounds = ClockBounds::of(&simulation.exchanges).unwrap();
        known_steady += u32::from(bounds.assumption == RateAssumption::Steady);
        let miss = simulation.worst_miss(&bounds.relation);
        assert!(miss <= bounds.relation.error.0 as f64, "seed {seed}: {miss} {bounds:?}");
        let (local, remote) = (&simulation.local, &simulation.remote);
        let mean = |clock: &SimulatedClock| clock.monotonic(SECOND) / SECOND;
        let rate = mean(remote) / mean(local) - 1.0;
        assert!((rate - bounds.relation.rate).abs() <= bounds.rate_error + 1e-9, "seed {seed}");
        // Half of the shortest round trip bounds the offset at the time of its exchange.
        let half = bounds.min_round_trip.0 as f64 / 2.0;
        loosest = loosest.max(bounds.relation.error.0 as f64 / (half + 50_000.0));
        // The usual estimate: equal delays, to within a fifth of the round trip.
        let best = simulation.exchanges.iter().min_by_key(|exchange| exchange.round_trip());
        let best = best.unwrap();
        let middle = best.sent + Nanos(best.round_trip().0 / 2);
        let guess = ClockRelation {
            at: middle,
            offset: best.remote.real - middle,
            rate: bounds.relation.rate,
            error: Nanos::ZERO,
        };
        rtt_half_misses += u32::from(simulation.worst_miss(&guess) > 0.2 * half);
    }
    assert!(loosest < 10.0, "{loosest}");
    assert!(known_steady > 900, "{known_steady}");
    assert!(rtt_half_misses > 800, "equal delays are a wrong assumption: {rtt_half_misses}");
}

#[test]
fn bounds_of_steered_clocks_never_miss() {
    let mut bounded = 0;
    for seed in 0..RUNS {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x51ed));
        let mut clocks = [0.0, 0.0].map(|_| clock(&mut random, SECOND));
        for clock in &mut clocks {
            let mut at = 0.0;
            while at < 100.0 * SECOND {
                at += random.random_range(0.1..20.0) * SECOND;
                clock.steering.push((at, random.random_range(-390e-6..390e-6)));
            }
        }
        let [local, remote] = clocks;
        let simulation = Simulation::new(local, remote, seed);
        let bounds = ClockBounds::of(&simulation.exchanges).unwrap();
        let miss = simulation.worst_miss(&bounds.relation);
        assert!(miss <= bounds.relation.error.0 as f64, "seed {seed}: {miss} {bounds:?}");
        bounded += u32::from(bounds.assumption == RateAssumption::Bounded);
    }
    assert!(bounded > 300, "{bounded}");
}

#[test]
fn step_of_either_clock_is_flagged() {
    for seed in 0..RUNS {
        let simulation = steady(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let begun = &simulation.begun;
        let at = random.random_range(begun[1]..begun[begun.len() - 1]);
        let sign = if random.random() { 1.0 } else { -1.0 };
        // From 10 us, far below the width that the exchanges alone permit, to an hour.
        let by = sign * 10_f64.powf(random.random_range(4.0..12.5));
        let is_local: bool = random.random();
        let (mut local, mut remote) = (simulation.local, simulation.remote);
        let stepped = if is_local { &mut local } else { &mut remote };
        stepped.step = Some((at, by));
        let exchanges = Simulation::new(local, remote, seed).exchanges;
        let fault = ClockBounds::of(&exchanges).unwrap_err();
        let ClockFault::Stepped { local, by: size } = fault else { panic!("{seed}: {fault:?}") };
        assert_eq!(local, is_local, "seed {seed}");
        assert!((size.0 as f64 - by.abs()).abs() < 4.0, "seed {seed}: {size} {by}");
    }
}

#[test]
fn step_beside_a_wide_reading_is_flagged() {
    let Simulation { local, mut remote, .. } = steady(1);
    remote.step = Some((SECOND, 0.5 * MILLISECOND));
    let mut simulation =
        Simulation { local, remote, duration: 0.0, exchanges: vec![], begun: vec![] };
    for second in 0..3 {
        simulation.exchange(f64::from(second) * SECOND, [10.0 * MILLISECOND; 2], false);
    }
    // The node was not scheduled while it read its clocks.
    simulation.exchanges[1].remote.width = Nanos(1_000_000);
    let fault = ClockBounds::of(&simulation.exchanges).unwrap_err();
    assert!(matches!(fault, ClockFault::Stepped { local: false, .. }), "{fault:?}");
}

#[test]
fn equal_clocks_have_equal_differences() {
    let reading = |real: i64, monotonic: i64, raw: i64| {
        ClockReading::new(EPOCH + real, monotonic, raw, 30).unwrap()
    };
    let exchange = |remote| ClockExchange {
        sent: Instant::from_nanos(EPOCH),
        remote,
        received: reading(200_000, 1_200_000, 1_200_000),
    };
    let permits = |remote| exchange(remote).permits_equal_clocks();
    // A daemon corrects CLOCK_REALTIME by at most 500 ppm of the round trip.
    for raw in [1_050_000 - 150, 1_050_000, 1_050_000 + 150] {
        assert!(permits(reading(50_000, 1_050_000, raw)), "{raw}");
    }
    assert!(!permits(reading(-1, 999_999, 999_999)), "before the request");
    assert!(!permits(reading(200_001, 1_200_001, 1_200_001)), "after the answer");
    assert!(!permits(reading(50_000, 1_050_200, 1_050_000)), "another CLOCK_MONOTONIC");
    assert!(!permits(reading(50_000, 1_050_000, 1_050_200)), "another CLOCK_MONOTONIC_RAW");
}

/// Greatest lead at a time by the exchanges before it minus the least lead by those after it.
fn feasible_width(simulation: &Simulation, at: f64) -> f64 {
    let local = EPOCH + simulation.local.real(at).round() as i64;
    let drift =
        |then: Instant<Realtime>| (local - then.as_nanos()).abs() as f64 * MAX_RATE_DIFFERENCE;
    let exchanges = simulation.exchanges.iter().zip(&simulation.begun);
    let (mut high, mut low) = (f64::INFINITY, f64::NEG_INFINITY);
    for (exchange, begun) in exchanges {
        if *begun < at {
            high = high.min(exchange.high().0 as f64 + drift(exchange.sent));
        } else {
            low = low.max(exchange.low().0 as f64 - drift(exchange.received.real));
        }
    }
    high - low
}

#[test]
fn step_beyond_the_feasible_width_contradicts_the_exchanges() {
    for seed in 0..RUNS {
        let simulation = steady(seed);
        let at = simulation.begun[simulation.begun.len() / 2] - 1.0;
        let by = feasible_width(&simulation, at) + MILLISECOND;
        let (local, mut remote) = (simulation.local, simulation.remote);
        remote.step = Some((at, by));
        let stepped = Simulation::new(local, remote, seed);
        let constraints = Constraints::of(&stepped.exchanges);
        assert_eq!(constraints.check(), Err(ClockFault::Unsteady), "seed {seed}");
    }
}

#[test]
fn correction_beyond_500_ppm_has_no_bounds() {
    let mut simulation = steady(1);
    simulation.duration = 20.0 * SECOND;
    simulation.remote.steering.push((0.0, 5_000e-6));
    let Simulation { local, remote, .. } = simulation;
    let mut simulation =
        Simulation { local, remote, duration: 0.0, exchanges: vec![], begun: vec![] };
    for second in 0..10 {
        let delays = [100.0 * MILLISECOND; 2];
        simulation.exchange(f64::from(second) * SECOND, delays, false);
    }
    assert_eq!(ClockBounds::of(&simulation.exchanges), Err(ClockFault::Unsteady));
}

#[test]
fn no_exchange_has_no_bounds() {
    assert_eq!(ClockBounds::of(&[]), Err(ClockFault::NoExchange));
    let one = steady(3).exchanges[0];
    let bounds = ClockBounds::of(&[one]).unwrap();
    // Over a single exchange the lead may also drift.
    let half = one.round_trip().0 as f64 / 2.0;
    let error = bounds.relation.error.0 as f64;
    assert!((half..half * 1.01 + 10.0).contains(&error), "{error} {half}");
}

#[test]
fn impossible_readings_are_refused() {
    for bad in [i64::MIN, -1, i64::MAX] {
        for at in 0..4 {
            let mut values = [1_i64; 4];
            values[at] = bad;
            let [real, monotonic, raw, width] = values;
            assert_eq!(ClockReading::new(real, monotonic, raw, width), None);
        }
    }
}

/// Interval of the lead at `at` by every pair of constraints.
fn exhaustive(constraints: &Constraints, at: f64) -> (f64, f64) {
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for constraint in &constraints.all {
        let drift = MAX_RATE_DIFFERENCE * (at - constraint.at).abs();
        if constraint.is_high {
            high = high.min(constraint.lead + drift);
        } else {
            low = low.max(constraint.lead - drift);
        }
    }
    (low, high)
}

proptest! {
    #[test]
    fn error_equals_that_of_every_constraint_within_a_nanosecond(
        seed in any::<u64>(),
    ) {
        let constraints = Constraints::of(&steady(seed).exchanges);
        let relation = constraints.relation(&constraints.line());
        let line = |at: f64| {
            let middle = (relation.at - constraints.origin).0 as f64;
            (relation.offset - constraints.lead).0 as f64 + relation.rate * (at - middle)
        };
        let error = relation.error.0 as f64;
        let last = constraints.all.last().unwrap().at;
        let mut worst = 0.0_f64;
        let all = constraints.all.iter().map(|constraint| constraint.at);
        for at in all.chain((0..=2_000).map(|part| last * f64::from(part) / 2_000.0)) {
            let (low, high) = exhaustive(&constraints, at);
            worst = worst.max(high - line(at)).max(line(at) - low);
        }
        // The bound is reached, up to the distance of the tested times.
        let distance = last / 2_000.0 * 2.0 * MAX_RATE_DIFFERENCE;
        prop_assert!(worst <= error + 1.0, "{worst} {error}");
        prop_assert!(worst + distance + 5.0 >= error, "{worst} {error}");
    }

    #[test]
    fn relation_of_two_nodes_bounds_their_delay(
        seed in any::<u64>(),
        delay in 1_000.0_f64..1e9,
        part in 0.0_f64..1.0,
    ) {
        let first = steady(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let other = clock(&mut random, 3_600.0 * SECOND);
        let second = Simulation::new(first.local.clone(), other, seed);
        let [a, b] = [&first, &second].map(|it| ClockBounds::of(&it.exchanges).unwrap().relation);
        let relation = ClockRelation::between(&a, &b);
        let start = first.duration * part;
        let end = start + delay.min(first.duration - start);
        let [sent, received] = [first.remote.read(start).real, second.remote.read(end).real];
        let found = relation.delay(received - sent, sent).0 as f64;
        // In seconds of the sender.
        let actual = first.remote.real(end) - first.remote.real(start);
        let error = relation.error.0 as f64 + 3.0;
        prop_assert!((found - actual).abs() <= error, "{found} {actual} {error}");
    }

    #[test]
    fn absurd_exchanges_never_panic(
        values in proptest::collection::vec(any::<[i64; 9]>(), 0..8),
        mask in any::<u32>(),
    ) {
        let shift = mask % 63;
        let exchanges: Vec<_> = values
            .iter()
            .filter_map(|v| {
                let v = v.map(|value| (value >> shift & i64::MAX) / 4);
                Some(ClockExchange {
                    sent: ClockReading::new(v[0], 0, 0, 0)?.real,
                    remote: ClockReading::new(v[1], v[2], v[3], v[4])?,
                    received: ClockReading::new(v[5], v[6], v[7], v[8])?,
                })
            })
            .collect();
        if let Ok(bounds) = ClockBounds::of(&exchanges) {
            prop_assert!(bounds.relation.rate.is_finite());
            let other = ClockRelation::between(&bounds.relation, &ClockRelation::default());
            other.delay(Nanos(i64::MAX), Instant::from_nanos(i64::MIN));
        }
    }
}
