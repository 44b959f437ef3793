//! `dwell hub`: one process that collects from devices over SSH, receives by a bus, or both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use dwell_bus::SharedStore;
use dwell_fleet::{Device, FleetError, MAX_REQUEST_INTERVAL, NodeBinaries, SpoolLink};
use dwell_hub::alert::recover;
use dwell_hub::store::HubStore;
use dwell_hub::{
    CollectError, Collector, HubError, NodeSpool, Resolution, Retention, Round, Rules,
    SimultaneousAgents, accept_clock, expire, expire_samples, simultaneous_agents,
    store_unknown_versions,
};
use dwell_node_cli::{Exit, Failure, say};
use dwell_results::chain;
use dwell_results::device::KnownDevice;
use dwell_rollup::{Incarnation, Level, Name, NodeSchedule, RangeSet, SpoolCursor, StatusFile};
use dwell_store::{HubLock, Store, StoreError, remove_partial_samples};
use dwell_units::Nanos;

use super::super::data::{DataArgs, say_problem};
use super::DatabaseArgs;
use super::alerting;
use super::bus::BusArgs;
use super::collections::OwnCollections;
use super::now_ns;

/// Time between looks at a stop request.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time between the starts of connections to different devices.
const START_INTERVAL: Duration = Duration::from_millis(50);

/// Time between looks at the catalogue of devices.
const DEVICES_INTERVAL: Duration = Duration::from_secs(10);

/// Time between removals of expired rows.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// Longest interval of collection: a schedule takes effect within 60 s.
const MAX_INTERVAL: Duration = Duration::from_secs(50);

/// Time between checks whether two agents of a node run at once, which read all its incarnations.
const SIMULTANEOUS_INTERVAL: Duration = Duration::from_secs(600);

/// Default number of days for which samples are kept.
const DEFAULT_SAMPLES_DAYS: u32 = 90;

/// Maximum number of reasons of bad records that are printed per round.
const MAX_REASONS: usize = 3;

/// Options of the embedded hub.
#[derive(Debug, clap::Args)]
pub(super) struct EmbeddedArgs {
    /// Collect results from the devices over SSH, in one process; for up to 100 nodes
    #[arg(long, required_unless_present = "nats")]
    embedded: bool,

    /// Time between collections from a device, at most 50s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = interval)]
    interval: Duration,

    /// Days to keep samples, or rows of a resolution: samples, 10s, 5m, 1h or 1d; may be repeated
    /// [default: samples=90, 10s=3, 5m=90, 1h=800, 1d=3660]
    #[arg(long, value_name = "WHAT=DAYS", value_parser = keep)]
    keep: Vec<(Kept, u32)>,

    /// Collect from the devices with this tag; may be repeated [default: all devices]
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<String>,

    /// Accept the clock of this machine although it is more than 2 days from the hub's last time, as
    /// after a longer stop
    #[arg(long)]
    accept_clock: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Nanos>().map_err(|error| error.to_string())?.to_std();
    if time < Duration::from_secs(1) || time > MAX_INTERVAL {
        return Err(format!("'{text}' is not in 1s to {}s", MAX_INTERVAL.as_secs()));
    }
    Ok(time)
}

/// What is kept for a number of days.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Samples,
    Rows(Resolution),
}

fn keep(text: &str) -> Result<(Kept, u32), String> {
    let wrong =
        || "write it like 10s=7: samples, 10s, 5m, 1h or 1d, and a number of days".to_owned();
    let (what, days) = text.split_once('=').ok_or_else(wrong)?;
    let kept = match what {
        "samples" => Kept::Samples,
        resolution => Kept::Rows(Resolution::named(resolution).ok_or_else(wrong)?),
    };
    Ok((kept, days.parse().map_err(|_| wrong())?))
}

/// Everything that the threads share.
struct Shared {
    store: SharedStore,
    /// What the database knows about the collections of this hub.
    collections: OwnCollections,
    binaries: NodeBinaries,
    rules: Rules,
    /// The data directory.
    dir: PathBuf,
    samples_days: u32,
    interval: Duration,
    stop: Arc<AtomicBool>,
}

