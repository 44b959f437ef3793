//! STAMP session-reflector (RFC 8762 section 4.3, RFC 8972 section 4).
//!
//! Replies are made in two steps: [`StampReflector::answer`] does all time-consuming work, and
//! [`StampReflector::finish`] writes T3 and the HMACs directly before the send call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::hmac::Key;
use dwell_wire::stamp::{self, Likeness, Mode, Reply, Request};
use dwell_wire::telemetry;
use dwell_wire::timestamp::{self, ErrorEstimate};
use dwell_wire::tlv::{
    self, Integrity, NODE_CLOCK_LEN, NODE_CLOCK_MAGIC, SOCKET_DROPS_LEN, SOCKET_DROPS_MAGIC, kind,
};

use super::replay::ReplayGuard;
use super::{EarlierReplies, LoopGuard, Refusal, RequestMeta, reply_ttl};

/// Maximum number of sessions. The longest idle ones make room for new ones.
const MAX_SESSIONS: usize = 4_096;

/// Length of an unauthenticated packet up to and including T2 (RFC 8762 figure 5).
const T2_END: usize = 24;

/// Configuration of a reflector.
#[derive(Debug, Default)]
pub struct StampConfig {
    /// Answers only authenticated packets, with this key.
    pub key: Option<Key>,
    /// With a key: length of the replay window. Each request is answered once, and only if its
    /// number is less than this below the highest of its session.
    pub replay_window: Option<u32>,
    /// Copies the sender's sequence number instead of counting replies.
    pub stateless: bool,
    /// Identity of the clock that T2 and T3 are read from.
    pub clock: Option<[u8; 12]>,
    /// Maximum offset of that clock from UTC; `None` if it is not synchronised.
    pub utc_error: Option<Nanos>,
    /// Replies of another engine to the same sessions.
    pub earlier: Option<Arc<dyn EarlierReplies>>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    /// Requests received, which is also the sequence number of the next reply.
    received: u32,
    last: Instant<Monotonic>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct StampReflector {
    config: StampConfig,
    mode: Mode,
    error: u16,
    sessions: HashMap<(SocketAddr, u16), Session>,
    replays: Option<ReplayGuard>,
    guard: LoopGuard,
    /// Drop counter of the socket on which requests arrive, if known.
    socket_drops: Option<u32>,
}

/// A reply without T3 and HMACs.
#[derive(Clone, Copy, Debug)]
#[must_use = "pass it to StampReflector::finish"]
pub struct Unfinished {
    reply: Reply,
    /// Offset of the HMAC TLV in the TLV area.
    hmac_at: Option<usize>,
    /// TOS or traffic class that the request asks for in its reply (DSCP1 of a Class of Service
    /// TLV).
    pub tos: Option<u8>,
    /// TTL or hop limit for a reply that is too short to be recognised as one.
    pub ttl: Option<u8>,
}

impl StampReflector {
    /// Creates a reflector without sessions.
    pub fn new(config: StampConfig) -> Self {
        let mode = match config.key {
            Some(_) => Mode::Authenticated,
            None => Mode::Unauthenticated,
        };
        let error = ErrorEstimate::of_clock(config.utc_error).to_bits();
        // Unauthenticated numbers must not move a window.
        let window = config.replay_window.filter(|_| config.key.is_some());
        let replays = window.map(ReplayGuard::new);
        let guard = LoopGuard::default();
        Self { config, mode, error, sessions: HashMap::new(), replays, guard, socket_drops: None }
    }

    /// Whether it answers authenticated requests only.
    pub(super) fn is_authenticated(&self) -> bool {
        self.config.key.is_some()
    }

    /// Sets the maximum offset of the clock from UTC.
    pub fn set_utc_error(&mut self, utc_error: Option<Nanos>) {
        self.config.utc_error = utc_error;
        self.error = ErrorEstimate::of_clock(utc_error).to_bits();
    }

