//! A hub on a NATS bus: receives the records of nodes from a work-queue stream, stores them, and
//! answers with receipts and schedules. Also the keys that nats-server accepts and its configuration,
//! as texts.
//!
//! The stream is a queue, not a promise: a node frees a record only by a receipt, which exists since the
//! transaction that stored the record. `docs/decisions/0016-receipts-on-the-bus.md` has the reasons.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod acknowledgement;
mod announce;
mod answer;
mod ask;
mod connect;
mod error;
mod event;
mod hub;
mod inbound;
mod key_file;
mod keys;
mod log_limit;
mod permissions;
mod protocol;
mod pull;
mod question_queue;
mod rate_limit;
mod receive;
mod server_config;
mod stream;

pub use connect::BusAddress;
pub use error::BusError;
pub use event::BusEvent;
pub use hub::{BusHub, SharedStore, run};
pub use key_file::{KeyFileError, change_keys, password_file, read_keys, replace_file, seed_file};
pub use keys::{
    AcceptedKey, AcceptedKeys, Credential, KeysError, Owner, PasswordHash, PublicKey,
    PublicKeyError, new_user_key, public_key_of,
};
pub use server_config::{HubServer, HubServerSettings, LeafServer, ServerTls};
pub use stream::{DEFAULT_STREAM_BYTES, MAX_NODE_MESSAGES};
