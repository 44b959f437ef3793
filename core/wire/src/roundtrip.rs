//! Round-trip message of Roedlach/Vock: 24 bytes, little-endian, packed. 0 i64 seconds, 8 i64
//! nanoseconds (the sender's clock), 16 u32 id, 20 `REQ\0` or `ACK\0`.

use crate::{WireError, field};

/// Length of a message in bytes.
pub const LEN: usize = 24;

/// Offset of the id.
pub const ID_AT: usize = 16;

const REQUEST: [u8; 4] = *b"REQ\0";
const ACKNOWLEDGE: [u8; 4] = *b"ACK\0";

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Request from the master.
    Request,
    /// Reply to the master.
    Acknowledge,
}

/// A message. The reply is the request with a different `control`.
///
/// ```
/// use dwell_wire::roundtrip::{self, Control, Message};
///
/// let request = Message { seconds: 1, nanoseconds: 2, id: 3, control: Control::Request };
/// let mut bytes = [0; roundtrip::LEN];
/// request.emit(&mut bytes);
/// roundtrip::acknowledge(&mut bytes)?;
/// assert_eq!(Message::parse(&bytes), Ok(Message { control: Control::Acknowledge, ..request }));
/// # Ok::<(), dwell_wire::WireError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whole seconds of the sender's clock.
    pub seconds: i64,
    /// Nanoseconds of the sender's clock.
    pub nanoseconds: i64,
    /// Cycle number.
    pub id: u32,
    /// Direction.
    pub control: Control,
}

impl Message {
    /// Reads a message of exactly [`LEN`] bytes.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let control = match field(message, 20)? {
            REQUEST => Control::Request,
            ACKNOWLEDGE => Control::Acknowledge,
            _ => return Err(WireError::Mismatch),
        };
        if message.len() != LEN {
            return Err(WireError::Mismatch);
        }
        Ok(Self {
            seconds: i64::from_le_bytes(field(message, 0)?),
            nanoseconds: i64::from_le_bytes(field(message, 8)?),
            id: u32::from_le_bytes(field(message, ID_AT)?),
            control,
        })
    }

    /// Writes the message to `message`, which has [`LEN`] bytes.
    pub fn emit(&self, message: &mut [u8]) {
        message[..8].copy_from_slice(&self.seconds.to_le_bytes());
        message[8..16].copy_from_slice(&self.nanoseconds.to_le_bytes());
        message[ID_AT..20].copy_from_slice(&self.id.to_le_bytes());
        message[20..24].copy_from_slice(match self.control {
            Control::Request => &REQUEST,
            Control::Acknowledge => &ACKNOWLEDGE,
        });
    }
}

/// Turns the request in `message` into its reply, in place.
pub fn acknowledge(message: &mut [u8]) -> Result<(), WireError> {
    if Message::parse(message)?.control != Control::Request {
        return Err(WireError::Mismatch);
    }
    message[20..24].copy_from_slice(&ACKNOWLEDGE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn message_matches_the_published_format() {
        let message = Message { seconds: 1, nanoseconds: 2, id: 3, control: Control::Request };
        let mut bytes = [0xff; LEN];
        message.emit(&mut bytes);
        assert_eq!(
            bytes,
            [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, b'R', b'E', b'Q', 0]
        );
        acknowledge(&mut bytes).unwrap();
        assert_eq!(&bytes[20..], b"ACK\0");
        assert_eq!(acknowledge(&mut bytes), Err(WireError::Mismatch), "a reply is not answered");
    }

    proptest! {
        #[test]
        fn written_message_is_read_back(seconds: i64, nanoseconds: i64, id: u32, ack: bool) {
            let control = if ack { Control::Acknowledge } else { Control::Request };
            let message = Message { seconds, nanoseconds, id, control };
            let mut bytes = [0; LEN];
            message.emit(&mut bytes);
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Message::parse(&bytes);
            let _ = acknowledge(&mut bytes);
        }
    }
}
