//! `dwell load traffic`: UDP flows on absolute schedules. It sleeps between departures and sends
//! in one go what has become due, so that the mean rate is right and the CPU stays free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::schedule::{Gaps, Schedule};
use dwell_io::clock::monotonic;
use dwell_io::cpu::{self, RealTime};
use dwell_io::port::{Notice, Port, PortOptions};
use dwell_io::udp::UdpPort;
use dwell_record::Scalar;
use dwell_units::{Bytes, Instant, Monotonic, Nanos, Rate};
use serde_json::json;

use super::sink::Mark;
use crate::{Exit, Failure};

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
    duration: Option<Nanos>,

    /// Stop after this many packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

struct Flow {
    port: UdpPort,
    schedule: Schedule,
    seq: u64,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let peer = super::udp_addresses(&args.url)?[0];
    let headers = if peer.is_ipv4() { 28 } else { 48 };
    let size = usize::try_from(args.size.0).ok().filter(|n| (Mark::LEN..=65_507).contains(n));
    let size = size.ok_or_else(|| {
        let least = Mark::LEN;
        Failure::usage(format!("invalid value {} for --size: {least}B to 65507B", args.size))
    })?;
    let ip_size = size + headers;
    let mean = match args.rate {
        Rate::Bits(rate) => ip_size as f64 * 8e9 / rate.0 as f64,
        Rate::Packets(rate) => 1e9 / rate.as_f64(),
    };
    if !mean.is_finite() {
        return Err(Failure::usage("invalid value 0 for --rate: give a rate like 80Mbit/s"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    let mut flows = (0..args.flows)
        .map(|flow| {
            let port = UdpPort::connect(peer, &PortOptions::default())?;
            let phase = Nanos((mean * f64::from(flow)) as i64);
            let seed = args.seed.wrapping_add(u64::from(flow));
            let schedule =
                Schedule::new(args.distribution, mean * f64::from(args.flows), phase, seed);
            Ok(Flow { port, schedule, seq: 0 })
        })
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(|error| Failure::from(anyhow::anyhow!("cannot send to {}: {error}", args.url)))?;
    eprintln!(
        "sending {} flows to {}, {} in all, {}, seed {}: payload {size} B, IP {ip_size} B, \
         Ethernet {} B",
        args.flows,
        args.url,
        args.rate,
        args.distribution,
        args.seed,
        ip_size + 14
    );
    cpu::settle(None, RealTime::No)?;
    let sent = send(args, &mut flows, size, &stop);
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
        ("duration_s", Scalar::Real(seconds)),
        ("rate_pps", Scalar::Real(sent.packets as f64 / seconds)),
        ("rate_bps", Scalar::Real(bits / seconds)),
    ];
    let parameters = [
        ("address", json!(peer.to_string())),
        ("flows", json!(args.flows)),
        ("rate", json!(args.rate.to_string())),
        ("distribution", json!(args.distribution.to_string())),
        ("payload_bytes", json!(size)),
        ("ip_bytes", json!(ip_size)),
        ("seed", json!(args.seed)),
    ];
    let warnings = match refused {
        0 => Vec::new(),
        n => vec![format!("{n} ICMP errors came: is `dwell load sink` running there?")],
    };
    super::conclude(
        args.json,
        args.url.clone(),
        "sleep, then catch up",
        &parameters,
        &values,
        warnings,
    )?;
    Ok(Exit::Measured)
}

struct Sent {
    packets: u64,
    failed: u64,
    elapsed: Nanos,
}

fn send(args: &Args, flows: &mut [Flow], size: usize, stop: &AtomicBool) -> Sent {
    let mut message = vec![0; size];
    let start = monotonic();
    let end = start.saturating_add(args.duration.unwrap_or(Nanos::MAX));
    let mut due: BinaryHeap<_> = flows
        .iter_mut()
        .enumerate()
        .filter_map(|(n, flow)| Some(Reverse((start + flow.schedule.next()?, n))))
        .collect();
    let (mut packets, mut failed) = (0, 0);
    let mut over = None;
    while let Some(Reverse((at, n))) = due.pop() {
        if args.count.is_some_and(|count| packets + failed >= count) {
            // The rate is over the time until the next departure, so that no gap is cut off.
            over = Some(at);
            break;
        }
        if !rest_until(at.min(end), stop) || at >= end {
            break;
        }
        let flow = &mut flows[n];
        Mark { flow: n as u32, seq: flow.seq }.emit(&mut message);
        flow.seq += 1;
        match flow.port.send(&message) {
            Ok(_) => packets += 1,
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
