//! `dwell range`: measuring over loopback, reading files, and refusing what does not fit.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;
use serde_json::Value;
use support::{DWELL, Server, dwell, said};

/// The round trips of figure 12 of Ramstetter.
const RAMSTETTER: &str =
    "# Ramstetter, figure 12\n1113us\n1118us\n1124us\n1125us\n1118us\n1120us\n1125us\n1123 us\n";

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(DWELL)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may refuse its arguments and not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Parses a JSON object and checks it against its schema.
fn checked(output: &Output, name: &str) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let path = format!("../../docs/schema/dwell.{name}-1.schema.json");
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    value
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn spread_of_12_us_equals_1_8_km() {
    let output = with_input(&["range", "--from", "rtts", "-"], RAMSTETTER);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.starts_with("at most 170 km, resolution 150 m"), "{text}");
    assert!(text.contains("12 us of round trip equal 1.8 km"), "{text}");
    assert!(text.contains("too coarse for ranging"), "{text}");

    let output = with_input(&["range", "--from", "rtts", "-", "--json"], RAMSTETTER);
    let result = checked(&output, "range");
    let spread = &result["rtts"]["spread"];
    assert_eq!(spread["rtt_ps"], 12_000_000.0);
    assert!((spread["distance_m"].as_f64().unwrap() - 1_798.5).abs() < 1.0, "{spread}");
    // 149.9 m for each microsecond; the bound includes one step.
    assert!((result["bound_m"].as_f64().unwrap() - 166_984.0).abs() < 10.0, "{result}");
    assert_eq!((&result["distance"], &result["calibration"]), (&Value::Null, &Value::Null));
    let median = &result["estimates"][1];
    assert_eq!((&median["estimator"], &median["rtt_ps"]), (&"median".into(), &1.12e9.into()));
}

/// Results of FTM as text, with round trips of the device's delay plus that of `metres`.
fn frames(metres: f64, seed: u64) -> String {
    let mut text = String::from("dlog_token,rssi,rtt,t1,t2,t3,t4\n");
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as f64 / (1_u64 << 31) as f64 - 0.5
    };
    for token in 0..64 {
        // Offset of 37.5 m, a triangular error of up to 8 steps, steps of 1.5625 ns.
        let noise = (uniform() + uniform()) * 8.0;
        let steps = (250_000.0 + metres * 2.0 / 0.299_792_458 * 1e3) / 1_562.5 + noise;
        let rtt = (steps.floor() * 1_562.5).round() as i64;
        let (t1, t2, turnaround) = (71_468_718_377_125_i64 + token, 3_121_737_385_937, 117_075_000);
        // Every eighth frame is across the wrap of the initiator's counter.
        let wrap = 6_710_886_400_000;
        let (t2, t3) = match token % 8 {
            0 => (wrap - 1_000_000, turnaround - 1_000_000),
            _ => (t2, t2 + turnaround),
        };
        let (t4, reported) =
            (t1 + turnaround + rtt, if token % 8 == 0 { 4_000_000_000 } else { rtt });
        text += &format!("{token},-41,{reported},{t1},{t2},{t3},{t4}\n");
    }
    text + "64,0,0,0,0,0,0\n"
}

#[test]
fn calibrated_ftm_finds_the_distance_despite_defects() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ap.json");
    let file = file.to_str().unwrap();
    let calibrate =
        ["range", "calibrate", "--from", "ftm", "-", "--distance", "1m", "--output", file];
    let output = with_input(&calibrate, &frames(1.0, 3));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(printed(&output).starts_with("calibrated at 1.0 m with 64 round trips"), "{output:?}");

    let measure = ["range", "--from", "ftm", "-", "--calibration", file];
    let output = with_input(&[&measure[..], &["--json"]].concat(), &frames(21.0, 8));
    let result = checked(&output, "range");
    let rtts = &result["rtts"];
    assert_eq!(
        (&rtts["count"], &rtts["invalid"], &rtts["wrapped"]),
        (&64.into(), &1.into(), &8.into())
    );
    let step = result["resolution"]["distance_m"].as_f64().unwrap();
    assert!((step - 0.234).abs() < 0.001, "{step}");
    for estimate in result["estimates"].as_array().unwrap() {
        let distance = &estimate["distance"];
        let [low, high] = ["low", "high"].map(|end| distance[end].as_f64().unwrap());
        assert!(low <= 21.0 && 21.0 <= high && high - low < 5.0, "{estimate}");
    }
    let output = with_input(&measure, &frames(21.0, 8));
    let text = printed(&output);
    assert!(text.contains(" m by median, resolution 0.23 m, from ftm"), "{text}");
    assert!(text.contains("64 used, 1 invalid, 8 repaired after a counter wrapped"), "{text}");
}

