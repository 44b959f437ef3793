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
}

impl AlertReport {
    /// Reads the report. `problems` are those of [`super::Fleet::watches`].
    ///
    /// # Errors
    /// The database failed.
    pub fn read(
        transaction: &mut dyn HubTransaction,
        problems: Vec<AlertError>,
        now_ns: i64,
    ) -> Result<Self, HubError> {
        let mut alerts: Vec<AlertState> = alert_states(transaction)?.into_values().collect();
        alerts.retain(|state| state.phase != Phase::Cleared);
        let mut maintenance = maintenance(transaction)?;
        for of in maintenance.values_mut() {
            of.retain(|it| now_ns < it.to_ns);
        }
        maintenance.retain(|_, of| !of.is_empty());
        Ok(Self {
            applied: applied_rules(transaction)?,
            lease: lease(transaction)?,
            alerts,
            deliveries: deliveries(transaction)?,
            maintenance,
            problems,
        })
    }

    /// Formats the last value of an alert; `None` without any.
    pub fn value_text(&self, state: &AlertState) -> Option<String> {
        let quantity = self.quantity(&state.rule)?;
        Some(value_text(&quantity, &state.value?))
    }

    fn quantity(&self, rule: &str) -> Option<String> {
        let rules = AlertRules::parse(&self.applied.as_ref()?.text).ok()?;
        match rules.alert.iter().find(|known| known.name == rule)?.when {
            Condition::Above { quantity, .. } => Some(quantity.name()),
            Condition::Silent(_) => None,
        }
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
                "value": state.value.map(|value| value_object(quantity.as_deref(), &value)),
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
