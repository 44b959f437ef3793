//! Timestamps of replies in the network driver (`--stamps driver`): attaches the programs to the
//! interfaces, and gives every sample the timestamp of its reply.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dwell_engine::driver_join::DriverJoin;
use dwell_engine::order_match::OrderMatch;
use dwell_engine::pinger::ProbeSchedule;
use dwell_engine::protocol::{FrameId, IdField, ProbeTransport};
use dwell_io::bpf::{BpfError, DriverStampSpec, DriverStamps, FrameStamp, ProbeFrames};
use dwell_io::interface::{self, Interface};
use dwell_protocol::{PingJob, ProbeStamps};
use dwell_record::{self as record, DriverTx, Layer, LayerDelay};
use dwell_sample::{Sample, State};
use dwell_stats::Distribution;
use dwell_units::{Instant, Realtime};

use super::setup::PingSetup;
use crate::{Exit, Failure};

/// Maximum number of timestamps without an id that wait for their sample.
const MAX_WAITING: usize = 1 << 12;

/// Refuses options that need other timestamps; needs no privilege.
pub(super) fn check(job: &PingJob) -> Result<(), Failure> {
    if job.interfaces.is_empty() || job.parameters.stamps == ProbeStamps::Driver {
        return Ok(());
    }
    Err(Failure::usage("--interface is for --stamps driver; -I chooses where probes leave"))
}

/// Addresses of a measurement.
pub(super) struct Flow<'a> {
    /// Address of the socket.
    pub(super) local: SocketAddr,
    /// Address of the target.
    pub(super) peer: SocketAddr,
    /// ICMP: identifier of the echoes.
    pub(super) echo_id: Option<u16>,
    /// Interface through which probes leave.
    pub(super) outgoing: Option<&'a Interface>,
}

/// Gives samples the timestamps of their replies in the driver.
#[derive(Debug)]
pub(super) struct DriverRecorder {
    /// `None` if there are no timestamps, for the reason in `result`.
    stamps: Option<DriverStamps>,
    matching: Matching,
    result: record::DriverStamps,
    layers: Layers,
}

/// How timestamps find their samples.
#[derive(Debug)]
enum Matching {
    /// By the id in the frame.
    ById {
        field: IdField,
        replies: DriverJoin,
        /// Probes at tcx egress, if the kernel does not timestamp them.
        probes: Option<DriverJoin>,
    },
    /// By order: the frames carry no id.
    ByOrder { order: OrderMatch, replies: VecDeque<Instant<Realtime>>, unmatched: u64 },
    /// There are no timestamps.
    Never,
}

impl DriverRecorder {
    /// Loads the programs and attaches them. Without native XDP there are no timestamps.
    pub(super) fn open(job: &PingJob, setup: &PingSetup, flow: &Flow<'_>) -> Result<Self, Failure> {
        let interfaces = interfaces(&job.interfaces, flow.outgoing)?;
        let spec = setup.target.scheme.spec();
        let (field, matching) = match (spec.frame_id)(setup.authenticated, setup.size as u64) {
            FrameId::Stream => {
                let why = format!(
                    "a frame of {}:// holds any part of a stream, so it belongs to no single probe",
                    spec.name
                );
                return Ok(Self::without(why));
            }
            FrameId::Field(field) => (Some(field), Matching::by_id(field)),
            FrameId::Missing => (None, Matching::by_order(setup)),
        };
        let mut stamps =
            DriverStamps::load(&filter(spec.transport, field, flow)).map_err(unavailable)?;
        let mut refused = Vec::new();
        let mut attached = Vec::new();
        for interface in &interfaces {
            match stamps.attach_replies(interface.index) {
                Ok(()) => attached.push(interface.name.clone()),
                Err(error) => refused.push(no_native_xdp(&interface.name, error)?),
            }
        }
        if attached.is_empty() {
            return Ok(Self::without(refused.join("; ")));
        }
        let mut recorder = Self {
            stamps: Some(stamps),
            matching,
            result: record::DriverStamps { interfaces: attached, ..Default::default() },
            layers: Layers::default(),
        };
        recorder.attach_probes(flow.outgoing)?;
        Ok(recorder)
    }

    fn without(why: String) -> Self {
        let result = record::DriverStamps { absent: Some(why), ..Default::default() };
        Self { stamps: None, matching: Matching::Never, result, layers: Layers::default() }
    }

    /// Timestamps probes at tcx egress if the driver of the outgoing interface does not.
    fn attach_probes(&mut self, outgoing: Option<&Interface>) -> Result<(), Failure> {
        self.result.tx = Some(DriverTx::Kernel);
        let is_untimed =
            |interface: &&Interface| interface.stamping.is_some_and(|able| !able.tx_software);
        let (Some(interface), Some(stamps)) = (outgoing.filter(is_untimed), &mut self.stamps)
        else {
            return Ok(());
        };
        if let Matching::ById { field, probes, .. } = &mut self.matching {
            stamps.attach_probes(interface.index).map_err(unavailable)?;
            *probes = Some(DriverJoin::new(field.bits()));
            self.result.tx = Some(DriverTx::Tcx);
        }
        Ok(())
    }

