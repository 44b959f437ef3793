//! Host activity during a run: stored, drawn, exported, deleted.

use std::fs;
use std::process::Command;
use std::time::Instant;

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, Sandbox, as_root, stderr, stdout, wait_until};

#[test]
fn host_activity_is_stored_drawn_and_exported() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let run_end = sandbox.json(&[
        "run",
        &plan,
        "--quiet",
        "--set",
        "ping.count=1500",
        "--set",
        "matrix.size=[\"100B\"]",
    ]);
    let run = run_end["run"].as_str().unwrap();
    let output = sandbox.dwell(&["export", run, "--what", "host", "--format", "csv"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap()[3..], ["node", "at_ns", "name", "value"]);
    let rows: Vec<_> = lines.collect();
    let of = |name: &str| -> Vec<f64> {
        let rows = rows.iter().filter(|row| row[0] == "1" && row[5] == name);
        rows.map(|row| row[6].parse().unwrap()).collect()
    };
    assert!(rows.iter().all(|row| row[3] == "n1"), "only the pinging machine has samples");
    // 1.5 s at five samples per second.
    let interrupts = of("interrupts_per_s");
    assert!(interrupts.len() >= 4, "{interrupts:?}");
    assert!(interrupts.iter().all(|rate| *rate > 0.0), "{interrupts:?}");
    assert!(rows.iter().any(|row| row[5].ends_with("_busy_ratio")), "{text}");
    let report = sandbox.path("run.html");
    let output = sandbox.dwell(&["report", run, "-o", report.to_str().unwrap()]);
    assert!(output.status.success() && stderr(&output).is_empty(), "{output:?}");
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("id=\"figure-host\"") && page.contains("CPU use [%]"));
    // A damaged series affects only its figure.
    let file = sandbox.data().join("samples").join(run).join("host").join("1.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    for arguments in [&["show", run][..], &["export", run, "--format", "csv"]] {
        assert!(sandbox.dwell(arguments).status.success(), "{arguments:?}");
    }
    let output = sandbox.dwell(&["export", run, "--what", "host", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("1.parquet"), "{output:?}");
    sandbox.json(&["delete", run, "--yes"]);
    assert!(!sandbox.data().join("samples").join(run).exists());
    sandbox.assert_no_leftovers();
}

#[test]
fn activity_on_another_clock_is_not_drawn() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let text = "version = 1\nname = \"clocks\"\ntopology = { lab = \"line:2\" }\n[flow]\nfrom = \"n1\"\n\
        to = \"n2\"\nsize = \"100B\"\nrate = \"1kpps\"\nduration = \"2s\"\n";
    let plan = sandbox.write("clocks.toml", text);
    sandbox.json(&["run", &plan, "--quiet"]);
    let page = || {
        let path = sandbox.path("run.html");
        let output = sandbox.dwell(&["report", "last", "-o", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(&path).unwrap()
    };
    let (one, left_out) = ("n1 and n2 are namespaces of one machine", "1 more machines are not");
    let shown = page();
    assert!(shown.contains(one) && !shown.contains(left_out));
    let db = rusqlite::Connection::open(sandbox.data().join("catalogue.sqlite")).unwrap();
    db.execute("UPDATE nodes SET clock = 'node n2' WHERE node = 'n2'", []).unwrap();
    let shown = page();
    assert!(!shown.contains(one) && shown.contains(left_out));
    sandbox.assert_no_leftovers();
}

/// A plan whose load runs on the node that does not measure.
pub(crate) const LOADED: &str = "version = 1\nname = \"loaded\"\nload = \"busy\"\n\
    topology = { lab = \"line:2\" }\n[ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"udp\"\n\
    duration = \"2s\"\ninterval = \"5ms\"\n[loads.busy]\ncpu = [{ on = \"n2\", level = \"100%\" }]\n";

/// Returns the CPU time of a trial that is not attributed to other programs.
fn own_ratio(trial: &Value) -> f64 {
    let used = |name: &str| trial["trust"]["host"][name].as_f64().unwrap();
    used("busy_ratio") - used("others_ratio")
}

pub(crate) fn assert_load_is_own(trial: &Value) {
    let (own, load) = (own_ratio(trial), &trial["loads"][0]["values"]["burnt_ratio"]);
    let burnt = load.as_f64().unwrap();
    // The load runs on every CPU, so its share of each CPU is its share of the machine.
    assert!(burnt > 0.05 && own > 0.6 * burnt, "{own} of {burnt}: {trial:#}");
}

#[test]
fn declared_load_is_not_counted_as_another_program() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("loaded.toml", LOADED);
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert_load_is_own(&sandbox.json(&["show", "last"])["trials"][0]);
    sandbox.assert_no_leftovers();
}

/// Returns the clock ticks of CPU time that a process has used.
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    dwell_host::process(&text).unwrap().ticks
}

#[test]
fn dwell_started_elsewhere_counts_as_another_program() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("idle.toml", &LOADED.replace("load = \"busy\"\n", ""));
    // The shell exits and init adopts the process, as if a service manager had started it. It gets
    // most of one CPU, also while other tests compute; these have the rest.
    let script = "setsid nice -n -10 \"$0\" load cpu --cpu 0 --duration 60s > /dev/null 2>&1 &
        echo $!";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, DWELL]).env("DWELL_DATA", sandbox.data());
    let pid: u32 = stdout(&shell.output().unwrap()).trim().parse().unwrap();
    let burner = Handle::open(pid).unwrap();
    wait_until("the burner to burn", || ticks(pid) > 10);
    let (start, before) = (Instant::now(), ticks(pid));
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    let burnt = (ticks(pid) - before) as f64 / 100.0 / start.elapsed().as_secs_f64();
    burner.signal(Signal::Kill).unwrap();
    assert!(output.status.success(), "{output:?}");
    let trial = &sandbox.json(&["show", "last"])["trials"][0];
    let own = own_ratio(trial) * trial["trust"]["host"]["cpus"].as_f64().unwrap();
    assert!(own < 0.6 * burnt, "{own} of {burnt}: {trial:#}");
    sandbox.assert_no_leftovers();
}

#[test]
fn hdr_export_of_host_activity_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let file = crate::fixture::repository("controller/import/tests/data/roedlach-vock.csv");
    sandbox.json(&["import", file.to_str().unwrap()]);
    let output = sandbox.dwell(&["export", "last", "--what", "host", "--format", "hdr"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("csv, jsonl and parquet"), "{output:?}");
    let output = sandbox.dwell(&["export", "last", "--what", "host", "--format", "csv"]);
    assert_eq!(stdout(&output).lines().count(), 1, "no host activity was recorded: {output:?}");
}
