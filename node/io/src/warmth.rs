//! Keeps the kernel's way of a datagram in the caches. After a pause its code and data have left them:
//! over a veth the driver stamped a packet 26 to 31 us late that came after a pause, and others 2 us.
//! Spinning does not help, and a send without data (MSG_PROBE) takes off only 5 us. A datagram of the
//! same length to ourselves takes off 20 us and more: its way is the same but for the device, and nothing
//! of it leaves the machine.

use std::ffi::c_int;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use dwell_units::Nanos;

use crate::address::RawAddress;
use crate::calls;
use crate::clock::monotonic;
use crate::port::StampRequest;
use crate::socket;

/// The longest datagram over IPv4.
const LONGEST: usize = 65_507;

/// What waits is thrown away so many at a time: strangers may send to its port too.
const FEW: usize = 8;

/// Where datagrams go that warm the way.
pub struct Warmth {
    sink: OwnedFd,
    address: RawAddress,
    stamped: bool,
    /// What comes is queued, and has to be read.
    keeps: bool,
}

impl Warmth {
    /// A socket with the address of `local` and a port of its own.
    ///
    /// # Errors
    /// As of bind(2).
    pub fn at(mut local: SocketAddr) -> io::Result<Self> {
        local.set_port(0);
        let sink = UdpSocket::bind(local)?;
        let address = RawAddress::from(sink.local_addr()?);
        Ok(Self { sink: sink.into(), address, stamped: false, keeps: true })
    }

    /// The same for a way that is only sent by: what comes is dropped before it is queued, as reading it takes
    /// longer than sending it did, and pushes out what was warmed. Datagrams are stamped at the driver when they
    /// are sent, as those are whose way it is: what the kernel does for that is warm then too.
    pub fn one_way(self, request: StampRequest) -> Self {
        let asked = socket::request_stamps(&self.sink, request, true, false);
        let keeps = socket::drop_all(&self.sink, true).is_err();
        Self { stamped: request != StampRequest::User && asked.is_ok(), keeps, ..self }
    }

    /// Sends what fits into a datagram to it by itself, and throws it away.
    pub fn pass(&self, memory: &[u8]) {
        // A datagram that failed or got lost has warmed what it passed.
        let _ = self.send(memory, 0);
        self.throw_away();
    }

    /// The same by one that lies ready before it leaves ([`crate::held`]); how long handing it over took.
    pub(crate) fn pass_held(&self, memory: &[u8]) -> Option<Nanos> {
        let begun = monotonic();
        self.send(memory, libc::MSG_MORE).ok()?;
        let took = monotonic() - begun;
        let _ = calls::send(&self.sink, &[], libc::MSG_DONTWAIT);
        self.throw_away();
        Some(took)
    }

    /// Sends what fits into a datagram to it by itself, and receives to the same memory: that, or what
    /// a stranger sent to its port.
    pub fn stir(&self, memory: &mut [u8]) {
        self.empty();
        let _ = self.send(memory, 0).and_then(|_| self.receive(memory, 0));
    }

    fn send(&self, memory: &[u8], flags: c_int) -> io::Result<usize> {
        calls::send_to(&self.sink, &memory[..memory.len().min(LONGEST)], flags, &self.address)
    }

    /// What was sent one way, and its stamp.
    fn throw_away(&self) {
        if self.keeps {
            self.empty();
        } else if self.stamped {
            // Each has one stamp, which is there when it is sent: to look for another takes time.
            let _ = self.receive(&mut [], libc::MSG_ERRQUEUE);
        }
    }

    /// Its buffers never fill.
    fn empty(&self) {
        let queues = if self.stamped { &[0, libc::MSG_ERRQUEUE][..] } else { &[0] };
        for queue in queues {
            (0..FEW).take_while(|_| self.receive(&mut [], *queue).is_ok()).for_each(drop);
        }
    }

    fn receive(&self, memory: &mut [u8], queue: c_int) -> io::Result<usize> {
        calls::receive(&self.sink, memory, libc::MSG_DONTWAIT | queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warmth() -> Warmth {
        Warmth::at("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    fn is_empty(warmth: &Warmth) -> bool {
        [0, libc::MSG_ERRQUEUE].iter().all(|queue| warmth.receive(&mut [], *queue).is_err())
    }

    #[test]
    fn what_is_stirred_is_as_it_was_and_nothing_of_it_waits() {
        let warmth = warmth();
        for len in [0, 1, 1_472, LONGEST, LONGEST + 100] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut memory = bytes.clone();
            warmth.stir(&mut memory);
            assert_eq!(memory, bytes);
            assert!(is_empty(&warmth), "{len} B: something waits");
        }
    }

    #[test]
    fn neither_what_was_passed_waits_nor_its_stamps() {
        for request in [StampRequest::User, StampRequest::Kernel] {
            for sink in [warmth(), warmth().one_way(request)] {
                for _ in 0..1_000 {
                    sink.pass(&[1; LONGEST]);
                    assert!(sink.pass_held(&[1; LONGEST]).is_some());
                }
                assert!(is_empty(&sink), "{request:?}, kept: {}: something waits", sink.keeps);
                sink.send(&[1; 100], 0).unwrap();
                let waits = sink.keeps || request == StampRequest::Kernel;
                assert_eq!(!is_empty(&sink), waits, "and if it did, it would be seen");
            }
        }
    }

    #[test]
    fn what_is_only_sent_is_not_even_queued() {
        let sink = warmth().one_way(StampRequest::User);
        sink.send(&[1; 100], 0).unwrap();
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(&[1; 100], sink.address.to_std().unwrap())
            .unwrap();
        assert!(!sink.keeps && is_empty(&sink));
    }

    #[test]
    fn its_datagrams_are_stamped_if_it_is_to() {
        let stamps = |warmth: Warmth| {
            warmth.send(&[1; 100], 0).unwrap();
            warmth.receive(&mut [], libc::MSG_ERRQUEUE).is_ok()
        };
        assert!(stamps(warmth().one_way(StampRequest::Kernel)));
        assert!(!stamps(warmth().one_way(StampRequest::User)));
        assert!(!stamps(warmth()));
    }

    #[test]
    fn its_buffer_never_fills() {
        let warmth = warmth();
        for _ in 0..1_000 {
            // As if it came only after somebody looked.
            warmth.empty();
            warmth.send(&[1; LONGEST], 0).unwrap();
        }
        assert!(warmth.receive(&mut [], 0).is_ok());
        assert!(is_empty(&warmth), "the last one is the only one");
    }
}
