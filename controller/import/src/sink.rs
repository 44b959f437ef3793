//! Collects the results of readers: rows into batches, the rest into [`Imported`].

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;

use dwell_record::{Batch, Column, Packets, Scalar};
use dwell_sample::State;

use crate::imported::sum;
use crate::{Format, ImportError, ImportWarning, Imported, ImportedFlow, SkippedRow, plausibility};

/// Receives batches: the flow name and its next rows.
pub(crate) type BatchCallback<'a> =
    &'a mut dyn FnMut(&str, Batch) -> Result<(), Box<dyn Error + Send + Sync>>;

/// A flow of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowNumber(usize);

/// Collects what a reader finds.
pub(crate) struct Sink<'a> {
    each: BatchCallback<'a>,
    pub(crate) imported: Imported,
    /// Rows of each flow that were not handed over yet.
    waiting: Vec<Batch>,
    /// Number of negative one-way delays of each flow.
    below_zero: Vec<u64>,
    buffered: usize,
    good: u64,
}

/// A row being filled.
pub(crate) struct NewRow<'s>(&'s mut Batch);

/// Maximum number of rows of a batch.
pub(crate) const MAX_BATCH_ROWS: usize = 65_536;

/// Maximum number of waiting rows of all flows; bounds the memory.
const MAX_WAITING_ROWS: usize = 2 * MAX_BATCH_ROWS;

/// Rows examined together: usually all have the same state.
const RUN_ROWS: usize = 128;

/// Maximum number of flows of a file; rows of further flows are skipped.
const MAX_FLOWS: usize = 1_024;

/// Maximum number of warnings of a flow.
const MAX_WARNINGS: usize = 16;

/// Maximum length of the list of targets of a file.
const MAX_TARGETS_LEN: usize = 400;

/// Maximum quoted length of a skipped row.
const MAX_QUOTED_LEN: usize = 80;

impl<'a> Sink<'a> {
    pub(crate) fn new(format: Format, each: BatchCallback<'a>) -> Self {
        let imported = Imported {
            format,
            target: String::new(),
            parameters: BTreeMap::new(),
            flows: Vec::new(),
            warnings: Vec::new(),
            skipped_lines: 0,
            skipped_example: None,
        };
        let (waiting, below_zero) = (Vec::new(), Vec::new());
        Self { each, imported, waiting, below_zero, buffered: 0, good: 0 }
    }

    /// Starts a data set; `None` if there are too many.
    pub(crate) fn flow(&mut self, name: &str) -> Option<FlowNumber> {
        if self.waiting.len() == MAX_FLOWS {
            return None;
        }
        self.imported.flows.push(ImportedFlow { name: name.to_owned(), ..ImportedFlow::default() });
        self.waiting.push(Batch::default());
        self.below_zero.push(0);
        Some(FlowNumber(self.waiting.len() - 1))
    }

    /// Starts a data set that was sent to `target`.
    pub(crate) fn flow_to(&mut self, name: &str, target: String) -> Option<FlowNumber> {
        let flow = self.flow(name)?;
        let all = &mut self.imported.target;
        if all.len() < MAX_TARGETS_LEN && !all.split(' ').any(|known| known == target) {
            let blank = if all.is_empty() { "" } else { " " };
            all.push_str(&format!("{blank}{target}"));
        }
        self.flow_mut(flow).target = target;
        Some(flow)
    }

    /// Starts the only flow of a file.
    pub(crate) fn only_flow(&mut self) -> FlowNumber {
        self.flow("").expect("the first flow is within the limit")
    }

    pub(crate) fn flow_mut(&mut self, flow: FlowNumber) -> &mut ImportedFlow {
        &mut self.imported.flows[flow.0]
    }

    /// Sets a scalar stated by the file.
    pub(crate) fn value(&mut self, flow: FlowNumber, name: &str, value: Scalar) {
        self.flow_mut(flow).values.insert(name.to_owned(), Some(value));
    }

