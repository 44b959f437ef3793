//! `dwell agent`: measures all day on a schedule, and answers probes.
//!
//! `config` reads the configuration. A `stream` per schedule entry sends probes and rolls them up;
//! `reflector` answers those of others. `spool` keeps records on disk, written by `spool_thread`, until
//! carriers have brought them to a hub; carriers use `spool_access`. `pause` finds requests to send
//! nothing. This file decides what runs.

mod config;
mod pause;
mod reflector;
mod spool;
pub(crate) mod spool_access;
mod spool_thread;
mod stream;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use dwell_io::{clock, machine, process};
use dwell_rollup::{
    BootId, Incarnation, MAX_SCHEDULE_LEN, Name, NodeClocks, NodeSchedule, Pause, PauseInterval,
    Refusal, SCHEDULE_FILE, SendBudget, Status, StepWatch, StreamFault,
};
use dwell_units::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{Exit, Failure};
use config::AgentConfig;
use reflector::AgentReflector;
use spool::{Incarnations, Spool, SpoolOptions};
use spool_access::read_small;
use spool_thread::SpoolThread;
use stream::{AgentStream, Counted, NodeLimits};

/// Interval between turns of the agent.
const TURN_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between looks at the files of carriers, at pauses and at times of day.
const CONTROL_INTERVAL: Duration = Duration::from_millis(500);

/// Time after the start of a stream in which it uses code that it does not need later.
const STREAM_START_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between status records without news.
const STATUS_INTERVAL: Duration = Duration::from_secs(300);

/// Minimum interval between status records.
const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for streams and the reflector to end. procd kills a process 5 s after its request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of pauses that a status names.
const MAX_PAUSES: usize = 100;

/// Maximum length of a reason in a status in characters.
const MAX_REASON_LEN: usize = 300;

/// Arguments of `agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
docs/fleet.md describes the configuration and the spool.\n\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a runtime failure, 2 usage.")]
pub struct Args {
    /// Configuration (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let config = AgentConfig::read(&args.config).map_err(|error| Failure {
        exit: Exit::Usage,
        error: error.context("invalid value for --config"),
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    // Threads come and go, and files are deleted while they run.
    process::share_descriptors();
    let mut agent = Agent::start(config)?;
    if !args.quiet {
        crate::say(&format!("agent {} is running", agent.config.node));
    }
    while !stop.load(Ordering::Relaxed) {
        agent.turn();
        thread::sleep(TURN_INTERVAL);
    }
    agent.end();
    Ok(Exit::Measured)
}

struct Agent {
    config: AgentConfig,
    limits: Arc<NodeLimits>,
    spool: SpoolThread,
    random: Xoshiro256PlusPlus,
    watch: StepWatch,
    clocks: NodeClocks,
    /// The hub's schedule in effect.
    schedule: Option<NodeSchedule>,
    schedule_error: Option<String>,
    /// Identity of the schedule file that was read last.
    schedule_file: Option<(SystemTime, u64)>,
    /// All entries that the local limits admit.
    admitted: NodeSchedule,
    refused: Vec<Refusal>,
    /// Running streams.
    streams: Vec<AgentStream>,
    /// Streams that were stopped and have not ended.
    ending: Vec<AgentStream>,
    /// Counts of streams that have ended.
    counted: Counted,
    /// Entries whose stream cannot start.
    faults: Vec<StreamFault>,
    reflector: Option<AgentReflector>,
    pause: Option<Pause>,
    pauses: Vec<PauseInterval>,
    /// Faults in the last status.
    reported: Vec<StreamFault>,
    last_control: Instant,
    /// `None` before the first.
    last_status: Option<Instant>,
    /// Something changed that the hub should know soon.
    has_news: bool,
    /// When the last stream started, until the code of starts is released.
    last_start: Option<Instant>,
}

