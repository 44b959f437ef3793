//! Reports of runs over relay modes: no number covers several modes.

#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_record::Scalar;
use dwell_report::model::{MachineData, RunData, TrialData};
use dwell_report::{figures, findings};
use synthetic::{PI_ZERO, Relay, relays, relays_repeated};

fn text(run: &RunData, id: &str) -> String {
    findings(run).into_iter().find(|finding| finding.id == id).map(|f| f.text).unwrap_or_default()
}

#[test]
fn effects_are_reported_per_mode() {
    // Load slows programs but not the kernel.
    let run = relays_repeated(Relay { stress: 3.0, ..PI_ZERO }, 3);
    let said = text(&run, "effect-load");
    assert!(said.contains(" Node delay of translate: the median rose"), "{said}");
    assert!(said.contains(" Node delay of encrypt: the median rose"), "{said}");
    let flat = "The median node delay between netfilter's hooks of route is about the same";
    assert!(said.starts_with(flat), "{said}");
    // Encryption takes longer for larger packets.
    let said = text(&run, "effect-size");
    assert!(said.contains("of encrypt: the median rose") && !said.contains("route: the"), "{said}");
    // Each program mode is compared with routing over the combinations measured for both.
    let said = text(&run, "effect-relay");
    for mode in ["translate", "encrypt"] {
        assert!(said.contains(&format!("at relay {mode};")), "{said}");
    }
    assert_eq!(said.matches("the median rose ").count(), 2, "{said}");
    assert_eq!(text(&run, "effect-topology.link.rate").matches("link rate").count(), 3);
}

#[test]
fn findings_never_merge_modes() {
    let run = relays(PI_ZERO);
    assert!(text(&run, "delay").ends_with("packets arrived."), "{}", text(&run, "delay"));
    let held = "Fixed: link rate none, size 700B (Miya 2020: 1000 B), rate 200pps, load none";
    assert!(text(&run, "node-delay").contains(held), "{}", text(&run, "node-delay"));
    let said = text(&run, "processing");
    assert!(said.contains(held) && said.contains("at translate and"), "{said}");
    // 0.5 ms plus 2.5 us for each of 700 bytes.
    assert!(said.contains("at encrypt") && said.contains("2.2"), "{said}");
}

#[test]
fn equal_mode_is_about_the_same() {
    let mut run = relays_repeated(PI_ZERO, 3);
    run.trials.retain(|trial| trial.parameters["rate"] == "200pps");
    let alike: Vec<TrialData> = run
        .trials
        .iter()
        .filter(|trial| trial.parameters["relay"] == "route")
        .map(|trial| {
            let mut made = trial.clone();
            made.parameters.insert("relay".to_owned(), "encrypt".to_owned());
            made
        })
        .collect();
    run.trials.retain(|trial| trial.parameters["relay"] != "encrypt");
    run.trials.extend(alike);
    let said = text(&run, "effect-relay");
    assert!(said.contains("relay translate;"), "{said}");
    let same = "The median node delay is about the same at relay route and relay encrypt";
    assert!(said.contains(same), "{said}");
}

#[test]
fn send_path_note_depends_on_link_rate() {
    let whole = relays(PI_ZERO);
    let far = "it includes the receive path of the far end";
    let [bare, rated] = ["none", "65Mbit/s"]
        .map(|rate| text(&whole.only("topology.link.rate", rate), "processing"));
    assert!(bare.contains(far) && !rated.contains(far), "{bare} {rated}");
    assert!(rated.ends_with("kernel's send path, not processing."), "{rated}");
}

#[test]
fn uncertain_slope_gives_no_encryption_model() {
    let steep = text(&relays(PI_ZERO), "fit-encrypt");
    assert!(steep.contains(" ns x bytes (slope "), "{steep}");
    let flat = text(&relays(Relay { per_byte_ns: 0.0, ..PI_ZERO }), "fit-encrypt");
    assert!(flat.contains("cannot tell whether size changes"), "{flat}");
    assert!(!flat.contains("x bytes"), "{flat}");
}

#[test]
fn mode_losses_use_common_combinations() {
    let run = relays(PI_ZERO);
    let all = figures(&run);
    let figure = all.iter().find(|figure| figure.id == "loss-relay").unwrap();
    assert!(figure.finding.contains("every mode was measured"), "{}", figure.finding);
    assert!(figure.finding.contains("rate 200pps; load none and most."), "{}", figure.finding);
    // 12 of 18 combinations of a mode remain: 200 packets/s, three sizes, two loads, two links.
    let sent: Vec<&str> = figure.table.rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(sent, ["3,600", "3,600", "3,672"], "{:?}", figure.table);
}

#[test]
fn bar_and_nlr_are_of_one_trial() {
    let mut run = relays_repeated(PI_ZERO, 3);
    // The medians of node delay, link delay and ratio belong to three different trials.
    for trial in &mut run.trials {
        let (node, links) = [(3.0, 4.0), (1.0, 1.0), (2.0, 0.5)][trial.repetition as usize - 1];
        for metric in ["node_delay_ns", "node_delay_netfilter_ns"] {
            scale(trial, metric, node);
        }
        scale(trial, "link_delay_ns", links);
        // Components that no other figure draws have a summary but no distribution.
        trial.series.retain(|metric, _| !["link_in_ns", "link_out_ns"].contains(&metric.as_str()));
    }
    let all = figures(&run);
    let figure = all.iter().find(|figure| figure.id == "end-to-end").unwrap();
    let column =
        |words: &str| figure.table.columns.iter().position(|name| name.starts_with(words)).unwrap();
    let [node, links, nlr] = ["node as", "both links", "node over links"].map(column);
    assert_eq!(figure.table.rows.len(), 9);
    assert!(figure.table.columns[1].starts_with("link to the node"), "{:?}", figure.table.columns);
    for row in &figure.table.rows {
        let number = |text: &str| text.replace([',', '%', ' '], "").parse::<f64>().unwrap();
        let ratio = number(&row[node]) / number(&row[links]);
        assert!((ratio / (number(&row[nlr]) / 100.0) - 1.0).abs() < 0.03, "{row:?}");
    }
    // Links end at sockets if a program relays, and at netfilter's hooks if the kernel routes.
    let said = &figure.finding;
    assert!(said.contains("netfilter's hooks (route) and node delay (translate and enc"), "{said}");
}

