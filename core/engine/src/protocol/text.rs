//! The request and acknowledge messages of Chung 2021. They carry no id. Over TCP, replies are
//! matched by the order of the stream, which is exact; over UDP, by the source port, of which several
//! are used in turn.

use std::collections::VecDeque;

use dwell_sample::Remote;
use dwell_units::{Instant, Realtime};
use dwell_wire::text::{DeviceTimes, REQUEST, TIMED_REQUEST, acknowledgement};

use super::{Protocol, Reject, Reply, WireId};

/// Kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Request {
    /// The word.
    #[default]
    Plain,
    /// The word and room for the times of a device.
    Timed,
}

impl Request {
    /// Returns the kind with this length.
    fn of(len: usize) -> Self {
        if len == TIMED_REQUEST.len() { Self::Timed } else { Self::Plain }
    }

    const fn message(self) -> &'static [u8] {
        match self {
            Self::Plain => REQUEST,
            Self::Timed => TIMED_REQUEST,
        }
    }

    fn write(self, message: &mut [u8]) -> usize {
        message.copy_from_slice(self.message());
        self.message().len()
    }
}

/// Returns the reply to the probe `id`. The device counts no packets, so the sequence number is that of
/// the probe, as in a stateless reflector's reply.
fn reply(id: u64, times: Option<DeviceTimes>) -> Reply {
    let instant = |nanos: u64| i64::try_from(nanos).ok().map(Instant::from_nanos);
    let remote = times.and_then(|times| {
        let (rx, tx) = (instant(times.received)?, instant(times.sent)?);
        Some(Remote { rx, tx, seq: id as u32, ttl: None, same_clock: false })
    });
    Reply { remote, ..Reply::plain(WireId::full(id)) }
}

/// Over UDP. The caller's channel is the index of the send call that opened the port.
#[derive(Debug, Default)]
pub struct TextUdp {
    request: Request,
    first: Option<u64>,
}

impl TextUdp {
    /// Creates a sender of requests of this length.
    pub fn new(len: usize) -> Self {
        Self { request: Request::of(len), first: None }
    }
}

impl Protocol for TextUdp {
    fn capacity(&self) -> usize {
        self.request.message().len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        self.first.get_or_insert(id);
        self.request.write(message)
    }

    fn read(&mut self, message: &[u8], channel: u64) -> Result<Reply, Reject> {
        let times = acknowledgement(message).ok_or(Reject::Malformed)?;
        let first = self.first.ok_or(Reject::Unknown)?;
        Ok(reply(first.wrapping_add(channel), times))
    }
}

/// Over TCP. The n-th acknowledge answers the n-th request sent, however late it arrives. An
/// acknowledge without an open request is a duplicate of the last one.
#[derive(Debug, Default)]
pub struct TextStream {
    request: Request,
    order: Option<AckOrder>,
    /// Ranges of ids that were not sent: first id and count, ascending.
    unsent: VecDeque<(u64, u64)>,
}

/// Position in the stream of acknowledges.
#[derive(Clone, Copy, Debug)]
struct AckOrder {
    /// Oldest request without an acknowledge.
    next: u64,
    /// One more than the id of the last request.
    end: u64,
    /// Request answered by the last acknowledge.
    answered: Option<u64>,
}

impl TextStream {
    /// Creates a sender of requests of this length.
    pub fn new(len: usize) -> Self {
        Self { request: Request::of(len), ..Self::default() }
    }
}

impl Protocol for TextStream {
    fn capacity(&self) -> usize {
        self.request.message().len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        let order = self.order.get_or_insert(AckOrder { next: id, end: id, answered: None });
        order.end = id.wrapping_add(1);
        self.request.write(message)
    }

    fn unsent(&mut self, id: u64) {
        match self.unsent.back_mut() {
            Some((first, count)) if first.wrapping_add(*count) == id => *count += 1,
            _ => self.unsent.push_back((id, 1)),
        }
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let times = acknowledgement(message).ok_or(Reject::Malformed)?;
        let order = self.order.as_mut().ok_or(Reject::Unknown)?;
        while let Some((_, count)) = self.unsent.pop_front_if(|(first, _)| *first == order.next) {
            order.next = order.next.wrapping_add(count);
        }
        if order.next != order.end {
            order.answered = Some(order.next);
            order.next = order.next.wrapping_add(1);
        }
        order.answered.map(|id| reply(id, times)).ok_or(Reject::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use dwell_wire::text::ACKNOWLEDGE;

    use super::*;

    fn acknowledged(stream: &mut TextStream) -> Result<u64, Reject> {
        stream.read(ACKNOWLEDGE, 0).map(|reply| reply.id.value)
    }

    fn request(stream: &mut TextStream, id: u64) {
        stream.write(id, Instant::EPOCH, &mut [0; REQUEST.len()]);
    }

    #[test]
    fn times_of_the_device_are_its_timestamps() {
        let mut udp = TextUdp::new(TIMED_REQUEST.len());
        let mut message = [0; TIMED_REQUEST.len()];
        assert_eq!(udp.write(4, Instant::EPOCH, &mut message), TIMED_REQUEST.len());
        assert_eq!(message, TIMED_REQUEST);
        let timed = udp.read(b"acknowledge 0000000000000010 0000000000000020", 1).unwrap();
        let remote = timed.remote.unwrap();
        assert_eq!((remote.rx, remote.tx), (Instant::from_nanos(16), Instant::from_nanos(32)));
        assert_eq!((timed.id.value, remote.seq, remote.same_clock), (5, 5, false));
        assert_eq!(udp.read(ACKNOWLEDGE, 0).unwrap().remote, None, "a device without a clock");
        let never = udp.read(b"acknowledge ffffffffffffffff ffffffffffffffff", 0).unwrap();
        assert_eq!(never.remote, None, "no clock shows this time");
    }

    #[test]
    fn extra_acknowledge_repeats_the_last_answer() {
        let mut stream = TextStream::default();
        assert_eq!(acknowledged(&mut stream), Err(Reject::Unknown));
        // Warm-up ids are below 0.
        for id in [u64::MAX, 0, 1] {
            request(&mut stream, id);
            assert_eq!(acknowledged(&mut stream), Ok(id));
            assert_eq!(acknowledged(&mut stream), Ok(id), "extra");
        }
    }

    #[test]
    fn unsent_requests_are_skipped() {
        let mut stream = TextStream::default();
        for id in 0..10 {
            request(&mut stream, id);
            if ![2, 5, 9].contains(&id) {
                stream.unsent(id);
            }
        }
        assert!(stream.unsent.len() <= 3, "ranges, not single ids");
        for id in [2, 5, 9, 9] {
            assert_eq!(acknowledged(&mut stream), Ok(id));
        }
        request(&mut stream, 10);
        stream.unsent(10);
        assert_eq!(acknowledged(&mut stream), Ok(9), "no request is open");
        request(&mut stream, 11);
        assert_eq!(acknowledged(&mut stream), Ok(11));
    }
}
