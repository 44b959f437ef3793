//! Writes reports of synthetic runs to look at the page:
//! `cargo run -p dwell-report --example page -- DIRECTORY`.

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::PathBuf;

use dwell_report::model::RunPlan;
use dwell_report::{Finding, comparison_page, findings, page};

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    std::fs::create_dir_all(&directory)?;
    let (mut loads, sweep) = (synthetic::loads(), synthetic::sweep());
    let plan = |text: &str| Some(RunPlan::read(text.to_owned(), Vec::new()).into());
    loads.plan = plan(include_str!("../../../plans/quick.toml"));
    synthetic::add_witness(&mut loads);
    let mut relays = synthetic::relays(synthetic::PI_ZERO);
    relays.plan = plan(include_str!("../../../plans/relay-delay-short.toml"));
    synthetic::add_packets(&mut relays);
    let mut later = synthetic::loads();
    later.id = "20261122-1".to_owned();
    later.trials.iter_mut().flat_map(|t| t.series.values_mut()).for_each(|series| {
        series.steps.iter_mut().for_each(|step| step.value_ns += step.value_ns / 5);
    });
    let mut first_findings: Vec<Finding> = findings(&loads);
    first_findings.truncate(2);
    let pages = [
        ("loads.html", page(&loads)),
        ("sweep.html", page(&sweep)),
        ("relays.html", page(&relays)),
        ("empty.html", page(&synthetic::run("20261121-3", "nothing", None, Vec::new()))),
        ("comparison.html", comparison_page(&[loads, later], "rtt_ns", &first_findings)),
    ];
    for (name, html) in pages {
        let path = directory.join(name);
        std::fs::write(&path, &html)?;
        println!("{} {} bytes", path.display(), html.len());
    }
    for finding in findings(&sweep).iter().chain(&findings(&synthetic::loads())) {
        println!("- [{}] {}", finding.id, finding.text);
    }
    Ok(())
}