fn scale(trial: &mut TrialData, metric: &str, factor: f64) {
    let scaled = |ns: i64| (ns as f64 * factor) as i64;
    for step in trial.series.get_mut(metric).into_iter().flat_map(|series| &mut series.steps) {
        step.value_ns = scaled(step.value_ns);
    }
    if let Some(figures) = trial.summary.as_mut().unwrap().metrics.get_mut(metric) {
        figures.p95 = figures.p95.map(scaled);
    }
}

#[test]
fn figure_titles_name_the_mode() {
    let all = figures(&relays(PI_ZERO));
    let picture = |id: &str| {
        let figure = all.iter().find(|figure| figure.id == id).unwrap();
        let text = &figure.spec["title"]["text"];
        let lines = text.as_array().map(|lines| lines.iter().filter_map(|line| line.as_str()));
        lines.map_or_else(
            || text.as_str().unwrap().to_owned(),
            |lines| lines.collect::<Vec<_>>().join(" | "),
        )
    };
    for mode in ["route", "translate", "encrypt"] {
        let said = picture(&format!("fit-size-{mode}"));
        assert!(said.contains(&format!("against size, relay {mode} | run ")), "{said}");
    }
    assert!(picture("ecdf").contains(", by relay mode | run "), "{}", picture("ecdf"));
}

#[test]
fn link_rate_axis_comes_last() {
    let all = figures(&relays(PI_ZERO));
    let order: Vec<&str> =
        all.iter().map(|figure| figure.id.as_str()).filter(|id| id.starts_with("p95-")).collect();
    assert_eq!(order, ["p95-size", "p95-rate", "p95-load", "p95-topology-link-rate"]);
    // A load has its requested and its achieved level.
    let load = all.iter().find(|figure| figure.id == "p95-load").unwrap();
    assert!(load.spec.to_string().contains("most (90 % requested, 89 % achieved)"));
}

#[test]
fn node_table_has_engines_timestamps_and_quotas() {
    let mut run = relays(PI_ZERO);
    for trial in &mut run.trials {
        let path = trial.summary.as_mut().unwrap();
        let routed = trial.parameters["relay"] == "route";
        let hooks = if routed { ["rx_driver", "tx_tcx"] } else { ["rx_kernel", "tx_kernel"] };
        path.engine = if routed { "kernel" } else { "socket" }.to_owned();
        path.parameters.insert("node_points".to_owned(), hooks.as_slice().into());
        path.parameters.insert("relay_node".to_owned(), "n2".into());
        let burnt = 0.18 + 0.02 * f64::from(trial.trial % 2);
        for (name, ratio) in [("asked", 0.2), ("burnt", burnt)] {
            path.values.insert(format!("quota_n2_{name}_ratio"), Some(Scalar::Real(ratio)));
        }
        if !routed {
            let mut relay = path.clone();
            let ciphers = trial.parameters["relay"] == "encrypt";
            let aes = if ciphers { "; AES: aes-ni" } else { "" };
            relay.engine = format!("socket, blocking{aes}");
            let added = if ciphers { 12 } else { 0 };
            relay.values = [("nonce_bytes".to_owned(), Some(Scalar::Count(added)))].into();
            trial.machines.push(MachineData { node: "n2".to_owned(), summary: relay });
        }
    }
    let table = dwell_report::machines(&run);
    let rows: Vec<String> = table.rows.iter().map(|row| row.join("|")).collect();
    let expected = [
        "n2|routes|kernel|-|-|rx_driver to tx_tcx|20 %|18 % to 20 %|route|36",
        "n2|relays|socket, blocking|-|0|rx_kernel to tx_kernel|20 %|18 % to 20 %|translate|36",
        "n2|relays|socket, blocking|aes-ni|12|rx_kernel to tx_kernel|20 %|18 % to 20 %|encrypt|36",
    ];
    assert_eq!(rows, expected);
    assert!(dwell_report::page(&run).contains("Nodes of the relay path"));
    // Authentication tags make packets longer.
    for trial in run.trials.iter_mut().filter(|trial| trial.parameters["relay"] == "encrypt") {
        let values = &mut trial.machines[0].summary.values;
        values.insert("tag_bytes".to_owned(), Some(Scalar::Count(16)));
    }
    let table = dwell_report::machines(&run);
    assert!(table.rows[2].join("|").contains("|aes-ni|28|"), "{:?}", table.rows[2]);
    // Without quotas, and with equal cells in both modes.
    for trial in &mut run.trials {
        trial.summary.as_mut().unwrap().values.clear();
        trial.machines.iter_mut().for_each(|it| it.summary.engine = "batch".to_owned());
        trial.machines.iter_mut().for_each(|it| it.summary.values.clear());
    }
    let table = dwell_report::machines(&run);
    assert_eq!(table.columns, ["node", "does", "engine", "stamps", "modes", "trials"]);
    let row = ["n2", "relays", "batch", "rx_kernel to tx_kernel", "translate, encrypt", "72"];
    assert_eq!(table.rows[1], row);
    assert!(dwell_report::machines(&synthetic::loads()).rows.is_empty(), "a ping has no relay");
}
