//! Safe wrappers of kernel facilities, one module each, without policy: decisions that need no
//! system call belong to `core`. The only crate of dwell with `unsafe`.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::print_stderr)]

pub mod batch;
pub mod bpf;
pub mod cache_warming;
pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod datagram;
pub mod host;
pub mod icmp;
pub mod interface;
pub mod machine;
pub mod netns;
pub mod pacer;
pub mod poller;
pub mod port;
pub mod process;
pub mod random;
pub mod tap;
pub mod tcp;
pub mod tcp_info;
pub mod train;
pub mod udp;

mod address;
mod cork;
mod ethtool;
mod message;
mod neighbour;
mod socket;
mod socket_error;
mod syscall;
