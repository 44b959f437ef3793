//! What a node needs: memory of the real agent and the real uplink, and whether an uplink that drains a
//! spool disturbs the agent.
//!
//! The programs of the node share one core; the hub, the server and PostgreSQL, which are on another
//! machine in a real fleet, run on the other one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dwell_record::segment;
use dwell_rollup::{
    Body, Level, Piece, RECEIPTS_DIR, RangeSet, Record, RecordFile, STATUS_FILE, level_dir, pieces,
};
use serde::Serialize;

use super::database::Database;
use super::generator::now_ns;
use super::network::Network;
use super::records::{INTERVAL_NS, RecordForm, SimulatedAgent, agent_name};
use super::usage::{memory_mb, pin};
use crate::lab::sibling;
use crate::{Interrupt, Server};

/// Streams of the agent, and their probes per second.
const STREAMS: u64 = 10;
const PROBE_INTERVAL: &str = "10ms";

/// Cores of the node, and of everything else.
const NODE_CORE: usize = 0;
const OTHER_CORE: usize = 1;

/// Streams of the node whose spool is drained: its 10 s records fit into their retention.
const BACKLOG_STREAMS: u64 = 20;

/// Length of a record file in bytes, about that of an agent.
const FILE_LEN: usize = 1 << 20;

/// Time for an agent to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for an uplink to drain its spool.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Length of a turn without the draining uplink before the first one that has it.
const FIRST_TURN: Duration = Duration::from_secs(15);

/// Time at both ends of a turn whose probes do not count.
const MARGIN: Duration = Duration::from_millis(500);

/// Interval between looks at receipts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Footprint {
    /// The program of the agent.
    pub(super) agent: PathBuf,
    /// Largest resident memory in MB: of the agent, of the uplink that ships its spool, and of the one that
    /// drains a backlog.
    pub(super) agent_mb: f64,
    pub(super) uplink_mb: f64,
    pub(super) draining_uplink_mb: f64,
    /// Length of the drained spool in MB.
    pub(super) spool_mb: f64,
    /// Mean length in bytes of the agent's records: 10 s, 5 min, status, and a sample.
    pub(super) record_bytes: RecordBytes,
    /// Turns.
    pub(super) turns: Vec<Turn>,
}

/// Mean lengths of records in bytes; `None` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct RecordBytes {
    pub(super) ten_seconds: Option<f64>,
    pub(super) five_minutes: Option<f64>,
    pub(super) status: Option<f64>,
    pub(super) sample: Option<f64>,
}

/// p99 of the schedule error in us, with and without an uplink that drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Turn {
    pub(super) alone_us: f64,
    pub(super) draining_us: f64,
    /// Time that the uplink needed in seconds.
    pub(super) drain_seconds: f64,
}

/// Size of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rounds: u64,
    pub(super) spool_mb: u64,
    pub(super) form: RecordForm,
}

/// CLOCK_REALTIME of a turn in nanoseconds.
type Span = (i64, i64);