impl Agent {
    fn start(config: AgentConfig) -> Result<Self, Failure> {
        let mut random = Xoshiro256PlusPlus::from_seed(random_seed()?);
        let incarnations = Incarnations {
            rollups: Incarnation(random.next_u64()),
            samples: Incarnation(random.next_u64()),
        };
        let options = SpoolOptions {
            dir: config.spool.clone(),
            max_len: config.spool_size.0,
            sync_interval: config.sync_interval.to_std(),
        };
        let boot_id = BootId(machine::boot_id().unwrap_or_default());
        let spool = Spool::open(options, config.node.clone(), boot_id, incarnations)?;
        let spool = SpoolThread::start(spool)?;
        let pairing = clock::pair();
        let watch = StepWatch::new(pairing);
        let clocks = node_clocks(&watch, clock::suspended());
        let reflector = config.reflect.clone().map(AgentReflector::new);
        let budget = SendBudget::new(&config.limits, clock::monotonic());
        let limits = NodeLimits { limits: config.limits.clone(), budget };
        let mut agent = Self {
            limits: Arc::new(limits),
            admitted: config.merged(None).0,
            config,
            spool,
            random,
            watch,
            clocks,
            schedule: None,
            schedule_error: None,
            schedule_file: None,
            refused: Vec::new(),
            streams: Vec::new(),
            ending: Vec::new(),
            counted: Counted::default(),
            faults: Vec::new(),
            reflector,
            pause: None,
            pauses: Vec::new(),
            reported: Vec::new(),
            last_control: Instant::now(),
            last_status: None,
            has_news: true,
            last_start: None,
        };
        agent.admit();
        agent.control();
        Ok(agent)
    }

    /// One turn: takes samples, and now and then looks at what should run.
    fn turn(&mut self) {
        self.take_samples();
        if self.last_control.elapsed() >= CONTROL_INTERVAL {
            self.control();
        }
        let since_status = self.last_status.map_or(STATUS_INTERVAL, |last| last.elapsed());
        if self.has_news && since_status >= MIN_STATUS_INTERVAL || since_status >= STATUS_INTERVAL {
            self.write_status();
        }
    }

    fn take_samples(&mut self) {
        let ended: Vec<_> = self.ending.iter().map(AgentStream::has_ended).collect();
        self.streams.iter_mut().chain(&mut self.ending).for_each(AgentStream::take);
        // After the samples were taken and before they are used: a step since the last turn makes them
        // void.
        let step = self.watch.update(clock::pair());
        if let Some(step) = &step {
            self.move_pauses(step.by);
        }
        self.clocks = self.read_clocks();
        let Self { streams, ending, spool, clocks, .. } = self;
        let mut out = |body| spool.append(body, clocks);
        for stream in streams.iter_mut().chain(ending.iter_mut()) {
            stream.record(clocks, step.as_ref(), &mut out);
        }
        let mut ended = ended.into_iter();
        ending.retain_mut(|stream| {
            let is_over = ended.next().unwrap_or(false);
            if is_over {
                stream.finish(clocks, &mut out);
                self.counted = self.counted.with(stream);
            }
            !is_over
        });
    }

    fn read_clocks(&self) -> NodeClocks {
        // The difference of two clocks has the noise of reading them; a suspension is longer.
        const MIN_SUSPENSION: Nanos = Nanos::from_millis(10);
        let (before, now) = (self.clocks.suspended, clock::suspended());
        let suspended = if (now - before).abs() < MIN_SUSPENSION { before } else { now };
        node_clocks(&self.watch, suspended)
    }

