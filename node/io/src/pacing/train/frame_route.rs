//! Route of frames to a peer: interface, neighbour and headers.

use std::net::SocketAddr;

use dwell_units::Nanos;
use dwell_wire::frame::UdpFrame;

use super::{Unavailable, outgoing};
use crate::clock::monotonic;
use crate::host::interface::Interface;
use crate::host::neighbour::{self, MacAddress};
use crate::pacing::pacer::sleep_until;
use crate::sockets::datagram::DatagramSocket;
use crate::sockets::port::{SocketOptions, StampRequest};
use crate::sys::address::DISCARD_PORT;

/// Time-out for the neighbour's answer.
const NEIGHBOUR_TIMEOUT: Nanos = Nanos::from_secs(2);

/// Poll interval for its answer.
const POLL_INTERVAL: Nanos = Nanos::from_millis(1);

/// Link-layer address of a loopback interface.
const LOOPBACK: MacAddress = [0; 6];

/// Outgoing interface of frames, and the headers in front of their payload.
pub(super) struct FrameRoute {
    pub(super) interface: Interface,
    pub(super) frame: UdpFrame,
}

impl FrameRoute {
    /// Finds the route of payloads of `len` bytes from `local` to `target`. May send a datagram to
    /// the target's discard port, so that the kernel resolves the next hop.
    pub(super) fn find(
        local: SocketAddr,
        target: SocketAddr,
        options: &SocketOptions,
        len: usize,
    ) -> Result<Self, Unavailable> {
        let interface = outgoing(target, options)?;
        let name = &interface.name;
        let failed =
            |error| Unavailable::failed("finding the interface's link-layer address", &error);
        let own = neighbour::own_mac(interface.index).map_err(failed)?;
        let own = own.ok_or_else(|| Unavailable::because(format!("{name} is not Ethernet")))?;
        if own == LOOPBACK && target.is_ipv4() {
            // A packet from a local address that did not come from the stack itself is a martian
            // (net/ipv4/route.c, ip_route_input_slow).
            let why = "the kernel drops IPv4 frames sent to the loopback interface";
            return Err(Unavailable::because(why));
        }
        let frame = UdpFrame {
            // The only neighbour on a loopback interface has the interface's own address.
            destination_mac: match own {
                LOOPBACK => own,
                _ => next_hop_mac(&interface, target, options)?,
            },
            source_mac: own,
            from: local,
            to: target,
            ttl: options.ttl.unwrap_or(64),
            tos: options.dscp.unwrap_or(0) << 2,
        };
        let packet = frame.packet_overhead() + len;
        match interface.mtu {
            Some(mtu) if packet > mtu as usize => Err(Unavailable::because(format!(
                "packets of {packet} bytes exceed the MTU of {name}, {mtu} bytes"
            ))),
            _ => Ok(Self { interface, frame }),
        }
    }
}

fn next_hop_mac(
    interface: &Interface,
    target: SocketAddr,
    options: &SocketOptions,
) -> Result<MacAddress, Unavailable> {
    let failed = |error| Unavailable::failed("resolving the next hop", &error);
    let hop = neighbour::next_hop(target).map_err(failed)?;
    let until = monotonic() + NEIGHBOUR_TIMEOUT;
    let mut asked = None;
    loop {
        if let Some(found) = neighbour::neighbour_mac(interface.index, hop).map_err(failed)? {
            return Ok(found);
        }
        if monotonic() >= until {
            let name = &interface.name;
            return Err(Unavailable::because(format!("no neighbour at {name} answers for {hop}")));
        }
        if asked.is_none() {
            let discard = SocketAddr::new(target.ip(), DISCARD_PORT);
            let discard = match target {
                SocketAddr::V6(target) => {
                    let mut same = target;
                    same.set_port(DISCARD_PORT);
                    same.into()
                }
                SocketAddr::V4(_) => discard,
            };
            let options = SocketOptions { stamps: StampRequest::User, ..options.clone() };
            let mut port = DatagramSocket::connect(discard, &options).map_err(failed)?;
            // The neighbour table shows the result.
            let _ = port.send(&[]);
            asked = Some(port);
        }
        sleep_until(monotonic() + POLL_INTERVAL);
    }
}
