//! Tests of `roundtrip` as run by `make run`, with few cycles.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_roundtrip");
const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plans/quick.toml");

/// Returns the command with results and data in `home`.
fn roundtrip(program: &Path, arguments: &[&str], home: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).args(["--plan", PLAN]).stdin(Stdio::null());
    command.arg("--output").arg(home.join("results")).arg("--data").arg(home.join("data"));
    command
}

fn combined(home: &Path) -> Value {
    let text = fs::read(home.join("results/roundtrip.json")).unwrap();
    let combined = serde_json::from_slice(&text).unwrap();
    assert_follows_the_schema(&combined);
    combined
}

/// One experiment at a time, as they load the machine.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(60), Duration::from_millis(10), what, condition);
}

/// Checks once per `pause`, because checking takes time from the experiment.
fn until_within(
    timeout: Duration,
    pause: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < timeout, "waited too long: {what}");
        std::thread::sleep(pause);
    }
}

/// The experiment's `dwell` is built by its own crate.
fn dwell() -> PathBuf {
    let dwell = Path::new(PROGRAM).with_file_name("dwell");
    assert!(dwell.exists(), "{} is missing: cargo build -p dwell", dwell.display());
    dwell
}

fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether labs are impossible here, which skips the test.
fn skipped(test: &str, code: Option<i32>, why: &str) -> bool {
    if code == Some(4) {
        println!("SKIP {test}: {}", why.trim());
    }
    code == Some(4)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

fn signal(name: &str, process: u32) {
    let kill = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(kill.success());
}

/// Returns all living descendants of a process.
fn descendants(process: u32) -> HashSet<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The process name may contain blanks and parentheses.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let all: Vec<u32> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut found = HashSet::from([process]);
    loop {
        let more = all.iter().filter(|pid| parent(**pid).is_some_and(|p| found.contains(&p)));
        let grown: HashSet<u32> = found.iter().copied().chain(more.copied()).collect();
        if grown.len() == found.len() {
            found.remove(&process);
            return found;
        }
        found = grown;
    }
}

/// Returns the lab that a process runs in.
fn lab_of(process: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    let lab = entries.find_map(|entry| entry.strip_prefix(b"DWELL_LAB="))?;
    Some(String::from_utf8_lossy(lab).into_owned())
}

fn is_there(lab: &str) -> bool {
    let list = Command::new(dwell()).args(["lab", "list"]).output().unwrap();
    String::from_utf8_lossy(&list.stdout).contains(lab)
}

fn table_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a trial is running.
fn has_begun(home: &Path) -> bool {
    states(home).iter().any(|state| state == "running")
}

/// Whether one trial is finished and another is running.
fn second_has_begun(home: &Path) -> bool {
    has_begun(home) && states(home).iter().any(|state| state == "finished")
}

fn states(home: &Path) -> Vec<String> {
    let mut show = Command::new(dwell());
    show.args(["show", "last", "--json", "--data"]).arg(home.join("data"));
    let output = show.stdin(Stdio::null()).output().unwrap();
    let Ok(run) = serde_json::from_slice::<Value>(&output.stdout) else { return Vec::new() };
    let trials = run["trials"].as_array().unwrap();
    trials.iter().map(|trial| trial["state"].as_str().unwrap().to_owned()).collect()
}

fn assert_follows_the_schema(combined: &Value) {
    let path = "../docs/schema/dwell.roundtrip-2.schema.json";
    let schema = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(combined).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{combined}");
    let mut broken = combined.clone();
    broken["cases"] = json!([{ "case": "idle", "rtt_ns": { "p50": "fast" } }]);
    assert!(!validator.is_valid(&broken), "the schema rejects invalid objects");
}

