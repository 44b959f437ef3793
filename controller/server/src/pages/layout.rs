//! What all pages share: head, navigation, and the page of an error.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

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
}

impl Layout {
    pub(crate) fn new(title: impl Into<String>, current: &'static str) -> Self {
        let (csrf, has_session) = (access::csrf_token(), access::has_session());
        Self { title: title.into(), current, csrf, has_session }
    }

    /// Entries of the navigation: path and text.
    pub(crate) fn entries(&self) -> [(&'static str, &'static str); 7] {
        [
            ("/", "Overview"),
            ("/devices", "Devices"),
            ("/experiments", "Experiments"),
            ("/runs", "Runs"),
            ("/compare", "Compare"),
            ("/data", "Data"),
            ("/api", "API"),
        ]
    }

    pub(crate) fn asset(&self, name: &str) -> String {
        assets::url(name)
    }
}

/// The page of an error.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    layout: Layout,
    text: String,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let title = match self.status() {
            StatusCode::NOT_FOUND => "Not found",
            StatusCode::INTERNAL_SERVER_ERROR => "The data cannot be read",
            _ => "This did not work",
        };
        let page = ErrorPage { layout: Layout::new(title, ""), text: self.to_string() };
        (self.status(), render(&page)).into_response()
    }
}

/// Renders a template.
pub(crate) fn render(page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
