//! STAMP session-sender (RFC 8762 section 4.2).

use dwell_sample::{Hop, Remote, WarmUpSession};
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::hmac::Key;
use dwell_wire::stamp::{self, Mode, Request};
use dwell_wire::telemetry::{self, Slot};
use dwell_wire::timestamp::{self, ErrorEstimate, Format};
use dwell_wire::tlv::{
    self, Integrity, NODE_CLOCK_LEN, NODE_CLOCK_MAGIC, SOCKET_DROPS_LEN, SOCKET_DROPS_MAGIC, kind,
};

use super::{Protocol, Reject, Reply, WireId, is_warm_up};

/// Parameters of a STAMP session.
#[derive(Debug)]
pub struct Session {
    /// Session identifier of the counted probes; new for every run, so that a stateful reflector
    /// starts anew. The warm-up uses the next identifier.
    pub ssid: u16,
    /// Key of the authenticated mode; `None`: unauthenticated.
    pub key: Option<Key>,
    /// Identity of the local clock. A reflector that returns the same identity reads the same
    /// clock.
    pub clock: Option<[u8; 12]>,
    /// Maximum offset of the local clock from UTC; `None` if it is not synchronised.
    pub utc_error: Option<Nanos>,
    /// Packet length in bytes, TLVs included.
    pub size: usize,
    /// Number of empty telemetry slots for relays, at most [`telemetry::MAX_SLOTS`].
    pub path_slots: usize,
}

impl Session {
    /// Session identifier of the warm-up: the next one, skipping 0, which means no session.
    const fn warm_up_ssid(&self) -> u16 {
        match self.ssid {
            u16::MAX => 1,
            ssid => ssid + 1,
        }
    }

    /// Length in bytes of the TLV in which the reflector returns its socket's drop counter.
    pub const SOCKET_DROPS_TLV: usize = tlv::HEADER + SOCKET_DROPS_LEN;

    /// Minimum packet length in bytes for `slots` telemetry slots.
    pub const fn size_of_path(slots: usize) -> usize {
        let clock = tlv::HEADER + NODE_CLOCK_LEN;
        Mode::Unauthenticated.base() + clock + tlv::HEADER + telemetry::value_len(slots)
    }
}

/// Sends requests and reads replies. The counted probes form a session whose sequence numbers start
/// at 0 (RFC 8762 section 4.2.1); the warm-up is another session.
///
/// The sequence numbers of the warm-up count up to 0 from below, like its ids, so that tools that
/// join packets by sequence number can tell the two apart. A stateful reflector answers the warm-up
/// with other numbers and thereby shows that it is stateful.
#[derive(Debug)]
pub struct Stamp {
    session: Session,
    mode: Mode,
    /// Packet without sequence number, T1 and HMACs.
    template: Box<[u8]>,
    error: u16,
    /// Offset of the HMAC TLV in the TLV area, if any.
    hmac_at: Option<usize>,
    /// The last T1; determines the era of the reflector's timestamps.
    pivot: Instant<Realtime>,
    /// Copy of a reply's TLVs, because a walk sets the flags of malformed ones.
    scratch: Box<[u8]>,
    hops: [Hop; telemetry::MAX_SLOTS],
    hops_used: usize,
    /// First id of the warm-up.
    warm_up_first: Option<u64>,
    warm_up: WarmUpSession,
    /// Reflector's drop counter in the last reply.
    socket_drops: Option<u32>,
}

