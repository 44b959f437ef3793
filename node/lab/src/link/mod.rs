//! The process of a TAP link (`dwell lab link DIR K`): two interfaces, one thread that carries
//! frames between them on time ([`carrier`]), and the main thread, which writes the files
//! ([`counter_files`]).
//!
//! The interfaces are created in the process's own namespace and moved from there, so that the
//! process does not keep the namespaces of the nodes alive: when a node's namespace ends, its
//! interface ends, and the process with it.

mod carrier;
mod counter_files;
mod event;
mod frame;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use dwell_engine::link::Link;
use dwell_io::netns;
use dwell_io::process::{self, Signal};
use dwell_io::tap::Tap;
use dwell_units::Nanos;

use crate::addressing::{self, End};
use crate::background;
use crate::description::{Counters, Lab};
use crate::error::LabError;
use crate::iproute::Tool;
use crate::namespace::netns_name;
use crate::state::LabDir;
use crate::topology::Mechanism;

use carrier::Carrier;
use counter_files::{CounterFiles, Shared};

/// Interval at which changed counters are written.
const WRITE_INTERVAL: Nanos = Nanos::from_millis(100);

/// Maximum number of events that wait to be written.
const MAX_WAITING_EVENTS: usize = 65_536;

/// Carries frames over the link with index `place` of the lab in `dir`, until SIGTERM or until the
/// lab is gone. Ignores ^C.
///
/// # Errors
/// There is no such link, TAP interfaces are not permitted, or the interfaces cannot be moved.
pub fn run_link(dir: &LabDir, place: usize) -> Result<(), LabError> {
    background::write_identity(dir, &pid_file(place))?;
    let missing = || LabError::NotWhole(dir.name().to_owned());
    let lab = dir.read()?.ok_or_else(missing)?;
    let link = lab.links.get(place).ok_or_else(missing)?;
    let signals = [Signal::Hangup, Signal::Interrupt, Signal::Terminate, Signal::Report];
    let blocked = process::block(&signals).map_err(LabError::io("blocking signals"))?;
    let taps = interfaces(&lab, place)?;

    let (events, waiting) = rtrb::RingBuffer::new(MAX_WAITING_EVENTS);
    let shared = Arc::new(Shared::default());
    let names = [format!("{}->{}", link.a, link.b), format!("{}->{}", link.b, link.a)];
    let mut files = CounterFiles::open(dir, place, names, waiting, Arc::clone(&shared))?;
    let parameters = link.parameters.link_parameters();
    // Independent random streams for the two directions.
    let seed = link.parameters.seed.unwrap_or_default();
    let seeds = [seed, seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15];
    let lines = seeds.map(|seed| Link::new(parameters, seed));
    let carrier = Carrier::new(taps, lines, events, Arc::clone(&shared), has_spare_cpu(&lab));
    std::thread::Builder::new()
        .name("link".to_owned())
        .spawn(move || carrier.run())
        .map_err(LabError::io("starting a thread"))?;

    files.write()?;
    background::ready(dir, &format!("link-{place}.log"))?;
    loop {
        let signal = blocked.take(WRITE_INTERVAL);
        let last = signal == Some(Signal::Terminate) || shared.is_gone();
        if let Err(error) = files.write_if_changed(signal == Some(Signal::Report) || last) {
            // A full disk must not break the link; writing is retried later.
            let _ = writeln!(std::io::stderr(), "{error}");
        }
        if last {
            return Ok(());
        }
    }
}

/// Whether this link may spin at real-time priority: only while the links leave a CPU free.
fn has_spare_cpu(lab: &Lab) -> bool {
    let links = lab.links.iter().filter(|link| link.mechanism == Mechanism::Tap).count();
    std::thread::available_parallelism().is_ok_and(|cpus| links < cpus.get())
}

/// Creates the two interfaces and moves each to its node.
fn interfaces(lab: &Lab, place: usize) -> Result<[Tap; 2], LabError> {
    let link = &lab.links[place];
    netns::enter_new().map_err(LabError::io("creating a namespace"))?;
    let create = |name: &str| {
        Tap::create(name).map_err(|error| {
            LabError::Unsupported(format!(
                "link {} - {} needs a TAP interface, which cannot be created ({error}); run \
                 it as root, or ask for a rate only",
                link.a, link.b
            ))
        })
    };
    let taps = [create("a")?, create("b")?];
    let mut lines = String::new();
    for (from, end, node, to) in
        [("a", End::A, &link.a, &link.a_interface), ("b", End::B, &link.b, &link.b_interface)]
    {
        let (address, netns) = (addressing::hardware(place, end), netns_name(&lab.name, node));
        lines += &format!("link set dev {from} address {address}\n");
        lines += &format!("link set dev {from} netns {netns} name {to}\n");
    }
    Tool::Ip.batch(&lines, None)?;
    Ok(taps)
}

/// Whether the process of link `place` runs.
pub(crate) fn runs(dir: &LabDir, place: usize) -> bool {
    background::running(dir, &pid_file(place)).is_some()
}

fn pid_file(place: usize) -> String {
    format!("link-{place}.pid")
}

/// Returns the counters of link `place`, updated first if its process still runs.
pub(crate) fn counters(dir: &LabDir, place: usize) -> Option<Counters> {
    const REPORT_TIMEOUT: Nanos = Nanos::from_millis(500);
    const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(1);
    let asked = dwell_io::clock::realtime();
    let process = background::running(dir, &pid_file(place));
    let answers = process.is_some_and(|(_, process)| process.signal(Signal::Report).is_ok());
    loop {
        let file = counter_files::read(Path::new(&dir.file(&format!("link-{place}.json"))))?;
        let waited = dwell_io::clock::realtime() - asked;
        if !answers || file.written_ns >= asked.as_nanos() || waited > REPORT_TIMEOUT {
            return Some(file.counters);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
