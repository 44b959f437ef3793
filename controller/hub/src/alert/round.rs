//! Rounds of evaluation: lease, figures, states and events.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;

use super::applied::{AppliedRules, applied_rules};
use super::delivery::{deliveries, queue};
use super::error::AlertError;
use super::evaluate::evaluate;
use super::event::{self, Event, group};
use super::figures::{self, Evaluated, Memory};
use super::file::AlertRules;
use super::lease::{LEASE_NS, lock, take};
use super::maintenance::{Maintenance, maintenance};
use super::samples::request_samples;
use super::state::{AlertState, AlertStates, EventKind, Transition};
use super::watch::Fleet;
use crate::clock::check_clock;
use crate::error::HubError;
use crate::spans::TimeSpan;
use crate::store::{HubStore, HubTransaction, TextKind};

/// Time after which a long evaluation renews the lease.
const RENEWAL_NS: i64 = LEASE_NS / 3;

/// Returns the states of alerts.
///
/// # Errors
/// The database failed.
pub fn alert_states(transaction: &mut dyn HubTransaction) -> Result<AlertStates, HubError> {
    let texts = transaction.texts(TextKind::AlertState)?;
    let parsed = texts.into_iter().map(|(key, text)| {
        let state: AlertState =
            serde_json::from_str(&text).map_err(|error| HubError::stored("alert", error))?;
        Ok((key, state))
    });
    parsed.collect()
}

/// Result of a round.
#[derive(Clone, Debug, PartialEq)]
pub enum AlertRound {
    /// No rules were applied.
    NoRules,
    /// Another hub evaluates.
    OtherHub(String),
    /// This hub evaluated.
    Evaluated {
        /// What receivers are notified of.
        transitions: Vec<Transition>,
        /// What prevents the evaluation of rules.
        problems: Vec<AlertError>,
    },
    /// Rules, maintenance or the lease changed at the same time. The next round evaluates.
    Disturbed,
}

/// The evaluation of alerts by one hub.
#[derive(Clone, Debug)]
pub struct AlertEvaluator {
    hub: String,
    memory: Memory,
    /// The rules that were evaluated last.
    text: String,
}

/// What must not change between reading and storing.
#[derive(PartialEq)]
struct Basis {
    rules: Option<AppliedRules>,
    maintenance: BTreeMap<Name, Vec<Maintenance>>,
}

impl Basis {
    fn read(transaction: &mut dyn HubTransaction) -> Result<Self, HubError> {
        let rules = applied_rules(transaction)?;
        Ok(Self { rules, maintenance: maintenance(transaction)? })
    }
}

impl AlertEvaluator {
    /// Begins with an identity that no other hub on the database has.
    pub fn new(hub: String) -> Self {
        Self { hub, memory: Memory::default(), text: String::new() }
    }

    /// Evaluates once, unless another hub does. `now` reads CLOCK_REALTIME in nanoseconds since 1970.
    ///
    /// # Errors
    /// The database failed, or the clock is implausible. The next round evaluates.
    pub fn round(
        &mut self,
        store: &mut dyn HubStore,
        now: &dyn Fn() -> i64,
    ) -> Result<AlertRound, HubError> {
        let outcome = self.evaluate(store, now);
        if !matches!(outcome, Ok(AlertRound::Evaluated { .. } | AlertRound::Disturbed)) {
            // Nodes may be heard until this hub evaluates again.
            self.memory = Memory::default();
        }
        outcome
    }

    fn evaluate(
        &mut self,
        store: &mut dyn HubStore,
        now: &dyn Fn() -> i64,
    ) -> Result<AlertRound, HubError> {
        let now_ns = now();
        let mut transaction = store.begin()?;
        lock(&mut *transaction)?;
        if applied_rules(&mut *transaction)?.is_none() {
            return Ok(AlertRound::NoRules);
        }
        check_clock(&mut *transaction, now_ns)?;
        let lease = match take(&mut *transaction, &self.hub, now_ns)? {
            Ok(lease) => lease,
            Err(other) => return Ok(AlertRound::OtherHub(other.hub)),
        };
        transaction.commit()?;
        let mut memory = self.memory.clone();
        let mut transaction = store.begin_to_read()?;
        let basis = Basis::read(&mut *transaction)?;
        let Some(applied) = &basis.rules else { return Ok(AlertRound::Disturbed) };
        if applied.text != self.text {
            memory.evaluated_ns.clear();
            self.text.clone_from(&applied.text);
        }
        let rules = AlertRules::parse(&applied.text)
            .map_err(|error| HubError::stored("alert rules", error))?;
        let fleet = Fleet::read(&mut *transaction)?;
        let watches = fleet.watches(&rules);
        let states = alert_states(&mut *transaction)?;
        memory.gaps = contact_gaps(&mut *transaction)?;
        let nodes = transaction.nodes()?;
        drop(transaction);
        let evaluated = Evaluated {
            rules: &rules,
            fleet: &fleet,
            watches: &watches,
            states: &states,
            maintenance: &basis.maintenance,
            nodes: &nodes,
            since_ns: lease.since_ns,
            now_ns,
        };
        let mut renewed_ns = now_ns;
        let mut renew = |store: &mut dyn HubStore| {
            let now_ns = now();
            if now_ns.saturating_sub(renewed_ns) < RENEWAL_NS {
                return Ok(true);
            }
            renewed_ns = now_ns;
            renew_lease(store, &self.hub, now_ns)
        };
        let read = figures::read(store, &evaluated, &mut memory, &mut renew)?;
        let Some(read) = read else { return Ok(AlertRound::Disturbed) };
        let (next, mut transitions) = evaluate(&rules, &watches, &states, &read.figures, now_ns);
        let is_changed = next != states || !transitions.is_empty() || !read.changed_gaps.is_empty();
        if is_changed {
            let mut transaction = store.begin()?;
            lock(&mut *transaction)?;
            let holder = super::lease::lease(&mut *transaction)?.map(|lease| lease.hub);
            if holder.as_ref() != Some(&self.hub) || Basis::read(&mut *transaction)? != basis {
                return Ok(AlertRound::Disturbed);
            }
            request_samples(&mut *transaction, &rules, &read.figures, &mut transitions, now_ns)?;
            store_states(&mut *transaction, &states, &next)?;
            store_gaps(&mut *transaction, &memory.gaps, &read.changed_gaps)?;
            store_events(&mut *transaction, &rules, transitions.clone(), now_ns)?;
            transaction.commit()?;
        }
        self.memory = memory;
        let problems = watches.into_iter().flat_map(|watch| watch.problems).collect();
        Ok(AlertRound::Evaluated { transitions, problems })
    }
}

