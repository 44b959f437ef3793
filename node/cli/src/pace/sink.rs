//! `dwell pace sink`: stamps what arrives, and tells whoever sent it ([`super::far_end`]). The kernel
//! stamps, so nothing here has to be punctual.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dwell_engine::stamps::Rung;
use dwell_io::clock::{self, monotonic};
use dwell_io::port::{StampRequest, Wait};
use dwell_io::train::LEAD;
use dwell_io::udp::{ServerOptions, UdpServer};
use dwell_io::{cpu, interface};
use dwell_plan::PaceSinkJob;
use dwell_record::{Kind, Scalar, Stamps, Summary, Trust};
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::traffic::Mark;
use serde_json::json;

use super::far_end::{self, EXCHANGE, MOST, PATIENCE, STEPPED, Timed, Wish};
use crate::environment::environment;
use crate::{Failure, PlaceArgs};

/// Senders at a time. Each has room for all of its stamps, so that this bounds the memory: 18 MB each.
const SENDERS: usize = 8;

/// Room for so many stamps more is made at a time.
const MORE: usize = 1 << 16;

/// A stop is obeyed, and senders are looked for, this often.
const TICK: Duration = Duration::from_millis(20);

/// What came of each flow that somebody asked for, by its number.
type Kept = HashMap<u32, Vec<(u64, Instant<Realtime>)>>;

/// What came in all.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    /// What led trains, besides those.
    leads: u64,
    /// Of no flow that anybody asked for, or beyond what is kept of one.
    unasked: u64,
    stamped: bool,
    /// Of the clock.
    steps: u64,
    overflowed: Option<u64>,
}

