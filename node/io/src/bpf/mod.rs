//! eBPF: finding out whether it is to be had ([`Pass`]), and stamping packets as they pass
//! ([`Tracer`]) with the programs of `node/bpf`.
//!
//! Programs are loaded by libbpf, which this module alone knows of. Without the cargo feature
//! `bpf` (for devices for which there is no libelf) everything here is still there, and a tracer
//! says that it cannot be had.

#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "no program writes events"))]
mod event;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "nothing of ours to attach"))]
mod link;
#[cfg(feature = "bpf")]
mod object;
mod probe;
mod spec;
#[cfg_attr(not(feature = "bpf"), path = "absent.rs")]
mod tracer;

pub use event::{Event, HEAD, Protocol};
pub use probe::{Attached, Hook, Pass, XdpMode};
pub use spec::{BpfError, Hooks, TraceSpec};
pub use tracer::Tracer;
