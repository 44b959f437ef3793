//! Figures of a run over relay modes, as in Miya 2020. Modes are the series or panels of each
//! figure; parameters that it does not vary are fixed at the condition of the paper, or the nearest
//! measured.

use dwell_stats::Quantile;

use super::boxes::boxes;
use super::cumulative::{ccdf, ecdf};
use super::histogram::histogram;
use super::overlay::Overlay;
use super::percentiles::percentiles;
use super::{
    breakdown, drift, end_to_end, fit, heat, host, jitter, loss, p95_by_parameter, timeline,
    waterfall,
};
use crate::analysis::condition::{Condition, Links};
use crate::analysis::group::Group;
use crate::analysis::subject::Subject;
use crate::figures::figure::{Figure, slug};
use crate::model::axes::{LINK_RATE, RELAY, axis_words};
use crate::model::quantity::delay;
use crate::model::{Axis, RunData};

/// Returns the figures, the most informative first.
pub(super) fn relays(subject: &Subject) -> Vec<Figure> {
    let (run, metric) = (subject.run, subject.metric);
    let condition = Condition::of(run, metric, Links::Unlimited);
    let mut figures = Vec::new();
    for axis in varied(run) {
        figures.extend(p95_by_parameter::p95_by_parameter(subject, axis));
    }
    figures.extend(end_to_end::end_to_end(subject));
    figures.extend(breakdown::breakdown(subject));
    figures.extend(waterfall::waterfall(subject));
    figures.extend(at_one_condition(subject, &condition));
    figures.extend(host::host(subject));
    for axis in varied(run).filter(|axis| axis.numbers.is_none()) {
        figures.extend(by_level(subject, &condition, axis));
    }
    for mode in run.modes() {
        figures.extend(of_mode(subject, &condition, mode));
    }
    figures.extend(drift::drift(subject));
    figures
}

/// Varied axes except the modes, with the link rate last, which the paper did not vary.
fn varied(run: &RunData) -> impl Iterator<Item = &Axis> {
    let several = |axis: &&Axis| axis.name != RELAY && axis.values.len() > 1;
    let (links, others): (Vec<&Axis>, Vec<&Axis>) =
        run.axes.iter().filter(several).partition(|axis| axis.name == LINK_RATE);
    others.into_iter().chain(links)
}

/// Timelines (Fig 4) and distributions (Fig 7) of the modes.
fn at_one_condition(subject: &Subject, condition: &Condition) -> Vec<Figure> {
    let part = subject.run.at(&condition.levels());
    let mut figures = Vec::new();
    let Some(here) = Subject::about(&part, subject.metric) else { return figures };
    let mut said = Vec::new();
    if let Some(words) = condition.words() {
        said.push(format!("Fixed: {words}."));
    }
    let has = |mode: &&String| !here.cells.iter().any(|cell| cell.label == label(mode));
    let absent: Vec<String> = subject.run.modes().iter().filter(has).cloned().collect();
    if !absent.is_empty() {
        said.push(format!("Not measured there: {}.", absent.join(", ")));
    }
    let note = said.join(" ");
    let overlay = Overlay {
        noun: here.noun,
        unit: here.unit,
        caption: &here.caption,
        groups: &here.cells,
        note: (!note.is_empty()).then_some(note.as_str()),
    };
    figures.extend(ecdf(&overlay));
    figures.extend(timeline::timeline(&here).map(|figure| {
        let finding = overlay.noted(figure.finding.clone());
        figure.with_finding(finding)
    }));
    let title = here.title();
    figures.extend(boxes(&overlay, format!("boxes-{RELAY}"), title, medians(&here.cells)));
    figures.extend(ccdf(&overlay));
    figures.extend(percentiles(&overlay));
    figures.extend(histogram(&overlay));
    let by_mode = |figure: Figure| {
        let title = format!("{}, by relay mode", figure.title);
        figure.with_title(title)
    };
    figures.into_iter().map(by_mode).collect()
}

/// Median of each group, without a verdict.
fn medians(groups: &[Group]) -> String {
    let median = |group: &Group| {
        let median = group.quantile(Quantile::P50)?;
        Some(format!("{} ({})", delay(median), group.label))
    };
    let all: Vec<String> = groups.iter().filter_map(median).collect();
    format!("Medians: {}.", all.join(", "))
}

/// Label of a cell with only a mode.
fn label(mode: &str) -> String {
    format!("{RELAY} {mode}")
}

/// One box per mode and level of a non-numeric parameter, such as a load.
fn by_level(subject: &Subject, condition: &Condition, axis: &Axis) -> Option<Figure> {
    let held = condition.without(&[&axis.name]);
    let part = subject.run.at(&held.levels());
    let here = Subject::about(&part, subject.metric)?;
    let mut groups = Vec::new();
    for mode in subject.run.modes() {
        for value in &axis.values {
            let trials = subject.run.finished_trials().filter(|trial| {
                held.holds(trial) && trial.is_at(RELAY, mode) && trial.is_at(&axis.name, value)
            });
            let label = format!("{mode}, {} {value}", axis_words(&axis.name));
            groups.push(Group::new(label, trials.collect(), subject.metric));
        }
    }
    groups.retain(|group| group.steps.count() > 0);
    let name = axis_words(&axis.name);
    let note = held.words().map(|words| format!("Fixed: {words}."));
    let overlay = Overlay {
        noun: here.noun,
        unit: here.unit,
        caption: &here.caption,
        groups: &groups,
        note: note.as_deref(),
    };
    let finding = medians(&groups);
    let title = format!("{} by mode and {name}", here.title());
    boxes(&overlay, format!("boxes-{}", slug(&axis.name)), title, finding)
}

/// Figures of one mode: jitter and loss against size (Fig 5), linear fit against size (S0.16), and
/// heat map.
fn of_mode(subject: &Subject, condition: &Condition, mode: &str) -> Vec<Figure> {
    let of = |condition: &Condition| {
        let mut levels = condition.levels();
        levels.push((RELAY, mode));
        subject.run.at(&levels)
    };
    let mut figures = Vec::new();
    let mut add = |part: &RunData, held: &Condition, draw: &Draw| {
        let Some(here) = Subject::about(part, subject.metric) else { return };
        let size = part.axis("size");
        let Some(mut figure) = size.and_then(|size| draw(&here, size)) else { return };
        figure.id = format!("{}-{}", figure.id, slug(mode));
        if let Some(words) = held.words() {
            figure.finding += &format!(" Fixed: {words}.");
        }
        let title = format!("{}, relay {mode}", figure.title);
        figures.push(figure.with_title(title));
    };
    let at_one = condition.without(&["size"]);
    let part = of(&at_one);
    add(&part, &at_one, &|here, size| jitter::jitter(here, size));
    let numbers = condition.without(&["size", "rate"]);
    let part = of(&numbers);
    add(&part, &numbers, &|here, size| fit::fit(here, size));
    add(&part, &numbers, &|here, size| {
        let mut figure = loss::loss(here.run, size)?;
        if here.run.axes.iter().any(|axis| axis.name == "rate" && axis.values.len() > 1) {
            figure.finding += " All rates are merged.";
        }
        Some(figure)
    });
    add(&part, &numbers, &|here, _| heat::heat(here));
    figures
}

type Draw<'d> = dyn Fn(&Subject, &Axis) -> Option<Figure> + 'd;