/// Runs the hub until a signal.
pub(super) fn run(
    args: &EmbeddedArgs,
    database: &DatabaseArgs,
    bus: &BusArgs,
    data: &DataArgs,
) -> Result<Exit, Failure> {
    let mut retention = Retention::default();
    let mut samples_days = DEFAULT_SAMPLES_DAYS;
    for (kept, days) in &args.keep {
        match kept {
            Kept::Samples => samples_days = *days,
            Kept::Rows(resolution) => retention.set(*resolution, *days),
        }
    }
    retention.check().map_err(|error| Failure::usage(format!("--keep: {error}")))?;
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    let stop = Arc::new(AtomicBool::new(false));
    dwell_node_cli::on_signal_or_end(&stop)?;
    let dir = data.data.clone();
    let catalogue = data.open()?;
    let _lock = HubLock::take(&dir)?;
    remove_partial_samples(&dir)?;
    let mut store = database.open(data)?;
    let rules = Rules { retention, ..Rules::default() };
    if args.accept_clock {
        accept_clock(&mut store, now_ns())?;
    }
    match store_unknown_versions(&mut store, &rules) {
        Ok(0) => {}
        Ok(stored) => {
            say(&format!("dwell: stored {stored} kept records, whose version this dwell knows"));
        }
        Err(error) => say(&format!("dwell: kept records stay as they are: {}", chain(&error))),
    }
    let shared = Arc::new(Shared {
        store: Arc::new(Mutex::new(store)),
        collections: OwnCollections::new(&dir),
        binaries: NodeBinaries::find(&program)?,
        rules,
        dir,
        samples_days,
        interval: args.interval,
        stop,
    });
    let mut stores = [database.open(data)?, database.open(data)?];
    if !database.is_shared() {
        // No other hub is active here, so claims are those of hubs that were killed.
        recover(&mut stores[0], now_ns())?;
    }
    let mut hub = Supervisor { shared, tags: args.tag.clone(), collecting: BTreeMap::new() };
    // Alerts are evaluated at once, and may want samples.
    hub.begin_collections(&catalogue, args.embedded, !database.is_shared())?;
    let evaluation = alerting::start(stores, &hub.shared.stop);
    let receiving = bus.start(data, rules, &hub.shared.store, &hub.shared.stop);
    hub.run(&catalogue, args.embedded);
    let _ = evaluation.join();
    if let Some(receiving) = receiving {
        receiving.finish()?;
    }
    say("dwell: hub stopped");
    Ok(Exit::Measured)
}

fn say_unread(error: &StoreError) {
    say(&format!("dwell: devices are not read: {}", chain(error)));
}

/// Starts and ends the collection from each device.
struct Supervisor {
    shared: Arc<Shared>,
    /// Tags of the devices to collect from; empty for all.
    tags: Vec<String>,
    collecting: BTreeMap<String, Collecting>,
}

/// The thread that collects from one device.
struct Collecting {
    device: Device,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Stores from which devices this hub collects.
    fn begin_collections(
        &self,
        catalogue: &Store,
        collects: bool,
        is_alone: bool,
    ) -> Result<(), HubError> {
        let devices = if collects { self.read_devices(catalogue) } else { Ok(BTreeMap::new()) };
        let devices = match devices {
            Ok(devices) => devices,
            // They stay as they were until the catalogue can be read.
            Err(error) => {
                say_unread(&error);
                return Ok(());
            }
        };
        let nodes: BTreeSet<Name> = devices.keys().filter_map(|name| name.parse().ok()).collect();
        let mut store = self.shared.store.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.collections.begin(&mut *store, &nodes, is_alone)
    }

