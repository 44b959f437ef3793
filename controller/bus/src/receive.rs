//! Receives messages in batches, stores each batch in one transaction, and acknowledges it then.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use dwell_hub::{Committed, Delivery, HubError, Rules, ingest};
use dwell_rollup::{Incarnation, Name, RangeSet, Subject};
use tokio::time::{Instant, timeout_at};

use crate::acknowledgement::{Acknowledgement, REDELIVERY_DELAY, is_of_server};
use crate::answer::receipts_messages;
use crate::error::{BusError, chain};
use crate::event::BusEvent;
use crate::hub::{Context, RETRY_INTERVAL, SharedStore, Stop, now_ns};
use crate::pull::{Delivered, PULL_BATCH, PULL_BYTES, Pull, PullError};

/// Time after the first message of a batch at which it is stored.
const BATCH_TIME: Duration = Duration::from_millis(100);

/// Time between looks for messages that nats-server keeps although they are acknowledged.
const LEFT_INTERVAL: Duration = Duration::from_secs(10);

/// Reasons of messages to the log that have an event of their own.
const DEFERRED: &str = "deferred";
const NO_NODE: &str = "no node";
const OF_SERVER: &str = "acknowledgements";

/// Why a batch ended.
enum End {
    /// It is complete.
    Complete,
    /// No more messages come this way.
    Interrupted(PullError),
    /// The hub is to stop.
    Stopped,
}

/// Receives until the hub is to stop.
///
/// # Errors
/// The stream cannot be used as it is. After the first success, such faults are waited for instead.
pub(crate) async fn receive(context: &Context<'_>, mut stop: Stop) -> Result<(), BusError> {
    let (mut reported, mut has_failed, mut has_received) = (String::new(), false, false);
    let (mut is_announced, mut lost) = (false, String::new());
    while !stop.is_requested() {
        let opened = tokio::select! {
            opened = open(context) => opened,
            () = stop.requested() => return Ok(()),
        };
        match opened {
            Ok((pull, waiting)) => {
                if !is_announced {
                    let server = context.server.clone();
                    (context.report)(BusEvent::Receiving { server, waiting });
                }
                reported.clear();
                has_received = true;
                let ended = receive_from(context, pull, &mut stop, &mut has_failed).await;
                is_announced = match ended {
                    Some(PullError::Lost(reason)) => {
                        let is_known = reason == lost;
                        if !is_known {
                            (context.report)(BusEvent::Waiting(reason.clone()));
                            lost = reason;
                        }
                        is_known
                    }
                    ended => ended.is_some(),
                };
            }
            Err(error)
                if error.is_transient() || has_received && error.is_transient_for_working_hub() =>
            {
                is_announced = false;
                let reason = error.to_string();
                if reason != reported {
                    (context.report)(BusEvent::Waiting(reason.clone()));
                    reported = reason;
                }
            }
            Err(error) => return Err(error),
        }
        stop.sleep(RETRY_INTERVAL).await;
    }
    Ok(())
}

/// Begins to receive. Returns also the number of messages in the stream.
async fn open(context: &Context<'_>) -> Result<(Pull, u64), BusError> {
    let waiting = context.queue.prepare().await?;
    let pull = Pull::open(&context.hub.address, context.client.new_inbox()).await?;
    Ok((pull, waiting))
}

/// Receives until no more messages come, and returns why; `None` if the hub is to stop.
async fn receive_from(
    context: &Context<'_>,
    mut pull: Pull,
    stop: &mut Stop,
    has_failed: &mut bool,
) -> Option<PullError> {
    // One may be removed at this moment, so it must be found twice.
    let (mut left, mut looked) = (None, None::<Instant>);
    loop {
        if looked.is_none_or(|at| at.elapsed() >= LEFT_INTERVAL) {
            looked = Some(Instant::now());
            // If the hub is stopped between the end of the consumer and its new start, the next hub
            // creates it.
            left = tokio::select! {
                left = receive_left(context, left) => left,
                () = stop.requested() => None,
            };
        }
        let (batch, end) = next_batch(&mut pull, stop).await;
        if matches!(end, End::Complete) {
            pull.request();
        }
        if !batch.is_empty() {
            store(context, batch, stop, has_failed).await;
        }
        match end {
            End::Complete => {}
            End::Interrupted(reason) => {
                // What already arrived need not come again.
                let rest = pull.close().await;
                if !rest.is_empty() {
                    store(context, rest, stop, has_failed).await;
                }
                return Some(reason);
            }
            End::Stopped => {
                // Another hub need not wait for what is not stored. The server cannot deliver it here.
                for message in pull.close().await {
                    acknowledge(context, message, Acknowledgement::Returned).await;
                }
                return None;
            }
        }
    }
}

/// Has all messages delivered again if the same message as before is acknowledged and in the stream.
/// Returns such a message that was found for the first time. A failure is one of the connection or the
/// stream, which the next request for messages reports.
async fn receive_left(context: &Context<'_>, before: Option<u64>) -> Option<u64> {
    let found = context.queue.left().await.ok().flatten();
    if found.is_none() || found != before {
        return found;
    }
    if let Ok(messages) = context.queue.deliver_again().await {
        (context.report)(BusEvent::Left { messages });
    }
    None
}

async fn acknowledge(context: &Context<'_>, message: Delivered, by: Acknowledgement) {
    // One that is lost costs a duplicate.
    let _ = context.client.publish(message.ack, by.text().into()).await;
}

