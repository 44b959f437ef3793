//! Findings of a run in their order.

use dwell_stats::{Quantile, share_interval};

use super::finding::Finding;
use super::{pace, relay};
use crate::analysis::group::{self, Group};
use crate::analysis::host_correlation::correlation_finding;
use crate::analysis::packet_words::PacketWords;
use crate::analysis::subject::Subject;
use crate::analysis::{clock_bound, effect, measurement, paced, trust, witness};
use crate::model::quantity::{capital, count, count_noun, delay, delay_ns, share};
use crate::model::{RunData, TrialState};

/// Returns the findings, the most important first. Never empty.
pub fn findings(run: &RunData) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |id: String, text: String| findings.push(Finding { id, text });
    match Subject::of(run) {
        _ if paced::is_paced(run) => {
            pace::pace_findings(run).into_iter().for_each(|Finding { id, text }| say(id, text));
        }
        Some(subject) => {
            say("delay".into(), delays(&subject));
            relay::relays(run).into_iter().for_each(|Finding { id, text }| say(id, text));
            for effect in effect::effects(&subject) {
                say(format!("effect-{}", effect.axis), effect.text);
            }
        }
        None => say("delay".into(), nothing(run)),
    }
    if let Some(text) = run.claims.as_ref().and_then(|claims| claims.left_out.clone()) {
        say("stress".into(), text);
    }
    if let Some(text) = losses(run) {
        say("loss".into(), text);
    }
    if let Some(text) = correlation_finding(run) {
        say("host".into(), text);
    }
    if let Some(text) = witness::in_words(run) {
        say("witness".into(), text);
    }
    if let Some(text) = failures(run) {
        say("failed".into(), text);
    }
    if let Some(bound) = clock_bound::largest_bound(run) {
        let text = format!(
            "One-way delays between machines have an error of at most {bound}: their clocks differ."
        );
        say("clocks".into(), text);
    }
    say("trust".into(), trust::in_words(run));
    findings
}

fn delays(subject: &Subject) -> String {
    let all = Group::new(String::new(), subject.run.finished_trials().collect(), subject.metric);
    let steps = &all.steps;
    let n = steps.count();
    let words = PacketWords::of(subject.run);
    let mut text = match all.packets() {
        Some(packets) if packets.sent > 0 => format!(
            "{} of {} {}.",
            count(packets.received),
            count_noun(packets.sent, words.probe),
            words.received
        ),
        _ => format!("{} were measured.", count_noun(n, "sample")),
    };
    if !subject.run.modes().is_empty() {
        // A delay over all modes would describe none of them.
        return text;
    }
    let closed = measurement::mode(subject.run).filter(|mode| *mode == "closed loop");
    let closed = closed.map_or_else(String::new, |mode| format!(" ({mode})"));
    let noun = capital(subject.noun) + &closed;
    let max = steps.max().map(delay_ns).unwrap_or_default();
    let min = steps.min().map(delay_ns).unwrap_or_default();
    let mean = |quantile: Quantile| {
        let trials = count_noun(all.over_trials(quantile).count() as u64, "trial");
        all.mean(quantile).map(|mean| format!("{mean}s over {trials}"))
    };
    let bound = clock_bound::bound_of(subject.run, subject.metric)
        .map_or_else(String::new, |bound| format!(", each ± {bound} (clock error)"));
    text += &match (all.quantile(Quantile::P50), all.quantile(Quantile::P99)) {
        (Some(p50), Some(p99)) => format!(
            " {noun}: median {}, p99 {}{}, min {min}, max {max}{bound}.",
            delay(p50),
            delay(p99),
            match (mean(Quantile::P50), mean(Quantile::P99)) {
                (Some(p50), Some(p99)) if p50 == p99 => format!(" ({p50})"),
                (Some(p50), Some(p99)) => format!(" (median: {p50}; p99: {p99})"),
                (Some(p50), None) => format!(" (median: {p50}; p99: one trial)"),
                _ => String::new(),
            }
        ),
        (Some(p50), None) => format!(
            " {noun}: median {}{}, max {max}{bound}; p99 needs at least 100 samples.",
            delay(p50),
            mean(Quantile::P50).map_or_else(String::new, |mean| format!(" ({mean})"))
        ),
        _ => format!(" {noun}: {min} to {max}{bound}; too few samples for percentiles."),
    };
    if subject.cells.len() > 1 {
        text += &format!(" This covers all {} combinations of parameters.", subject.cells.len());
    }
    text
}

