//! `dwell ping icmp://` beside the system's ping. A program of its own, because tests of one program
//! run at the same time and these measure.

use std::process::Command;

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;
use support::{dwell, json};

/// ping prints whole microseconds of a figure between the kernel's and the program's.
const LIMIT_US: f64 = 25.0;

/// Turns of both. Of their sorted differences those from the second to the last but one enclose the
/// median of all possible turns: it is beyond them in 1 of 1,000 such tests (the sign test's
/// interval), on either side.
const TURNS: usize = 15;

#[test]
fn ping_and_dwell_agree_on_the_median() {
    const TEST: &str = "ping_and_dwell_agree_on_the_median";
    if Command::new("ping").arg("-V").output().is_err() {
        println!("SKIP {TEST}: ping is not installed (make setup)");
        return;
    }
    for (host, url) in [("127.0.0.1", "icmp://127.0.0.1"), ("::1", "icmp://[::1]")] {
        let differences: Vec<f64> = (0..TURNS).map(|turn| difference_us(host, url, turn)).collect();
        println!("{host}: {differences:?} us");
        let interval = interval(differences);
        assert!(agree(interval), "{host}: dwell's median less ping's is in {interval:?} us");
    }
}

/// As seen in turns beside compilers, in microseconds.
const NOISE_US: [f64; TURNS] =
    [1.3, 11.3, 8.7, 9.1, 4.9, -2.8, 6.9, 0.2, 14.6, -0.6, 16.8, 5.8, 28.7, -0.3, 13.7];

#[test]
fn a_median_that_differs_by_40_us_is_noticed() {
    let noise = NOISE_US.to_vec();
    assert!(agree(interval(noise.clone())), "{noise:?}");
    for shift in [-40.0, 40.0] {
        let shifted: Vec<f64> = noise.iter().map(|difference| difference + shift).collect();
        assert!(!agree(interval(shifted)), "{shift}");
    }
}

/// Where the median of all possible turns lies, in microseconds.
fn interval(mut differences: Vec<f64>) -> (f64, f64) {
    differences.sort_by(f64::total_cmp);
    (differences[1], differences[differences.len() - 2])
}

/// Whether noise may be why the interval is not around 0.
fn agree((low, high): (f64, f64)) -> bool {
    low <= LIMIT_US && high >= -LIMIT_US
}

/// dwell's median less ping's of one turn; every other turn dwell comes first.
fn difference_us(host: &str, url: &str, turn: usize) -> f64 {
    if turn.is_multiple_of(2) {
        let theirs = median_of_ping_us(host);
        median_of_dwell_us(url) - theirs
    } else {
        median_of_dwell_us(url) - median_of_ping_us(host)
    }
}

fn median_of_dwell_us(url: &str) -> f64 {
    let output = dwell(&["ping", url, "-c", "60", "-i", "0.005", "--json"]);
    json(&output)["metrics"]["rtt_ns"]["p50"].as_f64().unwrap() / 1e3
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