    /// Reads the files of carriers, and starts and stops what should run.
    fn control(&mut self) {
        self.last_control = Instant::now();
        self.limits.budget.tend(clock::monotonic());
        self.read_schedule();
        self.read_pause();
        let is_paused = self.pause.is_some();
        if let Some(reflector) = &mut self.reflector {
            reflector.tend(!is_paused);
        }
        let wall_ns = self.clocks.wall_ns();
        let wanted: Vec<_> = match is_paused {
            true => Vec::new(),
            false => {
                let active = self.admitted.entries.iter();
                active.filter(|entry| entry.is_active(wall_ns)).cloned().collect()
            }
        };
        let (kept, stopped): (Vec<_>, Vec<_>) = std::mem::take(&mut self.streams)
            .into_iter()
            .partition(|stream| wanted.contains(&stream.entry));
        stopped.iter().for_each(AgentStream::stop);
        self.ending.extend(stopped);
        self.streams = kept;
        self.faults.retain(|fault| wanted.iter().any(|entry| entry.name == fault.entry));
        for entry in wanted {
            let version = self.config.version_of(&entry.name, &self.admitted);
            let running = self.streams.iter_mut().find(|stream| stream.entry.name == entry.name);
            if let Some(running) = running {
                let (spool, clocks) = (&mut self.spool, &self.clocks);
                running.set_version(version, clocks, &mut |body| spool.append(body, clocks));
                continue;
            }
            if self.faults.iter().any(|fault| fault.entry == entry.name) {
                continue;
            }
            let interval = entry.interval.0.max(1) as u64;
            let phase = Nanos((self.random.next_u64() % interval) as i64);
            let name = entry.name.clone();
            let pairing = self.watch.last();
            match AgentStream::start(entry, version, phase, &self.limits, pairing) {
                Ok(stream) => {
                    self.streams.push(stream);
                    self.last_start = Some(Instant::now());
                }
                // The entry is wrong; another schedule may correct it.
                Err(failure) => self.faults.push(fault(name, &format!("{:#}", failure.error))),
            }
            self.has_news = true;
        }
        self.has_news |= self.all_faults() != self.reported;
        if self.last_start.is_some_and(|start| start.elapsed() >= STREAM_START_INTERVAL) {
            self.last_start = None;
            // Of the program, running streams need a small part.
            let _ = process::release_code();
        }
    }

    /// Reads the schedule of the hub if its file has changed.
    fn read_schedule(&mut self) {
        let path = self.config.spool.join(SCHEDULE_FILE);
        let found = fs::metadata(&path).ok();
        let found = found.and_then(|found| Some((found.modified().ok()?, found.len())));
        if found == self.schedule_file {
            return;
        }
        self.schedule_file = found;
        self.has_news = true;
        let read = match read_small(&path, MAX_SCHEDULE_LEN) {
            Ok(None) => Ok(None),
            Ok(Some(text)) => match NodeSchedule::from_json(text.as_bytes()) {
                Ok(schedule) if schedule.node != self.config.node => Err(format!(
                    "the schedule is for node {}, this is {}",
                    schedule.node, self.config.node
                )),
                Ok(schedule) => Ok(Some(schedule)),
                Err(error) => Err(error.to_string()),
            },
            Err(error) => Err(error.to_string()),
        };
        self.schedule_error = match read {
            Ok(schedule) => {
                self.schedule = schedule;
                self.faults.clear();
                self.admit();
                None
            }
            // The schedule so far stays in effect.
            Err(error) => {
                crate::say(&format!("dwell: {error}"));
                Some(shortened(&error))
            }
        };
    }

    /// Decides which entries the local limits admit.
    fn admit(&mut self) {
        let (mut all, hidden) = self.config.merged(self.schedule.as_ref());
        self.refused = all.refusals(&self.config.limits);
        all.entries.retain(|entry| self.refused.iter().all(|refused| refused.entry != entry.name));
        self.refused.extend(hidden.into_iter().map(|entry| {
            let limit = "name: the node's configuration has an entry with this name".to_owned();
            Refusal { entry, limit }
        }));
        for Refusal { entry, limit } in &self.refused {
            crate::say(&format!("dwell: entry {entry} is refused: {limit}"));
        }
        self.admitted = all;
    }

    /// Moves the times of pauses that are not reported yet, after a step of CLOCK_REALTIME.
    fn move_pauses(&mut self, by: Nanos) {
        let times = self.pauses.iter_mut();
        let times = times.flat_map(|pause| [&mut pause.from_wall_ns, &mut pause.to_wall_ns]);
        let started = self.pause.iter_mut().map(|pause| &mut pause.since_wall_ns);
        times.chain(started).for_each(|at| *at = at.saturating_add(by.0));
    }

