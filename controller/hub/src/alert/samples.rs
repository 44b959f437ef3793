//! Samples that an alert wants: a request for those of its stream, over the time of its condition.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::condition::Condition;
use super::evaluate::Figures;
use super::file::AlertRules;
use super::state::{EventKind, Transition};
use super::watch::{Subject, alert_key};
use crate::collection::collected_nodes;
use crate::error::HubError;
use crate::samples::{SampleRequest, SampleRequestState, alert_author, lock_requests, requests};
use crate::store::HubTransaction;

/// Samples of an alert whose rule wants them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertSamples {
    /// Requested under this number.
    Requested(u64),
    /// Not requested, for this reason.
    NotRequested(String),
}

impl AlertSamples {
    /// Describes them for a message.
    pub fn text(&self) -> String {
        match self {
            Self::Requested(number) => {
                format!("samples: request {number}; see `dwell hub samples list`")
            }
            Self::NotRequested(reason) => format!("samples: not requested: {reason}"),
        }
    }

    pub(super) fn object(&self) -> Json {
        match self {
            Self::Requested(number) => json!({ "request": number, "reason": null }),
            Self::NotRequested(reason) => json!({ "request": null, "reason": reason }),
        }
    }
}

/// Requests samples for the alerts that fire and whose rules want them: at most one open request per
/// rule and sender. The caller holds the lock of alerts, and stores the states in this transaction, so
/// an alert that fires has one request, whatever the number of hubs and evaluations.
pub(super) fn request_samples(
    transaction: &mut dyn HubTransaction,
    rules: &AlertRules,
    figures: &Figures,
    transitions: &mut [Transition],
    now_ns: i64,
) -> Result<(), HubError> {
    let mut open: Option<Open> = None;
    for transition in transitions.iter_mut().filter(|it| it.kind == EventKind::Fired) {
        let rule = rules.alert.iter().find(|rule| rule.name == transition.rule && rule.samples);
        let Some((rule, Subject::Pair { sender, reflector, .. })) =
            rule.map(|rule| (rule, &transition.alert.subject))
        else {
            continue;
        };
        let Condition::Above { span, .. } = rule.when else { continue };
        let key = alert_key(&rule.name, &transition.alert.subject);
        let Some(of) = figures.streams.get(&key) else { continue };
        let open = match &mut open {
            Some(open) => open,
            none => none.insert(Open::read(transaction)?),
        };
        let request = SampleRequest {
            number: 0,
            sender: sender.clone(),
            reflector: reflector.clone(),
            from_ns: of.end_ns.saturating_sub(span.ns()),
            to_ns: of.end_ns,
            requested_ns: now_ns,
            author: alert_author(&rule.name),
            state: SampleRequestState::Pending,
            ended_ns: None,
            gone_before_ns: None,
        };
        transition.alert.samples = Some(open.add(transaction, request)?);
    }
    Ok(())
}

/// What decides whether another request is made.
struct Open {
    /// Number of the open request of an author for a sender.
    numbers: BTreeMap<(String, Name), u64>,
    collected: BTreeSet<Name>,
    next: u64,
}

impl Open {
    fn read(transaction: &mut dyn HubTransaction) -> Result<Self, HubError> {
        lock_requests(transaction)?;
        let all = requests(transaction)?;
        let next = all.last().map_or(1, |last| last.number + 1);
        let open = all.into_iter().filter(|it| it.state == SampleRequestState::Pending);
        let numbers = open.map(|it| ((it.author, it.sender), it.number)).collect();
        Ok(Self { numbers, collected: collected_nodes(transaction)?, next })
    }

    fn add(
        &mut self,
        transaction: &mut dyn HubTransaction,
        request: SampleRequest,
    ) -> Result<AlertSamples, HubError> {
        let sender = &request.sender;
        if !self.collected.contains(sender) {
            let reason = format!("no hub collects from {sender} over SSH");
            return Ok(AlertSamples::NotRequested(reason));
        }
        let key = (request.author.clone(), sender.clone());
        if let Some(number) = self.numbers.get(&key) {
            let reason = format!("request {number} of this rule for {sender} is not complete");
            return Ok(AlertSamples::NotRequested(reason));
        }
        let number = self.next;
        SampleRequest { number, ..request }.store(transaction)?;
        self.next += 1;
        self.numbers.insert(key, number);
        Ok(AlertSamples::Requested(number))
    }
}
