//! Records the events of the processor that one thread runs on, with the programs of
//! node/bpf/explain.bpf.c. The kernel overwrites the oldest events, so recording never waits for
//! the reader.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dwell_host::{Interrupt, KernelAction, KernelEvent, KernelName, Left};
use dwell_units::Instant;
use libbpf_rs::{Link, MapCore as _, Object, num_possible_cpus};

use super::{BpfError, object};
use crate::sys::mapping::Mapping;

const PROGRAMS: &[u8] = include_bytes!("../../../bpf/explain.bpf.o");

/// Entries per processor: 82,000 events/s if the log is read ten times a second.
const LOG_LEN: u64 = 8_192;

/// Tracepoints without which nothing can be attributed.
const REQUIRED: [&str; 2] = ["sched_switch", "sched_waking"];

/// Types of the kernel. The type of a tracepoint's arguments is named `btf_trace_NAME`.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Name of the driver of idle states.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// The PID namespace of the kernel's start (PROC_PID_INIT_INO, include/uapi/linux/nsfs.h).
const INITIAL_PIDS: &str = "pid:[4026531836]";

/// struct entry.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    number: u32,
    a: u32,
    b: u32,
    kind: u8,
    flags: u8,
    spare: u16,
    name: [u8; 16],
}

/// struct log.
#[repr(C)]
struct Log {
    written: u64,
    entries: [Entry; LOG_LEN as usize],
}

const _: () = assert!(size_of::<Entry>() == 40);

/// Records until it is dropped. Read it at least ten times a second.
pub struct FlightRecorder {
    // The first field, so that programs are detached before the rest is dropped.
    links: Vec<Link>,
    /// A log per processor.
    logs: Mapping,
    /// Number of entries read of each log.
    read: Vec<u64>,
    lost: u64,
    missing: Vec<String>,
    object: Object,
}

impl FlightRecorder {
    /// Loads and attaches the programs. Nothing is recorded until a [`ThreadWatch`] follows a
    /// thread.
    ///
    /// # Errors
    /// The privilege is missing, this process has thread ids of its own (a PID namespace), the
    /// kernel refuses the programs, or it has no tracepoints for them.
    pub fn start() -> Result<Self, BpfError> {
        if fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own != Path::new(INITIAL_PIDS)) {
            return Err(BpfError::PidNamespace);
        }
        let types = fs::read(KERNEL_TYPES).unwrap_or_default();
        let tracepoints = tracepoints(&types);
        let mut missing = Vec::new();
        let has_idle_states = has_idle_states();
        let processors = num_possible_cpus().map_err(unreadable)?;
        let object = object::load(PROGRAMS, |object| {
            for mut program in object.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                let exists = tracepoints.contains(name.as_bytes());
                program.set_autoload(exists && (name != "cpu_idle" || has_idle_states));
                if !exists && is_expected(&name) {
                    missing.push(name);
                }
            }
            for mut map in object.maps_mut() {
                if map.name() == "logs" {
                    map.set_max_entries(u32::try_from(processors).unwrap_or(u32::MAX))?;
                }
            }
            Ok(())
        });
        if REQUIRED.iter().any(|name| missing.iter().any(|missing| missing == name)) {
            return Err(BpfError::NoTracepoints(missing));
        }
        let object = object?;
        let logs = map(&object, "logs", processors * size_of::<Log>())?;
        let mut recorder =
            Self { links: Vec::new(), logs, read: vec![0; processors], lost: 0, missing, object };
        recorder.attach()?;
        Ok(recorder)
    }

    fn attach(&mut self) -> Result<(), BpfError> {
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if !program.autoload() {
                continue;
            }
            match program.attach() {
                Ok(link) => self.links.push(link),
                Err(error) if REQUIRED.contains(&&*name) => {
                    let place = format!("tracepoint {name}");
                    return Err(BpfError::Attach { place, error: io::Error::other(error) });
                }
                Err(_) => self.missing.push(name),
            }
        }
        Ok(())
    }

    /// Returns the handle by which a thread makes itself the recorded one.
    ///
    /// # Errors
    /// The memory shared with the programs cannot be mapped.
    pub fn watch(&self) -> Result<ThreadWatch, BpfError> {
        Ok(ThreadWatch(map(&self.object, ".data", size_of::<[u32; 2]>())?))
    }

    /// Names of the tracepoints that this kernel lacks.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Number of events that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls `each` with the events since the last call: those of one processor in order, one
    /// processor after the other.
    pub fn read(&mut self, each: &mut dyn FnMut(KernelEvent)) {
        for processor in 0..self.read.len() {
            let written = self.written(processor);
            let first = self.read[processor].max(written.saturating_sub(LOG_LEN));
            self.lost += first - self.read[processor];
            for n in first..written {
                match self.entry(processor, n) {
                    Some(entry) => {
                        if let Some(event) = event(&entry, processor) {
                            each(event);
                        }
                    }
                    None => self.lost += 1,
                }
            }
            self.read[processor] = written;
        }
    }

    fn written(&self, processor: usize) -> u64 {
        let at = processor * size_of::<Log>() + offset_of!(Log, written);
        let place = self.logs.place(at, size_of::<u64>()).cast::<AtomicU64>();
        // SAFETY: `place` is within the mapping and aligned: a log begins at a multiple of 8 bytes.
        // The programs only change it by atomic additions.
        unsafe { place.as_ref() }.load(Ordering::Acquire)
    }

    /// Copies entry `n`. `None` if it is being written or has been overwritten.
    fn entry(&self, processor: usize, n: u64) -> Option<Entry> {
        let slot = (n % LOG_LEN) as usize * size_of::<Entry>();
        let at = processor * size_of::<Log>() + offset_of!(Log, entries) + slot;
        let place = self.logs.place(at, size_of::<Entry>()).cast::<Entry>();
        let number_place =
            self.logs.place(at + offset_of!(Entry, number), size_of::<u32>()).cast::<AtomicU32>();
        // SAFETY: within the mapping and aligned; the programs write it with single stores.
        let number = unsafe { number_place.as_ref() };
        let expected = (n as u32).wrapping_add(1);
        if number.load(Ordering::Acquire) != expected {
            return None;
        }
        // SAFETY: within the mapping, aligned, and valid for any bytes. If a program overwrites the
        // entry during the copy, its number has changed afterwards and the copy is discarded.
        let entry = unsafe { place.as_ptr().read_volatile() };
        (number.load(Ordering::Acquire) == expected).then_some(entry)
    }
}

