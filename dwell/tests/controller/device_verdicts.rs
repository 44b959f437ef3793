//! Verdict cards of devices from stored runs.

use dwell_plan::{Source, expand};
use dwell_record::{Kind, Packets, Stamps, Summary, Train};
use dwell_runner::new_trials;
use dwell_sample::TimestampSource;
use dwell_store::{BoundDevice, NewRun, Role, RunKind, RunNode, Store};
use dwell_units::Rate;
use serde_json::json;

use crate::devices::Devices;
use crate::fixture::repository;
use crate::schema::{assert_matches_schema, assert_refuses};

/// Stores a run of plans/device-accuracy.toml whose sender was bound to this device. Its gaps have
/// this error: 2 us are within a tenth of the gap of 576 B at 100 Mbit/s (46 us), but not of 200 B
/// there (16 us). Returns the name of the run.
fn measured(devices: &Devices, device: &str, gap_error_ns: i64, settings: &[&str]) -> String {
    let text = std::fs::read_to_string(repository("plans/device-accuracy.toml")).unwrap();
    let mut source = Source::parse(&text).unwrap();
    settings.iter().for_each(|setting| source.set(setting).unwrap());
    let expansion = expand(&source, 1).unwrap();
    let mut store = Store::open(&devices.sandbox.data()).unwrap();
    let axes = expansion.axes().into_iter().map(
        |axis| json!({ "name": axis.name, "values": axis.labels(), "numbers": null, "unit": null }),
    );
    let new = NewRun {
        kind: RunKind::Run,
        name: "device-accuracy".to_owned(),
        title: None,
        plan: Some(text.clone()),
        lab_files: None,
        settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        seed: 1,
        axes: axes.collect(),
        fleet: None,
        dwell: "0.2.0+0123456789ab".to_owned(),
        owner: "alice@lab".to_owned(),
        trials: new_trials(&expansion),
    };
    let name = store.begin_run(&new).unwrap();
    let run = store.run(&name).unwrap();
    for (node, device) in [("sender", device), ("receiver", "gw")] {
        let bound = BoundDevice {
            name: device.to_owned(),
            destination: "pi@board".to_owned(),
            program_sha256: "5f".repeat(32),
            arch: "aarch64".to_owned(),
        };
        let node = RunNode {
            node: node.to_owned(),
            dwell: "0.2.0+5f5f5f5f5f5f".to_owned(),
            clock: Some(node.to_owned()),
            device: Some(bound),
        };
        store.set_node(&run, &node).unwrap();
    }
    for trial in store.trials(&run).unwrap() {
        store.begin_trial(&trial).unwrap();
        let plan = expansion.plan_of(trial.cell).unwrap();
        let pace = plan.measurement.pace().unwrap();
        let parameters = &pace.parameters;
        if parameters.engine.name() == "packet-ring" {
            store.end_trial_not_run(&trial, "needs CAP_NET_RAW", &[]).unwrap();
            continue;
        }
        let (size, rate) = (pace.packet_size().unwrap(), parameters.rate.unwrap());
        let mut summary = Summary::new(Kind::Pace, "udp://receiver:9", "sleep-spin");
        summary.stamps = Stamps { tx: Some(TimestampSource::KernelSw), rx: None, near: None };
        summary.packets = Some(Packets { sent: 20, received: 20, ..Packets::default() });
        summary.parameters = [
            ("engine".to_owned(), "sleep-spin".into()),
            ("pattern".to_owned(), "train".into()),
            ("size_bytes".to_owned(), size.ip().0.into()),
            ("rate_bps".to_owned(), rate.0.into()),
            ("gap_ns".to_owned(), size.gap_ns(Rate::Bits(rate)).into()),
        ]
        .into();
        let train = Train {
            rate_bps: Some(rate.0 as f64),
            gap_error_p95_ns: Some(gap_error_ns),
            holed: false,
        };
        summary.trains = vec![train; parameters.repeat as usize];
        let summaries = [(Role::Measurement, "sender".to_owned(), summary)];
        store.end_trial(&trial, Ok(()), &summaries, None).unwrap();
    }
    store.set_run_state(&run, dwell_store::RunState::Finished).unwrap();
    name
}

