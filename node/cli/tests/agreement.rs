//! Compares `dwell ping icmp://` with the system's ping. A separate test program, because tests of
//! one program run concurrently and these measure.

use std::process::Command;

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;
use support::{dwell, json};

/// Maximum difference of the medians. With -U, ping measures between calls of the program, as
/// dwell's `rtt` does. Without -U it ends at the kernel timestamp, so its figure is at least
/// dwell's `rtt_kernel`, which starts later. ping prints whole microseconds.
const MAX_DIFFERENCE_US: f64 = 25.0;

/// Maximum excess of the program's median: after each pause dwell has more code to fetch than ping,
/// on a busy host all of it from memory.
const MAX_EXCESS_US: f64 = 50.0;

/// Number of turns of each. The second smallest and second largest differences enclose the median
/// of all possible turns (sign test): outside them on either side in 1 of 1,000 tests.
const TURNS: usize = 15;

#[test]
fn ping_and_dwell_agree_on_the_median() {
    const TEST: &str = "ping_and_dwell_agree_on_the_median";
    if Command::new("ping").arg("-V").output().is_err() {
        println!("SKIP {TEST}: ping is not installed (make setup)");
        return;
    }
    for (host, url) in [("127.0.0.1", "icmp://127.0.0.1"), ("::1", "icmp://[::1]")] {
        let turns: Vec<[f64; 2]> = (0..TURNS).map(|turn| differences_us(host, url, turn)).collect();
        println!("{host}: program minus ping -U, kernel minus ping: {turns:?} us");
        assert!(agree(&turns), "{host}: {turns:?} us");
    }
}

/// Differences observed while compilers were running, in microseconds.
const NOISE_US: [f64; TURNS] =
    [1.3, 11.3, 8.7, 9.1, 4.9, -2.8, 6.9, 0.2, 14.6, -0.6, 16.8, 5.8, 28.7, -0.3, 13.7];

#[test]
fn median_45_us_short_or_70_us_long_is_detected() {
    let shifted = |program: f64, kernel: f64| -> Vec<[f64; 2]> {
        NOISE_US.iter().map(|noise| [noise + program, noise + kernel]).collect()
    };
    assert!(agree(&shifted(0.0, 0.0)));
    assert!(!agree(&shifted(70.0, 0.0)), "the program's median is too long");
    assert!(!agree(&shifted(-45.0, 0.0)), "the program's median is too short");
    assert!(!agree(&shifted(0.0, 45.0)), "the kernel's median is too long");
}

/// Whether noise alone may explain the differences.
fn agree(turns: &[[f64; 2]]) -> bool {
    let of = |which: usize| interval(turns.iter().map(|turn| turn[which]).collect());
    let (program, kernel) = (of(0), of(1));
    program.0 <= MAX_EXCESS_US && program.1 >= -MAX_DIFFERENCE_US && kernel.0 <= MAX_DIFFERENCE_US
}

/// Interval of the median of all possible turns, in microseconds.
fn interval(mut differences: Vec<f64>) -> (f64, f64) {
    differences.sort_by(f64::total_cmp);
    (differences[1], differences[differences.len() - 2])
}

/// dwell's median minus that of ping -U, and dwell's kernel median minus that of ping, in one turn.
/// The order of the programs alternates.
fn differences_us(host: &str, url: &str, turn: usize) -> [f64; 2] {
    let theirs = || [median_of_ping_us(&["-U", host]), median_of_ping_us(&[host])];
    let (ours, theirs) = if turn.is_multiple_of(2) {
        let theirs = theirs();
        (medians_of_dwell_us(url), theirs)
    } else {
        (medians_of_dwell_us(url), theirs())
    };
    [ours[0] - theirs[0], ours[1] - theirs[1]]
}

fn medians_of_dwell_us(url: &str) -> [f64; 2] {
    let output = dwell(&["ping", url, "-c", "60", "-i", "0.005", "--json"]);
    let metrics = &json(&output)["metrics"];
    ["rtt_ns", "rtt_kernel_ns"].map(|name| metrics[name]["p50"].as_f64().unwrap() / 1e3)
}

fn median_of_ping_us(arguments: &[&str]) -> f64 {
    let output = Command::new("ping")
        .args(["-n", "-c", "60", "-i", "0.005"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok())
        .collect();
    assert!(times.len() >= 57, "{text}");
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] * 1e3
}