    fn run(&mut self, catalogue: &Store, collects: bool) {
        let mut announced = false;
        let mut expired: Option<Instant> = None;
        while !self.shared.stop.load(Ordering::Relaxed) {
            // The catalogue may be locked for a moment; collection goes on.
            if collects && let Err(error) = self.follow_catalogue(catalogue) {
                say_unread(&error);
            }
            if !announced {
                let (dir, count) = (self.shared.dir.display(), self.collecting.len());
                let devices = match count {
                    _ if !collects => String::new(),
                    0 => ", 0 devices; add each node by `dwell device add NAME DESTINATION \
                          --address ADDRESS`"
                        .to_owned(),
                    count => format!(", {count} devices"),
                };
                say(&format!("dwell: hub started on {dir}{devices}"));
                announced = true;
            }
            if expired.is_none_or(|at| at.elapsed() >= EXPIRY_INTERVAL) {
                self.expire();
                expired = Some(Instant::now());
            }
            self.wait(DEVICES_INTERVAL);
        }
        for collecting in self.collecting.values() {
            collecting.stop.store(true, Ordering::Relaxed);
        }
        for (_, collecting) in std::mem::take(&mut self.collecting) {
            let _ = collecting.thread.join();
        }
        let mut store = self.shared.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.shared.collections.end(&mut *store) {
            say(&format!("dwell: faults of nodes are not removed: {}", chain(&error)));
        }
    }

    fn wait(&self, time: Duration) {
        wait(time, &[&self.shared.stop]);
    }

    /// Returns the devices with the tags of this hub.
    fn read_devices(&self, catalogue: &Store) -> Result<BTreeMap<String, Device>, StoreError> {
        let devices = KnownDevice::all(catalogue, &say_problem)?;
        let has_tag = |device: &Device| device.tags.iter().any(|tag| self.tags.contains(tag));
        Ok(devices
            .into_iter()
            .filter(|known| self.tags.is_empty() || has_tag(&known.device))
            .map(|known| (known.device.name.clone(), known.device))
            .collect())
    }

    /// Starts threads for new or changed devices, and ends those of removed ones.
    fn follow_catalogue(&mut self, catalogue: &Store) -> Result<(), StoreError> {
        let devices = self.read_devices(catalogue)?;
        let is_current =
            |name: &String, collecting: &Collecting| devices.get(name) == Some(&collecting.device);
        let ended: Vec<String> = self
            .collecting
            .iter()
            .filter(|(name, collecting)| !is_current(name, collecting))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            if let Some(collecting) = self.collecting.remove(&name) {
                collecting.stop.store(true, Ordering::Relaxed);
                let _ = collecting.thread.join();
            }
            if let Ok(node) = name.parse() {
                let Shared { store, collections, .. } = &*self.shared;
                self.say_unless_stored(collections.remove(store, &node));
            }
        }
        for (name, device) in devices {
            if self.collecting.contains_key(&name) {
                continue;
            }
            let Ok(node) = name.parse::<Name>() else {
                say(&format!("dwell: device {name} is left out: no agent can have this name"));
                continue;
            };
            let Shared { store, collections, .. } = &*self.shared;
            self.say_unless_stored(collections.add(store, &node));
            let stop = Arc::new(AtomicBool::new(false));
            let (shared, of_thread) = (Arc::clone(&self.shared), Arc::clone(&stop));
            let collected = device.clone();
            let thread = thread::spawn(move || collect(&shared, &node, &collected, &of_thread));
            self.collecting.insert(name, Collecting { device, stop, thread });
            self.wait(START_INTERVAL);
        }
        Ok(())
    }

    fn say_unless_stored(&self, outcome: Result<(), HubError>) {
        if let Err(error) = outcome {
            say(&format!("dwell: a node's state is not stored: {}", chain(&error)));
        }
    }

    fn expire(&self) {
        let Shared { store, rules, dir, samples_days, .. } = &*self.shared;
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = now_ns();
        if let Err(error) = expire(&mut *store, &rules.retention, now_ns)
            .and_then(|_| expire_samples(&mut *store, dir, *samples_days, now_ns))
        {
            say(&format!("dwell: expired rows and samples are not removed yet: {}", chain(&error)));
        }
    }
}

/// Waits, unless one of the flags is set.
pub(super) fn wait(time: Duration, stops: &[&AtomicBool]) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stops.iter().any(|stop| stop.load(Ordering::Relaxed)) {
            return;
        }
        thread::sleep(left.min(STOP_POLL_INTERVAL));
    }
}

/// The spool of a device over SSH.
struct SshSpool(SpoolLink);

impl NodeSpool for SshSpool {
    type Error = FleetError;

    fn status(&mut self) -> Result<Option<StatusFile>, FleetError> {
        self.0.status()
    }

