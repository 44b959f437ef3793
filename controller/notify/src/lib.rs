//! Sends messages about alerts: webhooks over HTTP and e-mail over SMTP.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod email;
mod webhook;

use std::time::Duration;

use dwell_hub::alert::{Message, Target};
use thiserror::Error;

/// Longest time of a webhook, and of each step of an e-mail, which has about eight. Both are shorter than
/// the claim of a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A message that was not sent.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// The webhook is unreachable, or its server broke the protocol.
    #[error("cannot reach {url}: {reason}")]
    Webhook {
        /// Scheme, host and port of the webhook. Its path may be a secret.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The webhook answered with another status than 2xx.
    #[error("{url} answered with status {status}{}", hint(*status))]
    Status {
        /// Scheme, host and port of the webhook.
        url: String,
        /// The status.
        status: u16,
    },
    /// The mail server is unreachable or refused the message.
    #[error("mail server {server}: {reason}")]
    Email {
        /// Name and port.
        server: String,
        /// The reason.
        reason: String,
    },
    /// An address, or the message, is invalid.
    #[error("the e-mail cannot be formed: {0}")]
    Malformed(String),
    /// The password cannot be read.
    #[error("cannot read password_file {path}: {reason}")]
    Password {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
}

const fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed: enter the final URL",
        401 | 403 => "; check the token in the URL",
        _ => "",
    }
}

/// Sends a message. Waits at most two minutes.
///
/// # Errors
/// The message was not accepted. It may be sent again.
pub fn send(target: &Target, message: &Message) -> Result<(), NotifyError> {
    match target {
        Target::Webhook(url) => webhook::post(url, &message.object),
        Target::Email { to, smtp } => email::send(smtp, to, message),
    }
}
