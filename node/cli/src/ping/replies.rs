//! A line of text for each reply.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use dwell_sample::{Sample, State};

use super::brief::time;

/// Maximum number of TTLs kept until their line is written.
const MAX_TTLS: usize = 64;

/// Which replies are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    /// None.
    Silent,
    /// All, at any rate.
    Lines,
    /// All, with their TTL: at low rates only.
    WithTtl,
}

/// Formats the lines.
pub(super) struct ReplyLines {
    peer: IpAddr,
    size: usize,
    ttls: VecDeque<(u64, u8)>,
}

impl ReplyLines {
    pub(super) fn new() -> Self {
        Self { peer: Ipv4Addr::UNSPECIFIED.into(), size: 0, ttls: VecDeque::new() }
    }

    /// Sets the peer and the payload size in bytes.
    pub(super) fn begin(&mut self, peer: IpAddr, size: usize) {
        (self.peer, self.size) = (peer, size);
    }

    /// Notes the TTL of the reply to probe `id`.
    pub(super) fn note_ttl(&mut self, id: u64, ttl: u8) {
        if self.ttls.len() == MAX_TTLS {
            self.ttls.pop_front();
        }
        self.ttls.push_back((id, ttl));
    }

    pub(super) fn line(&self, sample: &Sample) -> String {
        let id = sample.id;
        let Some(rx) = sample.rx else {
            return match sample.state {
                State::Lost => format!("no reply in time: seq={id}"),
                state => format!("{}: seq={id}", state.name()),
            };
        };
        let ttl = self.ttls.iter().rev().find(|(known, _)| *known == id);
        let ttl = ttl.map_or(String::new(), |(_, ttl)| format!(" ttl={ttl}"));
        let state = match sample.state {
            State::Received => "",
            State::Late => " (late)",
            State::Duplicate => " (duplicate)",
            State::Lost | State::SendFailed | State::Sent => " (unexpected)",
        };
        let delay = time(rx.app - sample.tx.app);
        format!("{} bytes from {}: seq={id}{ttl} time={delay}{state}", self.size, self.peer)
    }
}
