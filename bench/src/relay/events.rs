//! Cost of a tracing event: the committed program in comparison with a minimal one that writes the
//! same event for the same packets, by the kernel's run-time statistics.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dwell_io::netns;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{
    Link, MapCore as _, NetfilterOpts, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};

use crate::lab::sibling;

const OURS: &[u8] = include_bytes!("../../../node/bpf/stamps_netfilter.bpf.o");

/// Names of the programs in their objects.
const PROGRAMS: [&str; 2] = ["pre_routing4", "minimal"];

/// From linux/netfilter.h.
const IPV4: i32 = 2;
const PRE_ROUTING: i32 = 0;

/// Priority of the first program; others at this hook run after both.
const PRIORITY: i32 = -10_000;

/// Interval for emptying the rings, as in `dwell trace`.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);

/// Events per program that are compared byte by byte.
const MAX_COMPARED_EVENTS: usize = 1_000;

/// An event starts with its time, which differs between programs; its head contains the packet
/// number.
const TIME: usize = 8;
const HEAD: std::ops::Range<usize> = 24..32;

/// Run time and number of events of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunTime {
    ns: u64,
    events: u64,
}

impl RunTime {
    pub(super) fn and(self, other: Self) -> Self {
        Self { ns: self.ns + other.ns, events: self.events + other.events }
    }

    /// Returns nanoseconds per event.
    pub(super) fn each(self) -> f64 {
        self.ns as f64 / self.events.max(1) as f64
    }
}

/// Runs `traffic`, UDP packets to this port through the network namespace at `path`, past both
/// programs; returns the cost of dwell's and of the minimal one.
pub(super) fn cost(
    path: &Path,
    port: u16,
    ours_first: bool,
    traffic: impl FnOnce() -> Result<()>,
) -> Result<[RunTime; 2]> {
    let _counted = Statistics::switch_on()?;
    let minimal = fs::read(sibling("event.bpf.o")?).context("cannot read event.bpf.o")?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let watching = scope.spawn(|| {
            netns::within(path, || {
                let pair = Pair::attach(&minimal, port, ours_first)?;
                let _ = ready.send(());
                drop(ready);
                pair.watch(&stop)
            })?
        });
        // The channel closes if the programs cannot be attached.
        let driven = if is_ready.recv().is_ok() { traffic() } else { Ok(()) };
        stop.store(true, Ordering::Relaxed);
        let ran = watching.join().expect("the watching thread does not panic")?;
        driven.map(|()| ran)
    })
}

/// Both programs at the same hook.
struct Pair {
    links: [Link; 2],
    objects: [Object; 2],
}

/// Events by packet number, without their time.
type Events = HashMap<[u8; 8], Vec<u8>>;

impl Pair {
    fn attach(minimal: &[u8], port: u16, ours_first: bool) -> Result<Self> {
        let objects = [ours(port)?, ObjectBuilder::default().open_memory(minimal)?.load()?];
        let attach = |at: usize| {
            let program = objects[at].progs_mut().find(|found| found.name() == PROGRAMS[at]);
            let second = (at == 0) != ours_first;
            let place = NetfilterOpts {
                protocol_family: IPV4,
                hooknum: PRE_ROUTING,
                priority: PRIORITY + i32::from(second),
                ..NetfilterOpts::default()
            };
            let program =
                program.with_context(|| format!("the object has no program {}", PROGRAMS[at]))?;
            program.attach_netfilter_with_opts(place).context("cannot attach to PRE_ROUTING")
        };
        let links = [attach(0)?, attach(1)?];
        Ok(Self { links, objects })
    }

    /// Reads events until stopped and requires them to be equal.
    fn watch(&self, stop: &AtomicBool) -> Result<[RunTime; 2]> {
        let events = [Mutex::new(Events::new()), Mutex::new(Events::new())];
        let rings = [self.ring(0, &events[0])?, self.ring(1, &events[1])?];
        let mut last = false;
        while !last {
            last = stop.load(Ordering::Relaxed);
            rings.iter().try_for_each(RingBuffer::consume)?;
            thread::sleep(DRAIN_INTERVAL);
        }
        drop(rings);
        let [ours, minimal] = events.map(|events| events.into_inner().expect("no thread panics"));
        let both = ours.iter().filter_map(|(number, event)| Some((event, minimal.get(number)?)));
        let both: Vec<_> = both.collect();
        ensure!(!both.is_empty(), "no packet caused events of both programs");
        for (ours, minimal) in both {
            ensure!(ours == minimal, "events differ: {ours:02x?} and {minimal:02x?}");
        }
        Ok([self.ran(0)?, self.ran(1)?])
    }

    fn ring<'a>(&self, at: usize, events: &'a Mutex<Events>) -> Result<RingBuffer<'a>> {
        let map = self.objects[at].maps().find(|map| map.name() == "events");
        let map = map.context("the object has no map 'events'")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, move |event: &[u8]| {
            let mut events = events.lock().expect("no thread panics");
            let number = event.get(HEAD).and_then(|head| head.first_chunk());
            if let (Some(number), Some(rest)) = (number, event.get(TIME..))
                && events.len() < MAX_COMPARED_EVENTS
            {
                events.insert(*number, rest.to_vec());
            }
            0
        })?;
        Ok(builder.build()?)
    }

    fn ran(&self, at: usize) -> Result<RunTime> {
        let program = self.links[at].info()?.prog_id;
        let info = ProgInfoIter::default().find(|info| info.id == program);
        let info = info.with_context(|| format!("the kernel has no program {program}"))?;
        Ok(RunTime { ns: info.run_time_ns, events: info.run_cnt })
    }
}

/// Loads the committed program as `dwell trace --flow 'udp port PORT'` does.
fn ours(port: u16) -> Result<Object> {
    const UDP: u8 = 17;
    let mut object = ObjectBuilder::default().open_memory(OURS)?;
    for mut program in object.progs_mut() {
        let wanted = program.name() == PROGRAMS[0];
        program.set_autoload(wanted);
    }
    // `struct filter` of node/bpf/dwell.bpf.h.
    let mut filter = [0; 20];
    filter[0] = UDP;
    filter[2..4].copy_from_slice(&port.to_be_bytes());
    for mut map in object.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(&filter)?;
        }
    }
    Ok(object.load()?)
}

/// Enables the kernel's run-time statistics of BPF programs; restores the setting on drop.
struct Statistics(String);

impl Statistics {
    const SETTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn switch_on() -> Result<Self> {
        let before = fs::read_to_string(Self::SETTING).context(Self::SETTING)?;
        fs::write(Self::SETTING, "1").context(Self::SETTING)?;
        Ok(Self(before))
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if fs::write(Self::SETTING, &self.0).is_err() {
            eprintln!("cannot restore {}", Self::SETTING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_are_weighted_by_events() {
        let (first, second) = (RunTime { ns: 100, events: 1 }, RunTime { ns: 300, events: 3 });
        assert_eq!(first.and(second).each(), 100.0);
        assert_eq!(RunTime::default().each(), 0.0);
    }
}
