//! Several runs in the same figures, on shared axes.

use dwell_stats::Quantile;

use crate::data::RunData;
use crate::figure::Figure;
use crate::figures::{Overlay, boxes, capital, ccdf, ecdf, histogram, percentiles};
use crate::group::{self, Group};
use crate::metric;
use crate::quantity::{Unit, delay};
use crate::shift::Shift;

/// Boxes of a comparison: more rows than this are not read.
const BOXES: usize = 36;

/// The probability that a figure says of any two runs of the same thing that they differ.
const DOUBT: f64 = 0.05;

/// Figures of the first delay that all runs measured; the first run is the baseline. All cells of
/// a run are one distribution, except in the figure that has a box per cell and run. Empty when
/// the runs have no delay in common.
pub fn comparison_figures(runs: &[RunData]) -> Vec<Figure> {
    let shared = |metric: &&str| runs.iter().all(|run| metric::has_samples(run, metric));
    let Some(metric) = runs.iter().filter_map(metric::main_metric).find(shared) else {
        return Vec::new();
    };
    let label = |(i, run): (usize, &RunData)| name(i, run);
    let labels: Vec<String> = runs.iter().enumerate().map(label).collect();
    let groups: Vec<Group> = runs
        .iter()
        .zip(&labels)
        .map(|(run, label)| Group::new(label.clone(), group::finished(run).collect(), metric))
        .filter(|group| group.steps.count() > 0)
        .collect();
    let shown = group::evenly(groups, group::OVERLAID);
    let middle = shown.iter().filter_map(|g| g.steps.at_rank(g.steps.count().div_ceil(2))).max();
    let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let caption = format!("runs {}, dwell {}", ids.join(", "), env!("CARGO_PKG_VERSION"));
    let note = (runs.len() > shown.len())
        .then(|| format!("Shown are {} of {} runs.", shown.len(), runs.len()));
    let overlay = Overlay {
        noun: metric::words(metric),
        unit: Unit::fitting(middle.unwrap_or_default() as f64),
        caption: &caption,
        groups: &shown,
        note: note.as_deref(),
    };
    let title = format!("{} by run", capital(overlay.noun));
    let mut figures: Vec<Figure> =
        boxes(&overlay, "boxes-run".into(), title, against_baseline(&shown)).into_iter().collect();
    figures.extend(by_cell(runs, metric, &overlay));
    figures.extend(ecdf(&overlay));
    figures.extend(ccdf(&overlay));
    figures.extend(percentiles(&overlay));
    figures.extend(histogram(&overlay));
    figures
}

/// What a run is called beside others: a letter and its id. Its name may be long; the heading of
/// its trust has it.
pub(crate) fn name(i: usize, run: &RunData) -> String {
    let letter = u8::try_from(i).ok().filter(|i| *i < 26).map(|i| char::from(b'A' + i));
    letter.map_or_else(|| run.id.clone(), |letter| format!("{letter}: {}", run.id))
}

/// One box per cell and run, where the cells of all runs are the same ones and more than one.
fn by_cell(runs: &[RunData], metric: &str, overlay: &Overlay) -> Option<Figure> {
    let cells: Vec<Vec<Group>> = runs.iter().map(|run| group::cells(run, metric)).collect();
    let first = cells.first()?;
    let labels = |cells: &[Group]| cells.iter().map(|cell| cell.label.clone()).collect::<Vec<_>>();
    let same = cells.iter().all(|of_run| labels(of_run) == labels(first));
    if !same || first.len() < 2 || first.len() * runs.len() > BOXES {
        return None;
    }
    let mut groups = Vec::new();
    let mut parts = Vec::new();
    let mut too_few = false;
    for i in 0..first.len() {
        for (j, of_run) in cells.iter().enumerate() {
            let letter =
                u8::try_from(j).map_or('?', |j| char::from(b'A'.saturating_add(j.min(25))));
            let mut group = of_run[i].clone();
            group.label = format!("{} ({letter})", group.label);
            groups.push(group);
        }
        let pair = &groups[groups.len() - runs.len()..];
        let doubt = DOUBT / (first.len() * (runs.len() - 1).max(1)) as f64;
        for group in pair.iter().skip(1) {
            match Shift::between(&pair[0], group, Quantile::P50, None, doubt) {
                Shift::Differs(_) => parts.push(against(&pair[0], group, doubt)),
                Shift::TooFew { .. } => too_few = true,
                _ => {}
            }
        }
    }
    groups.retain(|group| group.steps.count() > 0);
    let finding = if parts.is_empty() && too_few {
        "Fewer than three trials of each combination of parameters: differences are of these trials, not of the runs; cannot tell.".to_owned()
    } else if parts.is_empty() {
        "No combination of parameters differs by more than its repetitions do.".to_owned()
    } else {
        parts.truncate(3);
        format!("{}.", parts.join("; "))
    };
    let title = format!("{} by run and parameters", capital(overlay.noun));
    boxes(&Overlay { groups: &groups, ..*overlay }, "boxes-cells".into(), title, finding)
}

/// What is said of the median of one group against that of another.
fn against(baseline: &Group, other: &Group, doubt: f64) -> String {
    let pair = |from: f64, to: f64| {
        format!("median {} at {}, {} at {}", delay(from), baseline.label, delay(to), other.label)
    };
    match Shift::between(baseline, other, Quantile::P50, None, doubt) {
        Shift::Differs(change) => pair(change.from, change.to) + &change.by(),
        Shift::Same => format!("{} has about the median of {}", other.label, baseline.label),
        Shift::TooFew { from, to, repetitions } => {
            let times = if repetitions > 1 { "two trials" } else { "one trial" };
            format!(
                "{}: {times} each, a difference of these trials, not of the runs; cannot tell",
                pair(from, to)
            )
        }
        Shift::CannotTell(change) => {
            format!("{}{}: cannot tell", pair(change.from, change.to), change.by())
        }
        Shift::Unknown => format!("nothing to compare in {} and {}", other.label, baseline.label),
    }
}

fn against_baseline(groups: &[Group]) -> String {
    let Some((baseline, rest)) = groups.split_first() else { return String::new() };
    let doubt = DOUBT / rest.len().max(1) as f64;
    let said: Vec<String> = rest.iter().map(|group| against(baseline, group, doubt)).collect();
    if said.is_empty() {
        "Only one run has samples.".to_owned()
    } else {
        format!("{}.", capital(&said.join("; ")))
    }
}
