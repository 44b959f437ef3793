//! Events of alerts: what receivers are notified of, and the history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::condition::{Condition, Quantity, Value};
use super::file::Rule;
use super::samples::AlertSamples;
use super::state::{Alerted, EventKind, Transition};
use super::watch::Subject;
use crate::error::HubError;
use crate::object::time_text;
use crate::store::{HubTransaction, TextKind};

/// Number of events that are kept.
pub const MAX_EVENTS: usize = 1_000;

/// Maximum number of alerts that an event lists.
const MAX_LISTED: usize = 50;

/// Maximum number of sites of one rule that have an event each in one evaluation.
const MAX_SITE_EVENTS: usize = 10;

/// Result of notifying a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the receiver, and the way: `ops webhook`.
    pub receiver: String,
    /// Time in nanoseconds since 1970.
    pub at_ns: i64,
    /// Number of attempts.
    pub attempts: u32,
    /// Why it was given up; `None` if it was delivered.
    pub error: Option<String>,
}

/// An event. Alerts of one rule that fire or clear at once share an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number, from 1.
    pub id: u64,
    /// What happened.
    pub kind: EventKind,
    /// Name of the rule; of the receiver in a test.
    pub rule: String,
    /// Condition of the rule.
    pub condition: String,
    /// Name of the compared quantity; `None` for silence.
    pub quantity: Option<String>,
    /// Time of the evaluation in nanoseconds since 1970.
    pub at_ns: i64,
    /// Number of alerts.
    pub count: u64,
    /// The first alerts.
    pub alerts: Vec<Alerted>,
    /// Notified receivers.
    #[serde(default)]
    pub outcomes: Vec<Outcome>,
}

/// A message about an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// One line: rule, subject of the alert, value.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// The `dwell.alert/1` object.
    pub object: Json,
}

impl Event {
    /// Creates an event of alerts of one rule. `rule` is `None` if the rule was removed.
    pub(super) fn new(
        id: u64,
        (kind, name, rule): (EventKind, String, Option<&Rule>),
        at_ns: i64,
        mut alerts: Vec<Alerted>,
    ) -> Self {
        let count = alerts.len() as u64;
        alerts.truncate(MAX_LISTED);
        let quantity = match rule.map(|rule| rule.when) {
            Some(Condition::Above { quantity, .. }) => Some(quantity.name()),
            _ => None,
        };
        let condition = rule.map(|rule| rule.when.to_string()).unwrap_or_default();
        let outcomes = Vec::new();
        Self { id, kind, rule: name, condition, quantity, at_ns, count, alerts, outcomes }
    }

    /// The alert in one line: its subject and value.
    pub fn line(&self, alert: &Alerted) -> String {
        let mut line = alert.subject.to_string();
        // The rule of a value may have been removed.
        if let (Some(value), Some(name)) = (&alert.value, self.quantity.as_deref()) {
            line += &format!(" {} (n = {})", value_text(name, value), value.n);
        }
        if !alert.nodes.is_empty() {
            let state = if self.kind == EventKind::Cleared { "heard again" } else { "silent" };
            line += &match (&alert.subject, alert.nodes.len()) {
                (Subject::Site(_), 1) => format!(" 1 node {state}"),
                (Subject::Site(_), count) => format!(" {count} nodes {state}"),
                _ => format!(" {state}"),
            };
        }
        if let Some(reason) = &alert.reason {
            line += &format!(" ({reason})");
        }
        line
    }

    /// The alert in one line as [`Self::line`], with its samples.
    pub fn details(&self, alert: &Alerted) -> String {
        match &alert.samples {
            Some(samples) => format!("{}; {}", self.line(alert), samples.text()),
            None => self.line(alert),
        }
    }