/// Runs an agent with its uplink, and in every other turn another uplink that drains a spool.
pub(super) fn measure(size: Size, interrupt: &Interrupt) -> Result<Footprint> {
    let folder = tempfile::tempdir()?;
    let network = Network::start(folder.path(), 2)?;
    let database = Database::start()?;
    let hub = network.start_hub(&database.url())?;
    for process in [hub.id(), network.server_id(), database.id()] {
        pin(process, OTHER_CORE)?;
    }
    let node = NodeProgram::find()?;
    let reflector = node.start_reflector(folder.path())?;
    let spool = folder.path().join("agent");
    let agent = node.start_agent(folder.path(), &spool, reflector.port)?;
    let uplink = start_uplink(&network, 1, &spool)?;
    let mut measured = Footprint { agent: node.path.clone(), ..Footprint::default() };
    let mut spans: Vec<(Span, Span, f64)> = Vec::new();
    let mut length = FIRST_TURN;
    for round in 0..size.rounds {
        if interrupt.came() {
            break;
        }
        eprintln!("footprint: round {} of {}", round + 1, size.rounds);
        let backlog = Backlog::write(&folder.path().join("backlog"), size, round + 1)?;
        measured.spool_mb = backlog.bytes as f64 / 1e6;
        let mut alone = (0, 0);
        let mut draining = (0, 0);
        for at in 0..2 {
            let start_ns = now_ns();
            if (at + round).is_multiple_of(2) {
                let uplink = start_uplink(&network, 2, &backlog.dir)?;
                let start = Instant::now();
                backlog.await_receipts(interrupt)?;
                length = start.elapsed();
                let memory = memory_mb(uplink.id())?.0;
                measured.draining_uplink_mb = measured.draining_uplink_mb.max(memory);
                draining = (start_ns, now_ns());
                uplink.stop()?;
            } else {
                thread::sleep(length);
                alone = (start_ns, now_ns());
            }
        }
        spans.push((alone, draining, length.as_secs_f64()));
    }
    measured.agent_mb = memory_mb(agent.id())?.0;
    measured.uplink_mb = memory_mb(uplink.id())?.0;
    agent.stop()?;
    uplink.stop()?;
    reflector.server.stop()?;
    hub.stop()?;
    let read = SpoolReader::read(&spool)?;
    measured.record_bytes = read.record_bytes();
    for (alone, draining, drain_seconds) in spans {
        match (read.p99_us(alone), read.p99_us(draining)) {
            (Ok(alone_us), Ok(draining_us)) => {
                measured.turns.push(Turn { alone_us, draining_us, drain_seconds });
            }
            // The memory is known nevertheless.
            (Err(error), _) | (_, Err(error)) => eprintln!("footprint: {error}"),
        }
    }
    Ok(measured)
}

/// The program of a node.
struct NodeProgram {
    path: PathBuf,
}

/// A process that answers probes.
struct Reflector {
    server: Server,
    port: u16,
}

impl NodeProgram {
    /// The static program of `make nodes`, or the one beside the bench.
    fn find() -> Result<Self> {
        let beside = sibling("dwell-node")?;
        let target = beside.parent().and_then(Path::parent).context("no target directory")?;
        let small = target.join("nodes/x86_64/dwell-node");
        Ok(Self { path: if small.exists() { small } else { beside } })
    }

    fn start_reflector(&self, dir: &Path) -> Result<Reflector> {
        // Free a moment ago.
        let port = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let spool = dir.join("reflector");
        let config = format!(
            "node = \"reflector\"\nspool = \"{}\"\n[reflect]\nurls = [\"stamp://127.0.0.1:{port}\"]\n",
            spool.display()
        );
        let server = self.start(dir, "reflector", &config, OTHER_CORE)?;
        Ok(Reflector { server, port })
    }

    fn start_agent(&self, dir: &Path, spool: &Path, port: u16) -> Result<Server> {
        let mut config = format!(
            "node = \"{}\"\nspool = \"{}\"\nspool_size = \"1GiB\"\n",
            agent_name(1)?,
            spool.display()
        );
        for stream in 0..STREAMS {
            config += &format!(
                "[[entries]]\nname = \"stream-{stream}\"\nreflector = \"reflector\"\n\
                 target = \"stamp://127.0.0.1:{port}\"\ninterval = \"{PROBE_INTERVAL}\"\n"
            );
        }
        self.start(dir, "agent", &config, NODE_CORE)
    }

    fn start(&self, dir: &Path, name: &str, config: &str, core: usize) -> Result<Server> {
        let file = dir.join(format!("{name}.toml"));
        fs::write(&file, config)?;
        let mut command = on_core(core, &self.path);
        command.args(["agent", "--config"]).arg(file);
        Server::start_within(command, Some("is running"), START_TIMEOUT)
    }
}

