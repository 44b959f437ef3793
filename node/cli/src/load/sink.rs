//! `dwell load sink`: receives traffic and counts it, per flow. Never answers.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_io::clock::monotonic;
use dwell_io::port::Wait;
use dwell_io::udp::{ServerOptions, UdpServer};
use dwell_record::Scalar;
use dwell_units::{Instant, Monotonic, Nanos};
use serde_json::json;

use crate::{Exit, Failure};

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
    json: bool,
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

#[derive(Debug, Default)]
struct Flow {
    packets: u64,
    next: u64,
    reordered: u64,
}

#[derive(Debug, Default)]
struct Counted {
    packets: u64,
    bytes: u64,
    unmarked: u64,
    first: Option<Instant<Monotonic>>,
    last: Option<Instant<Monotonic>>,
    flows: HashMap<(SocketAddr, u32), Flow>,
}

impl Counted {
    fn take(&mut self, from: SocketAddr, payload: &[u8], now: Instant<Monotonic>) {
        self.packets += 1;
        self.bytes += payload.len() as u64;
        self.first.get_or_insert(now);
        self.last = Some(now);
        let Some(mark) = Mark::parse(payload) else {
            self.unmarked += 1;
            return;
        };
        let key = (from, mark.flow);
        if self.flows.len() >= FLOWS && !self.flows.contains_key(&key) {
            return;
        }
        let flow = self.flows.entry(key).or_default();
        flow.packets += 1;
        flow.reordered += u64::from(mark.seq < flow.next);
        flow.next = flow.next.max(mark.seq.saturating_add(1));
    }
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let default = ["udp://[::]:5001".to_owned(), "udp://0.0.0.0:5001".to_owned()];
    let urls = if args.urls.is_empty() { &default[..] } else { &args.urls };
    let mut servers = Vec::new();
    for url in urls {
        for address in super::udp_addresses(url)? {
            let server = UdpServer::bind(address, ServerOptions::default()).map_err(|error| {
                Failure::from(anyhow::anyhow!("cannot listen on {url}: {error}"))
            })?;
            eprintln!("listening on udp://{}", server.local_addr());
            servers.push(server);
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let end = monotonic().saturating_add(args.duration.unwrap_or(Nanos::MAX));
    let counted = thread::scope(|scope| -> io::Result<Vec<Counted>> {
        let threads: Vec<_> =
            servers.into_iter().map(|server| scope.spawn(|| count(server, end, &stop))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no sink panics")).collect()
    })?;
    let values = totals(&counted);
    let parameters =
        [("urls", json!(urls)), ("duration_ns", json!(args.duration.map(|time| time.0)))];
    super::conclude(
        args.json,
        urls.join(" "),
        "a thread per socket",
        &parameters,
        &values,
        vec![],
    )?;
    Ok(Exit::Measured)
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
    let first = counted.iter().filter_map(|c| c.first).min();
    let last = counted.iter().filter_map(|c| c.last).max();
    let seconds = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    let per_second = |n: f64| Scalar::Real(if seconds > 0.0 { n / seconds } else { f64::NAN });
    let (packets, bytes) = (sum(|c| c.packets), sum(|c| c.bytes));
    vec![
        ("packets", Scalar::Count(packets)),
        ("payload_bytes", Scalar::Count(bytes)),
        ("flows", Scalar::Count(flows().count() as u64)),
        ("lost", Scalar::Count(lost)),
        ("reordered", Scalar::Count(flows().map(|flow| flow.reordered).sum())),
        ("unmarked", Scalar::Count(sum(|c| c.unmarked))),
        ("duration_s", Scalar::Real(seconds)),
        ("rate_pps", per_second(packets.saturating_sub(1) as f64)),
        ("payload_rate_bps", per_second(bytes as f64 * 8.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_loss_and_reordering_by_its_own_sequence() {
        let mut counted = Counted::default();
        let from = "192.0.2.1:9".parse().unwrap();
        for seq in [0, 1, 3, 2, 6] {
            let mut payload = [0; 20];
            Mark { flow: 4, seq }.emit(&mut payload);
            counted.take(from, &payload, Instant::from_nanos(seq as i64));
        }
        counted.take(from, b"something else", Instant::from_nanos(9));
        let values = totals(&[counted]);
        let value = |name| values.iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(value("packets"), Scalar::Count(6));
        assert_eq!(value("lost"), Scalar::Count(2));
        assert_eq!(value("reordered"), Scalar::Count(1));
        assert_eq!(value("unmarked"), Scalar::Count(1));
    }
}
