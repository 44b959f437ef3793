//! Receives messages in batches, stores each batch in one transaction, and acknowledges it then.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{AckKind, Message};
use dwell_hub::{Committed, Delivery, HubError, Rules, ingest};
use dwell_rollup::{Incarnation, Name, RangeSet, Subject};
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::answer::receipts_messages;
use crate::error::{BusError, chain};
use crate::event::BusEvent;
use crate::hub::{Context, RETRY_INTERVAL, SharedStore, Stop, now_ns};
use crate::stream::{PULL_BATCH, PULL_BYTES};

/// Time after the first message of a batch at which it is stored.
const BATCH_TIME: Duration = Duration::from_millis(100);

/// Time after which messages that the database did not store are delivered again, to any hub.
const REDELIVERY_DELAY: Duration = Duration::from_secs(2);

/// Reasons of messages to the log that have an event of their own.
const DEFERRED: &str = "deferred";
const NO_NODE: &str = "no node";

/// Why a batch ended.
enum End {
    /// It is complete.
    Complete,
    /// No more messages come this way.
    Interrupted(Option<String>),
    /// The hub is to stop.
    Stopped,
}

/// Receives until the hub is to stop.
///
/// # Errors
/// The stream cannot be used as it is. After the first success, such faults are waited for instead.
pub(crate) async fn receive(context: &Context<'_>, mut stop: Stop) -> Result<(), BusError> {
    let (mut reported, mut has_failed, mut has_received) = (String::new(), false, false);
    while !stop.is_requested() {
        let opened = tokio::select! {
            opened = context.queue.receive() => opened,
            () = stop.requested() => return Ok(()),
        };
        let reason = match opened {
            Ok((messages, waiting)) => {
                let server = context.server.clone();
                (context.report)(BusEvent::Receiving { server, waiting });
                reported.clear();
                has_received = true;
                receive_from(context, messages, &mut stop, &mut has_failed).await
            }
            Err(error)
                if error.is_transient() || has_received && error.is_transient_for_working_hub() =>
            {
                Some(error.to_string())
            }
            Err(error) => return Err(error),
        };
        if let Some(reason) = reason {
            if reason != reported {
                (context.report)(BusEvent::Waiting(reason.clone()));
                reported = reason;
            }
            stop.sleep(RETRY_INTERVAL).await;
        }
    }
    Ok(())
}

/// Receives until the messages end, and returns why; `None` without a failure.
async fn receive_from(
    context: &Context<'_>,
    mut messages: pull::Stream,
    stop: &mut Stop,
    has_failed: &mut bool,
) -> Option<String> {
    loop {
        let (batch, end) = next_batch(context, &mut messages, stop).await;
        if !batch.is_empty() {
            store(context, batch, stop, has_failed).await;
        }
        match end {
            End::Complete => {}
            End::Interrupted(reason) => {
                // What already arrived need not come again.
                let rest = take_ready(&mut messages);
                if !rest.is_empty() {
                    store(context, rest, stop, has_failed).await;
                }
                return reason;
            }
            End::Stopped => {
                release(messages).await;
                return None;
            }
        }
    }
}

/// Collects messages until there are many, or for a short time after the first one.
async fn next_batch(
    context: &Context<'_>,
    messages: &mut pull::Stream,
    stop: &mut Stop,
) -> (Vec<Message>, End) {
    let (mut batch, mut bytes, mut deadline) = (Vec::new(), 0, None::<Instant>);
    while batch.len() < PULL_BATCH && bytes < PULL_BYTES {
        let next = async {
            match deadline {
                Some(deadline) => timeout_at(deadline, messages.next()).await.ok(),
                None => Some(messages.next().await),
            }
        };
        let next = tokio::select! {
            biased;
            () = stop.requested() => return (batch, End::Stopped),
            next = next => next,
            () = context.reconnected.notified() => return (batch, End::Interrupted(None)),
        };
        match next {
            Some(Some(Ok(message))) => {
                bytes += message.payload.len();
                batch.push(message);
                deadline.get_or_insert_with(|| Instant::now() + BATCH_TIME);
            }
            Some(Some(Err(error))) => {
                return (batch, End::Interrupted(Some(chain(&error))));
            }
            Some(None) => return (batch, End::Interrupted(None)),
            None => break,
        }
    }
    (batch, End::Complete)
}

/// Gives back what was received and not stored, so that another hub need not wait for it.
async fn release(mut messages: pull::Stream) {
    let unstored = take_ready(&mut messages);
    // Without this subscription, the server cannot deliver them here once more.
    drop(messages);
    for message in unstored {
        let _ = message.ack_with(AckKind::Nak(None)).await;
    }
}

/// Messages that have arrived.
fn take_ready(messages: &mut pull::Stream) -> Vec<Message> {
    std::iter::from_fn(|| messages.next().now_or_never()??.ok()).take(PULL_BATCH).collect()
}

/// Stores a batch, acknowledges its messages and sends receipts.
async fn store(context: &Context<'_>, batch: Vec<Message>, stop: &mut Stop, has_failed: &mut bool) {
    let (of_nodes, others): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|message| (node_of(&message), message))
        .partition(|(node, _)| node.is_some());
    for (_, message) in others {
        let is_due =
            context.log_limit.borrow_mut().count("", NO_NODE, 1, Instant::now().into_std());
        if let Some((_, count)) = is_due {
            (context.report)(BusEvent::NoNode { subject: message.subject.to_string(), count });
        }
        let _ = message.ack_with(AckKind::Term).await;
    }
    let received: Vec<(Name, Message)> =
        of_nodes.into_iter().filter_map(|(node, message)| Some((node?, message))).collect();
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
            // An acknowledgement that is lost costs a duplicate.
            for (_, message) in received {
                let _ = message.ack_with(AckKind::Ack).await;
            }
            report_counts(context, &committed);
            send_receipts(context, committed.receipts).await;
        }
        Err(error) => {
            if !std::mem::replace(has_failed, true) {
                (context.report)(BusEvent::DatabaseFailed(chain(&error)));
            }
            for (_, message) in received {
                let _ = message.ack_with(AckKind::Nak(Some(REDELIVERY_DELAY))).await;
            }
            stop.sleep(REDELIVERY_DELAY).await;
        }
    }
}

fn node_of(message: &Message) -> Option<Name> {
    match Subject::parse(&message.subject)? {
        (Subject::Up, node) => Some(node),
        _ => None,
    }
}

fn ingest_messages(
    store: &SharedStore,
    received: &[(Name, Message)],
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

/// Sends each node its receipts. A lost one is repaired by the next, or by a question.
async fn send_receipts(context: &Context<'_>, receipts: BTreeMap<(Name, Incarnation), RangeSet>) {
    let mut nodes: BTreeMap<Name, BTreeMap<Incarnation, RangeSet>> = BTreeMap::new();
    for ((node, incarnation), set) in receipts {
        nodes.entry(node).or_default().insert(incarnation, set);
    }
    for (node, receipts) in nodes {
        for message in receipts_messages(&node, receipts) {
            let _ = context.client.publish(Subject::Receipts.of(&node), message.into()).await;
        }
    }
}
