//! Effect of a parameter on the delay as a sentence, as far as repetitions decide it. In a run over
//! relay modes, each mode has its own sentence.

use std::collections::BTreeSet;

use dwell_stats::Quantile;

use crate::analysis::group::{self, Group};
use crate::analysis::percentile_shift::{Change, Shift};
use crate::analysis::subject::Subject;
use crate::model::axes::{RELAY, axis_words};
use crate::model::quantity::{capital, compared, count_noun, delay, listed};
use crate::model::{Axis, RunData};

/// Quantiles with their names and their part of the run's error probability of 5 %; the rest is for
/// lines (`crate::analysis::fits`).
const EFFECT_QUANTILES: [(Quantile, &str, f64); 2] =
    [(Quantile::P50, "the median", 0.025), (Quantile::P99, "p99", 0.015)];

/// Describes how a parameter changes the median and p99: for each, the value that differs most from
/// the first one in the plan. For non-numeric values, also what is known of the others. Every value
/// is compared with the first over the combinations measured for both.
pub(crate) fn effect(subject: &Subject, axis: &Axis) -> String {
    effect_text(subject, axis, subject.run.axes.len()).whole(subject.run).0
}

/// Effect of a parameter on the delay.
pub(crate) struct Effect {
    /// Name of the parameter.
    pub(crate) axis: String,
    /// Sentences.
    pub(crate) text: String,
    /// Changes that repetitions decide.
    pub(crate) changes: Vec<EffectChange>,
}

/// A change of a percentile that repetitions decide.
pub(crate) struct EffectChange {
    /// Name of the delay.
    pub(crate) noun: String,
    /// Name of the percentile.
    pub(crate) percentile: &'static str,
    /// Labels of the first value of the parameter and of the one that differs most.
    pub(crate) labels: [String; 2],
    pub(crate) change: Change,
}

impl Effect {
    /// Size of the largest change; 0 without any.
    pub(crate) fn size(&self) -> f64 {
        self.changes.iter().map(|it| it.change.size()).fold(0.0, f64::max)
    }
}

/// Effects of the parameters that were measured at several values, the largest first.
pub(crate) fn effects(subject: &Subject) -> Vec<Effect> {
    let run = subject.run;
    let of_axis = |axis: &Axis| {
        let said = if run.modes().is_empty() {
            several(run, subject.metric, axis)
                .then(|| effect_text(subject, axis, run.axes.len()))?
        } else {
            by_mode(subject, axis)?
        };
        let (text, changes) = said.whole(run);
        Some(Effect { axis: axis.name.clone(), text, changes })
    };
    let mut effects: Vec<Effect> = run.axes.iter().filter_map(of_axis).collect();
    effects.sort_by(|a, b| b.size().total_cmp(&a.size()));
    effects
}

/// Sentences for each relay mode, because modes were measured at different levels and react
/// differently to a load. `None` if no mode was measured at two values.
fn by_mode(subject: &Subject, axis: &Axis) -> Option<EffectText> {
    let run = subject.run;
    let modes = run.modes();
    let among = run.axes.len().saturating_sub(1) * modes.len() + 1;
    if axis.name == RELAY {
        return several(run, subject.metric, axis).then(|| effect_text(subject, axis, among));
    }
    let of_mode = |(place, mode): (usize, &String)| {
        let part = run.only(RELAY, mode);
        // Only the first sentence names the timestamps.
        let noun = if place == 0 { subject.noun } else { short(subject.noun) };
        let noun = format!("{noun} of {mode}");
        let here = Subject { noun: &noun, ..Subject::about(&part, subject.metric)? };
        let axis = part.axis(&axis.name)?;
        several(&part, subject.metric, axis).then(|| effect_text(&here, axis, among))
    };
    let each: Vec<EffectText> = modes.iter().enumerate().filter_map(of_mode).collect();
    (!each.is_empty()).then(|| EffectText::joined(each))
}

/// Sentences, the kinds of means over trials in them, whether they have intervals, and the changes
/// that they report.
struct EffectText {
    text: String,
    means: BTreeSet<&'static str>,
    has_intervals: bool,
    changes: Vec<EffectChange>,
}

impl EffectText {
    fn joined(all: Vec<Self>) -> Self {
        let means = all.iter().flat_map(|said| said.means.iter().copied()).collect();
        let has_intervals = all.iter().any(|said| said.has_intervals);
        let texts: Vec<&str> = all.iter().map(|said| said.text.as_str()).collect();
        let text = texts.join(" ");
        let changes = all.into_iter().flat_map(|said| said.changes).collect();
        Self { text, means, has_intervals, changes }
    }

