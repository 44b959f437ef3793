//! `dwell load sink`: receives traffic and counts it per flow. It replies only to the end of an
//! iperf flow.
//!
//! `drive` receives UDP on one thread per socket, `flow` counts a flow, `tcp` receives on
//! connections, `summary` builds the result.

mod drive;
mod flow;
mod summary;
mod tcp;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::Duration;

use dwell_io::clock::{self, monotonic};
use dwell_io::cpu::{self, Placement};
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::{SocketOptions, StampRequest};
use dwell_protocol::{SinkJob, Stamps};
use dwell_record::segment::FlowEntry;
use dwell_stats::Distribution;
use dwell_units::Nanos;
use rtrb::{Consumer, RingBuffer};

use super::Loaded;
use crate::nic::NicWatch;
use crate::observation_writer::ObservationWriter;
use crate::ping::SampleFile;
use crate::{Failure, Scheme, placement};
use drive::{Receiver, SinkEvent};
use tcp::TcpSink;

/// Capacity of a ring: the events of two ticks at 300,000 packets per second.
const RING_CAPACITY: usize = 1 << 16;

/// Interval between writes of the recorder.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `load sink`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Packets to receive.
    #[command(flatten)]
    pub(super) job: SinkJob,

    /// Write all timestamps of every packet to this file
    #[arg(long, value_name = "FILE")]
    pub(super) samples: Option<PathBuf>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Validates a job before any file is created.
pub(super) fn check(job: &SinkJob) -> Result<(), Failure> {
    if let Some(error) = job.clock_error.filter(|error| *error < Nanos::ZERO) {
        return Err(Failure::usage(format!(
            "invalid value {error} for --clock-error: 0s or more, like 20us"
        )));
    }
    placement::check(&job.place)
}

