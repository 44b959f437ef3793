use dwell_units::Nanos;
use proptest::prelude::*;

use super::*;
use crate::delay_rollup::DelayRollup;
use crate::rollup::{ClockQuality, Level, ProbeCounts, RollupMetric, Stream};
use crate::schedule::Refusal;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn stream() -> Stream {
    Stream { reflector: name("n2"), protocol: name("text+udp"), entry: name("mesh.n1.n2") }
}

fn record(sequence: u64, body: Body) -> Record {
    Record {
        identity: Identity { node: name("n1"), incarnation: Incarnation(7), sequence },
        wall_ns: 1_700_000_000_000_000_000,
        boot_ns: 5_000_000_000,
        boot_id: BootId([9; 16]),
        body,
    }
}

fn rollup(level: Level, delays: &[(RollupMetric, Vec<i64>)]) -> Rollup {
    let received = delays.iter().map(|(_, values)| values.len() as u64).max().unwrap_or(0);
    let delays = delays.iter().filter(|(_, values)| !values.is_empty()).map(|(metric, values)| {
        let mut all = DelayRollup::default();
        values.iter().for_each(|value| assert!(all.record(Nanos(*value))));
        (*metric, all)
    });
    Rollup {
        level,
        stream: stream(),
        schedule_version: 3,
        start_wall_ns: -1,
        start_boot_ns: 4_000_000_000,
        duration_ns: level.interval().unwrap().0 as u64,
        counts: ProbeCounts {
            sent: received + 5,
            received,
            lost: 3,
            late: 2,
            ..Default::default()
        },
        delays: delays.collect(),
        clock: ClockQuality { bound_ns: Some(900), is_synchronised: true, ..Default::default() },
    }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out).unwrap();
    out
}

fn samples(len: usize) -> Body {
    Body::Samples(SampleBlock {
        stream: stream(),
        schedule_version: 0,
        start_wall_ns: 1,
        start_boot_ns: 2,
        duration_ns: 3,
        samples: 4,
        segment: vec![1; len],
    })
}

fn status() -> Body {
    Body::Status(Box::new(Status {
        dwell: "0.2.0".to_owned(),
        refused: vec![Refusal { entry: name("x"), limit: "packets: 20pps".to_owned() }],
        ..Status::default()
    }))
}

fn any_record() -> impl Strategy<Value = Record> {
    let values = prop::collection::vec(0..3_000_000_000_i64, 0..50);
    let rollups = (values.clone(), values, any::<bool>()).prop_map(|(rtt, forward, short)| {
        let level = if short { Level::TenSeconds } else { Level::FiveMinutes };
        let delays = [(RollupMetric::Rtt, rtt), (RollupMetric::OneWayForward, forward)];
        Body::Rollup(rollup(level, &delays))
    });
    let body = prop_oneof![rollups, Just(status()), (0..2_000_usize).prop_map(samples)];
    (1..=MAX_SEQUENCE, body).prop_map(|(sequence, body)| record(sequence, body))
}

proptest! {
    #[test]
    fn encoded_records_are_decoded_and_split(records in prop::collection::vec(any_record(), 0..6)) {
        let message: Vec<u8> = records.iter().flat_map(encoded).collect();
        let decoded: Vec<_> = pieces(&message)
            .map(|piece| match piece {
                Piece::Record(bytes) => Record::decode(bytes).unwrap(),
                Piece::Damaged(bytes) => panic!("{bytes:?}"),
            })
            .collect();
        prop_assert_eq!(decoded, records);
    }

    #[test]
    fn damaged_byte_hides_only_its_record(
        records in prop::collection::vec(any_record(), 1..5),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let frames: Vec<_> = records.iter().map(encoded).collect();
        let mut message = frames.concat();
        let at = at.index(message.len());
        message[at] ^= flip;
        let mut end = 0;
        let hit = frames.iter().position(|frame| {
            end += frame.len();
            at < end
        });
        let whole: Vec<_> = pieces(&message)
            .filter_map(|piece| match piece {
                Piece::Record(bytes) => Some(bytes.to_vec()),
                Piece::Damaged(_) => None,
            })
            .collect();
        let mut expected = frames;
        expected.remove(hit.unwrap());
        prop_assert_eq!(whole, expected);
        let pieces = pieces(&message).map(|piece| match piece {
            Piece::Record(bytes) | Piece::Damaged(bytes) => bytes,
        });
        prop_assert_eq!(pieces.collect::<Vec<_>>().concat(), message);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for piece in pieces(&bytes) {
            prop_assert!(matches!(piece, Piece::Damaged(_)));
        }
        prop_assert_eq!(Record::decode(&bytes), Err(CodecError::Damaged));
    }
}

/// Recomputes the checksum after a change.
fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&frame[..28], &frame[HEAD_LEN..]);
    frame[28..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
    frame
}

