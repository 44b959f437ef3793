use dwell_rollup::{Body, BootId, Record, RecordFile, select_records};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A spool in memory, with one file per level.
#[derive(Default)]
struct Records {
    content: [Vec<u8>; 2],
    receipts: RangeSet,
    sequence: u64,
}

const INCARNATION: Incarnation = Incarnation(7);

impl Records {
    /// Adds a record to a level: 0 has those of 5 min.
    fn add(&mut self, level: usize) {
        self.sequence += 1;
        let node = "n1".parse().unwrap();
        let identity = Identity { node, incarnation: INCARNATION, sequence: self.sequence };
        let boot_id = BootId::default();
        let body = Body::Status(Box::default());
        let record = Record { identity, wall_ns: 0, boot_ns: 0, boot_id, body };
        record.encode(&mut self.content[level]).unwrap();
    }

    fn record_len(&self) -> usize {
        self.content.iter().map(Vec::len).sum::<usize>() / self.sequence as usize
    }

    /// Publishes the next message of at most two records. Returns its sequence numbers.
    fn publish(&self, outbox: &mut Outbox) -> Option<(MessageId, String)> {
        let len = self.content.iter().map(Vec::len).max().unwrap() as u64;
        let message = outbox.next_message(|level, from, until, message| {
            let at = SHIPPED_LEVELS.iter().position(|shipped| *shipped == level).unwrap();
            let content = &self.content[at];
            let (from, until) =
                (from.map_or(0, |from| from.offset), until.map_or(len, |u| u.offset));
            let content = &content[from as usize..content.len().min(until as usize)];
            let selection =
                select_records(content, &self.receipts, None, 2 * self.record_len(), message);
            let file = RecordFile { start: 1, incarnation: INCARNATION, first: 1 };
            let next = SpoolCursor { file, offset: from + selection.used as u64 };
            Ok(Reached { next: Some(next), has_more: selection.is_full })
        });
        let message = message.unwrap()?;
        let sequences = records_of(&message.payload).remove(&INCARNATION).unwrap();
        Some((message.id, sequences.to_string()))
    }

    /// Publishes everything.
    fn publish_all(&self, outbox: &mut Outbox) -> Vec<(MessageId, String)> {
        std::iter::from_fn(|| self.publish(outbox)).collect()
    }

    fn commit(&mut self, outbox: &mut Outbox, sequences: &str) {
        self.receipts.merge(&sequences.parse().unwrap());
        outbox.receive_receipts(INCARNATION, &self.receipts);
    }
}

fn texts(messages: &[(MessageId, String)]) -> Vec<&str> {
    messages.iter().map(|(_, text)| &**text).collect()
}

/// Records 1 to 5 of 10 s, 6 and 7 of 5 min.
fn records() -> Records {
    let mut records = Records::default();
    (0..5).for_each(|_| records.add(1));
    (0..2).for_each(|_| records.add(0));
    records
}

#[test]
fn records_of_five_minutes_go_first() {
    let mut records = records();
    let mut outbox = Outbox::new(TIMEOUT);
    assert_eq!(texts(&records.publish_all(&mut outbox)), ["6-7", "1-2", "3-4", "5"]);
    records.add(0);
    assert_eq!(texts(&records.publish_all(&mut outbox)), ["8"]);
}

#[test]
fn records_with_receipts_are_left_out() {
    let mut records = records();
    records.receipts = "2-4,6".parse().unwrap();
    let mut outbox = Outbox::new(TIMEOUT);
    assert_eq!(texts(&records.publish_all(&mut outbox)), ["7", "1,5"]);
}

#[test]
fn refused_and_lost_messages_are_published_again() {
    let records = records();
    let mut outbox = Outbox::new(TIMEOUT);
    let messages = records.publish_all(&mut outbox);
    outbox.acknowledge(messages[0].0, Instant::now());
    outbox.refuse(messages[2].0);
    assert_eq!(texts(&records.publish_all(&mut outbox)), [&messages[2].1]);
    outbox.disconnect();
    let mut again = records.publish_all(&mut outbox);
    again.sort_by(|a, b| a.1.cmp(&b.1));
    let all: String = again.iter().map(|(_, text)| format!("{text},")).collect();
    assert_eq!(all, "1-2,3-4,5,");
}

#[test]
fn window_limits_messages_in_flight() {
    let mut records = Records::default();
    (0..40).for_each(|_| records.add(1));
    let mut outbox = Outbox::new(TIMEOUT);
    let mut messages = Vec::new();
    while outbox.can_publish() {
        messages.extend(records.publish(&mut outbox));
    }
    assert_eq!(messages.len(), MAX_IN_FLIGHT);
    outbox.acknowledge(messages[3].0, Instant::now());
    assert!(outbox.can_publish());
}

#[test]
fn overdue_records_are_published_again_ever_later() {
    let mut records = records();
    let mut outbox = Outbox::new(TIMEOUT);
    let mut now = Instant::now();
    for (id, _) in records.publish_all(&mut outbox) {
        outbox.acknowledge(id, now);
    }
    assert!(!outbox.has_overdue(now + TIMEOUT - Duration::from_secs(1)));
    records.commit(&mut outbox, "1-2,5,7");
    for factor in [1, 2, 4, 8] {
        let due = now + factor * TIMEOUT;
        assert!(!outbox.has_overdue(due - Duration::from_secs(1)), "{factor}");
        outbox.repeat_overdue(due - Duration::from_secs(1));
        assert!(records.publish(&mut outbox).is_none());
        assert!(outbox.has_overdue(due));
        outbox.repeat_overdue(due);
        now = due;
        let again = records.publish_all(&mut outbox);
        assert_eq!(texts(&again), ["6", "3-4"]);
        again.iter().for_each(|(id, _)| outbox.acknowledge(*id, now));
    }
    records.commit(&mut outbox, "1-7");
    assert!(!outbox.has_overdue(now + Duration::from_secs(1_000_000)));
}

#[test]
fn receipts_may_come_before_the_acknowledgement() {
    let mut records = records();
    let mut outbox = Outbox::new(TIMEOUT);
    let messages = records.publish_all(&mut outbox);
    records.commit(&mut outbox, "1-7");
    messages.iter().for_each(|(id, _)| outbox.acknowledge(*id, Instant::now()));
    assert!(!outbox.has_overdue(Instant::now() + 2 * TIMEOUT));
}

#[test]
fn outstanding_messages_without_a_hub_are_bounded() {
    let mut records = Records::default();
    let mut outbox = Outbox::new(TIMEOUT);
    let now = Instant::now();
    for at in 0..3_000 {
        records.add(usize::from(at % 10 > 0));
        let (id, _) = records.publish(&mut outbox).unwrap();
        outbox.acknowledge(id, now);
    }
    assert!(outbox.can_publish());
    assert!(outbox.outstanding.len() <= MERGE_OUTSTANDING, "{}", outbox.outstanding.len());
    // They remain one by one in the messages that follow.
    outbox.repeat_overdue(now + TIMEOUT);
    let again = records.publish_all(&mut outbox);
    let mut all = RangeSet::new();
    again.iter().for_each(|(_, text)| all.merge(&text.parse().unwrap()));
    assert_eq!(all.to_string(), "1-3000");
}
