//! Causes of spikes in a run: stored beside the samples, drawn, exported, imported, deleted.

use std::collections::BTreeMap;
use std::fs;

use crate::fixture::{Sandbox, as_root, stderr, stdout};

/// A plan whose replies are all spikes.
const EXPLAINED: &str = "version = 1\nname = \"explained\"\ntopology = { lab = \"line:2\" }\n[ping]\n\
    from = \"n1\"\nto = \"n2\"\nprotocol = \"stamp\"\ncount = 300\ninterval = \"1ms\"\n\
    explain = true\nexplain_above = \"1us\"\n[trials]\nrepetitions = 2\n";

/// Rows of a CSV export, by column.
fn rows(sandbox: &Sandbox, run: &str, what: &str) -> Vec<BTreeMap<String, String>> {
    let output = sandbox.dwell(&["export", run, "--what", what, "--format", "csv"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().unwrap().collect();
    lines.map(|values| names.iter().cloned().zip(values).collect()).collect()
}

/// Asserts that every received sample has parts that sum to its delay and one main cause.
fn assert_every_delay_is_divided(sandbox: &Sandbox, run: &str, least: usize) {
    type Spike = (String, String, i64, usize);
    let mut spikes: BTreeMap<(String, String), Spike> = BTreeMap::new();
    for row in rows(sandbox, run, "spikes") {
        let key = (row["trial"].clone(), row["id"].clone());
        let new = (row["at_ns"].clone(), row["rtt_ns"].clone(), 0, 0);
        let spike = spikes.entry(key).or_insert(new);
        spike.2 += row["ns"].parse::<i64>().unwrap();
        spike.3 += usize::from(row["main"] == "true");
    }
    let samples = rows(sandbox, run, "samples");
    let received: Vec<_> = samples.iter().filter(|row| row["state"] == "received").collect();
    assert!(received.len() >= least, "{}", received.len());
    assert_eq!(spikes.len(), received.len());
    for row in received {
        let key = (row["trial"].clone(), row["id"].clone());
        let (at, rtt, sum, main) = &spikes[&key];
        assert_eq!((at, rtt), (&row["tx_app_ns"], &row["rtt_ns"]), "{key:?}");
        assert_eq!(sum.to_string(), *rtt, "{key:?}");
        assert_eq!(*main, 1, "{key:?}");
    }
}

#[test]
fn causes_of_a_run_are_stored_drawn_and_exported() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write("explained.toml", EXPLAINED);
    let end = sandbox.json(&["run", &plan, "--quiet"]);
    let run = end["run"].as_str().unwrap();
    assert_every_delay_is_divided(&sandbox, run, 500);
    let figures = "SELECT summary ->> '$.spikes.source' FROM summaries \
         WHERE summary ->> '$.spikes.explained' = summary ->> '$.packets.received'";
    assert_eq!(sandbox.query(figures).len(), 2);
    let report = sandbox.path("run.html");
    let output = sandbox.dwell(&["report", run, "-o", report.to_str().unwrap()]);
    assert!(output.status.success() && stderr(&output).is_empty(), "{output:?}");
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("id=\"figure-spike-causes\""));
    let directory = sandbox.path("exported");
    let to = directory.to_str().unwrap();
    let export = ["export", run, "--what", "spikes", "--format", "parquet", "-o", to];
    assert!(sandbox.dwell(&export).status.success());
    assert!(
        ["1.parquet", "2.parquet", "trials.json"].iter().all(|name| directory.join(name).exists())
    );
    // Damaged causes affect neither the samples nor the figures.
    let stored = sandbox.data().join("samples").join(run);
    let file = stored.join("spikes").join("1.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(sandbox.dwell(&["export", run, "--format", "csv"]).status.success());
    let output = sandbox.dwell(&["export", run, "--what", "spikes", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("1.parquet"), "{output:?}");
    let objects = stdout(&output);
    assert!(objects.starts_with("{\"trial\":2,\"repetition\":2,\"id\":0,\"at_ns\":"), "{objects}");
    sandbox.json(&["delete", run, "--yes"]);
    assert!(!stored.exists());
    sandbox.assert_no_leftovers();
}

#[test]
fn run_without_explain_has_no_spikes_and_no_directory() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    let end = sandbox.json(&["run", &plan, "--quiet"]);
    let run = end["run"].as_str().unwrap();
    assert_eq!(rows(&sandbox, run, "spikes").len(), 0);
    assert!(!sandbox.data().join("samples").join(run).join("spikes").exists());
    let output = sandbox.dwell(&["export", run, "--what", "spikes", "--format", "hdr"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn imported_segment_keeps_its_causes() {
    let sandbox = Sandbox::new();
    let segment = sandbox.path("explained.samples");
    let file = segment.to_str().unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{port}");
    let mut reflector = sandbox.start(&mut sandbox.command(&["reflect", &url]));
    crate::fixture::wait_until("the reflector", || sandbox.stderr().contains("listening on"));
    let arguments = "-c 100 -i 1ms --explain-above 1us -q --samples";
    let mut ping = vec!["ping", &url];
    ping.extend(arguments.split(' '));
    ping.push(file);
    let output = sandbox.dwell(&ping);
    reflector.kill().unwrap();
    reflector.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let imported = sandbox.json(&["import", file]);
    assert_every_delay_is_divided(&sandbox, imported["run"].as_str().unwrap(), 95);
}
