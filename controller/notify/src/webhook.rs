//! Webhooks: a JSON object by POST.

use std::sync::Arc;

use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use super::{NotifyError, SEND_TIMEOUT};

/// Posts a JSON object. Follows no redirect, because it would send the object to another host.
pub(super) fn post(url: &str, object: &Value) -> Result<(), NotifyError> {
    let place = place(url);
    let config = Agent::config_builder()
        .timeout_global(Some(SEND_TIMEOUT))
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls())
        .build();
    let request = Agent::new_with_config(config)
        .post(url)
        .header("content-type", "application/json")
        .send(object.to_string());
    match request {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(NotifyError::Status { url: place, status: answer.status().as_u16() }),
        Err(error) => Err(NotifyError::Webhook { url: place, reason: error.to_string() }),
    }
}

/// Certificates of the machine are trusted.
fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<Certificate<'static>> =
        found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// Scheme, host and port of a URL, without user, path and query, which may be secrets.
fn place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_a_webhook_has_no_secret() {
        assert_eq!(
            place("https://user:pass@hooks.example.org:8443/T0/secret?x=1"),
            "https://hooks.example.org:8443"
        );
        assert_eq!(place("http://127.0.0.1:80"), "http://127.0.0.1:80");
    }
}
