//! Relay in the network driver: an XDP program moves the packets and this module supervises it.
//! Such packets pass below all timestamping, so their delay at this node is unknown.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dwell_io::bpf::{
    BpfError, Checksums, RELAY_FLOWS, XdpCounters, XdpMode, XdpRelay, XdpRelaySpec,
};
use dwell_io::clock::{self, monotonic};
use dwell_io::{datagram, interface};
use dwell_protocol::{RelayEngine, RelayJob, RelayMode, Stamps};
use dwell_record::{Kind, NicDropped, Placement, Scalar, Summary, Trust, Warning, by_name};
use dwell_units::{Nanos, Pairing};

use super::record::NewFlow;
use super::setup::RelaySetup;
use super::{Relayed, open_failure, report};
use crate::environment::environment;
use crate::nic::NicWatch;
use crate::observation_writer::ObservationWriter;
use crate::ping::SampleFile;
use crate::{Exit, Failure};

/// Interval for checking for a stop and for new flows.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum interval between searches for unknown next hops.
const NEXT_HOP_INTERVAL: Nanos = Nanos::from_secs(1);

/// Client, listening address and outgoing address of a flow.
type FlowAddresses = (SocketAddrV4, SocketAddrV4, SocketAddrV4);

/// Rejects what this engine cannot do; needs no privilege.
pub(super) fn check(job: &RelayJob, listen: SocketAddr, to: SocketAddr) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::usage(text));
    if job.parameters.engine != RelayEngine::Xdp {
        return Ok(());
    }
    if job.mode != RelayMode::Translate {
        return usage(
            "--engine xdp changes addresses only (--mode translate); use --engine batch to encrypt"
                .into(),
        );
    }
    if !listen.is_ipv4() || !to.is_ipv4() {
        return usage(format!(
            "--engine xdp relays IPv4 only, and {} is not; --engine batch supports both",
            if listen.is_ipv4() { &job.to } else { &job.listen }
        ));
    }
    if listen.ip().is_loopback() || datagram::is_ours(to) {
        return usage(format!(
            "--engine xdp relays between other machines, and {} is this one; use --engine batch",
            if listen.ip().is_loopback() { &job.listen } else { &job.to }
        ));
    }
    if !flows(job).is_some_and(|flows| RELAY_FLOWS.contains(&flows)) {
        let most = RELAY_FLOWS.end();
        return usage(format!(
            "invalid value {} for --flows: 1 to {most} with --engine xdp",
            job.flows
        ));
    }
    if job.hold.is_some() || job.telemetry {
        return usage("--engine xdp supports neither --hold nor --telemetry".into());
    }
    if job.parameters.stamps == Stamps::Kernel {
        return usage(
            "--stamps kernel: packets of --engine xdp pass below all timestamping".into(),
        );
    }
    Ok(())
}

