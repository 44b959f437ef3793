//! The way of frames to a peer: by which interface, to which neighbour, and with which headers.

use std::net::SocketAddr;

use dwell_units::Nanos;
use dwell_wire::frame::UdpFrame;

use super::{Unavailable, outgoing};
use crate::address::DISCARD;
use crate::clock::monotonic;
use crate::interface::Interface;
use crate::neighbour::{self, Station};
use crate::pacer::sleep_until;
use crate::port::{Port, PortOptions, StampRequest};
use crate::udp::UdpPort;

/// A neighbour answers within this, or is not there.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// How often its answer is looked for.
const LOOK: Nanos = Nanos::from_millis(1);

/// The address of a loopback interface.
const LOOPBACK: Station = [0; 6];

/// Where frames go, and what stands around their payload.
pub(super) struct Way {
    pub(super) interface: Interface,
    pub(super) frame: UdpFrame,
}

impl Way {
    /// The way of payloads of `len` bytes from `local` to `target`. May send a datagram to the
    /// target's discard port, so that the kernel asks who the next hop is.
    pub(super) fn find(
        local: SocketAddr,
        target: SocketAddr,
        options: &PortOptions,
        len: usize,
    ) -> Result<Self, Unavailable> {
        let interface = outgoing(target, options)?;
        let name = &interface.name;
        let failed = |error| Unavailable::failed("the link-layer addresses on the way", &error);
        let own = neighbour::own_station(interface.index).map_err(failed)?;
        let own = own.ok_or_else(|| Unavailable::because(format!("{name} is not Ethernet")))?;
        if own == LOOPBACK && target.is_ipv4() {
            // net/ipv4/route.c, ip_route_input_slow: what has an address of ours as its source and did
            // not come from the stack itself is a martian.
            let why = "the kernel drops IPv4 frames that were put on the loopback interface";
            return Err(Unavailable::because(why));
        }
        let frame = UdpFrame {
            // A loopback's own address is that of its only neighbour.
            to_station: match own {
                LOOPBACK => own,
                _ => next_station(&interface, target, options)?,
            },
            from_station: own,
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

fn next_station(
    interface: &Interface,
    target: SocketAddr,
    options: &PortOptions,
) -> Result<Station, Unavailable> {
    let failed = |error| Unavailable::failed("the neighbour on the way", &error);
    let hop = neighbour::next_hop(target).map_err(failed)?;
    let until = monotonic() + PATIENCE;
    let mut asked = None;
    loop {
        if let Some(found) = neighbour::station(interface.index, hop).map_err(failed)? {
            return Ok(found);
        }
        if monotonic() >= until {
            let name = &interface.name;
            return Err(Unavailable::because(format!("nobody at {name} answers for {hop}")));
        }
        if asked.is_none() {
            let discard = SocketAddr::new(target.ip(), DISCARD);
            let discard = match target {
                SocketAddr::V6(target) => {
                    let mut same = target;
                    same.set_port(DISCARD);
                    same.into()
                }
                SocketAddr::V4(_) => discard,
            };
            let options = PortOptions { stamps: StampRequest::User, ..options.clone() };
            let mut port = UdpPort::connect(discard, &options).map_err(failed)?;
            // What becomes of it, the neighbour table tells.
            let _ = port.send(&[]);
            asked = Some(port);
        }
        sleep_until(monotonic() + LOOK);
    }
}
