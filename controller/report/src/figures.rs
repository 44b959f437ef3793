//! Registry of figures: conditions and order.

mod bands;
mod boxes;
mod breakdown;
mod comparison;
mod cumulative;
mod draw;
mod drift;
mod driver_histogram;
mod driver_timeline;
mod end_to_end;
mod figure;
mod fit;
mod heat;
mod histogram;
mod host;
mod jitter;
mod loss;
mod overlay;
mod p95_by_parameter;
mod pace;
mod parts;
mod percentiles;
mod smoke;
mod sparkline;
mod spec;
mod spike_causes;
pub(crate) mod theme;
mod timeline;
mod waterfall;

use crate::analysis::findings::Finding;
use crate::analysis::subject::ExperimentKind as Kind;
use crate::figures::pace::{errors, largest, pairs, rates};
use crate::figures::spec::{Draw, FigureSpec, Parts};
use crate::model::RunData;

pub use figure::Figure;
pub(crate) use figure::{Question, slug};
pub use smoke::smoke;
pub use sparkline::sparkline;

/// Kinds of figures in the order of a page.
const FIGURES: &[FigureSpec] = &[
    FigureSpec {
        id: "p95",
        question: Question::Effect,
        applies: &[(Kind::RelayModes, Parts::EachAxis)],
        draw: Draw::Axis(p95_by_parameter::p95_by_parameter),
        shows: Some("effect"),
    },
    FigureSpec {
        id: "boxes",
        question: Question::Effect,
        applies: &[(Kind::Delay, Parts::EachAxis)],
        draw: Draw::Axis(boxes::by_axis),
        shows: Some("effect"),
    },
    FigureSpec {
        id: "boxes",
        question: Question::Effect,
        applies: &[(Kind::RelayModes, Parts::EachAxis)],
        draw: Draw::Axis(boxes::by_mode_and_level),
        shows: Some("effect"),
    },
    FigureSpec {
        id: "boxes",
        question: Question::Effect,
        applies: &[(Kind::RelayModes, Parts::OneCondition), (Kind::Comparison, Parts::Run)],
        draw: Draw::Overlay(boxes::overlaid),
        shows: Some("effect"),
    },
    FigureSpec {
        id: "bands",
        question: Question::Effect,
        applies: &[(Kind::Delay, Parts::EachAxis)],
        draw: Draw::Axis(bands::bands),
        shows: Some("effect"),
    },
    FigureSpec {
        id: "fit",
        question: Question::Effect,
        applies: &[
            (Kind::Delay, Parts::EachAxis),
            (Kind::RelayModes, Parts::EachMode(&["size", "rate"])),
        ],
        draw: Draw::Axis(fit::fit),
        shows: Some("fit"),
    },
    FigureSpec {
        id: "heat",
        question: Question::Effect,
        applies: &[
            (Kind::Delay, Parts::Run),
            (Kind::RelayModes, Parts::EachMode(&["size", "rate"])),
        ],
        draw: Draw::Delay(heat::heat),
        shows: None,
    },
    FigureSpec {
        id: "jitter",
        question: Question::Effect,
        applies: &[(Kind::Delay, Parts::EachAxis), (Kind::RelayModes, Parts::EachMode(&["size"]))],
        draw: Draw::Axis(jitter::jitter),
        shows: None,
    },
    FigureSpec {
        id: "largest-rates",
        question: Question::Accuracy,
        applies: &[(Kind::Pacing, Parts::Run)],
        draw: Draw::Run(largest::largest),
        shows: Some("verdict"),
    },
    FigureSpec {
        id: "rates",
        question: Question::Accuracy,
        applies: &[(Kind::Pacing, Parts::EachSender)],
        draw: Draw::Sender(rates::rates),
        shows: None,
    },
    FigureSpec {
        id: "pairs",
        question: Question::Accuracy,
        applies: &[(Kind::Pacing, Parts::EachSender)],
        draw: Draw::Sender(|part| pairs::pairs(part).into_iter().collect()),
        shows: None,
    },
    FigureSpec {
        id: "gap-errors",
        question: Question::Accuracy,
        applies: &[(Kind::Pacing, Parts::EachSender)],
        draw: Draw::Sender(errors::errors),
        shows: None,
    },
    FigureSpec {
        id: "end-to-end",
        question: Question::Components,
        applies: &[(Kind::RelayModes, Parts::Run)],
        draw: Draw::Delay(end_to_end::end_to_end),
        shows: Some("nlr"),
    },
    FigureSpec {
        id: "breakdown",
        question: Question::Components,
        applies: &[(Kind::Delay, Parts::Run), (Kind::RelayModes, Parts::Run)],
        draw: Draw::Delay(breakdown::breakdown),
        shows: None,
    },
    FigureSpec {
        id: "waterfall",
        question: Question::Components,
        applies: &[(Kind::Delay, Parts::Run), (Kind::RelayModes, Parts::Run)],
        draw: Draw::Delay(waterfall::waterfall),
        shows: None,
    },
    FigureSpec {
        id: "spike-causes",
        question: Question::Components,
        applies: &[(Kind::Delay, Parts::Run)],
        draw: Draw::Delay(spike_causes::spike_causes),
        shows: None,
    },
    FigureSpec {
        id: "timeline",
        question: Question::Time,
        applies: &[(Kind::Delay, Parts::Run), (Kind::RelayModes, Parts::OneCondition)],
        draw: Draw::Delay(timeline::timeline),
        shows: Some("delay"),
    },
    FigureSpec {
        id: "driver-timeline",
        question: Question::Time,
        applies: &[(Kind::Delay, Parts::Run)],
        draw: Draw::Delay(driver_timeline::driver_timeline),
        shows: None,
    },
    FigureSpec {
        id: "host",
        question: Question::Time,
        applies: &[
            (Kind::Delay, Parts::Run),
            (Kind::RelayModes, Parts::Run),
            (Kind::Pacing, Parts::Run),
        ],
        draw: Draw::Delay(host::host),
        shows: Some("host"),
    },
    FigureSpec {
        id: "drift",
        question: Question::Time,
        applies: &[(Kind::Delay, Parts::Run), (Kind::RelayModes, Parts::Run)],
        draw: Draw::Delay(drift::drift),
        shows: None,
    },
    FigureSpec {
        id: "histogram",
        question: Question::Distribution,
        applies: OVERLAY_PARTS,
        draw: Draw::Overlay(histogram::histogram),
        shows: None,
    },
    FigureSpec {
        id: "driver-histogram",
        question: Question::Distribution,
        applies: &[(Kind::Delay, Parts::Run)],
        draw: Draw::Delay(driver_histogram::driver_histogram),
        shows: None,
    },
    FigureSpec {
        id: "ecdf",
        question: Question::Distribution,
        applies: OVERLAY_PARTS,
        draw: Draw::Overlay(cumulative::ecdf),
        shows: None,
    },
    FigureSpec {
        id: "ccdf",
        question: Question::Distribution,
        applies: OVERLAY_PARTS,
        draw: Draw::Overlay(cumulative::ccdf),
        shows: None,
    },
    FigureSpec {
        id: "percentiles",
        question: Question::Distribution,
        applies: OVERLAY_PARTS,
        draw: Draw::Overlay(percentiles::percentiles),
        shows: None,
    },
    FigureSpec {
        id: "loss",
        question: Question::Loss,
        applies: &[(Kind::Delay, Parts::EachAxis)],
        draw: Draw::RunAxis(loss::loss),
        shows: Some("loss"),
    },
    FigureSpec {
        id: "loss",
        question: Question::Loss,
        applies: &[(Kind::RelayModes, Parts::EachMode(&["size", "rate"]))],
        draw: Draw::RunAxis(loss::of_mode),
        shows: Some("loss"),
    },
    FigureSpec {
        id: "loss",
        question: Question::Loss,
        applies: &[(Kind::RelayModes, Parts::Run)],
        draw: Draw::Run(loss::by_mode),
        shows: Some("loss"),
    },
];

