//! Alerts as JSON, for commands and pages.

use std::collections::BTreeMap;

use dwell_rollup::Name;
use serde_json::{Value as Json, json};

use super::applied::{AppliedRules, applied_rules};
use super::condition::Condition;
use super::delivery::{Delivery, deliveries};
use super::error::AlertError;
use super::event::{Event, subject_object, value_object, value_text};
use super::file::AlertRules;
use super::lease::{Lease, lease};
use super::maintenance::{Maintenance, maintenance};
use super::round::alert_states;
use super::state::{AlertState, Contact, Phase};
use super::watch::Fleet;
use crate::error::HubError;
use crate::object::time_text;
use crate::store::HubTransaction;

/// What a hub knows about alerts now.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertReport {
    /// The applied rules.
    pub applied: Option<AppliedRules>,
    /// The hub that evaluates them.
    pub lease: Option<Lease>,
    /// Alerts that are firing or pending.
    pub alerts: Vec<AlertState>,
    /// Messages that are not delivered yet.
    pub deliveries: Vec<Delivery>,
    /// Announced maintenance.
    pub maintenance: BTreeMap<Name, Vec<Maintenance>>,
    /// What prevents the evaluation of rules.
    pub problems: Vec<AlertError>,
    /// Name of the quantity of each rule that has one.
    quantities: BTreeMap<String, String>,
}

impl AlertReport {
    /// Reads the report.
    ///
    /// # Errors
    /// The database failed.
    pub fn read(transaction: &mut dyn HubTransaction, now_ns: i64) -> Result<Self, HubError> {
        let applied = applied_rules(transaction)?;
        let mut quantities = BTreeMap::new();
        let problems = match applied.as_ref().map(|applied| AlertRules::parse(&applied.text)) {
            None => Vec::new(),
            Some(Err(error)) => vec![error],
            Some(Ok(rules)) => {
                quantities.extend(rules.alert.iter().filter_map(|rule| match rule.when {
                    Condition::Above { quantity, .. } => Some((rule.name.clone(), quantity.name())),
                    Condition::Silent(_) => None,
                }));
                let watches = Fleet::read(transaction)?.watches(&rules).into_iter();
                watches.flat_map(|watch| watch.problems).collect()
            }
        };
        let mut alerts: Vec<AlertState> = alert_states(transaction)?.into_values().collect();
        alerts.retain(|state| state.phase != Phase::Cleared);
        let mut maintenance = maintenance(transaction)?;
        for of in maintenance.values_mut() {
            of.retain(|it| now_ns < it.to_ns);
        }
        maintenance.retain(|_, of| !of.is_empty());
        Ok(Self {
            applied,
            lease: lease(transaction)?,
            alerts,
            deliveries: deliveries(transaction)?,
            maintenance,
            problems,
            quantities,
        })
    }

    /// Formats the last value of an alert; `None` without any.
    pub fn value_text(&self, state: &AlertState) -> Option<String> {
        Some(value_text(self.quantity(&state.rule)?, &state.value?))
    }

    fn quantity(&self, rule: &str) -> Option<&str> {
        self.quantities.get(rule).map(String::as_str)
    }
}

/// Returns the `dwell.alerts/1` object: alerts that are firing or pending, and the state of delivery.
pub fn alerts_object(report: &AlertReport) -> Json {
    let alerts: Vec<Json> = report
        .alerts
        .iter()
        .map(|state| {
            let quantity = report.quantity(&state.rule);
            let silent = state.nodes.iter().filter(|(_, contact)| **contact != Contact::Back);
            json!({
                "rule": state.rule,
                "subject": subject_object(&state.subject),
                "phase": if state.phase == Phase::Firing { "firing" } else { "pending" },
                "since": time_text(state.since_ns),
                "notified": state.notified_ns.map(time_text),
                "value": state.value.map(|value| value_object(quantity, &value)),
                "nodes": silent.map(|(node, _)| node).collect::<Vec<_>>(),
            })
        })
        .collect();
    let deliveries: Vec<Json> = report
        .deliveries
        .iter()
        .map(|delivery| {
            json!({
                "event": delivery.event,
                "receiver": delivery.receiver,
                "way": delivery.way,
                "attempts": delivery.attempts,
                "next": time_text(delivery.next_ns),
                "error": delivery.error,
            })
        })
        .collect();
    let of_nodes = report.maintenance.iter();
    let maintenance: Vec<Json> = of_nodes
        .flat_map(|(node, of)| {
            of.iter().map(move |it| {
                json!({
                    "node": node,
                    "from": time_text(it.from_ns),
                    "to": time_text(it.to_ns),
                    "reason": it.reason,
                    "author": it.author,
                })
            })
        })
        .collect();
    json!({
        "schema": "dwell.alerts/1",
        "applied": report.applied.as_ref().map(|applied| time_text(applied.applied_ns)),
        "evaluator": report.lease.as_ref().map(|lease| json!({
            "hub": lease.hub,
            "evaluated": time_text(lease.evaluated_ns),
        })),
        "alerts": alerts,
        "deliveries": deliveries,
        "maintenance": maintenance,
        "problems": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Returns the `dwell.alert-history/1` object: the kept events, the oldest first.
pub fn alert_history_object(events: &[Event]) -> Json {
    let events: Vec<Json> = events
        .iter()
        .map(|event| {
            let outcomes = event.outcomes.iter().map(|outcome| {
                json!({
                    "receiver": outcome.receiver,
                    "time": time_text(outcome.at_ns),
                    "attempts": outcome.attempts,
                    "error": outcome.error,
                })
            });
            let mut object = event.object();
            object["outcomes"] = outcomes.collect();
            object
        })
        .collect();
    json!({ "schema": "dwell.alert-history/1", "events": events })
}
