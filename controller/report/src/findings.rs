//! What a run says, in sentences: the same ones for the terminal and for the page.

use dwell_stats::Quantile;
use serde::Serialize;

use crate::data::{Axis, RunData, TrialState};
use crate::figures::{Subject, capital};
use crate::group::{self, Group};
use crate::host;
use crate::quantity::{compared, count, delay_ns, listed, share, things};
use crate::shift::{self, Shift};
use crate::trust;

/// A sentence or two about one matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about: `delay`, `effect-<axis>`, `loss`, `failed`, `trust` ...
    pub id: String,
    /// Plain words, no markup.
    pub text: String,
}

/// What the run says, the most important first. Never empty.
pub fn findings(run: &RunData) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |id: String, text: String| findings.push(Finding { id, text });
    match Subject::of(run) {
        Some(subject) => {
            say("delay".into(), delays(&subject));
            for axis in &run.axes {
                let groups = group::comparable(run, subject.metric, axis);
                if groups.len() > 1 {
                    say(format!("effect-{}", axis.name), effect(axis, subject.noun, &groups));
                }
            }
        }
        None => say("delay".into(), nothing(run)),
    }
    if let Some(text) = losses(run) {
        say("loss".into(), text);
    }
    if let Some(text) = host::stands_out(run) {
        say("host".into(), text);
    }
    if let Some(text) = failures(run) {
        say("failed".into(), text);
    }
    say("trust".into(), trust::in_words(run));
    findings
}

/// How a parameter changes the median and the 99th percentile: the value that lies farthest from
/// the first one of the plan, for each.
pub(crate) fn effect(axis: &Axis, noun: &str, groups: &[Group]) -> String {
    let groups: Vec<Group> = groups.iter().filter(|g| g.steps.count() > 0).cloned().collect();
    let name = &axis.name;
    let Some(first) = groups.first() else { return format!("Nothing was measured over {name}.") };
    let said = |ppm: u32, what: &str| {
        let (far, shift) = shift::farthest(&groups, ppm)?;
        let Shift::Differs { from, to } = shift else { return None };
        let verb = if to > from { "rose" } else { "fell" };
        let ratio =
            compared(from as f64, to as f64).map_or(String::new(), |ratio| format!(" ({ratio})"));
        let (from, to) = (delay_ns(from), delay_ns(to));
        Some(format!(
            "{what} {verb} from {from} at {} to {to} at {}{ratio}",
            first.label, far.label
        ))
    };
    let parts: Vec<String> =
        [said(500_000, "the median"), said(990_000, "the 99th percentile (p99)")]
            .into_iter()
            .flatten()
            .collect();
    if !parts.is_empty() {
        return format!("{}: {}.", capital(noun), listed(&parts));
    }
    let same =
        groups.iter().skip(1).all(|group| Shift::between(first, group, 500_000) == Shift::Same);
    if same {
        format!(
            "The median {noun} is about the same for every value of {name} measured (within 5 %)."
        )
    } else {
        format!(
            "Cannot tell whether {name} changes the {noun}: the samples are too few, or repetitions differ as much as the values do."
        )
    }
}

fn delays(subject: &Subject) -> String {
    let all = Group::new(String::new(), group::finished(subject.run).collect(), subject.metric);
    let steps = &all.steps;
    let n = steps.count();
    let mut text = match all.packets() {
        Some(packets) if packets.sent > 0 => format!(
            "{} of {} were answered in time.",
            count(packets.received),
            things(packets.sent, "probe")
        ),
        _ => format!("{} were measured.", things(n, "sample")),
    };
    let noun = capital(subject.noun);
    let max = steps.max().map(delay_ns).unwrap_or_default();
    let min = steps.min().map(delay_ns).unwrap_or_default();
    text += &match (steps.quantile(Quantile::P50), steps.quantile(Quantile::P99)) {
        (Some(p50), Some(p99)) => format!(
            " {noun}: half of them took at most {} (the median), 99 of 100 at most {}; the shortest took {min}, the longest {max}.",
            delay_ns(p50),
            delay_ns(p99)
        ),
        (Some(p50), None) => format!(
            " {noun}: half of them took at most {} (the median), the longest {max}; fewer than 100 samples cannot tell how slow the slowest 1 % are.",
            delay_ns(p50)
        ),
        _ => format!(" {noun}: {min} to {max}; too few samples to say more."),
    };
    if subject.cells.len() > 1 {
        text += &format!(
            " That is over all {} combinations of parameters together.",
            subject.cells.len()
        );
    }
    text
}

fn nothing(run: &RunData) -> String {
    let all = Group::new(String::new(), group::finished(run).collect(), "");
    match all.packets() {
        _ if run.trials.is_empty() => "This run has no trials.".to_owned(),
        Some(packets) if packets.sent > 0 && packets.received == 0 => {
            format!(
                "No reply came to any of {}: there is no delay to report.",
                things(packets.sent, "probe")
            )
        }
        _ => "No delay was measured.".to_owned(),
    }
}

fn losses(run: &RunData) -> Option<String> {
    let all = Group::new(String::new(), group::finished(run).collect(), "");
    let packets = all.packets().filter(|packets| packets.sent > 0)?;
    let gone = packets.lost.saturating_add(packets.late);
    if gone == 0 {
        return Some(format!("None of {} was lost or late.", things(packets.sent, "probe")));
    }
    let mut text = format!(
        "{} of {} got no reply in time ({}): {} lost, {} late.",
        count(gone),
        things(packets.sent, "probe"),
        share(gone as f64 / packets.sent as f64),
        count(packets.lost),
        count(packets.late)
    );
    let gone = |group: &Group| group.packets().map_or(0, |p| p.lost.saturating_add(p.late));
    let cells = group::cells(run, "");
    let worst = cells.iter().max_by_key(|cell| gone(cell)).filter(|_| cells.len() > 1);
    if let Some(worst) = worst {
        let (lost, sent) = (gone(worst), worst.packets().map_or(0, |packets| packets.sent));
        text += &format!(" Most of them at {}: {} of {}.", worst.label, count(lost), count(sent));
    }
    Some(text)
}

fn failures(run: &RunData) -> Option<String> {
    let failed: Vec<_> =
        run.trials.iter().filter(|trial| trial.state == TrialState::Failed).collect();
    let open = run
        .trials
        .iter()
        .filter(|trial| matches!(trial.state, TrialState::Planned | TrialState::Running));
    let open = open.count() as u64;
    let mut parts = Vec::new();
    if let Some(first) = failed.first() {
        let reason = first.reason.as_deref().unwrap_or("no reason is known");
        let total = things(run.trials.len() as u64, "trial");
        parts.push(format!("{} of {total} failed; trial {}: {reason}.", failed.len(), first.trial));
    }
    if open > 0 {
        parts.push(format!("{} not measured yet: the run is not complete.", things(open, "trial")));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}
