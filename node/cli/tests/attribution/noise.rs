//! Tests of the verdict on recorded noise, with and without delay in the wrong component.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::joined::ComponentTime;
use crate::verdict::{Rise, RiseVerdict};
use crate::{MAX_CYCLES, alone};

/// Medians of rounds without a hold, in microseconds, for each component of CPU time, recorded on a
/// machine with two processors and twenty compilers running.
const ROUNDS_US: [&[f64]; 6] = [
    &[7.93, 8.54, 15.56, 15.0, 8.93, 9.87, 11.2, 8.16, 10.76, 15.66, 17.42, 13.35],
    &[10.15, 9.67, 14.43, 14.55, 11.0, 10.74, 11.66, 9.67, 11.1, 16.42, 16.36, 11.4],
    &[39.62, 37.1, 30.28, 35.5, 34.65, 35.13, 30.27, 40.19, 41.45, 38.82, 41.78, 29.09],
    &[11.94, 6.58, 5.91, 5.77, 6.19, 8.08, 8.58, 7.81, 8.17, 8.3, 10.64, 7.93],
    &[5.67, 3.33, 2.92, 3.12, 3.73, 4.68, 3.74, 4.67, 4.4, 5.16, 5.16, 3.66],
    &[
        12.83, 7.83, 11.68, 10.14, 7.24, 10.39, 9.6, 8.64, 9.18, 8.99, 13.64, 13.37, 29.14, 10.25,
        8.22, 10.48, 11.48,
    ],
];

const HELD: i64 = 20_000;

/// Packets that all take the same time.
fn all(nanos: i64) -> ComponentTime {
    ComponentTime { median: nanos, decile: nanos }
}

/// A component that should rise by `expected` and rises by `really`, over the maximum number of
/// cycles, with rounds drawn from the recorded ones.
fn drawn(rounds: &[f64], expected: i64, really: i64, random: &mut Xoshiro256PlusPlus) -> Rise {
    let mut rise = Rise::expected(expected);
    for _ in 0..MAX_CYCLES {
        let mut round = || (1e3 * rounds[random.random_range(0..rounds.len())]) as i64;
        rise.note(all(round()), all(round() + really));
    }
    rise
}

#[test]
fn misplaced_20_us_are_found_in_recorded_noise() {
    let _alone = alone();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20);
    for rounds in ROUNDS_US {
        for _ in 0..200 {
            let (missing, too_much) =
                (drawn(rounds, HELD, 0, &mut random), drawn(rounds, 0, HELD, &mut random));
            for rise in [missing, too_much] {
                assert_eq!(rise.judge(), RiseVerdict::Wrong, "{rise} of {rounds:?}");
            }
        }
    }
}

#[test]
fn noise_alone_is_never_wrong() {
    let _alone = alone();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(21);
    for rounds in ROUNDS_US {
        for held in [0, HELD, 200_000, 2_000_000] {
            for _ in 0..200 {
                let rise = drawn(rounds, held, held, &mut random);
                assert_ne!(rise.judge(), RiseVerdict::Wrong, "{rise} of {rounds:?}");
            }
        }
    }
}

#[test]
fn quiet_machine_finds_3_us_and_ignores_falls() {
    let _alone = alone();
    let of = |expected: i64, really: i64| {
        let mut rise = Rise::expected(expected);
        for n in 0..MAX_CYCLES as i64 {
            rise.note(all(5_000 + 31 * n % 400), all(5_000 + 17 * n % 400 + really));
        }
        rise
    };
    assert_eq!(of(0, 0).judge(), RiseVerdict::Right);
    assert_eq!(of(0, 3_000).judge(), RiseVerdict::Wrong);
    assert_eq!(of(0, -7_000).judge(), RiseVerdict::Right);
    assert_eq!(of(HELD, HELD - 3_000).judge(), RiseVerdict::Wrong);
    assert_eq!(of(HELD, HELD + 3_000).judge(), RiseVerdict::Wrong);
    assert_eq!(of(200_000, 206_000).judge(), RiseVerdict::Right, "5 %");
    assert!(!of(0, 3_000).median_is_within() && of(0, 1_000).median_is_within());
}

/// If the host takes the processors most of the time, half of the packets held for long are also
/// stalled, but few of the others.
#[test]
fn stalls_of_most_packets_are_not_wrong() {
    let _alone = alone();
    let of = |decile: i64| {
        let mut rise = Rise::expected(0);
        for n in 0..MAX_CYCLES as i64 {
            let base = ComponentTime { median: 6_000 + 31 * n % 400, decile: 5_000 };
            rise.note(base, ComponentTime { median: 2_000_000, decile: 5_000 + decile });
        }
        rise.judge()
    };
    assert_eq!((of(0), of(9_000)), (RiseVerdict::CannotTell, RiseVerdict::Wrong));
}
