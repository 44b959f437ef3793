//! Who may send which request. Each decision is a function without sockets, in a file of its own; this
//! one applies them to a request, in this order:
//!
//! 1. [`host`]: the name under which the server is addressed (421),
//! 2. [`origin`]: no parts of this server in pages of others (403),
//! 3. [`body`]: announced length (413),
//! 4. [`token`], [`session`], [`attempts`]: who it is (401, 429),
//! 5. [`origin`], [`csrf`]: for everything but GET and HEAD, whether a page of this server sends it (403).
//!
//! [`admission`] ends answers that last when their visitor is no longer admitted.
//! [`connections`] and [`tls`] act before a request exists, [`headers`] on every answer.

mod admission;
mod attempts;
mod body;
mod connections;
mod csrf;
mod headers;
mod host;
mod origin;
mod policy;
mod refusal;
mod secret;
mod session;
mod tls;
mod token;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use admission::LastToken;
pub(crate) use admission::{Admission, admission};
use attempts::Attempts;
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutBody;

use body::Limits;
pub(crate) use body::MAX_IMPORT_LEN;
pub(crate) use connections::Gate;
use csrf::CsrfKey;
use host::Hosts;
pub use policy::{Exposure, Missing};
pub(crate) use refusal::Refusal;
use session::{SessionId, Sessions};
pub use tls::{TlsError, TlsFiles};
use token::TokenHash;
pub use token::{NewToken, TokenError, create as create_token, exists as has_token};

/// Header by which scripts send the token of forms.
const CSRF_HEADER: &str = "x-dwell-csrf";

/// Who may use the server, and under which names.
#[derive(Clone, Debug, Default)]
pub struct AccessConfig {
    /// Further names by which the server is reached.
    pub hosts: Vec<String>,
    /// Certificate and key; without them, the server speaks HTTP.
    pub tls: Option<TlsFiles>,
    /// Whether a token is demanded even before one exists.
    pub require_token: bool,
}

/// State of all decisions.
#[derive(Debug)]
pub(crate) struct Access {
    data: PathBuf,
    hosts: Hosts,
    tls: bool,
    cookie: String,
    csrf: CsrfKey,
    /// Whether a token is demanded. Once it is, deleting the token does not open the server.
    demands_token: AtomicBool,
    sessions: Mutex<Sessions>,
    attempts: Mutex<Attempts>,
    last_token: LastToken,
    log: fn(&str),
}

/// The visitor of the current request, for the page that is rendered.
#[derive(Clone, Debug)]
struct Visit {
    access: Arc<Access>,
    session: Option<SessionId>,
    /// The token by which the visitor was admitted, in this or an earlier request.
    token: Option<TokenHash>,
}

tokio::task_local! {
    static VISIT: Visit;
}

/// Returns a token for the forms of the page that is rendered. Empty outside requests.
pub(crate) fn csrf_token() -> String {
    let token = VISIT.try_with(|visit| visit.access.csrf.token(visit.session.as_ref()));
    token.unwrap_or_default()
}

/// Whether the visitor of the current request logged in.
pub(crate) fn has_session() -> bool {
    VISIT.try_with(|visit| visit.session.is_some()).unwrap_or(false)
}

/// How a request proves who sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visitor {
    /// No token is demanded, and none was sent.
    Anyone,
    /// A cookie of a session, which began with this token.
    Session(SessionId, TokenHash),
    /// The token itself.
    Bearer(TokenHash),
}

impl Visitor {
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(id, _) => Some(*id),
            _ => None,
        }
    }

    /// The token by which the visitor is admitted.
    fn token(&self) -> Option<TokenHash> {
        match self {
            Self::Anyone => None,
            Self::Session(_, token) | Self::Bearer(token) => Some(*token),
        }
    }
}

impl Access {
    /// Returns the state of a server that listens on `address`.
    pub(crate) fn new(
        config: &AccessConfig,
        data: PathBuf,
        address: SocketAddr,
        log: fn(&str),
    ) -> Self {
        let tls = config.tls.is_some();
        // Cookies of one host are shared by all its ports, so the name contains the port. Browsers
        // accept `__Host-` only from the host itself, and with TLS.
        let prefix = if tls { "__Host-" } else { "" };
        Self {
            hosts: Hosts::new(address.ip(), &config.hosts),
            tls,
            cookie: format!("{prefix}dwell-{}", address.port()),
            csrf: CsrfKey::random(),
            demands_token: AtomicBool::new(config.require_token),
            sessions: Mutex::default(),
            attempts: Mutex::default(),
            last_token: LastToken::default(),
            data,
            log,
        }
    }

    /// Whether requests need a token or a session.
    pub(crate) fn demands_token(&self) -> bool {
        if !self.demands_token.load(Ordering::Relaxed) && token::exists(&self.data) {
            self.demands_token.store(true, Ordering::Relaxed);
        }
        self.demands_token.load(Ordering::Relaxed)
    }