    fn read(
        &mut self,
        level: Level,
        from: Option<SpoolCursor>,
    ) -> Result<(Vec<u8>, Option<SpoolCursor>, bool), FleetError> {
        let read = self.0.read(level, from, None)?;
        Ok((read.records, read.next, read.has_more))
    }

    fn read_samples(
        &mut self,
        from: Option<SpoolCursor>,
        written_ns: (i64, i64),
    ) -> Result<(Vec<u8>, Option<SpoolCursor>, bool), FleetError> {
        let read = self.0.read(Level::Samples, from, Some(written_ns))?;
        Ok((read.records, read.next, read.has_more))
    }

    fn put_receipts(
        &mut self,
        receipts: BTreeMap<Incarnation, RangeSet>,
    ) -> Result<(), FleetError> {
        self.0.put_receipts(receipts)
    }

    fn put_schedule(&mut self, schedule: NodeSchedule) -> Result<(), FleetError> {
        self.0.put_schedule(schedule)
    }
}

/// Collects from one device until it is stopped. Reports changes, not every round.
fn collect(shared: &Shared, node: &Name, device: &Device, stop: &Arc<AtomicBool>) {
    let is_stopped = || stop.load(Ordering::Relaxed) || shared.stop.load(Ordering::Relaxed);
    let mut news = News::new(node, &*shared.store, &shared.collections);
    while !is_stopped() {
        let reason = match SpoolLink::open(device, &shared.binaries, stop) {
            Ok(link) => collect_over(shared, node, SshSpool(link), &mut news, &is_stopped, stop),
            Err(error) => chain(&error),
        };
        if is_stopped() {
            return;
        }
        news.failed(reason);
        wait(shared.interval, &[stop, &shared.stop]);
    }
}

/// Collects over one connection until it fails, and returns why.
fn collect_over(
    shared: &Shared,
    node: &Name,
    mut spool: SshSpool,
    news: &mut News,
    is_stopped: &dyn Fn() -> bool,
    stop: &AtomicBool,
) -> String {
    let mut collector = Collector::new(node.clone(), shared.rules).with_samples(&shared.dir);
    while !is_stopped() {
        let mut is_cut = false;
        match collector.round(&mut spool, &shared.store, now_ns) {
            Ok(round) => {
                is_cut = round.is_cut;
                news.collected(&round);
                if round.counts.stored > 0 && news.is_check_due() {
                    news.simultaneous(simultaneous(shared, node));
                }
            }
            // The connection is intact, and the node keeps its records.
            Err(CollectError::Hub(error)) => news.failed(chain(&error)),
            Err(error @ CollectError::OtherName { .. }) => news.failed(error.to_string()),
            Err(CollectError::Carrier(error)) => return chain(&error),
        }
        if !is_cut {
            wait(shared.interval.min(MAX_REQUEST_INTERVAL), &[stop, &shared.stop]);
        }
    }
    String::new()
}

/// Two agents of a node that ran at the same time.
fn simultaneous(shared: &Shared, node: &Name) -> Option<SimultaneousAgents> {
    let mut store = shared.store.lock().unwrap_or_else(PoisonError::into_inner);
    let mut transaction = store.begin_to_read().ok()?;
    let nodes = transaction.nodes().ok()?;
    let number = nodes.iter().find(|known| known.name == *node)?.id;
    simultaneous_agents(&transaction.incarnations_of(number).ok()?)
}

/// What was said about a device.
struct News<'a> {
    node: &'a Name,
    store: &'a Mutex<dyn HubStore + Send>,
    collections: &'a OwnCollections,
    /// The last state.
    state: String,
    /// Whether the database has it.
    is_stored: bool,
    simultaneous: Option<SimultaneousAgents>,
    /// Version of the schedule that was reported last.
    schedule: Option<u64>,
    /// Time of the last check for simultaneous agents.
    checked: Option<Instant>,
}

impl<'a> News<'a> {
    fn new(
        node: &'a Name,
        store: &'a Mutex<dyn HubStore + Send>,
        collections: &'a OwnCollections,
    ) -> Self {
        let state = String::new();
        Self {
            node,
            store,
            collections,
            state,
            is_stored: false,
            simultaneous: None,
            schedule: None,
            checked: None,
        }
    }

