//! Alerts: conditions about streams and nodes, and messages when they begin and end to hold.
//!
//! `file` has the rules, `watch` what they select, `figures` the measured quantities, `evaluate` the
//! pure evaluation, `round` its storing under a `lease`, `delivery` the messages that are not delivered
//! yet. This crate sends none: a sender claims and completes them.

mod applied;
mod condition;
mod delivery;
mod error;
mod evaluate;
mod event;
mod figures;
mod file;
mod lease;
mod maintenance;
mod object;
mod round;
mod samples;
mod state;
mod watch;

pub use applied::{AppliedRules, applied_rules, apply_rules};
pub use condition::{Clear, Condition, MAX_CONTACT_GAP_NS, Quantity, Span, Statistic, Value};
pub use delivery::{Claimed, Delivery, Target, Way, claim, complete, deliveries, recover};
pub use error::AlertError;
pub use evaluate::{Figures, Measured, NodeFigures, StreamFigures, evaluate};
pub use event::{Event, MAX_EVENTS, Message, Outcome, events};
pub use file::{AlertRules, Receiver, Rule, Security, Smtp};
pub use lease::{Lease, lease};
pub use maintenance::{Maintenance, announce, end, maintenance};
pub use object::{AlertReport, alert_history_object, alerts_object};
pub use round::{AlertEvaluator, AlertRound, alert_states, test_receiver};
pub use samples::AlertSamples;
pub use state::{AlertState, AlertStates, Alerted, Contact, EventKind, Phase, Transition};
pub use watch::{Fleet, ScheduledStream, Site, Subject, Subjects, Watch, alert_key};
