//! Ports that make messages out of what their sockets deliver: whole messages out of a TCP stream,
//! and a fresh UDP port for every probe whose protocol has no id.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use dwell_io::clock::monotonic;
use dwell_io::port::{Arrival, Notice, Port, PortOptions, SendError, Sent, Wait};
use dwell_io::tcp::TcpPort;
use dwell_io::udp::UdpPort;
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::text::{ACKNOWLEDGE, Splitter};

/// How a stream is cut into messages.
#[derive(Debug)]
pub(super) enum Framing {
    /// Every message has this many bytes.
    Fixed(usize),
    /// Every message is an acknowledge.
    Acknowledges(Splitter),
}

impl Framing {
    pub(super) fn acknowledges() -> Self {
        Self::Acknowledges(Splitter::new(ACKNOWLEDGE))
    }
}

/// A TCP connection that delivers whole messages.
#[derive(Debug)]
pub(super) struct StreamPort {
    stream: TcpPort,
    framing: Framing,
    /// Bytes that came and are not yet delivered.
    held: VecDeque<u8>,
    /// The stamps of the last piece.
    last: Option<Arrival>,
}

impl StreamPort {
    pub(super) fn new(stream: TcpPort, framing: Framing, capacity: usize) -> Self {
        Self { stream, framing, held: VecDeque::with_capacity(4 * capacity), last: None }
    }

    /// The next whole message of what is held.
    fn next_message(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match &mut self.framing {
            Framing::Fixed(len) => {
                if self.held.len() < *len {
                    return None;
                }
                buffer.iter_mut().zip(self.held.drain(..*len)).for_each(|(to, from)| *to = from);
                Some(*len)
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

impl Port for StreamPort {
    fn send(&mut self, message: &[u8]) -> Result<Sent, SendError> {
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
            None => std::thread::sleep((until - monotonic()).to_std()),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}
