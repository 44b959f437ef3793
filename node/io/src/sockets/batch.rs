//! Several datagrams per call: recvmmsg(2), sendmmsg(2) and UDP_SEGMENT (udp(7)).

use std::io;
use std::ops::Range;

use dwell_sample::RxStamps;
use dwell_units::{Instant, Realtime};

use crate::clock::realtime;
use crate::sockets::datagram::{Datagram, DatagramSocket, Peer};
use crate::sockets::port::SendError;
use crate::sockets::socket_error::{self, send_error};
use crate::sys::address::RawAddress;
use crate::sys::control::{self, Marks, OutgoingControl, ReceivedControl};
use crate::sys::syscall;

/// Maximum length of a datagram in bytes.
const MAX_DATAGRAM_LEN: usize = 65_535;

/// Length of a control buffer: timestamps (64 bytes), TTL and TOS (24 each) and the destination
/// address (up to 40).
const CONTROL_LEN: usize = 192;

/// Maximum number of datagrams in one UDP_SEGMENT message that every kernel accepts (linux/udp.h,
/// UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;

/// Maximum length of a UDP_SEGMENT message in bytes: the longest payload over IPv4.
const MAX_MESSAGE_LEN: usize = 65_507;

/// Difference in length of consecutive buffers, in bytes, so that their starts do not all map to
/// the same cache sets.
const BUFFER_LEN_STEP: usize = 192;

/// Buffers for datagrams that are received, processed and sent together.
pub struct Batch {
    headroom: usize,
    /// Memory of all buffers. It is one allocation, because musl writes to two pages of each large
    /// allocation.
    memory: Box<[u8]>,
    /// Range of each buffer in `memory`.
    buffers: Vec<Range<usize>>,
    names: Vec<RawAddress>,
    controls: Vec<ControlBuffer>,
    outgoing: Vec<OutgoingControl>,
    iovs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Number of datagrams that each header sends.
    trains: Vec<usize>,
    /// Number of datagrams that the last receive call returned.
    received: usize,
    /// Number of datagrams that the next receive call requests. Preparing unused headers costs
    /// time.
    request: usize,
    /// Clock read right after the last receive call.
    received_at: Instant<Realtime>,
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct ControlBuffer([u8; CONTROL_LEN]);

/// A datagram to send from a batch.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Index of its buffer.
    pub n: usize,
    /// Range of its payload in that buffer.
    pub at: Range<usize>,
    /// Destination; `None` on a connected socket.
    pub to: Option<Peer>,
}

/// A reply to a datagram of a batch.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Index of its buffer; the reply follows the headroom.
    pub n: usize,
    /// Length in bytes.
    pub len: usize,
    /// Sender of the request.
    pub to: Peer,
    /// Header fields of the reply.
    pub marks: Marks,
}

/// Times of a send call.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// `tx_app`: clock read just before the call.
    pub before: Instant<Realtime>,
    /// `tx_app_done`: clock read right after it.
    pub after: Instant<Realtime>,
}

