//! E-mail over SMTP, in plain text.

use std::fs;

use dwell_hub::alert::{Message, Security, Smtp};
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{SmtpTransport, Transport};

use super::{NotifyError, SEND_TIMEOUT};

/// Sends one e-mail to all addresses.
pub(super) fn send(smtp: &Smtp, to: &[String], message: &Message) -> Result<(), NotifyError> {
    let malformed = |error: &dyn std::fmt::Display| NotifyError::Malformed(error.to_string());
    let mailbox = |address: &String| address.parse::<Mailbox>().map_err(|error| malformed(&error));
    let mut email = lettre::Message::builder()
        .from(mailbox(&smtp.from)?)
        .subject(message.subject.clone())
        .header(ContentType::TEXT_PLAIN);
    for address in to {
        email = email.to(mailbox(address)?);
    }
    let email = email.body(message.text.clone()).map_err(|error| malformed(&error))?;
    let server = format!("{}:{}", smtp.host, smtp.port());
    let failed = |error: lettre::transport::smtp::Error| {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if !reason.contains(&cause.to_string()) {
                reason += &format!(": {cause}");
            }
            source = cause.source();
        }
        NotifyError::Email { server: server.clone(), reason }
    };
    let tls = |host: &str| TlsParameters::new(host.to_owned()).map_err(failed);
    let tls = match smtp.security {
        Security::StartTls => Tls::Required(tls(&smtp.host)?),
        Security::Tls => Tls::Wrapper(tls(&smtp.host)?),
        Security::None => Tls::None,
    };
    // Not encrypted only with security = "none", which the rules allow for the machine itself.
    let mut transport = SmtpTransport::builder_dangerous(&smtp.host)
        .port(smtp.port())
        .tls(tls)
        .timeout(Some(SEND_TIMEOUT));
    if let (Some(user), Some(path)) = (&smtp.user, &smtp.password_file) {
        let password = fs::read_to_string(path).map_err(|error| NotifyError::Password {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        transport = transport.credentials(Credentials::new(user.clone(), password));
    }
    transport.build().send(&email).map_err(failed)?;
    Ok(())
}
