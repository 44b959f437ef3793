//! Test doubles shared by the tests of whole runs.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_fleet::{Fleet, FromNode};
use dwell_plan::{Expansion, Source, expand};
use dwell_protocol::{Event, JobId, Progress};
use dwell_record::{Environment, Kind, Packets, Stamps, Summary, Trust};
use dwell_runner::{Clock, ProgressReporter, RunEnd, Runner, TrialEnd, new_trials};
use dwell_store::{NewRun, RunKind, RunRow, Store};
use dwell_units::{Instant, Monotonic};

/// A run that has begun, with its own store.
pub(crate) struct StartedRun {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) expansion: Expansion,
    pub(crate) run: RunRow,
}

impl StartedRun {
    /// Runs all trials. Returns how the run and its trials ended.
    pub(crate) fn execute(&mut self, fleet: &mut dyn Fleet) -> (RunEnd, Vec<TrialEnd>) {
        let stop = AtomicBool::new(false);
        let mut listener = Listener { ends: Vec::new(), stop_after: usize::MAX, stop: &stop };
        let runner = Runner {
            fleet,
            store: &mut self.store,
            expansion: &self.expansion,
            run: self.run.clone(),
            clock: &TickingClock::default(),
            reporter: &mut listener,
            stop: &stop,
        };
        (runner.run().unwrap(), listener.ends)
    }
}

pub(crate) fn begin(plan: &str) -> StartedRun {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let expansion = expand(&Source::parse(plan).unwrap(), 1).unwrap();
    let new = NewRun {
        kind: RunKind::Run,
        name: "made-up".into(),
        title: None,
        plan: Some(plan.into()),
        lab_files: None,
        settings: vec![],
        seed: 1,
        axes: serde_json::json!([]),
        fleet: None,
        dwell: "0".into(),
        owner: "alice@lab".into(),
        trials: new_trials(&expansion),
    };
    let name = store.begin_run(&new).unwrap();
    let run = store.run(&name).unwrap();
    StartedRun { dir, store, expansion, run }
}

/// Sends the segment of a job, as a node does that is asked for all of it.
pub(crate) fn push_segment(
    messages: &mut VecDeque<(String, FromNode)>,
    node: &str,
    job: JobId,
    segment: Vec<u8>,
) {
    let (bytes, crc32) = (segment.len() as u64, crc32fast::hash(&segment));
    let pulled = Event::Pulled { job, from: 0, bytes, crc32, left: 0 };
    for message in [FromNode::Data(job, segment), FromNode::Event(pulled)] {
        messages.push_back((node.to_owned(), message));
    }
}

/// Returns the summary that a node reports for a job.
pub(crate) fn summary(received: u64) -> Summary {
    Summary {
        kind: Kind::Ping,
        target: "stamp://n2".into(),
        parameters: BTreeMap::new(),
        packets: Some(Packets { sent: 10, received, lost: 10 - received, ..Packets::default() }),
        metrics: BTreeMap::new(),
        values: BTreeMap::new(),
        stamps: Stamps::default(),
        engine: String::new(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust: Trust::default(),
        environment: Environment::default(),
    }
}

/// A clock that advances by 1 ms whenever it is read.
#[derive(Default)]
pub(crate) struct TickingClock(Cell<i64>);

impl Clock for TickingClock {
    fn now(&self) -> Instant<Monotonic> {
        self.0.set(self.0.get() + 1_000_000);
        Instant::from_nanos(self.0.get())
    }

    fn sleep(&self, time: Duration) {
        self.0.set(self.0.get() + time.as_nanos() as i64);
    }
}

/// Stops the run after `stop_after` trials.
pub(crate) struct Listener<'a> {
    pub(crate) ends: Vec<TrialEnd>,
    pub(crate) stop_after: usize,
    pub(crate) stop: &'a AtomicBool,
}

impl ProgressReporter for Listener<'_> {
    fn trial_started(&mut self, _: u32, _: u32, _: u32, _: &BTreeMap<String, String>) {}

    fn progress(&mut self, _: &Progress) {}

    fn measured(&mut self, _: u32, _: &Summary) {}

    fn ended(&mut self, _: u32, end: &TrialEnd) {
        self.ends.push(end.clone());
        if self.ends.len() == self.stop_after {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn say(&mut self, _: &str) {}
}
