//! The evaluation of alerts and the delivery of their messages in a running hub, each on a thread of
//! its own with its own connection to the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dwell_hub::HubError;
use dwell_hub::alert::{AlertError, AlertEvaluator, AlertRound, Transition, claim, complete};
use dwell_hub::store::HubStore;
use dwell_node_cli::say;
use dwell_results::{chain, owner};

use super::embedded::wait;
use super::now_ns;

/// Time between evaluations.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(10);

/// Time between looks at undelivered messages.
const DELIVERY_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of changes that are printed per round.
const MAX_PRINTED: usize = 10;

/// Starts the threads, each with one of these connections to the database. They end after `stop` is set:
/// the evaluation, whose thread is returned, soon; the delivery after the attempt that it makes, which
/// may take minutes. A message that the end of the process interrupts is sent again by the next hub.
pub(super) fn start<S: HubStore + Send + 'static>(
    [of_evaluation, of_delivery]: [S; 2],
    stop: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let hub = format!("{}, process {}, started {}", owner(), std::process::id(), now_ns());
    let evaluator = AlertEvaluator::new(hub);
    let [evaluation, delivery] = [Arc::clone(stop), Arc::clone(stop)];
    drop(thread::spawn(move || deliver(of_delivery, &delivery)));
    thread::spawn(move || evaluate(of_evaluation, evaluator, &evaluation))
}

fn evaluate(mut store: impl HubStore, mut evaluator: AlertEvaluator, stop: &AtomicBool) {
    let mut news = News::default();
    while !stop.load(Ordering::Relaxed) {
        match evaluator.round(&mut store, &now_ns) {
            Ok(AlertRound::NoRules | AlertRound::Disturbed) => {}
            Ok(AlertRound::OtherHub(hub)) => news.state(format!("{hub} evaluates alerts")),
            Ok(AlertRound::Evaluated { transitions, problems }) => {
                let problems: Vec<String> = problems.iter().map(AlertError::to_string).collect();
                news.state(problems.join("; "));
                print(&transitions);
            }
            Err(error) => news.state(format!("alerts are not evaluated: {}", chain(&error))),
        }
        wait(EVALUATION_INTERVAL, &[stop]);
    }
}

fn print(transitions: &[Transition]) {
    for Transition { rule, kind, alert, .. } in transitions.iter().take(MAX_PRINTED) {
        say(&format!("dwell: alert {} {}: {}", rule, kind.name(), alert.subject));
    }
    if transitions.len() > MAX_PRINTED {
        say(&format!("dwell: and {} more alerts", transitions.len() - MAX_PRINTED));
    }
}

fn deliver(mut store: impl HubStore, stop: &AtomicBool) {
    let mut news = News::default();
    while !stop.load(Ordering::Relaxed) {
        match deliver_next(&mut store, &mut news) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => news.state(format!("alerts are not delivered: {}", chain(&error))),
        }
        wait(DELIVERY_INTERVAL, &[stop]);
    }
}

/// Sends the next message. Returns whether there was one.
fn deliver_next(store: &mut impl HubStore, news: &mut News) -> Result<bool, HubError> {
    let Some(claimed) = claim(store, None, now_ns())? else { return Ok(false) };
    let sent = dwell_notify::send(&claimed.target, &claimed.message);
    let sent = sent.map_err(|error| chain(&error));
    match &sent {
        Ok(()) => news.state(String::new()),
        Err(reason) => {
            let (receiver, way) = (&claimed.delivery.receiver, &claimed.delivery.way);
            news.state(format!("message to {receiver} {way} is sent again later: {reason}"));
        }
    }
    complete(store, &claimed, sent, now_ns())?;
    Ok(true)
}

/// Says what changes.
#[derive(Default)]
struct News(String);

impl News {
    fn state(&mut self, state: String) {
        if state != self.0 && !state.is_empty() {
            say(&format!("dwell: {state}"));
        }
        self.0 = state;
    }
}
