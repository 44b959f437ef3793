//! The evaluation of alerts: from states and figures to new states and changes. It reads no clock and
//! no database.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;

use super::condition::{Clear, Condition, MAX_CONTACT_GAP_NS, Value};
use super::file::{AlertRules, Rule};
use super::state::{AlertState, AlertStates, Alerted, Contact, EventKind, Phase, Transition};
use super::watch::{Site, Subject, Subjects, Watch, alert_key};

/// A quantity over the time of a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The value; `None` without enough probes.
    pub value: Option<Value>,
    /// Whether the time has enough probes outside of maintenance.
    pub is_complete: bool,
}

/// Figures of a stream for one rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamFigures {
    /// End of the evaluated time in nanoseconds since 1970.
    pub end_ns: i64,
    /// For the condition under which it fires.
    pub when: Measured,
    /// For the condition under which it clears.
    pub clear: Measured,
}

/// Contact with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Last arrival of a record in nanoseconds since 1970.
    pub heard_ns: Option<i64>,
    /// Whether maintenance was announced: silence means nothing.
    pub in_maintenance: bool,
    /// End of the last announced maintenance in nanoseconds since 1970.
    pub maintained_ns: Option<i64>,
    /// Whether its agent is paused.
    pub is_paused: bool,
}

/// The input of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Figures of streams whose time has moved on, by key of the alert.
    pub streams: BTreeMap<String, StreamFigures>,
    /// All nodes that rules watch.
    pub nodes: BTreeMap<Name, NodeFigures>,
    /// Time since which a hub has evaluated without a break, in nanoseconds since 1970. Nodes are not
    /// silent because no hub ran.
    pub since_ns: i64,
    /// Time at which the newest schedule was applied, in nanoseconds since 1970. A node that was never
    /// heard is not silent before.
    pub applied_ns: Option<i64>,
}

/// Evaluates all rules at `now_ns`. Returns the states and what receivers are notified of.
pub fn evaluate(
    rules: &AlertRules,
    watches: &[Watch],
    states: &AlertStates,
    figures: &Figures,
    now_ns: i64,
) -> (AlertStates, Vec<Transition>) {
    let mut evaluation = Evaluation {
        rules,
        figures,
        now_ns,
        silent: BTreeSet::new(),
        watched_for_silence: watched_for_silence(watches),
        states: states.clone(),
        transitions: Vec::new(),
    };
    evaluation.end_unwatched(watches);
    // Silent nodes suppress alerts about their streams.
    for watch in watches {
        if let (Condition::Silent(limit_ns), Some(Subjects::Sites(sites))) =
            (watch.rule.when, &watch.subjects)
        {
            sites.iter().for_each(|site| evaluation.site(&watch.rule, limit_ns, site));
        }
    }
    for watch in watches {
        if let Some(Subjects::Streams(streams)) = &watch.subjects {
            for stream in streams {
                let nodes = [&stream.sender, &stream.stream.reflector];
                evaluation.stream(&watch.rule, stream.subject(), nodes);
            }
        }
    }
    (evaluation.states, evaluation.transitions)
}

/// The nodes that a rule watches for silence.
pub(super) fn watched_for_silence(watches: &[Watch]) -> BTreeSet<Name> {
    let sites = watches.iter().filter_map(|watch| match &watch.subjects {
        Some(Subjects::Sites(sites)) => Some(sites),
        _ => None,
    });
    sites.flatten().flat_map(|site| site.nodes.iter().cloned()).collect()
}

struct Evaluation<'a> {
    rules: &'a AlertRules,
    figures: &'a Figures,
    now_ns: i64,
    /// Nodes that alerts name as silent.
    silent: BTreeSet<Name>,
    watched_for_silence: BTreeSet<Name>,
    states: AlertStates,
    transitions: Vec<Transition>,
}

