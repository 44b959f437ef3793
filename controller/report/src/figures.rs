//! Figures of one run, each only if the data support it.

mod bands;
mod boxes;
mod breakdown;
mod comparison;
mod cumulative;
mod drift;
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
mod relays;
mod sparkline;
pub(crate) mod theme;
mod timeline;
mod waterfall;

use crate::analysis::subject::Subject;
use crate::analysis::{group, paced};
use crate::model::RunData;
use cumulative::{ccdf, ecdf};
use histogram::histogram;
use overlay::Overlay;
use percentiles::percentiles;

pub use comparison::comparison_figures;
pub use figure::Figure;
pub use sparkline::sparkline;
pub use waterfall::packets_wanted;

/// Returns the figures of a run, the most informative first.
///
/// All figures but those of loss and pacing show the run's main delay (the round trip of a ping,
/// the node delay of a relay). Repetitions of a cell are merged and failed trials left out. In a
/// run over relay modes, each figure compares the modes and holds the parameters that it does not
/// vary at one level.
pub fn figures(run: &RunData) -> Vec<Figure> {
    if paced::is_paced(run) {
        let mut figures = pace::pace(run);
        number_duplicate_ids(&mut figures);
        return figures;
    }
    let mut figures = Vec::new();
    let of_modes = !run.modes().is_empty();
    match Subject::of(run) {
        Some(subject) if of_modes => figures = relays::relays(&subject),
        Some(subject) => figures = plain(&subject),
        None => {}
    }
    if of_modes {
        figures.extend(loss::by_mode(run));
    } else {
        figures.extend(run.axes.iter().filter_map(|axis| loss::loss(run, axis)));
    }
    number_duplicate_ids(&mut figures);
    figures
}

/// Figures of a run without relay modes.
fn plain(subject: &Subject) -> Vec<Figure> {
    let run = subject.run;
    let mut figures = Vec::new();
    let (groups, note) = group::overlaid(run, subject.metric);
    let overlay = Overlay {
        noun: subject.noun,
        unit: subject.unit,
        caption: &subject.caption,
        groups: &groups,
        note: note.as_deref(),
    };
    for axis in &run.axes {
        figures.extend(boxes::by_axis(subject, axis));
    }
    figures.extend(timeline::timeline(subject));
    figures.extend(host::host(subject));
    figures.extend(histogram(&overlay));
    figures.extend(ecdf(&overlay));
    figures.extend(ccdf(&overlay));
    figures.extend(percentiles(&overlay));
    for axis in &run.axes {
        figures.extend(bands::bands(subject, axis));
        figures.extend(fit::fit(subject, axis));
    }
    figures.extend(heat::heat(subject));
    for axis in &run.axes {
        figures.extend(jitter::jitter(subject, axis));
    }
    figures.extend(breakdown::breakdown(subject));
    figures.extend(waterfall::waterfall(subject));
    figures.extend(drift::drift(subject));
    figures
}

/// Numbers figures with equal ids: names of axes may differ only in characters that ids replace.
fn number_duplicate_ids(figures: &mut [Figure]) {
    for i in 1..figures.len() {
        let (before, rest) = figures.split_at_mut(i);
        let figure = &mut rest[0];
        let base = figure.id.clone();
        let mut n = 2;
        while before.iter().any(|other| other.id == figure.id) {
            figure.id = format!("{base}-{n}");
            n += 1;
        }
    }
}