    /// The message that receivers get.
    pub fn message(&self) -> Message {
        let kind = self.kind.name();
        let first = self.alerts.first().map(|alert| self.line(alert)).unwrap_or_default();
        let subject = match self.count {
            0 => format!("[dwell] {kind}: {}", self.rule),
            1 => format!("[dwell] {kind}: {} {first}", self.rule),
            count => format!("[dwell] {kind}: {} {count} alerts, first {first}", self.rule),
        };
        let mut text = match self.kind {
            EventKind::Test => format!("A message to test receiver {}.\n", self.rule),
            _ => format!("Alert {} {kind}: {}\n\n", self.rule, self.condition),
        };
        for alert in &self.alerts {
            text += &format!("{}, since {}\n", self.line(alert), time_text(alert.since_ns));
            if !alert.nodes.is_empty() {
                let nodes: Vec<_> = alert.nodes.iter().map(ToString::to_string).collect();
                text += &format!("  nodes: {}\n", nodes.join(", "));
            }
            if let Some(samples) = &alert.samples {
                text += &format!("  {}\n", samples.text());
            }
        }
        let listed = self.alerts.len() as u64;
        if self.count > listed {
            text += &format!("and {} more\n", self.count - listed);
        }
        text += &format!("\nEvent {} at {}\n", self.id, time_text(self.at_ns));
        Message { subject, text, object: self.object() }
    }

    /// The `dwell.alert/1` object.
    pub fn object(&self) -> Json {
        json!({
            "schema": "dwell.alert/1",
            "id": self.id,
            "event": self.kind.name(),
            "rule": self.rule,
            "condition": self.condition,
            "time": time_text(self.at_ns),
            "count": self.count,
            "alerts": self.alerts.iter().map(|alert| self.alert_object(alert)).collect::<Vec<_>>(),
        })
    }

    fn alert_object(&self, alert: &Alerted) -> Json {
        json!({
            "subject": subject_object(&alert.subject),
            "since": time_text(alert.since_ns),
            "value": alert.value.map(|value| value_object(self.quantity.as_deref(), &value)),
            "nodes": alert.nodes,
            "reason": alert.reason,
            "samples": alert.samples.as_ref().map(AlertSamples::object),
        })
    }
}

/// Formats a value of a quantity with this name.
pub(super) fn value_text(name: &str, value: &Value) -> String {
    let words: Vec<&str> = name.split(' ').collect();
    let Some(quantity) = Quantity::parse(&words) else { return String::new() };
    let (low, high) = (quantity.text(value.low), quantity.text(value.high));
    if low == high { format!("{name} {low}") } else { format!("{name} {low} to {high}") }
}

/// What an alert is about, in JSON.
pub(super) fn subject_object(subject: &Subject) -> Json {
    match subject {
        Subject::Pair { sender, reflector, measure } => {
            json!({ "sender": sender, "reflector": reflector, "measure": measure })
        }
        Subject::Node(node) => json!({ "node": node }),
        Subject::Site(site) => json!({ "site": site }),
    }
}

/// A measured value, in JSON.
pub(super) fn value_object(quantity: Option<&str>, value: &Value) -> Json {
    let unit = if quantity == Some("loss") { "ratio" } else { "ns" };
    let Value { low, high, n } = value;
    json!({ "quantity": quantity, "unit": unit, "low": low, "high": high, "n": n })
}

/// Alerts of an event.
pub(super) struct Group {
    pub(super) kind: EventKind,
    pub(super) rule: String,
    pub(super) alerts: Vec<Alerted>,
    pub(super) receivers: Vec<String>,
}