    /// The sentences, followed by the kind of mean and the confidence of the intervals.
    fn whole(self, run: &RunData) -> (String, Vec<EffectChange>) {
        let mut text = self.text;
        let means: Vec<&str> = self.means.into_iter().collect();
        if !means.is_empty() {
            text += &format!(" Each percentile is the {} over its trials.", means.join(" or "));
        }
        if self.has_intervals {
            text += &format!(" {}", simultaneous(run));
        }
        (text, self.changes)
    }
}

/// Sentence about the intervals of comparisons.
pub(crate) fn simultaneous(run: &RunData) -> String {
    format!(
        "Intervals: 95 % for all {} of the run together (Bonferroni).",
        count_noun(comparisons(run), "comparison")
    )
}

/// Number of comparisons that share the error probability of a run: of two percentiles, for each
/// value after the first of each axis, in each relay mode.
fn comparisons(run: &RunData) -> u64 {
    let modes = run.modes().len().max(1);
    let of = |axis: &Axis| {
        let values = axis.values.len().saturating_sub(1);
        if axis.name == RELAY { values } else { values * modes }
    };
    (EFFECT_QUANTILES.len() * run.axes.iter().map(of).sum::<usize>()) as u64
}

impl From<String> for EffectText {
    fn from(text: String) -> Self {
        Self { text, means: BTreeSet::new(), has_intervals: false, changes: Vec::new() }
    }
}

/// Whether the delay was measured at more than one value.
fn several(run: &RunData, metric: &str, axis: &Axis) -> bool {
    group::comparable(run, metric, axis).len() > 1
}

/// Name of a delay without its timestamps.
fn short(noun: &str) -> &str {
    const NODE: &str = "node delay";
    if noun.starts_with(NODE) { NODE } else { noun }
}

/// One of `among` sentences that share the run's error probability; for the axis of relay modes,
/// one sentence per mode.
fn effect_text(subject: &Subject, axis: &Axis, among: usize) -> EffectText {
    // Relay modes were measured at different levels. For any other axis, use the trials that its
    // figures draw.
    let groups = match axis.name.as_str() {
        RELAY => group::by_axis(subject.run, subject.metric, axis),
        _ => group::comparable(subject.run, subject.metric, axis),
    };
    let groups: Vec<&Group> =
        groups.iter().map(|(_, group)| group).filter(|group| group.steps.count() > 0).collect();
    let Some((first, others)) = groups.split_first() else {
        return format!("There are no samples over {}.", axis_words(&axis.name)).into();
    };
    if axis.name != RELAY {
        let mut said = sentence(subject.noun, axis, first, others, among);
        if !is_drawn_alike(first, others, axis) {
            said.text += &compared_with(first);
        }
        return said;
    }
    let among = among * others.len();
    let of_mode = |(place, other): (usize, &&Group)| {
        let noun = if place == 0 { subject.noun } else { short(subject.noun) };
        sentence(noun, axis, first, &[*other], among)
    };
    let mut all = EffectText::joined(others.iter().enumerate().map(of_mode).collect());
    if others.len() > 1 {
        all.text += &compared_with(first);
    }
    all
}

fn compared_with(first: &Group) -> String {
    format!(" Each is compared with {} over the combinations measured for both.", first.label)
}

/// Whether the medians of the sentence equal those of the groups, which figures draw.
fn is_drawn_alike(first: &Group, others: &[&Group], axis: &Axis) -> bool {
    others.iter().all(|other| {
        let used = Shift::between(first, other, Quantile::P50, Some(&axis.name), 0.05).ends();
        let drawn = first.quantile(Quantile::P50).zip(other.quantile(Quantile::P50));
        used.zip(drawn).is_none_or(|(used, drawn)| {
            let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
            is_near(used.0, drawn.0) && is_near(used.1, drawn.1)
        })
    })
}

