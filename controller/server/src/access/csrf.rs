//! Tokens of forms: a page of another site cannot read them, so it cannot send our forms.
//!
//! A token is bound to the session. It is different on every page, so that the size of a compressed
//! page says nothing about it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::secret::{self, SECRET_LEN};
use super::session::SessionId;

/// Length of the key: one block of the hash.
const KEY_LEN: usize = 2 * SECRET_LEN;

/// The key of all tokens. It is made at the start, so a form does not outlive the server.
#[derive(Clone)]
pub(crate) struct CsrfKey([u8; KEY_LEN]);

impl std::fmt::Debug for CsrfKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CsrfKey")
    }
}

impl CsrfKey {
    /// Returns a random key.
    pub(crate) fn random() -> Self {
        let mut key = [0; KEY_LEN];
        key.as_chunks_mut().0.fill_with(secret::random);
        Self(key)
    }

    /// Returns a token for a session, or for visitors without one.
    pub(crate) fn token(&self, session: Option<&SessionId>) -> String {
        let mask = secret::random();
        let masked = masked(&mask, &self.mac(session));
        URL_SAFE_NO_PAD.encode([mask, masked].concat())
    }

    /// Whether this is a token of the session.
    pub(crate) fn verify(&self, token: &str, session: Option<&SessionId>) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else { return false };
        let Ok(bytes) = <[u8; 2 * SECRET_LEN]>::try_from(bytes) else { return false };
        let (mut mask, mut sent) = ([0; SECRET_LEN], [0; SECRET_LEN]);
        mask.copy_from_slice(&bytes[..SECRET_LEN]);
        sent.copy_from_slice(&bytes[SECRET_LEN..]);
        secret::equal(&masked(&mask, &sent), &self.mac(session))
    }

    fn mac(&self, session: Option<&SessionId>) -> [u8; SECRET_LEN] {
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(if session.is_some() { b"session" } else { b"visitor" });
        mac.update(session.map_or(&[], |id| id.as_slice()));
        mac.finalize().into_bytes().into()
    }
}

fn masked(mask: &[u8; SECRET_LEN], value: &[u8; SECRET_LEN]) -> [u8; SECRET_LEN] {
    std::array::from_fn(|n| mask[n] ^ value[n])
}

/// Returns the value of a field of a form or query (`application/x-www-form-urlencoded`) whose values
/// need no decoding; `None` if it is absent or given twice.
pub(crate) fn field<'a>(form: &'a str, name: &str) -> Option<&'a str> {
    let mut values = form
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_valid_for_its_session_and_server_only() {
        let (key, other) = (CsrfKey::random(), CsrfKey::random());
        let (one, two) = ([1; SECRET_LEN], [2; SECRET_LEN]);
        let token = key.token(Some(&one));
        assert!(key.verify(&token, Some(&one)));
        assert!(!key.verify(&token, Some(&two)));
        assert!(!key.verify(&token, None));
        assert!(!other.verify(&token, Some(&one)));
        assert!(key.verify(&key.token(None), None));
        for wrong in ["", "x", &token[..token.len() - 1], &format!("{token}A"), "é"] {
            assert!(!key.verify(wrong, Some(&one)), "{wrong}");
        }
    }

    #[test]
    fn tokens_of_one_session_differ() {
        let key = CsrfKey::random();
        assert_ne!(key.token(None), key.token(None));
    }

    #[test]
    fn field_is_found_once_only() {
        assert_eq!(field("plan=x&csrf=abc&y=", "csrf"), Some("abc"));
        assert_eq!(field("csrf=abc", "csrf"), Some("abc"));
        for form in ["", "csrf", "xcsrf=abc", "csrf=abc&csrf=abd", "plan=csrf=abc"] {
            assert_eq!(field(form, "csrf"), None, "{form}");
        }
    }
}
