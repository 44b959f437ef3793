//! Subject of the figures of a run: its main delay metric, by cell.

use crate::analysis::group::{self, Group};
use crate::analysis::{clock_bound, measurement, paced};
use crate::model::quantity::{Unit, capital};
use crate::model::{RunData, metric};

/// Kind of experiment; decides which figures apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExperimentKind {
    /// Delays, without relay modes.
    Delay,
    /// Delays over relay modes.
    RelayModes,
    /// Departures of paced packets.
    Pacing,
    /// Delays of several runs.
    Comparison,
}

impl ExperimentKind {
    /// Kind of one run.
    pub(crate) fn of(run: &RunData) -> Self {
        if paced::is_paced(run) {
            Self::Pacing
        } else if run.modes().is_empty() {
            Self::Delay
        } else {
            Self::RelayModes
        }
    }
}

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

/// Caption with run, plan, version, a mark for a closed loop, and the bound of one-way delays between
/// machines with different clocks.
pub(crate) fn caption(run: &RunData) -> String {
    let closed = measurement::mode(run).filter(|mode| *mode == "closed loop");
    let closed = closed.map_or_else(String::new, |mode| format!(", {mode}"));
    let bound = clock_bound::largest_bound(run)
        .map_or_else(String::new, |bound| format!(", one-way delays ± {bound}"));
    format!("run {}, {}{closed}{bound}, dwell {}", run.id, run.name, run.dwell)
}
