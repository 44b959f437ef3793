//! S3's request and acknowledge. The messages carry no id, so something else must: over TCP the
//! order of the stream, which is exact; over UDP the source port, a fresh one for every probe.

use std::collections::VecDeque;

use dwell_units::{Instant, Realtime};
use dwell_wire::text::{ACKNOWLEDGE, REQUEST, is};

use super::{Protocol, Reject, Reply, WireId};

fn write(message: &mut [u8]) -> usize {
    message.copy_from_slice(REQUEST);
    REQUEST.len()
}

/// Over UDP. The caller's channel is the number of the send call that opened the port.
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

/// Over TCP. The n-th acknowledge answers the n-th request that left, however late it comes.
#[derive(Debug, Default)]
pub struct TextStream {
    next_reply: Option<u64>,
    /// Ids from `next_reply` on that did not leave, ascending.
    unsent: VecDeque<u64>,
}

impl Protocol for TextStream {
    fn capacity(&self) -> usize {
        REQUEST.len()
    }

    fn write(&mut self, id: u64, _now: Instant<Realtime>, message: &mut [u8]) -> usize {
        self.next_reply.get_or_insert(id);
        write(message)
    }

    fn unsent(&mut self, id: u64) {
        self.unsent.push_back(id);
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        if !is(ACKNOWLEDGE, message) {
            return Err(Reject::Malformed);
        }
        let next = self.next_reply.as_mut().ok_or(Reject::Unknown)?;
        while self.unsent.pop_front_if(|id| *id == *next).is_some() {
            *next = next.wrapping_add(1);
        }
        let id = WireId::full(*next);
        *next = next.wrapping_add(1);
        Ok(Reply::plain(id))
    }
}