/// Stamps until stopped. `ready` hears when it listens.
pub(crate) fn perform(
    job: &PaceSinkJob,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    let place = PlaceArgs::from(job.place);
    place.check()?;
    let addresses = crate::load::udp_addresses(&job.url)?;
    let address = *addresses.first().ok_or_else(|| {
        Failure::usage(format!("'{}' has no address; give one like udp://0.0.0.0:5001", job.url))
    })?;
    let failed = |what: &str, error: io::Error| {
        Failure::from(anyhow::anyhow!("cannot listen on {} by {what}: {error}", job.url))
    };
    let options = ServerOptions { stamps: StampRequest::Kernel, metadata: false };
    // What the kernel did not stamp is of the program's rung, and then all is.
    let (server, rung) = match UdpServer::bind(address, options) {
        Ok(server) => (server, Rung::KernelSw),
        Err(_) => (
            UdpServer::bind(address, ServerOptions::default())
                .map_err(|error| failed("UDP", error))?,
            Rung::User,
        ),
    };
    let listener = TcpListener::bind(server.local_addr()).map_err(|error| failed("TCP", error))?;
    listener.set_nonblocking(true).map_err(|error| failed("TCP", error))?;
    let local = server.local_addr();
    ready(&format!("stamping what arrives at udp://{local}"));
    let kept = Mutex::new(Kept::new());
    let (counts, placement) = thread::scope(|scope| {
        let kept = &kept;
        let receiving = scope.spawn(move || -> io::Result<_> {
            let placement = cpu::settle(job.place.cpu, place.real_time(false))?;
            Ok((receive(server, rung, job.place.busy_poll, kept, stop)?, placement))
        });
        let mut senders: Vec<(thread::ScopedJoinHandle<'_, ()>, TcpStream)> = Vec::new();
        while !stop.load(Ordering::Relaxed) && !receiving.is_finished() {
            senders.retain(|(sender, _)| !sender.is_finished());
            match listener.accept() {
                Ok((stream, _)) if senders.len() < SENDERS => {
                    // By which it is cut off if it does not end.
                    let Ok(other) = stream.try_clone() else { continue };
                    senders.push((scope.spawn(move || serve(stream, rung, kept, stop)), other));
                }
                // One too many, or none: either way a moment later.
                _ => thread::sleep(TICK),
            }
        }
        // Who is being told hears it to the end, if that is soon.
        let until = monotonic() + PATIENCE;
        while senders.iter().any(|(sender, _)| !sender.is_finished()) && monotonic() < until {
            thread::sleep(TICK);
        }
        for (_, stream) in senders {
            let _ = stream.shutdown(Shutdown::Both);
        }
        receiving.join().expect("receiving does not panic")
    })?;
    Ok(summary(job, &local.to_string(), counts, place.record(placement)))
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(
    mut server: UdpServer,
    rung: Rung,
    busy_poll: bool,
    kept: &Mutex<Kept>,
    stop: &AtomicBool,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut buffer = vec![0; 65_535];
    let wait = if busy_poll { Wait::No } else { Wait::AtMost(Nanos::from_millis(20)) };
    let mut clocks = clock::pair();
    while !stop.load(Ordering::Relaxed) {
        if clocks.step_until(&clock::glance()).is_some() {
            clocks = clock::pair();
            counts.steps += 1;
            lock(kept).values_mut().for_each(|stamps| keep(stamps, STEPPED, clocks.real));
        }
        let Some(request) = server.receive(&mut buffer, wait)? else { continue };
        let mark = Mark::parse(&buffer[..request.len]).ok();
        if mark.is_some_and(|mark| mark.seq >= LEAD) {
            counts.leads += 1;
            continue;
        }
        counts.packets += 1;
        let kernel = request.rx.and_then(|rx| rx.kernel);
        counts.stamped |= kernel.is_some();
        let at = if rung == Rung::User { Some(clock::realtime()) } else { kernel };
        let mut kept = lock(kept);
        let flow = mark.and_then(|mark| Some((mark.seq, kept.get_mut(&mark.flow)?)));
        // A stamp that did not come is none: the packet is not told.
        match flow.zip(at) {
            Some(((seq, stamps), at)) if stamps.len() < MOST => keep(stamps, seq, at),
            _ => counts.unasked += 1,
        }
    }
    counts.overflowed = server.overflowed();
    Ok(counts)
}

/// Takes one more, where there is room.
fn keep(stamps: &mut Vec<(u64, Instant<Realtime>)>, number: u64, at: Instant<Realtime>) {
    if stamps.len() == MOST {
        return;
    }
    if stamps.len() == stamps.capacity() {
        stamps.reserve_exact(MORE.min(MOST - stamps.len()));
    }
    stamps.push((number, at));
}

/// Serves one sender until it leaves; what was kept for it goes then.
fn serve(stream: TcpStream, rung: Rung, kept: &Mutex<Kept>, stop: &AtomicBool) {
    let mut flows = Vec::new();
    let _ = converse(stream, rung, kept, stop, &mut flows);
    let mut kept = lock(kept);
    for flow in flows {
        kept.remove(&flow);
    }
}

fn converse(
    stream: TcpStream,
    rung: Rung,
    kept: &Mutex<Kept>,
    stop: &AtomicBool,
    flows: &mut Vec<u32>,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut timed = Timed { stream, until: monotonic() };
    loop {
        // A sender says nothing while its trains are under way.
        timed.stream.set_read_timeout(Some(TICK))?;
        match timed.stream.peek(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_nothing_yet(&error) && !stop.load(Ordering::Relaxed) => continue,
            Err(error) => return Err(error),
        }
        timed.until = monotonic() + PATIENCE;
        match far_end::wish(&mut timed) {
            Some(Wish::Keep(flow)) if flows.is_empty() => {
                if let Some(why) = merging(&timed.stream) {
                    return far_end::refuse(&mut timed, &why);
                }
                let mut kept = lock(kept);
                // Somebody else's stays his.
                if kept.contains_key(&flow) {
                    return Ok(());
                }
                kept.insert(flow, Vec::new());
                drop(kept);
                flows.push(flow);
                far_end::greet(&mut timed, rung)?;
            }
            Some(Wish::Stamps) if !flows.is_empty() => {
                let flow = flows[0];
                let count = lock(kept).get(&flow).map_or(0, Vec::len);
                timed.until = monotonic() + EXCHANGE;
                // None is ever taken away again while its sender is here.
                far_end::tell(&mut timed, count, |some| lock(kept)[&flow][some].to_vec())?;
            }
            _ => return Ok(()),
        }
    }
}

/// Why packets that come from there would be stamped together: gaps between them would be 0.
fn merging(from: &TcpStream) -> Option<String> {
    let interface = interface::towards(from.peer_addr().ok()?).ok()??;
    let merging = interface.merges_received()?;
    let off: String = merging.iter().map(|offload| format!(" {offload} off")).collect();
    (!merging.is_empty()).then(|| {
        format!("{} merges packets before they are stamped: ethtool -K {0}{off}", interface.name)
    })
}

fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn summary(
    job: &PaceSinkJob,
    local: &str,
    counts: Counts,
    placement: dwell_record::Placement,
) -> Summary {
    let Counts { packets, leads, unasked, stamped, steps, overflowed } = counts;
    let rung = if stamped { Rung::KernelSw } else { Rung::User };
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
            ("clock_steps", Some(Scalar::Count(steps))),
            ("overflowed_packets", overflowed.map(Scalar::Count)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        stamps: Stamps { tx: None, rx: (packets > 0).then_some(rung), near: None },
        engine: "udp".to_owned(),
        trains: Vec::new(),
        trust: Trust::default(),
        environment: environment(None, placement),
    }
}
