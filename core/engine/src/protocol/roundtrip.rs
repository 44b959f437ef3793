//! Round-trip message of Roedlach/Vock: the master.

use dwell_units::{Instant, Realtime};
use dwell_wire::roundtrip::{Control, LEN, Message};

use super::{Protocol, Reject, Reply, WireId};

/// Sends REQ and expects ACK. The timestamp is written as in Roedlach/Vock but not read back; the
/// local timestamp of the id is used instead.
#[derive(Debug)]
pub struct RoundTrip;

impl Protocol for RoundTrip {
    fn capacity(&self) -> usize {
        LEN
    }

    fn write(&mut self, id: u64, now: Instant<Realtime>, message: &mut [u8]) -> usize {
        Message {
            seconds: now.as_nanos().div_euclid(1_000_000_000),
            nanoseconds: now.as_nanos().rem_euclid(1_000_000_000),
            id: id as u32,
            control: Control::Request,
        }
        .emit(message);
        LEN
    }

    fn read(&mut self, message: &[u8], _channel: u64) -> Result<Reply, Reject> {
        let reply = Message::parse(message).map_err(|_| Reject::Malformed)?;
        if reply.control != Control::Acknowledge {
            return Err(Reject::Unknown);
        }
        Ok(Reply::plain(WireId::low(reply.id.into(), 32)))
    }
}
