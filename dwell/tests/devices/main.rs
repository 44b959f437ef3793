//! Devices over SSH: real sshd in the namespaces of a lab, and stand-ins for ssh that hang or fail.

mod deployment;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod foreign;
mod hanging_ssh;
mod lab_devices;
mod leases;
mod losses;
mod runs;
mod scale;
