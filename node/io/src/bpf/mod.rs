//! eBPF: finding out whether it is to be had ([`Pass`]), stamping packets as they pass ([`Tracer`])
//! and relaying them in the driver ([`XdpRelay`]) with the programs of `node/bpf`.
//!
//! Programs are loaded by libbpf, which this module alone knows of. Without the cargo feature
//! `bpf` (for devices for which there is no libelf) everything here is still there, and a tracer or a
//! relay says that it cannot be had.

#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "no program writes events"))]
mod event;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "nothing of ours to attach"))]
mod link;
#[cfg(feature = "bpf")]
mod object;
mod probe;
#[cfg(feature = "bpf")]
mod relay;
mod spec;
#[cfg(feature = "bpf")]
mod tracer;

#[cfg(not(feature = "bpf"))]
mod absent;

#[cfg(not(feature = "bpf"))]
pub use absent::{Tracer, XdpRelay};
pub use event::{Event, HEAD, Protocol};
pub use probe::{Attached, Hook, Pass, XdpMode};
#[cfg(feature = "bpf")]
pub use relay::XdpRelay;
pub use spec::{
    BpfError, Checksums, Hooks, RELAY_FLOWS, TraceSpec, XdpCounters, XdpFlow, XdpRelaySpec,
};
#[cfg(feature = "bpf")]
pub use tracer::Tracer;
