//! Why a request is refused: as a page that says what to do, or as an error of the API.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde_json::json;

use crate::pages::login;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Addressed under a name that is not permitted.
    Host(String),
    /// A part of a page of another site.
    Embedded,
    /// Announced or sent more than this number of bytes.
    TooLarge(usize),
    /// Neither token nor session.
    NoToken,
    /// Not the token.
    WrongToken,
    /// The file of the token cannot be read.
    TokenUnreadable,
    /// Wait this long after wrong tokens.
    TooManyAttempts(Duration),
    /// A page of another site sends it.
    ForeignOrigin,
    /// The token of the form is missing or invalid.
    CsrfToken,
    /// A content type that pages of other sites can send.
    SimpleContentType,
    /// The body did not arrive in this time.
    SlowBody(Duration),
    /// The body ended early.
    BrokenBody,
    /// There was no answer in this time.
    Slow(Duration),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Embedded | Self::ForeignOrigin | Self::CsrfToken | Self::SimpleContentType => {
                StatusCode::FORBIDDEN
            }
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::TokenUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyAttempts(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Self::BrokenBody => StatusCode::BAD_REQUEST,
            Self::Slow(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// A short name of the reason, which programs may compare.
    fn code(&self) -> &'static str {
        match self {
            Self::Host(_) => "wrong-host",
            Self::Embedded => "embedded",
            Self::TooLarge(_) => "too-long",
            Self::NoToken => "token-missing",
            Self::WrongToken => "token-wrong",
            Self::TokenUnreadable => "token-unreadable",
            Self::TooManyAttempts(_) => "too-many-attempts",
            Self::ForeignOrigin => "foreign-origin",
            Self::CsrfToken => "csrf",
            Self::SimpleContentType => "content-type",
            Self::SlowBody(_) => "body-timeout",
            Self::BrokenBody => "body-incomplete",
            Self::Slow(_) => "timeout",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Host(_) => "Unknown host name",
            Self::Embedded | Self::ForeignOrigin => "Refused: request from another site",
            Self::TooLarge(_) => "Too large",
            Self::NoToken | Self::WrongToken | Self::TokenUnreadable => "Log in",
            Self::TooManyAttempts(_) => "Too many attempts",
            Self::CsrfToken | Self::SimpleContentType => "Refused: origin not proven",
            Self::SlowBody(_) | Self::BrokenBody => "Incomplete request",
            Self::Slow(_) => "Too slow",
        }
    }

    /// What failed, why, and what to do.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Host(host) if host.is_empty() => {
                "The request names no host, or several.".to_owned()
            }
            Self::Host(host) => format!(
                "This server is not known as \u{201c}{host}\u{201d}. If this name is right, restart it with \
                 `dwell serve --host NAME`."
            ),
            Self::Embedded => {
                "A page of another site tried to load this address as a part of itself. Open it directly."
                    .to_owned()
            }
            Self::TooLarge(max) => format!("The request is longer than {max} bytes."),
            Self::NoToken => {
                "This needs the token of this server: log in at /login, or send it as \
                 `Authorization: Bearer TOKEN`. `dwell serve token` makes a new one."
                    .to_owned()
            }
            Self::WrongToken => {
                "This is not the token of this server. `dwell serve token` makes a new one.".to_owned()
            }
            Self::TokenUnreadable => {
                "The file of the token cannot be read. The log of the server says why. `dwell serve token` \
                 makes a new one."
                    .to_owned()
            }
            Self::TooManyAttempts(wait) => {
                format!("Too many wrong tokens. Try again in {} s.", seconds(*wait))
            }
            Self::ForeignOrigin => {
                "A page of another site sent this request, so nothing was changed.".to_owned()
            }
            Self::CsrfToken => {
                "The request does not prove that a page of this server sent it, so nothing was changed. \
                 If you sent a form: the page was loaded before the server started or before you logged \
                 in. Go back, reload the page and send the form again."
                    .to_owned()
            }
            Self::SimpleContentType => {
                "A page of another site could send this request, so nothing was changed. Add the header \
                 `Content-Type: application/json`."
                    .to_owned()
            }
            Self::SlowBody(limit) => {
                format!("The request did not arrive completely within {} s.", limit.as_secs())
            }
            Self::BrokenBody => "The request ended before its announced length.".to_owned(),
            Self::Slow(limit) => format!("There was no answer within {} s.", limit.as_secs()),
        }
    }

    /// Answers a program with JSON, and a person at `page` with a page.
    pub(crate) fn into_response_for(self, api: bool, page: &str) -> Response {
        let mut response = if api {
            let error = json!({ "code": self.code(), "message": self.text() });
            (self.status(), Json(json!({ "error": error }))).into_response()
        } else if self == Self::NoToken {
            return Redirect::to(&login::address(page)).into_response();
        } else {
            (self.status(), login::refused_page(self.title(), self.text())).into_response()
        };
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// The header that belongs to the status.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::TooManyAttempts(wait) => Some((header::RETRY_AFTER, seconds(*wait).into())),
            Self::NoToken | Self::WrongToken => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"dwell\"")))
            }
            _ => None,
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