    /// Begins a session for a visitor with the token, and returns the value of `Set-Cookie`.
    ///
    /// # Errors
    /// The token is wrong, or too many wrong ones were tried.
    pub(crate) fn log_in(&self, address: IpAddr, token: &str) -> Result<String, Refusal> {
        let now = Instant::now();
        if let Some(wait) = locked(&self.attempts).wait(now, address) {
            return Err(Refusal::TooManyAttempts(wait));
        }
        let Some(hash) = self.token()?.filter(|hash| hash.matches(token)) else {
            return Err(self.failed(now, address, Refusal::WrongToken));
        };
        let value = locked(&self.sessions).begin(now, hash);
        Ok(self.set_cookie(&value, session::MAX_SESSION_AGE))
    }

    /// Ends the session of the current request, and returns the value of `Set-Cookie`.
    pub(crate) fn log_out(&self) -> String {
        if let Ok(Some(id)) = VISIT.try_with(|visit| visit.session) {
            locked(&self.sessions).end(&id);
        }
        self.set_cookie("", Duration::ZERO)
    }

    fn set_cookie(&self, value: &str, age: Duration) -> String {
        let secure = if self.tls { "; Secure" } else { "" };
        let (name, age) = (&self.cookie, age.as_secs());
        format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}")
    }

    fn token(&self) -> Result<Option<TokenHash>, Refusal> {
        token::read(&self.data).map_err(|error| {
            (self.log)(&format!("dwell: {error}"));
            Refusal::TokenUnreadable
        })
    }

    /// Counts and logs a failed attempt. Attempts beyond the limit are neither counted nor logged, so
    /// that a flood of them does not make others wait longer.
    fn failed(&self, now: Instant, address: IpAddr, refusal: Refusal) -> Refusal {
        let mut attempts = locked(&self.attempts);
        if let Some(wait) = attempts.wait(now, address) {
            return Refusal::TooManyAttempts(wait);
        }
        attempts.count(now, address);
        drop(attempts);
        (self.log)(&format!("dwell: wrong token from {address}"));
        refusal
    }

    /// Decides who sends a request. A wrong bearer token is an error even where none is needed. A
    /// right one is accepted however many wrong ones came: it has 256 bits, so the limit protects the
    /// log and the processor, not the secret.
    fn visitor(&self, headers: &HeaderMap, address: IpAddr) -> Result<Visitor, Refusal> {
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
            let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let hash = self.token()?;
            let right = bearer.zip(hash).filter(|((_, token), hash)| hash.matches(token.trim()));
            return match right {
                Some((_, hash)) => Ok(Visitor::Bearer(hash)),
                None => Err(self.failed(Instant::now(), address, Refusal::WrongToken)),
            };
        }
        if !self.demands_token() {
            return Ok(Visitor::Anyone);
        }
        let Some(value) = cookie(headers, &self.cookie) else { return Err(Refusal::NoToken) };
        let token = self.token()?.ok_or(Refusal::NoToken)?;
        let found = locked(&self.sessions).find(Instant::now(), value, Some(token));
        found.map(|id| Visitor::Session(id, token)).ok_or(Refusal::NoToken)
    }

    /// Decides whether a request that is not GET or HEAD was meant by its sender. `sent` is the token
    /// of the form.
    fn check_change(
        &self,
        request: &Meta<'_>,
        visitor: &Visitor,
        sent: Option<&str>,
    ) -> Result<(), Refusal> {
        if !request.source.is_own(request.authority, self.tls) {
            return Err(Refusal::ForeignOrigin);
        }
        let from_browser = request.source.is_browser() || request.has_cookies;
        if !from_browser && matches!(visitor, Visitor::Bearer(_)) {
            return Ok(());
        }
        if !from_browser && *visitor == Visitor::Anyone && is_api(request.path) {
            let simple = *request.method == Method::POST
                && (request.has_body || request.content_type.is_some())
                && origin::is_simple_content_type(request.content_type);
            return if simple { Err(Refusal::SimpleContentType) } else { Ok(()) };
        }
        let session = visitor.session();
        let valid = sent.is_some_and(|token| self.csrf.verify(token, session.as_ref()));
        if valid { Ok(()) } else { Err(Refusal::CsrfToken) }
    }
}

/// What the decisions need to know of a request.
struct Meta<'a> {
    method: &'a Method,
    path: &'a str,
    authority: &'a str,
    source: origin::Source<'a>,
    content_type: Option<&'a str>,
    has_cookies: bool,
    has_body: bool,
}

/// Adds all checks, limits and headers to the routes.
pub(crate) fn protect(router: Router, access: Arc<Access>) -> Router {
    router
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(access, guard))
        .layer(CompressionLayer::new())
        .layer(middleware::map_response(headers::add))
}

