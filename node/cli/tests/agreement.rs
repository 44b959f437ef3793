//! `dwell ping icmp://` beside the system's ping. A program of its own, because tests of one program
//! run at the same time and these measure.

use std::process::Command;

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;
use support::{dwell, json};

/// What ping prints, in whole microseconds, ends with the kernel's stamp and begins with the
/// program's clock, so it lies between dwell's two figures: the kernel's is not above it by more than
/// this, and the program's, which an unoptimised build makes longer, not below it.
const LIMIT_US: f64 = 25.0;

/// Turns of both. Of their sorted differences those from the second to the last but one enclose the
/// median of all possible turns: it is beyond them in 1 of 1,000 such tests (the sign test's
/// interval), on either side.
const TURNS: usize = 15;

#[test]
fn the_median_of_ping_lies_between_the_kernels_and_the_programs() {
    const TEST: &str = "the_median_of_ping_lies_between_the_kernels_and_the_programs";
    if Command::new("ping").arg("-V").output().is_err() {
        println!("SKIP {TEST}: ping is not installed (make setup)");
        return;
    }
    for (host, url) in [("127.0.0.1", "icmp://127.0.0.1"), ("::1", "icmp://[::1]")] {
        let turns: Vec<[f64; 2]> = (0..TURNS).map(|turn| differences_us(host, url, turn)).collect();
        println!("{host}: kernel and program less ping {turns:?} us");
        assert!(agree(&turns), "{host}: {turns:?} us");
    }
}

/// Differences of the kernel's and the program's median from ping's, as seen, in microseconds.
const SEEN_US: [[f64; 2]; TURNS] = [
    [5.3, 32.6],
    [3.4, 24.8],
    [2.7, 30.7],
    [2.1, 27.7],
    [2.0, 32.1],
    [2.3, 20.7],
    [1.4, 27.9],
    [0.6, 34.1],
    [5.7, 28.7],
    [-5.4, 21.0],
    [7.5, 40.1],
    [-20.5, 4.8],
    [8.7, 9.1],
    [-2.8, 6.9],
    [-0.6, 16.8],
];

#[test]
fn medians_that_are_too_long_or_too_short_are_noticed() {
    assert!(agree(&SEEN_US));
    let shifted = |by: f64| SEEN_US.map(|turn| turn.map(|difference| difference + by));
    assert!(!agree(&shifted(40.0)));
    assert!(!agree(&shifted(-80.0)));
}

/// Whether noise alone may be why ping is not between the two.
fn agree(turns: &[[f64; 2]]) -> bool {
    let of = |which: usize| interval(turns.iter().map(|turn| turn[which]).collect());
    let (kernel, program) = (of(0), of(1));
    kernel.0 <= LIMIT_US && program.1 >= -LIMIT_US
}

/// Where the median of all possible turns lies, in microseconds.
fn interval(mut differences: Vec<f64>) -> (f64, f64) {
    differences.sort_by(f64::total_cmp);
    (differences[1], differences[differences.len() - 2])
}

/// dwell's medians, of the kernel's stamps and the program's, less ping's of one turn; every other
/// turn dwell comes first.
fn differences_us(host: &str, url: &str, turn: usize) -> [f64; 2] {
    let (ours, theirs) = if turn.is_multiple_of(2) {
        let theirs = median_of_ping_us(host);
        (medians_of_dwell_us(url), theirs)
    } else {
        (medians_of_dwell_us(url), median_of_ping_us(host))
    };
    ours.map(|median| median - theirs)
}

fn medians_of_dwell_us(url: &str) -> [f64; 2] {
    let output = dwell(&["ping", url, "-c", "60", "-i", "0.005", "--json"]);
    let metrics = &json(&output)["metrics"];
    ["rtt_kernel_ns", "rtt_ns"].map(|name| metrics[name]["p50"].as_f64().unwrap() / 1e3)
}

fn median_of_ping_us(host: &str) -> f64 {
    let output =
        Command::new("ping").args(["-n", "-c", "60", "-i", "0.005", host]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok())
        .collect();
    assert!(times.len() >= 57, "{text}");
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] * 1e3
}