/// Kinds of runs and their parts for which overlaid distributions are drawn.
const OVERLAY_PARTS: &[(Kind, Parts)] = &[
    (Kind::Delay, Parts::Run),
    (Kind::RelayModes, Parts::OneCondition),
    (Kind::Comparison, Parts::Run),
];

/// Returns the figures of a run in the order of a page.
///
/// All figures but those of loss and pacing show the run's main delay (the round trip of a ping,
/// the node delay of a relay). Repetitions of a cell are merged and failed trials left out. In a
/// run over relay modes, each figure compares the modes and holds the parameters that it does not
/// vary at one level.
pub fn figures(run: &RunData) -> Vec<Figure> {
    draw::draw(FIGURES, run)
}

/// Returns figures of one delay metric; the first run is the baseline. All cells of a run are
/// merged into one distribution, except in the figure with one box per cell and run. The figures
/// repeat `findings`, which come from the samples themselves, and judge nothing. Empty unless all
/// runs have the metric.
pub fn comparison_figures(runs: &[RunData], metric: &str, findings: &[Finding]) -> Vec<Figure> {
    comparison::compare(FIGURES, runs, metric, findings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::FIGURES;

    #[test]
    fn figures_are_in_the_order_of_their_questions() {
        assert!(FIGURES.is_sorted_by_key(|spec| spec.question));
    }

    /// The tables of docs/report.md list every kind of figure, and no other.
    #[test]
    fn documentation_lists_every_figure() {
        let heads = ["| id | shows |", "| figure | shows |"];
        let text = include_str!("../../../docs/report.md");
        let tables = text.split("\n\n").filter(|it| heads.iter().any(|head| it.starts_with(head)));
        let cells =
            tables.flat_map(|table| table.lines().skip(2)).filter_map(|row| row.split('|').nth(1));
        // Ids end with placeholders: `boxes-AXIS`, `rates-N`.
        let is_placeholder = |c: char| c == '-' || c.is_ascii_uppercase();
        let ids = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let listed: BTreeSet<&str> = ids.map(|id| id.trim_end_matches(is_placeholder)).collect();
        assert_eq!(listed, FIGURES.iter().map(|spec| spec.id).collect());
    }
}
