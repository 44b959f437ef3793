//! Messages between nodes and hubs on a NATS bus: subjects, questions and answers.
//!
//! | subject | from, to | payload |
//! |---|---|---|
//! | `dwell.up.NODE` | node, stream [`STREAM`] | records, at most [`MAX_MESSAGE_LEN`](crate::MAX_MESSAGE_LEN) bytes |
//! | `dwell.ask.NODE` | node, a hub | a [`Question`]; the reply is an [`Answer`] |
//! | `dwell.down.NODE.receipts` | a hub, node | an [`Answer`] without a schedule |
//! | `dwell.down.NODE.schedule` | a hub, node | a [`NodeSchedule`](crate::NodeSchedule) as JSON |
//!
//! `NODE` is the name of the node with `.` as `%2E` and `+` as `%2B`. Replies go to subjects below
//! `_INBOX.NODE`, so a server can permit each node exactly its own subjects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::Name;
use crate::ranges::RangeSet;
use crate::record::Incarnation;

/// Name of the stream that holds records until a hub has committed them.
pub const STREAM: &str = "DWELL";

/// Name of the durable consumer that all hubs share.
pub const CONSUMER: &str = "hub";

/// Maximum length of a [`Question`] in bytes.
pub const MAX_QUESTION_LEN: usize = 64 << 10;

/// Maximum number of incarnations in a [`Question`].
pub const MAX_ASKED_INCARNATIONS: usize = 1_000;

/// Maximum length of an [`Answer`] in bytes: the default `max_payload` of nats-server.
pub const MAX_ANSWER_LEN: usize = 1 << 20;

/// Subjects of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Records.
    Up,
    /// Questions.
    Ask,
    /// Receipts.
    Receipts,
    /// The schedule.
    Schedule,
}

impl Subject {
    /// All kinds of subjects.
    pub const ALL: [Self; 4] = [Self::Up, Self::Ask, Self::Receipts, Self::Schedule];

    const fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::Up => ("dwell.up.", ""),
            Self::Ask => ("dwell.ask.", ""),
            Self::Receipts => ("dwell.down.", ".receipts"),
            Self::Schedule => ("dwell.down.", ".schedule"),
        }
    }

    /// The subject of a node.
    pub fn of(self, node: &Name) -> String {
        let (before, after) = self.around();
        format!("{before}{}{after}", token(node))
    }

    /// The subject of all nodes, with a wildcard.
    pub fn of_all(self) -> String {
        let (before, after) = self.around();
        format!("{before}*{after}")
    }

    /// The kind and the node of a subject; `None` for other subjects.
    pub fn parse(subject: &str) -> Option<(Self, Name)> {
        Self::ALL.into_iter().find_map(|kind| {
            let (before, after) = kind.around();
            let token = subject.strip_prefix(before)?.strip_suffix(after)?;
            Some((kind, node_of(token)?))
        })
    }
}

/// Prefix of the subjects of replies to a node.
pub fn inbox_prefix(node: &Name) -> String {
    format!("_INBOX.{}", token(node))
}

/// The subjects that the server permits a node to publish to, and those that it may subscribe to.
pub fn permitted_subjects(node: &Name) -> (Vec<String>, Vec<String>) {
    let publish = vec![Subject::Up.of(node), Subject::Ask.of(node)];
    let down = format!("dwell.down.{}.>", token(node));
    (publish, vec![down, format!("{}.>", inbox_prefix(node))])
}

/// The name of a node as one token of a subject: without `.`, which separates tokens, and `+`, which is
/// a wildcard where the bus also serves MQTT.
fn token(node: &Name) -> String {
    node.as_str().replace('.', "%2E").replace('+', "%2B")
}

fn node_of(text: &str) -> Option<Name> {
    let node = text.replace("%2E", ".").replace("%2B", "+").parse().ok()?;
    // Another spelling would give a node a second subject.
    (token(&node) == text).then_some(node)
}

/// What a node asks at its start, after a new connection, and when receipts are overdue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The node.
    pub node: Name,
    /// Incarnations with records that have no receipt, at most [`MAX_ASKED_INCARNATIONS`].
    pub incarnations: Vec<Incarnation>,
    /// Version of the schedule that the node has; 0 without one. `None` asks for the schedule in any case,
    /// because versions of two hubs may be equal.
    pub schedule_version: Option<u64>,
}

