//! Runs `dwell doctor` and `dwell load` as programs.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{DWELL, Server, dwell};

/// Serialises these tests, because each measures the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn skip(reason: &str) {
    // The test runner names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("doctor"));
}

/// The doctor's findings, validated, and their schema.
fn findings(output: &Output) -> (Value, jsonschema::Validator) {
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = "../../docs/schema/dwell.doctor-1.schema.json";
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    (found, validator)
}

fn ability<'a>(found: &'a Value, name: &str) -> &'a Value {
    let abilities = found["abilities"].as_array().unwrap();
    abilities.iter().find(|ability| ability["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn doctor_findings_follow_schema_and_leave_nothing_behind() {
    let _alone = alone();
    let (found, validator) = findings(&dwell(&["doctor", "--json"]));
    for timer in found["timers"].as_array().unwrap() {
        let real_time = timer["method"].as_str().unwrap().contains("FIFO");
        // Without permission for real-time scheduling there is no count.
        assert!(timer["count"] == 200 || real_time && timer["count"] == 0, "{timer}");
    }
    let fifo = found["timers"].as_array().unwrap().iter().filter(|timer| timer["count"] == 0);
    assert_eq!(fifo.count() == 0, ability(&found, "real-time scheduling")["available"] == true);
    if ability(&found, "virtual interfaces (veth)")["available"] == true {
        let stamps = found["stamps"].as_array().unwrap();
        let seen = |interface: &str| {
            let mine = stamps.iter().filter(|seen| seen["interface"] == interface);
            mine.filter(|seen| seen["socket"].as_str().unwrap().starts_with("UDP")).count()
        };
        assert_eq!(
            (seen("lo"), seen("veth")),
            (2, 2),
            "both families on both interfaces: {stamps:?}"
        );
    }
    // The tests in a separate namespace leave nothing behind in this one.
    let names = found["interfaces"].as_array().unwrap();
    assert!(names.iter().any(|interface| interface["name"] == "lo"), "{names:?}");
    assert!(names.iter().all(|interface| interface["name"] != "dwell0"), "{names:?}");
    let mut broken = found.clone();
    broken["clocks"]["read_ns"] = Value::from("fast");
    assert!(!validator.is_valid(&broken), "the schema rejects wrong types");
}

#[test]
fn doctor_without_root_tests_in_a_user_namespace() {
    let _alone = alone();
    if !dwell_io::netns::may_create() {
        skip("changing to an unprivileged user needs root");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("dwell-node");
    fs::copy(DWELL, &program).unwrap();
    assert!(
        Command::new("chmod").args(["755", "."]).current_dir(&home).status().unwrap().success()
    );
    let as_unprivileged = |arguments: &[&str]| {
        let who = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        let mut command = Command::new("setpriv");
        command.args(who).arg(&program).args(arguments).current_dir("/").output().unwrap()
    };
    let (found, _) = findings(&as_unprivileged(&["doctor", "--json"]));
    let rows = |found: &Value| -> Vec<String> {
        let abilities = found["abilities"].as_array().unwrap();
        abilities.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let (roots, _) = findings(&dwell(&["doctor", "--json"]));
    assert_eq!(rows(&found), rows(&roots), "all rows are present");
    let may = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "unshare", "-Urn", "true"])
        .status();
    let lab = ability(&found, "network namespaces (dwell lab)");
    assert_eq!(lab["available"], may.unwrap().success(), "{lab}");
    for name in ["virtual interfaces (veth)", "tbf: limits a link's rate", "XDP on veth, native"] {
        let row = ability(&found, name);
        assert!(row["available"] == true || row["reason"].is_string(), "{row}");
        if name.contains("veth)") || name.contains("tbf") {
            let (ours, roots) = (&row["available"], &ability(&roots, name)["available"]);
            assert!(ours == roots || lab["available"] == false, "{row}");
        }
    }
}

#[test]
fn doctor_without_namespaces_reports_all_rows_as_untested() {
    let _alone = alone();
    // The creator of a user namespace may set limits for everything inside.
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" doctor --json";
    let output = Command::new("unshare").args(["-Ur", "sh", "-c", script, DWELL]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !said.contains("examining") {
        skip(&format!("user namespaces are unavailable: {}", said.trim()));
        return;
    }
    let (found, _) = findings(&output);
    let namespaces = ability(&found, "network namespaces (dwell lab)");
    assert_eq!(namespaces["available"], false);
    assert!(namespaces["reason"].is_string());
    for name in ["virtual interfaces (veth)", "tbf: limits a link's rate", "TAP interfaces"] {
        let row = ability(&found, name);
        assert!(row["available"].is_null() && row["reason"].is_string(), "{row}");
    }
    let stamps = found["stamps"].as_array().unwrap();
    assert_eq!(stamps.iter().filter(|seen| seen["interface"] == "veth").count(), 8);
    let advice = found["advice"].as_array().unwrap();
    let says = |word: &str| advice.iter().any(|text| text.as_str().unwrap().contains(word));
    assert!(says("there can be no labs") && !says("no netem"), "only tested features are reported");
}

#[test]
fn doctor_with_closed_stdout_is_success() {
    let _alone = alone();
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let mut child = Command::new(DWELL)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("dwell:"), "{said}");
    }
}

