//! Which records were published, and which of them have to be published again.
//!
//! A published message is *in flight* until the server acknowledges it, then *outstanding* until all its
//! records have receipts. An acknowledgement is no promise: a server may lose its stream. So a message
//! whose receipts are overdue is read from the spool again, without the records that have receipts.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use dwell_rollup::{Identity, Incarnation, Level, Piece, RangeSet, SpoolCursor, pieces};

use crate::spool::{Reached, SHIPPED_LEVELS};

/// Maximum number of messages in flight.
const MAX_IN_FLIGHT: usize = 8;

/// Number of outstanding messages from which successive ones are treated as one.
const MERGE_OUTSTANDING: usize = 256;

/// Maximum number of outstanding messages that are not successive. No more are published.
const MAX_OUTSTANDING: usize = 1_024;

/// Longest time to wait for receipts.
const MAX_RECEIPT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Records of a level between two positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    level: Level,
    /// `None`: from the oldest on.
    from: Option<SpoolCursor>,
    to: SpoolCursor,
    /// How often they were published before.
    attempts: u32,
}

/// A message without receipts for all its records.
#[derive(Debug)]
struct Sent {
    span: Span,
    /// Records without a receipt.
    records: Records,
    /// Time of its acknowledgement.
    since: Instant,
}

type Records = BTreeMap<Incarnation, RangeSet>;

/// Number of a message that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MessageId(u64);

/// A message to publish.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    /// Whole records.
    pub(crate) payload: Vec<u8>,
}

/// What is published and what comes next.
#[derive(Debug)]
pub(crate) struct Outbox {
    receipt_timeout: Duration,
    /// Where each level continues.
    next: [Option<SpoolCursor>; SHIPPED_LEVELS.len()],
    /// To be published again, before other records of their level.
    again: VecDeque<Span>,
    in_flight: BTreeMap<MessageId, (Span, Records)>,
    outstanding: VecDeque<Sent>,
    last_id: u64,
}

impl Outbox {
    /// Creates an outbox that starts with the oldest records.
    pub(crate) fn new(receipt_timeout: Duration) -> Self {
        Self {
            receipt_timeout,
            next: [None; SHIPPED_LEVELS.len()],
            again: VecDeque::new(),
            in_flight: BTreeMap::new(),
            outstanding: VecDeque::new(),
            last_id: 0,
        }
    }

    /// Whether another message may be published now.
    pub(crate) fn can_publish(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT && self.outstanding.len() < MAX_OUTSTANDING
    }

    /// Number of messages in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The next message, whose records `read` appends ([`crate::spool::Spool::read`]); `None` if
    /// everything was published.
    pub(crate) fn next_message(
        &mut self,
        mut read: impl FnMut(
            Level,
            Option<SpoolCursor>,
            Option<SpoolCursor>,
            &mut Vec<u8>,
        ) -> io::Result<Reached>,
    ) -> io::Result<Option<Message>> {
        let mut payload = Vec::new();
        for (at, level) in SHIPPED_LEVELS.into_iter().enumerate() {
            while let Some(again) = self.again.iter().position(|span| span.level == level) {
                let span = self.again[again];
                let reached = read(level, span.from, Some(span.to), &mut payload)?;
                let rest = reached.next.filter(|_| reached.has_more);
                match rest {
                    Some(rest) => self.again[again].from = Some(rest),
                    None => drop(self.again.remove(again)),
                }
                if !payload.is_empty() {
                    let sent = Span { to: rest.unwrap_or(span.to), ..span };
                    return Ok(Some(self.track(sent, payload)));
                }
            }
            let from = self.next[at];
            let reached = read(level, from, None, &mut payload)?;
            self.next[at] = reached.next;
            if let Some(to) = reached.next.filter(|_| !payload.is_empty()) {
                return Ok(Some(self.track(Span { level, from, to, attempts: 0 }, payload)));
            }
        }
        Ok(None)
    }

    fn track(&mut self, span: Span, payload: Vec<u8>) -> Message {
        self.last_id += 1;
        let id = MessageId(self.last_id);
        self.in_flight.insert(id, (span, records_of(&payload)));
        Message { id, payload }
    }

