//! `dwell load traffic`: UDP flows on absolute schedules. TCP is in `super::bulk`.
//!
//! `plan` judges what is asked; `drive` is the timing loop, on a thread of its own, which `ending`
//! closes for iperf flows by hearing the server's report; `recorder` turns what it tells into figures
//! and passages; `summary` puts both side by side.

mod drive;
mod ending;
mod payload;
mod pending;
mod plan;
mod recorder;
mod summary;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::schedule::{Gaps, Schedule};
use dwell_engine::stamps::Rung;
use dwell_io::cpu::{self, Placement};
use dwell_io::port::{Port, PortOptions, StampRequest};
use dwell_io::udp::UdpPort;
use dwell_plan::{BulkJob, Stamps, TrafficHeader, TrafficJob};
use dwell_record::NicDropped;
use dwell_record::segment::FlowEntry;
use dwell_units::{Bytes, Nanos, Rate};
use dwell_wire::iperf2::ServerReport;

use super::Loaded;
use crate::nic::NicWatch;
use crate::ping::{SampleFile, StampChoice};
use crate::{Failure, PlaceArgs};
use drive::{Driver, Flow, Sent};
use ending::Ending;
use payload::Payload;
use pending::Pending;
use plan::Plan;
use recorder::Recorder;

/// Arguments of `load traffic`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Target: udp://HOST:PORT, or tcp://HOST:PORT for bulk transfer
    url: String,

    /// Number of flows, each with a source port of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    flows: u32,

    /// Rate of all flows together, like 80Mbit/s (counted over IP packets; with tcp:// over payload) or
    /// 200pps. Required with udp:// [default with tcp://: as fast as TCP goes]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Gaps between packets: constant, poisson or pareto(SHAPE)
    #[arg(long, value_name = "DISTRIBUTION", default_value = "constant")]
    distribution: Gaps,

    /// Size of the UDP payload [default: 1400B], or of each write with tcp:// [default: 128KiB, or
    /// 10 ms of the rate]
    #[arg(long, value_name = "BYTES")]
    size: Option<Bytes>,

    /// Seed of the gaps and of the payload
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What the payload begins with
    #[arg(long, value_enum, default_value_t = HeaderChoice::Dwell)]
    header: HeaderChoice,

    /// Stop after this time [default: until stopped]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// Stop after this many packets; with tcp:// after this many writes
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Stop after this many bytes of payload, like 100MB
    #[arg(long, value_name = "BYTES", conflicts_with = "count")]
    bytes: Option<Bytes>,

    /// Which stamps to use for --samples: the program's own, or the kernel's beside them where
    /// delivered
    #[arg(long, value_enum, default_value_t = StampChoice::Auto)]
    stamps: StampChoice,

    /// Where and how the timing loop runs.
    #[command(flatten)]
    place: PlaceArgs,

    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,

    /// Write every stamp of every packet to this file
    #[arg(long, value_name = "FILE")]
    pub(super) samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What the payload of traffic begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HeaderChoice {
    /// dwell's own mark: flow and sequence number
    Dwell,
    /// iperf2's, so that `iperf -s -u -e` counts the flow and reports it; the last packet of a flow
    /// is its end, which is repeated until the server has answered
    Iperf,
}

/// A job of either protocol.
pub(super) enum Job {
    /// UDP.
    Traffic(TrafficJob),
    /// TCP.
    Bulk(BulkJob),
}

impl Args {
    /// Whether the load ends without being stopped.
    pub(super) fn has_an_end(&self) -> bool {
        self.duration.is_some() || self.count.is_some() || self.bytes.is_some()
    }

    /// The job that these arguments describe.
    pub(super) fn job(&self) -> Result<Job, Failure> {
        if self.url.starts_with("tcp://") { self.bulk().map(Job::Bulk) } else { self.udp() }
    }