/// Relays until stopped. Calls `announce` when the program is attached.
pub(super) fn perform(
    job: &RelayJob,
    setup: &RelaySetup,
    samples: Option<SampleFile>,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Relayed, Failure> {
    let mut log =
        ObservationWriter::begin("relay", &format!("{} {}", job.listen, job.to), samples)?;
    // Reserve the port. Packets that the program passes up get no "port unreachable" in reply.
    let _reserved_port =
        UdpSocket::bind(setup.listen).map_err(|error| open_failure(error, setup, job))?;
    let (spec, mut warnings) = spec(job, setup)?;
    let (start, nics) = (clock::pair(), NicWatch::start());
    let relay = XdpRelay::start(&spec).map_err(refusal)?;
    if !relay.not_relayed().is_empty() {
        let addresses: Vec<_> = relay.not_relayed().iter().map(Ipv4Addr::to_string).collect();
        warnings.push(Warning::DestinationsNotRelayed(addresses.join(" ")));
    }
    announce(&format!("relaying udp://{} -> udp://{}", setup.listen, setup.to));
    let mut known = RecordedFlows { flows: HashMap::new(), to: setup.to, next: 0 };
    let (mut seen, mut searched) = (XdpCounters::default(), monotonic());
    let mut last = false;
    while !last {
        // Read the counters once more after the end.
        last = stop.load(Ordering::Relaxed);
        let now = relay.counters()?;
        if now.flows > seen.flows {
            known.record_new(&relay, &mut log)?;
        }
        if now.no_way > seen.no_way && monotonic() - searched > NEXT_HOP_INTERVAL {
            relay.resolve_next_hops();
            searched = monotonic();
        }
        log.flush();
        seen = now;
        if !last {
            thread::sleep(POLL_INTERVAL);
        }
    }
    let clocks = (start, clock::pair());
    let recorded = u64::from(known.next / 2);
    if recorded < seen.flows {
        warnings.push(Warning::FlowsUnrecorded(seen.flows - recorded));
    }
    let modes = relay.modes().to_vec();
    drop(relay);
    let nics = nics.towards(log.senders().iter().copied().chain([setup.to]));
    let (components, unwritten) = log.finish(0);
    let summary = summary(job, setup, &modes, seen, (&clocks, nics), warnings);
    Ok(Relayed { summary, failure: unwritten.map(Failure::from), components })
}

/// Flows already recorded.
struct RecordedFlows {
    /// By client, with the addresses recorded for it.
    flows: HashMap<SocketAddrV4, FlowAddresses>,
    to: SocketAddr,
    next: u32,
}

impl RecordedFlows {
    /// Records new flows.
    fn record_new(
        &mut self,
        relay: &XdpRelay,
        log: &mut ObservationWriter,
    ) -> Result<(), BpfError> {
        for flow in relay.flows()? {
            let ends = (flow.client, flow.listen, flow.out);
            if self.flows.insert(flow.client, ends) == Some(ends) {
                continue;
            }
            let (client, listen, out) = (flow.client.into(), flow.listen.into(), flow.out.into());
            let new = NewFlow { number: self.next, client, listen, out, to: self.to };
            self.next = self.next.wrapping_add(2);
            new.entries("udp").iter().for_each(|entry| log.flow(entry));
        }
        Ok(())
    }
}

fn flows(job: &RelayJob) -> Option<u16> {
    u16::try_from(job.flows).ok()
}

/// Returns the configuration of the XDP program, and warnings.
fn spec(job: &RelayJob, setup: &RelaySetup) -> Result<(XdpRelaySpec, Vec<Warning>), Failure> {
    let (SocketAddr::V4(listen), SocketAddr::V4(to)) = (setup.listen, setup.to) else {
        return Err(Failure::usage("--engine xdp relays IPv4 only"));
    };
    let outgoing = interface::towards(setup.to)?.map(|found| found.index);
    let all = interface::all()?;
    // Without the interface towards `to` there can be no relay.
    let (used, others): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(|found| found.up && found.name != "lo")
        .partition(|found| Some(found.index) == outgoing || found.is_forwarding());
    let mut warnings = vec![Warning::BelowTimestamps];
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|found| found.name.as_str()).collect();
        warnings.push(Warning::InterfacesNotRelayed(names.join(" ")));
    }
    if job.place.busy_poll || job.place.cpu.is_some() {
        warnings.push(Warning::PlacementIgnored);
    }
    let spec = XdpRelaySpec {
        listen,
        to,
        interfaces: used.iter().map(|found| found.index).collect(),
        flows: flows(job).unwrap_or(*RELAY_FLOWS.end()),
        idle: setup.idle,
        checksums: Checksums::ByDriver,
    };
    Ok((spec, warnings))
}

fn refusal(error: BpfError) -> Failure {
    let is_unsupported = error.is_unsupported() || matches!(error, BpfError::NoForwarding(_));
    let exit = if is_unsupported { Exit::Unsupported } else { Exit::Failed };
    let error = anyhow::Error::new(error);
    Failure { exit, error: error.context("--engine xdp is unavailable here; use --engine batch") }
}