/// What a hub has of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The node.
    pub node: Name,
    /// Committed sequence numbers of incarnations. In the answer to a [`Question`], they are all of those
    /// that it names, unless the message has no space for them; otherwise, they are the ranges with
    /// records that a hub has just received. A node sends records again that are missing here.
    pub receipts: BTreeMap<Incarnation, RangeSet>,
    /// The schedule as JSON; `None` leaves the one that the node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

/// A message that is neither a question nor an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum BusError {
    #[error("a message of {0} bytes; at most {1}")]
    TooLong(usize, usize),
    #[error("invalid message: {0}")]
    Malformed(String),
    #[error("{0} incarnations; at most {MAX_ASKED_INCARNATIONS}")]
    TooManyIncarnations(usize),
    #[error("the message is about node {about}, its subject about {node}")]
    OtherNode { node: Name, about: Name },
}

impl Question {
    /// Parses a question of `node`, the node of its subject.
    ///
    /// # Errors
    /// See [`BusError`].
    pub fn from_json(json: &[u8], node: &Name) -> Result<Self, BusError> {
        let question: Self = parse(json, MAX_QUESTION_LEN)?;
        check_node(node, &question.node)?;
        if question.incarnations.len() > MAX_ASKED_INCARNATIONS {
            return Err(BusError::TooManyIncarnations(question.incarnations.len()));
        }
        Ok(question)
    }

    /// The question as JSON.
    ///
    /// # Errors
    /// [`BusError::TooManyIncarnations`].
    pub fn to_json(&self) -> Result<String, BusError> {
        if self.incarnations.len() > MAX_ASKED_INCARNATIONS {
            return Err(BusError::TooManyIncarnations(self.incarnations.len()));
        }
        encode(self, MAX_QUESTION_LEN)
    }
}

impl Answer {
    /// Parses an answer to `node`.
    ///
    /// # Errors
    /// See [`BusError`].
    pub fn from_json(json: &[u8], node: &Name) -> Result<Self, BusError> {
        let answer: Self = parse(json, MAX_ANSWER_LEN)?;
        check_node(node, &answer.node)?;
        Ok(answer)
    }

    /// The answer as JSON.
    ///
    /// # Errors
    /// [`BusError::TooLong`]: leave out the schedule and publish it to [`Subject::Schedule`], or leave
    /// out incarnations.
    pub fn to_json(&self) -> Result<String, BusError> {
        encode(self, MAX_ANSWER_LEN)
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], max_len: usize) -> Result<T, BusError> {
    if json.len() > max_len {
        return Err(BusError::TooLong(json.len(), max_len));
    }
    serde_json::from_slice(json).map_err(|error| BusError::Malformed(error.to_string()))
}

fn encode<T: Serialize>(message: &T, max_len: usize) -> Result<String, BusError> {
    let json = serde_json::to_string(message).expect("all keys of maps are text");
    if json.len() > max_len {
        return Err(BusError::TooLong(json.len(), max_len));
    }
    Ok(json)
}