/// Collects messages until there are many, or for a short time after the first one. Without any, the batch
/// is empty after [`LEFT_INTERVAL`].
async fn next_batch(pull: &mut Pull, stop: &mut Stop) -> (Vec<Delivered>, End) {
    let (mut batch, mut bytes, mut deadline) = (Vec::new(), 0, Instant::now() + LEFT_INTERVAL);
    while batch.len() < PULL_BATCH && bytes < PULL_BYTES {
        let next = tokio::select! {
            biased;
            () = stop.requested() => return (batch, End::Stopped),
            next = timeout_at(deadline, pull.next()) => next,
        };
        match next {
            Ok(Ok(message)) => {
                if batch.is_empty() {
                    deadline = Instant::now() + BATCH_TIME;
                }
                bytes += message.payload.len();
                batch.push(message);
            }
            Ok(Err(error)) => return (batch, End::Interrupted(error)),
            Err(_) => break,
        }
    }
    (batch, End::Complete)
}

/// Stores a batch, acknowledges its messages and sends receipts.
async fn store(
    context: &Context<'_>,
    batch: Vec<Delivered>,
    stop: &mut Stop,
    has_failed: &mut bool,
) {
    let mut received: Vec<(Name, Delivered)> = Vec::new();
    for message in batch {
        match node_of(&message) {
            Some(node) if !is_of_server(&message.payload) => received.push((node, message)),
            node => {
                report_removed(context, node, &message.subject);
                acknowledge(context, message, Acknowledgement::Removed).await;
            }
        }
    }
    if received.is_empty() {
        return;
    }
    let (store, rules) = (SharedStore::clone(&context.hub.store), context.hub.rules);
    let stored = tokio::task::spawn_blocking(move || {
        let outcome = ingest_messages(&store, &received, &rules);
        (received, outcome)
    });
    let (received, outcome) = match stored.await {
        Ok(stored) => stored,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    match outcome {
        Ok(committed) => {
            if std::mem::take(has_failed) {
                (context.report)(BusEvent::DatabaseWorks);
            }
            for (_, message) in received {
                acknowledge(context, message, Acknowledgement::Stored).await;
            }
            report_counts(context, &committed);
            send_receipts(context, committed).await;
        }
        Err(error) => {
            if !std::mem::replace(has_failed, true) {
                (context.report)(BusEvent::DatabaseFailed(chain(&error)));
            }
            for (_, message) in received {
                acknowledge(context, message, Acknowledgement::ReturnedForLater).await;
            }
            stop.sleep(REDELIVERY_DELAY).await;
        }
    }
}

fn node_of(message: &Delivered) -> Option<Name> {
    match Subject::parse(&message.subject)? {
        (Subject::Up, node) => Some(node),
        _ => None,
    }
}

/// Reports a message without records.
fn report_removed(context: &Context<'_>, node: Option<Name>, subject: &str) {
    let (mut limit, now) = (context.log_limit.borrow_mut(), Instant::now().into_std());
    match node {
        Some(node) => {
            if let Some((_, count)) = limit.count(node.as_str(), OF_SERVER, 1, now) {
                (context.report)(BusEvent::OfServer { node, count });
            }
        }
        None => {
            if let Some((_, count)) = limit.count("", NO_NODE, 1, now) {
                let subject = subject.to_owned();
                (context.report)(BusEvent::NoNode { subject, count });
            }
        }
    }
}

fn ingest_messages(
    store: &SharedStore,
    received: &[(Name, Delivered)],
    rules: &Rules,
) -> Result<Committed, HubError> {
    let arrival_ns = now_ns();
    let deliveries = received.iter().map(|(node, message)| Delivery {
        node,
        arrival_ns,
        message: &message.payload,
    });
    let deliveries: Vec<_> = deliveries.collect();
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    ingest(&mut *store, &deliveries, rules)
}

fn report_counts(context: &Context<'_>, committed: &Committed) {
    let (mut limit, now) = (context.log_limit.borrow_mut(), Instant::now().into_std());
    for (node, counts) in &committed.counts {
        if counts.bad > 0 {
            let mut reasons = committed.bad.iter().filter(|(of, _)| of == node);
            let reason = reasons.next().map_or("too many to keep", |(_, reason)| reason);
            if let Some((reason, count)) = limit.count(node.as_str(), reason, counts.bad, now) {
                (context.report)(BusEvent::Bad { node: node.clone(), reason, count });
            }
        }
        if counts.deferred > 0
            && let Some((_, count)) = limit.count(node.as_str(), DEFERRED, counts.deferred, now)
        {
            (context.report)(BusEvent::Deferred { node: node.clone(), count });
        }
    }
}

/// Sends each node the ranges of its receipts that have records of the batch. A lost message is repaired by
/// the next, or by a question.
async fn send_receipts(context: &Context<'_>, committed: Committed) {
    let Committed { receipts, receipted, .. } = committed;
    let mut nodes: BTreeMap<Name, BTreeMap<Incarnation, RangeSet>> = BTreeMap::new();
    for (key, numbers) in receipted {
        if let Some(set) = receipts.get(&key) {
            let (node, incarnation) = key;
            nodes.entry(node).or_default().insert(incarnation, set.ranges_with(&numbers));
        }
    }
    for (node, receipts) in nodes {
        for message in receipts_messages(&node, receipts) {
            let _ = context.client.publish(Subject::Receipts.of(&node), message.into()).await;
        }
    }
}