/// Applies the decisions to a request.
async fn guard(
    State(access): State<Arc<Access>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let api = is_api(request.uri().path());
    // A change that needs a login cannot be repeated afterwards, but a page can.
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let page = request.uri().path_and_query().filter(|_| safe).map_or("/", |path| path.as_str());
    let page = page.to_owned();
    let visit = Visit { access: access.clone(), session: None, token: None };
    match admit(&access, peer.ip(), request).await {
        Ok((request, visit, limit)) => {
            let answer = VISIT.scope(visit, next.run(request));
            match tokio::time::timeout(limit, answer).await {
                Ok(response) => response,
                Err(_) => Refusal::Slow(limit).into_response_for(api, &page),
            }
        }
        Err(refusal) => VISIT.scope(visit, async { refusal.into_response_for(api, &page) }).await,
    }
}

/// Decides on a request, and returns it with its body read as far as the limits say.
async fn admit(
    access: &Arc<Access>,
    peer: IpAddr,
    request: Request,
) -> Result<(Request, Visit, Duration), Refusal> {
    let (mut parts, body) = request.into_parts();
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let authority = authority(&parts.headers, parts.uri.authority().map(|one| one.as_str()))
        .filter(|authority| access.hosts.permit(authority))
        .ok_or_else(|| Refusal::Host(text(header::HOST).unwrap_or_default().to_owned()))?
        .to_owned();
    let request = Meta {
        method: &parts.method,
        path: parts.uri.path(),
        authority: &authority,
        source: origin::Source {
            origin: text(header::ORIGIN).or(parts.headers.get(header::ORIGIN).map(|_| "")),
            site: text(header::HeaderName::from_static("sec-fetch-site")),
            mode: text(header::HeaderName::from_static("sec-fetch-mode")),
            dest: text(header::HeaderName::from_static("sec-fetch-dest")),
            agent: text(header::USER_AGENT),
        },
        content_type: text(header::CONTENT_TYPE),
        has_cookies: parts.headers.contains_key(header::COOKIE),
        has_body: !body.is_end_stream(),
    };
    if request.source.is_embedding() {
        return Err(Refusal::Embedded);
    }
    let limits = Limits::of(request.path);
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.len as u64) {
        return Err(Refusal::TooLarge(limits.len));
    }
    let visitor = match access.visitor(&parts.headers, peer) {
        Err(Refusal::NoToken) if is_open(request.path) => Visitor::Anyone,
        visitor => visitor?,
    };
    let safe = matches!(*request.method, Method::GET | Method::HEAD);
    let form = request.content_type.is_some_and(|kind| {
        kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded")
    });
    let (body, form_text) = receive(body, &limits, form && !safe).await?;
    if !safe {
        let sent = text(header::HeaderName::from_static(CSRF_HEADER))
            .or_else(|| parts.uri.query().and_then(|query| csrf::field(query, "csrf")))
            .or_else(|| form_text.as_deref().and_then(|form| csrf::field(form, "csrf")));
        access.check_change(&request, &visitor, sent)?;
    }
    let session = visitor.session();
    let token = visitor.token();
    parts.extensions.insert(access.clone());
    let request = Request::from_parts(parts, body);
    Ok((request, Visit { access: access.clone(), session, token }, limits.answer))
}

/// Reads a body within its limits, so that no handler waits for a slow client. Files are left to
/// their handler, which gets an error at the limit. Returns the text of a form, too.
async fn receive(
    body: Body,
    limits: &Limits,
    form: bool,
) -> Result<(Body, Option<String>), Refusal> {
    let limited = Limited::new(body, limits.len);
    let Some(timeout) = limits.body else {
        return Ok((Body::new(TimeoutBody::new(body::PAUSE_TIMEOUT, limited)), None));
    };
    let bytes = tokio::time::timeout(timeout, limited.collect()).await;
    let bytes = match bytes.map_err(|_| Refusal::SlowBody(timeout))? {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(Refusal::TooLarge(limits.len)),
        Err(_) => return Err(Refusal::BrokenBody),
    };
    let text = form.then(|| String::from_utf8_lossy(&bytes).into_owned());
    Ok((Body::from(bytes), text))
}

/// Returns the authority of a request: `Host` and that of the address must agree, and one is needed.
fn authority<'a>(headers: &'a HeaderMap, target: Option<&'a str>) -> Option<&'a str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next(), target) {
        (None, None, Some(target)) => Some(target),
        (Some(host), None, target) => {
            let host = host.to_str().ok()?;
            target.is_none_or(|target| target.eq_ignore_ascii_case(host)).then_some(host)
        }
        _ => None,
    }
}

/// Returns the value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        all.flat_map(|cookies| cookies.split(';')).filter_map(|one| one.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Whether programs rather than people use a path.
fn is_api(path: &str) -> bool {
    path.starts_with("/api/v") || path == "/metrics"
}

/// Whether a path is open to visitors without a token.
fn is_open(path: &str) -> bool {
    path == "/login" || path.starts_with("/assets/")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