fn check_node(node: &Name, about: &Name) -> Result<(), BusError> {
    if node != about {
        return Err(BusError::OtherNode { node: node.clone(), about: about.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn subjects_of_a_node_have_one_spelling() {
        let node = name("site-7.gw+a");
        assert_eq!(Subject::Up.of(&node), "dwell.up.site-7%2Egw%2Ba");
        assert_eq!(Subject::Schedule.of(&node), "dwell.down.site-7%2Egw%2Ba.schedule");
        assert_eq!(Subject::Receipts.of_all(), "dwell.down.*.receipts");
        for wrong in [
            "dwell.up.",
            "dwell.up.a.b",
            "dwell.up.a+b",
            "dwell.up.a%2eb",
            "dwell.up.*",
            "dwell.up.%2E",
            "dwell.down.a",
            "dwell.down.a.pause",
            "other.up.a",
        ] {
            assert_eq!(Subject::parse(wrong), None, "{wrong}");
        }
        let (publish, subscribe) = permitted_subjects(&name("n.1"));
        assert_eq!(publish, ["dwell.up.n%2E1", "dwell.ask.n%2E1"]);
        assert_eq!(subscribe, ["dwell.down.n%2E1.>", "_INBOX.n%2E1.>"]);
    }

    proptest! {
        #[test]
        fn subjects_give_their_node(text in "[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,63}") {
            let node = name(&text);
            for kind in Subject::ALL {
                let subject = kind.of(&node);
                prop_assert!(subject.split('.').count() <= 4 && !subject.contains('+'));
                prop_assert_eq!(Subject::parse(&subject), Some((kind, node.clone())));
            }
        }

        #[test]
        fn arbitrary_messages_do_not_panic(bytes in any::<Vec<u8>>(), text in ".*") {
            let node = name("n1");
            for message in [&bytes[..], text.as_bytes()] {
                let _ = Question::from_json(message, &node);
                let _ = Answer::from_json(message, &node);
            }
            let _ = Subject::parse(&text);
        }
    }

    #[test]
    fn questions_and_answers_keep_their_content() {
        let node = name("n1");
        let question = Question {
            node: node.clone(),
            incarnations: vec![Incarnation(7), Incarnation(u64::MAX)],
            schedule_version: Some(3),
        };
        let json = question.to_json().unwrap();
        assert_eq!(
            json,
            r#"{"node":"n1","incarnations":["0000000000000007","ffffffffffffffff"],"schedule_version":3}"#
        );
        assert_eq!(Question::from_json(json.as_bytes(), &node), Ok(question));

        let mut answer = Answer {
            node: node.clone(),
            receipts: BTreeMap::from([(Incarnation(7), "1-5,7".parse().unwrap())]),
            schedule: None,
        };
        let json = answer.to_json().unwrap();
        assert_eq!(json, r#"{"node":"n1","receipts":{"0000000000000007":"1-5,7"}}"#);
        assert_eq!(Answer::from_json(json.as_bytes(), &node).as_ref(), Ok(&answer));
        answer.schedule = Some(r#"{"version":3,"node":"n1"}"#.to_owned());
        let json = answer.to_json().unwrap();
        assert_eq!(Answer::from_json(json.as_bytes(), &node), Ok(answer));
    }

    #[test]
    fn messages_beyond_their_bounds_are_refused() {
        let node = name("n1");
        let incarnations = vec![Incarnation(1); MAX_ASKED_INCARNATIONS + 1];
        let question = Question { node: node.clone(), incarnations, schedule_version: None };
        assert_eq!(
            question.to_json(),
            Err(BusError::TooManyIncarnations(MAX_ASKED_INCARNATIONS + 1))
        );
        let json = serde_json::to_vec(&question).unwrap();
        assert!(matches!(Question::from_json(&json, &node), Err(BusError::TooManyIncarnations(_))));
        let full = Question {
            node: name(&"x".repeat(crate::MAX_NAME_LEN)),
            incarnations: vec![Incarnation(1); MAX_ASKED_INCARNATIONS],
            schedule_version: Some(u64::MAX),
        };
        assert!(full.to_json().is_ok(), "the number is the limit, not the length");

        let schedule = Some("x".repeat(MAX_ANSWER_LEN));
        let answer = Answer { node: node.clone(), receipts: BTreeMap::new(), schedule };
        assert!(matches!(answer.to_json(), Err(BusError::TooLong(..))));
        let json = serde_json::to_vec(&answer).unwrap();
        assert!(matches!(Answer::from_json(&json, &node), Err(BusError::TooLong(..))));
    }

    #[test]
    fn answers_about_another_node_are_refused() {
        let (node, about) = (name("n1"), name("n2"));
        let json = r#"{"node":"n2","receipts":{},"incarnations":[],"schedule_version":0}"#;
        let other = BusError::OtherNode { node: node.clone(), about };
        assert_eq!(Answer::from_json(json.as_bytes(), &node), Err(other.clone()));
        assert_eq!(Question::from_json(json.as_bytes(), &node), Err(other));
        for wrong in [
            "",
            "[]",
            r#"{"node":"n1"}"#,
            r#"{"node":"n1","receipts":{"7":"1"}}"#,
            r#"{"node":"n1","receipts":{"0000000000000007":"2-1"}}"#,
            r#"{"node":"n1","receipts":{"0000000000000007":[1]}}"#,
            r#"{"node":"n1","receipts":{},"schedule":{"version":1}}"#,
        ] {
            let refused = Answer::from_json(wrong.as_bytes(), &node);
            assert!(matches!(refused, Err(BusError::Malformed(_))), "{wrong}: {refused:?}");
        }
    }
}
