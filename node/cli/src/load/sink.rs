//! `dwell load sink`: receives traffic and counts it, per flow. Never answers.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_io::clock::monotonic;
use dwell_io::port::Wait;
use dwell_io::udp::{ServerOptions, UdpServer};
use dwell_plan::SinkJob;
use dwell_record::{Placement, Scalar, Summary};
use dwell_units::{Instant, Monotonic, Nanos};
use serde_json::json;

use super::Put;
use crate::Failure;

/// A receive call waits at most this long, so that a stop is obeyed.
const NAP: Nanos = Nanos::from_millis(100);

/// Flows counted apart; packets of more are counted in the totals only.
const FLOWS: usize = 4_096;

/// Arguments of `load sink`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen: udp://ADDRESS:PORT [default: udp://[::]:5001 and udp://0.0.0.0:5001]
    urls: Vec<String>,

    /// Stop after this time [default: until stopped]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Starts the payload of dwell's traffic: `dwlt`, u32 flow, u64 sequence number, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) flow: u32,
    pub(super) seq: u64,
}

impl Mark {
    pub(super) const LEN: usize = 16;
    const MAGIC: [u8; 4] = *b"dwlt";

    pub(super) fn emit(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&Self::MAGIC);
        payload[4..8].copy_from_slice(&self.flow.to_be_bytes());
        payload[8..16].copy_from_slice(&self.seq.to_be_bytes());
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let rest = payload.strip_prefix(&Self::MAGIC)?;
        let (flow, rest) = rest.split_first_chunk()?;
        let (seq, _) = rest.split_first_chunk()?;
        Some(Self { flow: u32::from_be_bytes(*flow), seq: u64::from_be_bytes(*seq) })
    }
}

/// What came of one flow. Its memory of numbers is bounded: one that comes again more than
/// [`Flow::MEMORY`] numbers later counts as new.
#[derive(Debug, Default)]
struct Flow {
    /// Different packets.
    packets: u64,
    /// The number after the highest.
    next: u64,
    reordered: u64,
    duplicate: u64,
    /// Which of the numbers just below `next` came: bit `seq % MEMORY`.
    came: [u64; Self::MEMORY as usize / 64],
}

impl Flow {
    const MEMORY: u64 = 1_024;

    fn take(&mut self, seq: u64) {
        if seq >= self.next {
            // Numbers that were skipped have not come.
            let skipped = (seq - self.next).min(Self::MEMORY);
            (seq - skipped..seq).for_each(|number| self.set(number, false));
            self.next = seq.saturating_add(1);
        } else if self.next - seq <= Self::MEMORY && self.get(seq) {
            self.duplicate += 1;
            return;
        } else {
            self.reordered += 1;
        }
        self.set(seq, true);
        self.packets += 1;
    }