impl Stamp {
    /// Lays out the packets: the clock TLV, the socket drops TLV if there is room for it beside the
    /// telemetry slots, the HMAC TLV if there is a key, the slots, then padding filled from
    /// `padding`.
    pub fn new(session: Session, padding: &[u8]) -> Self {
        let mode = match session.key {
            Some(_) => Mode::Authenticated,
            None => Mode::Unauthenticated,
        };
        let mut template = vec![0; session.size.max(mode.base())].into_boxed_slice();
        let room = template.len() - mode.base();
        let clock_len = tlv::HEADER + NODE_CLOCK_LEN;
        let hmac_len = if session.key.is_some() { tlv::HEADER + 16 } else { 0 };
        let path_len = match session.path_slots {
            0 => 0,
            slots => tlv::HEADER + telemetry::value_len(slots),
        };
        // The remainder must be empty or hold a whole padding TLV.
        let fits = |len: usize| {
            let left = room.checked_sub(len + hmac_len);
            left.is_some_and(|left| left == 0 || left >= tlv::HEADER)
        };
        let with_clock = session.clock.is_some() && fits(clock_len);
        let with_drops = with_clock && fits(clock_len + Session::SOCKET_DROPS_TLV + path_len);
        let mut hmac_at = None;
        let mut area = &mut template[mode.base()..];
        if with_clock {
            let (value, rest) = tlv::begin(area, kind::NODE_CLOCK, NODE_CLOCK_LEN as u16);
            value[..4].copy_from_slice(&NODE_CLOCK_MAGIC);
            area = rest;
            if with_drops {
                let (value, rest) = tlv::begin(area, kind::SOCKET_DROPS, SOCKET_DROPS_LEN as u16);
                value[..4].copy_from_slice(&SOCKET_DROPS_MAGIC);
                area = rest;
            }
            if session.key.is_some() {
                let drops_len = if with_drops { Session::SOCKET_DROPS_TLV } else { 0 };
                hmac_at = Some(clock_len + drops_len);
                area = tlv::begin(area, kind::HMAC, 16).1;
            }
        }
        if session.path_slots > 0 && area.len() >= path_len {
            let value_len = (path_len - tlv::HEADER) as u16;
            let (value, rest) = tlv::begin(area, kind::PATH, value_len);
            telemetry::begin(value);
            area = rest;
        }
        if area.len() >= tlv::HEADER {
            let len = (area.len() - tlv::HEADER) as u16;
            let (value, _) = tlv::begin(area, kind::EXTRA_PADDING, len);
            value.iter_mut().zip(padding).for_each(|(to, from)| *to = *from);
        }
        // The program reads the clock within a few microseconds of its use.
        let error = ErrorEstimate::of_clock(session.utc_error).to_bits();
        let scratch = vec![0; room].into_boxed_slice();
        let pivot = Instant::EPOCH;
        let hops = [Hop::default(); telemetry::MAX_SLOTS];
        Self {
            session,
            mode,
            template,
            error,
            hmac_at,
            pivot,
            scratch,
            hops,
            hops_used: 0,
            warm_up_first: None,
            warm_up: WarmUpSession::default(),
            socket_drops: None,
        }
    }

    /// Session identifier of the probe `id`.
    fn ssid_of(&mut self, id: u64) -> u16 {
        if is_warm_up(id) {
            self.warm_up_first.get_or_insert(id);
            self.session.warm_up_ssid()
        } else {
            self.session.ssid
        }
    }

    /// Id of the probe with the sequence number `seq` of the session `ssid`.
    fn probe_id(&self, ssid: u16, seq: u32) -> Option<WireId> {
        if ssid == self.session.warm_up_ssid() {
            let first = self.warm_up_first?;
            let nth = seq.checked_sub(first as u32)?;
            return Some(WireId::full(first + u64::from(nth)));
        }
        // Peers without RFC 8972 leave the session identifier 0.
        let is_counted = ssid == self.session.ssid || ssid == 0;
        is_counted.then_some(WireId::low(seq.into(), 32))
    }

