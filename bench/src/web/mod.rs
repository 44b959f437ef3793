//! The web controller under load: requests, event streams, memory, the page of a large run, and whether
//! watching an experiment disturbs it.

mod goals;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use dwell_node_cli::{Exit, Failure};
use serde_json::{Value, json};

use crate::data::corpus;
use crate::first_figure::first_figure_ms;
use crate::http_client::{Client, Watchers, open_stream};
use crate::judge::{conclude, table};
use crate::lab::sibling;
use crate::process::raise_descriptors;
use crate::{Interrupt, Machine, Server};
use goals::{Measured, Round, Watched, judge};

/// Requests per second to the API, and the connections that send them.
const API_RATE: u64 = 200;
const API_CONNECTIONS: u64 = 8;

/// Pages that watch an experiment.
const PAGES: usize = 20;

/// Updates that are added to the about two per second of an experiment: ten are the goal.
const ADDED_UPDATE_INTERVAL: Duration = Duration::from_millis(125);

/// Samples of a large run.
const SAMPLES: u64 = 10_000_000;

/// Times that its page is opened.
const PAGE_OPENINGS: usize = 10;

/// Time for an experiment to end, besides its probes.
const EXPERIMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Measure the web controller under load, and whether watching disturbs an experiment
#[derive(Debug, clap::Parser)]
#[command(name = "web", version)]
pub struct Args {
    /// Number of rounds; each runs an experiment without a page, with one, and with 20
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u64).range(1..=200))]
    rounds: u64,
    /// Probes per experiment, one per millisecond
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    count: u64,
    /// Seconds of requests to the API
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Event streams to open at the same time
    #[arg(long, value_name = "N", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=4_000))]
    streams: u64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch()?;
    let machine = Machine::read();
    let measured = measure(args, &interrupt)?;
    let judged = judge(&measured, args.streams);
    if args.json {
        let object = json!({
            "schema": "dwell.bench-web/1",
            "machine": machine,
            "measured": measured,
            "goals": judged,
        });
        println!("{object:#}");
    } else {
        println!("{machine}\n\n{}", table(&judged));
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    conclude(&judged)
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let controller = Controller::start(&sibling("dwell")?, &folder.path().join("data"))?;
    let mut measured = Measured::default();
    // The run and the experiment that the lists then have, and the code that they need.
    let first = controller.experiment(args.count.min(1_000), 1)?;
    measured.idle_mb = Some(controller.resident_mb()?);
    eprintln!("requests");
    let (errors, delays) = requests(controller.address, args.seconds, interrupt)?;
    measured.requests = args.seconds * API_RATE;
    measured.request_errors = Some(errors);
    measured.p99_ms = delays.get((delays.len() * 99).div_ceil(100).saturating_sub(1)).copied();
    eprintln!("event streams");
    raise_descriptors(args.streams + 200)?;
    let path = format!("/api/v1/experiments/{}/events", first.id);
    let open = (0..args.streams).map_while(|_| open_stream(controller.address, &path).ok());
    let streams: Vec<_> = open.collect();
    measured.streams = Some(streams.len() as u64);
    measured.streams_mb = Some(controller.resident_mb()?);
    drop(streams);
    for round in 0..args.rounds {
        if interrupt.came() {
            break;
        }
        eprintln!("round {} of {}", round + 1, args.rounds);
        let mut turns = Round::default();
        // The order rotates, so that a drift of the machine does not favour one.
        for turn in 0..3 {
            let (pages, into) = match (turn + round) % 3 {
                0 => (0, &mut turns.alone),
                1 => (1, &mut turns.one),
                _ => (PAGES, &mut turns.many),
            };
            *into = controller.experiment(args.count, pages)?.watched;
        }
        measured.rounds.push(turns);
    }
    eprintln!("run page of {SAMPLES} samples");
    controller.import(&corpus::csv(folder.path(), SAMPLES)?)?;
    let mut client = Client::connect(controller.address)?;
    let (_, body) = client.send("GET /api/v1/runs/last", None)?;
    let shown: Value = serde_json::from_str(&body)?;
    let page = format!("/runs/{}", shown["run"].as_str().context("the run has no name")?);
    for _ in 0..PAGE_OPENINGS {
        let start = Instant::now();
        let (status, _) = client.send(&format!("GET {page}"), None)?;
        ensure!(status == 200, "the page of the run has status {status}");
        measured.page_ms.push(start.elapsed().as_secs_f64() * 1e3);
        let address = format!("http://{}{page}", controller.address);
        measured.first_figure_ms.extend(first_figure_ms(address)?);
    }
    controller.server.stop()?;
    Ok(measured)
}

/// A running `dwell serve`.
#[derive(Debug)]
struct Controller {
    server: Server,
    address: SocketAddr,
    dwell: PathBuf,
    data: PathBuf,
}

/// An experiment that ended.
#[derive(Debug)]
struct Experiment {
    id: String,
    watched: Watched,
}

impl Controller {
    fn start(dwell: &Path, data: &Path) -> Result<Self> {
        // Free a moment ago; another program may take it, and then the server says so.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(dwell);
        command.args(["serve", "--listen", &address.to_string(), "--data"]).arg(data);
        let server = Server::start(command, Some("listening on"))?;
        Ok(Self { server, address, dwell: dwell.to_owned(), data: data.to_owned() })
    }

