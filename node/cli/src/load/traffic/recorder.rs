//! Turns events of the timing loop into statistics and passages, ten times per second.

use std::thread;
use std::time::Duration;

use dwell_io::clock;
use dwell_record::segment::FlowEntry;
use dwell_stats::Distribution;
use dwell_units::{Instant, Pairing, Realtime};
use rtrb::Consumer;

use super::drive::Told;
use crate::Failure;
use crate::passages::PassageLog;
use crate::ping::SampleFile;

/// Interval between two passes.
const TICK: Duration = Duration::from_millis(100);

/// Statistics of sent packets.
pub(super) struct Recorder {
    pub(super) log: PassageLog,
    pub(super) schedule_error: Distribution,
    pub(super) gap: Distribution,
    /// Last send time of each flow.
    last: Vec<Option<Instant<Realtime>>>,
    pub(super) start: Pairing,
}

impl Recorder {
    pub(super) fn new(
        target: &str,
        flows: usize,
        samples: Option<SampleFile>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            log: PassageLog::begin("load traffic", target, samples)?,
            schedule_error: Distribution::new(),
            gap: Distribution::new(),
            last: vec![None; flows],
            start: clock::pair(),
        })
    }

    pub(super) fn flows(&mut self, flows: impl Iterator<Item = FlowEntry>) {
        flows.for_each(|flow| self.log.flow(&flow));
    }

    /// Records events until the loop is `over`.
    pub(super) fn follow(&mut self, told: &mut Consumer<Told>, over: &dyn Fn() -> bool) {
        loop {
            // Read this first, so that the last events are still recorded.
            let last = over();
            while let Ok(note) = told.pop() {
                self.take(&note);
            }
            self.log.flush();
            if last {
                return;
            }
            thread::park_timeout(TICK);
        }
    }

    fn take(&mut self, note: &Told) {
        match note {
            Told::Departure { flow, error, app } => {
                self.schedule_error.record(*error);
                if let Some(before) = self.last[*flow as usize].replace(*app) {
                    self.gap.record(*app - before);
                }
            }
            Told::Passage(passage) => self.log.take(passage),
        }
    }
}