    /// Reports a state that differs from the last one. A fault is also for `dwell hub nodes`; it is stored
    /// in a later round if the database fails.
    fn state(&mut self, state: String, is_fault: bool) {
        let is_new = state != self.state;
        if is_new {
            say(&format!("dwell: {}: {state}", self.node));
            self.state = state;
            self.is_stored = false;
        }
        if self.is_stored {
            return;
        }
        let fault = is_fault.then_some(self.state.as_str());
        match self.collections.set_fault(self.store, self.node, fault) {
            Ok(()) => self.is_stored = true,
            Err(error) if is_new => {
                say(&format!("dwell: {}: its state is not stored: {}", self.node, chain(&error)));
            }
            Err(_) => {}
        }
    }

    fn failed(&mut self, reason: String) {
        // The error of a device begins with its name.
        let prefix = format!("device {}: ", self.node);
        self.state(reason.strip_prefix(&prefix).unwrap_or(&reason).to_owned(), true);
    }

    fn collected(&mut self, round: &Round) {
        match (round.fault(), &round.pause) {
            (Some(fault), _) => self.state(fault, true),
            (None, Some(pause)) => {
                self.state(format!("collecting; the agent is paused: {}", pause.reason), false);
            }
            (None, None) => self.state("collecting".to_owned(), false),
        }
        // Each connection leaves the schedule again.
        if let Some(version) = round.schedule.filter(|version| self.schedule != Some(*version)) {
            self.schedule = Some(version);
            say(&format!("dwell: {}: received schedule version {version}", self.node));
        }
        for reason in round.bad.iter().take(MAX_REASONS) {
            say(&format!("dwell: {}: bad record, kept raw: {reason}", self.node));
        }
        if round.counts.deferred > 0 {
            let (node, count) = (self.node, round.counts.deferred);
            say(&format!(
                "dwell: {node}: {count} records wait for later: its agent starts too often, or too many \
                 records are missing"
            ));
        }
        let more = round.counts.bad.saturating_sub(MAX_REASONS as u64);
        if more > 0 {
            say(&format!("dwell: {}: {more} more bad records", self.node));
        }
    }

    /// Whether simultaneous agents are to be looked for; counts as such a check.
    fn is_check_due(&mut self) -> bool {
        let is_due = self.checked.is_none_or(|at| at.elapsed() >= SIMULTANEOUS_INTERVAL);
        if is_due {
            self.checked = Some(Instant::now());
        }
        is_due
    }

    fn simultaneous(&mut self, found: Option<SimultaneousAgents>) {
        if let Some(SimultaneousAgents { incarnations: [first, second], .. }) = found
            && found != self.simultaneous
        {
            say(&format!(
                "dwell: {}: agents {first} and {second} overlap in time: two machines may use this \
                 name; both are kept; see `dwell hub nodes`",
                self.node
            ));
        }
        self.simultaneous = found;
    }
}

#[cfg(test)]
mod tests {
    use dwell_hub::{SqliteStore, collections};

    use super::*;

    fn faults_of(store: &Mutex<dyn HubStore + Send>) -> Vec<(String, Option<String>)> {
        let mut store = store.lock().unwrap();
        let mut transaction = store.begin_to_read().unwrap();
        let known = collections(&mut *transaction).unwrap();
        known.into_iter().map(|known| (known.node.to_string(), known.fault)).collect()
    }

    #[test]
    fn fault_that_was_not_stored_is_stored_later() {
        let dir = tempfile::tempdir().unwrap();
        let store = Mutex::new(SqliteStore::open(dir.path()).unwrap());
        let node = "a".parse().unwrap();
        let own = OwnCollections::new(dir.path());
        let mut news = News::new(&node, &store, &own);
        let db = rusqlite::Connection::open(dir.path().join("hub.sqlite")).unwrap();
        db.execute_batch("ALTER TABLE texts RENAME TO hidden").unwrap();
        news.failed("unreachable".to_owned());
        db.execute_batch("ALTER TABLE hidden RENAME TO texts").unwrap();
        assert_eq!(faults_of(&store), []);
        news.failed("unreachable".to_owned());
        assert_eq!(faults_of(&store), [("a".to_owned(), Some("unreachable".to_owned()))]);
    }
}