    /// Sets the drop counter that later replies carry.
    pub fn set_socket_drops(&mut self, socket_drops: Option<u32>) {
        self.socket_drops = socket_drops;
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Checks the request in `packet` and answers its TLVs in place. `allow` may still refuse a
    /// well-formed request. Only answered requests count in the session, so that the reflector's
    /// own rate limit does not look like loss on the way back.
    pub fn answer(
        &mut self,
        packet: &mut [u8],
        meta: &RequestMeta,
        allow: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<Unfinished, Refusal> {
        // The length is checked first: a truncated packet has no HMAC to verify.
        let request = Request::parse(packet, self.mode).map_err(|_| Refusal::Malformed)?;
        if self.config.key.as_ref().is_some_and(|key| !stamp::verify(key, packet)) {
            return Err(Refusal::Unauthentic);
        }
        let from = meta.from.ip();
        if self.replays.as_ref().is_some_and(|guard| !guard.is_fresh(from, &request)) {
            return Err(Refusal::Replayed);
        }
        let ttl = self.refuse_reply(packet, &request, meta)?;
        allow()?;
        if let Some(guard) = &mut self.replays {
            guard.accept(from, &request, meta.now);
        }
        let base = packet.len().min(self.mode.base());
        let area = &mut packet[base..];
        let integrity = match &self.config.key {
            Some(key) => tlv::verify(key, request.seq.to_be_bytes(), area),
            None => Integrity::Nothing,
        };
        let session = self.session(meta, request.ssid);
        let hmac_at = match integrity {
            Integrity::Good(at) => Some(at),
            Integrity::Bad | Integrity::Nothing => None,
        };
        let mut tos = None;
        if integrity == Integrity::Bad {
            tlv::walk(area, |tlv| *tlv.flags = *tlv.flags & tlv::UNRECOGNISED | tlv::INTEGRITY);
        } else {
            // TLVs after a malformed one are not processed (RFC 8972 section 4).
            let mut is_intact = true;
            tlv::walk(area, |tlv| {
                *tlv.flags &= tlv::UNRECOGNISED;
                if is_intact {
                    *tlv.flags = self.answer_tlv(tlv.kind, tlv.value, meta, session, &mut tos);
                    is_intact = *tlv.flags & tlv::MALFORMED == 0;
                }
            });
        }
        let reply = Reply {
            seq: session.map_or(request.seq, |session| session.received.wrapping_sub(1)),
            t3: 0,
            error: self.error,
            ssid: request.ssid,
            t2: timestamp::write_ntp(meta.rx),
            sender_seq: request.seq,
            sender_timestamp: request.timestamp,
            sender_error: request.error,
            ttl: meta.ttl.unwrap_or(0),
        };
        Ok(Unfinished { reply, hmac_at, tos, ttl })
    }

    /// Refuses certain replies and counts likely ones: a source that sends more than 1,000 likely
    /// replies within a second is refused for 60 s.
    ///
    /// A reply to a request of less than 44 bytes is too short for the fields that identify a
    /// reply. It is sent with a decreasing TTL, which is returned. A packet without T2 that carries
    /// this reflector's error estimate and a timestamp of the last second may be such a reply that
    /// came back.
    fn refuse_reply(
        &mut self,
        packet: &[u8],
        request: &Request,
        meta: &RequestMeta,
    ) -> Result<Option<u8>, Refusal> {
        let is_short = packet.len() < self.mode.base();
        let may_be_own = || {
            let age = timestamp::write_ntp(meta.rx).wrapping_sub(request.timestamp);
            packet.len() < T2_END && request.error == self.error && age < 1 << 32
        };
        let may_be_reply = match stamp::likeness_to_reply(packet, self.mode) {
            Likeness::Full => return Err(Refusal::Loop),
            Likeness::Partial => true,
            Likeness::None => may_be_own(),
        };
        let ttl = is_short.then(|| reply_ttl(meta.ttl)).transpose()?;
        if may_be_reply {
            // Apart from their timestamps, such packets are identical.
            self.guard.admit(meta.from, &[], meta.now)?;
        }
        Ok(ttl)
    }

    /// Writes the reply, sent at `t3`, over the request in `packet`.
    pub fn finish(&self, unfinished: Unfinished, packet: &mut [u8], t3: Instant<Realtime>) {
        let reply = Reply { t3: timestamp::write_ntp(t3), ..unfinished.reply };
        reply.emit(packet, self.mode);
        if let Some(key) = &self.config.key {
            if let Some(at) = unfinished.hmac_at {
                tlv::sign(key, reply.seq.to_be_bytes(), &mut packet[self.mode.base()..], at);
            }
            stamp::sign(key, packet);
        }
    }

    /// Counts the request in its session; `None` if the reflector is stateless.
    fn session(&mut self, meta: &RequestMeta, ssid: u16) -> Option<Session> {
        if self.config.stateless {
            return None;
        }
        let key = (meta.from, ssid);
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(&key) {
            self.evict_idle();
        }
        let earlier = &self.config.earlier;
        let session = self.sessions.entry(key).or_insert_with(|| Session {
            received: earlier.as_ref().map_or(0, |earlier| earlier.count(meta.from, ssid)),
            last: meta.now,
        });
        session.received = session.received.wrapping_add(1);
        session.last = meta.now;
        Some(*session)
    }

    /// Evicts the quarter of sessions that have been idle for longest, so that a flood of new
    /// sessions causes a full scan only once per 1,024 packets.
    fn evict_idle(&mut self) {
        let mut last: Vec<_> = self.sessions.values().map(|session| session.last).collect();
        let (_, limit, _) = last.select_nth_unstable(MAX_SESSIONS / 4);
        let limit = *limit;
        self.sessions.retain(|_, session| session.last > limit);
    }

    /// Fills in the value of a TLV and returns its flags. Sets `tos` to the marking that it
    /// requests for the reply.
    fn answer_tlv(
        &self,
        kind: u8,
        value: &mut [u8],
        meta: &RequestMeta,
        session: Option<Session>,
        tos: &mut Option<u8>,
    ) -> u8 {
        let is_supported = match (kind, value.len()) {
            (kind::EXTRA_PADDING, _) => true,
            (kind::HMAC, 16) => self.config.key.is_some(),
            (kind::TIMESTAMP_INFORMATION, 4..) => {
                // Section 4.3: synchronisation source (1 NTP, 5 free-running) and timestamping
                // method (2 software), in and out. Sub-TLVs may follow; none is supported.
                let source = if self.config.utc_error.is_some() { 1 } else { 5 };
                value[..4].copy_from_slice(&[source, 2, source, 2]);
                tlv::walk(&mut value[4..], |sub| *sub.flags = tlv::UNRECOGNISED);
                true
            }
            (kind::CLASS_OF_SERVICE, 4) => {
                // Section 4.4: DSCP1 (6 bits) is the marking requested for the reply; DSCP2 (6) and
                // ECN (2) are those of the received request; RP (2) is 0, because every marking is
                // allowed.
                let arrived = u16::from(meta.tos.unwrap_or(0));
                let wanted = u16::from_be_bytes([value[0], value[1]]) & 0xfc00;
                let field = wanted | (arrived >> 2) << 4 | (arrived & 3) << 2;
                value[..2].copy_from_slice(&field.to_be_bytes());
                *tos = Some((wanted >> 8) as u8);
                meta.tos.is_some()
            }
            (kind::DIRECT_MEASUREMENT, 12) => session.is_some_and(|session| {
                // Section 4.5: packets received, and packets transmitted including this one.
                value[4..8].copy_from_slice(&session.received.to_be_bytes());
                value[8..12].copy_from_slice(&session.received.to_be_bytes());
                true
            }),
            // Telemetry is returned unchanged; relays on the way back may fill further slots.
            (kind::PATH, _) => value.starts_with(&telemetry::MAGIC),
            (kind::NODE_CLOCK, NODE_CLOCK_LEN) => {
                let ours = value.starts_with(&NODE_CLOCK_MAGIC);
                match self.config.clock {
                    Some(clock) if ours => {
                        value[4..].copy_from_slice(&clock);
                        true
                    }
                    _ => false,
                }
            }
            (kind::SOCKET_DROPS, SOCKET_DROPS_LEN) => {
                let ours = value.starts_with(&SOCKET_DROPS_MAGIC);
                match self.socket_drops {
                    Some(drops) if ours => {
                        value[4..].copy_from_slice(&drops.to_be_bytes());
                        true
                    }
                    _ => false,
                }
            }
            (
                kind::TIMESTAMP_INFORMATION
                | kind::CLASS_OF_SERVICE
                | kind::DIRECT_MEASUREMENT
                | kind::HMAC,
                _,
            ) => return tlv::MALFORMED,
            _ => false,
        };
        if is_supported { 0 } else { tlv::UNRECOGNISED }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::protocol::{self, Protocol, Reject};

    const CLOCK: [u8; 12] = *b"this machine";

    fn meta(port: u16) -> RequestMeta {
        RequestMeta {
            from: SocketAddr::new("192.0.2.1".parse().unwrap(), port),
            rx: Instant::from_nanos(1_700_000_000_000_001_000),
            ttl: Some(63),
            tos: Some(0xb9),
            now: Instant::from_nanos(5),
        }
    }

    fn config(key: bool, stateless: bool) -> StampConfig {
        let key = key.then(|| Key::new(b"0123456789abcdef"));
        StampConfig { key, stateless, clock: Some(CLOCK), ..StampConfig::default() }
    }

    fn sender(key: bool, size: usize) -> protocol::Stamp {
        let key = key.then(|| Key::new(b"0123456789abcdef"));
        let session = protocol::Session {
            ssid: 7,
            key,
            clock: Some(CLOCK),
            utc_error: None,
            size,
            path_slots: 0,
        };
        protocol::Stamp::new(session, &[0xaa; 2_000])
    }

    const T1: Instant<Realtime> = Instant::from_nanos(1_700_000_000_000_000_000);
    const T3: Instant<Realtime> = Instant::from_nanos(1_700_000_000_000_005_000);

    fn round(
        sender: &mut protocol::Stamp,
        reflector: &mut StampReflector,
        id: u64,
        tamper: impl Fn(&mut [u8]),
    ) -> Result<Result<protocol::Reply, Reject>, Refusal> {
        let mut packet = vec![0; sender.capacity()];
        sender.write(id, T1, &mut packet);
        tamper(&mut packet);
        let unfinished = reflector.answer(&mut packet, &meta(4_000), || Ok(()))?;
        reflector.finish(unfinished, &mut packet, T3);
        Ok(sender.read(&packet, 0))
    }

    #[test]
    fn pair_measures_in_both_modes_and_all_sizes() {
        let plain = [44, 64, 65 + 4, 76, 80].map(|size| (false, size));
        for (key, size) in plain.into_iter().chain([112, 152, 164, 1_400].map(|size| (true, size)))
        {
            let mut sender = sender(key, size);
            let mut reflector = StampReflector::new(config(key, false));
            reflector.set_socket_drops(Some(u32::MAX));
            for id in 0..3 {
                let reply = round(&mut sender, &mut reflector, id, |_| {}).unwrap().unwrap();
                let remote = reply.remote.unwrap();
                assert_eq!((reply.id.value, remote.seq), (id, id as u32), "{key} {size}");
                assert_eq!(remote.ttl, Some(63));
                assert!((remote.tx - T3).0.abs() <= 1);
                assert!((remote.rx - meta(0).rx).0.abs() <= 1);
                let room = size >= if key { 152 } else { 64 };
                assert_eq!(remote.same_clock, room, "{key} {size}");
                let room = size >= if key { 164 } else { 76 };
                let drops = room.then_some(u32::MAX);
                assert_eq!(sender.socket_drops(), drops, "{key} {size}");
            }
        }
    }

    #[test]
    fn relay_telemetry_returns_with_the_reply() {
        let size = protocol::Session::size_of_path(3);
        let session = protocol::Session {
            ssid: 7,
            key: None,
            clock: Some(CLOCK),
            utc_error: None,
            size,
            path_slots: 3,
        };
        let mut sender = protocol::Stamp::new(session, &[]);
        let mut reflector = StampReflector::new(config(false, false));
        let mut packet = vec![0; sender.capacity()];
        assert_eq!(packet.len(), size);
        sender.write(1, T1, &mut packet);
        let slot = |node, back| telemetry::Slot {
            node,
            back,
            rx_kernel: (!back).then_some(1_000),
            rx_app: 1_400,
            tx_app: 2_000,
        };
        assert!(telemetry::fill(&mut packet, &slot(21, false)));
        let unfinished = reflector.answer(&mut packet, &meta(4_000), || Ok(())).unwrap();
        reflector.finish(unfinished, &mut packet, T3);
        assert!(telemetry::fill(&mut packet, &slot(21, true)));
        let reply = sender.read(&packet, 0).unwrap();
        assert!(reply.remote.unwrap().same_clock);
        let hops: Vec<_> = sender
            .hops()
            .iter()
            .map(|hop| (hop.back, hop.node_delay(), hop.processing.0))
            .collect();
        assert_eq!(hops, [(false, Some(Nanos(1_000)), 600), (true, None, 600)]);
        // The next reply carries no telemetry of this one.
        sender.write(2, T1, &mut packet);
        let unfinished = reflector.answer(&mut packet, &meta(4_000), || Ok(())).unwrap();
        reflector.finish(unfinished, &mut packet, T3);
        sender.read(&packet, 0).unwrap();
        assert!(sender.hops().is_empty());
    }

    #[test]
    fn stateful_reflector_counts_stateless_one_copies() {
        let seq = |stateless| {
            let mut sender = sender(false, 44);
            let mut reflector = StampReflector::new(config(false, stateless));
            let reply = round(&mut sender, &mut reflector, u64::MAX, |_| {}).unwrap().unwrap();
            reply.remote.unwrap().seq
        };
        assert_eq!(seq(false), 0);
        assert_eq!(seq(true), u32::MAX);
    }

    #[test]
    fn unauthentic_packets_are_refused_with_a_key() {
        let mut reflector = StampReflector::new(config(true, false));
        let refused = round(&mut sender(true, 152), &mut reflector, 1, |p| p[0] ^= 1);
        assert_eq!(refused.unwrap_err(), Refusal::Unauthentic);
        let refused = round(&mut sender(false, 152), &mut reflector, 1, |_| {});
        assert_eq!(refused.unwrap_err(), Refusal::Unauthentic);
        assert_eq!(reflector.sessions(), 0, "a forged packet creates no session");
        // A changed TLV: the base packet is valid, the TLV is flagged and ignored.
        let reply = round(&mut sender(true, 152), &mut reflector, 1, |p| p[118] ^= 1);
        assert!(!reply.unwrap().unwrap().remote.unwrap().same_clock);
    }

    #[test]
    fn replayed_request_is_refused_and_spends_no_budget() {
        let config = StampConfig { replay_window: Some(64), ..config(true, false) };
        let mut reflector = StampReflector::new(config);
        let mut sender = sender(true, 152);
        let mut captured = vec![0; 152];
        sender.write(1, T1, &mut captured);
        let mut ask = |port, allowed: Result<(), Refusal>| {
            let mut limit_checked = false;
            let packet = &mut captured.clone();
            let answer = reflector.answer(packet, &meta(port), || {
                limit_checked = true;
                allowed
            });
            (answer.map(drop), limit_checked)
        };
        let limited = ask(4_000, Err(Refusal::Limited));
        assert_eq!(limited, (Err(Refusal::Limited), true), "refused by the limit, so not marked");
        assert_eq!(ask(4_000, Ok(())), (Ok(()), true));
        assert_eq!(ask(4_000, Ok(())), (Err(Refusal::Replayed), false));
        assert_eq!(ask(4_001, Ok(())), (Err(Refusal::Replayed), false), "from another port");
    }

    #[test]
    fn socket_drops_are_absent_if_unknown_or_forged() {
        let mut reflector = StampReflector::new(config(true, false));
        let mut sender = sender(true, 164);
        round(&mut sender, &mut reflector, 1, |_| {}).unwrap().unwrap();
        assert_eq!(sender.socket_drops(), None, "the reflector does not know its counter");
        reflector.set_socket_drops(Some(3));
        round(&mut sender, &mut reflector, 2, |_| {}).unwrap().unwrap();
        assert_eq!(sender.socket_drops(), Some(3));
        // The counter in the sender's empty TLV is at offset 112 + 20 + 8.
        round(&mut sender, &mut reflector, 3, |packet| packet[140] ^= 1).unwrap().unwrap();
        assert_eq!(sender.socket_drops(), None, "a changed TLV is ignored");
    }

    #[test]
    fn foreign_tlv_of_type_242_is_returned_unrecognised() {
        let mut packet = vec![0; 44];
        packet.extend([0x80, kind::SOCKET_DROPS, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        let before = packet.clone();
        let mut reflector = StampReflector::new(config(false, false));
        reflector.set_socket_drops(Some(3));
        let _ = reflector.answer(&mut packet, &meta(4_000), || Ok(())).unwrap();
        assert_eq!(packet[44..], before[44..]);
    }

    #[test]
    fn rate_limited_request_counts_in_no_session() {
        let mut reflector = StampReflector::new(config(false, false));
        let mut sender = sender(false, 44);
        for id in 0..10 {
            let mut packet = vec![0; 44];
            sender.write(id, T1, &mut packet);
            let allow = || if id % 2 == 0 { Ok(()) } else { Err(Refusal::Limited) };
            match reflector.answer(&mut packet, &meta(4_000), allow) {
                Ok(unfinished) => {
                    reflector.finish(unfinished, &mut packet, T3);
                    let seq = sender.read(&packet, 0).unwrap().remote.unwrap().seq;
                    assert_eq!(u64::from(seq), id / 2, "the reflector's own numbers have no gap");
                }
                Err(refusal) => assert_eq!(refusal, Refusal::Limited),
            }
        }
    }

    #[test]
    fn active_session_survives_a_flood_of_new_ones() {
        let mut reflector = StampReflector::new(config(false, false));
        let mut ask = |ssid: u16, at: i64| {
            let mut packet = vec![0; 44];
            packet[14..16].copy_from_slice(&ssid.to_be_bytes());
            let meta = RequestMeta { now: Instant::from_nanos(at), ..meta(4_000) };
            let _ = reflector.answer(&mut packet, &meta, || Ok(())).unwrap();
            reflector.sessions()
        };
        for n in 1..=u16::MAX {
            // Session 1 sends repeatedly; every other session only once.
            assert!(ask(n, i64::from(n)) <= MAX_SESSIONS);
            ask(1, i64::from(n));
        }
        let session = reflector.sessions[&(meta(4_000).from, 1)];
        assert_eq!(session.received, u32::from(u16::MAX) + 1);
    }

    #[test]
    fn known_tlvs_are_answered_and_unknown_ones_flagged() {
        let mut packet = vec![0; 44 + 8 + 8 + 16 + 6];
        let area = &mut packet[44..];
        let (_, area) = tlv::begin(area, kind::TIMESTAMP_INFORMATION, 4);
        let (value, area) = tlv::begin(area, kind::CLASS_OF_SERVICE, 4);
        value[0] = 46 << 2;
        let (_, area) = tlv::begin(area, kind::DIRECT_MEASUREMENT, 12);
        let (_, _) = tlv::begin(area, 200, 2);
        let mut reflector = StampReflector::new(config(false, false));
        let unfinished = reflector.answer(&mut packet, &meta(4_000), || Ok(())).unwrap();
        assert_eq!(unfinished.tos, Some(46 << 2), "the reply is marked with DSCP1");
        let mut seen = Vec::new();
        tlv::walk(&mut packet[44..], |tlv| seen.push((tlv.kind, *tlv.flags, tlv.value.to_vec())));
        assert_eq!(seen[0], (3, 0, vec![5, 2, 5, 2]));
        // DSCP1 46 as requested, DSCP2 46 and ECN 1 as received (TOS 0xb9), RP 0.
        let field = 46_u16 << 10 | 46 << 4 | 1 << 2;
        assert_eq!(seen[1], (4, 0, [field.to_be_bytes().to_vec(), vec![0, 0]].concat()));
        assert_eq!(seen[2].1, 0);
        assert_eq!(seen[2].2[4..], [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(seen[3], (200, tlv::UNRECOGNISED, vec![0, 0]));
    }

    #[test]
    fn truncated_packet_is_malformed_with_a_key() {
        let mut reflector = StampReflector::new(config(true, false));
        let mut packet = vec![0; 112];
        sender(true, 112).write(1, T1, &mut packet);
        let mut ask = |packet: &mut [u8]| reflector.answer(packet, &meta(1), || Ok(())).map(drop);
        assert_eq!(ask(&mut packet[..111].to_vec()), Err(Refusal::Malformed));
        assert_eq!(ask(&mut packet), Ok(()));
    }

    /// Returns flags and values of the answers to TLVs given as type, flags, value.
    fn answers(tlvs: &[(u8, u8, Vec<u8>)]) -> Vec<(u8, Vec<u8>)> {
        let mut packet = vec![0; 44];
        for (kind, flags, value) in tlvs {
            packet.extend([*flags, *kind, 0, value.len() as u8]);
            packet.extend(value);
        }
        let mut reflector = StampReflector::new(config(false, false));
        let _ = reflector.answer(&mut packet, &meta(4_000), || Ok(())).unwrap();
        let mut seen = Vec::new();
        tlv::walk(&mut packet[44..], |tlv| seen.push((*tlv.flags, tlv.value.to_vec())));
        seen
    }

    #[test]
    fn tlvs_after_a_malformed_one_are_not_answered() {
        let requests = [
            (kind::TIMESTAMP_INFORMATION, 0x80, vec![0; 4]),
            (kind::CLASS_OF_SERVICE, 0x80, vec![7; 3]),
            (kind::TIMESTAMP_INFORMATION, 0xe0, vec![0; 4]),
            (kind::EXTRA_PADDING, 0x80, vec![9; 2]),
        ];
        let expected = [
            (0, vec![5, 2, 5, 2]),
            (tlv::MALFORMED, vec![7; 3]),
            (tlv::UNRECOGNISED, vec![0; 4]),
            (tlv::UNRECOGNISED, vec![9; 2]),
        ];
        assert_eq!(answers(&requests), expected);
    }

    #[test]
    fn invalid_request_flags_are_not_returned() {
        let requests = [(kind::EXTRA_PADDING, 0xff, vec![1; 3]), (200, 0x7f, vec![2; 3])];
        assert_eq!(answers(&requests), [(0, vec![1; 3]), (tlv::UNRECOGNISED, vec![2; 3])]);
    }

    #[test]
    fn timestamp_information_may_have_sub_tlvs() {
        let sub = [0, 77, 0, 2, 0xaa, 0xbb];
        let requests = [
            (kind::TIMESTAMP_INFORMATION, 0x80, [&[0; 4][..], &sub].concat()),
            (kind::TIMESTAMP_INFORMATION, 0x80, vec![0; 3]),
        ];
        let answered = [5, 2, 5, 2, tlv::UNRECOGNISED, 77, 0, 2, 0xaa, 0xbb];
        assert_eq!(answers(&requests), [(0, answered.to_vec()), (tlv::MALFORMED, vec![0; 3])]);
    }

    const SEED: u64 = 0x7061_6464_696e_6721;

    /// Sends a packet back and forth between a reflector and another end. Returns the number of
    /// turns and the refusal that ended the loop.
    fn run_loop(
        packet: &mut Vec<u8>,
        reflector: &mut StampReflector,
        mut other_end: impl FnMut(&mut Vec<u8>, Option<u8>) -> Option<u8>,
    ) -> (u32, Refusal) {
        let mut ttl = Some(64);
        for turn in 0..100_000 {
            let after = i64::from(turn) * 20_000;
            let meta = RequestMeta {
                ttl,
                rx: meta(0).rx + Nanos(after),
                now: Instant::from_nanos(after),
                ..meta(9)
            };
            let unfinished = match reflector.answer(packet, &meta, || Ok(())) {
                Ok(unfinished) => unfinished,
                Err(refusal) => return (turn, refusal),
            };
            reflector.finish(unfinished, packet, meta.rx + Nanos(3_000));
            ttl = other_end(packet, unfinished.ttl.or(Some(64)));
            if ttl.is_none() {
                return (turn + 1, Refusal::Loop);
            }
        }
        panic!("a packet of {} bytes loops endlessly", packet.len());
    }

    #[test]
    fn two_stamp_reflectors_end_within_64_packets() {
        for key in [false, true] {
            for size in [14, 24, 38, 43, 44, 112, 500] {
                if key && size < 112 {
                    continue;
                }
                let mut packet = vec![0; size];
                packet[7] = 1;
                if key {
                    stamp::sign(config(true, false).key.as_ref().unwrap(), &mut packet);
                }
                let mut near = StampReflector::new(config(key, false));
                let mut far = StampReflector::new(config(key, true));
                let (turns, refusal) = run_loop(&mut packet, &mut near, |packet, ttl| {
                    let meta = RequestMeta { ttl, ..meta(862) };
                    let unfinished = far.answer(packet, &meta, || Ok(())).ok()?;
                    far.finish(unfinished, packet, meta.rx + Nanos(3_000));
                    unfinished.ttl.or(Some(64))
                });
                assert_eq!(refusal, Refusal::Loop);
                let bound = if size < 44 { 32 } else { 2 };
                assert!(turns <= bound, "{size} bytes, key {key}: {turns} turns");
            }
        }
    }

    #[test]
    fn echo_server_with_fresh_ttl_ends_within_1001_packets() {
        for size in [14, 23, 24, 38, 41, 43, 44, 500] {
            let mut packet = vec![0; size];
            let mut reflector = StampReflector::new(config(false, true));
            let (turns, refusal) = run_loop(&mut packet, &mut reflector, |_, _| Some(64));
            let expected = if size < 44 { Refusal::Silenced } else { Refusal::Loop };
            let bound = if size < 44 { 1_001 } else { 2 };
            assert_eq!(refusal, expected, "{size} bytes");
            assert!(turns <= bound, "{size} bytes: {turns} turns");
        }
    }

    #[test]
    fn requests_with_any_padding_are_all_answered() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        for (key, base) in [(false, 44_usize), (true, 112)] {
            let mut reflector = StampReflector::new(config(key, false));
            let signing = config(true, false).key.unwrap();
            // Fewer in the authenticated mode, because an HMAC takes time.
            let requests = if key { 50_000 } else { 1_000_000 };
            let mut packet = vec![0_u8; 1_000];
            for n in 0..requests {
                let len = if n % 2 == 0 { base } else { base + rng.random_range(0..20) };
                let packet = &mut packet[..len];
                let now = Instant::from_nanos(n * 1_000);
                let request = Request {
                    seq: n as u32,
                    timestamp: timestamp::write_ntp(T1 + Nanos(n * 1_000)),
                    error: 0x8101,
                    ssid: 7,
                };
                let head = if key { 28 } else { 16 };
                request.emit(packet, reflector.mode);
                let padded = if key { 96 } else { len };
                match n % 5 {
                    0 => packet[head..padded].fill(0xff),
                    1 => {
                        let (written, padding) = packet[..padded].split_at_mut(head);
                        let copied = written.iter().cycle();
                        padding.iter_mut().zip(copied).for_each(|(to, from)| *to = *from);
                    }
                    2 => {
                        let counter = (n as u8..=255).cycle();
                        packet[head..padded].iter_mut().zip(counter).for_each(|(to, n)| *to = n);
                    }
                    _ => rng.fill(&mut packet[head..padded]),
                }
                if key {
                    stamp::sign(&signing, packet);
                }
                let meta = RequestMeta { rx: T1 + Nanos(n * 1_000 + 500), now, ..meta(4_000) };
                let answer = reflector.answer(packet, &meta, || Ok(()));
                assert!(answer.is_ok(), "seed {SEED:#x}, request {n}, key {key}: {packet:02x?}");
            }
        }
    }

    #[test]
    fn short_requests_at_a_high_rate_are_all_answered() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut reflector = StampReflector::new(config(false, false));
        for n in 0..100_000_i64 {
            // TWAMP light: 14 bytes, another error estimate; or padded at random to 41.
            let mut packet = vec![0; if n % 2 == 0 { 14 } else { 41 }];
            rng.fill(&mut packet[..]);
            packet[..4].copy_from_slice(&(n as u32).to_be_bytes());
            let sent = timestamp::write_ntp(T1 + Nanos(n * 1_000));
            packet[4..12].copy_from_slice(&sent.to_be_bytes());
            packet[12..14].copy_from_slice(&[0x3f, 0xff]);
            let now = Instant::from_nanos(n * 1_000);
            let meta = RequestMeta { rx: T1 + Nanos(n * 1_000 + 500), now, ..meta(4_000) };
            let answer = reflector.answer(&mut packet, &meta, || Ok(())).unwrap();
            assert_eq!(answer.ttl, Some(62), "seed {SEED:#x}, request {n}");
        }
    }

    #[test]
    fn any_bytes_get_no_longer_reply_and_bounded_sessions() {
        let mut reflector = StampReflector::new(config(false, false));
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..20_000_u32 {
            let mut packet = vec![0; (round % 150) as usize];
            for byte in &mut packet {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            let len = packet.len();
            if let Ok(unfinished) = reflector.answer(&mut packet, &meta(round as u16), || Ok(())) {
                reflector.finish(unfinished, &mut packet, T3);
            }
            assert_eq!(packet.len(), len);
        }
        assert!(reflector.sessions() <= MAX_SESSIONS);
    }
}
