//! `dwell pace sink`: timestamps arriving packets and reports them to their sender
//! ([`super::far_end`]). Packets of flows that were not announced are dropped. The kernel takes the
//! timestamps, so timing here is not critical; [`super::clock_steps`] detects steps of its clock.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dwell_io::clock::{self, monotonic};
use dwell_io::datagram::DatagramSocket;
use dwell_io::gate::Gate;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_io::train::FIRST_LEAD_NUMBER;
use dwell_io::{cpu, interface, tcp};
use dwell_protocol::PaceSinkJob;
use dwell_record::{Kind, Scalar, Stamps, Summary, Trust, Warning};
use dwell_sample::TimestampSource;
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::traffic::Mark;
use serde_json::json;

use super::clock_steps::ClockSteps;
use super::far_end::{
    self, EXCHANGE_TIMEOUT, MAX_STAMPS, SILENCE_TIMEOUT, STEPPED, SinkRequest, TimedStream,
};
use crate::environment::environment;
use crate::{Failure, placement};

/// Maximum number of senders. This bounds the memory, at 18 MB of timestamps each.
const MAX_SENDERS: usize = 8;

/// Allocation step, in timestamps.
const STAMP_ALLOCATION: usize = 1 << 16;

/// Maximum time to wait for queued packets before reporting.
const CATCH_UP_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Interval for checking for a stop and for new senders.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timestamps of the announced flows.
#[derive(Debug)]
struct FlowTable {
    /// By flow number.
    flows: HashMap<u32, Flow>,
    /// Shut while there are no flows.
    gate: Gate,
}

impl FlowTable {
    fn new(mut gate: Gate) -> Self {
        gate.shut();
        Self { flows: HashMap::new(), gate }
    }

    /// Starts to keep a flow; returns `false` if it is already kept.
    fn begin(&mut self, flow: u32) -> io::Result<bool> {
        // The flow stays with its first sender.
        if self.flows.contains_key(&flow) {
            return Ok(false);
        }
        self.gate.open()?;
        self.flows.insert(flow, Flow::default());
        Ok(true)
    }

    fn end(&mut self, flow: u32) {
        self.flows.remove(&flow);
        if self.flows.is_empty() {
            self.gate.shut();
        }
    }
}

/// Timestamps of a flow.
#[derive(Debug, Default)]
struct Flow {
    /// Entries in wire format order.
    stamps: Vec<(u64, Instant<Realtime>)>,
    /// Epoch of the last packet ([`ClockSteps::packet`]).
    epoch: u64,
}

impl Flow {
    /// Stores a packet's timestamp, preceded by an entry if the clock may have been stepped since
    /// the last one; returns `false` if the flow is full.
    fn keep(&mut self, number: u64, at: Instant<Realtime>, epoch: u64) -> bool {
        if self.stamps.len() + 2 > MAX_STAMPS {
            return false;
        }
        if self.stamps.len() + 2 > self.stamps.capacity() {
            self.stamps.reserve_exact(STAMP_ALLOCATION.min(MAX_STAMPS - self.stamps.len()));
        }
        if epoch != self.epoch {
            self.epoch = epoch;
            self.stamps.push((STEPPED, Instant::from_nanos(0)));
        }
        self.stamps.push((number, at));
        true
    }
}

/// State shared between the receiving thread and the threads that serve senders.
#[derive(Debug)]
struct Shared {
    kept: Mutex<FlowTable>,
    /// Number of times that the receive queue was found empty.
    emptied: AtomicU64,
}

/// Totals of the sink.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    /// Lead-in packets, not included in `packets`.
    leads: u64,
    /// Packets of unannounced flows, or beyond the limit of a flow.
    unasked: u64,
    stamped: bool,
    /// Noticed steps of the clock.
    steps: u64,
    /// Packets dropped while no flow was announced.
    unread: u64,
    overflowed: Option<u64>,
}