    /// Runs an experiment of `count` probes while `pages` pages watch it.
    fn experiment(&self, count: u64, pages: usize) -> Result<Experiment> {
        let plan = format!(
            "version = 1\nname = \"watched\"\ntopology = {{ lab = \"line:2\" }}\n[ping]\nfrom = \"n1\"\n\
             to = \"n2\"\nprotocol = \"udp\"\ncount = {count}\ninterval = \"1ms\"\n[trials]\nrepetitions = 1\n"
        );
        let mut client = Client::connect(self.address)?;
        let body = json!({ "plan": plan }).to_string();
        let (status, body) = client.send("POST /api/v1/experiments", Some(&body))?;
        ensure!(status == 201, "the experiment was refused ({status}): {body}");
        let created: Value = serde_json::from_str(&body)?;
        let id = created["id"].as_str().context("the experiment has no id")?.to_owned();
        let path = format!("/api/v1/experiments/{id}");
        let watchers = Watchers::open(self.address, &format!("{path}/events"), pages)?;
        let (start, before) = (Instant::now(), self.cpu_seconds()?);
        let deadline = start + EXPERIMENT_TIMEOUT + Duration::from_millis(count);
        // Polling would be a disturbance of its own, so it begins with the end of the probes.
        self.add_updates(&id, start + Duration::from_millis(count))?;
        let run = loop {
            let (_, body) = Client::connect(self.address)?.send(&format!("GET {path}"), None)?;
            let now: Value = serde_json::from_str(&body)?;
            match now["state"].as_str() {
                Some("finished") => break now["run"].as_str().context("no run")?.to_owned(),
                Some("queued" | "running") if Instant::now() < deadline => {}
                _ => bail!("the experiment did not finish: {body}"),
            }
            thread::sleep(Duration::from_millis(200));
        };
        let took = start.elapsed().as_secs_f64();
        let cpu = (self.cpu_seconds()? - before) / took;
        let updates = watchers.close()? / (count as f64 / 1e3);
        let p99_us = self.schedule_error_us(&run)?;
        Ok(Experiment { id, watched: Watched { p99_us, cpu, updates } })
    }

    /// Appends updates to the events of an experiment until `end`, as its own process does.
    fn add_updates(&self, id: &str, end: Instant) -> Result<()> {
        let path = self.data.join("experiments").join(id).join("events.jsonl");
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        let mut next = Instant::now();
        for sent in 1_u64.. {
            next += ADDED_UPDATE_INTERVAL;
            thread::sleep(next.min(end).saturating_duration_since(Instant::now()));
            if next >= end {
                break;
            }
            let update = json!({
                "at": "2026-01-01T00:00:00.000Z", "event": "progress", "trial": 1, "sent": sent,
                "lost": 0, "p50_ns": 20_000, "p99_ns": 30_000,
            });
            // One call, so that lines of two processes do not mix.
            file.write_all(format!("{update}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Imports a file, which becomes the newest run.
    fn import(&self, csv: &Path) -> Result<()> {
        let mut command = Command::new(&self.dwell);
        command.args(["import", "--data"]).arg(&self.data).arg(csv);
        let output = command.output().context("cannot start dwell import")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot import {}: {said}", csv.display());
        Ok(())
    }

    /// Returns p99 of the schedule error of a run with one trial.
    fn schedule_error_us(&self, run: &str) -> Result<f64> {
        let mut command = Command::new(&self.dwell);
        command.args(["show", run, "--json", "--data"]).arg(&self.data);
        let output = command.output().context("cannot start dwell show")?;
        let shown: Value = serde_json::from_slice(&output.stdout).context("dwell show --json")?;
        let p99 = shown["trials"][0]["trust"]["schedule_error_ns"]["p99"].as_f64();
        Ok(p99.context("the run has no schedule error")? / 1e3)
    }

    fn resident_mb(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok(kib.context("the server has no VmRSS")? * 1024.0 / 1e6)
    }

    /// Processor time of the server's own threads in seconds.
    fn cpu_seconds(&self) -> Result<f64> {
        let mut nanoseconds = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.server.id()))?.flatten() {
            // A thread may end in between.
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            nanoseconds += text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0_u64);
        }
        Ok(nanoseconds as f64 / 1e9)
    }
}

/// Sends requests at a fixed rate. Returns the number of failures and all delays from their intended
/// time in ms, ascending.
fn requests(address: SocketAddr, seconds: u64, interrupt: &Interrupt) -> Result<(u64, Vec<f64>)> {
    let results = Mutex::new((0_u64, Vec::new()));
    let interval = Duration::from_secs(1) * API_CONNECTIONS as u32 / API_RATE as u32;
    let start = Instant::now();
    thread::scope(|scope| {
        for connection in 0..API_CONNECTIONS {
            let results = &results;
            scope.spawn(move || {
                let offset = interval * connection as u32 / API_CONNECTIONS as u32;
                let (mut errors, mut delays) = (0, Vec::new());
                let mut client = Client::connect(address).ok();
                for n in 0..seconds * API_RATE / API_CONNECTIONS {
                    if interrupt.came() {
                        break;
                    }
                    let intended = start + offset + interval * n as u32;
                    thread::sleep(intended.saturating_duration_since(Instant::now()));
                    let answer = client.as_mut().map(|one| one.send("GET /api/v1/runs", None));
                    if matches!(answer, Some(Ok((200, _)))) {
                        delays.push(intended.elapsed().as_secs_f64() * 1e3);
                    } else {
                        errors += 1;
                        client = Client::connect(address).ok();
                    }
                }
                let mut all = results.lock().unwrap_or_else(|error| error.into_inner());
                all.0 += errors;
                all.1.append(&mut delays);
            });
        }
    });
    let (errors, mut delays) = results.into_inner().unwrap_or_else(|error| error.into_inner());
    delays.sort_by(f64::total_cmp);
    Ok((errors, delays))
}
