//! Chooses the address of a target. A name with several addresses is tried as in RFC 8305: the
//! first address immediately, each further one 250 ms later or after all earlier ones failed, with
//! alternating families. The first address that answers is measured. These attempts are not part of
//! any result.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use dwell_engine::protocol::{MAX_HANDSHAKE_LEN, ProbeTransport, Protocol};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::port::{Port, SocketOptions, Wait};
use dwell_io::tcp::TcpPort;
use dwell_protocol::PingJob;
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::icmp::Family;

use super::icmp_error::NetworkError;
use super::session::{self, ConnectError, Ends};
use super::setup::PingSetup;
use crate::Failure;

/// Time-out of an attempt for up to two addresses. Each further address adds [`ATTEMPT_DELAY`].
const ATTEMPT_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Maximum number of addresses tried.
const MAX_ADDRESSES: usize = 6;

/// Delay between attempts (RFC 8305 section 5), and between the probes of one attempt.
const ATTEMPT_DELAY: Nanos = Nanos::from_millis(250);

/// Maximum number of probes to one address.
const MAX_PROBES: u64 = 4;

/// Maximum wait on one socket, which delays answers on the others.
const POLL_INTERVAL: Nanos = Nanos::from_millis(5);

/// Maximum number of messages received from a socket per turn.
const RECEIVE_BATCH: usize = 32;

/// Maximum number of error-queue entries read per turn.
const NOTICE_BATCH: usize = 32;

/// The address that probes are sent to.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) peer: SocketAddr,
    /// First address of the other family, if none of that family was tried.
    pub(super) untried: Option<SocketAddr>,
    /// The connection, if already established.
    pub(super) stream: Option<TcpPort>,
}

/// Addresses of a target in the order of the attempts: distinct, at most [`MAX_ADDRESSES`], with
/// alternating families.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    first: SocketAddr,
    others: Vec<SocketAddr>,
}

impl Addresses {
    /// Resolves the target's name to addresses of the families that the options allow.
    pub(super) fn resolve(job: &PingJob, setup: &PingSetup) -> Result<Self, Failure> {
        let target = &setup.target;
        let family = |address: &SocketAddr| match setup.origin.source {
            _ if job.ipv4 => address.is_ipv4(),
            _ if job.ipv6 => address.is_ipv6(),
            Some(source) => address.is_ipv4() == source.is_ipv4(),
            None => true,
        };
        let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| {
            Failure::usage(format!(
                "cannot resolve '{}': {error}; give an address or a name that resolves",
                target.host
            ))
        })?;
        let Some(addresses) = Self::in_turn(addresses.filter(family)) else {
            let v6 = job.ipv6 || setup.origin.source.is_some_and(|source| source.is_ipv6());
            let wanted = if v6 { 6 } else { 4 };
            return Err(Failure::usage(format!("'{}' has no IPv{wanted} address", target.host)));
        };
        Ok(addresses)
    }

    /// Orders the addresses as in RFC 8305 section 4: the family of the first leads, and the
    /// families alternate while both have addresses.
    fn in_turn(resolved: impl Iterator<Item = SocketAddr>) -> Option<Self> {
        let mut resolved = resolved.peekable();
        let leads_v4 = resolved.peek()?.is_ipv4();
        let (leading, other): (Vec<_>, Vec<_>) =
            resolved.partition(|address| address.is_ipv4() == leads_v4);
        let (mut leading, mut other) = (leading.into_iter(), other.into_iter());
        let first = leading.next()?;
        let mut others: Vec<SocketAddr> = Vec::new();
        loop {
            let pair = [other.next(), leading.next()];
            if pair == [None, None] {
                break;
            }
            for address in pair.into_iter().flatten() {
                if address != first && !others.contains(&address) {
                    others.push(address);
                }
            }
        }
        others.truncate(MAX_ADDRESSES - 1);
        Some(Self { first, others })
    }

    /// The first address, without an attempt.
    pub(super) fn untried(&self) -> Reached {
        let of_other_family =
            self.others.iter().find(|other| other.is_ipv4() != self.first.is_ipv4());
        Reached { peer: self.first, untried: of_other_family.copied(), stream: None }
    }

    /// All addresses, in the order of the attempts.
    pub(super) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        [self.first].into_iter().chain(self.others.iter().copied())
    }

    /// Maximum duration of all attempts.
    fn attempt_time(&self) -> Nanos {
        let further = self.others.len().saturating_sub(1) as i64;
        ATTEMPT_TIMEOUT + Nanos(ATTEMPT_DELAY.0 * further)
    }
}