// SAFETY: only calls that have just filled in `iovs` and `headers` read their raw pointers, which
// point to memory that this value owns.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Batch {
    /// Allocates buffers for `capacity` datagrams, each with `headroom` free bytes in front.
    pub fn new(capacity: usize, headroom: usize) -> Self {
        let size = (headroom + MAX_DATAGRAM_LEN).next_multiple_of(4_096);
        let mut end = 0;
        let place = |n| {
            let start = end;
            end += size + n % 16 * BUFFER_LEN_STEP;
            start..end
        };
        let buffers: Vec<_> = (0..capacity).map(place).collect();
        Self {
            headroom,
            memory: vec![0; end].into_boxed_slice(),
            buffers,
            names: vec![RawAddress::empty(); capacity],
            controls: vec![ControlBuffer([0; CONTROL_LEN]); capacity],
            outgoing: Vec::with_capacity(capacity),
            iovs: Vec::with_capacity(capacity),
            headers: Vec::with_capacity(capacity),
            trains: Vec::with_capacity(capacity),
            received: 0,
            request: capacity,
            received_at: Instant::EPOCH,
        }
    }

    /// Receives the queued datagrams, up to the size of the batch. Returns their number.
    pub fn receive(&mut self, from: &DatagramSocket) -> io::Result<usize> {
        let count = self.request.clamp(1, self.buffers.len());
        self.iovs.clear();
        self.headers.clear();
        let memory = self.memory.as_mut_ptr();
        for buffer in &self.buffers[..count] {
            let payload = self.headroom..self.headroom + MAX_DATAGRAM_LEN;
            self.iovs.push(iovec(memory, buffer, payload));
        }
        for n in 0..count {
            let mut header = control::header(&mut self.iovs[n..=n]);
            if from.names_sender {
                header.msg_name = self.names[n].as_mut_ptr().cast();
                header.msg_namelen = RawAddress::STORAGE_LEN;
            }
            if from.has_control {
                header.msg_control = self.controls[n].0.as_mut_ptr().cast();
                header.msg_controllen = CONTROL_LEN as _;
            }
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        let received = socket_error::receive(|_| {
            // SAFETY: the headers were just filled in with pointers to memory that this value owns,
            // of the stated lengths. The memory is neither moved nor borrowed until the call
            // returns. A failed call has changed none of the headers.
            unsafe { syscall::receive_messages(&from.fd, &mut self.headers, libc::MSG_DONTWAIT) }
        });
        self.received = received?.unwrap_or(0);
        self.received_at = realtime();
        // Request twice as many next time in case the load grows; a full batch soon requests all.
        self.request = (2 * self.received).max(8);
        Ok(self.received)
    }

    /// Returns the `n`th received datagram and its buffer. The payload follows the headroom.
    ///
    /// # Panics
    /// If fewer datagrams were received.
    pub fn datagram(&mut self, n: usize, from: &DatagramSocket) -> (Datagram, &mut [u8]) {
        let header = &self.headers[..self.received][n];
        let used = control::size(header.msg_hdr.msg_controllen).min(CONTROL_LEN);
        let control_data = if from.has_control {
            control::parse(&self.controls[n].0[..used])
        } else {
            ReceivedControl::default()
        };
        self.names[n].len = header.msg_hdr.msg_namelen.min(RawAddress::STORAGE_LEN);
        let rx =
            RxStamps { hw: None, driver: None, kernel: control_data.kernel, app: self.received_at };
        let len = header.msg_len as usize;
        let ReceivedControl { ttl, tos, to, to_many, .. } = control_data;
        let from = if from.names_sender { Peer::new(self.names[n], to) } else { None };
        (
            Datagram { len, rx: Some(rx), ttl, tos, to_many, from },
            &mut self.memory[self.buffers[n].clone()],
        )
    }

    /// Returns the buffer with index `n`.
    ///
    /// # Panics
    /// If there are fewer buffers.
    pub fn buffer(&mut self, n: usize) -> &mut [u8] {
        &mut self.memory[self.buffers[n].clone()]
    }

    /// Sends parcels in order, in as few calls as possible. If `through` merges, consecutive
    /// parcels of one length to one peer pass the kernel's stack as one message. `each` is called
    /// with the index, the outcome and the times of every parcel. An outcome holds the kernel's
    /// timestamp key if timestamps will arrive.
    pub fn send(
        &mut self,
        through: &mut DatagramSocket,
        parcels: &[Parcel],
        each: &mut dyn FnMut(usize, Result<Option<u32>, SendError>, Sending),
    ) {
        let mut done = 0;
        let mut failed = 0;
        while done < parcels.len() {
            let rest = &parcels[done..];
            self.address(rest, through.max_merged_len);
            let before = realtime();
            // SAFETY: the headers were just filled in with pointers to memory that this value and
            // `parcels` own, of the stated lengths; the kernel only reads that memory.
            let sent = unsafe {
                syscall::send_messages(&through.fd, &mut self.headers, libc::MSG_DONTWAIT)
            };
            let sending = Sending { before, after: realtime() };
            let error = match sent {
                Err(error) => error,
                Ok(sent) => {
                    let left: usize = self.trains[..sent].iter().sum();
                    for n in done..done + left {
                        each(n, Ok(through.keys.take()), sending);
                    }
                    done += left;
                    failed = 0;
                    if done < parcels.len() {
                        // The call does not report why it stopped early.
                        through.restart_keys();
                    }
                    continue;
                }
            };
            // The call fails only if its first message does, so the error belongs to that one.
            let first = self.trains[0];
            if first > 1 && is_segmentation_error(&error) {
                // The error may be about an earlier packet. If it persists, send the parcels
                // separately.
                if failed == 0 {
                    failed = 1;
                } else {
                    through.max_merged_len = parcels[done].at.len() - 1;
                    failed = 0;
                }
                continue;
            }
            match through.failed(syscall::errno(&error), failed) {
                None => failed += 1,
                Some(error) => {
                    (done..done + first).for_each(|n| each(n, Err(error), sending));
                    done += first;
                    failed = 0;
                }
            }
        }
    }

    /// Sends replies in order, each from the address that its request was sent to, in as few calls
    /// as possible: [`DatagramSocket::reply`] for several datagrams. If `through` merges, consecutive
    /// replies of one length and with the same header fields to one peer pass the kernel's stack as
    /// one message. `each` is called with the outcome of every reply, in order.
    pub fn reply(
        &mut self,
        through: &mut DatagramSocket,
        replies: &[Reply],
        each: &mut dyn FnMut(Result<(), SendError>),
    ) {
        let mut rest = replies;
        while let Some(first) = rest.first() {
            // Control data costs time per reply, and replies of one path have the same TTL.
            if let Err(error) = through.set_reply_ttl(first.marks.ttl) {
                each(Err(error));
                rest = &rest[1..];
                continue;
            }
            self.address_replies(rest, first.marks.ttl, through.max_merged_len);
            // SAFETY: the headers were just filled in with pointers to memory that this value and
            // `replies` own, of the stated lengths; the kernel only reads that memory.
            let sent = unsafe { syscall::send_messages(&through.fd, &mut self.headers, 0) };
            match sent {
                Ok(sent) => {
                    let left: usize = self.trains[..sent].iter().sum();
                    (0..left).for_each(|_| each(Ok(())));
                    rest = &rest[left..];
                }
                Err(error) if self.trains[0] > 1 && is_segmentation_error(&error) => {
                    through.max_merged_len = first.len - 1;
                }
                // The call fails only if its first message does.
                Err(error) => {
                    let failed = self.trains[0];
                    let error = send_error(syscall::errno(&error));
                    (0..failed).for_each(|_| each(Err(error)));
                    rest = &rest[failed..];
                }
            }
        }
    }

    /// Fills in one header per message, up to the first reply that needs the system's TTL instead of
    /// the socket's, which control data cannot state.
    fn address_replies(
        &mut self,
        replies: &[Reply],
        socket_ttl: Option<u8>,
        max_merged_len: usize,
    ) {
        self.iovs.clear();
        self.headers.clear();
        self.outgoing.clear();
        self.trains.clear();
        let needs_default = |reply: &Reply| reply.marks.ttl.is_none() && socket_ttl.is_some();
        let addressed = replies.iter().position(needs_default).unwrap_or(replies.len());
        let mut rest = &replies[..addressed];
        let memory = self.memory.as_mut_ptr();
        for reply in rest {
            let payload = self.headroom..self.headroom + reply.len;
            self.iovs.push(iovec(memory, &self.buffers[reply.n], payload));
        }
        while let Some(first) = rest.first() {
            let train = if first.len <= max_merged_len { reply_train(rest) } else { 1 };
            let ttl = first.marks.ttl.filter(|_| first.marks.ttl != socket_ttl);
            let mut outgoing = match (first.to.source, first.marks.tos, ttl) {
                (None, None, None) => OutgoingControl::empty(),
                (source, tos, ttl) => {
                    OutgoingControl::new(first.to.address(), source, Marks { tos, ttl })
                }
            };
            if let (2.., Ok(len)) = (train, u16::try_from(first.len)) {
                outgoing.segment_into(len);
            }
            self.outgoing.push(outgoing);
            self.trains.push(train);
            rest = &rest[train..];
        }
        let mut at = 0;
        for (outgoing, train) in self.outgoing.iter_mut().zip(&self.trains) {
            let mut header = control::header(&mut self.iovs[at..at + train]);
            header.msg_name = replies[at].to.raw.as_ptr().cast_mut().cast();
            header.msg_namelen = replies[at].to.raw.len;
            outgoing.attach(&mut header);
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            at += train;
        }
    }

    /// Fills in one header per message; a message holds as many parcels as can be merged.
    fn address(&mut self, parcels: &[Parcel], max_merged_len: usize) {
        self.iovs.clear();
        self.headers.clear();
        self.outgoing.clear();
        self.trains.clear();
        let memory = self.memory.as_mut_ptr();
        for Parcel { n, at, .. } in parcels {
            self.iovs.push(iovec(memory, &self.buffers[*n], at.clone()));
        }
        let mut rest = parcels;
        while let Some(Parcel { at, to, .. }) = rest.first() {
            let (train, later) =
                rest.split_at(if at.len() <= max_merged_len { train(rest) } else { 1 });
            let source = to.as_ref().and_then(|to| Some((to.address(), to.source?)));
            let mut outgoing = match source {
                Some((to, source)) => OutgoingControl::new(to, Some(source), Marks::default()),
                None => OutgoingControl::empty(),
            };
            if let (2.., Ok(len)) = (train.len(), u16::try_from(at.len())) {
                outgoing.segment_into(len);
            }
            self.outgoing.push(outgoing);
            self.trains.push(train.len());
            rest = later;
        }
        let mut first = 0;
        for (outgoing, train) in self.outgoing.iter_mut().zip(&self.trains) {
            let mut header = control::header(&mut self.iovs[first..first + train]);
            if let Some(to) = &parcels[first].to {
                header.msg_name = to.raw.as_ptr().cast_mut().cast();
                header.msg_namelen = to.raw.len;
            }
            outgoing.attach(&mut header);
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            first += train;
        }
    }
}