/// A command that runs on one core.
fn on_core(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Starts the uplink of an agent by number on the core of the node.
fn start_uplink(network: &Network, number: u64, spool: &Path) -> Result<Server> {
    let node = agent_name(number)?;
    let key = spool.with_file_name(format!("{node}.nk"));
    fs::write(&key, &network.keys[number as usize - 1])?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let config = format!(
        "node = \"{node}\"\nspool = \"{}\"\nservers = [\"{}\"]\nca_file = \"{}\"\nkey_file = \"{}\"\n",
        spool.display(),
        network.url(),
        network.ca().display(),
        key.display(),
    );
    let file = spool.with_file_name(format!("{node}.toml"));
    fs::write(&file, config)?;
    let mut command = on_core(NODE_CORE, &sibling("dwell-uplink")?);
    command.args(["run", "--config"]).arg(file);
    Server::start(command, None)
}

/// A spool of another node, full of records without receipts.
struct Backlog {
    dir: PathBuf,
    incarnation: String,
    last: u64,
    bytes: u64,
}

impl Backlog {
    /// Writes a spool, in place of one that was there.
    fn write(dir: &Path, size: Size, start: u64) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        let records = dir.join(level_dir(Level::TenSeconds));
        fs::create_dir_all(&records)?;
        fs::create_dir_all(dir.join(level_dir(Level::FiveMinutes)))?;
        fs::create_dir_all(dir.join(RECEIPTS_DIR))?;
        let reflectors = (1..=BACKLOG_STREAMS).map(|other| agent_name(2 + other));
        let reflectors = reflectors.collect::<Result<Vec<_>>>()?;
        let new_agent = || SimulatedAgent::measuring(2, &reflectors, start, size.form);
        let mut agent = new_agent()?;
        fs::write(dir.join(STATUS_FILE), format!("{{\"node\":\"{}\"}}", agent.node()))?;
        let incarnation = agent.incarnation();
        let (mut content, mut first, mut last, mut bytes) = (Vec::new(), 1, 0, 0);
        let length = new_agent()?.message(INTERVAL_NS, INTERVAL_NS)?.bytes.len() as u64;
        let messages = (size.spool_mb * 1_000_000).div_ceil(length) as i64;
        // The newest record is a minute old.
        let newest = now_ns().div_euclid(INTERVAL_NS) * INTERVAL_NS - 6 * INTERVAL_NS;
        for end_ns in (0..messages).rev().map(|n| newest - n * INTERVAL_NS) {
            let message = agent.message(end_ns, end_ns + INTERVAL_NS / 2)?;
            content.extend(message.bytes);
            last = message.last;
            if content.len() >= FILE_LEN || end_ns == newest {
                let file = RecordFile { start: start as u32, incarnation, first };
                fs::write(records.join(file.to_string()), &content)?;
                bytes += content.len() as u64;
                first = last + 1;
                content.clear();
            }
        }
        Ok(Self { dir: dir.to_owned(), incarnation: incarnation.to_string(), last, bytes })
    }

    /// Waits until all records have receipts.
    fn await_receipts(&self, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let file = self.dir.join(RECEIPTS_DIR).join(&self.incarnation);
        loop {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let receipts: RangeSet = text.trim_end().parse().unwrap_or_default();
            if receipts.contains_range(1..=self.last) {
                return Ok(());
            }
            if interrupt.came() || Instant::now() > deadline {
                bail!("the uplink has receipts of {} of {} records", receipts.len(), self.last);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The records that the agent left in its spool.
#[derive(Default)]
struct SpoolReader {
    /// Intended time of each probe on CLOCK_REALTIME, and its schedule error, in nanoseconds.
    errors: Vec<(i64, i64)>,
    /// Number and bytes of the records of 10 s, 5 min, of statuses and of samples.
    lengths: [(u64, u64); 4],
}

impl SpoolReader {
    fn read(spool: &Path) -> Result<Self> {
        let mut reader = Self::default();
        for level in [Level::Samples, Level::TenSeconds, Level::FiveMinutes] {
            for entry in fs::read_dir(spool.join(level_dir(level)))? {
                let content = fs::read(entry?.path())?;
                for piece in pieces(&content) {
                    if let Piece::Record(record) = piece {
                        reader.add(record)?;
                    }
                }
            }
        }
        Ok(reader)
    }

    fn add(&mut self, record: &[u8]) -> Result<()> {
        let (at, count) = match Record::decode(record)?.body {
            Body::Rollup(rollup) => (usize::from(rollup.level == Level::FiveMinutes), 1),
            Body::Status(_) => (2, 1),
            Body::Samples(block) => {
                let errors = &mut self.errors;
                segment::read(&mut &block.segment[..], &mut |item| {
                    if let segment::Record::Sample(sample, Some(bridge), _) = item {
                        let intended = bridge.to_real(sample.intended);
                        errors.push((intended.as_nanos(), (sample.tx.app - intended).0));
                    }
                })?;
                (3, block.samples)
            }
        };
        self.lengths[at].0 += count;
        self.lengths[at].1 += record.len() as u64;
        Ok(())
    }

    fn record_bytes(&self) -> RecordBytes {
        let [ten_seconds, five_minutes, status, sample] =
            self.lengths.map(|(count, bytes)| (count > 0).then(|| bytes as f64 / count as f64));
        RecordBytes { ten_seconds, five_minutes, status, sample }
    }

    /// p99 of the schedule error of the probes of a turn, without its ends.
    fn p99_us(&self, (start_ns, end_ns): Span) -> Result<f64> {
        let margin_ns = MARGIN.as_nanos() as i64;
        let span = start_ns + margin_ns..end_ns - margin_ns;
        let of_turn = self.errors.iter().filter(|(intended, _)| span.contains(intended));
        let mut errors: Vec<i64> = of_turn.map(|(_, error)| *error).collect();
        ensure!(errors.len() >= 1_000, "a turn has {} probes; p99 needs 1,000", errors.len());
        errors.sort_unstable();
        let rank = (errors.len() * 99).div_ceil(100);
        Ok(errors[rank - 1] as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_error_is_that_of_its_turn() {
        const SECOND_NS: i64 = 1_000_000_000;
        // 1 us in the first turn, 5 us at its end, 9 us in the second turn.
        let error = |at: i64| match at {
            0..9_500 => 1_000,
            9_500..10_000 => 5_000,
            _ => 9_000,
        };
        let errors = (0..20_000).map(|ms| (ms * 1_000_000, error(ms))).collect();
        let reader = SpoolReader { errors, ..SpoolReader::default() };
        assert_eq!(reader.p99_us((0, 10 * SECOND_NS)).unwrap(), 1.0);
        assert_eq!(reader.p99_us((10 * SECOND_NS, 20 * SECOND_NS)).unwrap(), 9.0);
        assert!(reader.p99_us((30 * SECOND_NS, 40 * SECOND_NS)).is_err());
    }

    #[test]
    fn backlog_is_a_spool_of_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("spool");
        let size = Size { rounds: 1, spool_mb: 3, form: RecordForm { seed: 1, metrics: 4 } };
        let backlog = Backlog::write(&dir, size, 1).unwrap();
        assert!((3_000_000..4_000_000).contains(&backlog.bytes), "{}", backlog.bytes);
        fs::create_dir_all(dir.join(level_dir(Level::Samples))).unwrap();
        let read = SpoolReader::read(&dir).unwrap();
        let records: u64 = read.lengths.iter().map(|(count, _)| count).sum();
        assert_eq!(records, backlog.last);
        let bytes = read.record_bytes();
        assert!(bytes.five_minutes > bytes.ten_seconds && bytes.sample.is_none(), "{bytes:?}");
    }
}
