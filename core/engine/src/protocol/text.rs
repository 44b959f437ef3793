//! The request and acknowledge messages of Chung 2021. They carry no id. Over TCP, replies are
//! matched by the order of the stream, which is exact; over UDP, by the source port, of which several
//! are used in turn.

use std::collections::VecDeque;

use dwell_units::{Instant, Realtime};
use dwell_wire::text::{ACKNOWLEDGE, REQUEST, is};

use super::{Protocol, Reject, Reply, WireId};

fn write(message: &mut [u8]) -> usize {
    message.copy_from_slice(REQUEST);
    REQUEST.len()
}

/// Over UDP. The caller's channel is the index of the send call that opened the port.
#[derive(Debug, Default)]
pub struct TextUdp {
    first: Option<u64>,
}

impl Protocol for TextUdp {
    fn capacity(&self) -> usize {
        REQUEST.len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        self.first.get_or_insert(id);
        write(message)
    }

    fn read(&mut self, message: &[u8], channel: u64) -> Result<Reply, Reject> {
        if !is(ACKNOWLEDGE, message) {
            return Err(Reject::Malformed);
        }
        let first = self.first.ok_or(Reject::Unknown)?;
        Ok(Reply::plain(WireId::full(first.wrapping_add(channel))))
    }
}

/// Over TCP. The n-th acknowledge answers the n-th request sent, however late it arrives. An
/// acknowledge without an open request is a duplicate of the last one.
#[derive(Debug, Default)]
pub struct TextStream {
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

impl Protocol for TextStream {
    fn capacity(&self) -> usize {
        REQUEST.len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        let order = self.order.get_or_insert(AckOrder { next: id, end: id, answered: None });
        order.end = id.wrapping_add(1);
        write(message)
    }

    fn unsent(&mut self, id: u64) {
        match self.unsent.back_mut() {
            Some((first, count)) if first.wrapping_add(*count) == id => *count += 1,
            _ => self.unsent.push_back((id, 1)),
        }
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        if !is(ACKNOWLEDGE, message) {
            return Err(Reject::Malformed);
        }
        let order = self.order.as_mut().ok_or(Reject::Unknown)?;
        while let Some((_, count)) = self.unsent.pop_front_if(|(first, _)| *first == order.next) {
            order.next = order.next.wrapping_add(count);
        }
        if order.next != order.end {
            order.answered = Some(order.next);
            order.next = order.next.wrapping_add(1);
        }
        order.answered.map(|id| Reply::plain(WireId::full(id))).ok_or(Reject::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(stream: &mut TextStream) -> Result<u64, Reject> {
        stream.read(ACKNOWLEDGE, 0).map(|reply| reply.id.value)
    }

    fn request(stream: &mut TextStream, id: u64) {
        stream.write(id, Instant::EPOCH, &mut [0; REQUEST.len()]);
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
