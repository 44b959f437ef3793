//! `dwell load traffic tcp://`: bulk transfer over TCP connections.
//!
//! `drive` is the sending loop on its own thread, `summary` builds the result. The calling thread
//! samples the round-trip times.

mod drive;
mod summary;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dwell_io::clock;
use dwell_io::cpu::{self, Placement};
use dwell_io::tcp_info::{self, tcp_info};
use dwell_protocol::{BulkJob, ThreadPlacement};
use dwell_record::NicDropped;
use dwell_stats::Distribution;
use dwell_units::{BitRate, Bytes, Nanos, Pairing};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Loaded;
use crate::nic::NicWatch;
use crate::{Failure, Scheme, placement};
use drive::{Driver, Flow};

/// Interval between samples of round-trip times.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Time-out of a connection attempt: the SYN is repeated after 1 s and 3 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without acknowledgments after which the peer is considered gone.
const PEER_TIMEOUT: Nanos = Nanos::from_secs(10);

/// Maximum unsent bytes per socket.
const MAX_UNSENT: u32 = 128 << 10;

/// Size of a write without `--size` and `--rate`.
const DEFAULT_WRITE: u64 = 128 << 10;

/// Maximum size of a write.
const MAX_WRITE: u64 = 1 << 20;

/// Validated job of a bulk transfer.
pub(super) struct BulkSetup {
    peer: SocketAddr,
    write: usize,
    place: ThreadPlacement,
}

impl BulkSetup {
    fn new(job: &BulkJob) -> Result<Self, Failure> {
        let write = write_size(job).0;
        if !(1..=MAX_WRITE).contains(&write) {
            return Err(Failure::usage(format!(
                "invalid value {} for --size: a write over tcp:// has 1B to 1MiB",
                Bytes(write)
            )));
        }
        if !(1..=1_000).contains(&job.flows) {
            return Err(Failure::usage(format!(
                "invalid value {} for --flows: 1 to 1000",
                job.flows
            )));
        }
        if job.rate == Some(BitRate(0)) {
            return Err(Failure::usage("invalid value 0 for --rate: give a rate like 80Mbit/s"));
        }
        if job.bytes == Some(Bytes(0)) {
            return Err(Failure::usage("invalid value 0B for --bytes: send 1B or more"));
        }
        if job.duration.is_some_and(|time| time <= Nanos::ZERO) {
            return Err(Failure::usage("invalid value 0s for --duration: give a time like 2s"));
        }
        let place = job.place;
        placement::check(&place)?;
        let fits = |address: &SocketAddr| match (job.ipv4, job.ipv6) {
            (true, _) => address.is_ipv4(),
            (_, true) => address.is_ipv6(),
            _ => true,
        };
        let (_, addresses) = super::addresses(&job.url, &[Scheme::Tcp])?;
        let peer = addresses.into_iter().find(fits).ok_or_else(|| {
            Failure::usage(format!("{} has no address of the requested family", job.url))
        })?;
        Ok(Self { peer, write: write as usize, place })
    }
}

/// Returns the size of each write.
pub(super) fn write_size(job: &BulkJob) -> Bytes {
    job.write_size.unwrap_or_else(|| match job.rate {
        // 10 ms of each connection's share.
        Some(rate) => {
            Bytes((rate.0 / 800 / u64::from(job.flows.max(1))).clamp(1_448, DEFAULT_WRITE))
        }
        None => Bytes(DEFAULT_WRITE),
    })
}

/// Result of the sending loop.
struct Outcome {
    flows: Vec<Flow>,
    elapsed: Nanos,
    placement: Placement,
    rtt: Distribution,
    congestion_control: Option<String>,
    nics: Option<Vec<NicDropped>>,
    clocks: (Pairing, Pairing),
}

/// Validates a job.
pub(super) fn check(job: &BulkJob) -> Result<(), Failure> {
    BulkSetup::new(job).map(drop)
}

/// Sends until stopped or until the job is done. Failed connections are part of the result; the job
/// fails if all of them fail.
pub(crate) fn send(
    job: &BulkJob,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Loaded, Failure> {
    let setup = BulkSetup::new(job)?;
    let streams = connect(job, &setup, stop)?;
    announce(&format!(
        "sending to {} over {} TCP connections, {}",
        job.url,
        job.flows,
        job.rate.map_or("unpaced".to_owned(), |rate| rate.to_string()),
    ));
    let mut payload = vec![0; setup.write];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut payload);
    let congestion_control =
        streams.first().and_then(|stream| tcp_info::congestion_control(stream).ok());
    let (nics, start) = (NicWatch::start(), clock::pair());
    let mut rtt = Distribution::new();
    let main = thread::current();
    let (driver, placement) = thread::scope(|scope| {
        let (streams, payload) = (&streams, payload.as_slice());
        let sending = scope.spawn(move || -> io::Result<_> {
            let placement =
                cpu::place_thread(job.place.cpu, placement::real_time(&setup.place, false))?;
            let mut driver = Driver::new(job, streams, payload, stop)?;
            driver.run()?;
            main.unpark();
            Ok((driver.finish(), placement))
        });
        while !sending.is_finished() {
            thread::park_timeout(SAMPLE_INTERVAL);
            let infos = streams.iter().filter_map(|stream| tcp_info(stream).ok());
            infos.filter(|info| info.unacked_segments > 0).for_each(|info| rtt.record(info.rtt));
        }
        sending.join().expect("the sending loop does not panic")
    })?;
    let outcome = Outcome {
        flows: driver.flows,
        elapsed: driver.elapsed,
        placement,
        rtt,
        congestion_control,
        nics: nics.towards([setup.peer]),
        clocks: (start, clock::pair()),
    };
    let gone = outcome.flows.iter().all(|flow| flow.error.is_some());
    let failure =
        outcome.flows.iter().find_map(|flow| flow.error.as_ref()).filter(|_| gone).map(|error| {
            Failure::from(anyhow::anyhow!("every connection to {} ended: {error}", job.url))
        });
    Ok(Loaded { summary: summary::summary(job, &setup, &outcome), failure })
}

/// Opens all connections, fewer after a stop.
fn connect(job: &BulkJob, setup: &BulkSetup, stop: &AtomicBool) -> Result<Vec<TcpStream>, Failure> {
    let mut streams = Vec::with_capacity(job.flows as usize);
    for _ in 0..job.flows {
        let stream = TcpStream::connect_timeout(&setup.peer, CONNECT_TIMEOUT).map_err(|error| {
            let port = setup.peer.port();
            Failure::from(anyhow::anyhow!(
                "cannot connect to {}: {error}; run `dwell load sink tcp://0.0.0.0:{port}` there",
                job.url
            ))
        })?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        tcp_info::limit_bulk(&stream, MAX_UNSENT, PEER_TIMEOUT)?;
        streams.push(stream);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(streams)
}
