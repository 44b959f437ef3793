//! Ports that split what their sockets deliver into messages: whole messages from a TCP stream, and
//! UDP ports in turn if the protocol has no id.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use dwell_io::clock::monotonic;
use dwell_io::datagram::DatagramSocket;
use dwell_io::pacer;
use dwell_io::port::{Arrival, Connection, Notice, Port, SendError, Sent, SocketOptions, Wait};
use dwell_io::tcp::TcpPort;
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::text::{ACKNOWLEDGE, DeviceTimes, TIMED_REQUEST, TIMES_LEN, WordScanner};

/// How a stream is split into messages.
#[derive(Debug)]
pub(super) enum Framing {
    /// Every message has this length in bytes and starts with the session.
    Fixed(usize),
    /// Every message is an acknowledgement.
    Acknowledges(WordScanner),
    /// Every message is an acknowledgement, with the times of a device if it has a clock.
    TimedAcknowledges {
        scanner: WordScanner,
        /// A word was read, and its times were not.
        is_open: bool,
    },
}

impl Framing {
    /// Framing of replies to requests of this length.
    pub(super) fn acknowledges(request: usize) -> Self {
        let scanner = WordScanner::new(ACKNOWLEDGE);
        match request == TIMED_REQUEST.len() {
            true => Self::TimedAcknowledges { scanner, is_open: false },
            false => Self::Acknowledges(scanner),
        }
    }
}

/// Length in bytes of the session, with which all probes of a run start. A stream that has lost
/// synchronisation resumes at the next session.
const SESSION_LEN: usize = 8;

/// A TCP connection that delivers whole messages. Bytes that belong to no message are counted and
/// dropped.
#[derive(Debug)]
pub(super) struct StreamPort {
    stream: TcpPort,
    framing: Framing,
    /// Received bytes not yet delivered.
    buffered: VecDeque<u8>,
    /// Timestamps of the last read.
    last: Option<Arrival>,
    /// Session at the start of all probes sent.
    session: Option<[u8; SESSION_LEN]>,
    /// Bytes dropped by [`Framing::Fixed`].
    strays: u64,
}

impl StreamPort {
    /// Splits `stream` into messages, received into buffers of `buffer` bytes.
    pub(super) fn new(stream: TcpPort, framing: Framing, buffer: usize) -> Self {
        // The stream is read only if no whole message is left, so this is never exceeded.
        let buffered = VecDeque::with_capacity(2 * buffer);
        Self { stream, framing, buffered, last: None, session: None, strays: 0 }
    }

    /// Copies the next whole message from `buffered` to `buffer`.
    fn next_message(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.framing {
            Framing::Fixed(len) => {
                let strays = strays(&self.buffered, self.session.as_ref());
                self.buffered.drain(..strays);
                self.strays += strays as u64;
                if self.buffered.len() < *len {
                    return None;
                }
                buffer
                    .iter_mut()
                    .zip(self.buffered.drain(..*len))
                    .for_each(|(to, from)| *to = from);
                Some(*len)
            }
            Framing::Acknowledges(splitter) => {
                while let Some(byte) = self.buffered.pop_front() {
                    if splitter.take(byte) {
                        buffer[..ACKNOWLEDGE.len()].copy_from_slice(ACKNOWLEDGE);
                        return Some(ACKNOWLEDGE.len());
                    }
                }
                None
            }
            Framing::TimedAcknowledges { scanner, is_open } => {
                if !*is_open {
                    let mut bytes = std::iter::from_fn(|| self.buffered.pop_front());
                    *is_open = bytes.any(|byte| scanner.take(byte));
                }
                if !*is_open {
                    return None;
                }
                buffer[..ACKNOWLEDGE.len()].copy_from_slice(ACKNOWLEDGE);
                let times = &mut buffer[ACKNOWLEDGE.len()..][..TIMES_LEN];
                let waiting = self.buffered.len();
                times.iter_mut().zip(&self.buffered).for_each(|(to, from)| *to = *from);
                if waiting > 0 && waiting < TIMES_LEN && times[0] == b' ' {
                    return None;
                }
                *is_open = false;
                // A device without a clock, or a reflector, sends the word only.
                if waiting < TIMES_LEN || DeviceTimes::parse(times).is_none() {
                    return Some(ACKNOWLEDGE.len());
                }
                self.buffered.drain(..TIMES_LEN);
                Some(ACKNOWLEDGE.len() + TIMES_LEN)
            }
        }
    }

