//! The state of alerts between evaluations, and what evaluations emit.

use std::collections::BTreeMap;

use dwell_rollup::Name;
use serde::{Deserialize, Serialize};

use super::condition::Value;
use super::samples::AlertSamples;
use super::watch::Subject;

/// Phase of an alert. An alert without a state is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The condition holds, but a message is not justified yet.
    Pending,
    /// The alert was sent.
    Firing,
    /// The end was sent, and the alert is not to fire again yet.
    Cleared,
}

/// State of an alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertState {
    /// Name of the rule.
    pub rule: String,
    /// What it is about.
    pub subject: Subject,
    /// The phase.
    pub phase: Phase,
    /// Measured time at which the condition was first seen to hold, or to have ended, in nanoseconds
    /// since 1970.
    pub since_ns: i64,
    /// Time of the last message that it fires.
    pub fired_ns: Option<i64>,
    /// Time of the last message, also of a reminder.
    pub notified_ns: Option<i64>,
    /// The last measured value.
    pub value: Option<Value>,
    /// Nodes that the alert names.
    #[serde(default)]
    pub nodes: BTreeMap<Name, Contact>,
    /// Names of the receivers that its rule had at the last evaluation, for the message after its removal.
    #[serde(default)]
    pub notify: Vec<String>,
    /// Nodes that fell silent after the last message, with the kind of the message that names them.
    #[serde(default)]
    pub unnamed: BTreeMap<Name, EventKind>,
}

/// Contact with a node that was silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contact {
    /// No record arrives.
    Silent,
    /// Records arrive since this time.
    Heard(i64),
    /// It is in order again.
    Back,
}

/// States by key. Alerts in order have none.
pub type AlertStates = BTreeMap<String, AlertState>;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The condition holds.
    Fired,
    /// The condition still holds.
    Reminder,
    /// The condition no longer holds.
    Cleared,
    /// A person asked for a message.
    Test,
}

impl EventKind {
    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Reminder => "reminder",
            Self::Cleared => "cleared",
            Self::Test => "test",
        }
    }
}

/// An alert in an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alerted {
    /// What it is about.
    pub subject: Subject,
    /// Measured time at which the condition was first seen to hold, in nanoseconds since 1970.
    pub since_ns: i64,
    /// The measured value.
    pub value: Option<Value>,
    /// Nodes of a site.
    #[serde(default)]
    pub nodes: Vec<Name>,
    /// Why it ended other than by its condition.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its samples; `None` if its rule wants none.
    #[serde(default)]
    pub samples: Option<AlertSamples>,
}

/// A change that receivers are notified of.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// Name of the rule.
    pub rule: String,
    /// What happened.
    pub kind: EventKind,
    /// The alert.
    pub alert: Alerted,
    /// Names of the receivers.
    pub receivers: Vec<String>,
}
