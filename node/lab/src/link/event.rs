//! An entry of a TAP link's event log: a frame that was dropped, duplicated or reordered. Small and
//! `Copy`, because the carrying thread passes it through a ring.
//!
//! ```json
//! {"t_ns":1700000000000000000,"direction":"n1->n2","frame":17,"action":"drop","proto":17,
//!  "src":"198.19.0.1","dst":"198.19.0.2","sport":40000,"dport":862,"len":86,"payload_head":"00.."}
//! ```
//!
//! `t_ns` is CLOCK_REALTIME; `frame` counts the frames of the direction from 0; `len` is the length
//! of the whole frame; `payload_head` has up to 32 bytes from behind the UDP or TCP header, and
//! from the start of the message of other protocols (ICMP). Values that a frame does not have are
//! `null`.

use std::net::IpAddr;

use dwell_units::{Instant, Realtime};
use serde::Serialize;

use super::frame;

/// Action on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// Lost on purpose.
    Drop,
    /// Duplicated.
    Duplicate,
    /// Sent ahead.
    Reorder,
    /// Dropped for lack of room.
    Overflow,
}

/// A frame that was dropped, duplicated or reordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    at: Instant<Realtime>,
    pub(super) direction: usize,
    frame: u64,
    action: Action,
    protocol: Option<u8>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    ports: Option<(u16, u16)>,
    len: usize,
    head: [u8; 32],
    head_len: usize,
}

impl Event {
    pub(super) fn new(
        at: Instant<Realtime>,
        direction: usize,
        number: u64,
        action: Action,
        frame: &[u8],
    ) -> Self {
        let summary = frame::summary(frame);
        let mut head = [0; 32];
        let head_len = summary.payload.len().min(head.len());
        head[..head_len].copy_from_slice(&summary.payload[..head_len]);
        Self {
            at,
            direction,
            frame: number,
            action,
            protocol: summary.protocol,
            source: summary.source,
            destination: summary.destination,
            ports: summary.ports,
            len: frame.len(),
            head,
            head_len,
        }
    }

    /// Returns the line, without a line end.
    pub(super) fn line(&self, direction: &str) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            t_ns: i64,
            direction: &'a str,
            frame: u64,
            action: Action,
            proto: Option<u8>,
            src: Option<IpAddr>,
            dst: Option<IpAddr>,
            sport: Option<u16>,
            dport: Option<u16>,
            len: usize,
            payload_head: String,
        }
        let head = self.head[..self.head_len].iter().map(|byte| format!("{byte:02x}"));
        let line = Line {
            t_ns: self.at.as_nanos(),
            direction,
            frame: self.frame,
            action: self.action,
            proto: self.protocol,
            src: self.source,
            dst: self.destination,
            sport: self.ports.map(|ports| ports.0),
            dport: self.ports.map(|ports| ports.1),
            len: self.len,
            payload_head: head.collect(),
        };
        serde_json::to_string(&line).expect("an event is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_line_contains_action_and_frame() {
        let at = Instant::from_nanos(7);
        let event = Event::new(at, 0, 3, Action::Drop, &[0xab; 60]);
        let line: serde_json::Value = serde_json::from_str(&event.line("n1->n2")).unwrap();
        assert_eq!(line["action"], "drop");
        assert_eq!(line["direction"], "n1->n2");
        assert_eq!((line["t_ns"].as_i64(), line["frame"].as_u64()), (Some(7), Some(3)));
        assert_eq!((line["len"].as_u64(), line["proto"].is_null()), (Some(60), true));
        assert_eq!(line["payload_head"], "ab".repeat(32));
    }
}
