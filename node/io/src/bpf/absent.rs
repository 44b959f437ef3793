//! Tracer and relay of a build without the cargo feature `bpf`: never to be had.

use super::{BpfError, Event, TraceSpec, XdpCounters, XdpFlow, XdpMode, XdpRelaySpec};

/// See the type of the same name in other builds; there is no value of it here.
#[derive(Debug)]
pub struct Tracer(std::convert::Infallible);

impl Tracer {
    /// Says that there is no eBPF in this build.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_: &TraceSpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(&mut self, _: &mut dyn FnMut(&Event)) -> Result<u64, BpfError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn dropped(&self) -> Result<u64, BpfError> {
        match self.0 {}
    }

    /// Never called.
    pub fn notes(&self) -> &[String] {
        match self.0 {}
    }

    /// Never called.
    pub fn clock_moved(&self) -> bool {
        match self.0 {}
    }
}

/// See the type of the same name in other builds; there is no value of it here.
#[derive(Debug)]
pub struct XdpRelay(std::convert::Infallible);

impl XdpRelay {
    /// Says that there is no eBPF in this build.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_: &XdpRelaySpec) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn counters(&self) -> Result<XdpCounters, BpfError> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn flows(&self) -> Result<Vec<XdpFlow>, BpfError> {
        match self.0 {}
    }

    /// Never called.
    pub fn look_for_the_way(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn modes(&self) -> &[XdpMode] {
        match self.0 {}
    }

    /// Never called.
    pub fn notes(&self) -> &[String] {
        match self.0 {}
    }
}