/// Returns a range of a buffer, which is at a place in `memory`. Takes a pointer, so that no later
/// borrow of the memory invalidates it.
///
/// # Panics
/// If the range is beyond the buffer.
fn iovec(memory: *mut u8, buffer: &Range<usize>, range: Range<usize>) -> libc::iovec {
    assert!(range.end <= buffer.len());
    let start = memory.wrapping_add(buffer.start + range.start);
    libc::iovec { iov_base: start.cast(), iov_len: range.len() }
}

/// Returns the number of leading parcels that fit into one UDP_SEGMENT message: to the same peer
/// and as long as the first, except for the last, which may be shorter.
fn train(parcels: &[Parcel]) -> usize {
    let Some((first, others)) = parcels.split_first() else { return 0 };
    let len = first.at.len();
    let most = MAX_MESSAGE_LEN.checked_div(len).map_or(0, |most| most.min(MAX_SEGMENTS));
    let to = |parcel: &Parcel| parcel.to.map(|to| (to.address(), to.source));
    let mut train = 1;
    for parcel in others.iter().take(most.saturating_sub(1)) {
        if parcel.at.len() > len || parcel.at.is_empty() || to(parcel) != to(first) {
            break;
        }
        train += 1;
        if parcel.at.len() < len {
            break;
        }
    }
    train
}

