//! Stand-in for io_uring on processors that the io-uring crate does not support.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use dwell_units::Nanos;

use super::{Departure, Numbers, Payloads, TrainProgress, TrainSender, Unavailable};
use crate::port::PortOptions;

/// A sender that does not exist here.
pub struct Uring(Infallible);

impl Uring {
    /// Fails, because io_uring is unavailable.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: SocketAddr, _: &PortOptions, _: Payloads) -> Result<Self, Unavailable> {
        Err(Unavailable::because(
            "this program was built without io_uring, which lacks support for this processor",
        ))
    }
}

impl TrainSender for Uring {
    fn prepare(&mut self, _: Numbers) {
        match self.0 {}
    }

    fn send(&mut self, _: TrainProgress<'_>, _: &mut [Departure]) {
        match self.0 {}
    }

    fn collect(&mut self, _: &mut [Departure], _: Nanos) {
        match self.0 {}
    }

    fn refused(&self) -> u64 {
        match self.0 {}
    }

    fn failure(&self) -> Option<io::Error> {
        match self.0 {}
    }
}
