//! Figures of one run, each only if the data support it.

mod bands;
mod boxes;
mod breakdown;
mod cumulative;
mod drift;
mod end_to_end;
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
mod timeline;
mod waterfall;

use crate::data::RunData;
use crate::figure::Figure;
use crate::group::{self, Group};
use crate::measurement;
use crate::metric;
use crate::paced;
use crate::quantity::Unit;

pub(crate) use boxes::boxes;
pub(crate) use cumulative::{ccdf, ecdf};
pub(crate) use histogram::histogram;
pub(crate) use overlay::Overlay;
pub(crate) use percentiles::percentiles;
pub(crate) use timeline::shown;
pub use waterfall::packets_wanted;

/// A run and the delay metric that its figures show.
pub(crate) struct Subject<'a> {
    pub(crate) run: &'a RunData,
    pub(crate) metric: &'a str,
    /// Readable name of the metric.
    pub(crate) noun: &'a str,
    pub(crate) unit: Unit,
    pub(crate) caption: String,
    pub(crate) cells: Vec<Group<'a>>,
}

impl<'a> Subject<'a> {
    /// Returns `None` if nothing was measured.
    pub(crate) fn of(run: &'a RunData) -> Option<Self> {
        Self::about(run, metric::main_metric(run)?)
    }

    /// The same for a given metric: part of a run is shown by the metric of the whole run.
    pub(crate) fn about(run: &'a RunData, metric: &'a str) -> Option<Self> {
        let mut cells = group::cells(run, metric);
        cells.retain(|cell| cell.steps.count() > 0);
        let middles =
            cells.iter().filter_map(|cell| cell.steps.at_rank(cell.steps.count().div_ceil(2)));
        let unit = Unit::fitting(middles.max()? as f64);
        let noun = metric::words(metric);
        Some(Self { run, metric, noun, unit, caption: caption(run), cells })
    }

    /// Capitalised name of the metric.
    pub(crate) fn title(&self) -> String {
        capital(self.noun)
    }
}

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
    let of_modes = !modes(run).is_empty();
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

/// Axis of the relay modes.
pub(crate) const RELAY: &str = "relay";

/// Relay modes of a run; empty without that axis.
pub(crate) fn modes(run: &RunData) -> &[String] {
    let axis = run.axes.iter().find(|axis| axis.name == RELAY);
    axis.map_or(&[], |axis| &axis.values)
}

/// Caption with run, plan, version, and a mark for a closed loop.
pub(crate) fn caption(run: &RunData) -> String {
    let closed = measurement::mode(run).filter(|mode| *mode == "closed loop");
    let closed = closed.map_or_else(String::new, |mode| format!(", {mode}"));
    format!("run {}, {}{closed}, dwell {}", run.id, run.name, run.dwell)
}

/// Capitalises the first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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
