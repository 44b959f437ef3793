//! The stream in which records wait for a hub, and the consumer that all hubs share.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, Context, ErrorCode};
use dwell_rollup::{CONSUMER, MAX_MESSAGE_LEN, STREAM, Subject};

use crate::error::{BusError, chain};

/// `max_payload` of nats-server in bytes: the longest answer to a node.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

/// Default size of the stream in bytes.
pub const DEFAULT_STREAM_BYTES: u64 = 4 << 30;

/// Maximum number of messages of one node in the stream. Beyond, the server refuses those of this node
/// only.
pub const MAX_NODE_MESSAGES: i64 = 64;

/// Time after which a message that no hub acknowledged is delivered again.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Maximum number of messages that are delivered and not acknowledged, of all hubs.
const MAX_ACK_PENDING: i64 = 10_000;

/// Time for an answer of JetStream.
const API_TIMEOUT: Duration = Duration::from_secs(5);

/// Stream and consumer on a server.
pub(crate) struct Queue {
    context: Context,
    /// Size of the stream in bytes; `None` creates [`DEFAULT_STREAM_BYTES`], and leaves an existing
    /// stream as it is.
    max_bytes: Option<u64>,
}

impl Queue {
    pub(crate) fn new(client: &Client, max_bytes: Option<u64>) -> Self {
        let mut context = jetstream::new(client.clone());
        context.set_timeout(API_TIMEOUT);
        Self { context, max_bytes }
    }

    /// Creates stream and consumer, or checks them. Returns the number of messages in the stream.
    ///
    /// # Errors
    /// [`BusError`] with a remedy.
    pub(crate) async fn prepare(&self) -> Result<u64, BusError> {
        let wanted = wanted(self.max_bytes.unwrap_or(DEFAULT_STREAM_BYTES));
        let stream = match self.context.get_stream(STREAM).await {
            Ok(stream) => {
                self.check(stream.cached_info(), &wanted).await?;
                stream
            }
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(cause)
                    if cause.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    self.create(&wanted).await?
                }
                _ => return Err(BusError::JetStream(chain(&error))),
            },
        };
        let waiting = stream.cached_info().state.messages;
        let consumer: Consumer<ConsumerConfig> = stream
            .get_or_create_consumer(CONSUMER, consumer())
            .await
            .map_err(|error| BusError::JetStream(chain(&error)))?;
        check_consumer(&consumer.cached_info().config)?;
        Ok(waiting)
    }

    async fn check(&self, found: &Info, wanted: &Config) -> Result<(), BusError> {
        let differences = differences(&found.config, wanted);
        if !differences.is_empty() {
            return Err(BusError::Settings(differences.join(", ")));
        }
        if self.max_bytes.is_some() && found.config.max_bytes != wanted.max_bytes {
            let changed = Config { max_bytes: wanted.max_bytes, ..found.config.clone() };
            if let Err(error) = self.context.update_stream(&changed).await {
                return Err(create_error(wanted, &error.kind(), &error));
            }
        }
        Ok(())
    }

    async fn create(&self, wanted: &Config) -> Result<Stream, BusError> {
        match self.context.create_stream(wanted).await {
            Ok(stream) => {
                // An older server ignores what it does not know.
                self.check(stream.cached_info(), wanted).await?;
                Ok(stream)
            }
            Err(error) => Err(create_error(wanted, &error.kind(), &error)),
        }
    }
}

fn create_error(
    wanted: &Config,
    kind: &CreateStreamErrorKind,
    error: &dyn std::error::Error,
) -> BusError {
    let reason = chain(error);
    let remedy = match kind {
        CreateStreamErrorKind::JetStream(cause)
            if [
                ErrorCode::INSUFFICIENT_RESOURCES,
                ErrorCode::STORAGE_RESOURCES_EXCEEDED,
                ErrorCode::STREAM_LIMITS,
            ]
            .contains(&cause.error_code()) =>
        {
            "choose a smaller --nats-size, or raise max_file_store and max_file in its configuration"
        }
        CreateStreamErrorKind::JetStream(_) => "use the configuration of `dwell hub nats-config`",
        _ => return BusError::JetStream(reason),
    };
    BusError::Create { max_bytes: wanted.max_bytes.unsigned_abs(), reason, remedy }
}

/// Settings of the stream. A full one refuses new messages, because old ones may be acknowledged to
/// their nodes. It is no record's only place: nodes keep records until a hub has committed them.
fn wanted(max_bytes: u64) -> Config {
    Config {
        name: STREAM.to_owned(),
        description: Some("Records that no dwell hub has stored yet".to_owned()),
        subjects: vec![Subject::Up.of_all()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
        max_messages_per_subject: MAX_NODE_MESSAGES,
        max_message_size: (MAX_MESSAGE_LEN + MAX_HEADERS_LEN) as i32,
        max_consumers: 1,
        num_replicas: 1,
        // A node may name a subject of the JetStream API for the acknowledgement of its message.
        deny_purge: true,
        deny_delete: true,
        ..Config::default()
    }
}

/// Maximum length of the headers of a message in bytes, which count with its payload.
const MAX_HEADERS_LEN: usize = 4 << 10;

fn differences(found: &Config, wanted: &Config) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |is_equal: bool, text: String| {
        if !is_equal {
            differences.push(text);
        }
    };
    compare(found.subjects == wanted.subjects, format!("subjects {}", found.subjects.join(" ")));
    compare(
        found.retention == wanted.retention,
        format!("retention {:?} instead of WorkQueue", found.retention),
    );
    compare(
        found.storage == wanted.storage,
        format!("storage {:?} instead of File", found.storage),
    );
    compare(found.discard == wanted.discard, format!("discard {:?} instead of New", found.discard));
    compare(
        found.discard_new_per_subject && found.max_messages_per_subject > 0,
        "no limit of messages per subject with discard_new_per_subject (nats-server 2.9 or later)"
            .to_owned(),
    );
    compare(found.max_bytes > 0, "no maximum size".to_owned());
    compare(found.max_age.is_zero(), format!("maximum age {:?}", found.max_age));
    compare(found.deny_purge, "purging is allowed".to_owned());
    compare(found.deny_delete, "deletion of messages is allowed".to_owned());
    differences
}

fn consumer() -> ConsumerConfig {
    ConsumerConfig {
        durable_name: Some(CONSUMER.to_owned()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        // A message is delivered until a hub has stored it.
        max_deliver: -1,
        max_ack_pending: MAX_ACK_PENDING,
        ..ConsumerConfig::default()
    }
}

/// Checks a consumer that exists. Its times are the operator's.
fn check_consumer(found: &async_nats::jetstream::consumer::Config) -> Result<(), BusError> {
    if found.ack_policy != AckPolicy::Explicit {
        let policy = found.ack_policy;
        return Err(BusError::Settings(format!("consumer {CONSUMER} acknowledges {policy:?}")));
    }
    if found.max_deliver > 0 {
        let times = found.max_deliver;
        return Err(BusError::Settings(format!("consumer {CONSUMER} delivers only {times} times")));
    }
    Ok(())
}
