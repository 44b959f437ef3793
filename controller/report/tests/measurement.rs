//! Description of the measurement in a report.

#[path = "synthetic/contended.rs"]
mod contended;
#[expect(dead_code, reason = "other test programs use the rest")]
mod synthetic;

use dwell_report::model::{RunData, RunPlan};
use dwell_report::{figures, findings, measurement_aspects, page};

const QUICK: &str = include_str!("../../../plans/quick.toml");
const RELAYS: &str = include_str!("../../../plans/relay-delay.toml");

fn planned(mut run: RunData, text: &str, settings: &[&str]) -> RunData {
    let settings = settings.iter().map(|text| (*text).to_owned()).collect();
    run.plan = Some(RunPlan::read(text.to_owned(), settings).into());
    run
}

fn quick(settings: &[&str]) -> RunData {
    let mut run = planned(synthetic::loads(), QUICK, settings);
    for trial in &mut run.trials {
        let parameters = &mut trial.summary.as_mut().unwrap().parameters;
        parameters.insert("mode".to_owned(), "closed-loop".into());
        parameters.insert("payload_bytes".to_owned(), 24.into());
    }
    run
}

/// Text under a name.
fn said(run: &RunData, name: &str) -> String {
    let all = measurement_aspects(run);
    let found = all.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {all:?}")).text.clone()
}

/// Text as escaped in a page.
fn escaped(text: &str) -> String {
    let signs = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    signs.into_iter().fold(text.to_owned(), |text, (sign, name)| text.replace(sign, name))
}

#[test]
fn page_describes_the_plan() {
    let run = contended::with_other_cpu_use(quick(&[]), 0.01);
    let what = said(&run, "What");
    assert!(what.contains("n1 sends a probe, n2 sends it back"), "{what}");
    assert!(what.contains("roundtrip, UDP"), "{what}");
    assert!(said(&run, "Packets").starts_with("24 bytes"), "{}", said(&run, "Packets"));
    let sending = said(&run, "Sending");
    assert!(sending.starts_with("Closed loop") && sending.contains("17,000 probes"), "{sending}");
    let network = said(&run, "Nodes and links");
    assert!(network.contains("2 nodes in a line") && network.contains("100 Mbit/s"), "{network}");
    let loads = said(&run, "Loads");
    for words in [
        "none: nothing ran beside the measurement",
        "network: 80 Mbit/s of UDP traffic from n1 to n2 in 4 flows",
        "cpu: CPU burners keep every CPU 100 % busy on n1",
    ] {
        assert!(loads.contains(words), "{words}: {loads}");
    }
    assert_eq!(said(&run, "Overrides"), "none");
    let html = page(&run);
    for one in measurement_aspects(&run) {
        assert!(html.contains(&escaped(&one.text)), "{one:?}");
    }
    assert!(html.contains(&escaped(QUICK)), "the page contains the plan");
}

#[test]
fn unloaded_trials_report_use_by_other_programs() {
    let loads = said(&contended::with_other_cpu_use(quick(&[]), 0.8), "Loads");
    let words = "none: no planned load; other programs used 80 % of the CPU time";
    assert!(loads.contains(words), "{loads}");
    assert!(!loads.contains("nothing ran"), "{loads}");
    let unknown = said(&quick(&[]), "Loads");
    assert!(
        unknown.contains("none: no planned load; CPU use of other programs unknown"),
        "{unknown}"
    );
}

#[test]
fn overrides_are_listed_and_applied() {
    let run = quick(&["topology.link.rate=10Mbit/s", "ping.count=100"]);
    assert!(said(&run, "Nodes and links").contains("10 Mbit/s"));
    assert!(said(&run, "Sending").contains("100 probes"));
    let settings = said(&run, "Overrides");
    assert_eq!(settings, "topology.link.rate=10Mbit/s and ping.count=100");
}

#[test]
fn flow_description_names_relay_and_axes() {
    let mut run = planned(synthetic::relays(synthetic::PI_ZERO), RELAYS, &[]);
    let what = said(&run, "What");
    assert!(what.contains("from n1 to n3, through n2, which routes"), "{what}");
    assert!(what.contains("encrypts (a program encrypts the payload)"), "{what}");
    assert_eq!(said(&run, "Packets"), "100 to 1,400 bytes of payload, IPv4");
    let sending = said(&run, "Sending");
    assert!(sending.contains("5 values from 100pps to 1200pps"), "{sending}");
    assert!(page(&run).contains("open loop, one way"));
    let network = said(&run, "Nodes and links");
    assert!(
        network.contains("bare in some trials and have a rate of 65Mbit/s in others"),
        "{network}"
    );
    run.axes.retain(|axis| axis.name != "topology.link.rate");
    assert!(said(&run, "Nodes and links").contains("Bare links"));
    let radios = quick(&["topology.lab=wifi:2", "topology.link={}"]);
    let network = said(&radios, "Nodes and links");
    assert!(
        network.contains("802.11 radios in ad hoc mode") && !network.contains("Bare"),
        "{network}"
    );
}

#[test]
fn imported_file_is_named() {
    let mut run = synthetic::loads();
    for trial in &mut run.trials {
        let summary = trial.summary.as_mut().unwrap();
        (summary.kind, summary.engine) = (dwell_record::Kind::Import, "irtt".to_owned());
    }
    let what = said(&run, "What");
    assert!(what.starts_with("Read from the file quick (format: irtt)"), "{what}");
    assert!(measurement_aspects(&synthetic::run("1", "nothing", None, Vec::new())).is_empty());
}

#[test]
fn unreadable_plan_is_shown() {
    let run = planned(synthetic::loads(), "version = 99", &[]);
    assert!(page(&run).contains("version = 99"));
}

#[test]
fn closed_loop_is_labelled() {
    let (closed, open) = (quick(&[]), planned(synthetic::loads(), QUICK, &[]));
    let delay = |run: &RunData| findings(run)[0].text.clone();
    assert!(delay(&closed).contains("Round-trip delay (closed loop):"), "{}", delay(&closed));
    assert!(!delay(&open).contains("closed loop"));
    let titles = |run: &RunData| -> Vec<String> {
        figures(run).iter().map(|figure| figure.spec["title"]["text"].to_string()).collect()
    };
    assert!(titles(&closed).iter().all(|title| title.contains(", closed loop")));
    assert!(!titles(&open).iter().any(|title| title.contains("closed loop")));
}