    fn bulk(&self) -> Result<BulkJob, Failure> {
        let only_udp = |flag: &str| {
            Failure::usage(format!("{flag} is for udp://: a TCP stream has no packets of its own"))
        };
        if self.distribution != Gaps::Constant {
            return Err(only_udp("--distribution"));
        }
        if self.header == HeaderChoice::Iperf {
            return Err(only_udp("--header iperf"));
        }
        if self.samples.is_some() {
            return Err(only_udp("--samples"));
        }
        if self.stamps != StampChoice::Auto {
            return Err(only_udp("--stamps"));
        }
        let rate = match self.rate {
            None => None,
            Some(Rate::Bits(rate)) => Some(rate),
            Some(Rate::Packets(rate)) => {
                return Err(Failure::usage(format!(
                    "invalid value {rate} for --rate: tcp:// counts no packets; give bits, like 80Mbit/s"
                )));
            }
        };
        let mut job = BulkJob {
            url: self.url.clone(),
            flows: self.flows,
            rate,
            write_size: self.size,
            bytes: self.bytes,
            duration: self.duration,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            place: self.place.into(),
        };
        if let Some(count) = self.count {
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
        let size = self.size.unwrap_or(DEFAULT_PAYLOAD);
        let count = self.bytes.map(|bytes| bytes.0.div_ceil(size.0.max(1)));
        Ok(Job::Traffic(TrafficJob {
            url: self.url.clone(),
            flows: self.flows,
            rate,
            distribution: self.distribution.to_string(),
            size,
            seed: self.seed,
            duration: self.duration,
            count: self.count.or(count),
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            header: match self.header {
                HeaderChoice::Dwell => TrafficHeader::Dwell,
                HeaderChoice::Iperf => TrafficHeader::Iperf,
            },
            unreported: false,
            stamps: self.stamps.into(),
            place: self.place.into(),
        }))
    }
}

/// Default size of the UDP payload.
const DEFAULT_PAYLOAD: Bytes = Bytes(1_400);

/// What came of the sending, before anything is made of it.
struct Outcome {
    sent: Sent,
    placement: Placement,
    /// Of each iperf flow, if it came.
    reports: Vec<Option<ServerReport>>,
    keeps_samples: bool,
    nics: Option<Vec<NicDropped>>,
}

/// Whether each packet is worth its punctuality.
fn measures(job: &TrafficJob, keeps_samples: bool) -> bool {
    keeps_samples || job.header == TrafficHeader::Iperf
}

/// Judges a job before any file is made for it.
pub(super) fn check(job: &TrafficJob) -> Result<(), Failure> {
    Plan::new(job).map(drop)
}

/// Sends until stopped, or as the job says.
pub(crate) fn send(
    job: &TrafficJob,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    talk: &mut dyn FnMut(&str),
) -> Result<Loaded, Failure> {
    let plan = Plan::new(job)?;
    let mut recorder = Recorder::new(&job.url, job.flows as usize, samples)?;
    let keeps_samples = recorder.log.keeps_samples();
    let flows = open(job, &plan, keeps_samples)
        .map_err(|error| Failure::from(anyhow::anyhow!("cannot send to {}: {error}", job.url)))?;
    recorder.flows(entries(&flows, &plan).into_iter());
    talk(&format!(
        "sending {} flows to {}, {} in all, {}, seed {}: payload {} B, IP {} B, Ethernet {} B",
        job.flows,
        job.url,
        job.rate,
        plan.gaps,
        job.seed,
        plan.size,
        plan.ip_size,
        plan.ip_size + 14
    ));
    let (told, mut heard) = rtrb::RingBuffer::new(ring(&plan));
    let mut driver = Driver {
        flows,
        payload: Payload::new(job, &plan),
        manner: plan.manner(measures(job, keeps_samples)),
        count: plan.count,
        duration: job.duration,
        stop,
        told,
        sent: Sent::default(),
        ending: match job.header {
            TrafficHeader::Dwell => Ending::Unsaid,
            TrafficHeader::Iperf if job.unreported => Ending::Said,
            TrafficHeader::Iperf => Ending::Reported(vec![None; job.flows as usize]),
        },
    };
    let real_time = plan.place.real_time(keeps_samples && plan.mostly_sleeps());
    let nics = NicWatch::start();
    let main = thread::current();
    let over = AtomicBool::new(false);
    let (driver, placement) = thread::scope(|scope| {
        let over = &over;
        let timing = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::settle(job.place.cpu, real_time)?;
            driver.run();
            over.store(true, Ordering::Release);
            main.unpark();
            Ok((driver, placement))
        });
        recorder.follow(&mut heard, &|| over.load(Ordering::Acquire) || timing.is_finished());
        timing.join().expect("the timing loop does not panic")
    })?;
    let reports = driver.ending.reports();
    let nics = nics.towards([plan.peer]);
    let outcome = Outcome { sent: driver.sent, placement, reports, keeps_samples, nics };
    let summary = summary::summary(job, &plan, &outcome, &recorder);
    let (_, failure) = recorder.log.finish(outcome.sent.dropped);
    if job.stamps == Stamps::Kernel && keeps_samples && summary.stamps.tx == Some(Rung::User) {
        return Err(Failure::unsupported(
            "--stamps kernel: this socket delivers no kernel stamps here; --stamps auto measures \
             with the program's own",
        ));
    }
    Ok(Loaded { summary, failure: failure.map(Failure::from) })
}

/// Opens a socket for each flow. Stamps are asked for only where they are kept.
fn open(job: &TrafficJob, plan: &Plan, keeps_samples: bool) -> io::Result<Vec<Flow>> {
    let stamped = keeps_samples && job.stamps != Stamps::User;
    let options = PortOptions {
        stamps: if stamped { StampRequest::Kernel } else { StampRequest::User },
        sched_stamps: stamped,
        ..PortOptions::default()
    };
    // All flows together wait for at most so many stamps.
    const MOST: u32 = 8_192;
    let open = |flow: u32| {
        let port = UdpPort::connect(plan.peer, &options)?;
        let phase = Nanos((plan.mean * f64::from(flow)) as i64);
        let seed = job.seed.wrapping_add(u64::from(flow));
        let schedule = Schedule::new(plan.gaps, plan.mean * f64::from(job.flows), phase, seed);
        let pending = keeps_samples.then(|| Pending::new((MOST / job.flows).max(8) as usize));
        Ok(Flow { port, schedule, packets: 0, pending })
    };
    (0..job.flows).map(open).collect()
}

fn entries(flows: &[Flow], plan: &Plan) -> Vec<FlowEntry> {
    let entry = |(number, flow): (u32, &Flow)| FlowEntry {
        flow: number,
        protocol: "udp".to_owned(),
        from: flow.port.local_addr(),
        to: plan.peer,
        from_out: None,
        to_out: None,
    };
    (0..).zip(flows).map(entry).collect()
}

/// Notes that the ring holds: four turns of the recorder, two notes for each packet.
fn ring(plan: &Plan) -> usize {
    ((8e8 / plan.mean) as usize).clamp(1 << 10, 1 << 16)
}
