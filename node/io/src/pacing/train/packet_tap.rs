//! A tap on the outgoing interface (packet(7)), which records when each packet of a flow passed to
//! the driver, for engines whose packets are not timestamped one by one for their socket. It costs
//! a copy of every packet.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::traffic::Mark;
use libc::c_int;

use super::timestamp_ids::POLL_INTERVAL;
use super::{Departure, Numbers, Unavailable};
use crate::clock::monotonic;
use crate::pacing::pacer::sleep_until;
use crate::sys::control::{self, ControlBuffer};
use crate::sys::sockopt;
use crate::timestamps::{self, StampRequest, TxStampRequest};

/// Requested receive buffer in bytes: the headers of some 40,000 packets.
const BUFFER_LEN: c_int = 32 << 20;

/// Time until timestamping is on, which happens asynchronously (net/core/dev.c,
/// `net_enable_timestamp`).
const TIMESTAMPING_DELAY: Nanos = Nanos::from_millis(20);

/// Length of a UDP header.
const UDP: usize = 8;

/// A tap on one UDP flow as it leaves an interface.
pub(super) struct PacketTap {
    fd: OwnedFd,
    control: Box<ControlBuffer>,
    flow: u32,
    /// Length of the IP header.
    header: usize,
}

impl PacketTap {
    /// Taps packets that leave the interface with index `interface` from the port of `local` to
    /// that of `target`, with marks of `flow`. Takes some 20 ms.
    ///
    /// # Errors
    /// No CAP_NET_RAW.
    pub(super) fn open(
        interface: u32,
        local: SocketAddr,
        target: SocketAddr,
        flow: u32,
    ) -> Result<Self, Unavailable> {
        let failed = |error| {
            Unavailable::failed(
                "opening a tap on the outgoing interface (needs root or CAP_NET_RAW)",
                &error,
            )
        };
        let fd = open(libc::SOCK_DGRAM).map_err(failed)?;
        let header = if target.is_ipv4() { 20 } else { 40 };
        filter(&fd, local, target, (header + UDP + Mark::LEN) as u32).map_err(failed)?;
        // A packet that finds no room has no timestamp, and is counted as such.
        sockopt::enlarge_receive_buffer(&fd, BUFFER_LEN);
        timestamps::request(&fd, StampRequest::Kernel, TxStampRequest::None).map_err(failed)?;
        // Only taps on all protocols see outgoing packets.
        bind(&fd, interface, libc::ETH_P_ALL as u16).map_err(failed)?;
        sleep_until(monotonic() + TIMESTAMPING_DELAY);
        Ok(Self { fd, control: ControlBuffer::new(), flow, header })
    }

    /// Discards the packets seen so far.
    pub(super) fn begin(&mut self) {
        while self.next().is_some() {}
    }

    /// Adds to `left` the times at which packets with these numbers passed the tap, waiting for
    /// them up to `timeout`. Ignores lead-in packets.
    pub(super) fn collect(&mut self, numbers: Numbers, left: &mut [Departure], timeout: Nanos) {
        let until = monotonic() + timeout;
        let left = left.get_mut(numbers.lead_in_len()..).unwrap_or_default();
        loop {
            while let Some(passed) = self.next() {
                let Some((seq, at)) = passed else { continue };
                if let Some(left) = numbers.place(seq).and_then(|n| left.get_mut(n)) {
                    left.kernel = left.kernel.or(Some(at));
                }
            }
            let is_awaited = |left: &Departure| left.app.is_some() && left.kernel.is_none();
            if !left.iter().any(is_awaited) || monotonic() >= until {
                return;
            }
            sleep_until(monotonic() + POLL_INTERVAL);
        }
    }

    /// Returns the number and timestamp of the next packet, or `Some(None)` if it is not of the
    /// flow; `None` if no packet is queued.
    fn next(&mut self) -> Option<Option<(u64, Instant<Realtime>)>> {
        let mut buffer = [0; 40 + UDP + Mark::LEN];
        let came = control::receive(
            &self.fd,
            &mut buffer,
            &mut self.control,
            None,
            libc::MSG_DONTWAIT,
            false,
        )
        .ok()?;
        let mark = buffer[..came.len].get(self.header + UDP..).map(Mark::parse);
        Some(match (mark, came.control_data.kernel) {
            (Some(Ok(mark)), Some(at)) if mark.flow == self.flow => Some((mark.seq, at)),
            _ => None,
        })
    }
}

/// Opens a packet socket that receives nothing yet.
pub(super) fn open(kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket() takes plain integers.
    let fd =
        sockopt::check(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to an interface and a protocol; 0 receives nothing.
pub(super) fn bind(fd: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data for which all zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface as c_int;
    let len = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`, which outlives the call.
    sockopt::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
        .map(drop)
}

/// Admits the first `most` bytes of outgoing UDP packets of this flow.
fn filter(fd: &OwnedFd, local: SocketAddr, target: SocketAddr, most: u32) -> io::Result<()> {
    // Metadata of packets (linux/filter.h).
    const PKTTYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let (protocol, ports) = if target.is_ipv4() { (9, 20) } else { (6, 40) };
    let load = |size: u32, at| ((libc::BPF_LD | libc::BPF_ABS | size) as u16, at);
    let is = [
        (load(libc::BPF_B, PKTTYPE), u32::from(libc::PACKET_OUTGOING)),
        (load(libc::BPF_B, protocol), libc::IPPROTO_UDP as u32),
        (load(libc::BPF_H, ports), local.port().into()),
        (load(libc::BPF_H, ports + 2), target.port().into()),
    ];
    let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut program = Vec::new();
    for (n, ((code, at), expected)) in is.into_iter().enumerate() {
        program.push(instruction(code.into(), 0, at));
        // On a mismatch, jump to the last instruction: past the pairs that follow and the return
        // for a match.
        let others = (2 * (is.len() - 1 - n) + 1) as u8;
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ, others, expected));
    }
    program.push(instruction(libc::BPF_RET, 0, most));
    program.push(instruction(libc::BPF_RET, 0, 0));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}
