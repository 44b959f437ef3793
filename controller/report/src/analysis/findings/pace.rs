//! Findings of a run that measures send-time accuracy: verdicts on senders, and the cross traffic.

use dwell_record::Summary;
use dwell_units::BitRate;

use super::finding::Finding;
use crate::analysis::paced::{paced, verdict_words};
use crate::model::RunData;
use crate::model::quantity::{count_noun, share, significant};

/// Returns the verdict lines and the achieved cross traffic.
pub(super) fn pace_findings(run: &RunData) -> Vec<Finding> {
    let finding = |id: &str, text: String| Finding { id: id.to_owned(), text };
    // The verdict under cross traffic is a sentence of its own.
    let sentences = |line: String| format!("{}.", line.replacen("; under ", ". Under ", 1));
    let verdicts = verdict_words(run).into_iter();
    let mut findings: Vec<Finding> =
        verdicts.map(|line| finding("verdict", sentences(line))).collect();
    if findings.is_empty() {
        findings.push(finding("verdict", nothing(run)));
    }
    findings.extend(cross(run).map(|text| finding("cross", text)));
    findings
}

fn nothing(run: &RunData) -> String {
    let measured = run.finished_trials().count() as u64;
    let all = paced(run);
    match all.iter().all(|paced| paced.pairs) {
        true if measured > 0 => format!(
            "{} of packet pairs: gaps are in figures and tables; verdicts on rates need trains.",
            count_noun(measured, "trial")
        ),
        _ => "Nothing was measured.".to_owned(),
    }
}

/// Achieved cross traffic as a share of the requested rate.
fn cross(run: &RunData) -> Option<String> {
    let mut least: Option<(f64, u64, f64)> = None;
    let mut most = 0;
    for load in run.finished_trials().flat_map(|trial| &trial.loads) {
        let Some((flows, asked, reached)) = reached(load) else { continue };
        most = most.max(flows);
        let ratio = reached / asked;
        if least.is_none_or(|(other, ..)| ratio < other) {
            least = Some((ratio, flows, reached));
        }
    }
    let (ratio, flows, reached) = least?;
    let rate = BitRate(significant(reached, 3) as u64);
    Some(format!(
        "Cross traffic of up to {} reached at least {} of the requested rate ({rate} with {}).",
        count_noun(most, "flow"),
        share(ratio),
        count_noun(flows, "flow")
    ))
}

/// Flows, requested rate and achieved rate of a traffic load.
fn reached(load: &Summary) -> Option<(u64, f64, f64)> {
    let flows = load.parameters.get("flows")?.as_u64()?;
    let asked = load.number("rate_bps").filter(|bps| *bps > 0.0)?;
    let reached = load.value("rate_bps")?;
    Some((flows, asked, reached))
}
