//! Several runs in the same figures, on shared axes.

use dwell_stats::Quantile;

use crate::data::RunData;
use crate::figure::Figure;
use crate::figures::{Overlay, boxes, capital, ccdf, ecdf, histogram, percentiles};
use crate::findings::Finding;
use crate::group::{self, Group};
use crate::measured;
use crate::metric;
use crate::quantity::{Unit, delay, listed, things};

/// Boxes of a comparison: more rows than this are not read.
const BOXES: usize = 36;

/// Figures of one delay, by the name of its metric; the first run is the baseline. All cells of a run
/// are one distribution, except in the figure that has a box per cell and run. What differs is for
/// `findings` to say, which compared the samples themselves: figures repeat it and judge nothing.
/// Empty when not all runs have that delay.
pub fn comparison_figures(runs: &[RunData], metric: &str, findings: &[Finding]) -> Vec<Figure> {
    if runs.is_empty() || !runs.iter().all(|run| metric::has_samples(run, metric)) {
        return Vec::new();
    }
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
    let closed = runs.iter().filter(|run| measured::mode(run) == Some("closed loop"));
    let closed: Vec<&str> = closed.map(|run| run.id.as_str()).collect();
    let closed = match closed.as_slice() {
        [] => String::new(),
        some => format!(", closed loop: {}", some.join(", ")),
    };
    let caption = format!("runs {}{closed}, dwell {}", ids.join(", "), env!("CARGO_PKG_VERSION"));
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
    let by_cell = by_cell(runs, &overlay, metric, said(findings));
    // Where there is a box per cell, that is where the cells' differences are seen.
    let finding = if by_cell.is_some() { medians(&shown) } else { said(findings) };
    let mut figures: Vec<Figure> =
        boxes(&overlay, "boxes-run".into(), title, finding).into_iter().collect();
    figures.extend(by_cell);
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
fn by_cell(runs: &[RunData], overlay: &Overlay, metric: &str, finding: String) -> Option<Figure> {
    let cells: Vec<Vec<Group>> = runs.iter().map(|run| group::cells(run, metric)).collect();
    let first = cells.first()?;
    let labels = |cells: &[Group]| cells.iter().map(|cell| cell.label.clone()).collect::<Vec<_>>();
    let same = cells.iter().all(|of_run| labels(of_run) == labels(first));
    if !same || first.len() < 2 || first.len() * runs.len() > BOXES {
        return None;
    }
    let mut groups = Vec::new();
    for i in 0..first.len() {
        for (j, of_run) in cells.iter().enumerate() {
            let letter =
                u8::try_from(j).map_or('?', |j| char::from(b'A'.saturating_add(j.min(25))));
            let mut group = of_run[i].clone();
            group.label = format!("{} ({letter})", group.label);
            groups.push(group);
        }
    }
    groups.retain(|group| group.steps.count() > 0);
    let title = format!("{} by run and parameters", capital(overlay.noun));
    boxes(&Overlay { groups: &groups, ..*overlay }, "boxes-cells".into(), title, finding)
}

/// What was found, as far as a figure has room for it.
fn said(findings: &[Finding]) -> String {
    const SHOWN: usize = 3;
    let mut texts: Vec<String> =
        findings.iter().take(SHOWN).map(|finding| sentence(&finding.text)).collect();
    match findings.len().saturating_sub(SHOWN) {
        0 => {}
        more => texts.push(format!("{} more above.", things(more as u64, "finding"))),
    }
    if texts.is_empty() { "Nothing was compared.".to_owned() } else { texts.join(" ") }
}

fn sentence(text: &str) -> String {
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{text}{end}")
}

fn medians(groups: &[Group]) -> String {
    let each: Vec<String> = groups
        .iter()
        .filter_map(|group| {
            Some(format!("{} at {}", delay(group.quantile(Quantile::P50)?), group.label))
        })
        .collect();
    format!(
        "Median over all parameters together: {}; what differs is told for each combination.",
        listed(&each)
    )
}
