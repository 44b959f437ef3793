//! Fuzz target for records, receipts, schedules and bus messages of continuous measurement: split a
//! message, decode its records and encode them again. Shared by the libFuzzer target and the smoke test of
//! `core/rollup`.

use dwell_rollup::{
    Answer, CodecError, DelayRollup, Identity, Name, NodeSchedule, Piece, Question, RangeSet,
    Record, Subject, pieces,
};

pub(crate) fn rollup(data: &[u8]) {
    let mut len = 0;
    for piece in pieces(data) {
        let bytes = match piece {
            Piece::Record(bytes) | Piece::Damaged(bytes) => bytes,
        };
        assert!(!bytes.is_empty());
        len += bytes.len();
        let decoded = Record::decode(bytes);
        match (piece, decoded) {
            (Piece::Record(_), Ok(record)) => {
                assert_eq!(Identity::of(bytes).as_ref(), Ok(&record.identity));
                let mut again = Vec::new();
                // The JSON of a status may grow, such as by fields with defaults.
                if record.encode(&mut again).is_ok() {
                    assert_eq!(Record::decode(&again), Ok(record));
                }
            }
            (Piece::Record(_), Err(error)) => assert_ne!(error, CodecError::Damaged),
            (Piece::Damaged(_), decoded) => assert_eq!(decoded, Err(CodecError::Damaged)),
        }
    }
    assert_eq!(len, data.len(), "every byte is in one piece");
    if let Some(delays) = DelayRollup::from_bytes(data) {
        assert_eq!(delays.to_bytes(), data, "one encoding per distribution");
    }
    if let Ok(schedule) = NodeSchedule::from_json(data) {
        assert_eq!(NodeSchedule::from_json(schedule.to_json().as_bytes()), Ok(schedule));
    }
    let node: Name = "n1".parse().expect("a valid name");
    if let Ok(question) = Question::from_json(data, &node) {
        let again = question.to_json().expect("it is within its bounds");
        assert_eq!(Question::from_json(again.as_bytes(), &node), Ok(question));
    }
    if let Ok(answer) = Answer::from_json(data, &node)
        && let Ok(again) = answer.to_json()
    {
        assert_eq!(Answer::from_json(again.as_bytes(), &node), Ok(answer));
    }
    if let Some((kind, node)) = std::str::from_utf8(data).ok().and_then(Subject::parse) {
        assert_eq!(Some(kind.of(&node).as_bytes()), Some(data), "one spelling per subject");
    }
    if let Some(set) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<RangeSet>().ok())
    {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
}
