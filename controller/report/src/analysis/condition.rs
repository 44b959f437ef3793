//! Fixed parameters of figures over relay modes: the published condition, or the nearest one
//! measured.
//!
//! Modes measured at different sizes, rates or loads must not be merged. So a figure varies one
//! parameter, and fixes each other one at a level that it names.

use std::collections::BTreeSet;

use crate::model::axes::{LINK_RATE, RELAY, axis_words};
use crate::model::{Axis, PublishedLevel, RunData, TrialData};

/// Value of the axis of link rates for links without one.
const NO_LINK_RATE: &str = "none";

/// Links that a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links without a rate, for figures about the node.
    Unlimited,
    /// Links with a rate, for figures about the whole path.
    Rated,
}

/// One level of each parameter except the relay mode.
#[derive(Clone, Debug)]
pub(crate) struct Condition<'a> {
    fixed: Vec<FixedLevel<'a>>,
}

#[derive(Clone, Debug)]
struct FixedLevel<'a> {
    axis: &'a str,
    value: &'a str,
    /// Published level, if it differs.
    instead_of: Option<&'a PublishedLevel>,
}

impl<'a> Condition<'a> {
    /// Chooses the levels nearest to the published ones at which all modes were measured, else
    /// those at which any mode was. Other parameters are fixed at the first level of the plan.
    pub(crate) fn of(run: &'a RunData, metric: &str, links: Links) -> Self {
        let has = |trial: &&TrialData| {
            trial.series.get(metric).is_some_and(|s| s.steps.iter().any(|step| step.count > 0))
        };
        let mut left: Vec<&TrialData> = run.finished_trials().filter(has).collect();
        let mut fixed = Vec::new();
        for axis in run.axes.iter().filter(|axis| axis.name != RELAY) {
            let Some((value, instead_of)) = level(run, axis, links, &left) else { continue };
            left.retain(|trial| trial.is_at(&axis.name, value));
            fixed.push(FixedLevel { axis: &axis.name, value, instead_of });
        }
        Self { fixed }
    }

    /// The condition without some axes.
    pub(crate) fn without(&self, axes: &[&str]) -> Self {
        let fixed = self.fixed.iter().filter(|fixed| !axes.contains(&fixed.axis));
        Self { fixed: fixed.cloned().collect() }
    }

    /// Axes with their levels.
    pub(crate) fn levels(&self) -> Vec<(&'a str, &'a str)> {
        self.fixed.iter().map(|fixed| (fixed.axis, fixed.value)).collect()
    }

    /// Level of one axis.
    pub(crate) fn level(&self, axis: &str) -> Option<&'a str> {
        self.fixed.iter().find(|fixed| fixed.axis == axis).map(|fixed| fixed.value)
    }

    /// Whether a trial was measured at this condition.
    pub(crate) fn holds(&self, trial: &TrialData) -> bool {
        self.fixed.iter().all(|fixed| trial.is_at(fixed.axis, fixed.value))
    }

    /// Text of the condition: `size 700B (Miya 2020: 1000 B), rate 200pps, load none`; `None` if
    /// nothing is fixed.
    pub(crate) fn words(&self) -> Option<String> {
        let one = |fixed: &FixedLevel| {
            let instead = |level: &PublishedLevel| format!(" ({}: {})", level.cite, level.text);
            let instead = fixed.instead_of.map_or_else(String::new, instead);
            format!("{} {}{instead}", axis_words(fixed.axis), fixed.value)
        };
        let all: Vec<String> = self.fixed.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Level at which to fix an axis, and the published one if it differs.
fn level<'a>(
    run: &'a RunData,
    axis: &'a Axis,
    links: Links,
    left: &[&TrialData],
) -> Option<(&'a str, Option<&'a PublishedLevel>)> {
    let measured = |value: &String| {
        let at = left.iter().filter(|trial| trial.is_at(&axis.name, value));
        at.map(|trial| trial.parameters.get(RELAY)).collect::<BTreeSet<_>>().len()
    };
    let most = axis.values.iter().map(measured).max().filter(|most| *most > 0)?;
    let enough = run.modes().len().clamp(1, most);
    let places = || (0..axis.values.len()).filter(|n| measured(&axis.values[*n]) >= enough);
    let published = run.published.levels.iter().find(|level| level.axis == axis.name);
    let place = if let (Some(level), Some(numbers)) = (published, &axis.numbers) {
        let away =
            |n: &usize| numbers.get(*n).map_or(f64::MAX, |number| (number - level.value).abs());
        places().min_by(|a, b| away(a).total_cmp(&away(b)))
    } else if axis.name == LINK_RATE && links == Links::Rated {
        places().find(|n| axis.values[*n] != NO_LINK_RATE)
    } else {
        places().find(|n| axis.values[*n] == NO_LINK_RATE)
    };
    let place = place.or_else(|| places().next())?;
    let measured = axis.numbers.as_ref().and_then(|numbers| numbers.get(place));
    Some((axis.values[place].as_str(), published.filter(|level| measured != Some(&level.value))))
}
