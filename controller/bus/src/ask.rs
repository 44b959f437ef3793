//! Questions of nodes: admitted one per node at a time, and answered from the store.

use std::sync::PoisonError;
use std::time::Instant;

use dwell_hub::HubError;
use dwell_rollup::{Answer, MAX_QUESTION_LEN, Name, Question, Subject, inbox_prefix};
use tokio::task::JoinHandle;

use crate::answer::{Answerer, encode};
use crate::error::{BusError, chain};
use crate::event::BusEvent;
use crate::hub::{Context, RETRY_INTERVAL, SharedStore, Stop};
use crate::inbound::{Inbound, Subscription};
use crate::protocol::Received;
use crate::question_queue::{Asked, QuestionQueue};
use crate::rate_limit::RateLimit;

/// Group of the subscription: one hub answers each question.
const HUBS: &str = "hubs";

type Answered = (Answerer, Vec<Asked>, Result<Vec<Answer>, HubError>);

/// Answers until the hub is to stop.
pub(crate) async fn answer_questions(context: &Context<'_>, mut stop: Stop) {
    let (subject, mut reported) = (Subject::Ask.of_all(), String::new());
    let subscription =
        Subscription { subject: &subject, group: Some(HUBS), max_payload: MAX_QUESTION_LEN };
    while !stop.is_requested() {
        let opened = tokio::select! {
            opened = Inbound::open(&context.hub.address, subscription) => opened,
            () = stop.requested() => return,
        };
        match opened {
            Ok(questions) => {
                reported.clear();
                answer_from(context, questions, &mut stop).await;
            }
            Err(error) => {
                let reason = error.to_string();
                if reason != reported {
                    (context.report)(event_of(&error));
                    reported = reason;
                }
            }
        }
        stop.sleep(RETRY_INTERVAL).await;
    }
}

fn event_of(error: &BusError) -> BusEvent {
    match error {
        BusError::Receive(reason) if reason.to_lowercase().contains("permission") => {
            BusEvent::Refused(reason.clone())
        }
        error => BusEvent::Waiting(error.to_string()),
    }
}

/// Answers until the connection ends, or the hub is to stop.
async fn answer_from(context: &Context<'_>, mut questions: Inbound, stop: &mut Stop) {
    let (mut limit, mut waiting) = (RateLimit::default(), QuestionQueue::default());
    let mut answerer = Some(Answerer::default());
    let mut job: Option<JoinHandle<Answered>> = None;
    let mut has_failed = false;
    loop {
        if job.is_none() {
            let asked = waiting.take(Instant::now());
            if !asked.is_empty()
                && let Some(answerer) = answerer.take()
            {
                job = Some(start(context, answerer, asked));
            }
        }
        let finished = async {
            match &mut job {
                Some(job) => job.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.requested() => return,
            message = questions.next() => {
                let Ok(message) = message else { return };
                if let Some(asked) = admit(message, &mut limit, Instant::now()) {
                    context.asked.borrow_mut().insert(asked.question.node.clone());
                    waiting.add(asked);
                }
            }
            finished = finished => {
                job = None;
                let (returned, asked, outcome) = match finished {
                    Ok(answered) => answered,
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                };
                answerer = Some(returned);
                match outcome {
                    Ok(answers) => {
                        has_failed = false;
                        reply(context, asked, answers).await;
                    }
                    // The nodes ask again.
                    Err(error) if !std::mem::replace(&mut has_failed, true) => {
                        (context.report)(BusEvent::DatabaseFailed(chain(&error)));
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

/// Returns a question that may be answered. Its answer goes to the node itself only: the hub may publish
/// to subjects that a node may not.
fn admit(message: Received, limit: &mut RateLimit, at: Instant) -> Option<Asked> {
    let (Subject::Ask, node) = Subject::parse(&message.subject)? else { return None };
    let reply = message.reply.filter(|reply| is_inbox_of(&node, reply))?;
    if !limit.admit(&node, at) {
        return None;
    }
    let question = Question::from_json(&message.payload, &node).ok()?;
    Some(Asked { question, reply, at })
}

/// Whether a reply subject is one of a node's own.
fn is_inbox_of(node: &Name, reply: &str) -> bool {
    reply.strip_prefix(&inbox_prefix(node)).is_some_and(|rest| rest.starts_with('.'))
}

fn start(context: &Context<'_>, mut answerer: Answerer, asked: Vec<Asked>) -> JoinHandle<Answered> {
    let store = SharedStore::clone(&context.hub.store);
    tokio::task::spawn_blocking(move || {
        let questions: Vec<Question> = asked.iter().map(|asked| asked.question.clone()).collect();
        let outcome = {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            answerer.answer(&mut *store, &questions)
        };
        (answerer, asked, outcome)
    })
}

async fn reply(context: &Context<'_>, asked: Vec<Asked>, answers: Vec<Answer>) {
    for (Asked { question, reply, .. }, answer) in asked.into_iter().zip(answers) {
        let (json, schedule) = encode(answer);
        let _ = context.client.publish(reply, json.into()).await;
        if let Some(schedule) = schedule {
            let subject = Subject::Schedule.of(&question.node);
            let _ = context.client.publish(subject, schedule.into()).await;
        }
    }
}
