//! `dwell load traffic`: UDP flows on absolute schedules. TCP is in `super::bulk`.
//!
//! `setup` validates the job. `drive` is the timing loop on its own thread; `fin` ends iperf flows
//! and receives the server's reports. `scan` listens on neighbouring radio channels. `recorder` turns events into statistics and observations,
//! `summary` builds the result.

mod drive;
mod fin;
mod payload;
mod recorder;
mod scan;
mod setup;
mod summary;
mod unstamped_packets;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::schedule::{Gaps, Schedule};
use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::{SocketOptions, StampRequest, TxStampRequest};
use dwell_protocol::{BulkJob, FlowParameters, Stamps, ThreadPlacement, TrafficHeader, TrafficJob};
use dwell_record::NicDropped;
use dwell_record::segment::FlowEntry;
use dwell_sample::TimestampSource;
use dwell_units::{Bytes, Nanos, Rate};
use dwell_wire::iperf2::ServerReport;

use super::Loaded;
use crate::nic::NicWatch;
use crate::ping::SampleFile;
use crate::{Failure, placement};
use drive::{Driver, Flow, Sent};
use fin::Ending;
use payload::Payload;
use recorder::Recorder;
use setup::TrafficSetup;
use unstamped_packets::UnstampedPackets;

/// Arguments of `load traffic`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Target: udp://HOST:PORT, or tcp://HOST:PORT for bulk transfer
    url: String,

    /// Number of flows, each with its own source port
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    flows: u32,

    /// Rate of all flows together, like 80Mbit/s or 200pps. Bits count IP packets with udp://,
    /// payload with tcp://. Required with udp:// [default with tcp://: unlimited]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Gaps between packets: constant, poisson or pareto(SHAPE)
    #[arg(long, value_name = "DISTRIBUTION", default_value = "constant")]
    distribution: Gaps,

    /// Options of the flows.
    #[command(flatten)]
    parameters: FlowParameters,

    /// Seed of gaps and payload
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Stop after this many bytes of payload, like 100MB
    #[arg(long, value_name = "BYTES", conflicts_with = "count")]
    bytes: Option<Bytes>,

    /// CPU and scheduling of the timing loop.
    #[command(flatten)]
    place: ThreadPlacement,

    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,

    /// Write all timestamps of every packet to this file
    #[arg(long, value_name = "FILE")]
    pub(super) samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// A job of either protocol.
pub(super) enum Job {
    /// UDP.
    Traffic(TrafficJob),
    /// TCP.
    Bulk(BulkJob),
}

impl Args {
    /// Whether the load has a limit and ends unless stopped before.
    pub(super) fn has_an_end(&self) -> bool {
        let FlowParameters { duration, count, .. } = self.parameters;
        duration.is_some() || count.is_some() || self.bytes.is_some()
    }

    /// The job that these arguments describe.
    pub(super) fn job(&self) -> Result<Job, Failure> {
        if self.url.starts_with("tcp://") { self.bulk().map(Job::Bulk) } else { self.udp() }
    }

    fn bulk(&self) -> Result<BulkJob, Failure> {
        let only_udp = |flag: &str| {
            Failure::usage(format!("{flag} is for udp://: a TCP stream has no packet boundaries"))
        };
        if self.distribution != Gaps::Constant {
            return Err(only_udp("--distribution"));
        }
        // Without --samples there is no --scan-channels either.
        let FlowParameters { size, header, duration, count, stamps, scan_channels: _ } =
            self.parameters;
        if header == Some(TrafficHeader::Iperf) {
            return Err(only_udp("--header iperf"));
        }
        if self.samples.is_some() {
            return Err(only_udp("--samples"));
        }
        if stamps != Stamps::Auto {
            return Err(only_udp("--stamps"));
        }
        let rate = match self.rate {
            None => None,
            Some(Rate::Bits(rate)) => Some(rate),
            Some(Rate::Packets(rate)) => {
                return Err(Failure::usage(format!(
                    "invalid value {rate} for --rate: tcp:// has no packet rate; give bits, like 80Mbit/s"
                )));
            }
        };
        let mut job = BulkJob {
            url: self.url.clone(),
            flows: self.flows,
            rate,
            write_size: size,
            bytes: self.bytes,
            duration,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            place: self.place,
        };
        if let Some(count) = count {
            job.bytes = Some(Bytes(count.saturating_mul(super::bulk::write_size(&job).0)));
        }
        Ok(job)
    }

    fn udp(&self) -> Result<Job, Failure> {
        let rate = self.rate.ok_or_else(|| {
            Failure::usage(
                "traffic over udp:// needs --rate, like --rate 80Mbit/s or --rate 200pps",
            )
        })?;
        let mut job = TrafficJob {
            url: self.url.clone(),
            flows: self.flows,
            rate,
            distribution: self.distribution.to_string(),
            parameters: self.parameters,
            seed: self.seed,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            unreported: false,
            place: self.place,
        };
        if let Some(bytes) = self.bytes {
            job.parameters.count = Some(bytes.0.div_ceil(job.size().0.max(1)));
        }
        Ok(Job::Traffic(job))
    }
}

/// Result of sending.
struct Outcome {
    sent: Sent,
    placement: Placement,
    /// Report of each iperf flow, if it arrived.
    reports: Vec<Option<ServerReport>>,
    keeps_samples: bool,
    nics: Option<Vec<NicDropped>>,
    /// Why the neighbouring channels were not scanned, although requested.
    not_scanned: Option<String>,
}