#[test]
fn unknown_version_keeps_its_identity() {
    let mut newer = encoded(&record(12, status()));
    newer[0] = VERSION + 1;
    let newer = resealed(newer);
    assert_eq!(pieces(&newer).collect::<Vec<_>>(), [Piece::Record(&newer)]);
    assert_eq!(Identity::of(&newer).unwrap().to_string(), "n1/0000000000000007/12");
    assert_eq!(Record::decode(&newer), Err(CodecError::UnknownVersion(VERSION + 1)));
}

#[test]
fn time_of_writing_is_read_from_a_known_version_only() {
    let mut bytes = encoded(&record(1, samples(50)));
    assert_eq!(written_at(&bytes), Some(1_700_000_000_000_000_000));
    assert_eq!([&bytes[..HEAD_LEN + 9], &[]].map(written_at), [None, None]);
    bytes[0] = VERSION + 1;
    assert_eq!(written_at(&bytes), None);
}

#[test]
fn cut_record_is_damaged_and_a_complete_one_before_it_is_not() {
    let (first, second) = (encoded(&record(1, samples(50))), encoded(&record(2, samples(50))));
    for cut in 1..second.len() {
        let message = [&first[..], &second[..cut]].concat();
        let expected = [Piece::Record(&first), Piece::Damaged(&second[..cut])];
        assert_eq!(pieces(&message).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn record_longer_than_a_message_is_refused() {
    let mut out = vec![1, 2];
    assert!(record(1, samples(MAX_MESSAGE_LEN)).encode(&mut out).is_err());
    assert_eq!(out, [1, 2]);
    record(1, samples(MAX_MESSAGE_LEN - 200)).encode(&mut out).unwrap();
    assert!(out.len() <= MAX_MESSAGE_LEN + 2);
}

#[test]
fn inconsistent_contents_are_refused() {
    let good = rollup(Level::TenSeconds, &[(RollupMetric::Rtt, vec![5, 6])]);
    let is_refused = |rollup: Rollup| {
        let frame = encoded(&record(1, Body::Rollup(rollup)));
        Record::decode(&frame) == Err(CodecError::Invalid("roll-up"))
    };
    assert!(!is_refused(good.clone()));
    let mut more_sent = good.clone();
    more_sent.counts.sent += 1;
    assert!(is_refused(more_sent));
    let mut more_reordered = good.clone();
    more_reordered.counts.reordered = 3;
    assert!(is_refused(more_reordered));
    let mut fewer_received = good.clone();
    fewer_received.counts = ProbeCounts { sent: 1, received: 1, ..Default::default() };
    assert!(is_refused(fewer_received));
    // A probe every millisecond, and a margin.
    let sent = |sent: u64| {
        let counts = ProbeCounts { sent, lost: sent - 2, received: 2, ..Default::default() };
        Rollup { counts, ..good.clone() }
    };
    assert!(!is_refused(sent(11_000)));
    assert!(is_refused(sent(11_001)) && is_refused(sent(u64::MAX)));
    let mut many_failed = good.clone();
    many_failed.counts.send_failed = u64::MAX;
    assert!(is_refused(many_failed));
    let mut many_duplicates = good.clone();
    many_duplicates.counts.duplicate = 1 << 32;
    assert!(is_refused(many_duplicates));
    let mut of_hub = good.clone();
    (of_hub.level, of_hub.duration_ns) = (Level::Hour, 3_600_000_000_000);
    assert!(is_refused(of_hub));
    let twice = Rollup { delays: [&good.delays[..], &good.delays].concat(), ..good.clone() };
    assert!(is_refused(twice));
    assert!(is_refused(Rollup { duration_ns: 9_000_000_000, ..good }));
}

#[test]
fn wrong_sequence_numbers_and_kinds_are_refused() {
    for wrong in [0, MAX_SEQUENCE + 1, u64::MAX] {
        let frame = encoded(&record(wrong, status()));
        let error = Record::decode(&frame).unwrap_err();
        assert!(error.to_string().starts_with("invalid sequence number"), "{wrong}: {error}");
    }
    assert!(Record::decode(&encoded(&record(MAX_SEQUENCE, status()))).is_ok());
    let mut kind = encoded(&record(1, status()));
    kind[4] = 9;
    assert_eq!(Record::decode(&resealed(kind)), Err(CodecError::Invalid("kind of record")));
    let mut longer = encoded(&record(1, Body::Rollup(rollup(Level::TenSeconds, &[]))));
    longer.push(0);
    let len = (longer.len() - HEAD_LEN) as u32;
    longer[8..12].copy_from_slice(&len.to_le_bytes());
    assert_eq!(Record::decode(&resealed(longer)), Err(CodecError::Invalid("roll-up")));
}

#[test]
fn search_for_a_record_ends_after_many_false_heads() {
    let mut head = encoded(&record(1, status()));
    head.truncate(HEAD_LEN);
    head[8..12].copy_from_slice(&1_000_u32.to_le_bytes());
    let whole = encoded(&record(2, status()));
    let count =
        |false_heads: usize| pieces(&[&head.repeat(false_heads), &whole[..]].concat()).count();
    assert_eq!(count(MAX_FALSE_HEADS), 2);
    assert_eq!(count(MAX_FALSE_HEADS + 2), 1);
}
