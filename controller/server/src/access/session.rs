//! Sessions of browsers that logged in: in memory only, so they end with the server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::secret;
use super::token::TokenHash;

/// Maximum age of a session.
pub(crate) const MAX_SESSION_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of sessions; another login ends the oldest.
const MAX_SESSIONS: usize = 1024;

/// Digest of the cookie of a session, by which it is found.
pub(crate) type SessionId = [u8; secret::SECRET_LEN];

/// The sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: HashMap<SessionId, Session>,
}

#[derive(Debug)]
struct Session {
    begin: Instant,
    /// The token of the login. Another token ends the session.
    token: TokenHash,
}

impl Sessions {
    /// Begins a session and returns the value of its cookie: 256 random bits.
    pub(crate) fn begin(&mut self, now: Instant, token: TokenHash) -> String {
        self.open.retain(|_, session| session.lasts(now));
        if self.open.len() >= MAX_SESSIONS {
            let oldest = self.open.iter().min_by_key(|(_, session)| session.begin);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.open.remove(&id);
            }
        }
        let cookie = secret::hex(&secret::random());
        self.open.insert(secret::digest(&cookie), Session { begin: now, token });
        cookie
    }

    /// Returns the session of a cookie if it lasts and `token` is still the one of its login.
    pub(crate) fn find(
        &self,
        now: Instant,
        cookie: &str,
        token: Option<TokenHash>,
    ) -> Option<SessionId> {
        let id = secret::digest(cookie);
        let session = self.open.get(&id)?;
        let same = token.is_some_and(|token| token.equals(&session.token));
        (same && session.lasts(now)).then_some(id)
    }

    /// Whether a session has not ended by its age or a logout.
    pub(crate) fn lasts(&self, now: Instant, id: &SessionId) -> bool {
        self.open.get(id).is_some_and(|session| session.lasts(now))
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, id: &SessionId) {
        self.open.remove(id);
    }
}

impl Session {
    fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begin) < MAX_SESSION_AGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ends_by_age_by_logout_and_with_its_token() {
        let (now, token) = (Instant::now(), TokenHash::of("token"));
        let mut sessions = Sessions::default();
        let cookie = sessions.begin(now, token);
        let almost = now + MAX_SESSION_AGE - Duration::from_secs(1);
        assert!(sessions.find(almost, &cookie, Some(token)).is_some());
        assert!(sessions.find(now + MAX_SESSION_AGE, &cookie, Some(token)).is_none());
        assert!(sessions.find(now, &cookie, Some(TokenHash::of("new token"))).is_none());
        assert!(sessions.find(now, &cookie, None).is_none());
        assert!(sessions.find(now, &cookie[1..], Some(token)).is_none());
        let id = sessions.find(now, &cookie, Some(token)).unwrap();
        sessions.end(&id);
        assert!(sessions.find(now, &cookie, Some(token)).is_none());
    }

    #[test]
    fn number_of_sessions_is_bounded_and_the_oldest_ends() {
        let (start, token) = (Instant::now(), TokenHash::of("token"));
        let mut sessions = Sessions::default();
        let at = |n: usize| start + Duration::from_millis(n as u64);
        let cookies: Vec<_> = (0..=MAX_SESSIONS).map(|n| sessions.begin(at(n), token)).collect();
        let now = at(MAX_SESSIONS);
        assert_eq!(sessions.open.len(), MAX_SESSIONS);
        assert!(sessions.find(now, &cookies[0], Some(token)).is_none());
        assert!(sessions.find(now, &cookies[1], Some(token)).is_some());
        sessions.begin(now + 2 * MAX_SESSION_AGE, token);
        assert_eq!(sessions.open.len(), 1, "expired sessions are forgotten");
    }
}