    fn take_message(&mut self, buffer: &mut [u8]) -> Option<Arrival> {
        let len = self.next_message(buffer)?;
        self.last.map(|last| Arrival { len, ..last })
    }
}

/// Number of bytes before the first possible start of a message; all bytes if no probe was sent
/// yet.
fn strays(buffered: &VecDeque<u8>, session: Option<&[u8; SESSION_LEN]>) -> usize {
    let Some(session) = session else { return buffered.len() };
    let begins_at =
        |at: &usize| buffered.range(*at..).zip(session).all(|(received, own)| received == own);
    (0..buffered.len()).find(begins_at).unwrap_or(buffered.len())
}

impl Port for StreamPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        if self.session.is_none() {
            self.session = message.first_chunk().copied();
        }
        self.stream.send(message)
    }

    /// Reads the stream at most once: a peer that sends endlessly must not delay the caller's
    /// schedule, time-outs and stop flag.
    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        if let Some(arrival) = self.take_message(buffer) {
            return Ok(Some(arrival));
        }
        let Some(arrival) = self.stream.receive(buffer, wait)? else { return Ok(None) };
        self.buffered.extend(&buffer[..arrival.len]);
        self.last = Some(arrival);
        Ok(self.take_message(buffer))
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        self.stream.notices(limit, each);
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        self.stream.sleep_until(until);
    }

    fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr()
    }

    fn stray_bytes(&self) -> Option<u64> {
        Some(match &self.framing {
            Framing::Fixed(_) => self.strays,
            Framing::Acknowledges(scanner) | Framing::TimedAcknowledges { scanner, .. } => {
                scanner.strays
            }
        })
    }

    fn connection(&self) -> Option<Connection> {
        self.stream.connection()
    }
}

/// Number of ports used in turn.
const MAX_OPEN_PORTS: usize = 16;

/// Maximum wait on the newest port, and interval between looks at ports whose reply has arrived. It
/// delays late and duplicate replies.
const POLL_INTERVAL: Nanos = Nanos::from_millis(20);

/// A port and the last message sent from it.
#[derive(Debug)]
struct ProbePort {
    socket: DatagramSocket,
    /// Number of the send.
    number: u64,
    /// Key of its kernel timestamps.
    key: Option<u32>,
    answered: bool,
}

/// Sends messages from ports in turn, so that the port of a reply identifies the message. A port whose
/// message is not answered yet is replaced by a new one. The channel of an arrival is the number of
/// that send.
#[derive(Debug)]
pub(super) struct PortRing {
    peer: SocketAddr,
    options: SocketOptions,
    local: SocketAddr,
    /// The least recently used first.
    ports: VecDeque<ProbePort>,
    sends: u64,
    /// Next look at ports whose reply has arrived.
    next_poll: Instant<Monotonic>,
}

impl PortRing {
    pub(super) fn connect(peer: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        // Opened once now, so that errors show before the first probe.
        let local = DatagramSocket::connect(peer, &options)?.local_addr();
        let ports = VecDeque::with_capacity(MAX_OPEN_PORTS);
        Ok(Self { peer, options, local, ports, sends: 0, next_poll: Instant::EPOCH })
    }

    /// The socket for the next message.
    fn next_socket(&mut self) -> Result<DatagramSocket, SendError> {
        if self.ports.len() == MAX_OPEN_PORTS
            && let Some(port) = self.ports.pop_front()
            && port.answered
            && !port.socket.has_unread()
        {
            return Ok(port.socket);
        }
        DatagramSocket::connect(self.peer, &self.options)
            .map_err(|error| SendError::Other(error.raw_os_error().unwrap_or(0)))
    }
}