/// Makes a thread the recorded one.
#[derive(Debug)]
pub struct ThreadWatch(Mapping);

impl ThreadWatch {
    /// Records the calling thread from now on.
    pub fn follow_current_thread(&self) {
        // SAFETY: neither call has preconditions.
        let (thread, processor) = unsafe { (libc::gettid(), libc::sched_getcpu()) };
        for (n, value) in [(1, processor), (0, thread)] {
            let place = self.0.place(n * size_of::<u32>(), size_of::<u32>()).cast::<AtomicU32>();
            // SAFETY: within the mapping and aligned; the programs access it with single loads and
            // stores.
            unsafe { place.as_ref() }.store(value as u32, Ordering::Relaxed);
        }
    }
}

/// Maps the memory of the map whose name ends with `name`.
fn map(object: &Object, name: &str, bytes: usize) -> Result<Mapping, BpfError> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    let reason = format!("map {name} is missing");
    let found = found.ok_or(BpfError::Read { reason })?;
    let mapped = found.as_fd().try_clone_to_owned().and_then(|fd| Mapping::shared(&fd, 0, bytes));
    mapped.map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> BpfError {
    BpfError::Read { reason: error.to_string() }
}

/// Returns the names of all tracepoints.
fn tracepoints(types: &[u8]) -> HashSet<&[u8]> {
    types.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"btf_trace_")).collect()
}

/// Whether the processors have idle states to tell apart. In a virtual machine the hypervisor chooses
/// them, and the driver of the guest only polls before it halts.
fn has_idle_states() -> bool {
    let driver = fs::read_to_string(IDLE_DRIVER).unwrap_or_default();
    !matches!(driver.trim(), "" | "none" | "haltpoll")
}

/// Whether kernels of this architecture have the tracepoint.
fn is_expected(name: &str) -> bool {
    let is_x86 = cfg!(any(target_arch = "x86_64", target_arch = "x86"));
    let is_arm = cfg!(any(target_arch = "aarch64", target_arch = "arm"));
    match name {
        "ipi_entry" | "ipi_exit" => is_arm,
        "page_fault_user" | "page_fault_kernel" => is_x86 || cfg!(target_arch = "riscv64"),
        _ if is_vector(name) => is_x86,
        _ => true,
    }
}

