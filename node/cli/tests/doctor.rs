//! `dwell doctor` and `dwell load` from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const DWELL: &str = env!("CARGO_BIN_EXE_dwell-node");

fn dwell(arguments: &[&str]) -> Output {
    Command::new(DWELL).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_the_doctor_finds_follows_its_schema_and_comes_from_doing() {
    let output = dwell(&["doctor", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = "../../docs/schema/dwell.doctor-1.schema.json";
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for timer in found["timers"].as_array().unwrap() {
        let real_time = timer["method"].as_str().unwrap().contains("FIFO");
        // Where real-time scheduling is not allowed there is nothing to count.
        assert!(timer["count"] == 200 || real_time && timer["count"] == 0, "{timer}");
    }
    let ability = |name: &str| {
        let abilities = found["abilities"].as_array().unwrap();
        abilities.iter().find(|ability| ability["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let fifo = found["timers"].as_array().unwrap().iter().filter(|timer| timer["count"] == 0);
    assert_eq!(fifo.count() == 0, ability("real-time scheduling")["available"] == true);
    // What was tried in a namespace of its own leaves nothing behind in this one.
    let names = found["interfaces"].as_array().unwrap();
    assert!(names.iter().any(|interface| interface["name"] == "lo"), "{names:?}");
    assert!(names.iter().all(|interface| interface["name"] != "dwell0"), "{names:?}");
    let mut broken = found.clone();
    broken["clocks"]["read_ns"] = Value::from("fast");
    assert!(!validator.is_valid(&broken), "the schema can refuse");
}

#[test]
fn a_burner_burns_the_level_asked_within_three_points() {
    for level in [1, 20, 50, 80] {
        let text = format!("{level}%");
        let arguments =
            ["load", "cpu", "--level", &text, "--cpu", "0", "--duration", "2s", "--json"];
        let output = dwell(&arguments);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let burnt = result["values"]["burnt_ratio"].as_f64().unwrap() * 100.0;
        assert!((burnt - f64::from(level)).abs() < 3.0, "{level} % asked, {burnt} % burnt");
    }
}

#[test]
fn traffic_reaches_the_rate_asked_within_two_percent() {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{port}");
    let sink = Command::new(DWELL)
        .args(["load", "sink", &url, "--duration", "3s", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let arguments =
        ["load", "traffic", &url, "--rate", "2000pps", "--flows", "4", "--count", "3000", "--json"];
    let output = dwell(&arguments);
    let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = sent["values"]["rate_pps"].as_f64().unwrap();
    assert!((rate / 2_000.0 - 1.0).abs() < 0.02, "2000 pps asked, {rate} sent");
    let sink = sink.wait_with_output().unwrap();
    let counted: Value = serde_json::from_slice(&sink.stdout).unwrap();
    let seen = counted["values"]["rate_pps"].as_f64().unwrap();
    assert!((seen / 2_000.0 - 1.0).abs() < 0.02, "2000 pps asked, {seen} arrived");
    assert_eq!(counted["values"]["flows"], 4);
}