impl Port for PortRing {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        let number = self.sends;
        self.sends += 1;
        let mut socket = self.next_socket()?;
        let sent = socket.send(message)?;
        let key = sent.key;
        self.ports.push_back(ProbePort { socket, number, key, answered: false });
        // Each port counts its own keys; the send number distinguishes them.
        Ok(Sent { key: key.map(|_| number as u32), ..sent })
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        let now = monotonic();
        let polls_all = now >= self.next_poll;
        if polls_all {
            self.next_poll = now + POLL_INTERVAL;
        }
        for port in self.ports.iter_mut().rev().filter(|port| polls_all || !port.answered) {
            if let Some(arrival) = port.receive(buffer, Wait::No)? {
                return Ok(Some(arrival));
            }
        }
        let (Wait::AtMost(most), Some(newest)) = (wait, self.ports.back_mut()) else {
            return Ok(None);
        };
        newest.receive(buffer, Wait::AtMost(most.min(POLL_INTERVAL)))
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        for ProbePort { socket, number, key: last, .. } in &mut self.ports {
            socket.notices(limit, &mut |notice| match notice {
                // A timestamp of an earlier message comes too late.
                Notice::TxStamp { key, .. } if Some(key) != *last => {}
                Notice::TxStamp { stamp, .. } => {
                    each(Notice::TxStamp { key: *number as u32, stamp });
                }
                error => each(error),
            });
        }
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        let until = until.min(monotonic() + POLL_INTERVAL);
        match self.ports.back_mut() {
            Some(port) => port.socket.sleep_until(until),
            None => pacer::sleep_until(until),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl ProbePort {
    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        let arrival = self.socket.receive(buffer, wait)?;
        self.answered |= arrival.is_some();
        Ok(arrival.map(|arrival| Arrival { channel: self.number, ..arrival }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn stream_out_of_step_is_resynchronised_and_strays_counted() {
        const LEN: usize = 64;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpPort::connect(
            listener.local_addr().unwrap(),
            Nanos::from_secs(1),
            &Default::default(),
        );
        let mut port = StreamPort::new(stream.unwrap(), Framing::Fixed(LEN), 2_048);
        let (mut far, _) = listener.accept().unwrap();
        let message = |n: u8| {
            let mut message = [n; LEN];
            message[..SESSION_LEN].copy_from_slice(b"session!");
            message
        };
        port.send(&message(0)).unwrap();
        far.read_exact(&mut [0; LEN]).unwrap();
        // Before a message: one byte, a false start, more bytes than a message has. Inside a
        // message: an extra byte, and a missing one.
        far.write_all(b"x").unwrap();
        far.write_all(&message(1)).unwrap();
        far.write_all(b"sessi").unwrap();
        far.write_all(&message(2)).unwrap();
        far.write_all(&[b's'; 100]).unwrap();
        far.write_all(&message(3)).unwrap();
        far.write_all(&[&message(4)[..20], b"y", &message(4)[20..]].concat()).unwrap();
        far.write_all(&message(5)).unwrap();
        far.write_all(&[&message(6)[..20], &message(6)[21..]].concat()).unwrap();
        far.write_all(&message(7)).unwrap();
        far.write_all(&message(8)).unwrap();
        let mut buffer = [0; 2_048];
        let mut whole = Vec::new();
        while let Some(arrival) =
            port.receive(&mut buffer, Wait::AtMost(Nanos::from_millis(200))).unwrap()
        {
            assert_eq!(arrival.len, LEN);
            assert!(buffer.starts_with(b"session!"));
            whole.push(buffer[LEN - 2]);
        }
        // The byte missing in 6 consumes the start of 7.
        assert_eq!(whole, [1, 2, 3, 4, 5, 6, 8]);
        assert_eq!(port.stray_bytes(), Some((1 + 5 + 100 + 1 + (LEN - 1)) as u64));
    }
}
