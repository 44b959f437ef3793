//! A small plan of paced packets in a real lab: trains are judged, unsupported engines are not run,
//! and every row has a gap.

use std::process::Command;

use serde_json::Value;

use crate::fixture::{Sandbox, as_root, skip, stdout};
use crate::schema::assert_matches_schema;

fn plan(sandbox: &Sandbox) -> String {
    sandbox.write(
        "paces.toml",
        "version = 1\nname = \"paces\"\ntopology = { lab = \"line:2\" }\n\
         [pace]\nfrom = \"n1\"\nto = \"n2\"\nframe_size = \"1514B\"\ncount = 21\npause = \"1ms\"\n\
         pairs = 5\n[cross]\nrate = \"500kbit/s\"\n[accurate]\ngap = \"50%\"\n\
         [matrix]\nflows = [0, 2]\npattern = [\"train\", \"pair\"]\nrate = [\"20Mbit/s\"]\n\
         engine = [\"sleep-spin\", \"txtime\"]\n\
         [[constraint]]\nwhen = { pattern = \"pair\" }\nmatrix = { rate = [\"none\"] }\n\
         [trials]\norder = \"as-written\"\n",
    )
}

#[test]
fn trains_are_judged_and_txtime_without_fq_is_not_run() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = sandbox.dwell(&["run", &plan(&sandbox), "--quiet", "--json"]);
    assert!(output.status.success(), "{output:?}");
    sandbox.assert_no_leftovers();
    let end: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_matches_schema("dwell.run-end", &end);
    // The lab's links have no queueing discipline that could hold packets until their time.
    let counts =
        ["trials", "finished", "failed", "not_run"].map(|name| end[name].as_u64().unwrap());
    assert_eq!(counts, [8, 4, 0, 4], "{end:#}");
    assert_matches_schema("dwell.runs", &sandbox.json(&["runs"]));

    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let verdicts = shown["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4, "two engines, two numbers of flows: {verdicts:#?}");
    for verdict in verdicts {
        assert_eq!((&verdict["node"], &verdict["ip_size"]), (&"n1".into(), &1_500.into()));
        let not_run = verdict["engine"] == "txtime";
        assert_eq!(verdict["verdict"] == "not-run", not_run, "{verdict:#}");
        assert!(!not_run || verdict["reason"].as_str().unwrap().contains("fq"), "{verdict:#}");
    }
    for trial in shown["trials"].as_array().unwrap() {
        let paced = trial["state"] == "finished";
        assert_eq!(paced, trial["parameters"]["engine"] == "sleep-spin", "{trial:#}");
        if !paced {
            assert_eq!((&trial["state"], &trial["packets"]), (&"not-run".into(), &Value::Null));
            continue;
        }
        let loads = trial["loads"].as_array().unwrap();
        assert_eq!(
            loads.len().to_string(),
            if trial["parameters"]["flows"] == "0" { "0" } else { "1" }
        );
        let gaps = &trial["metrics"]["gap_ns"]["count"];
        let train = trial["parameters"]["pattern"] == "train";
        assert_eq!(*gaps, if train { 400 } else { 5 }, "{trial:#}");
    }
    // With another tolerance, as text and as a page.
    let text = stdout(&sandbox.dwell(&["show", "last", "--accurate", "gap 99%, trains 5"]));
    assert!(text.contains("at least 5 trains") && text.contains("below 99 %"), "{text}");
    assert!(text.contains("not run, not supported on this node: txtime"), "{text}");
    assert!(text.contains("Raspberry Pi II (B)"), "{text}");
    let wrong = sandbox.dwell(&["show", "last", "--accurate", "gap 1"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let page = sandbox.path("paces.html").display().to_string();
    assert!(sandbox.dwell(&["report", "-o", &page]).status.success());
    assert!(std::fs::read_to_string(page).unwrap().contains("data-figure=\"rates-2\""));
}

#[test]
fn sink_stamps_packets_only_if_the_sender_does_not() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let set = [
        "--set",
        "matrix={stamps=[\"auto\",\"user\"],rate=[\"20Mbit/s\"]}",
        "--set",
        "pace.engine=\"spin\"",
        "--set",
        "constraint=[]",
    ];
    let output = sandbox.dwell(&[&["run", &plan(&sandbox), "--quiet"], &set[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let shown = sandbox.json(&["show", "last"]);
    let trials = shown["trials"].as_array().unwrap();
    // 20 trains of 21 packets and one warm-up train. A queried sink counts the three lead-in
    // packets of each train separately.
    let expected = [("auto", "tx_kernel", false, 0, 21 * 24), ("user", "sink", true, 21 * 21, 0)];
    assert_eq!(trials.len(), expected.len());
    for (trial, (stamps, departures, asked, read, unread)) in trials.iter().zip(expected) {
        let parameters = &trial["measurement"]["parameters"];
        assert_eq!(parameters["stamps"], stamps, "{trial:#}");
        assert_eq!(
            (&parameters["departures"], &parameters["sink"]),
            (&departures.into(), &asked.into())
        );
        assert_eq!(trial["packets"].is_null(), !asked, "{trial:#}");
        assert!(!trial["trust"]["warnings"].to_string().contains("icmp-errors"));
        let sink = &trial["machines"][0]["summary"]["values"];
        let saw = (&sink["packets"], &sink["unread_packets"]);
        assert_eq!(saw, (&read.into(), &unread.into()), "{trial:#}");
    }
}

#[test]
fn itg_cross_traffic_reports_its_achieved_rate() {
    if !as_root() {
        return;
    }
    if Command::new("ITGSend").arg("-h").output().is_err() {
        return skip("ITGSend is not installed (make setup)");
    }
    let sandbox = Sandbox::new();
    let set = [
        "--set",
        "matrix={flows=[3],engine=[\"sleep-spin\"],pattern=[\"train\",\"pair\"],rate=[\"20Mbit/s\"]}",
        "--set",
        "cross={rate=\"2Mbit/s\",generator=\"itg\",seed=7}",
        // ITGSend reports every ten packets, so each flow must have sent that many.
        "--set",
        "pace.pause=50ms",
    ];
    let output = sandbox.dwell(&[&["run", &plan(&sandbox), "--quiet"], &set[..]].concat());
    assert!(output.status.success(), "{output:?}");
    sandbox.assert_no_leftovers();
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let loads = shown["trials"][0]["loads"].as_array().unwrap();
    let [load] = loads.as_slice() else { panic!("expected one load: {loads:#?}") };
    assert!(load["engine"].as_str().unwrap().starts_with("ITGSend 2"), "{load:#}");
    let asked = &load["parameters"];
    assert_eq!((&asked["flows"], &asked["seed"]), (&3.into(), &7.into()), "{load:#}");
    // 540 B of IP at 2 Mbit/s are 2.16 ms apart; for shape 1.5 the scale is a third of that.
    assert!(asked["itg"].as_str().unwrap().contains("-V 1.5 0.720000 -c 512 -s 0."), "{load:#}");
    assert!((asked["rate_bps"].as_f64().unwrap() - 6e6).abs() < 1.0, "{load:#}");
    assert_eq!(load["values"]["flows"], 3, "{load:#}");
    let achieved = load["values"]["rate_bps"].as_f64().unwrap();
    // The mean of few Pareto gaps is often below the long-term mean, so the rate is above it.
    assert!((6e5..18e6).contains(&achieved), "{load:#}");
    let text = stdout(&sandbox.dwell(&["show", "last"]));
    assert!(text.contains("sent by ITGSend"), "{text}");
}

#[test]
fn paced_rows_have_gaps_and_compare_uses_gap_errors() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let set = ["--set", "matrix.engine=[\"spin\"]", "--set", "matrix.flows=[0]"];
    let output = sandbox.dwell(&[&["run", &plan(&sandbox), "--quiet"], &set[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let output = sandbox.dwell(&["export", "last", "--format", "jsonl"]);
    let rows: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let trains: Vec<_> = rows.iter().filter(|row| row["trial"] == 1).collect();
    assert_eq!(trains.len(), 420);
    for pair in trains.windows(2) {
        let id = |row: &Value| row["id"].as_u64().unwrap();
        let ns = |row: &Value, name: &str| row[name].as_i64();
        if id(pair[1]) != id(pair[0]) + 1 {
            assert_eq!(ns(pair[1], "gap_ns"), None, "between trains: {}", pair[1]);
            continue;
        }
        let left = |row: &Value| ns(row, "tx_kernel_ns");
        assert_eq!(ns(pair[1], "gap_ns"), left(pair[1]).zip(left(pair[0])).map(|(b, a)| b - a));
    }
    let summary = &sandbox.json(&["show", "last"])["trials"][0]["metrics"]["gap_error_ns"];
    let known: Vec<i64> = trains.iter().filter_map(|row| row["gap_error_ns"].as_i64()).collect();
    assert_eq!(summary["count"], known.len());
    // Rows contain due times rounded to nanoseconds.
    let largest = known.iter().max().unwrap();
    assert!((summary["max"].as_i64().unwrap() - largest).abs() <= 1, "{summary} {largest}");
    let compared = sandbox.json(&["compare", "last", "last"]);
    assert_eq!(compared["metric"], "gap_error_ns");
    let text = stdout(&sandbox.dwell(&["compare", "last", "last"]));
    assert!(
        text.contains("cross flows") && text.contains("(n1)"),
        "rates must be side by side: {text}"
    );
}

#[test]
fn departures_of_dwell_pace_are_imported_as_a_run() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("pace.segment").display().to_string();
    let url =
        ["pace", "udp://127.0.0.1:9", "--rate", "20Mbit/s", "--size", "300B", "--repeat", "3"];
    let paced = sandbox.dwell(&[&url[..], &["--engine", "spin", "--samples", &file]].concat());
    assert!(paced.status.success(), "{paced:?}");
    let imported = sandbox.dwell(&["import", &file]);
    assert!(imported.status.success(), "{imported:?}");
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let trial = &shown["trials"][0];
    for metric in ["gap_ns", "gap_error_ns"] {
        assert_eq!(trial["metrics"][metric]["count"], 3 * 49, "{trial:#}");
    }
    // There was no sink, so arrivals are unknown.
    assert_eq!(trial["packets"], Value::Null, "{trial:#}");
}
