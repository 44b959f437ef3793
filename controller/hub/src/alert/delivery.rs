//! Messages that are not delivered yet. A message is stored with its event before it is sent, and
//! removed after: it is delivered at least once. A hub claims a message for the time of an attempt, so
//! that no other hub sends it at the same time.

use serde::{Deserialize, Serialize};

use super::applied::applied_rules;
use super::event::{self, Event, Message, Outcome, events};
use super::file::{AlertRules, Smtp};
use super::lease;
use crate::clock::check_clock;
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::store::{HubStore, HubTransaction, TextKind};

/// Time for which a message is claimed; longer than any attempt takes.
const CLAIM_NS: i64 = 180 * SECOND_NS;

/// Time before the second attempt. It doubles with each further one.
const FIRST_RETRY_NS: i64 = 10 * SECOND_NS;

/// Longest time between attempts.
const MAX_RETRY_NS: i64 = 900 * SECOND_NS;

/// Age at which a message is given up.
const MAX_AGE_NS: i64 = DAY_NS;

/// Maximum number of undelivered messages.
const MAX_DELIVERIES: usize = 1_000;

/// Maximum length of a stored error in characters.
const MAX_ERROR_LEN: usize = 500;

dwell_units::named! {
    /// Way to a receiver.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Way {
        /// HTTP POST.
        Webhook = "webhook",
        /// SMTP.
        Email = "email",
    }
}

/// An undelivered message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Number of the event.
    pub event: u64,
    /// Name of the receiver.
    pub receiver: String,
    /// Name of the way.
    pub way: String,
    /// Time of the event in nanoseconds since 1970.
    pub at_ns: i64,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Time of the next attempt in nanoseconds since 1970.
    pub next_ns: i64,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

impl Delivery {
    fn key(&self) -> String {
        format!("{:020} {} {}", self.event, self.receiver, self.way)
    }

    fn outcome(&self, at_ns: i64, error: Option<String>) -> Outcome {
        let receiver = format!("{} {}", self.receiver, self.way);
        Outcome { receiver, at_ns, attempts: self.attempts, error }
    }
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// URL of a webhook.
    Webhook(String),
    /// Addresses, and the mail server.
    Email {
        /// Addresses of receivers.
        to: Vec<String>,
        /// The mail server.
        smtp: Smtp,
    },
}

/// A message that this hub sends now.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The message in the database.
    pub delivery: Delivery,
    /// Where it goes.
    pub target: Target,
    /// Its content.
    pub message: Message,
}

fn put(transaction: &mut dyn HubTransaction, delivery: &Delivery) -> Result<(), HubError> {
    let text =
        serde_json::to_string(delivery).map_err(|error| HubError::stored("delivery", error))?;
    transaction.set_text(TextKind::AlertDelivery, &delivery.key(), Some(&text))
}

/// Returns the undelivered messages, the oldest event first.
///
/// # Errors
/// The database failed.
pub fn deliveries(transaction: &mut dyn HubTransaction) -> Result<Vec<Delivery>, HubError> {
    let texts = transaction.texts(TextKind::AlertDelivery)?;
    let deliveries = texts.values().map(|text| serde_json::from_str(text));
    deliveries.collect::<Result<_, _>>().map_err(|error| HubError::stored("delivery", error))
}

/// Stores an event with a message for each way of these receivers.
pub(super) fn queue(
    transaction: &mut dyn HubTransaction,
    mut event: Event,
    receivers: &[String],
    rules: &AlertRules,
) -> Result<(), HubError> {
    let mut waiting = deliveries(transaction)?.len();
    for name in receivers {
        let Some(receiver) = rules.notify.get(name) else { continue };
        for way in Way::ALL {
            let is_used = match way {
                Way::Webhook => receiver.webhook.is_some(),
                Way::Email => !receiver.email.is_empty(),
            };
            if !is_used {
                continue;
            }
            let delivery = Delivery {
                event: event.id,
                receiver: name.clone(),
                way: way.name().to_owned(),
                at_ns: event.at_ns,
                attempts: 0,
                next_ns: event.at_ns,
                error: None,
            };
            if waiting < MAX_DELIVERIES {
                put(transaction, &delivery)?;
                waiting += 1;
            } else {
                let error = format!("{MAX_DELIVERIES} messages wait already");
                event.outcomes.push(delivery.outcome(event.at_ns, Some(error)));
            }
        }
    }
    event::store(transaction, &event)
}