    /// Adds to the packet counts of the flow.
    pub(crate) fn packets(&mut self, flow: FlowNumber, add: Packets) {
        let packets = self.flow_mut(flow).packets.get_or_insert_default();
        *packets = sum(*packets, add);
    }

    /// Marks a flow whose rows do not distinguish received from lost packets.
    pub(crate) fn outcomes_unknown(&mut self, flow: FlowNumber) {
        self.flow_mut(flow).outcomes_unknown = true;
    }

    /// Sets a parameter.
    pub(crate) fn parameter(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        self.imported.parameters.insert(name.to_owned(), value.into());
    }

    /// Sets the parameters that are present.
    pub(crate) fn parameters<'n, V: Into<serde_json::Value>>(
        &mut self,
        all: impl IntoIterator<Item = (&'n str, Option<V>)>,
    ) {
        for (name, value) in all {
            if let Some(value) = value {
                self.parameter(name, value);
            }
        }
    }

    pub(crate) fn warn(&mut self, warning: ImportWarning) {
        self.imported.warnings.push(warning);
    }

    /// Adds a warning about one flow. The number per flow is limited because files of other
    /// programs could fill the memory.
    pub(crate) fn warn_of(&mut self, flow: FlowNumber, warning: ImportWarning) {
        let warnings = &mut self.flow_mut(flow).warnings;
        if warnings.len() < MAX_WARNINGS {
            warnings.push(warning);
        }
    }

    /// Appends a row.
    pub(crate) fn row(
        &mut self,
        flow: FlowNumber,
        id: u64,
        state: State,
    ) -> Result<NewRow<'_>, ImportError> {
        if self.waiting[flow.0].len() >= MAX_BATCH_ROWS {
            self.hand_over(flow.0)?;
        } else if self.buffered >= MAX_WAITING_ROWS {
            (0..self.waiting.len()).try_for_each(|flow| self.hand_over(flow))?;
        }
        self.buffered += 1;
        self.good += u64::from(state != State::Lost);
        self.waiting[flow.0].push(id, state);
        Ok(NewRow(&mut self.waiting[flow.0]))
    }

    /// Appends a lost row for each id.
    pub(crate) fn lost(&mut self, flow: FlowNumber, ids: Range<u64>) -> Result<(), ImportError> {
        for id in ids {
            self.row(flow, id, State::Lost)?;
        }
        Ok(())
    }

    /// Hands over a batch that the reader filled.
    pub(crate) fn batch(&mut self, flow: FlowNumber, batch: Batch) -> Result<(), ImportError> {
        self.hand_over(flow.0)?;
        self.good += batch.len() as u64;
        self.buffered = batch.len();
        self.waiting[flow.0] = batch;
        self.hand_over(flow.0)
    }

    /// Counts an unreadable row. `row` counts from 1.
    pub(crate) fn skip(&mut self, row: u64, text: &[u8]) {
        self.imported.skipped_lines += 1;
        self.imported.skipped_example.get_or_insert_with(|| {
            let cut = &text[..text.len().min(MAX_QUOTED_LEN)];
            let text = String::from_utf8_lossy(cut).trim().escape_debug().to_string();
            SkippedRow { row, text }
        });
    }

    /// Counts input that was understood and is not a row.
    pub(crate) fn understood(&mut self) {
        self.good += 1;
    }

    /// Hands over the remaining rows and returns the metadata.
    pub(crate) fn finish(mut self) -> Result<Imported, ImportError> {
        (0..self.waiting.len()).try_for_each(|flow| self.hand_over(flow))?;
        for flow in (0..self.waiting.len()).map(FlowNumber) {
            if let count @ 1.. = self.below_zero[flow.0] {
                self.warn_of(flow, ImportWarning::NegativeDelays(count.to_string()));
            }
            for warning in plausibility::check(self.flow_mut(flow)) {
                self.warn_of(flow, warning);
            }
        }
        let mut imported = self.imported;
        for flow in imported.flows.iter_mut().filter(|flow| flow.outcomes_unknown) {
            flow.packets = None;
        }
        for packets in imported.flows.iter_mut().filter_map(|flow| flow.packets.as_mut()) {
            // A late reply supersedes the loss recorded before.
            packets.lost = packets.lost.saturating_sub(packets.late);
        }
        if let Some(example) = &imported.skipped_example {
            if imported.skipped_lines > self.good {
                return Err(ImportError::Rows {
                    format: imported.format,
                    rows: imported.skipped_lines + self.good,
                    skipped: imported.skipped_lines,
                    row: example.row,
                    text: example.text.clone(),
                });
            }
            let (row, text) = (example.row, example.text.clone());
            let warning = ImportWarning::RowsSkipped(imported.skipped_lines, row, text);
            imported.warnings.push(warning);
        }
        if !imported.flows.iter().any(is_measured) {
            let left_out = imported.all_warnings();
            return Err(ImportError::NoSamples { format: imported.format, left_out });
        }
        Ok(imported)
    }

    fn hand_over(&mut self, flow: usize) -> Result<(), ImportError> {
        let batch = std::mem::take(&mut self.waiting[flow]);
        if batch.is_empty() {
            return Ok(());
        }
        self.buffered -= batch.len();
        self.below_zero[flow] += below_zero(&batch);
        let about = &mut self.imported.flows[flow];
        about.rows += batch.len() as u64;
        about.packets = Some(sum(about.packets.unwrap_or_default(), counted(&batch)));
        (self.each)(&about.name, batch).map_err(ImportError::Samples)
    }
}