/// Counts until stopped or until the duration is over. Calls `announce` when all sockets are open.
pub(crate) fn sink(
    job: &SinkJob,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Loaded, Failure> {
    check(job)?;
    let default = ["udp://[::]:5001".to_owned(), "udp://0.0.0.0:5001".to_owned()];
    let urls = if job.urls.is_empty() { &default[..] } else { &job.urls };
    let Sockets { servers, listeners } = open(job, urls)?;
    let mut recorder = Recorder {
        log: ObservationWriter::begin("load sink", &urls.join(" "), samples)?,
        one_way: Distribution::new(),
    };
    let (start, nics) = (clock::pair(), NicWatch::start());
    let mut lines: Vec<_> =
        servers.iter().map(|s| format!("listening on udp://{}", s.local_addr())).collect();
    for listener in &listeners {
        lines.push(format!("listening on tcp://{}", listener.local_addr()?));
    }
    announce(&lines.join("\n"));
    let place = job.place;
    let wants_events = recorder.log.keeps_samples() || job.clock_error.is_some();
    let end = monotonic().saturating_add(job.duration.unwrap_or(Nanos::MAX));
    let next_flow = AtomicU32::new(0);
    let mut rings = Vec::new();
    let mut receivers = Vec::new();
    for server in servers {
        let (events, consumer) = wants_events.then(|| RingBuffer::new(RING_CAPACITY)).unzip();
        rings.extend(consumer);
        receivers.push(Receiver {
            server,
            events,
            next_flow: &next_flow,
            busy_poll: place.busy_poll,
            one_clock: job.clock_error.is_some(),
            end,
            stop,
        });
    }
    let has_udp = !receivers.is_empty();
    let sinks = listeners.into_iter().map(|one| TcpSink::new(one, place.busy_poll, end, stop));
    let sinks = sinks.collect::<io::Result<Vec<_>>>()?;
    let main = thread::current();
    let (counted, received) = thread::scope(|scope| -> io::Result<(Vec<_>, Vec<_>)> {
        let streams: Vec<_> = sinks
            .into_iter()
            .map(|sink| {
                scope.spawn(move || -> io::Result<_> {
                    let placement: Placement =
                        cpu::place_thread(job.place.cpu, placement::real_time(&place, false))?;
                    Ok((sink.run()?, placement))
                })
            })
            .collect();
        let threads: Vec<_> = receivers
            .into_iter()
            .map(|receiver| {
                let main = main.clone();
                scope.spawn(move || -> io::Result<_> {
                    let placement: Placement =
                        cpu::place_thread(job.place.cpu, placement::real_time(&place, false))?;
                    let counted = receiver.run();
                    main.unpark();
                    Ok((counted?, placement))
                })
            })
            .collect();
        recorder.follow(&mut rings, &|| threads.iter().all(thread::ScopedJoinHandle::is_finished));
        let counted: io::Result<Vec<_>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a sink thread does not panic"))
            .collect();
        let received: io::Result<Vec<_>> = streams
            .into_iter()
            .map(|thread| thread.join().expect("a sink thread does not panic"))
            .collect();
        Ok((counted?, received?))
    })?;
    let placements = counted.iter().map(|(_, placement)| *placement);
    let placement = placements.chain(received.iter().map(|(_, placement)| *placement)).next();
    let counted: Vec<_> = counted.into_iter().map(|(counted, _)| counted).collect();
    let received: Vec<_> = received.into_iter().map(|(received, _)| received).collect();
    let Recorder { log, one_way } = recorder;
    let summary = summary::SinkResult {
        job,
        urls,
        counted: has_udp.then_some(&*counted),
        received: &received,
        one_way: &one_way,
        start,
        nics: &nics,
    }
    .summary(log.components(), placement.map(|p| placement::record(&place, p)).unwrap_or_default());
    let (_, failure) = log.finish(counted.iter().map(|c| c.dropped).sum());
    let has_packets = counted.iter().any(|c| c.packets > c.unmarked);
    if job.stamps == Stamps::Kernel && has_packets && !counted.iter().any(|c| c.stamped) {
        return Err(Failure::unsupported(
            "--stamps kernel: these sockets deliver no kernel timestamps here; use --stamps auto \
             to fall back to user timestamps",
        ));
    }
    Ok(Loaded { summary, failure: failure.map(Failure::from) })
}

/// Sockets of all URLs.
struct Sockets {
    servers: Vec<DatagramSocket>,
    listeners: Vec<TcpListener>,
}

fn open(job: &SinkJob, urls: &[String]) -> Result<Sockets, Failure> {
    let stamps = if job.stamps == Stamps::User { StampRequest::User } else { StampRequest::Kernel };
    let options = SocketOptions { stamps, ..SocketOptions::server() };
    let mut sockets = Sockets { servers: Vec::new(), listeners: Vec::new() };
    for url in urls {
        let failed =
            |error: io::Error| Failure::from(anyhow::anyhow!("cannot listen on {url}: {error}"));
        let (scheme, addresses) = super::addresses(url, &[Scheme::Udp, Scheme::Tcp])?;
        for address in addresses {
            if scheme == Scheme::Tcp {
                sockets.listeners.push(dwell_io::tcp::listen(address, None).map_err(failed)?);
            } else {
                sockets.servers.push(DatagramSocket::bind(address, &options).map_err(failed)?);
            }
        }
    }
    Ok(sockets)
}

/// Turns events of the receive loops into statistics and observations, ten times per second.
struct Recorder {
    log: ObservationWriter,
    one_way: Distribution,
}

impl Recorder {
    /// Records events until the loops are `over`.
    fn follow(&mut self, rings: &mut [Consumer<SinkEvent>], over: &dyn Fn() -> bool) {
        loop {
            // Read this first, so that the last events are still recorded.
            let last = over();
            for ring in &mut *rings {
                while let Ok(event) = ring.pop() {
                    self.take(event);
                }
            }
            self.log.flush();
            if last {
                return;
            }
            thread::park_timeout(FLUSH_INTERVAL);
        }
    }

    fn take(&mut self, event: SinkEvent) {
        match event {
            SinkEvent::Flow { number, from, to } => self.log.flow(&FlowEntry {
                flow: number,
                protocol: "udp".to_owned(),
                from,
                to,
                from_out: None,
                to_out: None,
            }),
            SinkEvent::Observation { observation, transit } => {
                self.log.take(&observation);
                transit.into_iter().for_each(|transit| self.one_way.record(transit));
            }
        }
    }
}
