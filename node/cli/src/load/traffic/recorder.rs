//! Turns events of the timing loop into statistics and observations, ten times per second.

use std::thread;
use std::time::Duration;

use dwell_io::clock;
use dwell_record::segment::FlowEntry;
use dwell_stats::Distribution;
use dwell_units::{Instant, Pairing, Realtime};
use rtrb::Consumer;

use super::drive::TrafficEvent;
use crate::Failure;
use crate::observation_writer::ObservationWriter;
use crate::ping::SampleFile;

/// Interval between two passes.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Statistics of sent packets.
pub(super) struct Recorder {
    pub(super) log: ObservationWriter,
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
            log: ObservationWriter::begin("load traffic", target, samples)?,
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
    pub(super) fn follow(&mut self, events: &mut Consumer<TrafficEvent>, over: &dyn Fn() -> bool) {
        loop {
            // Read this first, so that the last events are still recorded.
            let last = over();
            while let Ok(event) = events.pop() {
                self.take(&event);
            }
            self.log.flush();
            if last {
                return;
            }
            thread::park_timeout(FLUSH_INTERVAL);
        }
    }

    fn take(&mut self, event: &TrafficEvent) {
        match event {
            TrafficEvent::Departure { flow, error, app } => {
                self.schedule_error.record(*error);
                if let Some(before) = self.last[*flow as usize].replace(*app) {
                    self.gap.record(*app - before);
                }
            }
            TrafficEvent::Observation(observation) => self.log.take(observation),
        }
    }
}
