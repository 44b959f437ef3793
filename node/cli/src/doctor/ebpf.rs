//! Tests of the features that need eBPF, each by loading and attaching its own programs.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use dwell_io::bpf::{
    BpfError, Checksums, DriverLink, DriverStampSpec, DriverStamps, FlightRecorder, HookKind,
    Hooks, ProbeFrames, Protocol, TraceSpec, Tracer, XdpMode, XdpReflector, XdpReflectorSpec,
    XdpRelay, XdpRelaySpec,
};
use dwell_units::Nanos;

/// Port of the test flows.
const PORT: u16 = 862;

/// A veth whose far end answers.
pub(super) struct TestVeth {
    /// Index of the near interface.
    pub(super) index: u32,
    pub(super) near: Ipv4Addr,
    pub(super) far: Ipv4Addr,
}

/// Tests one kind of hook of `dwell trace`.
pub(super) fn trace(kind: HookKind, veth: &TestVeth) -> Result<Option<String>, BpfError> {
    let hooks = Hooks::only(kind);
    let interfaces = vec![veth.index];
    let protocol = Protocol::Udp;
    let spec = TraceSpec { protocol, host: None, port: Some(PORT), hooks, interfaces };
    Tracer::start(&spec).map(|_| None)
}

/// Tests timestamps of replies in the driver. Timestamps of probes need tcx.
pub(super) fn driver_timestamps(veth: &TestVeth) -> Result<Option<String>, BpfError> {
    let at = |address: Ipv4Addr| SocketAddr::from((address, PORT));
    let mut stamps = DriverStamps::load(&DriverStampSpec {
        transport: ProbeFrames::Udp,
        local: at(veth.near),
        remote: at(veth.far),
        probe_id_at: 8,
        reply_id_at: 8,
        id_len: 4,
    })?;
    stamps.attach_replies(veth.index)?;
    let probes = stamps.attach_probes(veth.index);
    let limit = |error| format!("not with drivers that do not timestamp probes: {error}");
    Ok(probes.err().map(limit))
}

/// Tests the recorder of the kernel's events.
pub(super) fn kernel_events() -> Result<Option<String>, BpfError> {
    let recorder = FlightRecorder::start()?;
    let missing = recorder.missing();
    Ok((!missing.is_empty()).then(|| format!("without the tracepoints {}", missing.join(", "))))
}

/// Tests the reflector in the driver.
pub(super) fn reflector(veth: &TestVeth) -> Result<Option<String>, BpfError> {
    let mut spec = XdpReflectorSpec {
        interface: veth.index,
        link: DriverLink::default(),
        is_loopback: false,
        stateless: true,
        clock: None,
        unanswered_ports: Box::new([0; 1_024]),
        recognise_merged: true,
    };
    let mut limit = None;
    let mut program = XdpReflector::load(&spec);
    if matches!(program, Err(BpfError::Refused { .. } | BpfError::NoFunction(_))) {
        limit =
            Some("counts merged datagrams as one; exact counts need Linux 6.2 with BTF".to_owned());
        spec.recognise_merged = false;
        program = XdpReflector::load(&spec);
    }
    program?.attach(XdpMode::Generic).map(|()| limit)
}

/// Tests the relay in the driver.
pub(super) fn relay(veth: &TestVeth) -> Result<Option<String>, BpfError> {
    // The result is that of starting the relay.
    let _ = fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "1");
    let relay = XdpRelay::start(&XdpRelaySpec {
        listen: SocketAddrV4::new(veth.near, PORT),
        to: SocketAddrV4::new(veth.far, PORT),
        interfaces: vec![veth.index],
        flows: 1,
        idle: Nanos::from_secs(1),
        checksums: Checksums::ByDriver,
    })?;
    drop(relay);
    Ok(None)
}