/// Claims the oldest message whose attempt is due, of any event or only of this one; `None` without any.
///
/// # Errors
/// The database failed.
pub fn claim(
    store: &mut dyn HubStore,
    of_event: Option<u64>,
    now_ns: i64,
) -> Result<Option<Claimed>, HubError> {
    let is_due = |delivery: &Delivery| {
        // A hub whose clock was ahead may have left a later time.
        let waits = now_ns < delivery.next_ns
            && delivery.next_ns.saturating_sub(now_ns) <= MAX_RETRY_NS.max(CLAIM_NS);
        !waits && of_event.is_none_or(|id| delivery.event == id)
    };
    // Without writing, so that a hub at rest leaves the database alone.
    if !deliveries(&mut *store.begin_to_read()?)?.iter().any(is_due) {
        return Ok(None);
    }
    let mut transaction = store.begin()?;
    lease::lock(&mut *transaction)?;
    check_clock(&mut *transaction, now_ns)?;
    let rules = applied_rules(&mut *transaction)?.and_then(|it| AlertRules::parse(&it.text).ok());
    let events = events(&mut *transaction)?;
    let mut claimed = None;
    for delivery in deliveries(&mut *transaction)? {
        if !is_due(&delivery) {
            continue;
        }
        let event = events.iter().find(|event| event.id == delivery.event);
        let target = rules.as_ref().and_then(|rules| target(rules, &delivery));
        let Some((target, event)) = target.zip(event) else {
            let reason = "the receiver was removed from the rules".to_owned();
            finish(&mut *transaction, &delivery, now_ns, Some(reason))?;
            continue;
        };
        let attempt = Delivery { next_ns: now_ns.saturating_add(CLAIM_NS), ..delivery };
        put(&mut *transaction, &attempt)?;
        claimed = Some(Claimed { delivery: attempt, target, message: event.message() });
        break;
    }
    transaction.commit()?;
    Ok(claimed)
}

fn target(rules: &AlertRules, delivery: &Delivery) -> Option<Target> {
    let receiver = rules.notify.get(&delivery.receiver)?;
    match Way::named(&delivery.way)? {
        Way::Webhook => receiver.webhook.clone().map(Target::Webhook),
        Way::Email => {
            let (to, smtp) = (receiver.email.clone(), rules.smtp.clone()?);
            (!to.is_empty()).then_some(Target::Email { to, smtp })
        }
    }
}

/// Removes a message, and notes its outcome in its event.
fn finish(
    transaction: &mut dyn HubTransaction,
    delivery: &Delivery,
    now_ns: i64,
    error: Option<String>,
) -> Result<(), HubError> {
    transaction.set_text(TextKind::AlertDelivery, &delivery.key(), None)?;
    let event = events(transaction)?.into_iter().find(|event| event.id == delivery.event);
    if let Some(mut event) = event {
        event.outcomes.push(delivery.outcome(now_ns, error));
        event::store(transaction, &event)?;
    }
    Ok(())
}

/// Notes the result of an attempt: `Err` has the reason for a person.
///
/// # Errors
/// The database failed. The message is sent again.
pub fn complete(
    store: &mut dyn HubStore,
    claimed: &Claimed,
    result: Result<(), String>,
    now_ns: i64,
) -> Result<(), HubError> {
    let mut transaction = store.begin()?;
    lease::lock(&mut *transaction)?;
    let attempts = claimed.delivery.attempts.saturating_add(1);
    let at_ns = claimed.delivery.at_ns.min(now_ns);
    let mut delivery = Delivery { attempts, at_ns, ..claimed.delivery.clone() };
    match result {
        Ok(()) => finish(&mut *transaction, &delivery, now_ns, None)?,
        Err(reason) => {
            let reason: String = reason.chars().take(MAX_ERROR_LEN).collect();
            if now_ns.saturating_sub(delivery.at_ns) >= MAX_AGE_NS {
                finish(&mut *transaction, &delivery, now_ns, Some(reason))?;
            } else {
                delivery.next_ns = now_ns.saturating_add(retry_ns(attempts));
                delivery.error = Some(reason);
                put(&mut *transaction, &delivery)?;
            }
        }
    }
    transaction.commit()
}

/// Time after this number of failed attempts until the next one.
fn retry_ns(attempts: u32) -> i64 {
    let doublings = attempts.saturating_sub(1).min(10);
    (FIRST_RETRY_NS << doublings).min(MAX_RETRY_NS)
}

/// Ends the claims and the lease of hubs that were killed. Only for a hub that is alone on its database.
///
/// # Errors
/// The database failed.
pub fn recover(store: &mut dyn HubStore, now_ns: i64) -> Result<(), HubError> {
    let mut transaction = store.begin()?;
    lease::lock(&mut *transaction)?;
    lease::release(&mut *transaction)?;
    for delivery in deliveries(&mut *transaction)? {
        put(&mut *transaction, &Delivery { next_ns: delivery.next_ns.min(now_ns), ..delivery })?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_attempts_grows_to_a_limit() {
        let seconds = |attempts: u32| retry_ns(attempts) / SECOND_NS;
        assert_eq!([1, 2, 3, 7, 8, u32::MAX].map(seconds), [10, 20, 40, 640, 900, 900]);
    }
}
