//! `dwell load traffic`: UDP flows on absolute schedules. It sleeps between departures and sends
//! in one go what has become due, so that the mean rate is right and the CPU stays free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::schedule::{Gaps, Schedule};
use dwell_io::clock::monotonic;
use dwell_io::cpu::{self, RealTime};
use dwell_io::port::{Notice, Port, PortOptions};
use dwell_io::udp::UdpPort;
use dwell_plan::{Place, Stamps, TrafficHeader, TrafficJob};
use dwell_record::{Placement, Scalar, Summary};
use dwell_units::{Bytes, Instant, Monotonic, Nanos, Rate};
use serde_json::json;

use super::Put;
use super::sink::Mark;
use crate::Failure;

/// Never asleep for longer than this, so that a stop is obeyed.
const NAP: Nanos = Nanos::from_millis(100);

/// Arguments of `load traffic`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to: udp://HOST:PORT
    url: String,

    /// Number of flows, each with a source port of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    flows: u32,

    /// Rate of all flows together, like 80Mbit/s (counted over IP packets) or 200pps
    #[arg(long, value_name = "RATE")]
    rate: Rate,

    /// Gaps between packets: constant, poisson or pareto(SHAPE)
    #[arg(long, value_name = "DISTRIBUTION", default_value = "constant")]
    distribution: Gaps,

    /// Size of the UDP payload
    #[arg(long, value_name = "BYTES", default_value = "1400B")]
    size: Bytes,

    /// Seed of the gaps
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Stop after this time [default: until stopped]
    #[arg(long, value_name = "TIME")]
    pub(super) duration: Option<Nanos>,

    /// Stop after this many packets
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,

    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

struct Flow {
    port: UdpPort,
    schedule: Schedule,
    seq: u64,
}

impl Args {
    /// What these arguments ask for.
    pub(super) fn job(&self) -> TrafficJob {
        TrafficJob {
            url: self.url.clone(),
            flows: self.flows,
            rate: self.rate,
            distribution: self.distribution.to_string(),
            size: self.size,
            seed: self.seed,
            duration: self.duration,
            count: self.count,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            header: TrafficHeader::default(),
            stamps: Stamps::default(),
            place: Place::default(),
        }
    }
}

/// A rate that is missed by more than this is told.
const MISSED: f64 = 0.02;

/// Sends until stopped, or as the job says.
pub(crate) fn send(
    job: &TrafficJob,
    stop: &AtomicBool,
    talk: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let usage = |text: String| Failure::usage(text);
    let peer = peer(job)?;
    let headers = if peer.is_ipv4() { 28 } else { 48 };
    let size = usize::try_from(job.size.0).ok().filter(|n| (Mark::LEN..=65_507).contains(n));
    let size = size.ok_or_else(|| {
        let least = Mark::LEN;
        usage(format!("invalid value {} for --size: {least}B to 65507B", job.size))
    })?;
    if !(1..=1_000).contains(&job.flows) {
        return Err(usage(format!("invalid value {} for --flows: 1 to 1000", job.flows)));
    }
    let gaps: Gaps = job
        .distribution
        .parse()
        .map_err(|error| usage(format!("invalid value for --distribution: {error}")))?;
    let ip_size = size + headers;
    let mean = match job.rate {
        Rate::Bits(rate) => ip_size as f64 * 8e9 / rate.0 as f64,
        Rate::Packets(rate) => 1e9 / rate.as_f64(),
    };
    if !mean.is_finite() {
        return Err(Failure::usage("invalid value 0 for --rate: give a rate like 80Mbit/s"));
    }
    if job.duration.is_some_and(|time| time <= Nanos::ZERO) {
        return Err(Failure::usage("invalid value 0s for --duration: send for some time, like 2s"));
    }
    let mut flows = (0..job.flows)
        .map(|flow| {
            let port = UdpPort::connect(peer, &PortOptions::default())?;
            let phase = Nanos((mean * f64::from(flow)) as i64);
            let seed = job.seed.wrapping_add(u64::from(flow));
            let schedule = Schedule::new(gaps, mean * f64::from(job.flows), phase, seed);
            Ok(Flow { port, schedule, seq: 0 })
        })
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|error| Failure::from(anyhow::anyhow!("cannot send to {}: {error}", job.url)))?;
    talk(&format!(
        "sending {} flows to {}, {} in all, {gaps}, seed {}: payload {size} B, IP {ip_size} B, \
         Ethernet {} B",
        job.flows,
        job.url,
        job.rate,
        job.seed,
        ip_size + 14
    ));
    let placement = cpu::settle(None, RealTime::No)?;
    let sent = run(job, &mut flows, size, stop);
    let mut refused = 0_u64;
    for flow in &mut flows {
        flow.port.notices(10_000, &mut |notice| {
            refused += u64::from(matches!(notice, Notice::Error { .. }));
        });
    }
    let seconds = sent.elapsed.as_secs_f64().max(1e-9);
    let bits = sent.packets as f64 * ip_size as f64 * 8.0;
    let values = [
        ("packets", Scalar::Count(sent.packets)),
        ("send_failed", Scalar::Count(sent.failed)),
        ("duration_ns", Scalar::Count(sent.elapsed.0.max(0) as u64)),
        ("rate_pps", Scalar::Real(sent.packets as f64 / seconds)),
        ("rate_bps", Scalar::Real(bits / seconds)),
    ];
    let parameters = [
        ("load", json!("traffic")),
        ("address", json!(peer.to_string())),
        ("flows", json!(job.flows)),
        ("rate_pps", json!(1e9 / mean)),
        ("rate_bps", json!(ip_size as f64 * 8e9 / mean)),
        ("distribution", json!(job.distribution)),
        ("payload_bytes", json!(size)),
        ("ip_bytes", json!(ip_size)),
        ("seed", json!(job.seed)),
    ];
    let mut warnings = Vec::new();
    if refused > 0 {
        warnings.push(format!("ICMP errors: {refused}; is `dwell load sink` running there?"));
    }
    // Of a few packets no rate can be told.
    let reached = sent.packets as f64 / seconds * mean / 1e9;
    if sent.packets >= 100 && (reached - 1.0).abs() > MISSED {
        let why = match gaps {
            _ if sent.failed > 0 => "the link or its queue did not take more",
            Gaps::Constant => "this machine could not keep up",
            Gaps::Poisson | Gaps::Pareto(_) => {
                "the gaps' luck, or this machine could not keep up; a longer run comes closer"
            }
        };
        warnings.push(format!("the rate was {:.1}% of the one asked: {why}", reached * 100.0));
    }
    let put = Put {
        target: job.url.clone(),
        engine: "sleep, then catch up",
        parameters: &parameters,
        values: &values,
        warnings,
        placement: Placement {
            cpu: placement.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
            ..Placement::default()
        },
    };
    Ok(put.summary())
}