#[test]
fn cpu_load_reaches_the_level_within_three_points() {
    let _alone = alone();
    for level in [1, 20, 50, 80, 90].map(f64::from) {
        let text = format!("{level}%");
        let arguments =
            ["load", "cpu", "--level", &text, "--cpu", "0", "--duration", "2s", "--json"];
        let (before, since) = (busy(), Instant::now());
        let output = dwell(&arguments);
        let busy = (busy() - before).as_secs_f64() / since.elapsed().as_secs_f64();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let burnt = result["values"]["burnt_ratio"].as_f64().unwrap() * 100.0;
        // CPU time taken by others, or by the host of a virtual machine, cannot be burnt: the level
        // applies to the rest.
        let taken = (100.0 * busy - burnt).max(0.0);
        println!("{level} % requested, {burnt} % burnt, {taken} % taken");
        let least = level * (1.0 - taken / 100.0) - 3.0;
        assert!(
            burnt > least && burnt < level + 3.0,
            "{level} % requested, {burnt} % burnt, {taken} %"
        );
        let warned = result["trust"]["warnings"].to_string().contains("3 points");
        assert_eq!((burnt - level).abs() > 3.0, warned, "{result}");
    }
}

/// Busy and stolen time of the first CPU so far (proc_stat(5)). Time that a host takes while
/// nothing runs counts as both idle and stolen, so the times of a line add up to more than the
/// elapsed time.
fn busy() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let first = dwell_host::stat(&stat).cpus[0];
    assert_eq!(first.cpu, 0);
    // USER_HZ is 100 on all supported machines.
    Duration::from_millis((first.busy + first.stolen) * 10)
}

#[test]
fn traffic_reaches_the_rate_within_two_percent() {
    let _alone = alone();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{port}");
    let mut sink = Command::new(DWELL);
    sink.args(["load", "sink", &url, "--json"]);
    let sink = Server::ready(sink, "listening on", 1);
    let arguments =
        ["load", "traffic", &url, "--rate", "2000pps", "--flows", "4", "--count", "3000", "--json"];
    let output = dwell(&arguments);
    let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = sent["values"]["rate_pps"].as_f64().unwrap();
    assert!((rate / 2_000.0 - 1.0).abs() < 0.02, "2000 pps requested, {rate} sent");
    let counted: Value = serde_json::from_slice(&sink.stop().stdout).unwrap();
    let values = &counted["values"];
    assert_eq!((&values["flows"], &values["packets"]), (&4.into(), &3_000.into()), "{counted}");
    // The first and last packets may be late; the sink's rate covers the packets it saw.
    let value = |name: &str| values[name].as_f64().unwrap();
    let seen = value("rate_pps") * value("duration_ns") / 1e9;
    assert!((seen / 3_000.0 - 1.0).abs() < 0.002, "{counted}");
}