/// Forms events from transitions: one for all streams of a rule, and one for each site, or one for all
/// sites if there are many, as when the network of the hub fails.
pub(super) fn group(transitions: Vec<Transition>) -> Vec<Group> {
    let mut groups: BTreeMap<(String, EventKind, Vec<String>), Vec<Alerted>> = BTreeMap::new();
    for Transition { rule, kind, alert, receivers } in transitions {
        groups.entry((rule, kind, receivers)).or_default().push(alert);
    }
    let mut events = Vec::new();
    for ((rule, kind, receivers), alerts) in groups {
        let is_pair = |alert: &Alerted| matches!(alert.subject, Subject::Pair { .. });
        let (pairs, sites): (Vec<_>, Vec<_>) = alerts.into_iter().partition(is_pair);
        let sites = if sites.len() > MAX_SITE_EVENTS {
            vec![sites]
        } else {
            sites.into_iter().map(|site| vec![site]).collect()
        };
        let groups = std::iter::once(pairs).chain(sites).filter(|group| !group.is_empty());
        events.extend(groups.map(|alerts| {
            let (rule, receivers) = (rule.clone(), receivers.clone());
            Group { kind, rule, alerts, receivers }
        }));
    }
    events
}

fn event_key(id: u64) -> String {
    format!("{id:020}")
}

/// Returns the kept events, the oldest first.
///
/// # Errors
/// The database failed.
pub fn events(transaction: &mut dyn HubTransaction) -> Result<Vec<Event>, HubError> {
    let texts = transaction.texts(TextKind::AlertEvent)?;
    let events = texts.values().map(|text| serde_json::from_str(text));
    events.collect::<Result<_, _>>().map_err(|error| HubError::stored("event", error))
}

/// Stores an event, new or changed.
pub(super) fn store(transaction: &mut dyn HubTransaction, event: &Event) -> Result<(), HubError> {
    let text = serde_json::to_string(event).map_err(|error| HubError::stored("event", error))?;
    transaction.set_text(TextKind::AlertEvent, &event_key(event.id), Some(&text))
}

/// Removes the oldest events beyond [`MAX_EVENTS`]. Events with undelivered messages stay.
pub(super) fn trim(
    transaction: &mut dyn HubTransaction,
    is_delivered: impl Fn(u64) -> bool,
) -> Result<(), HubError> {
    let kept = events(transaction)?;
    let surplus = kept.len().saturating_sub(MAX_EVENTS);
    for event in kept.iter().take(surplus).filter(|event| is_delivered(event.id)) {
        transaction.set_text(TextKind::AlertEvent, &event_key(event.id), None)?;
    }
    Ok(())
}

/// The number of the next event.
pub(super) fn next_id(transaction: &mut dyn HubTransaction) -> Result<u64, HubError> {
    let texts = transaction.texts(TextKind::AlertEvent)?;
    let last = texts.keys().next_back().and_then(|key| key.parse::<u64>().ok());
    Ok(last.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sites_share_an_event() {
        let transition = |subject: Subject| Transition {
            rule: "gone".to_owned(),
            kind: EventKind::Fired,
            alert: Alerted {
                subject,
                since_ns: 0,
                value: None,
                nodes: Vec::new(),
                reason: None,
                samples: None,
            },
            receivers: Vec::new(),
        };
        let sites = |count: usize| {
            let site = |n: usize| transition(Subject::Site(n.to_string()));
            group((0..count).map(site).collect())
                .iter()
                .map(|it| it.alerts.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(sites(3), [1, 1, 1]);
        assert_eq!(sites(70), [70]);
        let [sender, reflector] = ["a", "b"].map(|name| name.parse().unwrap());
        let pair = Subject::Pair { sender, reflector, measure: "mesh".to_owned() };
        let groups = group(vec![transition(pair.clone()), transition(pair.clone())]);
        assert_eq!(groups[0].alerts.len(), 2);
        let (kind, rule) = (groups[0].kind, groups[0].rule.clone());
        let alerts = vec![transition(pair).alert; 70];
        let message = Event::new(7, (kind, rule, None), 0, alerts).message();
        assert_eq!(message.subject, "[dwell] fired: gone 70 alerts, first a:b mesh");
        assert!(message.text.contains("and 20 more\n"), "{}", message.text);
        assert_eq!(message.object["alerts"].as_array().unwrap().len(), 50);
    }
}
