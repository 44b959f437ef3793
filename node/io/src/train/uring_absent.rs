//! What stands for sends by io_uring on processors for which nobody has written its structures down.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use dwell_units::Nanos;

use super::{Course, Departure, Numbers, Payloads, Stamping, TrainSender, Unavailable};
use crate::port::PortOptions;

/// A sender that cannot be had here.
pub struct Uring(Infallible);

impl Uring {
    /// # Errors
    /// Always.
    pub fn new(_: SocketAddr, _: &PortOptions, _: Payloads) -> Result<Self, Unavailable> {
        Err(Unavailable::because("this program was built without io_uring: not for this processor"))
    }
}

impl TrainSender for Uring {
    fn prepare(&mut self, _: Numbers) {
        match self.0 {}
    }

    fn send(&mut self, _: Course<'_>, _: &mut [Departure]) {
        match self.0 {}
    }

    fn collect(&mut self, _: &mut [Departure], _: Nanos) {
        match self.0 {}
    }

    fn stamping(&self) -> Stamping {
        match self.0 {}
    }

    fn refused(&self) -> u64 {
        match self.0 {}
    }

    fn failure(&self) -> Option<io::Error> {
        match self.0 {}
    }
}
