//! Keeps the kernel's path of a datagram in the CPU caches. After a pause its code and data have
//! been evicted: over a veth, packets after a pause reached the driver 26 to 31 us late, others 2
//! us late. Spinning does not help, and a send without data (MSG_PROBE) saves only 5 us. A datagram
//! of the same length to ourselves saves 20 us and more: it takes the same path except for the
//! device, and nothing of it leaves the machine.

use std::ffi::c_int;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use dwell_units::Nanos;

use crate::clock::monotonic;
use crate::sys::address::RawAddress;
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, StampRequest, TxStampRequest};

/// Maximum length of a datagram over IPv4.
const MAX_DATAGRAM_LEN: usize = 65_507;

/// Number of queued packets to discard at once; other programs may send to the port too.
const DRAIN_BATCH: usize = 8;

/// Sends datagrams to itself to warm the path.
pub struct CacheWarmer {
    sink: OwnedFd,
    address: RawAddress,
    stamped: bool,
    /// Received packets are queued and must be read.
    queues: bool,
}

impl CacheWarmer {
    /// Opens a socket with the address of `local` and a port of its own.
    ///
    /// # Errors
    /// As for bind(2).
    pub fn at(mut local: SocketAddr) -> io::Result<Self> {
        local.set_port(0);
        let sink = UdpSocket::bind(local)?;
        let address = RawAddress::from(sink.local_addr()?);
        Ok(Self { sink: sink.into(), address, stamped: false, queues: true })
    }

    /// Adapts it to a path that is only used for sending. Packets are dropped before they are
    /// queued, because reading them takes longer than sending them and evicts what was warmed. They
    /// are timestamped at the driver like the packets of that path, so that the code for this is
    /// warm too.
    pub fn one_way(self, request: StampRequest) -> Self {
        let asked = timestamps::request(&self.sink, request, TxStampRequest::Driver);
        let queues = sockopt::drop_all(&self.sink, true).is_err();
        let stamped = asked.is_ok_and(|stamps| stamps != StampRequest::User);
        Self { stamped, queues, ..self }
    }

    /// Sends as much of `memory` as fits into a datagram to itself and discards it.
    pub fn pass(&self, memory: &[u8]) {
        // Even a datagram that failed or was lost has warmed the path it took.
        let _ = self.send(memory, 0);
        self.discard_sent();
    }

    /// Like [`Self::pass`], but corks the datagram first ([`crate::sockets::cork`]). Returns how long
    /// corking took.
    pub(crate) fn pass_corked(&self, memory: &[u8]) -> Option<Nanos> {
        let begun = monotonic();
        self.send(memory, libc::MSG_MORE).ok()?;
        let took = monotonic() - begun;
        let _ = syscall::send(&self.sink, &[], libc::MSG_DONTWAIT);
        self.discard_sent();
        Some(took)
    }

    /// Sends as much of `memory` as fits into a datagram to itself, and receives into the same
    /// memory: that datagram, or one that another program sent to the port.
    pub fn warm_round_trip(&self, memory: &mut [u8]) {
        self.empty();
        let _ = self.send(memory, 0).and_then(|_| self.receive(memory, 0));
    }

    fn send(&self, memory: &[u8], flags: c_int) -> io::Result<usize> {
        syscall::send_to(
            &self.sink,
            &memory[..memory.len().min(MAX_DATAGRAM_LEN)],
            flags,
            Some(&self.address),
        )
    }

    /// Discards the datagram just sent and its timestamp.
    fn discard_sent(&self) {
        if self.queues {
            self.empty();
        } else if self.stamped {
            // Each datagram has one timestamp, queued when the call returns. Looking for another
            // takes time.
            let _ = self.receive(&mut [], libc::MSG_ERRQUEUE);
        }
    }

    /// Drains the queues, so that they never fill.
    fn empty(&self) {
        let queues = if self.stamped { &[0, libc::MSG_ERRQUEUE][..] } else { &[0] };
        for queue in queues {
            (0..DRAIN_BATCH).take_while(|_| self.receive(&mut [], *queue).is_ok()).for_each(drop);
        }
    }

    fn receive(&self, memory: &mut [u8], queue: c_int) -> io::Result<usize> {
        syscall::receive(&self.sink, memory, libc::MSG_DONTWAIT | queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warmer() -> CacheWarmer {
        CacheWarmer::at("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    fn is_empty(warmer: &CacheWarmer) -> bool {
        [0, libc::MSG_ERRQUEUE].iter().all(|queue| warmer.receive(&mut [], *queue).is_err())
    }

    #[test]
    fn warming_round_trip_preserves_memory_and_drains_queue() {
        let warmer = warmer();
        for len in [0, 1, 1_472, MAX_DATAGRAM_LEN, MAX_DATAGRAM_LEN + 100] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut memory = bytes.clone();
            warmer.warm_round_trip(&mut memory);
            assert_eq!(memory, bytes);
            assert!(is_empty(&warmer), "{len} B: a packet is queued");
        }
    }

    #[test]
    fn warming_leaves_no_packets_or_timestamps_queued() {
        for request in [StampRequest::User, StampRequest::Kernel] {
            for sink in [warmer(), warmer().one_way(request)] {
                for _ in 0..1_000 {
                    sink.pass(&[1; MAX_DATAGRAM_LEN]);
                    assert!(sink.pass_corked(&[1; MAX_DATAGRAM_LEN]).is_some());
                }
                assert!(
                    is_empty(&sink),
                    "{request:?}, queues: {}: a packet is queued",
                    sink.queues
                );
                sink.send(&[1; 100], 0).unwrap();
                let waits = sink.queues || request == StampRequest::Kernel;
                assert_eq!(!is_empty(&sink), waits, "a queued packet is noticed");
            }
        }
    }

    #[test]
    fn one_way_warming_queues_nothing() {
        let sink = warmer().one_way(StampRequest::User);
        sink.send(&[1; 100], 0).unwrap();
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(&[1; 100], sink.address.to_std().unwrap())
            .unwrap();
        assert!(!sink.queues && is_empty(&sink));
    }

    #[test]
    fn warming_datagrams_are_timestamped_on_request() {
        let stamps = |warmer: CacheWarmer| {
            warmer.send(&[1; 100], 0).unwrap();
            warmer.receive(&mut [], libc::MSG_ERRQUEUE).is_ok()
        };
        assert!(stamps(warmer().one_way(StampRequest::Kernel)));
        assert!(!stamps(warmer().one_way(StampRequest::User)));
        assert!(!stamps(warmer()));
    }

    #[test]
    fn warming_socket_buffer_never_fills() {
        let warmer = warmer();
        for _ in 0..1_000 {
            // As if the datagram arrived only after the queue was drained.
            warmer.empty();
            warmer.send(&[1; MAX_DATAGRAM_LEN], 0).unwrap();
        }
        assert!(warmer.receive(&mut [], 0).is_ok());
        assert!(is_empty(&warmer), "only the last one is queued");
    }
}
