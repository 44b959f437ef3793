//! First use: short units, rows on standard output, the verdict of `pace`, the glossary.

mod support;

use std::process::Command;

use dwell_stats::glossary::{TermKind, term};
use serde_json::Value;
use support::{DWELL, Server, dwell, free_port, json, said};

fn printed(arguments: &[&str]) -> String {
    let output = dwell(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pace_without_a_target_ends_with_a_verdict() {
    let text =
        printed(&["pace", "--rate", "10Mbit/s", "--size", "576B", "--engine", "sleep-spin", "-q"]);
    let last = text.lines().last().unwrap();
    let verdict = last.strip_prefix("keeps 10 Mbit/s with 576 B packets: ");
    let verdict = verdict.unwrap_or_else(|| panic!("{last}"));
    // The verdict depends on how busy this machine is.
    let known = ["yes (p95 gap error ", "no (", "cannot tell: "];
    assert!(known.iter().any(|start| verdict.starts_with(start)), "{last}");
    assert!(!verdict.starts_with("yes") || verdict.ends_with(" %, limit 10 %)"), "{last}");
    assert!(!text.contains("j_literal") && text.contains("loopback"), "{text}");
    let few = ["--rate", "10M", "--size", "576B", "--repeat", "3", "--engine", "spin", "-q", "-v"];
    let text = printed(&[&["pace"], &few[..]].concat());
    let last = text.lines().last().unwrap();
    let reason = "cannot tell: 3 trains, at least 20 are required (--repeat)";
    assert_eq!(last, format!("keeps 10 Mbit/s with 576 B packets: {reason}"));
    assert!(text.contains("j_literal") && text.contains("j_successive"), "{text}");
    // JSON has all figures, without the verdict line.
    let output = dwell(&[&["pace"], &few[..8], &["-q", "--json"]].concat());
    assert!(json(&output)["values"]["j_nominal_ns"].is_number());
}

#[test]
fn csv_to_stdout_contains_only_rows() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let text = printed(&["ping", &urls[0], "-c", "5", "-i", "1ms", "-q", "--csv", "-"]);
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("id,state,"), "{text}");
    let columns = text.lines().next().unwrap().split(',').count();
    let rows: Vec<_> = lines.collect();
    assert_eq!(rows.len(), 5, "{text}");
    assert!(rows.iter().all(|row| row.split(',').count() == columns), "{text}");
    assert!(!std::path::Path::new("-").exists());
    for other in ["--json", "--jsonl"] {
        let output = dwell(&["ping", &urls[0], "-c", "1", "--csv", "-", other]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("both write to standard output"), "{}", said(&output));
    }
    let output = dwell(&["ping", &urls[0], "-c", "1", "--samples", "-"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn unambiguous_short_units_are_accepted() {
    let found: Value = serde_json::from_str(&printed(&[
        "load",
        "cpu",
        "--level",
        "50",
        "--duration",
        "100ms",
        "--json",
    ]))
    .unwrap();
    assert_eq!(found["parameters"]["level_ratio"], 0.5);
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    for rate in ["1M", "1Mbps", "1mbit", "1000k", "1Mbit/s"] {
        let sent = ["load", "traffic", &url, "--rate", rate, "--count", "2", "--json"];
        let sent: Value = serde_json::from_str(&printed(&sent)).unwrap();
        let requested = sent["parameters"]["rate_bps"].as_f64().unwrap();
        assert!((requested - 1e6).abs() < 1.0, "{rate}: {sent:#}");
    }
    for (arguments, right) in [
        (&["load", "cpu", "--level", "0.5"][..], "0.5% or 50%"),
        (&["load", "traffic", &url, "--rate", "100"], "100Mbit/s, 100M or 200pps"),
        (&["load", "cpu", "--duration", "10"], "10ms, 250us or 1.5s"),
        (&["load", "traffic", &url, "--rate", "1M", "--size", "1400"], "1400B"),
    ] {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(right), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn loads_are_printed_in_human_units_without_zero_rows() {
    let url = format!("udp://127.0.0.1:{}", free_port("127.0.0.1"));
    let mut sink = Command::new(DWELL);
    sink.args(["load", "sink", &url]);
    let sink = Server::ready(sink, "listening on", 1);
    let sent = printed(&["load", "traffic", &url, "--rate", "1.61M", "--duration", "500ms"]);
    let received = String::from_utf8(sink.stop().stdout).unwrap();
    for text in [&sent, &received] {
        assert!(text.contains("payload rate ") && text.contains(" Mbit/s\n"), "{text}");
        assert!(text.contains("duration ") && text.contains(" ms\n"), "{text}");
        assert!(!text.contains("000000") && !text.contains("_bps"), "{text}");
    }
    assert!(!received.contains("duplicate") && !received.contains("unmarked"), "{received}");
}

#[test]
fn help_terms_prints_the_glossary_and_keeps_command_help() {
    let all = printed(&["help", "terms"]);
    assert!(
        all.contains("rtt_ns") && all.contains("[RFC 2681]") && all.contains("loss_ratio"),
        "{all}"
    );
    let one = printed(&["help", "terms", "pdv_ns"]);
    assert_eq!(one.lines().count(), 3, "{one}");
    assert!(one.contains("RFC 5481") && one.contains("RFC 3393"), "ipdv_ns contains pdv_ns: {one}");
    let output = dwell(&["help", "terms", "nonsense"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(printed(&["help", "ping"]).contains("Usage: dwell-node ping"));
    assert!(printed(&["help", "lab", "up"]).contains("Usage: dwell-node lab up"));
    assert!(printed(&["help"]).contains("help terms"));
}

#[test]
fn every_name_of_a_result_is_in_the_glossary() {
    let check = |what: &str, result: &Value| {
        for (kind, part) in [(TermKind::Metric, "metrics"), (TermKind::Value, "values")] {
            for name in result[part].as_object().unwrap().keys() {
                assert!(term(kind, name).is_some(), "{what}: {part} has '{name}'");
            }
        }
    };
    let run = |arguments: &[&str]| -> Value {
        let output = dwell(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        let result = json(&output);
        check(&arguments.join(" "), &result);
        result
    };
    let serve = |arguments: &[&str], ready: &str| {
        let mut command = Command::new(DWELL);
        command.args(arguments).arg("--json");
        Server::ready(command, ready, 1)
    };
    let url = |scheme: &str| format!("{scheme}://127.0.0.1:{}", free_port("127.0.0.1"));
    let stamp = url("stamp");
    let reflector = serve(&["reflect", &stamp], "listening on");
    run(&["ping", &stamp, "-c", "300", "-i", "1ms", "-q", "--path"]);
    check("reflect", &json(&reflector.stop()));
    let (udp, tcp) = (url("udp"), url("tcp"));
    for (to, more) in
        [(&udp, &["--rate", "1kpps", "--count", "50"][..]), (&tcp, &["--bytes", "1MB"])]
    {
        let sink = serve(&["load", "sink", to], "listening on");
        run(&[&["load", "traffic", to], more].concat());
        if *to == udp {
            run(&["load", "traffic", to, "--rate", "1kpps", "--count", "50", "--header", "iperf"]);
        }
        check("load sink", &json(&sink.stop()));
    }
    run(&["load", "cpu", "--duration", "50ms"]);
    let listen = url("udp");
    let relay = serve(&["relay", "--listen", &listen, "--to", &udp], "relaying");
    run(&["load", "traffic", &listen, "--rate", "1kpps", "--count", "50"]);
    check("relay", &json(&relay.stop()));
    let train = ["--rate", "50Mbit/s", "--repeat", "2", "--engine", "spin", "-q"];
    run(&[&["pace"], &train[..]].concat());
    run(&["pace", "--pattern", "pair", "--engine", "spin", "-q"]);
    let sink = serve(&["pace", "sink", &udp], "stamping");
    run(&[&["pace", &udp], &train[..], &["--sink"]].concat());
    check("pace sink", &json(&sink.stop()));
}