impl NewRow<'_> {
    /// Sets a number if it is present.
    pub(crate) fn set(&mut self, column: Column, value: Option<i64>) -> &mut Self {
        if let Some(value) = value.filter(|value| *value != Batch::ABSENT) {
            self.0.set(column, value);
        }
        self
    }

    pub(crate) fn reordered(&mut self, reordered: bool) -> &mut Self {
        if let Some(last) = self.0.reordered.last_mut() {
            *last = reordered;
        }
        self
    }

    pub(crate) fn void(&mut self, void: bool) -> &mut Self {
        if let Some(last) = self.0.void.last_mut() {
            *last = void;
        }
        self
    }
}

/// Whether a flow has a row, a packet count or a figure.
fn is_measured(flow: &ImportedFlow) -> bool {
    let ImportedFlow { rows, packets, metrics, values, .. } = flow;
    let is_counted = packets.is_some_and(|packets| packets.sent > 0 || packets.received > 0);
    let has_figures = metrics.values().any(|figures| figures.count > 0);
    *rows > 0 || is_counted || has_figures || values.values().any(Option::is_some)
}

fn below_zero(batch: &Batch) -> u64 {
    let delays = [Column::OneWayForward, Column::OneWayBackward];
    let delays = delays.into_iter().filter_map(|column| batch.column(column)).flatten();
    delays.filter(|delay| **delay < 0 && **delay != Batch::ABSENT).count() as u64
}

fn counted(batch: &Batch) -> Packets {
    let mut by_state = [0_u64; State::ALL.len()];
    for states in batch.state.chunks(RUN_ROWS) {
        if states.iter().fold(true, |all, state| all & (*state == states[0])) {
            by_state[usize::from(states[0].code())] += states.len() as u64;
            continue;
        }
        for state in states {
            by_state[usize::from(state.code())] += 1;
        }
    }
    let of = |state: State| by_state[usize::from(state.code())];
    // See `Sink::finish`.
    Packets {
        sent: of(State::Received) + of(State::Lost),
        received: of(State::Received),
        lost: of(State::Lost),
        late: of(State::Late),
        duplicate: of(State::Duplicate),
        reordered: batch.reordered.iter().map(|reordered| u64::from(*reordered)).sum(),
        send_failed: of(State::SendFailed),
    }
}
