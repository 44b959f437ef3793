//! Protocols whose responder returns the bytes of the probe: plain echo over UDP and TCP, ICMP
//! echo.

use dwell_units::{Instant, Realtime};
use dwell_wire::echo::{self, Mark};
use dwell_wire::icmp::{self, Echo, Family};

use super::{Protocol, Reject, Reply, WireId};

/// Plain echo: a mark, then padding.
#[derive(Debug)]
pub struct PlainEcho {
    session: u64,
    payload: Box<[u8]>,
}

impl PlainEcho {
    /// Creates the protocol. Probes carry `payload` of at least [`echo::LEN`] bytes, whose start is
    /// overwritten by the mark.
    ///
    /// # Panics
    /// If `payload` is shorter.
    pub fn new(session: u64, payload: Box<[u8]>) -> Self {
        assert!(payload.len() >= echo::LEN, "payload holds a mark");
        Self { session, payload }
    }
}

impl Protocol for PlainEcho {
    fn capacity(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        message[echo::LEN..].copy_from_slice(&self.payload[echo::LEN..]);
        Mark { session: self.session, id }.emit(message);
        message.len()
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let mark = Mark::parse(message).map_err(|_| Reject::Malformed)?;
        if message.len() != self.payload.len() {
            return Err(Reject::Malformed);
        }
        if mark.session != self.session {
            return Err(Reject::Unknown);
        }
        Ok(Reply::plain(WireId::full(mark.id)))
    }
}

/// ICMP echo: header, a mark if the payload has room for it, then padding. Without a mark, the
/// 16-bit sequence number alone identifies a probe.
#[derive(Debug)]
pub struct IcmpEcho {
    family: Family,
    session: u64,
    /// Identifier: chosen here on a raw socket, by the kernel on a ping socket.
    id: u16,
    payload: Box<[u8]>,
}

impl IcmpEcho {
    /// Creates the protocol. Probes carry `payload`, whose start is overwritten by a mark if it has
    /// at least [`echo::LEN`] bytes. Replies must carry `id`.
    pub fn new(family: Family, session: u64, id: u16, payload: Box<[u8]>) -> Self {
        Self { family, session, id, payload }
    }

    fn is_marked(&self) -> bool {
        self.payload.len() >= echo::LEN
    }
}

impl Protocol for IcmpEcho {
    fn capacity(&self) -> usize {
        icmp::HEADER + self.payload.len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        message[icmp::HEADER..].copy_from_slice(&self.payload);
        if self.is_marked() {
            Mark { session: self.session, id }.emit(&mut message[icmp::HEADER..]);
        }
        icmp::emit_request(self.family, self.id, id as u16, message);
        message.len()
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let echo = Echo::parse(self.family, message).map_err(|_| Reject::Malformed)?;
        if !echo.reply || echo.id != self.id {
            return Err(Reject::Unknown);
        }
        if !self.is_marked() {
            return Ok(Reply::plain(WireId::low(echo.seq.into(), 16)));
        }
        let mark = Mark::parse(echo.payload).map_err(|_| Reject::Malformed)?;
        if mark.session != self.session {
            return Err(Reject::Unknown);
        }
        Ok(Reply::plain(WireId::full(mark.id)))
    }
}
