//! Pages of `dwell serve` about a large fleet, from both databases.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use dwell_hub::store::HubStore;
use dwell_hub::{Delivery, PostgresStore, Rules, SqliteStore, ingest};
use dwell_rollup::Name;
use serde::Serialize;
use serde_json::json;

use super::costs::{self, DatabaseCosts};
use super::database::Database;
use super::expected::DAY_NS;
use super::generator::now_ns;
use super::records::{LONG_INTERVAL_NS, RecordForm, SimulatedAgent, agent_name};
use crate::http_client::Client;
use crate::lab::sibling;
use crate::{Interrupt, Server};

/// Long intervals of an hour and of a day.
const PER_HOUR: i64 = 12;
const PER_DAY: i64 = 24 * PER_HOUR;

/// Requests before the measured ones.
const WARM_UP_REQUESTS: u64 = 3;

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Pages {
    /// Nodes of the mesh.
    pub(super) nodes: u64,
    /// Days of the history of one pair.
    pub(super) days: i64,
    /// Times of answers by database.
    pub(super) stores: Vec<StorePages>,
    /// Bytes in PostgreSQL: hours and days are whole here.
    pub(super) costs: Option<DatabaseCosts>,
}

/// Times of answers in ms, and their lengths in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StorePages {
    pub(super) store: &'static str,
    /// Records that filled the database, and the time in seconds.
    pub(super) records: u64,
    pub(super) fill_seconds: f64,
    pub(super) mesh_hour: Page,
    pub(super) mesh_day: Page,
    pub(super) pair: Page,
    pub(super) pair_figures: Page,
}

/// Answers of one address.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Page {
    pub(super) ms: Vec<f64>,
    pub(super) bytes: u64,
}

/// Size of the fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: u64,
    /// Days of the history of one pair.
    pub(super) days: i64,
    pub(super) requests: u64,
    pub(super) form: RecordForm,
}

/// Fills both databases, and requests their pages.
pub(super) fn measure(size: Size, interrupt: &Interrupt) -> Result<Pages> {
    let mut measured = Pages { nodes: size.nodes, days: size.days, ..Pages::default() };
    let folder = tempfile::tempdir()?;
    let (data, empty) = (folder.path().join("sqlite"), folder.path().join("postgres"));
    std::fs::create_dir_all(&empty)?;
    eprintln!("pages: SQLite");
    let mut store = SqliteStore::open(&data)?;
    let filled = fill(&mut store, size, interrupt)?;
    drop(store);
    measured.stores.push(request_all("SQLite", &data, None, filled, size)?);
    eprintln!("pages: PostgreSQL");
    let database = Database::start()?;
    let mut store = PostgresStore::open(&database.url(), None)?;
    let wal = costs::wal_position(&mut database.client()?)?;
    let filled = fill(&mut store, size, interrupt)?;
    drop(store);
    measured.costs = Some(costs::of_database(&mut database.client()?, wal, filled.0)?);
    let url = database.url();
    measured.stores.push(request_all("PostgreSQL", &empty, Some(&url), filled, size)?);
    Ok(measured)
}

/// Number of records, and the time that they took in seconds.
type Filled = (u64, f64);