fn sentence(noun: &str, axis: &Axis, first: &Group, others: &[&Group], among: usize) -> EffectText {
    let name = axis_words(&axis.name);
    let claims = (others.len() * among).max(1) as f64;
    let shifts = |(quantile, _, alpha): (Quantile, &str, f64)| -> Vec<(&Group, Shift)> {
        let to = |group: &&Group| {
            Shift::between(first, group, quantile, Some(&axis.name), alpha / claims)
        };
        others.iter().map(|group| (*group, to(group))).collect()
    };
    let found = EFFECT_QUANTILES.map(shifts);
    let (mut parts, mut named, mut means) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut changes = Vec::new();
    for ((_, called, _), shifts) in EFFECT_QUANTILES.iter().zip(&found) {
        let differ = shifts.iter().copied().filter(|(_, shift)| differs(*shift));
        let Some((far, Shift::Differs(change))) = farthest(differ) else { continue };
        let verb = if change.to > change.from { "rose" } else { "fell" };
        let percentile = called.trim_start_matches("the ");
        let subject = match parts.is_empty() {
            true => format!("{}: {called}", capital(noun)),
            false => format!("Its {percentile}"),
        };
        parts.push(format!(
            "{subject} {verb}{} ({} at {} -> {} at {}; {}).",
            change.ratio(),
            delay(change.from),
            first.label,
            delay(change.to),
            far.label,
            change.interval_text()
        ));
        changes.push(EffectChange {
            noun: noun.to_owned(),
            percentile,
            labels: [first.label.clone(), far.label.clone()],
            change,
        });
        named.push(far.label.as_str());
        means.insert(change.mean());
    }
    if !parts.is_empty() {
        // Values between two quantities need no mention.
        let names = axis.numbers.is_none();
        let rest = if names { rest(others, &named, &found) } else { String::new() };
        let text = parts.join(" ") + &rest;
        return EffectText { text, means, has_intervals: true, changes };
    }
    let [shifts, _] = found;
    if let ([(other, Shift::Same)], RELAY) = (shifts.as_slice(), axis.name.as_str()) {
        let (one, other) = (&first.label, &other.label);
        let text =
            format!("The median {noun} is about the same at {one} and {other} (within 5 %).");
        return text.into();
    }
    if shifts.iter().all(|(_, shift)| *shift == Shift::Same) {
        return format!(
            "The median {noun} is about the same for all values of {name} (within 5 %)."
        )
        .into();
    }
    let mut has_intervals = false;
    let text = match farthest(shifts) {
        Some((far, Shift::TooFew { from, to, repetitions, mean })) => {
            means.extend(mean);
            let times = if repetitions > 1 { "twice" } else { "once" };
            let ratio = compared(from, to).map_or_else(String::new, |ratio| format!(" ({ratio})"));
            format!(
                "Cannot tell whether {name} changes the {noun}: measured {times} each; 3 repetitions are needed. \
                 Median {} at {}, {} at {}{ratio}.",
                delay(from),
                first.label,
                delay(to),
                far.label
            )
        }
        Some((far, Shift::CannotTell(change))) => {
            means.insert(change.mean());
            has_intervals = true;
            format!(
                "Cannot tell whether {name} changes the {noun}: trials scatter too much. Median {} at {}, {} at {}; {}.",
                delay(change.from),
                first.label,
                delay(change.to),
                far.label,
                change.interval_text()
            )
        }
        _ => format!("Cannot tell whether {name} changes the {noun}: too few samples."),
    };
    EffectText { text, means, has_intervals, changes }
}

/// Verdicts on the values that the sentence does not name.
fn rest(others: &[&Group], named: &[&str], found: &[Vec<(&Group, Shift)>; 2]) -> String {
    let (mut differ, mut same, mut unsure) = (Vec::new(), Vec::new(), Vec::new());
    for (place, other) in others.iter().enumerate() {
        let mut shifts = found.iter().map(|shifts| shifts[place].1);
        let list = match () {
            () if named.contains(&other.label.as_str()) => continue,
            () if shifts.clone().any(differs) => &mut differ,
            () if shifts.all(|shift| shift == Shift::Same) => &mut same,
            () => &mut unsure,
        };
        list.push(other.label.clone());
    }
    let verdicts = [("also different", differ), ("about the same", same), ("cannot tell", unsure)];
    let given = verdicts.iter().filter(|(_, labels)| !labels.is_empty());
    let texts: Vec<_> =
        given.map(|(verdict, labels)| format!("{verdict} at {}", listed(labels))).collect();
    if texts.is_empty() { String::new() } else { format!(" {}.", capital(&texts.join("; "))) }
}

fn differs(shift: Shift) -> bool {
    matches!(shift, Shift::Differs(_))
}

fn farthest<'g, 'a>(
    shifts: impl IntoIterator<Item = (&'g Group<'a>, Shift)>,
) -> Option<(&'g Group<'a>, Shift)> {
    let farther = |far: (&'g Group<'a>, Shift), next: (&'g Group<'a>, Shift)| {
        if next.1.size() > far.1.size() { next } else { far }
    };
    shifts.into_iter().reduce(farther)
}