impl Evaluation<'_> {
    fn node(&self, node: &Name) -> NodeFigures {
        self.figures.nodes.get(node).copied().unwrap_or_default()
    }

    /// Time since a node was heard, also during maintenance.
    fn unheard_ns(&self, node: &Name) -> i64 {
        let heard_ns = self.node(node).heard_ns.unwrap_or(i64::MIN).max(self.figures.since_ns);
        self.now_ns.saturating_sub(heard_ns)
    }

    /// Time for which a node is silent without a reason.
    fn silence_ns(&self, node: &Name) -> i64 {
        let of = self.node(node);
        let begins = [of.heard_ns.or(self.past(self.figures.applied_ns)), of.maintained_ns];
        let begin_ns = begins.into_iter().flatten().max().unwrap_or(i64::MIN);
        self.unheard_ns(node).min(self.now_ns.saturating_sub(begin_ns))
    }

    /// Returns a stored time, unless it is later than now, as by a hub whose clock was ahead.
    fn past(&self, at_ns: Option<i64>) -> Option<i64> {
        at_ns.filter(|at_ns| *at_ns <= self.now_ns)
    }

    fn emit(
        &mut self,
        kind: EventKind,
        state: &AlertState,
        nodes: Vec<Name>,
        reason: Option<&str>,
    ) {
        let alert = Alerted {
            subject: state.subject.clone(),
            since_ns: state.since_ns,
            value: state.value,
            nodes,
            reason: reason.map(str::to_owned),
            samples: None,
        };
        let rule = self.rules.alert.iter().find(|rule| rule.name == state.rule);
        // Those of a rule that was removed get the end.
        let receivers = rule.map_or(&state.notify, |rule| &rule.notify).clone();
        self.transitions.push(Transition { rule: state.rule.clone(), kind, alert, receivers });
    }

    /// Ends alerts that no rule watches any longer.
    fn end_unwatched(&mut self, watches: &[Watch]) {
        if self.states.is_empty() {
            return;
        }
        let keys: BTreeSet<String> = watches.iter().flat_map(Watch::keys).collect();
        let is_unclear = |rule: &str| {
            watches.iter().any(|watch| watch.rule.name == rule && watch.subjects.is_none())
        };
        let is_watched =
            |key: &String, state: &AlertState| keys.contains(key) || is_unclear(&state.rule);
        let ended = self.states.iter().filter(|(key, state)| !is_watched(key, state));
        let ended: Vec<_> = ended.map(|(key, state)| (key.clone(), state.clone())).collect();
        for (key, state) in ended {
            self.states.remove(&key);
            if state.phase == Phase::Firing {
                let nodes = state.nodes.keys().cloned().collect();
                self.emit(EventKind::Cleared, &state, nodes, Some("no rule watches it any longer"));
            }
        }
    }

    /// Whether a message that an alert fires is too soon after the previous one.
    fn is_too_soon(&self, state: Option<&AlertState>) -> bool {
        let fired_ns = self.past(state.and_then(|state| state.fired_ns));
        fired_ns.is_some_and(|at| self.now_ns < at.saturating_add(self.rules.notify_interval.0))
    }

    /// The state of an alert whose condition does not hold and that is not firing.
    fn rest(&mut self, key: String) {
        let Some(state) = self.states.remove(&key) else { return };
        // Remembered until the alert may fire again.
        if self.is_too_soon(Some(&state)) {
            self.states.insert(key, AlertState { phase: Phase::Cleared, ..state });
        }
    }

    /// Sends a reminder if it is due.
    fn remind(&mut self, state: &mut AlertState, nodes: Vec<Name>) {
        let last_ns = self.past(state.notified_ns).or(self.past(Some(state.since_ns)));
        let reminder_ns = self.rules.reminder.0;
        if last_ns.is_none_or(|last_ns| self.now_ns >= last_ns.saturating_add(reminder_ns)) {
            state.notified_ns = Some(self.now_ns);
            self.emit(EventKind::Reminder, state, nodes, None);
        }
    }

    fn stream(&mut self, rule: &Rule, subject: Subject, nodes: [&Name; 2]) {
        let (Condition::Above { limit, .. }, Clear::Below { limit: clear_limit, .. }) =
            (rule.when, rule.clear())
        else {
            return;
        };
        let key = alert_key(&rule.name, &subject);
        let Some(figures) = self.figures.streams.get(&key).copied() else { return };
        let state = self.states.get(&key).cloned();
        let is_suppressed = nodes.iter().any(|node| {
            let of = self.node(node);
            of.in_maintenance || of.is_paused || self.silent.contains(*node)
        });
        if let Some(mut state) = state.clone().filter(|state| state.phase == Phase::Firing) {
            if is_suppressed {
                return;
            }
            state.value = figures.when.value.or(state.value);
            state.notify.clone_from(&rule.notify);
            let clear = figures.clear;
            if clear.is_complete && clear.value.is_some_and(|value| value.is_below(clear_limit)) {
                let ended = AlertState { value: clear.value, ..state };
                self.emit(EventKind::Cleared, &ended, Vec::new(), None);
                let (now_ns, since_ns) = (self.now_ns, figures.end_ns);
                let notified_ns = Some(now_ns);
                let cleared = AlertState { phase: Phase::Cleared, since_ns, notified_ns, ..ended };
                self.states.insert(key.clone(), cleared);
                self.rest(key);
            } else {
                self.remind(&mut state, Vec::new());
                self.states.insert(key, state);
            }
            return;
        }
        let value = figures.when.value.filter(|value| !is_suppressed && value.is_above(limit));
        let Some(value) = value else { return self.rest(key) };
        let fired_ns = state.as_ref().and_then(|state| state.fired_ns);
        let notified_ns = state.as_ref().and_then(|state| state.notified_ns);
        let pending = state.as_ref().filter(|state| state.phase == Phase::Pending);
        let since_ns = self.past(pending.map(|pending| pending.since_ns));
        let since_ns = since_ns.unwrap_or(figures.end_ns);
        // A node that is down looks like loss until its silence is known.
        let is_alive = nodes.iter().all(|node| {
            !self.watched_for_silence.contains(*node)
                || self.node(node).heard_ns.is_some_and(|heard_ns| heard_ns >= since_ns)
        });
        let mut next = AlertState {
            rule: rule.name.clone(),
            subject,
            phase: Phase::Pending,
            since_ns,
            fired_ns,
            notified_ns,
            value: Some(value),
            nodes: BTreeMap::new(),
            notify: rule.notify.clone(),
            unnamed: BTreeMap::new(),
        };
        if figures.when.is_complete && is_alive && !self.is_too_soon(state.as_ref()) {
            next.phase = Phase::Firing;
            next.fired_ns = Some(self.now_ns);
            next.notified_ns = Some(self.now_ns);
            self.emit(EventKind::Fired, &next, Vec::new(), None);
        }
        self.states.insert(key, next);
    }

    fn site(&mut self, rule: &Rule, limit_ns: i64, site: &Site) {
        let key = alert_key(&rule.name, &site.subject);
        let state = self.states.get(&key).cloned();
        let active = site.nodes.iter().filter(|node| !self.node(node).in_maintenance);
        let active: Vec<(Name, i64)> =
            active.map(|node| (node.clone(), self.silence_ns(node))).collect();
        let silent: Vec<_> = active.iter().filter(|(_, ns)| *ns >= limit_ns).cloned().collect();
        match state {
            Some(state) if state.phase == Phase::Firing => {
                self.silent_site(rule, (limit_ns, site), key, state, &active);
            }
            _ if silent.is_empty() => self.rest(key),
            state => {
                // Nodes that failed at the same time have different last arrivals.
                let near = active.iter().filter(|(_, ns)| *ns >= limit_ns.min(MAX_CONTACT_GAP_NS));
                let nodes: BTreeMap<_, _> =
                    near.map(|(node, _)| (node.clone(), Contact::Silent)).collect();
                let longest_ns = silent.iter().map(|(_, ns)| *ns).max().unwrap_or(limit_ns);
                self.silent.extend(nodes.keys().cloned());
                let is_too_soon = self.is_too_soon(state.as_ref());
                let mut next = AlertState {
                    rule: rule.name.clone(),
                    subject: site.subject.clone(),
                    phase: Phase::Pending,
                    since_ns: self.now_ns.saturating_sub(longest_ns),
                    fired_ns: state.as_ref().and_then(|state| state.fired_ns),
                    notified_ns: state.as_ref().and_then(|state| state.notified_ns),
                    value: None,
                    nodes,
                    notify: rule.notify.clone(),
                    unnamed: BTreeMap::new(),
                };
                if !is_too_soon {
                    next.phase = Phase::Firing;
                    next.fired_ns = Some(self.now_ns);
                    next.notified_ns = Some(self.now_ns);
                    self.emit(EventKind::Fired, &next, next.nodes.keys().cloned().collect(), None);
                }
                self.states.insert(key, next);
            }
        }
    }

    /// Follows a site whose alert is firing.
    fn silent_site(
        &mut self,
        rule: &Rule,
        (limit_ns, site): (i64, &Site),
        key: String,
        mut state: AlertState,
        active: &[(Name, i64)],
    ) {
        let Clear::Heard(heard_for_ns) = rule.clear() else { return };
        state.nodes.retain(|node, _| site.nodes.contains(node));
        state.notify.clone_from(&rule.notify);
        for (node, silence_ns) in active {
            let heard_ns = self.node(node).heard_ns.unwrap_or(i64::MIN);
            let contact = state.nodes.get(node).copied();
            let next = match contact {
                Some(Contact::Silent | Contact::Heard(_))
                    if self.unheard_ns(node) >= MAX_CONTACT_GAP_NS =>
                {
                    Contact::Silent
                }
                Some(Contact::Silent) => Contact::Heard(heard_ns),
                // The clock was set back.
                Some(Contact::Heard(from_ns)) if from_ns > heard_ns => Contact::Heard(heard_ns),
                Some(Contact::Heard(from_ns))
                    if heard_ns.saturating_sub(from_ns) >= heard_for_ns =>
                {
                    Contact::Back
                }
                None | Some(Contact::Back) if *silence_ns >= limit_ns => {
                    let kind =
                        if contact.is_none() { EventKind::Fired } else { EventKind::Reminder };
                    state.unnamed.insert(node.clone(), kind);
                    Contact::Silent
                }
                None => continue,
                Some(contact) => contact,
            };
            state.nodes.insert(node.clone(), next);
        }
        // A node in maintenance keeps its contact.
        let named = |state: &AlertState, is_named: fn(&Contact) -> bool| -> Vec<Name> {
            let nodes = state.nodes.iter().filter(|(_, contact)| is_named(contact));
            nodes.map(|(node, _)| node.clone()).collect()
        };
        let left = named(&state, |contact| *contact != Contact::Back);
        self.silent.extend(named(&state, |contact| *contact == Contact::Silent));
        if left.is_empty() {
            let nodes = named(&state, |_| true);
            self.emit(EventKind::Cleared, &state, nodes, None);
            let (since_ns, notified_ns) = (self.now_ns, Some(self.now_ns));
            let unnamed = BTreeMap::new();
            let cleared =
                AlertState { phase: Phase::Cleared, since_ns, notified_ns, unnamed, ..state };
            self.states.insert(key.clone(), cleared);
            return self.rest(key);
        }
        let is_active = |node: &Name| active.iter().any(|(active, _)| active == node);
        let left: Vec<Name> = left.into_iter().filter(is_active).collect();
        let nodes = &state.nodes;
        state.unnamed.retain(|node, _| nodes.get(node).is_some_and(|it| *it != Contact::Back));
        let silent = |node: &Name| nodes.get(node) == Some(&Contact::Silent) && is_active(node);
        let unnamed = |kind: EventKind| -> Vec<Name> {
            let of = state.unnamed.iter().filter(|(node, of)| **of == kind && silent(node));
            of.map(|(node, _)| node.clone()).collect()
        };
        let (joined, returned) = (unnamed(EventKind::Fired), unnamed(EventKind::Reminder));
        // Nodes that fail within minutes of each other share a message.
        let is_before = |at_ns: Option<i64>, time_ns: i64| {
            self.past(at_ns).is_none_or(|at_ns| self.now_ns.saturating_sub(at_ns) >= time_ns)
        };
        let is_notified = is_before(state.notified_ns, self.rules.notify_interval.0);
        if !joined.is_empty() && is_before(state.fired_ns, MAX_CONTACT_GAP_NS + 1) {
            state.unnamed.retain(|node, _| !joined.contains(node));
            state.fired_ns = Some(self.now_ns);
            state.notified_ns = Some(self.now_ns);
            self.emit(EventKind::Fired, &state, joined, None);
        } else if !returned.is_empty() && is_notified {
            state.unnamed.retain(|node, _| !returned.contains(node));
            state.notified_ns = Some(self.now_ns);
            self.emit(EventKind::Reminder, &state, left, None);
        } else if !left.is_empty() {
            self.remind(&mut state, left);
        }
        self.states.insert(key, state);
    }
}

#[cfg(test)]
mod tests;