/// Fills a database by the path of the hub: the history of the first pair in both directions, the statuses of
/// all nodes of the last day, and the last hour of all pairs. The pages of the mesh read one row per pair
/// and window, whose length does not depend on the number of intervals.
fn fill(store: &mut dyn HubStore, size: Size, interrupt: &Interrupt) -> Result<Filled> {
    let start = Instant::now();
    let end_ns = now_ns().div_euclid(LONG_INTERVAL_NS) * LONG_INTERVAL_NS;
    let names = (1..=size.nodes).map(agent_name).collect::<Result<Vec<_>>>()?;
    let parts = |version: u64| {
        names.iter().map(|node| (node.clone(), schedule(version, node, &names))).collect()
    };
    let mut transaction = store.begin()?;
    transaction.add_schedule(end_ns - (size.days + 1) * DAY_NS, "u@h", "", &parts)?;
    transaction.commit()?;
    let mut records = 0;
    let mut pair = [(1, &names[1]), (2, &names[0])]
        .map(|(number, to)| {
            SimulatedAgent::measuring(number, std::slice::from_ref(to), 1, size.form)
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    // The last hour is that of the mesh.
    let intervals = size.days * PER_DAY - PER_HOUR;
    let history_ns = end_ns - size.days * DAY_NS;
    for day in 0..size.days {
        ensure!(!interrupt.came(), "interrupted");
        let mut messages = Vec::new();
        let of_day = day * PER_DAY + 1..=((day + 1) * PER_DAY).min(intervals);
        let arrival_ns = history_ns + of_day.end() * LONG_INTERVAL_NS;
        for interval in of_day {
            for agent in &mut pair {
                let message = agent.long_message(history_ns + interval * LONG_INTERVAL_NS)?;
                messages.push((agent.node().clone(), message));
            }
        }
        records += deliver(store, &messages, arrival_ns)?;
    }
    let mut agents = Vec::new();
    for number in 1..=size.nodes {
        let others: Vec<Name> =
            names.iter().filter(|name| **name != names[number as usize - 1]).cloned().collect();
        agents.push(SimulatedAgent::measuring(number, &others, 2, size.form)?);
    }
    for interval in (1 - PER_DAY..=0).map(|interval| end_ns + interval * LONG_INTERVAL_NS) {
        ensure!(!interrupt.came(), "interrupted");
        let is_last_hour = interval > end_ns - PER_HOUR * LONG_INTERVAL_NS;
        let mut messages = Vec::new();
        for agent in &mut agents {
            let message = match is_last_hour {
                true => agent.long_message(interval)?,
                false => agent.status_message(interval)?,
            };
            messages.push((agent.node().clone(), message));
        }
        records += deliver(store, &messages, interval)?;
    }
    Ok((records, start.elapsed().as_secs_f64()))
}

/// The part of a node in a schedule of a full mesh.
fn schedule(version: u64, node: &Name, nodes: &[Name]) -> String {
    let entries = nodes.iter().filter(|other| *other != node).map(|other| {
        json!({
            "name": format!("mesh+{other}"), "reflector": other, "target": "stamp://192.0.2.1",
            "interval": "1s",
        })
    });
    json!({ "version": version, "node": node, "entries": entries.collect::<Vec<_>>() }).to_string()
}

/// Ingests messages as one batch. Returns the number of stored records.
fn deliver(store: &mut dyn HubStore, messages: &[(Name, Vec<u8>)], arrival_ns: i64) -> Result<u64> {
    let deliveries = messages.iter().map(|(node, message)| Delivery { node, arrival_ns, message });
    let committed = ingest(store, &deliveries.collect::<Vec<_>>(), &Rules::default())?;
    ensure!(committed.bad.is_empty(), "a record is bad: {:?}", committed.bad.first());
    Ok(committed.counts.values().map(|counts| counts.stored).sum())
}

/// Requests the pages of a server about a filled database.
fn request_all(
    store: &'static str,
    data: &Path,
    database: Option<&str>,
    (records, fill_seconds): Filled,
    size: Size,
) -> Result<StorePages> {
    // Free a moment ago; another program may take it, and then the server says so.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(sibling("dwell")?);
    command.args(["serve", "--listen", &address.to_string(), "--data"]).arg(data);
    command.args(database.iter().flat_map(|url| ["--database", *url]));
    let server = Server::start(command, Some("listening on"))?;
    let pair = format!("/mesh/{}/{}", agent_name(1)?, agent_name(2)?);
    let page = |path: &str| request(address, path, size.requests);
    let measured = StorePages {
        store,
        records,
        fill_seconds,
        mesh_hour: page("/mesh?window=1h")?,
        mesh_day: page("/mesh?window=24h")?,
        pair: page(&format!("{pair}?range=90d"))?,
        pair_figures: page(&format!("{pair}/figures.json?range=90d"))?,
    };
    server.stop()?;
    let cells = size.nodes * (size.nodes - 1);
    for mesh in [&measured.mesh_hour, &measured.mesh_day] {
        ensure!(
            mesh.bytes > 50 * cells,
            "{store}: the mesh has {} bytes for {cells} pairs",
            mesh.bytes
        );
    }
    Ok(measured)
}

/// Requests one address again and again, on one connection.
fn request(address: SocketAddr, path: &str, requests: u64) -> Result<Page> {
    let mut client = Client::connect(address)?;
    let mut page = Page::default();
    for n in 0..WARM_UP_REQUESTS + requests {
        let start = Instant::now();
        let (status, body) = client.send(&format!("GET {path}"), None)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        ensure!(status == 200, "{path} has status {status}: {body}");
        page.bytes = body.len() as u64;
        if n >= WARM_UP_REQUESTS {
            page.ms.push(ms);
        }
    }
    Ok(page)
}

/// The nearest rank of p95.
pub(super) fn p95(ms: &[f64]) -> Option<f64> {
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 95).div_ceil(100).checked_sub(1)?).copied()
}
