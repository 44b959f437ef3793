//! eBPF: probes for support ([`Pass`]), timestamps packets ([`Tracer`]), relays them in the driver
//! ([`XdpRelay`]), answers probes there ([`XdpReflector`]), timestamps replies there
//! ([`DriverStamps`]) and records the events of a thread's
//! processor ([`FlightRecorder`]) with the programs of `node/bpf`.
//!
//! Only this module uses libbpf, which loads the programs. Without the cargo feature `bpf` (for
//! devices without libelf) the same types exist, but starting a tracer or a relay fails with
//! [`BpfError::NotBuilt`]. AF_XDP sockets need no library.

mod driver_spec;
#[cfg(feature = "bpf")]
mod driver_stamps;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "no program writes events"))]
mod event;
#[cfg(feature = "bpf")]
mod flight_recorder;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "no program to attach"))]
mod link;
#[cfg(feature = "bpf")]
mod object;
#[cfg(feature = "bpf")]
mod occupant;
mod probe;
#[cfg(feature = "bpf")]
mod reflect;
#[cfg(feature = "bpf")]
mod reflect_sessions;
mod reflect_spec;
#[cfg(feature = "bpf")]
mod relay;
mod spec;
#[cfg(feature = "bpf")]
mod tracer;
pub(crate) mod xsk_socket;

#[cfg(not(feature = "bpf"))]
mod absent;

#[cfg(not(feature = "bpf"))]
pub use absent::{
    DriverSessions, DriverStamps, FlightRecorder, ThreadWatch, Tracer, XdpReflector, XdpRelay,
};
pub use driver_spec::{DriverStampSpec, FrameStamp, ProbeFrames};
#[cfg(feature = "bpf")]
pub use driver_stamps::DriverStamps;
pub use event::{Event, HEAD, Protocol};
#[cfg(feature = "bpf")]
pub use flight_recorder::{FlightRecorder, ThreadWatch};
pub use probe::{Attached, Hook, Pass, XdpMode};
#[cfg(feature = "bpf")]
pub use reflect::XdpReflector;
#[cfg(feature = "bpf")]
pub use reflect_sessions::DriverSessions;
pub use reflect_spec::{
    DriverClock, DriverCounters, DriverDestination, DriverLink, DriverRun, Verdict,
    XdpReflectorSpec,
};
#[cfg(feature = "bpf")]
pub use relay::XdpRelay;
pub use spec::{
    BpfError, Checksums, HookKind, Hooks, RELAY_FLOWS, TraceSpec, TracerNote, XdpCounters, XdpFlow,
    XdpRelaySpec,
};
#[cfg(feature = "bpf")]
pub use tracer::Tracer;
