//! Ports that make messages out of what their sockets deliver: whole messages out of a TCP stream,
//! and a fresh UDP port for every probe whose protocol has no id.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use dwell_io::clock::monotonic;
use dwell_io::pacer;
use dwell_io::port::{Arrival, Notice, Port, PortOptions, SendError, Sent, Wait};
use dwell_io::tcp::TcpPort;
use dwell_io::udp::UdpPort;
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::text::{ACKNOWLEDGE, Splitter};

/// How a stream is cut into messages.
#[derive(Debug)]
pub(super) enum Framing {
    /// Every message has this many bytes, and starts as every probe does.
    Fixed(usize),
    /// Every message is an acknowledge.
    Acknowledges(Splitter),
}

impl Framing {
    pub(super) fn acknowledges() -> Self {
        Self::Acknowledges(Splitter::new(ACKNOWLEDGE))
    }
}

/// Bytes that all probes of a run start with: the session of the mark. Where a stream is out of
/// step, they are where the next message begins.
const SESSION: usize = 8;

/// A TCP connection that delivers whole messages. Bytes that belong to none are delivered as a
/// message too short to be one, so that they are counted.
#[derive(Debug)]
pub(super) struct StreamPort {
    stream: TcpPort,
    framing: Framing,
    /// Bytes that came and are not yet delivered.
    held: VecDeque<u8>,
    /// The stamps of the last piece.
    last: Option<Arrival>,
    /// How the probes that were sent start.
    session: Option<[u8; SESSION]>,
}

impl StreamPort {
    pub(super) fn new(stream: TcpPort, framing: Framing, capacity: usize) -> Self {
        let held = VecDeque::with_capacity(4 * capacity);
        Self { stream, framing, held, last: None, session: None }
    }

    /// The next whole message of what is held.
    fn next_message(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.framing {
            Framing::Fixed(len) => {
                let strays = strays(&self.held, self.session.as_ref());
                let len = match strays {
                    0 if self.held.len() < *len => return None,
                    0 => *len,
                    strays => strays.min(*len - 1),
                };
                buffer.iter_mut().zip(self.held.drain(..len)).for_each(|(to, from)| *to = from);
                Some(len)
            }
            Framing::Acknowledges(splitter) => {
                while let Some(byte) = self.held.pop_front() {
                    if splitter.take(byte) {
                        buffer[..ACKNOWLEDGE.len()].copy_from_slice(ACKNOWLEDGE);
                        return Some(ACKNOWLEDGE.len());
                    }
                }
                None
            }
        }
    }
}

/// How many bytes come before the first place where a message may begin.
fn strays(held: &VecDeque<u8>, session: Option<&[u8; SESSION]>) -> usize {
    let Some(session) = session else { return 0 };
    let begins_at = |at: &usize| held.range(*at..).zip(session).all(|(came, own)| came == own);
    (0..held.len()).find(begins_at).unwrap_or(held.len())
}

impl Port for StreamPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        if self.session.is_none() {
            self.session = message.first_chunk().copied();
        }
        self.stream.send(message)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        loop {
            if let Some(len) = self.next_message(buffer) {
                return Ok(self.last.map(|last| Arrival { len, ..last }));
            }
            let Some(arrival) = self.stream.receive(buffer, wait)? else { return Ok(None) };
            self.held.extend(&buffer[..arrival.len]);
            self.last = Some(arrival);
        }
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
}

/// Ports that stay open for late replies.
const OPEN_PORTS: usize = 16;

/// How long a wait on the newest port may keep a reply on an older, hence late, one unread.
const GLANCE: Nanos = Nanos::from_millis(20);

/// Sends every message from a port of its own, so that a reply tells by its port which message it
/// answers. The channel of an arrival is the number of that send.
#[derive(Debug)]
pub(super) struct FreshPorts {
    peer: SocketAddr,
    options: PortOptions,
    local: SocketAddr,
    ports: VecDeque<(u64, UdpPort)>,
    sends: u64,
}

impl FreshPorts {
    pub(super) fn connect(peer: SocketAddr, options: PortOptions) -> io::Result<Self> {
        // Opened once now, so that what cannot work is told before the first probe.
        let local = UdpPort::connect(peer, &options)?.local_addr();
        Ok(Self { peer, options, local, ports: VecDeque::with_capacity(OPEN_PORTS), sends: 0 })
    }
}

impl Port for FreshPorts {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
        let number = self.sends;
        self.sends += 1;
        let mut port = UdpPort::connect(self.peer, &self.options)
            .map_err(|error| SendError::Other(error.raw_os_error().unwrap_or(0)))?;
        let sent = port.send(message)?;
        // The first packet of its socket has key 0; the number of the send tells them apart.
        let key = sent.key.map(|_| number as u32);
        if self.ports.len() == OPEN_PORTS {
            self.ports.pop_front();
        }
        self.ports.push_back((number, port));
        Ok(Sent { key, ..sent })
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Wait) -> io::Result<Option<Arrival>> {
        for (number, port) in self.ports.iter_mut().rev() {
            if let Some(arrival) = port.receive(buffer, Wait::No)? {
                return Ok(Some(Arrival { channel: *number, ..arrival }));
            }
        }
        let (Wait::AtMost(most), Some((number, port))) = (wait, self.ports.back_mut()) else {
            return Ok(None);
        };
        let arrival = port.receive(buffer, Wait::AtMost(most.min(GLANCE)))?;
        Ok(arrival.map(|arrival| Arrival { channel: *number, ..arrival }))
    }

    fn notices(&mut self, limit: usize, each: &mut dyn FnMut(Notice)) {
        for (number, port) in &mut self.ports {
            port.notices(limit, &mut |notice| match notice {
                Notice::TxStamp { stamp, .. } => {
                    each(Notice::TxStamp { key: *number as u32, stamp });
                }
                error => each(error),
            });
        }
    }

    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        let until = until.min(monotonic() + GLANCE);
        match self.ports.back_mut() {
            Some((_, port)) => port.sleep_until(until),
            None => pacer::sleep_until(until),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_stream_out_of_step_is_found_again_and_every_stray_byte_is_delivered() {
        const LEN: usize = 64;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpPort::connect(
            listener.local_addr().unwrap(),
            Nanos::from_secs(1),
            &Default::default(),
        );
        let mut port = StreamPort::new(stream.unwrap(), Framing::Fixed(LEN), LEN);
        let (mut far, _) = listener.accept().unwrap();
        let message = |n: u8| {
            let mut message = [n; LEN];
            message[..SESSION].copy_from_slice(b"session!");
            message
        };
        port.send(&message(0)).unwrap();
        far.read_exact(&mut [0; LEN]).unwrap();
        // Before a message: one byte, what looks like a beginning, more than a message is long. In
        // the middle of one: a byte too many, and one too few.
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
        let mut strays = 0;
        while let Some(arrival) =
            port.receive(&mut buffer, Wait::AtMost(Nanos::from_millis(200))).unwrap()
        {
            match buffer[..arrival.len] {
                ref found if found.len() == LEN => {
                    assert!(found.starts_with(b"session!"));
                    whole.push(found[LEN - 2]);
                }
                ref found => strays += found.len(),
            }
        }
        // What is cut out of 6 takes the start of 7 with it.
        assert_eq!(whole, [1, 2, 3, 4, 5, 6, 8]);
        assert_eq!(strays, 1 + 5 + 100 + 1 + (LEN - 1));
    }
}