/// Returns the number of leading replies that fit into one UDP_SEGMENT message: with the same header
/// fields to the same peer, and as long as the first, except for the last, which may be shorter.
fn reply_train(replies: &[Reply]) -> usize {
    let Some((first, others)) = replies.split_first() else { return 0 };
    let most = MAX_MESSAGE_LEN.checked_div(first.len).map_or(0, |most| most.min(MAX_SEGMENTS));
    let mut train = 1;
    for reply in others.iter().take(most.saturating_sub(1)) {
        let is_like_first = reply.marks == first.marks
            && reply.to.address() == first.to.address()
            && reply.to.source == first.to.source;
        if reply.len > first.len || reply.len == 0 || !is_like_first {
            break;
        }
        train += 1;
        if reply.len < first.len {
            break;
        }
    }
    train
}

/// Whether a message may have been refused because it cannot be segmented: a segment is too long
/// for the path, or the interface does not compute checksums (net/ipv4/udp.c, udp_send_skb).
fn is_segmentation_error(error: &io::Error) -> bool {
    const SEGMENTATION_ERRORS: [i32; 3] = [libc::EIO, libc::EINVAL, libc::EMSGSIZE];
    error.raw_os_error().is_some_and(|errno| SEGMENTATION_ERRORS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::port::{SocketOptions, StampRequest, Wait};
    use std::net::SocketAddr;

    const HEADROOM: usize = 12;

    #[test]
    fn batch_round_trip_preserves_payloads() {
        for listen in ["127.0.0.1", "0.0.0.0", "::1"] {
            let options = SocketOptions::relay();
            let address = SocketAddr::new(listen.parse().unwrap(), 0);
            let mut server = DatagramSocket::bind(address, &options).unwrap();
            let port = server.local_addr().port();
            let ip = if listen == "0.0.0.0" { "127.0.0.9" } else { listen };
            let to = SocketAddr::new(ip.parse().unwrap(), port);
            let mut clients: Vec<_> =
                (0..3).map(|_| DatagramSocket::connect(to, &options).unwrap()).collect();
            for n in 0..30_u8 {
                clients[usize::from(n) % 3].send(&vec![n; 100 + usize::from(n)]).unwrap();
            }
            let mut batch = Batch::new(16, HEADROOM);
            let mut echoed = 0;
            while echoed < 30 {
                let received = batch.receive(&server).unwrap();
                let mut parcels = Vec::new();
                for n in 0..received {
                    let (datagram, buffer) = batch.datagram(n, &server);
                    // Extended by one byte at the front.
                    buffer[HEADROOM - 1] = 0xaa;
                    let at = HEADROOM - 1..HEADROOM + datagram.len;
                    parcels.push(Parcel { n, at, to: datagram.from });
                }
                let mut sent = 0;
                batch.send(&mut server, &parcels, &mut |n, outcome, when| {
                    assert_eq!((n, outcome), (sent, Ok(None)));
                    assert!(when.before <= when.after);
                    sent += 1;
                });
                echoed += sent;
            }
            for (first, client) in clients.iter_mut().enumerate() {
                let mut buffer = [0; 300];
                for n in (first as u8..30).step_by(3) {
                    let received = client.receive_from(&mut buffer, Wait::No).unwrap().unwrap();
                    let expected = [vec![0xaa], vec![n; 100 + usize::from(n)]].concat();
                    assert_eq!(buffer[..received.len], expected, "{listen}");
                }
            }
        }
    }

    #[test]
    fn segmented_datagrams_arrive_unchanged() {
        let options = SocketOptions { merge: true, ..SocketOptions::relay() };
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let server = DatagramSocket::bind(listen.parse().unwrap(), &options).unwrap();
            let mut client = DatagramSocket::connect(server.local_addr(), &options).unwrap();
            let mut batch = Batch::new(80, HEADROOM);
            let lens: Vec<usize> =
                [vec![100; 70], vec![40, 90, 90, 0, 0, 90, 91, 1_473, 1_473]].concat();
            for n in 0..lens.len() {
                batch.buffer(n).fill(n as u8);
            }
            let parcel = |(n, len): (usize, &usize)| Parcel { n, at: 7..7 + len, to: None };
            let parcels: Vec<_> = lens.iter().enumerate().map(parcel).collect();
            let mut outcomes = Vec::new();
            batch.send(&mut client, &parcels, &mut |n, outcome, _| outcomes.push((n, outcome)));
            assert_eq!(outcomes, (0..lens.len()).map(|n| (n, Ok(None))).collect::<Vec<_>>());
            assert_eq!(batch.trains, [64, 7, 2, 1, 1, 1, 1, 2], "{listen}");
            let mut received = Vec::new();
            while received.len() < lens.len() {
                for n in 0..batch.receive(&server).unwrap() {
                    let (datagram, buffer) = batch.datagram(n, &server);
                    received.push(buffer[HEADROOM..HEADROOM + datagram.len].to_vec());
                }
            }
            let expected: Vec<_> =
                lens.iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
            assert_eq!(received, expected, "{listen}");
        }
    }

    #[test]
    fn merged_replies_leave_from_requested_address() {
        let options = SocketOptions { merge: true, ..SocketOptions::relay() };
        for (everywhere, asked) in [("0.0.0.0:0", "127.0.0.9"), ("[::]:0", "::1")] {
            let mut server = DatagramSocket::bind(everywhere.parse().unwrap(), &options).unwrap();
            let to = SocketAddr::new(asked.parse().unwrap(), server.local_addr().port());
            // A connected socket receives from its peer only.
            let mut client = DatagramSocket::connect(to, &options).unwrap();
            for n in 0..10_u8 {
                client.send(&[n; 60]).unwrap();
            }
            let mut batch = Batch::new(16, HEADROOM);
            let received = batch.receive(&server).unwrap();
            assert_eq!(received, 10, "loopback delivers before a send returns");
            let mut parcels = Vec::new();
            for n in 0..received {
                let (datagram, _) = batch.datagram(n, &server);
                parcels.push(Parcel { n, at: HEADROOM..HEADROOM + 60, to: datagram.from });
            }
            batch.send(&mut server, &parcels, &mut |_, outcome, _| assert_eq!(outcome, Ok(None)));
            assert_eq!(batch.trains, [10], "{asked}");
            for n in 0..10_u8 {
                let mut buffer = [0; 100];
                assert_eq!(client.receive_from(&mut buffer, Wait::No).unwrap().unwrap().len, 60);
                assert_eq!(buffer[..60], [n; 60]);
            }
        }
    }

    /// TTL, TOS and payload of a reply.
    type Received = (u8, u8, Vec<u8>);

    /// Sends requests, each by a client and with a length, and answers all in one batch with the
    /// marks that `marks` returns for their index. Returns the trains of the last send call, and the
    /// replies.
    fn replies_of(
        listen: &str,
        options: &SocketOptions,
        requests: &[(usize, usize)],
        marks: impl Fn(usize) -> Marks,
    ) -> (Vec<usize>, Vec<Received>) {
        let (any, ask) = match listen {
            "0.0.0.0" => (listen, "127.0.0.9"),
            "::" => (listen, "::1"),
            one => (one, one),
        };
        let bind = |ip: &str, options| {
            DatagramSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0), options).unwrap()
        };
        let mut server = bind(any, options);
        let to = SocketAddr::new(ask.parse().unwrap(), server.local_addr().port());
        let peer = Peer::new(RawAddress::from(to), None).unwrap();
        let marked =
            SocketOptions { receive_ttl: true, receive_tos: true, ..SocketOptions::server() };
        let home = if to.is_ipv4() { "127.0.0.1" } else { "::1" };
        let mut clients = [bind(home, &marked), bind(home, &marked)];
        for (n, (client, len)) in requests.iter().enumerate() {
            clients[*client].reply(&vec![n as u8; *len], &peer, Marks::default()).unwrap();
        }
        let mut batch = Batch::new(32, 0);
        batch.request = 32;
        assert_eq!(batch.receive(&server).unwrap(), requests.len(), "{listen}");
        let replies: Vec<_> = (0..requests.len())
            .map(|n| {
                let (datagram, _) = batch.datagram(n, &server);
                Reply { n, len: datagram.len, to: datagram.from.unwrap(), marks: marks(n) }
            })
            .collect();
        let mut outcomes = Vec::new();
        batch.reply(&mut server, &replies, &mut |outcome| outcomes.push(outcome));
        assert_eq!(outcomes, vec![Ok(()); requests.len()], "{listen}");
        let mut received = Vec::new();
        for (n, (client, _)) in requests.iter().enumerate() {
            let mut buffer = [0; 2_000];
            let reply = clients[*client].receive_from(&mut buffer, Wait::No).unwrap();
            let reply = reply.unwrap_or_else(|| panic!("{listen}: no reply {n}"));
            assert_eq!(reply.from.unwrap().address(), to, "{listen}");
            received.push((reply.ttl.unwrap(), reply.tos.unwrap(), buffer[..reply.len].to_vec()));
        }
        (batch.trains, received)
    }

    #[test]
    fn batched_replies_keep_order_peer_and_marks() {
        let options = SocketOptions { merge: true, ..SocketOptions::server() };
        let requests =
            [(0, 64), (0, 64), (0, 64), (1, 64), (0, 64), (0, 40), (0, 1_473), (1, 9), (1, 9)];
        let marks = |n| match n {
            2 => Marks { tos: Some(0x28), ttl: Some(63) },
            7 => Marks { tos: None, ttl: Some(9) },
            _ => Marks { tos: None, ttl: Some(63) },
        };
        for listen in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let (trains, received) = replies_of(listen, &options, &requests, marks);
            assert_eq!(trains, [2, 1, 1, 2, 1, 1, 1], "{listen}");
            for (n, (ttl, tos, payload)) in received.iter().enumerate() {
                let expected = marks(n);
                let found = Marks { tos: (*tos != 0).then_some(*tos), ttl: Some(*ttl) };
                assert_eq!(found, expected, "{listen} {n}");
                assert_eq!(*payload, vec![n as u8; requests[n].1], "{listen} {n}");
            }
        }
    }

    #[test]
    fn batched_replies_return_to_the_default_ttl() {
        let requests = [(0, 20); 4];
        let ttl = |n| if n % 2 == 0 { Some(7) } else { None };
        let marks = |n| Marks { tos: None, ttl: ttl(n) };
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::server() };
        for listen in ["127.0.0.1", "::1"] {
            let (trains, received) = replies_of(listen, &options, &requests, marks);
            // The second call sends the rest: control data states the TTL of the third.
            assert_eq!(trains, [1, 1, 1], "{listen}");
            let ttls: Vec<_> = received.iter().map(|(ttl, ..)| *ttl).collect();
            assert_eq!(ttls, [7, 64, 7, 64], "{listen}");
        }
    }

    #[test]
    fn packets_to_be_timestamped_are_not_merged() {
        let options =
            SocketOptions { stamps: StampRequest::Kernel, merge: true, ..SocketOptions::relay() };
        let server = DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut client = DatagramSocket::connect(server.local_addr(), &options).unwrap();
        let mut batch = Batch::new(3, HEADROOM);
        let parcels = [0, 1, 2].map(|n| Parcel { n, at: 0..50, to: None });
        let mut keys = Vec::new();
        batch.send(&mut client, &parcels, &mut |_, outcome, _| keys.push(outcome.unwrap()));
        assert_eq!(keys, [Some(0), Some(1), Some(2)]);
        assert_eq!(batch.trains, [1, 1, 1]);
    }

    #[test]
    fn oversized_parcel_does_not_block_others() {
        let options = SocketOptions { dont_fragment: true, ..SocketOptions::relay() };
        let server = DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut client = DatagramSocket::connect(server.local_addr(), &options).unwrap();
        let mut batch = Batch::new(4, HEADROOM);
        let parcel = |n, len: usize| Parcel { n, at: 0..len, to: None };
        let parcels = [parcel(0, 10), parcel(1, 65_520), parcel(2, 20), parcel(3, 30)];
        let mut outcomes = Vec::new();
        batch.send(&mut client, &parcels, &mut |n, outcome, _| outcomes.push((n, outcome)));
        let expected = [Ok(None), Err(SendError::TooLong), Ok(None), Ok(None)];
        assert_eq!(outcomes, expected.into_iter().enumerate().collect::<Vec<_>>());
        assert_eq!(batch.receive(&server).unwrap(), 3);
    }
}