#[test]
fn card_states_what_the_newest_run_decides() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "pi@board", "--model", "Raspberry Pi 4B", "--price", "55 USD"]);
    devices.text(&["add", "gw", "gateway"]);
    let text = devices.text(&["show", "pi4"]);
    assert!(
        text.contains(
            "no verdict yet; measure one: `dwell run plans/device-accuracy.toml --on \
             sender=pi4,receiver=OTHER`"
        ),
        "{text}"
    );
    measured(&devices, "pi4", 100_000, &[]);
    let run = measured(&devices, "pi4", 2_000, &[]);
    // A run without a verdict hides no earlier one.
    measured(&devices, "pi4", 2_000, &["pace.repeat=3"]);
    let text = devices.text(&["show", "pi4"]);
    let card = format!(
        "measures up to 100 Mbit/s with 576 B or more; 50 Mbit/s with 200 B; the same under 25 cross \
         flows (run {run}, best engine sleep-spin, 36 trials of all engines)"
    );
    assert!(text.contains(&card), "no '{card}' in {text}");
    assert!(text.contains("accurate: at least 20 trains"), "{text}");
    let line = text.lines().find(|line| line.starts_with(&run)).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1..4], ["sender", "device-accuracy", "finished"], "{line}");
    assert_eq!(words[5..], ["36/72", "alice@lab"], "{line}");
    assert!(devices.text(&["show", "gw"]).contains("no verdict yet"), "a receiver sends nothing");
    let shown = devices.json(&["show", "pi4"]);
    assert_matches_schema("dwell.device", &shown);
    assert_refuses("dwell.device", &shown, |it| it["verdicts"][0]["trials"] = json!(-1));
    assert_eq!(shown["runs"].as_array().unwrap().len(), 3);
    let card = &shown["verdicts"][0];
    assert_eq!(
        (&card["run"], &card["all_sizes_bps"], &card["large_packets_bps"]),
        (&json!(run), &json!(50_000_000), &json!(100_000_000))
    );
    assert_eq!(card["large_packets_from"], 576);
    // The card belongs to the device, not to its name.
    devices.text(&["edit", "pi4", "--name", "pi5"]);
    assert!(devices.text(&["show", "pi5"]).contains("measures up to 100 Mbit/s"));
    devices.text(&["add", "pi4", "pi@other"]);
    assert!(devices.text(&["show", "pi4"]).contains("no verdict yet"));
}

#[test]
fn verdicts_of_all_devices_are_listed_beside_those_of_mok_2015() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "pi@board", "--model", "Raspberry Pi 4B", "--price", "55 USD"]);
    devices.text(&["add", "gw", "gateway"]);
    devices.text(&["add", "slow", "slow"]);
    devices.text(&["check", "pi4"]);
    let run = measured(&devices, "pi4", 2_000, &[]);
    measured(&devices, "slow", 10_000_000, &[]);
    let table = devices.text(&["list", "--verdicts"]);
    let rows: Vec<Vec<String>> = table
        .lines()
        .take(8)
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()))
        .map(|cells| cells.map(str::to_owned).collect())
        .collect();
    assert_eq!(rows[0], ["device", "hardware", "price", "all sizes", "large packets", "source"]);
    assert_eq!(rows[1], ["gw", "-", "-", "-", "-", "no verdict yet"]);
    assert!(
        rows[2][1].starts_with("Raspberry Pi 4B, ") && rows[2][1].contains("Cortex-A72, 4 CPUs")
    );
    let source = format!("run {run}, best engine sleep-spin, 36 trials of all engines");
    assert_eq!(rows[2][2..], ["55 USD", "50Mbit/s", "100Mbit/s from 576B", &source]);
    assert_eq!(rows[3][3..5], ["not suitable", "not suitable"]);
    // Mok 2015, in the order of the paper.
    let published: Vec<[&str; 3]> =
        rows[4..].iter().map(|row| [&*row[0], &*row[3], &*row[4]]).collect();
    assert_eq!(
        published,
        [
            ["TP-LINK ML-3020", "below 50Mbit/s", "below 100Mbit/s"],
            ["Raspberry Pi I (B)", "not suitable", "not suitable"],
            ["Raspberry Pi II (B)", "10Mbit/s", "50Mbit/s"],
            ["ECS LIVA", "50Mbit/s", "100Mbit/s"],
        ]
    );
    assert!(rows[4][1].contains("400 MHz, 32 MiB") && rows[4][5].starts_with("Mok 2015"));
    let listed = devices.json(&["list", "--verdicts"]);
    assert_matches_schema("dwell.devices", &listed);
    assert_eq!(listed["devices"][1]["verdicts"][0]["run"], run);
    assert_eq!(listed["published"].as_array().unwrap().len(), 4);
    assert_eq!(devices.json(&["list"])["published"], serde_json::Value::Null);
}

#[test]
fn run_states_its_owner_devices_and_hashes() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "pi@board"]);
    let run = measured(&devices, "pi4", 2_000, &[]);
    let shown = devices.sandbox.json(&["show", &run]);
    assert_matches_schema("dwell.run", &shown);
    assert_eq!(shown["owner"], "alice@lab");
    let node = &shown["nodes"][1];
    assert_eq!((&node["node"], &node["dwell"]), (&json!("sender"), &json!("0.2.0+5f5f5f5f5f5f")));
    assert_eq!(
        node["device"],
        json!({
            "name": "pi4", "destination": "pi@board", "program_sha256": "5f".repeat(32),
            "arch": "aarch64",
        })
    );
    assert_refuses("dwell.run", &shown, |it| it["nodes"][1]["device"]["arch"] = json!(7));
    let text = devices.sandbox.dwell(&["show", &run]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("run by alice@lab with dwell 0.2.0+0123456789ab"), "{text}");
    assert!(text.contains("sender on device pi4 (pi@board), aarch64"), "{text}");
    assert_eq!(devices.sandbox.json(&["runs"])["runs"][0]["owner"], "alice@lab");
}
