//! A UDP socket that answers one protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dwell_engine::protocol::ProtocolSpec;
use dwell_engine::reflector::{
    self, Datagram, Host, Limiter, RateLimits, Refusal, Responder, Response,
};
use dwell_io::clock::{self, monotonic, realtime};
use dwell_io::datagram::{self, DatagramSocket, Marks, Peer, is_broadcast};
use dwell_io::gate::Shutter;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::Service;
use super::counters::{Counters, add};

/// Maximum length of a datagram.
const MAX_DATAGRAM_LEN: usize = 65_535;

/// Interval between reads of the socket's drop counter if replies carry it.
const DROPS_INTERVAL: Nanos = Nanos::from_millis(10);

/// Requests of other protocols between reads of the drop counter, which has 32 bits and wraps.
const DROPS_BATCH: u32 = 4_096;

/// Rules for which requests to answer.
#[derive(Debug)]
pub(super) struct AdmissionRules {
    pub(super) limit: Option<RateLimits>,
    /// Ports of this reflector; `None` answers any source port.
    pub(super) own_ports: Option<Arc<[u16]>>,
}

/// See the module documentation.
pub(super) struct UdpService {
    server: DatagramSocket,
    responder: Responder,
    host: LimitedHost,
    own_ports: Option<Arc<[u16]>>,
    counters: Arc<Counters>,
    buffer: Box<[u8]>,
    drops: Drops,
}

/// The socket's drop counter in the kernel, as last read.
#[derive(Debug)]
struct Drops {
    last: u32,
    /// Whether replies carry it.
    is_reported: bool,
    /// Next read: a time if replies carry it, else a number of requests.
    next_read: Instant<Monotonic>,
    requests: u32,
}

impl UdpService {
    pub(super) fn bind(
        address: SocketAddr,
        spec: &ProtocolSpec,
        responder: Responder,
        stamps: StampRequest,
        rules: AdmissionRules,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        refuse_group(address.ip())?;
        let server = SocketOptions::server();
        let is_reported = spec.remote_timestamps;
        let options = if is_reported {
            SocketOptions { stamps, timed: true, receive_ttl: true, receive_tos: true, ..server }
        } else {
            SocketOptions { receive_ttl: spec.decrements_ttl(), ..server }
        };
        let mut service = Self {
            server: DatagramSocket::bind(address, &options)?,
            responder,
            host: LimitedHost(rules.limit.and_then(Limiter::new)),
            own_ports: rules.own_ports,
            counters: Arc::clone(counters),
            buffer: vec![0; MAX_DATAGRAM_LEN].into_boxed_slice(),
            drops: Drops { last: 0, is_reported, next_read: Instant::EPOCH, requests: 0 },
        };
        service.responder.check_clock(&service.host);
        service.read_drops();
        Ok(service)
    }

    /// Reads the socket's drop counter if due. Called after a reply: between T2 and T3 it would add
    /// to the residence time.
    fn follow_drops(&mut self) {
        if self.drops.is_reported {
            let now = monotonic();
            if now < self.drops.next_read {
                return;
            }
            self.drops.next_read = now + DROPS_INTERVAL;
        } else {
            self.drops.requests += 1;
            if self.drops.requests < DROPS_BATCH {
                return;
            }
            self.drops.requests = 0;
        }
        self.read_drops();
    }

    fn read_drops(&mut self) {
        let Some(drops) = self.server.overflowed().map(|drops| drops as u32) else { return };
        self.counters.drop_at_socket(drops.wrapping_sub(self.drops.last).into());
        self.drops.last = drops;
        self.responder.set_socket_drops(Some(drops));
    }

    /// Writes the reply, unless refused; returns its length and marks.
    fn reply(
        &mut self,
        request: &datagram::Datagram,
        peer: &Peer,
    ) -> Result<(usize, Marks), Refusal> {
        let datagram::Datagram { len, rx, ttl, tos, to_many, .. } = *request;
        let (from, to) = (peer.address(), peer.sent_to());
        // First, since it costs nothing: many hosts may answer a broadcast or multicast.
        if to_many || to.is_some_and(reflector::is_group) || reflector::is_group(from.ip()) {
            return Err(Refusal::Loop);
        }
        if let Some(own_ports) = &self.own_ports
            && reflector::is_loop(from, to, own_ports)
        {
            return Err(Refusal::Loop);
        }
        // The card's timestamp is from another clock than T3.
        let rx = rx.map(|rx| rx.kernel.unwrap_or(rx.app));
        let request = Datagram { len, from, rx, ttl, tos };
        let Response { len, ttl, tos } =
            self.responder.answer(&mut self.buffer, &request, &mut self.host)?;
        Ok((len, Marks { tos, ttl }))
    }
}

/// The clocks of this machine, and the rate limit of a socket.
struct LimitedHost(Option<Limiter>);

impl Host for LimitedHost {
    fn monotonic(&self) -> Instant<Monotonic> {
        monotonic()
    }

    fn realtime(&self) -> Instant<Realtime> {
        realtime()
    }

    fn utc_error(&self) -> Option<Nanos> {
        clock::utc_error()
    }

    fn admit(&mut self, from: SocketAddr) -> Result<(), Refusal> {
        let is_admitted = self.0.as_mut().is_none_or(|limit| limit.allows(from, monotonic()));
        if is_admitted { Ok(()) } else { Err(Refusal::Limited) }
    }
}

/// Refuses broadcast and multicast addresses: their packets are never answered.
fn refuse_group(address: IpAddr) -> io::Result<()> {
    let group = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || is_broadcast(v4),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if !group {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{address} is a broadcast or multicast address, whose packets are not \
             answered; use an address of this machine, or 0.0.0.0 or [::] for all of them"
        ),
    ))
}

impl Service for UdpService {
    fn shutter(&self) -> io::Result<Option<Shutter>> {
        self.server.shutter().map(Some)
    }

    fn turn(&mut self, wait: Wait) -> io::Result<bool> {
        let Some(request) = self.server.receive_from(&mut self.buffer, wait)? else {
            return Ok(false);
        };
        let Some(peer) = &request.from else { return Ok(false) };
        match self.reply(&request, peer) {
            Ok((len, marks)) => {
                let sent = self.server.reply(&self.buffer[..len], peer, marks);
                add(if sent.is_ok() { &self.counters.replies } else { &self.counters.send_failed });
            }
            Err(refusal) => self.counters.refuse(refusal),
        }
        add(&self.counters.requests);
        self.follow_drops();
        Ok(true)
    }

    fn end(&mut self) {
        self.read_drops();
    }
}
