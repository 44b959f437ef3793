//! Files of a TAP link: `link-K.json` holds its counters, `link-K.events` logs the affected frames.
//! The counters in the file never exceed the events in the log.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use dwell_engine::link::LinkCounters;
use dwell_io::clock;
use dwell_units::Nanos;
use rtrb::Consumer;
use serde::{Deserialize, Serialize};

use super::event::Event;
use crate::description::{Counters, DirectionCounters};
use crate::error::LabError;
use crate::state::LabDir;

/// Maximum number of lines in the log: about 300 MB.
const MAX_LOG_LINES: u64 = 1_000_000;

/// Counters that the carrying thread publishes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    directions: [Totals; 2],
    events_lost: AtomicU64,
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Totals {
    arrived: AtomicU64,
    delivered: AtomicU64,
    delivered_bytes: AtomicU64,
    lost: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    overflow: AtomicU64,
    refused: AtomicU64,
    lateness_max: AtomicI64,
}

impl Shared {
    pub(super) fn put(
        &self,
        direction: usize,
        counters: LinkCounters,
        refused: u64,
        lateness: Nanos,
    ) {
        let totals = &self.directions[direction];
        // Release: a thread that sees a count also sees the events pushed before it.
        for (to, from) in [
            (&totals.arrived, counters.arrived),
            (&totals.delivered, counters.delivered),
            (&totals.delivered_bytes, counters.delivered_bytes),
            (&totals.lost, counters.lost),
            (&totals.duplicated, counters.duplicated),
            (&totals.reordered, counters.reordered),
            (&totals.overflow, counters.overflow),
            (&totals.refused, refused),
        ] {
            to.store(from, Ordering::Release);
        }
        totals.lateness_max.store(lateness.0, Ordering::Release);
    }

    pub(super) fn put_events_lost(&self, count: u64) {
        self.events_lost.store(count, Ordering::Release);
    }

    /// Records that an interface, and so the link, is gone.
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn direction(&self, direction: usize) -> DirectionCounters {
        let totals = &self.directions[direction];
        let get = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let (lost, overflow) = (get(&totals.lost), get(&totals.overflow));
        DirectionCounters {
            arrived: Some(get(&totals.arrived)),
            delivered: get(&totals.delivered),
            delivered_bytes: get(&totals.delivered_bytes),
            dropped: lost + overflow,
            lost: Some(lost),
            overflow: Some(overflow),
            refused: Some(get(&totals.refused)),
            duplicated: Some(get(&totals.duplicated)),
            reordered: Some(get(&totals.reordered)),
            interface_dropped: None,
            lateness_max_ns: Some(totals.lateness_max.load(Ordering::Acquire)),
        }
    }
}

/// Content of the counters file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CounterFile {
    /// Time of writing, CLOCK_REALTIME.
    pub(super) written_ns: i64,
    /// Counters.
    pub(super) counters: Counters,
}

/// Reads the counters file at `path`, if it exists.
pub(super) fn read(path: &Path) -> Option<CounterFile> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Both files, and the events still to be written.
pub(super) struct CounterFiles {
    dir: LabDir,
    counter_file: String,
    log: BufWriter<File>,
    directions: [String; 2],
    waiting: Consumer<Event>,
    shared: Arc<Shared>,
    lines: u64,
    lines_lost: u64,
    written: Option<(DirectionCounters, DirectionCounters)>,
}

impl CounterFiles {
    pub(super) fn open(
        dir: &LabDir,
        place: usize,
        directions: [String; 2],
        waiting: Consumer<Event>,
        shared: Arc<Shared>,
    ) -> Result<Self, LabError> {
        let path = dir.file(&format!("link-{place}.events"));
        let log =
            File::create(&path).map_err(LabError::io(format!("writing {}", path.display())))?;
        Ok(Self {
            dir: dir.clone(),
            counter_file: format!("link-{place}.json"),
            log: BufWriter::new(log),
            directions,
            waiting,
            shared,
            lines: 0,
            lines_lost: 0,
            written: None,
        })
    }

    /// Writes the files if a counter has changed since the last time, or if `requested`.
    pub(super) fn write_if_changed(&mut self, requested: bool) -> Result<(), LabError> {
        let now = (self.shared.direction(0), self.shared.direction(1));
        if requested || self.written != Some(now) { self.write() } else { Ok(()) }
    }

    /// Writes all waiting events, then the counters as they were before.
    pub(super) fn write(&mut self) -> Result<(), LabError> {
        let (a_to_b, b_to_a) = (self.shared.direction(0), self.shared.direction(1));
        let written_ns = clock::realtime().as_nanos();
        while let Ok(event) = self.waiting.pop() {
            let fits = self.lines < MAX_LOG_LINES;
            let line = fits.then(|| event.line(&self.directions[event.direction]));
            match line.map(|line| writeln!(self.log, "{line}")) {
                Some(Ok(())) => self.lines += 1,
                _ => self.lines_lost += 1,
            }
        }
        self.log.flush().map_err(LabError::io("writing the event log"))?;
        let events_lost = self.shared.events_lost.load(Ordering::Acquire) + self.lines_lost;
        let counters = Counters { a_to_b, b_to_a, events_lost: Some(events_lost) };
        let content =
            serde_json::to_vec(&CounterFile { written_ns, counters }).expect("plain data");
        self.dir.write_file(&self.counter_file, &content)?;
        self.written = Some((a_to_b, b_to_a));
        Ok(())
    }
}