/// Chooses the address to measure if the protocol is given. A single address is not tried first.
pub(super) fn reach(
    job: &PingJob,
    setup: &PingSetup,
    stop: &AtomicBool,
) -> Result<Reached, Failure> {
    let addresses = Addresses::resolve(job, setup)?;
    if addresses.others.is_empty() {
        return Ok(addresses.untried());
    }
    let spec = setup.target.scheme.spec();
    if spec.transport == ProbeTransport::Tcp {
        let options = session::port_options(job, setup, None);
        let connected = connect_first(addresses.all(), setup.config.timeout, &options, stop);
        let (peer, stream) = connected.map_err(|error| {
            if stop.load(Ordering::Relaxed) {
                return Failure::interrupted();
            }
            if spec.announces_connection {
                crate::say("failed to connect to server");
            }
            error.into_failure(setup, &options)
        })?;
        return Ok(Reached { peer, untried: None, stream: Some(stream) });
    }
    let peer = first_answer(job, setup, &addresses, stop).unwrap_or(addresses.first);
    Ok(Reached { peer, untried: None, stream: None })
}

/// An address that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    pub(super) peer: SocketAddr,
    /// Error reported by the network or the local kernel.
    pub(super) reason: Option<String>,
}

/// Probes the addresses with a datagram protocol until one answers. Returns that address, or all
/// addresses tried with the reasons.
pub(super) fn first_answer(
    job: &PingJob,
    setup: &PingSetup,
    addresses: &Addresses,
    stop: &AtomicBool,
) -> Result<SocketAddr, Vec<Unanswered>> {
    let end = monotonic() + addresses.attempt_time();
    let mut waiting = addresses.all();
    let mut next_start = monotonic();
    let mut attempts: Vec<Attempt> = Vec::new();
    loop {
        let now = monotonic();
        if now >= end || stop.load(Ordering::Relaxed) {
            break;
        }
        let all_failed = attempts.iter().all(|attempt| attempt.open.is_none());
        if next_start <= now || all_failed {
            match waiting.next() {
                Some(peer) => attempts.push(Attempt::begin(job, setup, peer)),
                None if all_failed => break,
                None => {}
            }
            next_start = now + ATTEMPT_DELAY;
        }
        let mut turns = attempts.iter_mut();
        if let Some(peer) = turns.find_map(|attempt| attempt.turn(now).then_some(attempt.peer)) {
            return Ok(peer);
        }
        if let Some(open) = attempts.iter_mut().rev().find_map(|attempt| attempt.open.as_mut()) {
            open.port.sleep_until((now + POLL_INTERVAL).min(end));
        }
    }
    let silence = |attempt: Attempt| Unanswered { peer: attempt.peer, reason: attempt.failure };
    Err(attempts.into_iter().map(silence).collect())
}

/// An attempt at one address.
struct Attempt {
    peer: SocketAddr,
    /// The socket, until the attempt has failed.
    open: Option<Open>,
    failure: Option<String>,
}

/// The socket of an attempt that waits for an answer.
struct Open {
    port: Box<dyn Port + Send>,
    sender: Box<dyn Protocol + Send>,
    /// Sends open requests instead of probes.
    has_handshake: bool,
    message: Vec<u8>,
    sent: u64,
    next: Instant<Monotonic>,
}

impl Attempt {
    fn begin(job: &PingJob, setup: &PingSetup, peer: SocketAddr) -> Self {
        match session::open_ends(job, setup, peer) {
            Ok(Ends { port, sender }) => {
                let has_handshake = setup.target.scheme.spec().handshake.is_some();
                let len = if has_handshake { MAX_HANDSHAKE_LEN } else { sender.capacity() };
                let message = vec![0; len];
                let next = monotonic();
                let open = Open { port, sender, has_handshake, message, sent: 0, next };
                Self { peer, open: Some(open), failure: None }
            }
            Err(failure) => {
                Self { peer, open: None, failure: Some(format!("{:#}", failure.error)) }
            }
        }
    }

    /// Sends a probe if one is due, and receives. Returns whether an answer arrived.
    fn turn(&mut self, now: Instant<Monotonic>) -> bool {
        let Some(open) = &mut self.open else { return false };
        if open.next <= now && open.sent < MAX_PROBES {
            open.next = now + ATTEMPT_DELAY;
            let len = match open.has_handshake {
                true => open.sender.write_open(&mut open.message),
                false => open.sender.write(open.sent, realtime(), &mut open.message),
            };
            open.sent += 1;
            if let Err(error) = open.port.send(&open.message[..len]) {
                self.fail(error.to_string());
                return false;
            }
        }
        if open.is_answered() {
            return true;
        }
        if let Some(error) = open.network_error(self.peer) {
            self.fail(error.to_string());
        }
        false
    }

