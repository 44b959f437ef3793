//! Host activity in samples and results: on the time axis of the probes, and as a warning.

use std::collections::HashSet;
use std::fs::{self, File};
use std::process::Command;

use dwell_record::segment::{Record, read};
use serde_json::Value;

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;
use support::{DWELL, Server, dwell, json, said};

/// Burns every CPU until dropped.
fn burner() -> Server {
    let mut command = Command::new(DWELL);
    command.args(["load", "cpu", "--level", "100%"]);
    Server::ready(command, "burning", 1)
}

#[test]
fn ping_warns_about_load_of_other_programs() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let _burner = burner();
    let ping = ["ping", &urls[0], "-c", "150", "-i", "0.01", "-q"];
    let summary = json(&dwell(&[&ping[..], &["--json"]].concat()));
    let trust = &summary["trust"];
    let others = trust["host"]["others_ratio"].as_f64().unwrap();
    assert!((0.1..=1.0).contains(&others), "{trust:#}");
    let figure = format!("other programs used {:.0} % of the CPU time", others * 100.0);
    assert!(trust["warnings"].to_string().contains(&figure), "{trust:#}");
    let printed = dwell(&ping);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("note: other programs used "), "{printed}");
}

#[test]
fn doctor_advises_on_load_of_other_programs() {
    let _burner = burner();
    let output = dwell(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let others = found["load"]["others_ratio"].as_f64().unwrap();
    assert!((0.1..=1.0).contains(&others), "{found:#}");
    assert!(found["advice"].to_string().contains("other programs used"), "{}", said(&output));
}

#[test]
fn samples_contain_host_activity_during_the_probes() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("samples");
    let file = path.to_str().unwrap();
    let ping = dwell(&["ping", "-c", "20", "-i", "0.05", "--samples", file, "--json", &urls[0]]);
    assert_eq!(ping.status.code(), Some(0), "{ping:?}");

    let (mut probes, mut host, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let end = read(&mut File::open(&path).unwrap(), &mut |record| match record {
        Record::Sample(sample, ..) => probes.push(sample.tx.app.as_nanos()),
        Record::Host(sample) => {
            host.push(sample.at_ns);
            assert!(sample.values.iter().all(|(name, value)| {
                value.is_finite() && (!name.ends_with("_ratio") || (0.0..=1.0).contains(value))
            }));
            names.extend(sample.values.keys().cloned());
        }
        _ => {}
    });
    let end = end.unwrap();
    assert!(
        end.totals.is_some_and(|totals| totals.samples == end.samples),
        "host samples are not counted"
    );
    let (Some(first), Some(last)) = (probes.first(), probes.last()) else { panic!("{ping:?}") };
    let within = host.iter().filter(|at| (first..=last).contains(at)).count();
    // Five per second, fewer on a busy machine.
    let most = usize::try_from((last - first) / 200_000_000).unwrap() + 2;
    assert!((2..=most).contains(&within), "{within} of {host:?} between {first} and {last}");
    assert!(host.is_sorted());
    for name in ["cpu0_busy_ratio", "interrupts_per_s", "context_switches_per_s"] {
        assert!(names.contains(name), "{names:?}");
    }
    let has_radio =
        fs::read_to_string("/proc/net/wireless").is_ok_and(|text| text.lines().count() > 2);
    let has_signal = names.iter().any(|name| name.ends_with("_signal_dbm"));
    assert!(has_radio || !has_signal, "signal levels without a radio: {names:?}");
}