/// The address to send to.
fn peer(job: &TrafficJob) -> Result<SocketAddr, Failure> {
    let fits = |address: &SocketAddr| match (job.ipv4, job.ipv6) {
        (true, _) => address.is_ipv4(),
        (_, true) => address.is_ipv6(),
        _ => true,
    };
    let addresses = super::udp_addresses(&job.url)?;
    addresses.into_iter().find(fits).ok_or_else(|| {
        Failure::usage(format!("{} has no address of the family asked for", job.url))
    })
}

struct Sent {
    packets: u64,
    failed: u64,
    elapsed: Nanos,
}

fn run(job: &TrafficJob, flows: &mut [Flow], size: usize, stop: &AtomicBool) -> Sent {
    let mut message = vec![0; size];
    let start = monotonic();
    let end = start.saturating_add(job.duration.unwrap_or(Nanos::MAX));
    let mut due: BinaryHeap<_> = flows
        .iter_mut()
        .enumerate()
        .filter_map(|(n, flow)| Some(Reverse((start + flow.schedule.next()?, n))))
        .collect();
    let (mut packets, mut failed) = (0, 0);
    let mut over = None;
    while let Some(Reverse((at, n))) = due.pop() {
        if job.count.is_some_and(|count| packets + failed >= count) {
            // The rate is over the time until the next departure, so that no gap is cut off.
            over = Some(at);
            break;
        }
        // Behind the schedule, the clock says when it is over, not the schedule.
        if !rest_until(at.min(end), stop) || at >= end || monotonic() >= end {
            break;
        }
        let flow = &mut flows[n];
        Mark { flow: n as u32, seq: flow.seq }.emit(&mut message);
        // What could not be sent has no number, or the far end would count it as lost.
        match flow.port.send(&message) {
            Ok(_) => {
                flow.seq += 1;
                packets += 1;
            }
            Err(_) => failed += 1,
        }
        if let Some(next) = flow.schedule.next() {
            due.push(Reverse((start + next, n)));
        }
    }
    Sent { packets, failed, elapsed: over.unwrap_or_else(monotonic) - start }
}

/// Sleeps until `at`; returns whether it has come, rather than a stop.
fn rest_until(at: Instant<Monotonic>, stop: &AtomicBool) -> bool {
    loop {
        let left = at - monotonic();
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        if left <= Nanos::ZERO {
            return true;
        }
        thread::sleep(left.min(NAP).to_std());
    }
}
