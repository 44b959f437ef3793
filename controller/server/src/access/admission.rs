//! Answers that last: an event stream ends when its visitor would no longer be admitted.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::session::SessionId;
use super::token::TokenHash;
use super::{Access, VISIT, Visit, locked};

/// Interval at which streams look whether their visitor is still admitted.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The token as it was read last, so that a thousand streams read the file once per interval.
#[derive(Debug, Default)]
pub(super) struct LastToken(Mutex<Option<(Instant, Option<TokenHash>)>>);

/// Why a visitor was admitted.
#[derive(Debug)]
pub(crate) struct Admission(Option<Admitted>);

#[derive(Debug)]
struct Admitted {
    access: Arc<Access>,
    /// The token at that time; `None` if none was demanded.
    token: Option<TokenHash>,
    session: Option<SessionId>,
}

/// Returns why the visitor of the current request was admitted.
pub(crate) fn admission() -> Admission {
    let admitted = VISIT.try_with(|Visit { access, session, token }| Admitted {
        access: Arc::clone(access),
        token: *token,
        session: *session,
    });
    Admission(admitted.ok())
}

impl Admission {
    /// Waits until the visitor would no longer be admitted: the token was replaced, or the session
    /// ended. Does not end before that.
    pub(crate) async fn ended(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if !self.lasts(Instant::now()) {
                return;
            }
        }
    }

    fn lasts(&self, now: Instant) -> bool {
        let Some(Admitted { access, token, session }) = &self.0 else { return true };
        let Some(token) = token else { return !access.demands_token() };
        let current = access.last_token(now);
        let is_current = current.is_some_and(|current| current.equals(token));
        let has_session = |id| locked(&access.sessions).lasts(now, id);
        is_current && session.as_ref().is_none_or(has_session)
    }
}

impl Access {
    /// The token, at most one interval old. `None` if it cannot be read: requests are refused then, too.
    fn last_token(&self, now: Instant) -> Option<TokenHash> {
        let mut last = locked(&self.last_token.0);
        match *last {
            Some((at, token)) if now.saturating_duration_since(at) < CHECK_INTERVAL / 2 => token,
            _ => {
                let token = self.token().ok().flatten();
                *last = Some((now, token));
                token
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::access::{AccessConfig, token};

    fn access(data: &std::path::Path) -> Arc<Access> {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        Arc::new(Access::new(&AccessConfig::default(), data.to_owned(), address, |_| {}))
    }

    #[test]
    fn admission_ends_with_its_token_and_session() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(dir.path());
        let now = Instant::now();
        let later = now + CHECK_INTERVAL;
        let by =
            |token, session| Admission(Some(Admitted { access: access.clone(), token, session }));
        let open = by(None, None);
        assert!(open.lasts(now));
        let secret = token::create(dir.path()).unwrap().text;
        assert!(!open.lasts(now), "a token is demanded now");
        let first = TokenHash::of(&secret);
        let cookie = locked(&access.sessions).begin(now, first);
        let session = locked(&access.sessions).find(now, &cookie, Some(first)).unwrap();
        let (bearer, browser) = (by(Some(first), None), by(Some(first), Some(session)));
        assert!(bearer.lasts(later) && browser.lasts(later));
        locked(&access.sessions).end(&session);
        assert!(bearer.lasts(later) && !browser.lasts(later), "logged out");
        token::create(dir.path()).unwrap();
        assert!(!bearer.lasts(later + CHECK_INTERVAL), "the token was replaced");
    }
}
