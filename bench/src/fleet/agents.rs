//! Many agents that publish at the same time: what the hub stores, how late, and what it costs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::costs::{self, DatabaseCosts};
use super::database::Database;
use super::expected::{Comparison, DAY_NS, HOUR_NS, at_length, compare, stored};
use super::generator::{CONNECTED, Report, Task, now_ns};
use super::network::Network;
use super::records::{LONG_INTERVAL_NS, RecordForm};
use super::usage::{cpu_seconds, memory_mb};
use crate::lab::sibling;
use crate::{Interrupt, Server};

/// Agents of a generator: few enough for one thread and the limit of open files.
const AGENTS_PER_GENERATOR: usize = 2_500;

/// Time for all agents to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(600);

/// Time for the generators to end, besides the run.
const END_TIMEOUT: Duration = Duration::from_secs(180);

/// Time from the start file to the start.
const START_DELAY: Duration = Duration::from_secs(2);

/// Resolutions in the database, and the length of the compared rows in nanoseconds.
const RESOLUTIONS: [(&str, i64); 4] =
    [("10s", LONG_INTERVAL_NS), ("5m", LONG_INTERVAL_NS), ("1h", HOUR_NS), ("1d", DAY_NS)];

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Agents {
    /// Connected agents, and the length of the run in seconds.
    pub(super) agents: u64,
    pub(super) seconds: u64,
    /// Published messages, their records and their bytes.
    pub(super) messages: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Messages that the server refused, and those without a receipt at the end.
    pub(super) refused: u64,
    pub(super) without_receipt: u64,
    /// Questions of agents at their start without an answer.
    pub(super) unanswered: u64,
    /// Rows by resolution that differ from the expected ones.
    pub(super) rows: Vec<(&'static str, Comparison)>,
    /// Time from publishing to the receipt in ms: p50, p99 and maximum of all messages, and p99 of those
    /// with records of 5 min.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) long_p99_ms: Option<f64>,
    /// Largest resident memory of the hub in MB, and resident memory of the server at the end.
    pub(super) hub_mb: f64,
    pub(super) server_mb: f64,
    /// Cores used by the hub, the server, PostgreSQL and the generators.
    pub(super) hub_cores: f64,
    pub(super) server_cores: f64,
    pub(super) database_cores: f64,
    pub(super) generator_cores: f64,
    /// Bytes in the database.
    pub(super) costs: Option<DatabaseCosts>,
}

/// Size of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) agents: u64,
    pub(super) seconds: u64,
    pub(super) form: RecordForm,
    /// Whether one expected count is changed, which the comparison has to find.
    pub(super) miscount: bool,
}