    fn fail(&mut self, reason: String) {
        self.open = None;
        self.failure = Some(reason);
    }
}

impl Open {
    fn is_answered(&mut self) -> bool {
        let mut buffer = [0; 2_048];
        for _ in 0..RECEIVE_BATCH {
            let Ok(Some(arrival)) = self.port.receive(&mut buffer, Wait::No) else { return false };
            let message = &buffer[..arrival.len];
            if self.has_handshake {
                if self.sender.read_open(message).is_ok() {
                    self.close_session();
                    return true;
                }
                continue;
            }
            let reply = self.sender.read(message, arrival.channel);
            if reply.is_ok_and(|reply| reply.id.value < self.sent) {
                return true;
            }
        }
        false
    }

    /// Closes the session of an attempt; the measurement opens its own.
    fn close_session(&mut self) {
        let len = self.sender.write_close(&mut self.message);
        let _ = self.port.send(&self.message[..len]);
    }

    fn network_error(&mut self, peer: SocketAddr) -> Option<NetworkError> {
        let family = if peer.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut found = None;
        self.port.notices(NOTICE_BATCH, &mut |notice| {
            found = found.or(NetworkError::of(&notice, family));
        });
        found
    }
}

/// Connects to the addresses in turn and returns the first connection established. Later ones are
/// closed.
fn connect_first(
    peers: impl Iterator<Item = SocketAddr>,
    timeout: Nanos,
    options: &SocketOptions,
    stop: &AtomicBool,
) -> Result<(SocketAddr, TcpPort), ConnectError> {
    let (outcomes, outcome) = mpsc::channel();
    let mut peers = peers;
    let mut next_start = monotonic();
    let mut pending = 0;
    let mut failure = None;
    while !stop.load(Ordering::Relaxed) {
        if next_start <= monotonic() || pending == 0 {
            match peers.next() {
                Some(peer) => {
                    let (outcomes, options) = (outcomes.clone(), options.clone());
                    thread::spawn(move || {
                        // The receiver is gone once another connection is established.
                        let _ = outcomes.send((peer, session::connect(peer, timeout, &options)));
                    });
                    pending += 1;
                }
                None if pending == 0 => break,
                None => {}
            }
            next_start = monotonic() + ATTEMPT_DELAY;
        }
        match outcome.recv_timeout(POLL_INTERVAL.to_std()) {
            Ok((peer, Ok(stream))) => return Ok((peer, stream)),
            Ok((_, Err(error))) => {
                pending -= 1;
                failure.get_or_insert(error);
            }
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(ConnectError::timed_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(addresses: &[&str]) -> Addresses {
        let resolved = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 862));
        Addresses::in_turn(resolved).unwrap()
    }

    fn tried(addresses: &Addresses) -> Vec<String> {
        addresses.all().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn address_families_are_tried_in_turn() {
        let one_sided = ordered(&["2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1"]);
        let order = ["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"];
        assert_eq!(tried(&one_sided), order);
        let mixed = ordered(&["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"]);
        assert_eq!(tried(&mixed), ["192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2"]);
        let of_one_family = ordered(&["192.0.2.1", "192.0.2.2", "192.0.2.1"]);
        assert_eq!(tried(&of_one_family), ["192.0.2.1", "192.0.2.2"], "each once");
        assert!(Addresses::in_turn(std::iter::empty()).is_none());
    }

    #[test]
    fn six_addresses_are_tried_with_enough_time_each() {
        let many: Vec<_> = (1..=9).map(|n| format!("192.0.2.{n}")).collect();
        let many = ordered(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(tried(&many).len(), 6);
        let last_start = Nanos(ATTEMPT_DELAY.0 * 5);
        assert!(many.attempt_time() - last_start >= Nanos::from_millis(750));
        assert_eq!(ordered(&["192.0.2.1"]).attempt_time(), ATTEMPT_TIMEOUT);
    }

    #[test]
    fn hint_names_the_first_address_of_the_other_family() {
        let untried = |addresses: &[&str]| {
            ordered(addresses).untried().untried.map(|address| address.ip().to_string())
        };
        let both = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
        assert_eq!(untried(&both).as_deref(), Some("2001:db8::1"));
        assert_eq!(untried(&both[..2]), None);
    }
}