    /// Reads the timestamps taken so far. Returns whether CLOCK_TAI, on which they are taken, has
    /// moved against CLOCK_REALTIME since the last call.
    pub(super) fn read(&mut self) -> Result<bool, BpfError> {
        let Self { stamps: Some(stamps), matching, .. } = self else { return Ok(false) };
        let has_moved = stamps.follow_clock();
        stamps.read(&mut |stamp| matching.insert(stamp))?;
        Ok(has_moved)
    }

    /// Adds the timestamps of its frames to a sample. Samples come in the order in which their
    /// states were decided, and after the timestamps of their replies were read.
    pub(super) fn stamp(&mut self, sample: &mut Sample) {
        self.matching.stamp(sample);
        let Some(rx) = sample.rx.filter(|_| sample.state == State::Received) else { return };
        match rx.driver {
            Some(_) => self.result.stamped += 1,
            None => self.result.unseen += 1,
        }
    }

    /// Records the three round trips of a sample that is not void.
    pub(super) fn record(&mut self, sample: &Sample) {
        self.layers.record(sample);
    }

    /// Detaches the programs and returns the result.
    pub(super) fn finish(&mut self) -> record::DriverStamps {
        let mut result = self.result.clone();
        result.unmatched = self.matching.unmatched();
        if let Some(stamps) = self.stamps.take() {
            result.lost = stamps.lost().unwrap_or(0);
        }
        result.layers = self.layers.delays();
        if result.absent.is_none() && result.stamped == 0 {
            result.absent = Some(format!(
                "no reply was seen in the driver of {}; --interface names where replies arrive",
                result.interfaces.join(", ")
            ));
        } else if result.absent.is_none() && result.layers.is_empty() {
            result.absent = Some("the kernel timestamped no probe".to_owned());
        }
        result.tx = result.tx.filter(|_| result.absent.is_none());
        result
    }
}

impl Matching {
    fn by_id(field: IdField) -> Self {
        Self::ById { field, replies: DriverJoin::new(field.bits()), probes: None }
    }

    /// Both limits of Ramstetter follow from the schedule: a reply is late after the time-out, and
    /// the next probe leaves at the latest one pause after that.
    fn by_order(setup: &PingSetup) -> Self {
        let gap = match setup.config.departures {
            ProbeSchedule::Open { interval } => interval,
            ProbeSchedule::Closed { pause, spacing } => pause.max(spacing),
        };
        let timeout = setup.config.timeout;
        let order = OrderMatch::new(timeout, timeout.saturating_add(gap));
        Self::ByOrder { order, replies: VecDeque::new(), unmatched: 0 }
    }

    fn insert(&mut self, stamp: FrameStamp) {
        match self {
            Self::ById { field, replies, probes } => {
                let into = if stamp.is_probe { probes.as_mut() } else { Some(replies) };
                if let Some(into) = into {
                    into.insert(field.read(stamp.id), stamp.at);
                }
            }
            Self::ByOrder { replies, unmatched, .. } => {
                if replies.len() == MAX_WAITING {
                    replies.pop_front();
                    *unmatched += 1;
                }
                replies.push_back(stamp.at);
            }
            Self::Never => {}
        }
    }

    fn stamp(&mut self, sample: &mut Sample) {
        let sent = sample.tx.app;
        let received = sample.rx.map(|rx| rx.kernel.unwrap_or(rx.app));
        match self {
            Self::ById { replies, probes, .. } => {
                let (Some(rx), Some(received)) = (&mut sample.rx, received) else { return };
                rx.driver = replies.take(sample.id, sent, received);
                if let Some(probes) = probes {
                    sample.tx.tcx = probes.take(sample.id, sent, received);
                }
            }
            Self::ByOrder { order, replies, unmatched } => {
                // A late or duplicate reply belongs to a probe that is in the queue already.
                if matches!(sample.state, State::Received | State::Lost) {
                    order.sent(sample.id, sample.tx.kernel.unwrap_or(sent));
                }
                let (Some(rx), Some(received)) = (&mut sample.rx, received) else { return };
                while let Some(at) = replies.pop_front_if(|at| *at <= received) {
                    match order.received(at) {
                        Some(id) if id == sample.id => rx.driver = Some(at),
                        // Replies to the warm-up precede the first probe.
                        None if at < sent => {}
                        _ => *unmatched += 1,
                    }
                }
            }
            Self::Never => {}
        }
    }

    fn unmatched(&self) -> u64 {
        match self {
            Self::ById { replies, .. } => replies.unmatched(),
            Self::ByOrder { replies, unmatched, .. } => unmatched + replies.len() as u64,
            Self::Never => 0,
        }
    }
}