    /// Reads the reply's TLVs: telemetry of relays and the reflector's drop counter. Returns
    /// whether the clock TLV shows that the reflector reads the local clock. With a key, TLVs
    /// without a valid HMAC are ignored.
    fn read_extensions(&mut self, message: &[u8]) -> bool {
        self.hops_used = 0;
        self.socket_drops = None;
        if self.session.clock.is_none() && self.session.path_slots == 0 {
            return false;
        }
        let tlvs = message.get(self.mode.base()..).unwrap_or(&[]);
        let tlvs = &tlvs[..tlvs.len().min(self.scratch.len())];
        let area = &mut self.scratch[..tlvs.len()];
        area.copy_from_slice(tlvs);
        if let Some(key) = &self.session.key {
            let seq = [message[0], message[1], message[2], message[3]];
            if !matches!(tlv::verify(key, seq, area), Integrity::Good(_)) {
                return false;
            }
        }
        let Self { session, hops, hops_used, socket_drops, .. } = self;
        let mut same = false;
        let is_answered =
            |flags: u8| flags & (tlv::UNRECOGNISED | tlv::MALFORMED | tlv::INTEGRITY) == 0;
        tlv::walk(area, |tlv| match tlv.kind {
            kind::NODE_CLOCK => {
                let clock = session.clock.as_ref().map(|clock| &clock[..]);
                let received = tlv.value.split_first_chunk();
                same |= is_answered(*tlv.flags)
                    && received.is_some_and(|(magic, received)| {
                        *magic == NODE_CLOCK_MAGIC && Some(received) == clock
                    });
            }
            kind::SOCKET_DROPS if is_answered(*tlv.flags) => {
                *socket_drops = tlv::socket_drops(tlv.value);
            }
            // A reflector that does not support these returns them with the unrecognised flag.
            kind::PATH if session.path_slots > 0 => {
                for (hop, slot) in hops.iter_mut().zip(telemetry::slots(tlv.value)) {
                    *hop = hop_of(&slot);
                    *hops_used += 1;
                }
            }
            _ => {}
        });
        same
    }
}

/// Converts a telemetry slot. Timestamps out of order, which dwell's relays never write, give 0.
fn hop_of(slot: &Slot) -> Hop {
    let between =
        |from: u64, to: u64| Nanos(i64::try_from(to.saturating_sub(from)).unwrap_or(i64::MAX));
    Hop {
        node: slot.node,
        back: slot.back,
        queueing_in: slot.rx_kernel.map(|kernel| between(kernel, slot.rx_app)),
        processing: between(slot.rx_app, slot.tx_app),
    }
}

impl Protocol for Stamp {
    fn hops(&self) -> &[Hop] {
        &self.hops[..self.hops_used.min(self.hops.len())]
    }

    fn socket_drops(&self) -> Option<u32> {
        self.socket_drops
    }

    fn capacity(&self) -> usize {
        self.template.len()
    }

    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize {
        let base = self.mode.base();
        message[base..].copy_from_slice(&self.template[base..]);
        let (ssid, seq) = (self.ssid_of(id), id as u32);
        self.pivot = now;
        let timestamp = timestamp::write_ntp(now);
        Request { seq, timestamp, error: self.error, ssid }.emit(message, self.mode);
        if let Some(key) = &self.session.key {
            if let Some(at) = self.hmac_at {
                tlv::sign(key, seq.to_be_bytes(), &mut message[base..], at);
            }
            stamp::sign(key, message);
        }
        message.len()
    }

    fn warm_up_answered(&mut self, id: u64, remote: &Remote) {
        self.warm_up.stateful |= id as u32 != remote.seq;
    }

    fn warm_up_session(&self) -> WarmUpSession {
        self.warm_up
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let reply = stamp::Reply::parse(message, self.mode).map_err(|_| Reject::Malformed)?;
        if self.session.key.as_ref().is_some_and(|key| !stamp::verify(key, message)) {
            return Err(Reject::Unauthentic);
        }
        // Without T2 or T3 this is an echoed request, not a reply.
        if reply.t2 == 0 || reply.t3 == 0 {
            return Err(Reject::Unknown);
        }
        let format = reply.estimate().format;
        let written = timestamp::read(reply.sender_timestamp, Format::Ntp, self.pivot);
        let id = self.probe_id(reply.ssid, reply.sender_seq).ok_or(Reject::Unknown)?;
        let remote = Remote {
            rx: timestamp::read(reply.t2, format, self.pivot),
            tx: timestamp::read(reply.t3, format, self.pivot),
            seq: reply.seq,
            ttl: (reply.ttl != 0).then_some(reply.ttl),
            same_clock: self.read_extensions(message),
        };
        self.warm_up.separate |= reply.ssid != 0;
        Ok(Reply { id, remote: Some(remote), written: Some(written) })
    }
}