/// Whether the tracepoint is one of x86's interrupt vectors.
fn is_vector(name: &str) -> bool {
    let vectors = ["local_timer", "call_function", "irq_work", "thermal_apic", "x86_platform"];
    vectors.iter().any(|vector| name.starts_with(vector))
}

/// Names of `enum vector`.
const VECTORS: [KernelName; 6] = [
    KernelName::of("local timer"),
    KernelName::of("function call"),
    KernelName::of("function call"),
    KernelName::of("irq work"),
    KernelName::of("thermal"),
    KernelName::of("platform IPI"),
];

/// Converts an entry. Returns `None` for kinds that no program of ours writes.
fn event(entry: &Entry, processor: usize) -> Option<KernelEvent> {
    let &Entry { a, b, flags, .. } = entry;
    let name = KernelName::new(entry.name);
    let action = match entry.kind {
        0 => KernelAction::Switch {
            from: a,
            to: b,
            other: name,
            left: match flags {
                1 => Left::Preempted,
                2 => Left::Uninterruptible,
                _ => Left::Asleep,
            },
        },
        1 => KernelAction::Waking,
        2 => KernelAction::Migrate(a),
        3 => KernelAction::InterruptEntry(Interrupt { number: Some(a), name }),
        5 => {
            let name = *VECTORS.get(a as usize)?;
            KernelAction::InterruptEntry(Interrupt { number: None, name })
        }
        7 => KernelAction::InterruptEntry(Interrupt { number: None, name }),
        4 | 6 | 8 => KernelAction::InterruptExit,
        9 => KernelAction::SoftirqEntry(a),
        10 => KernelAction::SoftirqExit,
        11 => KernelAction::Idle((a != u32::MAX).then_some(a)),
        12 => KernelAction::Frequency(a),
        13 => KernelAction::PageFault,
        14 => KernelAction::Enqueue(a),
        15 => KernelAction::Dequeue(a),
        _ => return None,
    };
    let at = Instant::from_nanos(i64::try_from(entry.time).ok()?);
    Some(KernelEvent { at, processor: u32::try_from(processor).ok()?, action })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn sleep_of_the_watched_thread_is_recorded() {
        let mut recorder = match FlightRecorder::start() {
            Ok(recorder) => recorder,
            Err(error) => {
                let test = "bpf::flight_recorder::tests::sleep_of_the_watched_thread_is_recorded";
                println!("SKIP {test}: {error}");
                return;
            }
        };
        assert_eq!(recorder.missing(), [""; 0]);
        let watch = recorder.watch().unwrap();
        recorder.read(&mut |event| panic!("no thread is watched: {event:?}"));
        let thread = std::thread::spawn(move || {
            watch.follow_current_thread();
            let start = monotonic();
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: the call has no preconditions.
            (unsafe { libc::gettid() } as u32, start, monotonic())
        });
        let (thread, start, end) = thread.join().unwrap();
        let mut events = Vec::new();
        recorder.read(&mut |event| events.push(event));
        events.retain(|event| (start..end).contains(&event.at));
        events.sort_by_key(|event| event.at);
        let at = |wanted: &dyn Fn(&KernelAction) -> bool| {
            events.iter().find(|event| wanted(&event.action)).map(|event| event.at)
        };
        let asleep = at(
            &|action| matches!(action, KernelAction::Switch { from, left: Left::Asleep, .. } if *from == thread),
        );
        let waking = at(&|action| matches!(action, KernelAction::Waking));
        let running =
            at(&|action| matches!(action, KernelAction::Switch { to, .. } if *to == thread));
        assert!(asleep.is_some() && asleep < waking && waking < running, "{events:?}");
        assert_eq!(recorder.lost(), 0);
    }

    #[test]
    fn unknown_kinds_of_entries_are_ignored() {
        let entry = |kind, a| Entry {
            time: 1,
            number: 1,
            a,
            b: 0,
            kind,
            flags: 0,
            spare: 0,
            name: [0; 16],
        };
        assert_eq!(event(&entry(16, 0), 0), None);
        assert_eq!(event(&entry(5, 6), 0), None);
        assert!(event(&entry(15, 7), 3).is_some_and(|event| event.processor == 3));
    }

    #[test]
    fn tracepoints_are_found_among_type_names() {
        let types = b"\0btf_trace_sched_switch\0btf_trace_irq_work_exit\0";
        let found = tracepoints(types);
        assert!(found.contains(&b"sched_switch"[..]) && found.contains(&b"irq_work_exit"[..]));
        assert_eq!(found.len(), 2);
    }
}
