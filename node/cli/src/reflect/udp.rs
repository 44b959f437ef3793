//! A UDP socket that answers one protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dwell_engine::reflector::{
    self, Limiter, LoopGuard, RateLimits, Refusal, RequestMeta, StampConfig, StampReflector,
};
use dwell_io::clock::{self, monotonic, realtime};
use dwell_io::datagram::{Datagram, DatagramSocket, Marks, Peer, is_broadcast};
use dwell_io::gate::Shutter;
use dwell_io::machine;
use dwell_io::port::{SocketOptions, StampRequest, Wait};
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::hmac::Key;

use super::Service;
use super::counters::{Counters, add};
use crate::Scheme;

/// Maximum length of a datagram.
const MAX_DATAGRAM_LEN: usize = 65_535;

/// Interval between checks of clock synchronisation, which may change while a reflector runs.
const CLOCK_CHECK: Nanos = Nanos::from_secs(16);

/// Interval between reads of the socket's drop counter, which STAMP replies carry.
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

/// The protocol to answer with.
#[derive(Debug)]
pub(super) enum Answer {
    Stamp(Box<StampReflector>),
    /// Its replies could be requests of another reflector.
    Echo(Box<LoopGuard>),
    /// A reply is never a request, so no packet can loop. The same holds for text, whose requests
    /// are all identical.
    Roundtrip,
    Text,
}

impl Answer {
    pub(super) fn new(
        scheme: Scheme,
        key: Option<Key>,
        replay_window: Option<u32>,
        stateless: bool,
    ) -> Self {
        match scheme {
            Scheme::Stamp => {
                let clock = machine::boot_id().and_then(|id| id[..12].try_into().ok());
                let utc_error = clock::utc_error();
                let config = StampConfig { key, replay_window, stateless, clock, utc_error };
                Self::Stamp(Box::new(StampReflector::new(config)))
            }
            Scheme::Roundtrip => Self::Roundtrip,
            Scheme::TextUdp => Self::Text,
            _ => Self::Echo(Box::default()),
        }
    }
}

/// See the module documentation.
pub(super) struct UdpService {
    server: DatagramSocket,
    answer: Answer,
    limiter: Option<Limiter>,
    own_ports: Option<Arc<[u16]>>,
    counters: Arc<Counters>,
    buffer: Box<[u8]>,
    clock_checked: Instant<Monotonic>,
    drops: Drops,
}

/// The socket's drop counter in the kernel, as last read.
#[derive(Debug)]
struct Drops {
    last: u32,
    /// Next read: a time for STAMP, a number of requests for other protocols.
    next_read: Instant<Monotonic>,
    requests: u32,
}

impl UdpService {
    pub(super) fn bind(
        address: SocketAddr,
        answer: Answer,
        stamps: StampRequest,
        rules: AdmissionRules,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        refuse_group(address.ip())?;
        let server = SocketOptions::server();
        // STAMP reports arrival times; STAMP and echo need the TTL.
        let options = match answer {
            Answer::Stamp(_) => {
                let (timed, receive_ttl, receive_tos) = (true, true, true);
                SocketOptions { stamps, timed, receive_ttl, receive_tos, ..server }
            }
            Answer::Echo(_) => SocketOptions { receive_ttl: true, ..server },
            Answer::Roundtrip | Answer::Text => server,
        };
        let mut service = Self {
            server: DatagramSocket::bind(address, &options)?,
            answer,
            limiter: rules.limit.and_then(Limiter::new),
            own_ports: rules.own_ports,
            counters: Arc::clone(counters),
            buffer: vec![0; MAX_DATAGRAM_LEN].into_boxed_slice(),
            clock_checked: monotonic(),
            drops: Drops { last: 0, next_read: Instant::EPOCH, requests: 0 },
        };
        service.read_drops();
        Ok(service)
    }

    /// Reads the socket's drop counter if due. Called after a reply: between T2 and T3 it would add
    /// to the residence time.
    fn follow_drops(&mut self) {
        if matches!(self.answer, Answer::Stamp(_)) {
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
        if let Answer::Stamp(stamp) = &mut self.answer {
            stamp.set_socket_drops(Some(drops));
        }
    }

    /// Writes the reply, unless refused; returns its length and marks.
    fn reply(&mut self, request: &Datagram, peer: &Peer) -> Result<(usize, Marks), Refusal> {
        let Datagram { len, rx, ttl, tos, to_many, .. } = *request;
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
        let packet = &mut self.buffer[..len];
        let limiter = &mut self.limiter;
        let mut allow = || {
            let allowed = limiter.as_mut().is_none_or(|limit| limit.allows(from, monotonic()));
            if allowed { Ok(()) } else { Err(Refusal::Limited) }
        };
        let mut marks = Marks::default();
        let len = match &mut self.answer {
            Answer::Stamp(stamp) => {
                // The card's timestamp is from another clock than T3.
                let rx = rx.map_or_else(realtime, |rx| rx.kernel.unwrap_or(rx.app));
                let now = monotonic();
                if now - self.clock_checked > CLOCK_CHECK {
                    stamp.set_utc_error(clock::utc_error());
                    self.clock_checked = now;
                }
                let meta = RequestMeta { from, rx, ttl, tos, now };
                let unfinished = stamp.answer(packet, &meta, allow)?;
                let marks = Marks { tos: unfinished.tos, ttl: unfinished.ttl };
                stamp.finish(unfinished, packet, realtime());
                return Ok((len, marks));
            }
            Answer::Echo(guard) => {
                let len = reflector::echo(packet)?;
                marks.ttl = Some(reflector::reply_ttl(ttl)?);
                guard.admit_echo(from, packet, monotonic())?;
                len
            }
            Answer::Roundtrip => reflector::roundtrip(packet)?,
            Answer::Text => reflector::text(&mut self.buffer, len)?,
        };
        allow()?;
        Ok((len, marks))
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
