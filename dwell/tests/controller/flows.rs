//! A small plan of a one-way flow through a relay in a real lab: the records of all machines are
//! joined, shown and exported, and unavailable values are absent.

use serde_json::Value;

use crate::fixture::{Sandbox, as_root, stdout};
use crate::schema::assert_matches_schema;

const PACKETS: u64 = 200;

const PARTS: [&str; 8] = [
    "sender_out_ns",
    "link_in_ns",
    "queueing_in_ns",
    "processing_ns",
    "queueing_out_ns",
    "qdisc_ns",
    "link_out_ns",
    "receiver_in_ns",
];

fn plan(sandbox: &Sandbox, more: &str) -> String {
    sandbox.write(
        "flow.toml",
        &format!(
            "version = 1\nname = \"flow\"\ntopology = {{ lab = \"line:3\" }}\n\
             [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"300B\"\nrate = \"1kpps\"\ncount = {PACKETS}\n\
             [relay]\non = \"n2\"\nmode = \"route\"\n{more}\
             [matrix]\nrelay = [\"route\", \"translate\"]\n[trials]\norder = \"as-written\"\n"
        ),
    )
}

fn rows(sandbox: &Sandbox) -> Vec<Value> {
    let output = sandbox.dwell(&["export", "last", "--format", "jsonl"]);
    assert!(output.status.success(), "{output:?}");
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn relayed_flow_is_joined_and_shown_with_all_machines() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = sandbox.dwell(&["run", &plan(&sandbox, ""), "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    sandbox.assert_no_leftovers();
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let [route, translate] = shown["trials"].as_array().unwrap().as_slice() else { panic!() };
    for trial in [route, translate] {
        assert_eq!(trial["packets"]["received"], PACKETS, "{trial:#}");
        assert_eq!(trial["values"]["unjoined_receiver"], 0, "{trial:#}");
        for machine in ["relay", "trace"] {
            // The end of the flow and its answer also pass but are not packets of the flow.
            let strange = trial["values"][format!("unjoined_{machine}")].as_u64().unwrap();
            assert!(strange < PACKETS / 10, "{machine}: {trial:#}");
        }
        let count = |name: &str| trial["metrics"][name]["count"].as_u64();
        assert_eq!(count("end_to_end_ns"), Some(PACKETS));
        assert!(trial["measurement"]["stamps"]["tx"].is_string(), "{trial:#}");
        assert_eq!(trial["measurement"]["parameters"]["link_from"], "tx_kernel");
    }
    // Delays of a program exist only if a program relays; otherwise they are absent, not 0.
    let metric = |trial: &Value, name: &str| trial["metrics"][name]["count"].as_u64();
    assert_eq!(metric(translate, "processing_ns"), Some(PACKETS));
    assert_eq!(metric(translate, "node_delay_ns"), Some(PACKETS));
    for part in ["processing_ns", "queueing_in_ns", "queueing_out_ns", "node_delay_ns"] {
        assert!(route["metrics"].get(part).is_none(), "{part}: {route:#}");
    }
    assert_eq!(route["measurement"]["engine"], "kernel");
    assert_eq!(translate["measurement"]["engine"], "socket");
    let source = serde_json::json!(["rx_kernel", "tx_kernel"]);
    assert_eq!(translate["measurement"]["parameters"]["node_points"], source);
    // The summaries of the machines, with their own counters.
    let count_summaries = |trial: &Value, node: &str, kind: &str| {
        let machines = trial["machines"].as_array().unwrap();
        let ours = machines.iter().map(|machine| (&machine["node"], &machine["summary"]));
        ours.filter(|(name, it)| *name == node && it["kind"] == kind).count()
    };
    assert_eq!(count_summaries(translate, "n2", "relay"), 1, "{translate:#}");
    assert_eq!(count_summaries(route, "n2", "relay"), 0, "the kernel has no relay summary");
    assert_eq!(
        (count_summaries(route, "n1", "load"), count_summaries(route, "n3", "load")),
        (1, 1),
        "both ends"
    );
    let machines = translate["machines"].as_array().unwrap();
    let relay = machines.iter().find(|it| it["summary"]["kind"] == "relay").unwrap();
    assert_eq!(relay["summary"]["parameters"]["mode"], "translate");
    assert!(relay["summary"]["values"].as_object().unwrap().len() > 3, "its counters: {relay:#}");
    // The placement of the far end is known because dwell started it.
    assert!(route["environment"]["placement"]["far"].is_object(), "{:#}", route["environment"]);

    let rows = rows(&sandbox);
    assert_eq!(rows.len() as u64, 2 * PACKETS);
    let of = |trial: u64| rows.iter().filter(move |row| row["trial"] == trial);
    for trial in [1, 2] {
        let ids: Vec<u64> = of(trial).map(|row| row["id"].as_u64().unwrap()).collect();
        assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    }
    for row in of(2) {
        let ns = |name: &str| row[name].as_i64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!(PARTS.iter().map(|part| ns(part)).sum::<i64>(), ns("end_to_end_ns"), "{row}");
        assert_eq!(ns("end_to_end_ns"), ns("rx_app_ns") - ns("tx_app_ns"));
        assert_eq!(ns("processing_ns"), ns("node_tx_app_ns") - ns("node_rx_app_ns"));
    }
    for row in of(1) {
        assert!(row["processing_ns"].is_null() && row["node_rx_app_ns"].is_null(), "{row}");
    }

    // The main metric of a flow is not a round trip; compare and export use it.
    let compared = sandbox.json(&["compare", "last", "last"]);
    assert_ne!(compared["metric"], "rtt_ns");
    let log = sandbox.dwell(&["export", "last", "--format", "hdr"]);
    assert!(log.status.success(), "{log:?}");
    assert!(stdout(&log).contains(compared["metric"].as_str().unwrap()), "{log:?}");
}

#[test]
fn untraced_routed_flow_has_no_link_delay() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = sandbox.dwell(&["run", &plan(&sandbox, ""), "--quiet", "--set", "trace=false"]);
    assert!(output.status.success(), "{output:?}");
    let shown = sandbox.json(&["show", "last"]);
    let route = &shown["trials"][0];
    assert_eq!(route["metrics"]["end_to_end_ns"]["count"], PACKETS);
    assert!(route["metrics"].get("link_delay_ns").is_none(), "{route:#}");
    assert!(route["values"]["nlr"].is_null(), "{route:#}");
    let warnings = route["trust"]["warnings"].to_string();
    assert!(warnings.contains("the delays of the node and of its links are unknown"), "{warnings}");
}

#[test]
fn loaded_node_with_quota_reports_its_cpu_use() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.write(
        "weak.toml",
        &format!(
            "version = 1\nname = \"weak\"\ntopology = {{ lab = \"line:3\", quota = {{ n2 = \"30%\" }} }}\n\
             [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"300B\"\nrate = \"200pps\"\ncount = {PACKETS}\nsettle = \"2s\"\n\
             [relay]\non = \"n2\"\nmode = \"encrypt\"\n\
             [loads.most]\ncpu = [{{ on = \"n2\", level = \"90%\" }}]\n\
             [matrix]\nload = [\"none\", \"most\"]\n[trials]\norder = \"as-written\"\n"
        ),
    );
    let output = sandbox.dwell(&["run", &plan, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    sandbox.assert_no_leftovers();
    let shown = sandbox.json(&["show", "last"]);
    assert_matches_schema("dwell.run", &shown);
    let [idle, loaded] = shown["trials"].as_array().unwrap().as_slice() else { panic!() };
    for trial in [idle, loaded] {
        assert_eq!(trial["packets"]["received"], PACKETS, "{trial:#}");
        assert_eq!(trial["metrics"]["processing_ns"]["count"], PACKETS, "{trial:#}");
        assert_eq!(trial["values"]["quota_n2_asked_ratio"], 0.3);
        let machines = trial["machines"].as_array().unwrap();
        let relay = machines.iter().find(|it| it["summary"]["kind"] == "relay").unwrap();
        assert_eq!(relay["summary"]["parameters"]["mode"], "encrypt");
        assert_eq!(relay["summary"]["values"]["nonce_bytes"], 12, "{relay:#}");
    }
    let value = |trial: &Value, name: &str| trial["values"][name].as_f64().unwrap();
    let burnt = [idle, loaded].map(|trial| value(trial, "quota_n2_burnt_ratio"));
    assert!(burnt[0] < 0.2 && (0.1..0.33).contains(&burnt[1]), "{burnt:?}");
    assert!(burnt[1] > 2.0 * burnt[0], "{burnt:?}");
    assert!(value(loaded, "quota_n2_throttled_ns") > 0.0, "{loaded:#}");
    // The load requested more than the quota allows, and reports it.
    let load = &loaded["loads"][0];
    assert_eq!(load["values"]["asked_ratio"], 0.9, "{load:#}");
    assert!(value(load, "burnt_ratio") < 0.33, "{load:#}");
    let warnings = load["trust"]["warnings"].to_string();
    assert!(warnings.contains("or a quota holds this node"), "{warnings}");
}