/// Renews the lease of a hub. Returns whether it still has it.
fn renew_lease(store: &mut dyn HubStore, hub: &str, now_ns: i64) -> Result<bool, HubError> {
    let mut transaction = store.begin()?;
    lock(&mut *transaction)?;
    if take(&mut *transaction, hub, now_ns)?.is_err() {
        return Ok(false);
    }
    transaction.commit()?;
    Ok(true)
}

fn store_states(
    transaction: &mut dyn HubTransaction,
    before: &AlertStates,
    after: &AlertStates,
) -> Result<(), HubError> {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        transaction.set_text(TextKind::AlertState, key, None)?;
    }
    for (key, state) in after.iter().filter(|(key, state)| before.get(*key) != Some(state)) {
        let text =
            serde_json::to_string(state).map_err(|error| HubError::stored("alert", error))?;
        transaction.set_text(TextKind::AlertState, key, Some(&text))?;
    }
    Ok(())
}

fn contact_gaps(
    transaction: &mut dyn HubTransaction,
) -> Result<BTreeMap<Name, Vec<TimeSpan>>, HubError> {
    let texts = transaction.texts(TextKind::ContactGaps)?;
    let parsed = texts.iter().map(|(node, text)| {
        let node = node.parse().map_err(|error| HubError::stored("contact", error))?;
        let gaps =
            serde_json::from_str(text).map_err(|error| HubError::stored("contact", error))?;
        Ok((node, gaps))
    });
    parsed.collect()
}

fn store_gaps(
    transaction: &mut dyn HubTransaction,
    gaps: &BTreeMap<Name, Vec<TimeSpan>>,
    changed: &BTreeSet<Name>,
) -> Result<(), HubError> {
    for node in changed {
        let text = serde_json::to_string(gaps.get(node).map_or(&[][..], Vec::as_slice))
            .map_err(|error| HubError::stored("contact", error))?;
        transaction.set_text(TextKind::ContactGaps, node.as_str(), Some(&text))?;
    }
    Ok(())
}

/// Stores events and their messages, and removes the oldest events.
fn store_events(
    transaction: &mut dyn HubTransaction,
    rules: &AlertRules,
    transitions: Vec<Transition>,
    now_ns: i64,
) -> Result<(), HubError> {
    if transitions.is_empty() {
        return Ok(());
    }
    let first = event::next_id(transaction)?;
    for (id, group) in (first..).zip(group(transitions)) {
        let rule = rules.alert.iter().find(|rule| rule.name == group.rule);
        let event = Event::new(id, (group.kind, group.rule, rule), now_ns, group.alerts);
        queue(transaction, event, &group.receivers, rules)?;
    }
    let waiting = deliveries(transaction)?;
    event::trim(transaction, |id| waiting.iter().all(|delivery| delivery.event != id))
}

/// Stores a message to a receiver that a person asked for; returns the number of its event. `None` if no
/// rules with this receiver are applied.
///
/// # Errors
/// The database failed.
pub fn test_receiver(
    store: &mut dyn HubStore,
    receiver: &str,
    now_ns: i64,
) -> Result<Option<u64>, HubError> {
    let mut transaction = store.begin()?;
    lock(&mut *transaction)?;
    let applied = applied_rules(&mut *transaction)?;
    let rules = applied.and_then(|applied| AlertRules::parse(&applied.text).ok());
    let Some(rules) = rules.filter(|rules| rules.notify.contains_key(receiver)) else {
        return Ok(None);
    };
    let id = event::next_id(&mut *transaction)?;
    let of = (EventKind::Test, receiver.to_owned(), None);
    let event = Event::new(id, of, now_ns, Vec::new());
    queue(&mut *transaction, event, &[receiver.to_owned()], &rules)?;
    transaction.commit()?;
    Ok(Some(id))
}