/// Whether the traffic is measured, so that precise send times matter.
fn measures(job: &TrafficJob, keeps_samples: bool) -> bool {
    keeps_samples || job.header() == TrafficHeader::Iperf
}

/// Validates a job before any file is created.
pub(super) fn check(job: &TrafficJob) -> Result<(), Failure> {
    TrafficSetup::new(job).map(drop)
}

/// Sends until stopped or until the job is done.
pub(crate) fn send(
    job: &TrafficJob,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Loaded, Failure> {
    let setup = TrafficSetup::new(job)?;
    let mut recorder = Recorder::new(&job.url, job.flows as usize, samples)?;
    let keeps_samples = recorder.log.keeps_samples();
    let not_scanned = if job.parameters.scan_channels {
        scan::neighbouring_channels(setup.peer, &mut recorder.log).err()
    } else {
        None
    };
    let flows = open(job, &setup, keeps_samples)
        .map_err(|error| Failure::from(anyhow::anyhow!("cannot send to {}: {error}", job.url)))?;
    recorder.flows(entries(&flows, &setup).into_iter());
    announce(&format!(
        "sending {} flows to {}, {} in all, {}, seed {}: payload {} B, IP {} B, Ethernet {} B",
        job.flows,
        job.url,
        job.rate,
        setup.gaps,
        job.seed,
        setup.size,
        setup.ip_size,
        setup.ip_size + 14
    ));
    let (events, mut consumer) = rtrb::RingBuffer::new(ring(&setup));
    let mut driver = Driver {
        flows,
        payload: Payload::new(job, &setup),
        wait_mode: setup.wait_mode(measures(job, keeps_samples)),
        count: setup.count,
        duration: job.parameters.duration,
        stop,
        events,
        sent: Sent::default(),
        ending: match job.header() {
            TrafficHeader::Dwell => Ending::NoFin,
            TrafficHeader::Iperf if job.unreported => Ending::OneFin,
            TrafficHeader::Iperf => Ending::Reported(vec![None; job.flows as usize]),
        },
    };
    let real_time = placement::real_time(&setup.place, keeps_samples && setup.mostly_sleeps());
    let nics = NicWatch::start();
    let main = thread::current();
    let over = AtomicBool::new(false);
    let (driver, placement) = thread::scope(|scope| {
        let over = &over;
        let timing = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::place_thread(job.place.cpu, real_time)?;
            driver.run();
            over.store(true, Ordering::Release);
            main.unpark();
            Ok((driver, placement))
        });
        recorder.follow(&mut consumer, &|| over.load(Ordering::Acquire) || timing.is_finished());
        timing.join().expect("the timing loop does not panic")
    })?;
    let reports = driver.ending.reports();
    let nics = nics.towards([setup.peer]);
    let outcome =
        Outcome { sent: driver.sent, placement, reports, keeps_samples, nics, not_scanned };
    let summary = summary::summary(job, &setup, &outcome, &recorder);
    let (_, failure) = recorder.log.finish(outcome.sent.dropped);
    if job.parameters.stamps == Stamps::Kernel
        && keeps_samples
        && summary.stamps.tx == Some(TimestampSource::User)
    {
        return Err(Failure::unsupported(
            "--stamps kernel: this socket delivers no kernel timestamps here; use --stamps auto to \
             fall back to user timestamps",
        ));
    }
    Ok(Loaded { summary, failure: failure.map(Failure::from) })
}

/// Opens a socket per flow. Requests kernel timestamps only if samples are kept.
fn open(job: &TrafficJob, setup: &TrafficSetup, keeps_samples: bool) -> io::Result<Vec<Flow>> {
    let stamped = keeps_samples && job.parameters.stamps != Stamps::User;
    let options = SocketOptions {
        stamps: if stamped { StampRequest::Kernel } else { StampRequest::User },
        tx_stamps: TxStampRequest::DriverAndQdisc,
        ..SocketOptions::default()
    };
    // Maximum number of packets that wait for timestamps, over all flows.
    const MAX_PENDING_STAMPS: u32 = 8_192;
    let open = |flow: u32| {
        let port = DatagramSocket::connect(setup.peer, &options)?;
        let phase = Nanos((setup.mean * f64::from(flow)) as i64);
        let seed = job.seed.wrapping_add(u64::from(flow));
        let schedule = Schedule::new(setup.gaps, setup.mean * f64::from(job.flows), phase, seed);
        let unstamped = keeps_samples
            .then(|| UnstampedPackets::new((MAX_PENDING_STAMPS / job.flows).max(8) as usize));
        Ok(Flow { port, schedule, packets: 0, unstamped })
    };
    (0..job.flows).map(open).collect()
}

fn entries(flows: &[Flow], setup: &TrafficSetup) -> Vec<FlowEntry> {
    let entry = |(number, flow): (u32, &Flow)| FlowEntry {
        flow: number,
        protocol: "udp".to_owned(),
        from: flow.port.local_addr(),
        to: setup.peer,
        from_out: None,
        to_out: None,
    };
    (0..).zip(flows).map(entry).collect()
}

/// Returns the capacity of the ring: four intervals of the recorder, two events per packet.
fn ring(setup: &TrafficSetup) -> usize {
    ((8e8 / setup.mean) as usize).clamp(1 << 10, 1 << 16)
}
