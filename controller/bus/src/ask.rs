//! Questions of nodes: admitted one per node at a time, and answered from the store.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Instant;

use dwell_hub::HubError;
use dwell_rollup::{Answer, Name, Question, Subject, inbox_prefix};
use futures_util::StreamExt;
use tokio::task::JoinHandle;

use crate::answer::{Answerer, encode};
use crate::error::chain;
use crate::event::BusEvent;
use crate::hub::{Context, RETRY_INTERVAL, SharedStore, Stop};
use crate::rate_limit::RateLimit;

/// Group of the subscription: one hub answers each question.
const HUBS: &str = "hubs";

/// A question and the subject of its answer.
struct Asked {
    question: Question,
    reply: async_nats::Subject,
}

type Answered = (Answerer, Vec<Asked>, Result<Vec<Answer>, HubError>);

/// Answers until the hub is to stop.
pub(crate) async fn answer_questions(context: &Context<'_>, mut stop: Stop) {
    while !stop.is_requested() {
        let subject = Subject::Ask.of_all();
        match context.client.queue_subscribe(subject, HUBS.to_owned()).await {
            Ok(questions) => answer_from(context, questions, &mut stop).await,
            Err(error) => (context.report)(BusEvent::Waiting(chain(&error))),
        }
        stop.sleep(RETRY_INTERVAL).await;
    }
}

async fn answer_from(
    context: &Context<'_>,
    mut questions: async_nats::Subscriber,
    stop: &mut Stop,
) {
    let (mut limit, mut waiting) = (RateLimit::default(), BTreeMap::<Name, Asked>::new());
    let mut answerer = Some(Answerer::default());
    let mut job: Option<JoinHandle<Answered>> = None;
    let mut has_failed = false;
    loop {
        if job.is_none()
            && !waiting.is_empty()
            && let Some(answerer) = answerer.take()
        {
            let asked = std::mem::take(&mut waiting).into_values().collect();
            job = Some(start(context, answerer, asked));
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
                let Some(message) = message else { return };
                if let Some((node, asked)) = admit(message, &mut limit) {
                    context.asked.borrow_mut().insert(node.clone());
                    waiting.insert(node, asked);
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
fn admit(message: async_nats::Message, limit: &mut RateLimit) -> Option<(Name, Asked)> {
    let (Subject::Ask, node) = Subject::parse(&message.subject)? else { return None };
    let reply = message.reply?;
    let is_own = reply.strip_prefix(&inbox_prefix(&node)).is_some_and(|rest| rest.starts_with('.'));
    if !is_own || !limit.admit(&node, Instant::now()) {
        return None;
    }
    let question = Question::from_json(&message.payload, &node).ok()?;
    Some((node, Asked { question, reply }))
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
    for (Asked { question, reply }, answer) in asked.into_iter().zip(answers) {
        let (json, schedule) = encode(answer);
        let _ = context.client.publish(reply, json.into()).await;
        if let Some(schedule) = schedule {
            let subject = Subject::Schedule.of(&question.node);
            let _ = context.client.publish(subject, schedule.into()).await;
        }
    }
}