/// Timestamps packets until stopped. Calls `ready` when listening.
pub(crate) fn perform(
    job: &PaceSinkJob,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let place = job.place;
    placement::check(&place)?;
    let addresses = crate::load::udp_addresses(&job.url)?;
    let address = *addresses.first().ok_or_else(|| {
        Failure::usage(format!("'{}' has no address; give one like udp://0.0.0.0:5001", job.url))
    })?;
    let failed = |what: &str, error: io::Error| {
        Failure::from(anyhow::anyhow!("cannot listen on {} by {what}: {error}", job.url))
    };
    let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::server() };
    // Without kernel timestamps, all are user timestamps.
    let (server, source) = match DatagramSocket::bind(address, &options) {
        Ok(server) => (server, TimestampSource::KernelSw),
        Err(_) => (
            DatagramSocket::bind(address, &SocketOptions::server())
                .map_err(|error| failed("UDP", error))?,
            TimestampSource::User,
        ),
    };
    let listener = TcpListener::bind(server.local_addr()).map_err(|error| failed("TCP", error))?;
    listener.set_nonblocking(true).map_err(|error| failed("TCP", error))?;
    let local = server.local_addr();
    let gate = server.gate().map_err(|error| failed("UDP", error))?;
    let shared = Shared { kept: Mutex::new(FlowTable::new(gate)), emptied: AtomicU64::new(0) };
    ready(&format!("stamping packets at udp://{local}"));
    let (counts, placement) = thread::scope(|scope| {
        let shared = &shared;
        let receiving = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::place_thread(job.place.cpu, placement::real_time(&place, false))?;
            Ok((receive(server, source, job.place.busy_poll, shared, stop)?, placement))
        });
        let mut senders: Vec<(thread::ScopedJoinHandle<'_, ()>, TcpStream)> = Vec::new();
        while !stop.load(Ordering::Relaxed) && !receiving.is_finished() {
            senders.retain(|(sender, _)| !sender.is_finished());
            match listener.accept() {
                Ok((stream, _)) if senders.len() < MAX_SENDERS => {
                    // A handle for shutting the connection down.
                    let Ok(other) = stream.try_clone() else { continue };
                    senders.push((scope.spawn(move || serve(stream, source, shared, stop)), other));
                }
                // No connection, or one too many: retry later.
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
        // Let running reports finish, within a limit.
        let until = monotonic() + SILENCE_TIMEOUT;
        while senders.iter().any(|(sender, _)| !sender.is_finished()) && monotonic() < until {
            thread::sleep(POLL_INTERVAL);
        }
        for (_, stream) in senders {
            let _ = stream.shutdown(Shutdown::Both);
        }
        receiving.join().expect("receiving does not panic")
    })?;
    Ok(summary(job, &local.to_string(), counts, placement::record(&place, placement)))
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, FlowTable> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the packets that have already arrived were received, even if the receiving
    /// thread lags behind. Bounded, as other packets may arrive continuously.
    fn catch_up(&self, stop: &AtomicBool) {
        let before = self.emptied.load(Ordering::Acquire);
        let until = monotonic() + CATCH_UP_TIMEOUT;
        while self.emptied.load(Ordering::Acquire) == before
            && monotonic() < until
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn receive(
    mut server: DatagramSocket,
    source: TimestampSource,
    busy_poll: bool,
    shared: &Shared,
    stop: &AtomicBool,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut buffer = vec![0; 65_535];
    let wait = if busy_poll { Wait::No } else { Wait::AtMost(Nanos::from_millis(20)) };
    let mut steps = ClockSteps::since(clock::pair());
    while !stop.load(Ordering::Relaxed) {
        let request = server.receive_from(&mut buffer, wait)?;
        if request.is_none() {
            steps.empty();
            shared.emptied.fetch_add(1, Ordering::Release);
        }
        steps.check(&clock::quick_pair(), clock::pair);
        let Some(request) = request else { continue };
        let mark = Mark::parse(&buffer[..request.len]).ok();
        if mark.is_some_and(|mark| mark.seq >= FIRST_LEAD_NUMBER) {
            counts.leads += 1;
            continue;
        }
        counts.packets += 1;
        let kernel = request.rx.and_then(|rx| rx.kernel);
        counts.stamped |= kernel.is_some();
        let at = if source == TimestampSource::User { Some(clock::realtime()) } else { kernel };
        let epoch = steps.packet();
        let mut kept = shared.kept();
        let flow = mark.and_then(|mark| Some((mark.seq, kept.flows.get_mut(&mark.flow)?)));
        // A packet without a timestamp is not reported.
        let is_kept = flow.zip(at).is_some_and(|((seq, flow), at)| flow.keep(seq, at, epoch));
        counts.unasked += u64::from(!is_kept);
    }
    let kept = shared.kept();
    counts.unread = kept.gate.unread();
    // The kernel counts both together, in 32 bits; drops between the two readings count as
    // overflow.
    let overflowed = |dropped: u64| u64::from((dropped as u32).wrapping_sub(counts.unread as u32));
    counts.overflowed = server.overflowed().map(overflowed);
    counts.steps = steps.noticed();
    Ok(counts)
}

/// Serves one sender until it disconnects; then drops its timestamps.
fn serve(stream: TcpStream, source: TimestampSource, shared: &Shared, stop: &AtomicBool) {
    let mut flows = Vec::new();
    let _ = serve_requests(stream, source, shared, stop, &mut flows);
    let mut kept = shared.kept();
    flows.into_iter().for_each(|flow| kept.end(flow));
}

fn serve_requests(
    stream: TcpStream,
    source: TimestampSource,
    shared: &Shared,
    stop: &AtomicBool,
    flows: &mut Vec<u32>,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    // Detect a sender that vanished, so that its flow is not kept for ever.
    tcp::enable_keepalive(&stream)?;
    let mut timed = TimedStream { stream, until: monotonic() };
    loop {
        // A sender is silent while its trains are being sent.
        timed.stream.set_read_timeout(Some(POLL_INTERVAL))?;
        match timed.stream.peek(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_retryable(&error) && !stop.load(Ordering::Relaxed) => continue,
            Err(error) => return Err(error),
        }
        timed.until = monotonic() + SILENCE_TIMEOUT;
        match far_end::read_request(&mut timed) {
            Some(SinkRequest::Keep(flow)) if flows.is_empty() => {
                if let Some(why) = merging(&timed.stream) {
                    return far_end::refuse(&mut timed, &why);
                }
                let begun = shared.kept().begin(flow);
                match begun {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => return far_end::refuse(&mut timed, &error.to_string()),
                }
                flows.push(flow);
                far_end::greet(&mut timed, source)?;
            }
            Some(SinkRequest::Stamps) if !flows.is_empty() => {
                let flow = flows[0];
                shared.catch_up(stop);
                let count = shared.kept().flows.get(&flow).map_or(0, |flow| flow.stamps.len());
                timed.until = monotonic() + EXCHANGE_TIMEOUT;
                // Entries are not removed while their sender is connected.
                far_end::send_stamps(&mut timed, count, |some| {
                    shared.kept().flows[&flow].stamps[some].to_vec()
                })?;
            }
            _ => return Ok(()),
        }
    }
}

/// Returns why packets from this peer would share timestamps, which would make gaps 0.
fn merging(from: &TcpStream) -> Option<String> {
    let interface = interface::towards(from.peer_addr().ok()?).ok()??;
    let merging = interface.receive_merging_offloads()?;
    let off: String = merging.iter().map(|offload| format!(" {offload} off")).collect();
    (!merging.is_empty()).then(|| {
        format!("{} merges packets before they are stamped: ethtool -K {0}{off}", interface.name)
    })
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn summary(
    job: &PaceSinkJob,
    local: &str,
    counts: Counts,
    placement: dwell_record::Placement,
) -> Summary {
    let Counts { packets, leads, unasked, stamped, steps, unread, overflowed } = counts;
    let source = if stamped { TimestampSource::KernelSw } else { TimestampSource::User };
    let mut trust = Trust::default();
    trust.warn_count(steps, |steps| {
        Warning::ClockStepped(format!("{steps} times; senders discard the affected trains"))
    });
    Summary {
        kind: Kind::Pace,
        target: job.url.clone(),
        parameters: [("role", json!("sink")), ("address", json!(local))]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        packets: None,
        metrics: [].into(),
        values: [
            ("packets", Some(Scalar::Count(packets))),
            ("lead_packets", Some(Scalar::Count(leads))),
            ("unasked_packets", Some(Scalar::Count(unasked))),
            ("unread_packets", Some(Scalar::Count(unread))),
            ("clock_steps", Some(Scalar::Count(steps))),
            ("overflowed_packets", overflowed.map(Scalar::Count)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        stamps: Stamps { tx: None, rx: (packets > 0).then_some(source), near: None },
        engine: "udp".to_owned(),
        trains: Vec::new(),
        spikes: None,
        driver: None,
        trust,
        environment: environment(None, placement),
    }
}