#[test]
fn roundtrip_writes_all_results_and_removes_lab() {
    let _alone = alone();
    dwell();
    let home = tempfile::tempdir().unwrap();
    let output =
        roundtrip(Path::new(PROGRAM), &["--cycles", "3000"], home.path()).output().unwrap();
    let talk = talk(&output);
    let test = "roundtrip_writes_all_results_and_removes_lab";
    if skipped(test, output.status.code(), &talk) {
        return;
    }
    assert!(output.status.success(), "{}: {talk}", output.status);

    let combined = combined(home.path());
    assert_eq!((&combined["partial"], &combined["end"]), (&json!(false), &json!("complete")));
    assert_eq!(combined["link"], json!({ "rate": "100Mbit/s", "mechanism": "tbf" }));
    let cases = combined["cases"].as_array().unwrap();
    let names: Vec<_> = cases.iter().map(|case| case["case"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "network", "cpu"]);
    for (case, loads) in cases.iter().zip([0, 3 * 2, 3]) {
        assert_eq!(case["load"].as_array().unwrap().len(), loads, "{case}");
    }
    let traffic = &cases[1]["load"][0];
    assert!(traffic["values"]["rate_bps"].as_f64().unwrap() > 0.0, "{traffic}");

    let mut show = Command::new(dwell());
    show.args(["show", "last", "--json", "--data"]).arg(home.path().join("data"));
    let shown: Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
    assert_eq!((&shown["run"], &shown["state"]), (&combined["run"], &json!("finished")));
    assert_eq!(shown["settings"], json!(["ping.count=1000"]), "in each of three trials");
    assert!(shown["seed"].is_u64(), "{}", shown["seed"]);
    let trials = shown["trials"].as_array().unwrap();
    let of_network = trials.iter().filter(|trial| trial["parameters"]["load"] == "network");
    let loads: Vec<_> =
        of_network.flat_map(|trial| trial["loads"].as_array().unwrap().clone()).collect();
    assert_eq!(Value::from(loads), cases[1]["load"]);

    let csv = fs::read_to_string(home.path().join("results/roundtrip.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].starts_with("trial,repetition,load,id,state"), "{}", rows[0]);
    assert_eq!(rows.len(), 1 + 3 * 3_000);
    let page = fs::read_to_string(home.path().join("results/roundtrip.html")).unwrap();
    assert!(page.contains("<html") && page.contains(combined["run"].as_str().unwrap()));

    let table = String::from_utf8_lossy(&output.stdout);
    for figure in ["281.4", "278.7", "288.4", "network load: traffic to udp://n2:5009 reached"] {
        assert!(table.contains(figure), "{figure} is missing:\n{table}");
    }
    let findings = combined["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert!(table.contains(finding.as_str().unwrap()), "{finding} is missing:\n{table}");
    }
    assert!(table.trim_end().ends_with("results/roundtrip.html"), "{table}");
}

#[test]
fn an_ordinary_user_needs_no_root() {
    let test = "an_ordinary_user_needs_no_root";
    if !is_root() {
        println!(
            "SKIP {test}: only root can switch to another user; the other tests run without root"
        );
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("runtime")).unwrap();
    for (from, name) in
        [(Path::new(PROGRAM), "roundtrip"), (&dwell(), "dwell"), (PLAN.as_ref(), "q.toml")]
    {
        fs::copy(from, home.path().join(name)).unwrap();
    }
    let chown = Command::new("chown").args(["-R", "65534:65534", "."]).current_dir(&home).status();
    assert!(chown.unwrap().success());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "./roundtrip"])
        .args(["--cycles", "200", "--case", "network", "--plan", "q.toml", "--data", "data"])
        .env("XDG_RUNTIME_DIR", home.path().join("runtime"))
        .current_dir(&home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if skipped(test, output.status.code(), &talk(&output)) {
        return;
    }
    assert!(output.status.success(), "{}: {}", output.status, talk(&output));
    let combined = combined(home.path());
    assert_eq!(combined["rootless"], json!(true));
    // Three trials of 67 cycles, of which the load may lose some.
    let count = combined["cases"][0]["rtt_ns"]["count"].as_u64().unwrap();
    assert!((150..=201).contains(&count), "{count}");
    assert_eq!(
        fs::read_dir(home.path().join("runtime/dwell/labs")).unwrap().count(),
        0,
        "no lab is left"
    );
}

#[test]
fn interrupt_keeps_measured_cases_as_partial() {
    let _alone = alone();
    dwell();
    let home = tempfile::tempdir().unwrap();
    let mut command = roundtrip(Path::new(PROGRAM), &["--cycles", "300000"], home.path());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ended = false;
    let (timeout, pause) = (Duration::from_secs(240), Duration::from_millis(200));
    until_within(timeout, pause, "the second case begins", || {
        ended = running.try_wait().unwrap().is_some();
        ended || second_has_begun(home.path())
    });
    if !ended {
        signal("-INT", running.id());
    }
    let output = running.wait_with_output().unwrap();
    let test = "interrupt_keeps_measured_cases_as_partial";
    if skipped(test, output.status.code(), &talk(&output)) {
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    let combined = combined(home.path());
    assert_eq!((&combined["partial"], &combined["end"]), (&json!(true), &json!("interrupted")));
    assert_eq!(combined["cases"].as_array().unwrap().len(), 1, "{combined}");
    let rows = fs::read_to_string(home.path().join("results/roundtrip.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 100_000);
    // Under load or on a busy machine, some replies are late or lost.
    let received = rows.lines().filter(|row| row.contains(",received,")).count();
    assert!(received > 75_000, "{received} of 100,000");
    assert_eq!(combined["cases"][0]["rtt_ns"]["count"], json!(received));
    assert_eq!(table_of(&output).matches("partial: ").count(), 3, "one trial of nine is measured");
    assert!(home.path().join("results/roundtrip.html").exists());
}

#[test]
fn a_killed_experiment_leaves_no_process_and_no_lab() {
    let test = "a_killed_experiment_leaves_no_process_and_no_lab";
    let Some((mut killed, lab, home)) = measuring(test) else { return };
    let all = descendants(killed.id());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let is_alive = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
    until("the processes end", || !all.iter().any(is_alive));
    assert!(!is_there(&lab), "dwell run concluded and took its lab down");
    drop(home);
}

#[test]
fn next_run_removes_lab_of_killed_run() {
    let test = "next_run_removes_lab_of_killed_run";
    let Some((mut experiment, lab, home)) = measuring(test) else { return };
    let is_dwell = |pid: &&u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.contains("\0run\0")
    };
    let runner = *descendants(experiment.id()).iter().find(is_dwell).unwrap();
    signal("-KILL", runner);
    assert_eq!(experiment.wait().unwrap().code(), Some(1));
    assert!(is_there(&lab), "the lab is left behind");

    let arguments = ["--case", "idle", "--cycles", "100"];
    let output = roundtrip(Path::new(PROGRAM), &arguments, home.path()).output().unwrap();
    assert!(output.status.success(), "{}", talk(&output));
    assert!(!is_there(&lab));
}

/// Starts a long experiment; returns it with its lab and directory, `None` if labs are impossible
/// here.
fn measuring(test: &str) -> Option<(Experiment, String, tempfile::TempDir)> {
    let alone = alone();
    dwell();
    let home = tempfile::tempdir().unwrap();
    let arguments = ["--case", "network", "--cycles", "10000000"];
    let mut command = roundtrip(Path::new(PROGRAM), &arguments, home.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut running = Experiment { child, _alone: alone };
    let (mut lab, mut code) = (None, None);
    until("the experiment measures or fails", || {
        code = running.child.try_wait().unwrap().and_then(|status| status.code());
        lab = descendants(running.child.id()).into_iter().find_map(lab_of);
        code.is_some() || (lab.is_some() && has_begun(home.path()))
    });
    if skipped(test, code, "there can be no lab here") {
        return None;
    }
    Some((running, lab.expect("the experiment has a lab"), home))
}

/// A running experiment; excludes others while it exists.
struct Experiment {
    child: std::process::Child,
    _alone: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Experiment {
    type Target = std::process::Child;

    fn deref(&self) -> &Self::Target {
        &self.child
    }
}

impl std::ops::DerefMut for Experiment {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.child
    }
}

impl Drop for Experiment {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn impossible_lab_exits_4_with_reason() {
    // A shell writes both programs. If this process wrote them, a child being started could still
    // hold them open for writing, and executing them would fail.
    let beside = tempfile::tempdir().unwrap();
    let script = r#"cp "$0" roundtrip
        printf '#!/bin/sh\necho "dwell: no namespaces here" >&2\nexit 4\n' > dwell
        chmod +x dwell"#;
    let mut shell = Command::new("sh");
    shell.args(["-ec", script, PROGRAM]).current_dir(beside.path());
    assert!(shell.status().unwrap().success());
    let program = beside.path().join("roundtrip");

    let output = roundtrip(&program, &[], beside.path()).output().unwrap();
    let talk = talk(&output);
    assert_eq!(output.status.code(), Some(4), "{talk}");
    assert!(talk.contains("no namespaces here"), "{talk}");
}

#[test]
fn zero_cycles_is_a_usage_error() {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["--cycles", "0"];
    let output = roundtrip(Path::new(PROGRAM), &arguments, home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(talk(&output).contains("--cycles"));
}
