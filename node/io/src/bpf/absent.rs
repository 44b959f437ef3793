//! Tracer, relay, reflector, driver timestamps and flight recorder of a build without the cargo feature `bpf`: always
//! unavailable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dwell_host::KernelEvent;
use dwell_units::Nanos;

use super::{
    BpfError, DriverClock, DriverCounters, DriverDestination, DriverLink, DriverRun,
    DriverStampSpec, Event, FrameStamp, Hooks, TraceSpec, TracerNote, XdpCounters, XdpFlow,
    XdpMode, XdpReflectorSpec, XdpRelaySpec,
};

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct Tracer(std::convert::Infallible);

impl Tracer {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_: &TraceSpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Unreachable.
    pub fn read(&mut self, _: &mut dyn FnMut(&Event)) -> Result<u64, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn dropped(&self) -> Result<u64, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn hooks(&self) -> Hooks {
        match self.0 {}
    }

    /// Unreachable.
    pub fn notes(&self) -> &[TracerNote] {
        match self.0 {}
    }

    /// Unreachable.
    pub fn clock_moved(&self) -> bool {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct XdpRelay(std::convert::Infallible);

impl XdpRelay {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_: &XdpRelaySpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Unreachable.
    pub fn counters(&self) -> Result<XdpCounters, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn flows(&self) -> Result<Vec<XdpFlow>, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn resolve_next_hops(&self) {
        match self.0 {}
    }

    /// Unreachable.
    pub fn modes(&self) -> &[XdpMode] {
        match self.0 {}
    }

    /// Unreachable.
    pub fn not_relayed(&self) -> &[Ipv4Addr] {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct XdpReflector(std::convert::Infallible);

impl XdpReflector {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn load(_: &XdpReflectorSpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Unreachable.
    pub fn attach(&mut self, _: XdpMode) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn detach(&mut self) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn set_destinations(&mut self, _: &[DriverDestination]) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn set_own_addresses(&mut self, _: &[IpAddr]) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn set_clock(&mut self, _: DriverClock) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn set_link(&mut self, _: DriverLink) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn counters(&self, _: u32) -> Result<DriverCounters, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn sessions(&self) -> Result<DriverSessions, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn run_time(&mut self) -> Result<Nanos, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn run(&mut self, _: &[u8], _: u32) -> Result<DriverRun, BpfError> {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct DriverSessions(std::convert::Infallible);

impl DriverSessions {
    /// Unreachable.
    pub fn replies(&self, _: u32, _: SocketAddr, _: u16) -> u32 {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct DriverStamps(std::convert::Infallible);

impl DriverStamps {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn load(_: &DriverStampSpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Unreachable.
    pub fn attach_replies(&mut self, _: u32) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn attach_probes(&mut self, _: u32) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn read(&mut self, _: &mut dyn FnMut(FrameStamp)) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn lost(&self) -> Result<u64, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn follow_clock(&mut self) -> bool {
        match self.0 {}
    }

    /// Unreachable.
    pub fn run(&mut self, _: &[u8]) -> Result<Option<FrameStamp>, BpfError> {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct FlightRecorder(std::convert::Infallible);

impl FlightRecorder {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start() -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Unreachable.
    pub fn watch(&self) -> Result<ThreadWatch, BpfError> {
        match self.0 {}
    }

    /// Unreachable.
    pub fn missing(&self) -> &[String] {
        match self.0 {}
    }

    /// Unreachable.
    pub fn lost(&self) -> u64 {
        match self.0 {}
    }

    /// Unreachable.
    pub fn read(&mut self, _: &mut dyn FnMut(KernelEvent)) {
        match self.0 {}
    }
}

/// Uninhabited stand-in for the type of builds with eBPF.
#[derive(Debug)]
pub struct ThreadWatch(std::convert::Infallible);

impl ThreadWatch {
    /// Unreachable.
    pub fn follow_current_thread(&self) {
        match self.0 {}
    }
}