/// Runs all agents against a hub on a new server and a new database.
pub(super) fn measure(size: Size, interrupt: &Interrupt) -> Result<Agents> {
    let folder = tempfile::tempdir()?;
    eprintln!("agents: {} keys", size.agents);
    let network = Network::start(folder.path(), size.agents)?;
    let database = Database::start()?;
    let hub = network.start_hub(&database.url())?;
    let start_file = folder.path().join("start");
    let mut generators = Vec::new();
    for (at, keys) in network.keys.chunks(AGENTS_PER_GENERATOR).enumerate() {
        let report = folder.path().join(format!("report-{at}.json"));
        let task = Task {
            url: network.url(),
            ca: network.ca(),
            first: (at * AGENTS_PER_GENERATOR) as u64 + 1,
            keys: keys.to_vec(),
            form: size.form,
            seconds: size.seconds,
            start: start_file.clone(),
            report: report.clone(),
        };
        let generator = start_generator(folder.path(), at, &task)?;
        generators.push((generator, report));
        eprintln!("agents: {} connected", task.first + keys.len() as u64 - 1);
        ensure!(!interrupt.came(), "interrupted");
    }
    let cpu = || -> Result<[f64; 4]> {
        let mut of_generators = 0.0;
        for (generator, _) in &generators {
            of_generators += cpu_seconds(generator.id())?;
        }
        let [of_hub, of_server, of_database] =
            [hub.id(), network.server_id(), database.id()].map(cpu_seconds);
        Ok([of_hub?, of_server?, of_database?, of_generators])
    };
    let wal = costs::wal_position(&mut database.client()?)?;
    let start_ns = now_ns() + START_DELAY.as_nanos() as i64;
    write_start(&start_file, start_ns)?;
    thread::sleep(START_DELAY);
    let (began, before) = (Instant::now(), cpu()?);
    let end = began + Duration::from_secs(size.seconds);
    while Instant::now() < end && !interrupt.came() {
        thread::sleep(Duration::from_millis(200));
    }
    let (after, took) = (cpu()?, began.elapsed().as_secs_f64());
    let [hub_cores, server_cores, database_cores, generator_cores] =
        std::array::from_fn(|at| (after[at] - before[at]) / took);
    let mut report = Report::default();
    for (generator, path) in generators {
        generator.finish(END_TIMEOUT, interrupt)?;
        let text = fs::read_to_string(&path).context("a generator wrote no report")?;
        report.add(serde_json::from_str(&text).context("the report of a generator")?);
    }
    if size.miscount {
        let row = report.expected.first_mut().context("no row is expected")?;
        row.counts[2] += 1;
    }
    let mut client = database.client()?;
    let mut rows = Vec::new();
    for (resolution, length_ns) in RESOLUTIONS {
        let stored = stored(&mut client, resolution, length_ns)?;
        rows.push((resolution, compare(&at_length(&report.expected, length_ns), &stored)));
    }
    let costs = costs::of_database(&mut client, wal, report.records)?;
    let mut all = [report.short_us, report.long_us.clone()].concat();
    let measured = Agents {
        agents: size.agents,
        seconds: size.seconds,
        messages: report.messages,
        records: report.records,
        bytes: report.bytes,
        refused: report.refused,
        without_receipt: report.without_receipt,
        unanswered: report.unanswered,
        rows,
        p50_ms: percentile_ms(&mut all, 50),
        p99_ms: percentile_ms(&mut all, 99),
        max_ms: percentile_ms(&mut all, 100),
        long_p99_ms: percentile_ms(&mut report.long_us, 99),
        hub_mb: memory_mb(hub.id())?.0,
        server_mb: memory_mb(network.server_id())?.1,
        hub_cores,
        server_cores,
        database_cores,
        generator_cores,
        costs: Some(costs),
    };
    hub.stop()?;
    Ok(measured)
}

fn start_generator(dir: &Path, at: usize, task: &Task) -> Result<Server> {
    let file = dir.join(format!("task-{at}.json"));
    fs::write(&file, serde_json::to_string(task)?)?;
    let mut command = Command::new(sibling("fleet-agents")?);
    command.arg(file);
    Server::start_within(command, Some(CONNECTED), CONNECT_TIMEOUT)
}

/// Writes the time of the start, so that generators find the whole file or none.
fn write_start(path: &Path, start_ns: i64) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, start_ns.to_string())?;
    fs::rename(&partial, path)?;
    Ok(())
}

/// The nearest rank of a percentile of times in us, in ms.
pub(super) fn percentile_ms(us: &mut [u32], percent: usize) -> Option<f64> {
    us.sort_unstable();
    let rank = (us.len() * percent).div_ceil(100);
    Some(f64::from(*us.get(rank.checked_sub(1)?)?) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut us: Vec<u32> = (1..=200).rev().map(|ms| ms * 1_000).collect();
        assert_eq!(percentile_ms(&mut us, 50), Some(100.0));
        assert_eq!(percentile_ms(&mut us, 99), Some(198.0));
        assert_eq!(percentile_ms(&mut us, 100), Some(200.0));
        assert_eq!(percentile_ms(&mut [], 99), None);
    }
}
