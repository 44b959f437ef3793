//! Figures that compare several runs on shared axes.

use dwell_stats::Quantile;

use super::overlay::Overlay;
use super::spec::FigureSpec;
use super::{boxes, draw};
use crate::analysis::findings::Finding;
use crate::analysis::group::{self, Group};
use crate::analysis::measurement;
use crate::figures::figure::Figure;
use crate::model::quantity::{Unit, capital, count_noun, delay, listed};
use crate::model::{RunData, metric};

/// Maximum number of boxes in a figure.
const MAX_BOXES: usize = 36;

/// Returns figures of one delay metric; the first run is the baseline. All cells of a run are
/// merged into one distribution, except in the figure with one box per cell and run. The figures
/// repeat `findings`, which come from the samples themselves, and judge nothing. Empty unless all
/// runs have the metric.
pub(super) fn compare(
    specs: &[FigureSpec],
    runs: &[RunData],
    metric: &str,
    findings: &[Finding],
) -> Vec<Figure> {
    if runs.is_empty() || !runs.iter().all(|run| metric::has_samples(run, metric)) {
        return Vec::new();
    }
    let label = |(i, run): (usize, &RunData)| run.lettered_id(i);
    let labels: Vec<String> = runs.iter().enumerate().map(label).collect();
    let groups: Vec<Group> = runs
        .iter()
        .zip(&labels)
        .map(|(run, label)| Group::new(label.clone(), run.finished_trials().collect(), metric))
        .filter(|group| group.steps.count() > 0)
        .collect();
    let shown = group::evenly(groups, group::MAX_OVERLAID);
    let middle = shown.iter().filter_map(|g| g.steps.at_rank(g.steps.count().div_ceil(2))).max();
    let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let closed = runs.iter().filter(|run| measurement::mode(run) == Some("closed loop"));
    let closed: Vec<&str> = closed.map(|run| run.id.as_str()).collect();
    let closed = match closed.as_slice() {
        [] => String::new(),
        some => format!(", closed loop: {}", some.join(", ")),
    };
    let caption = format!("runs {}{closed}, dwell {}", ids.join(", "), env!("CARGO_PKG_VERSION"));
    let note = (runs.len() > shown.len())
        .then(|| format!("Shown: {} of {} runs.", shown.len(), runs.len()));
    let mut overlay = Overlay {
        noun: metric::words(metric),
        unit: Unit::fitting(middle.unwrap_or_default() as f64),
        caption: &caption,
        groups: &shown,
        by: "run",
        note: note.as_deref(),
        finding: None,
    };
    let by_cell = by_cell(runs, &overlay, metric, first_findings(findings));
    // Differences between cells are visible in the figure with one box per cell.
    let finding = if by_cell.is_some() { medians(&shown) } else { first_findings(findings) };
    overlay.finding = Some(&finding);
    let mut figures = draw::overlaid(specs, &overlay);
    if let Some(place) = figures.iter().position(|figure| figure.id == "boxes-run") {
        let boxes = figures.remove(place);
        let title = format!("{} by run", boxes.title);
        figures.insert(place, boxes.with_title(title));
        figures.splice(place + 1..place + 1, by_cell);
    }
    figures
}

/// One box per cell and run, if all runs have the same cells and more than one.
fn by_cell(runs: &[RunData], overlay: &Overlay, metric: &str, finding: String) -> Option<Figure> {
    let cells: Vec<Vec<Group>> = runs.iter().map(|run| group::cells(run, metric)).collect();
    let first = cells.first()?;
    let labels = |cells: &[Group]| cells.iter().map(|cell| cell.label.clone()).collect::<Vec<_>>();
    let same = cells.iter().all(|of_run| labels(of_run) == labels(first));
    if !same || first.len() < 2 || first.len() * runs.len() > MAX_BOXES {
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
    boxes::boxes(&Overlay { groups: &groups, ..*overlay }, "boxes-cells".into(), title, finding)
}

/// The first findings, for the text of a figure.
fn first_findings(findings: &[Finding]) -> String {
    const MAX_FINDINGS: usize = 3;
    let mut texts: Vec<String> =
        findings.iter().take(MAX_FINDINGS).map(|finding| sentence(&finding.text)).collect();
    match findings.len().saturating_sub(MAX_FINDINGS) {
        0 => {}
        more => texts.push(format!("{} above.", count_noun(more as u64, "more finding"))),
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
        "Median over all parameters: {}; differences are listed per combination.",
        listed(&each)
    )
}
