//! Sockets that carry packets: UDP, ICMP and TCP, several packets per call, corked packets, and
//! waiting for many sockets. Depends on `sys` and `timestamps`.

pub mod batch;
pub(crate) mod cork;
pub mod datagram;
pub mod gate;
pub mod icmp;
mod options;
pub mod poller;
pub mod port;
pub(crate) mod socket_error;
pub mod tcp;
pub mod tcp_info;
