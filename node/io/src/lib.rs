//! Safe wrappers of kernel facilities, without policy: decisions that need no system call belong to
//! `core`. The only crate of dwell with `unsafe`.
//!
//! Modules are grouped by concern, and their public paths do not name the group. `sys` is the
//! kernel's interface, `timestamps` and `sockets` build on it, `host` describes the machine, and
//! `pacing` sends at instants.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::print_stderr)]

pub mod bpf;
pub mod clock;

mod host;
mod pacing;
mod sockets;
mod sys;
mod timestamps;

pub use host::{
    activity, cgroup, cpu, cpu_idle, interface, machine, netns, plain_file, process, random, tap,
    wireless,
};
pub use pacing::{cache_warming, pacer, train};
pub use sockets::{batch, datagram, gate, icmp, poller, port, tcp, tcp_info};
