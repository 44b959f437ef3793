//! Tracer, relay and flight recorder of a build without the cargo feature `bpf`: always unavailable.

use dwell_host::KernelEvent;

use std::net::Ipv4Addr;

use super::{BpfError, Event, TraceSpec, TracerNote, XdpCounters, XdpFlow, XdpMode, XdpRelaySpec};

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