/// Round trips of probes that have all three, and the differences between them.
#[derive(Debug, Default)]
struct Layers {
    driver: Distribution,
    kernel: Distribution,
    program: Distribution,
    kernel_added: Distribution,
    program_added: Distribution,
}

impl Layers {
    fn record(&mut self, sample: &Sample) {
        let (tx, State::Received, Some(rx)) = (sample.tx, sample.state, sample.rx) else { return };
        // Without tx_kernel, the kernel's round trip begins where the driver's does.
        let (Some(left), Some(driver), Some(kernel)) = (tx.tcx.or(tx.kernel), rx.driver, rx.kernel)
        else {
            return;
        };
        let [driver, kernel, program] = [driver - left, kernel - left, rx.app - tx.app];
        self.driver.record(driver);
        self.kernel.record(kernel);
        self.program.record(program);
        self.kernel_added.record(kernel - driver);
        self.program_added.record(program - kernel);
    }

    /// The layers from the wire up; empty without probes.
    fn delays(&self) -> Vec<LayerDelay> {
        if self.driver.count() == 0 {
            return Vec::new();
        }
        let layers = [
            (Layer::Driver, &self.driver, None),
            (Layer::Kernel, &self.kernel, Some(&self.kernel_added)),
            (Layer::Program, &self.program, Some(&self.program_added)),
        ];
        let delay = |(layer, rtt, added): (Layer, &Distribution, Option<&Distribution>)| {
            let added_ns = added.map(|added| added.figures().into());
            LayerDelay { layer, rtt_ns: rtt.figures().into(), added_ns }
        };
        layers.map(delay).into()
    }
}

/// The frames of the measurement.
fn filter(transport: ProbeTransport, field: Option<IdField>, flow: &Flow<'_>) -> DriverStampSpec {
    let mut local = flow.local;
    let transport = match transport {
        ProbeTransport::Icmp => ProbeFrames::Echo,
        ProbeTransport::Udp | ProbeTransport::Tcp => ProbeFrames::Udp,
    };
    match (flow.echo_id, field) {
        (Some(id), _) => local.set_port(id),
        // Every probe has a port of its own.
        (None, None) => local.set_port(0),
        (None, Some(_)) => {}
    }
    DriverStampSpec {
        transport,
        local,
        remote: flow.peer,
        probe_id_at: field.map_or(0, |field| field.probe_at as u16),
        reply_id_at: field.map_or(0, |field| field.reply_at as u16),
        id_len: field.map_or(0, |field| field.len as u8),
    }
}

/// The interfaces that the options name, otherwise the one that probes leave through.
fn interfaces(names: &[String], outgoing: Option<&Interface>) -> Result<Vec<Interface>, Failure> {
    let all = interface::all()?;
    let find = |name: &String| {
        all.iter().find(|found| found.name == *name).cloned().ok_or_else(|| {
            let names = all.iter().map(|found| found.name.as_str()).collect::<Vec<_>>().join(", ");
            Failure::usage(format!(
                "invalid value for --interface: interface {name} does not exist; interfaces here: \
                 {names}"
            ))
        })
    };
    let mut found = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() {
        let outgoing = outgoing.cloned().ok_or_else(|| {
            Failure::from(anyhow::anyhow!(
                "--stamps driver: the interface of the route is unknown; use --interface"
            ))
        })?;
        found.push(outgoing);
    }
    found.sort_by_key(|interface| interface.index);
    found.dedup_by_key(|interface| interface.index);
    if let Some(Interface { name, .. }) = found.iter().find(|interface| !interface.up) {
        return Err(Failure::from(anyhow::anyhow!(
            "interface {name} is down; run: ip link set {name} up"
        )));
    }
    Ok(found)
}

/// The reason why an interface has no native XDP; other errors end the measurement.
fn no_native_xdp(name: &str, error: BpfError) -> Result<String, Failure> {
    if error.is_occupied() {
        let error = anyhow::Error::new(error);
        return Err(Failure::from(error.context(format!(
            "interface {name} is unavailable for --stamps driver; end the program that attached it, \
             or use --stamps kernel"
        ))));
    }
    match &error {
        BpfError::Attach { error: cause, .. }
            if cause.kind() != std::io::ErrorKind::PermissionDenied =>
        {
            Ok(format!(
                "no native XDP on interface {name} ({cause}): a generic XDP program runs after \
                 rx_kernel"
            ))
        }
        _ => Err(unavailable(error)),
    }
}

fn unavailable(error: BpfError) -> Failure {
    let remedy = match &error {
        BpfError::NotPermitted(_) => "run it as root (sudo), or use --stamps kernel",
        _ => "use --stamps kernel",
    };
    let error = anyhow::Error::new(error);
    let error = error.context(format!("--stamps driver is unavailable here; {remedy}"));
    Failure { exit: Exit::Unsupported, error }
}