/// Builds the summary.
fn summary(
    job: &RelayJob,
    setup: &RelaySetup,
    modes: &[XdpMode],
    counters: XdpCounters,
    (clocks, nics): (&(Pairing, Pairing), Option<Vec<NicDropped>>),
    warnings: Vec<Warning>,
) -> Summary {
    let warnings = warnings.into_iter().map(Into::into).collect();
    let mut trust = Trust { warnings, ..Trust::default() };
    trust.warn_count(counters.no_way, Warning::NotRelayedByDriver);
    trust.warn_count(counters.evicted, Warning::FlowsEvicted);
    trust.note_clocks(&clocks.0, &clocks.1);
    trust.note_nics(nics);
    let interface = interface::towards(setup.to).ok().flatten();
    Summary {
        parameters: report::parameters(job, setup),
        values: values(counters),
        trust,
        environment: environment(interface.as_ref(), Placement::default()),
        ..Summary::new(Kind::Relay, format!("{} {}", job.listen, job.to), engine(modes))
    }
}

/// Uses the value names of the other engines. The XDP program does not count bytes.
fn values(counters: XdpCounters) -> BTreeMap<String, Option<Scalar>> {
    let XdpCounters { forward, backward, flows, evicted, no_way } = counters;
    let counted = [
        ("relayed_forward", Some(forward)),
        ("relayed_backward", Some(backward)),
        ("payload_bytes_forward", None),
        ("payload_bytes_backward", None),
        ("flows", Some(flows)),
        ("flows_evicted", Some(evicted)),
        ("no_way", Some(no_way)),
    ];
    by_name(counted.map(|(name, count)| (name, count.map(Scalar::Count))))
}

fn engine(modes: &[XdpMode]) -> String {
    let native = modes.contains(&XdpMode::Native);
    let generic = modes.contains(&XdpMode::Generic);
    let mode = match (native, generic) {
        (true, true) => "native and generic",
        (true, false) => "native",
        (false, _) => "generic",
    };
    format!("xdp, {mode}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_name_states_xdp_mode() {
        use XdpMode::{Generic, Native};
        let all = [&[Native, Native][..], &[Generic], &[Generic, Native]].map(engine);
        assert_eq!(all, ["xdp, native", "xdp, generic", "xdp, native and generic"]);
    }

    #[test]
    fn uncounted_value_is_null() {
        let values = values(XdpCounters { forward: 3, ..XdpCounters::default() });
        assert_eq!(values["relayed_forward"], Some(Scalar::Count(3)));
        assert_eq!(values["relayed_backward"], Some(Scalar::Count(0)));
        assert_eq!(values["payload_bytes_forward"], None);
    }

    #[test]
    fn xdp_refuses_unsupported_options() {
        let (far, here) = ("203.0.113.9:7", "0.0.0.0:7");
        let job = |change: fn(&mut RelayJob)| {
            let mut job = RelayJob::translate("udp://0.0.0.0:7", "udp://203.0.113.9:7");
            job.parameters.engine = RelayEngine::Xdp;
            change(&mut job);
            job
        };
        let message = |job: &RelayJob, listen: &str, to: &str| {
            let failure = check(job, listen.parse().unwrap(), to.parse().unwrap()).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            failure.error.to_string()
        };
        check(&job(|_| {}), here.parse().unwrap(), far.parse().unwrap()).unwrap();
        let plain = job(|_| {});
        assert!(message(&job(|job| job.mode = RelayMode::Encrypt), here, far).contains("batch"));
        assert!(message(&job(|job| job.flows = 4_537), here, far).contains("1 to 4536"));
        assert!(
            message(&job(|job| job.parameters.stamps = Stamps::Kernel), here, far)
                .contains("--stamps")
        );
        assert!(message(&job(|job| job.telemetry = true), here, far).contains("--telemetry"));
        assert!(message(&plain, "[::]:7", "[2001:db8::1]:7").contains("IPv4 only"));
        assert!(message(&plain, "127.0.0.1:7", far).contains("other machines"));
        assert!(message(&plain, here, "127.0.0.1:8").contains("other machines"));
    }
}