    fn get(&self, seq: u64) -> bool {
        let bit = seq % Self::MEMORY;
        self.came[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, seq: u64, came: bool) {
        let bit = seq % Self::MEMORY;
        let word = &mut self.came[bit as usize / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(came) << (bit % 64);
    }
}

#[derive(Debug, Default)]
struct Counted {
    packets: u64,
    bytes: u64,
    /// Bytes of the first packet: a rate is over the time since it came, without it.
    first_bytes: u64,
    unmarked: u64,
    first: Option<Instant<Monotonic>>,
    last: Option<Instant<Monotonic>>,
    flows: HashMap<(SocketAddr, u32), Flow>,
}

impl Counted {
    fn take(&mut self, from: SocketAddr, payload: &[u8], now: Instant<Monotonic>) {
        self.packets += 1;
        self.bytes += payload.len() as u64;
        if self.first.is_none() {
            self.first = Some(now);
            self.first_bytes = payload.len() as u64;
        }
        self.last = Some(now);
        let Some(mark) = Mark::parse(payload) else {
            self.unmarked += 1;
            return;
        };
        let key = (from, mark.flow);
        if self.flows.len() >= FLOWS && !self.flows.contains_key(&key) {
            return;
        }
        self.flows.entry(key).or_default().take(mark.seq);
    }
}

impl Args {
    /// What these arguments ask for.
    pub(super) fn job(&self) -> SinkJob {
        SinkJob { urls: self.urls.clone(), duration: self.duration, ..SinkJob::default() }
    }
}

/// Counts until stopped, or for as long as the job says. `talk` hears of the sockets when all
/// are open.
pub(crate) fn sink(
    job: &SinkJob,
    stop: &AtomicBool,
    talk: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let default = ["udp://[::]:5001".to_owned(), "udp://0.0.0.0:5001".to_owned()];
    let urls = if job.urls.is_empty() { &default[..] } else { &job.urls };
    let mut servers = Vec::new();
    let mut lines = Vec::new();
    for url in urls {
        for address in super::udp_addresses(url)? {
            let server = UdpServer::bind(address, ServerOptions::default()).map_err(|error| {
                Failure::from(anyhow::anyhow!("cannot listen on {url}: {error}"))
            })?;
            lines.push(format!("listening on udp://{}", server.local_addr()));
            servers.push(server);
        }
    }
    talk(&lines.join("\n"));
    let end = monotonic().saturating_add(job.duration.unwrap_or(Nanos::MAX));
    let counted = thread::scope(|scope| -> io::Result<Vec<Counted>> {
        let threads: Vec<_> =
            servers.into_iter().map(|server| scope.spawn(|| count(server, end, stop))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no sink panics")).collect()
    })?;
    let values = totals(&counted);
    let parameters = [
        ("load", json!("sink")),
        ("urls", json!(urls)),
        ("duration_ns", json!(job.duration.map(|time| time.0))),
    ];
    let put = Put {
        target: urls.join(" "),
        engine: "a thread per socket",
        parameters: &parameters,
        values: &values,
        warnings: Vec::new(),
        placement: Placement::default(),
    };
    Ok(put.summary())
}

fn count(mut server: UdpServer, end: Instant<Monotonic>, stop: &AtomicBool) -> io::Result<Counted> {
    let mut counted = Counted::default();
    let mut buffer = vec![0; 65_535];
    while !stop.load(Ordering::Relaxed) {
        let request = server.receive(&mut buffer, Wait::AtMost(NAP))?;
        let now = monotonic();
        if now >= end {
            break;
        }
        if let Some(request) = request {
            counted.take(request.from, &buffer[..request.len], now);
        }
    }
    Ok(counted)
}

fn totals(counted: &[Counted]) -> Vec<(&'static str, Scalar)> {
    let sum = |n: fn(&Counted) -> u64| counted.iter().map(n).sum::<u64>();
    let flows = || counted.iter().flat_map(|c| c.flows.values());
    let lost: u64 = flows().map(|flow| flow.next.saturating_sub(flow.packets)).sum();
    let earliest = counted.iter().filter(|c| c.first.is_some()).min_by_key(|c| c.first);
    let first = earliest.and_then(|c| c.first);
    let first_bytes = earliest.map_or(0, |c| c.first_bytes);
    let last = counted.iter().filter_map(|c| c.last).max();
    let took = first.zip(last).map_or(Nanos::ZERO, |(first, last)| last - first);
    let seconds = took.as_secs_f64();
    let per_second = |n: f64| Scalar::Real(if seconds > 0.0 { n / seconds } else { f64::NAN });
    let (packets, bytes) = (sum(|c| c.packets), sum(|c| c.bytes));
    vec![
        ("packets", Scalar::Count(packets)),
        ("payload_bytes", Scalar::Count(bytes)),
        ("flows", Scalar::Count(flows().count() as u64)),
        ("lost", Scalar::Count(lost)),
        ("duplicate", Scalar::Count(flows().map(|flow| flow.duplicate).sum())),
        ("reordered", Scalar::Count(flows().map(|flow| flow.reordered).sum())),
        ("unmarked", Scalar::Count(sum(|c| c.unmarked))),
        ("duration_ns", Scalar::Count(took.0.max(0) as u64)),
        ("rate_pps", per_second(packets.saturating_sub(1) as f64)),
        ("payload_rate_bps", per_second((bytes - first_bytes) as f64 * 8.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_loss_and_reordering_by_its_own_sequence() {
        let mut counted = Counted::default();
        let from = "192.0.2.1:9".parse().unwrap();
        for seq in [0, 1, 3, 2, 6, 3, 6, 6] {
            let mut payload = [0; 20];
            Mark { flow: 4, seq }.emit(&mut payload);
            counted.take(from, &payload, Instant::from_nanos(seq as i64));
        }
        counted.take(from, b"something else", Instant::from_nanos(9));
        let values = totals(&[counted]);
        let value = |name| values.iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(value("packets"), Scalar::Count(9));
        assert_eq!(value("duplicate"), Scalar::Count(3));
        assert_eq!(value("lost"), Scalar::Count(2));
        assert_eq!(value("reordered"), Scalar::Count(1));
        assert_eq!(value("unmarked"), Scalar::Count(1));
    }
}
