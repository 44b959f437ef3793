//! Timestamps replies to probes in the network driver, with the programs of
//! node/bpf/probe_stamps.bpf.c.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use dwell_units::Nanos;
use libbpf_rs::{MapCore as _, MapFlags, Object, ProgramInput, RingBuffer, RingBufferBuilder};

use super::driver_spec::{DriverStampSpec, FrameStamp};
use super::link::{self, Place};
use super::occupant::refusal;
use super::probe::XdpMode;
use super::{BpfError, object};
use crate::clock;

const PROGRAMS: &[u8] = include_bytes!("../../../bpf/probe_stamps.bpf.o");

/// Maximum number of events taken from the ring at once.
const READ_BATCH: usize = 1_024;

/// Names of the programs.
const REPLIES: &str = "stamp_reply";
const PROBES: &str = "stamp_probe";

/// The verdicts that leave a packet to the kernel: of an XDP program, and of one at tcx (-1).
const XDP_PASS: u32 = 2;
const TCX_NEXT: u32 = u32::MAX;

/// Timestamps frames until it is dropped or the process ends. The programs write events without
/// waking the reader: read them at least every 100 ms.
pub struct DriverStamps {
    // The first field, so that programs are detached before the rest is dropped.
    links: Vec<OwnedFd>,
    ring: RingBuffer<'static>,
    batch: Rc<RefCell<Vec<[u8; 24]>>>,
    object: Object,
    tai_offset: Nanos,
}

impl DriverStamps {
    /// Loads the programs without attaching them.
    ///
    /// # Errors
    /// The privilege is missing or the kernel refuses the programs.
    pub fn load(spec: &DriverStampSpec) -> Result<Self, BpfError> {
        let filter = spec.encoded();
        let object = object::load(PROGRAMS, |object| {
            for mut map in object.maps_mut() {
                if map.name().to_string_lossy().ends_with(".rodata") {
                    map.set_initial_value(&filter)?;
                }
            }
            Ok(())
        })?;
        let batch = Rc::new(RefCell::new(Vec::with_capacity(READ_BATCH)));
        let ring = ring(&object, Rc::clone(&batch))?;
        Ok(Self { links: Vec::new(), ring, batch, object, tai_offset: clock::tai_offset() })
    }

    /// Timestamps replies in the driver of the interface with this index.
    ///
    /// # Errors
    /// The driver has no XDP or refuses it, or another XDP program is attached.
    pub fn attach_replies(&mut self, interface: u32) -> Result<(), BpfError> {
        let place = Place::Xdp { interface, mode: XdpMode::Native };
        let link = self.link(REPLIES, place).map_err(|error| refusal(interface, error))?;
        self.links.push(link);
        Ok(())
    }

    /// Timestamps probes at tcx egress of the interface with this index.
    ///
    /// # Errors
    /// The kernel has no tcx (before 6.6), or the interface does not exist.
    pub fn attach_probes(&mut self, interface: u32) -> Result<(), BpfError> {
        let link = self.link(PROBES, Place::Tcx { interface, egress: true });
        self.links.push(link.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => BpfError::TooOld { hooks: "tcx", since: "6.6" },
            _ => BpfError::Attach { place: "tcx egress".to_owned(), error },
        })?);
        Ok(())
    }

    /// Calls `each` with the timestamps since the last call, in the order of writing.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&mut self, each: &mut dyn FnMut(FrameStamp)) -> Result<(), BpfError> {
        loop {
            let consumed = self.ring.consume_raw_n(READ_BATCH);
            let Ok(consumed) = usize::try_from(consumed) else {
                let error = io::Error::from_raw_os_error(-consumed);
                return Err(BpfError::Read { reason: error.to_string() });
            };
            let mut batch = self.batch.borrow_mut();
            let stamps = batch.iter().filter_map(|bytes| FrameStamp::parse(bytes, self.tai_offset));
            stamps.for_each(&mut *each);
            batch.clear();
            if consumed < READ_BATCH {
                return Ok(());
            }
        }
    }

    /// Number of timestamps lost because the ring was full.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn lost(&self) -> Result<u64, BpfError> {
        let unreadable = |reason: &str| BpfError::Read { reason: reason.to_owned() };
        let map = self.object.maps().find(|map| map.name() == "dropped");
        let map = map.ok_or_else(|| unreadable("the drop counter is missing"))?;
        let cpus = map
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| unreadable(&error.to_string()))?;
        let count = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
        Ok(cpus.iter().flatten().map(count).sum())
    }

    /// Reads the offset between CLOCK_TAI and CLOCK_REALTIME again. Returns whether it has changed,
    /// which invalidates the timestamps since the last call.
    pub fn follow_clock(&mut self) -> bool {
        let was = std::mem::replace(&mut self.tai_offset, clock::tai_offset());
        was != self.tai_offset
    }

    /// Runs the program for replies on a frame without any interface (BPF_PROG_TEST_RUN). Returns the
    /// frame's timestamp, if it has one.
    ///
    /// # Errors
    /// The frame is shorter than 14 bytes, or the kernel refuses the run.
    ///
    /// # Panics
    /// If the program does not pass the frame, or changes it.
    pub fn run(&mut self, frame: &[u8]) -> Result<Option<FrameStamp>, BpfError> {
        self.run_program(REPLIES, XDP_PASS, frame)
    }

    /// As [`Self::run`], with the program for probes.
    ///
    /// # Errors
    /// As [`Self::run`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_probe(&mut self, frame: &[u8]) -> Result<Option<FrameStamp>, BpfError> {
        self.run_program(PROBES, TCX_NEXT, frame)
    }

    fn run_program(
        &mut self,
        name: &str,
        pass: u32,
        frame: &[u8],
    ) -> Result<Option<FrameStamp>, BpfError> {
        let mut out = vec![0; frame.len()];
        let failed = |error: libbpf_rs::Error| BpfError::Read { reason: error.to_string() };
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        {
            let program = self.object.progs_mut().find(|program| program.name() == name);
            let program = program.expect("the object has this program");
            let output = program.test_run(input).map_err(failed)?;
            assert_eq!(output.return_value, pass, "every packet passes");
            assert_eq!(output.data.as_deref(), Some(frame), "no packet is changed");
        }
        let mut found = None;
        self.read(&mut |stamp| found = Some(stamp))?;
        Ok(found)
    }

    fn link(&self, program: &str, place: Place) -> io::Result<OwnedFd> {
        let program = self.object.progs().find(|found| found.name() == program);
        let program = program.ok_or(io::ErrorKind::NotFound)?;
        link::create(program.as_fd(), place)
    }
}

impl std::fmt::Debug for DriverStamps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverStamps").field("links", &self.links).finish_non_exhaustive()
    }
}

fn ring(
    object: &Object,
    batch: Rc<RefCell<Vec<[u8; 24]>>>,
) -> Result<RingBuffer<'static>, BpfError> {
    let unreadable = |error: libbpf_rs::Error| BpfError::Read { reason: error.to_string() };
    let map = object.maps().find(|map| map.name() == "events");
    let map =
        map.ok_or_else(|| BpfError::Read { reason: "the event ring is missing".to_owned() })?;
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        batch.borrow_mut().extend(bytes.first_chunk());
        0
    };
    builder.add(&map, take).map_err(unreadable)?;
    builder.build().map_err(unreadable)
}