    fn read_pause(&mut self) {
        let requested = pause::requested(&self.config.spool);
        let now = self.clocks.wall_ns();
        let is_same = |pause: &Pause| requested.as_ref() == Some(&pause.reason);
        if self.pause.as_ref().is_some_and(is_same) || requested.is_none() && self.pause.is_none() {
            return;
        }
        if let Some(Pause { reason, since_wall_ns }) = self.pause.take()
            && self.pauses.len() < MAX_PAUSES
        {
            let ended = PauseInterval { reason, from_wall_ns: since_wall_ns, to_wall_ns: now };
            self.pauses.push(ended);
        }
        self.pause = requested.map(|reason| Pause { reason, since_wall_ns: now });
        self.has_news = true;
    }

    /// Entries whose stream does not run, with the reasons.
    fn all_faults(&self) -> Vec<StreamFault> {
        let mut faults = self.faults.clone();
        for stream in &self.streams {
            let reason = stream.fault();
            faults.extend(reason.map(|reason| fault(stream.entry.name.clone(), reason)));
        }
        faults
    }

    fn write_status(&mut self) {
        self.last_status = Some(Instant::now());
        self.has_news = false;
        let counted = self.streams.iter().chain(&self.ending).fold(self.counted, Counted::with);
        let faults = self.all_faults();
        self.reported.clone_from(&faults);
        let reflector = self.reflector.as_ref();
        let status = Status {
            dwell: crate::build().to_owned(),
            schedule_version: self.admitted.version,
            streams: self.streams.len() as u64,
            refused: self.refused.clone(),
            faults,
            reflector_error: reflector.and_then(AgentReflector::fault).map(shortened),
            schedule_error: self.schedule_error.clone(),
            samples_lost: counted.samples_lost,
            replies_after_record: counted.replies_after_record,
            pause: self.pause.clone(),
            pauses: std::mem::take(&mut self.pauses),
            clock_synchronised: self.clocks.is_synchronised,
            clock_bound_ns: self.clocks.bound_ns,
            clock_steps: self.watch.steps(),
            ..Status::default()
        };
        self.spool.append_status(status, &self.clocks);
    }

    /// Stops everything, and writes all records.
    fn end(mut self) {
        self.streams.iter().for_each(AgentStream::stop);
        self.ending.append(&mut self.streams);
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        let is_reflecting = |agent: &mut Self| {
            agent.reflector.as_mut().is_some_and(|reflector| {
                reflector.tend(false);
                reflector.is_running()
            })
        };
        while (is_reflecting(&mut self) || !self.ending.is_empty()) && Instant::now() < deadline {
            self.take_samples();
            thread::sleep(Duration::from_millis(10));
        }
        // A stream that hangs, such as in the resolution of a name, has its records so far.
        let Self { ending, spool, clocks, .. } = &mut self;
        for stream in ending {
            stream.finish(clocks, &mut |body| spool.append(body, clocks));
        }
        self.write_status();
        self.spool.end();
    }
}

impl Counted {
    /// Adds the counts of a stream.
    fn with(self, stream: &AgentStream) -> Self {
        let counted = stream.counted();
        Self {
            samples_lost: self.samples_lost + counted.samples_lost + stream.dropped(),
            replies_after_record: self.replies_after_record + counted.replies_after_record,
        }
    }
}

/// Random bytes of the kernel. Waits until it has any: two cards with the same image, booted at the same
/// time, must not draw the same incarnation.
fn random_seed() -> anyhow::Result<[u8; 32]> {
    const SOURCE: &str = "/dev/random";
    let mut seed = [0; 32];
    let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut seed));
    read.with_context(|| format!("cannot read {SOURCE}"))?;
    Ok(seed)
}

/// The clocks at the last pairing.
fn node_clocks(watch: &StepWatch, suspended: Nanos) -> NodeClocks {
    let bound = clock::utc_error();
    NodeClocks {
        pairing: *watch.last(),
        suspended,
        is_synchronised: bound.is_some(),
        bound_ns: bound.map(|bound| bound.0.max(0) as u64),
    }
}

fn fault(entry: Name, reason: &str) -> StreamFault {
    StreamFault { entry, reason: shortened(reason) }
}

fn shortened(reason: &str) -> String {
    reason.chars().take(MAX_REASON_LEN).collect()
}