#[test]
fn loopback_is_at_the_calibrated_distance() {
    let (_server, urls) = Server::reflect(&["stamp"], "127.0.0.1", &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loopback.json");
    let file = file.to_str().unwrap();
    let common = ["-c", "400", "-i", "1ms", "-q"];
    let calibrate = ["range", "calibrate", &urls[0], "--distance", "0m", "--output", file];
    // Other programs may change the delay between both measurements, which no interval contains.
    // Over several turns the distance is within the error once.
    let mut tried = Vec::new();
    for _ in 0..6 {
        let output = dwell(&[&calibrate[..], &common].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let measure = ["range", &urls[0], "--calibration", file, "--json"];
        let output = dwell(&[&measure[..], &common].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let result = checked(&output, "range");
        assert_eq!(result["source"]["protocol"], "stamp");
        let bound = result["bound_m"].as_f64().unwrap();
        assert!((1.0..1e8).contains(&bound), "{bound}");
        let estimates = result["estimates"].as_array().unwrap();
        let is_near = |estimate: &Value| {
            let [low, high] = ["low", "high"].map(|end| estimate["distance"][end].as_f64());
            low.zip(high).is_some_and(|(low, high)| low <= 0.0 && 0.0 <= high)
        };
        if estimates.len() == 3 && estimates.iter().any(is_near) {
            return;
        }
        tried.push(estimates.clone());
    }
    panic!("{tried:?}");
}

#[test]
fn calibration_of_another_source_is_refused() {
    let (_server, urls) = Server::reflect(&["stamp", "udp"], "127.0.0.1", &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("near.json");
    let file = file.to_str().unwrap();
    let common = ["-c", "20", "-i", "1ms", "-q"];
    let calibrate = ["range", "calibrate", &urls[0], "--distance", "1m", "--size", "100B"];
    let output = dwell(&[&calibrate[..], &common].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    checked(&output, "range-calibration");
    fs::write(file, &output.stdout).unwrap();
    let range =
        |more: &[&str]| dwell(&[&["range", "--calibration", file], &common[..], more].concat());
    let refused = [
        (range(&[&urls[1]]), "the protocol was stamp at the calibration and is udp now"),
        (range(&[&urls[0], "--size", "200B"]), "the payload size was"),
        (range(&[&urls[0], "--size", "100B", "--stamps", "user"]), "the timestamp source was"),
        (
            dwell(&["range", "--calibration", file, "--from", "rtts", "/dev/null"]),
            "the source of round trips was ping",
        ),
    ];
    for (output, expected) in refused {
        assert_eq!(output.status.code(), Some(2), "{expected}: {output:?}");
        assert!(said(&output).contains(expected), "{expected}: {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    assert_eq!(range(&[&urls[0], "--size", "100B"]).status.code(), Some(0));
}

#[test]
fn wrong_values_name_the_flag_and_the_correction() {
    let wrong: [(&[&str], &str); 11] = [
        (&["range"], "give a URL"),
        (&["range", "gopher://h"], "unknown scheme"),
        (&["range", "--from", "pcap", "x"], "'pcap' for --from"),
        (&["range", "icmp://127.0.0.1", "--from", "ftm", "x"], "cannot be used with"),
        (&["range", "icmp://127.0.0.1", "--speed", "2c"], "--speed"),
        (&["range", "icmp://127.0.0.1", "--estimator", "mean"], "minimum, median or mode"),
        (&["range", "icmp://127.0.0.1", "--medium", "water"], "copper"),
        (&["range", "icmp://127.0.0.1", "--interval", "0s"], "above 0"),
        (&["range", "calibrate", "icmp://127.0.0.1"], "--distance"),
        (&["range", "calibrate", "icmp://127.0.0.1", "--distance", "1"], "with its unit"),
        (&["range", "--from", "rtts", "/dev/null", "--calibration", "/dev/null"], "not JSON"),
    ];
    for (arguments, expected) in wrong {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(said(&output).contains(expected), "{arguments:?}: {output:?}");
    }
    let output = with_input(&["range", "--from", "rtts", "-"], "1113us\n1118\n");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("line 2"), "{output:?}");
}

#[test]
fn files_without_round_trips_fail_with_a_reason() {
    let cases = [
        ("rtts", "# nothing\n\n", "no line with a time"),
        ("ftm", "hello\n", "neither output of iw"),
        ("ftm", "rtt\n0\n0\n", "all 2 results are invalid"),
    ];
    for (kind, text, reason) in cases {
        let output = with_input(&["range", "--from", kind, "-", "--json"], text);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said(&output).contains(reason), "{reason}: {output:?}");
        let result = checked(&output, "range");
        assert_eq!((&result["bound_m"], &result["distance"]), (&Value::Null, &Value::Null));
    }
    let few =
        with_input(&["range", "calibrate", "--from", "rtts", "-", "--distance", "1m"], "1us\n");
    assert_eq!(few.status.code(), Some(1), "{few:?}");
    assert!(said(&few).contains("too few round trips"), "{few:?}");
    let missing = dwell(&["range", "--from", "ftm", "/nonexistent/file"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
}

#[test]
fn file_of_several_peers_needs_a_choice() {
    let text = "mac,rtt\n02:00:00:00:00:01,30000\n02:00:00:00:00:02,90000\n";
    let output = with_input(&["range", "--from", "ftm", "-"], text);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("02:00:00:00:00:01, 02:00:00:00:00:02"), "{output:?}");
    let second = ["range", "--from", "ftm", "-", "--peer", "02:00:00:00:00:02", "--json"];
    let result = checked(&with_input(&second, text), "range");
    assert_eq!(result["rtts"]["min_ps"], 90_000);
    let other = ["range", "--from", "ftm", "-", "--peer", "02:00:00:00:00:03"];
    assert_eq!(with_input(&other, text).status.code(), Some(2));
}

#[test]
fn hostile_text_is_read_without_panic() {
    let long = format!("rtt,t1,t2,t3,t4\n{}\n", "9".repeat(100_000));
    let extreme = "rtt,t1,t2,t3,t4\n9223372036854775807,-1,9223372036854775807,1,1\n\
                   -9223372036854775808,9223372036854775807,1,9223372036854775807,1\n";
    let escape = "Peer \u{1b}[31m:\u{202e}: status=0 (SUCCESS)\n RTT_AVG: 1\n";
    for text in [&long, extreme, escape, "\0\0|\u{fffd}|RTT|\n|||\n"] {
        for kind in ["ftm", "rtts"] {
            let output = with_input(&["range", "--from", kind, "-"], text);
            assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
            assert!(!said(&output).contains('\u{1b}') && !said(&output).contains("panicked"));
        }
    }
}
