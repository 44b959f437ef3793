//! What all pages share: head, navigation, states, and the page of an error.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use dwell_store::RunState;

use crate::error::Error;
use crate::{access, assets};

/// Head and navigation of a page.
pub(crate) struct Layout {
    /// Title.
    pub(crate) title: String,
    /// Path of the current entry of the navigation.
    pub(crate) current: &'static str,
    /// Token of forms against requests that other sites forge.
    pub(crate) csrf: String,
    /// Whether the visitor logged in, and can log out.
    pub(crate) has_session: bool,
    /// Whether the page has figures, which need their runtime.
    pub(crate) figures: bool,
}

impl Layout {
    pub(crate) fn new(title: impl Into<String>, current: &'static str) -> Self {
        Self {
            title: title.into(),
            current,
            csrf: access::csrf_token(),
            has_session: access::has_session(),
            figures: false,
        }
    }

    /// Adds the scripts that draw figures.
    pub(crate) fn with_figures(self) -> Self {
        Self { figures: true, ..self }
    }

    /// Entries of the navigation: path and text.
    pub(crate) fn entries(&self) -> [(&'static str, &'static str); 11] {
        [
            ("/", "Overview"),
            ("/devices", "Devices"),
            ("/experiments", "Experiments"),
            ("/runs", "Runs"),
            ("/compare", "Compare"),
            ("/mesh", "Mesh"),
            ("/nodes", "Nodes"),
            ("/alerts", "Alerts"),
            ("/data", "Data"),
            ("/reports", "Reports"),
            ("/api", "API"),
        ]
    }

    pub(crate) fn asset(&self, name: &str) -> String {
        assets::url(name)
    }
}

/// A state as a symbol and a word, so that it does not depend on colour.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(
    source = r#"<span class="state {{ class }}"><span aria-hidden="true">{{ symbol }} </span>{{ text }}</span>"#,
    ext = "html"
)]
pub(crate) struct Status {
    class: &'static str,
    symbol: &'static str,
    text: String,
}

impl Status {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { class: "good", symbol: "\u{2713}", text: text.into() }
    }

    pub(crate) fn running(text: impl Into<String>) -> Self {
        Self { class: "active", symbol: "\u{25b6}", text: text.into() }
    }

    pub(crate) fn waiting(text: impl Into<String>) -> Self {
        Self { class: "unknown", symbol: "\u{2026}", text: text.into() }
    }

    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self { class: "warn", symbol: "\u{26a0}", text: text.into() }
    }

    pub(crate) fn stopped(text: impl Into<String>) -> Self {
        Self { class: "warn", symbol: "\u{25a0}", text: text.into() }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { class: "invalid", symbol: "\u{2715}", text: text.into() }
    }

    pub(crate) fn unknown(text: impl Into<String>) -> Self {
        Self { class: "unknown", symbol: "?", text: text.into() }
    }

    /// State of a run with this number of failed trials.
    pub(crate) fn of_run(state: RunState, failed: u32) -> Self {
        match (state, failed) {
            (RunState::Finished, 0) => Self::good("finished"),
            (RunState::Finished, 1) => Self::warning("finished, 1 trial failed"),
            (RunState::Finished, n) => Self::warning(format!("finished, {n} trials failed")),
            (RunState::Running, _) => Self::running("running"),
            (RunState::Stopped, _) => Self::stopped("stopped"),
            (RunState::Interrupted, _) => Self::stopped("interrupted"),
        }
    }
}

/// The page of an error.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    layout: Layout,
    text: String,
    /// Path and name of a page that helps.
    help: Option<(&'static str, &'static str)>,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        let (title, help) = match status {
            StatusCode::NOT_FOUND => ("Not found", Some(("/runs", "All runs"))),
            StatusCode::INTERNAL_SERVER_ERROR => ("The data cannot be read", None),
            _ => ("This did not work", None),
        };
        let page = ErrorPage { layout: Layout::new(title, ""), text: self.to_string(), help };
        (status, render(&page)).into_response()
    }
}

/// The answer to a path that no page has.
pub(crate) async fn not_found() -> Error {
    Error::NotFound("there is no page at this address".to_owned())
}

/// Renders a template.
pub(crate) fn render(page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Renders a form that was not accepted.
pub(crate) fn render_refused(page: &impl Template) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, render(page)).into_response()
}