    /// The server has stored a message.
    pub(crate) fn acknowledge(&mut self, id: MessageId, now: Instant) {
        // Receipts may come before.
        let Some((span, records)) =
            self.in_flight.remove(&id).filter(|(_, records)| !records.is_empty())
        else {
            return;
        };
        self.outstanding.push_back(Sent { span, records, since: now });
        if self.outstanding.len() > MERGE_OUTSTANDING {
            self.merge_successive();
        }
    }

    /// Treats successive outstanding messages of a level as one, the oldest first.
    fn merge_successive(&mut self) {
        for at in 0..self.outstanding.len() {
            let Span { level, to, .. } = self.outstanding[at].span;
            let next = self.outstanding.iter().position(|other| {
                other.span.level == level && other.span.from == Some(to) && to != other.span.to
            });
            let Some(next) = next.and_then(|next| self.outstanding.remove(next).map(|s| (next, s)))
            else {
                continue;
            };
            let (removed, sent) = next;
            let merged = &mut self.outstanding[if removed < at { at - 1 } else { at }];
            merged.span.to = sent.span.to;
            merged.span.attempts = merged.span.attempts.max(sent.span.attempts);
            merged.since = merged.since.max(sent.since);
            for (incarnation, sequences) in sent.records {
                merged.records.entry(incarnation).or_default().merge(&sequences);
            }
            return;
        }
    }

    /// The server has not stored a message, or did not say so: it is published again.
    pub(crate) fn refuse(&mut self, id: MessageId) {
        if let Some((span, _)) = self.in_flight.remove(&id) {
            self.again.push_front(span);
        }
    }

    /// A connection ended: the messages in flight may be lost.
    pub(crate) fn disconnect(&mut self) {
        while let Some((_, (span, _))) = self.in_flight.pop_last() {
            self.again.push_front(span);
        }
    }

    /// A hub has committed these records of an incarnation.
    pub(crate) fn receive_receipts(&mut self, incarnation: Incarnation, receipts: &RangeSet) {
        let settle = |records: &mut Records| {
            if let Some(sequences) = records.get(&incarnation)
                && sequences.ranges().all(|range| receipts.contains_range(range))
            {
                records.remove(&incarnation);
            }
        };
        self.in_flight.values_mut().for_each(|(_, records)| settle(records));
        self.outstanding.iter_mut().for_each(|sent| settle(&mut sent.records));
        self.outstanding.retain(|sent| !sent.records.is_empty());
    }

    fn is_overdue(&self, sent: &Sent, now: Instant) -> bool {
        let longest = MAX_RECEIPT_TIMEOUT.max(self.receipt_timeout);
        let doubled = 1_u32.checked_shl(sent.span.attempts).unwrap_or(u32::MAX);
        now.duration_since(sent.since) >= self.receipt_timeout.saturating_mul(doubled).min(longest)
    }

    /// Whether receipts of a message are overdue.
    pub(crate) fn has_overdue(&self, now: Instant) -> bool {
        self.outstanding.iter().any(|sent| self.is_overdue(sent, now))
    }

    /// Publishes messages again whose receipts are overdue. Each time, a message waits twice as long.
    pub(crate) fn repeat_overdue(&mut self, now: Instant) {
        let sent = std::mem::take(&mut self.outstanding);
        let (overdue, waiting) = sent.into_iter().partition(|sent| self.is_overdue(sent, now));
        self.outstanding = waiting;
        let overdue: VecDeque<Sent> = overdue;
        self.again.extend(
            overdue
                .into_iter()
                .map(|sent| Span { attempts: sent.span.attempts.saturating_add(1), ..sent.span }),
        );
    }
}

fn records_of(payload: &[u8]) -> Records {
    let mut records = Records::new();
    for piece in pieces(payload) {
        if let Piece::Record(record) = piece
            && let Ok(identity) = Identity::of(record)
        {
            records.entry(identity.incarnation).or_default().insert(identity.sequence);
        }
    }
    records
}

#[cfg(test)]
mod tests;