/// Why there is no delay to report.
fn nothing(run: &RunData) -> String {
    let all = Group::new(String::new(), run.finished_trials().collect(), "");
    match all.packets() {
        _ if run.trials.is_empty() => "This run has no trials.".to_owned(),
        Some(packets) if packets.sent > 0 && packets.received == 0 => {
            let words = PacketWords::of(run);
            format!(
                "None of {} {}: there is no delay to report.",
                count_noun(packets.sent, words.probe),
                words.none_received
            )
        }
        _ if run
            .summaries()
            .any(|summary| summary.metrics.values().any(|figures| figures.count > 0)) =>
        {
            "There are no delay samples; the file's own summary figures are in the table."
                .to_owned()
        }
        _ => "No delay was measured.".to_owned(),
    }
}

fn losses(run: &RunData) -> Option<String> {
    let all = Group::new(String::new(), run.finished_trials().collect(), "");
    let packets = all.packets().filter(|packets| packets.sent > 0)?;
    let words = PacketWords::of(run);
    let gone = packets.lost.saturating_add(packets.late);
    if gone == 0 && packets.received == 0 {
        // Nothing counted the received packets.
        return None;
    }
    if gone == 0 {
        let with_counts =
            all.trials.iter().filter_map(|trial| trial.summary.as_ref()?.packets).count();
        let sent = count_noun(packets.sent, words.probe);
        return Some(match all.trials.len() {
            all if with_counts < all => format!(
                "None of {sent} was lost or late in {with_counts} of {all} trials; the others have no \
                 receive counts."
            ),
            _ => format!("None of {sent} was lost or late."),
        });
    }
    let text = format!(
        "{} of {} {} ({}): {} lost, {} late.",
        count(gone),
        count_noun(packets.sent, words.probe),
        words.missing,
        share(gone as f64 / packets.sent as f64),
        count(packets.lost),
        count(packets.late)
    );
    Some(text + &where_most_were_lost(run, gone, packets.sent).unwrap_or_default())
}

/// Combination of parameters with the largest loss ratio, if it is significantly larger than that
/// of all others together. The combinations share the error probability of 5 % (Bonferroni).
fn where_most_were_lost(run: &RunData, gone: u64, sent: u64) -> Option<String> {
    let cells = group::cells(run, "");
    let confidence = 1.0 - 0.05 / cells.len().max(1) as f64;
    let counts = |cell: &Group| {
        let packets = cell.packets().filter(|packets| packets.sent > 0)?;
        Some((packets.lost.saturating_add(packets.late), packets.sent))
    };
    let ratio = |(gone, sent): (u64, u64)| gone as f64 / sent as f64;
    let counted = cells.iter().filter_map(|cell| Some((cell, counts(cell)?)));
    let (worst, (here, of)) = counted.max_by(|a, b| ratio(a.1).total_cmp(&ratio(b.1)))?;
    let elsewhere = share_interval(gone.checked_sub(here)?, sent.checked_sub(of)?, confidence)?;
    if share_interval(here, of, confidence)?.low <= elsewhere.high {
        return None;
    }
    let (label, of) = (&worst.label, count(of));
    Some(if here.saturating_mul(2) > gone {
        format!(" Most of them at {label}: {} of {of}.", count(here))
    } else {
        format!(" The largest share, {} of {of}, at {label}.", count(here))
    })
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
        let reason = first.reason.as_deref().unwrap_or("unknown reason");
        let total = count_noun(run.trials.len() as u64, "trial");
        parts.push(format!("{} of {total} failed. Trial {}: {reason}.", failed.len(), first.trial));
    }
    if open > 0 {
        parts.push(format!(
            "{} not measured yet: the run is not complete.",
            count_noun(open, "trial")
        ));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}
