//! `/login`, `/logout`, and the page of a refused request.

use std::net::SocketAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{ConnectInfo, Query};
use axum::http::{StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Form, Router};
use serde::Deserialize;

use super::layout::{Layout, render};
use super::query_text;
use crate::access::{Access, Refusal};
use crate::app::App;

/// Returns the routes of logging in and out.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/login", get(form).post(log_in)).route("/logout", post(log_out))
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    layout: Layout,
    next: String,
    problem: Option<String>,
}

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage {
    layout: Layout,
    text: String,
}

#[derive(Debug, Default, Deserialize)]
struct Destination {
    #[serde(default)]
    next: String,
}

#[derive(Debug, Deserialize)]
struct LoginForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    next: String,
}

async fn form(
    Extension(access): Extension<Arc<Access>>,
    Query(destination): Query<Destination>,
) -> Response {
    if !access.demands_token() {
        return Redirect::to(local(&destination.next)).into_response();
    }
    page(&destination.next, None)
}

async fn log_in(
    Extension(access): Extension<Arc<Access>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Form(form): Form<LoginForm>,
) -> Response {
    if !access.demands_token() {
        return Redirect::to(local(&form.next)).into_response();
    }
    match access.log_in(peer.ip(), form.token.trim()) {
        Ok(cookie) => {
            ([(header::SET_COOKIE, cookie)], Redirect::to(local(&form.next))).into_response()
        }
        Err(refusal) => {
            let status = match refusal {
                Refusal::TooManyAttempts(_) => StatusCode::TOO_MANY_REQUESTS,
                Refusal::TokenUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::UNAUTHORIZED,
            };
            let headers = AppendHeaders(refusal.header());
            (status, headers, page(&form.next, Some(refusal.text()))).into_response()
        }
    }
}

async fn log_out(Extension(access): Extension<Arc<Access>>) -> Response {
    ([(header::SET_COOKIE, access.log_out())], Redirect::to("/login")).into_response()
}

fn page(next: &str, problem: Option<String>) -> Response {
    let next = local(next).to_owned();
    render(&LoginPage { layout: Layout::new("Log in", ""), next, problem })
}

/// Returns the page of a refused request.
pub(crate) fn refused_page(title: &str, text: String) -> Response {
    render(&RefusedPage { layout: Layout::new(title, ""), text })
}

/// Returns the address of the login form that leads to a page of this server afterwards.
pub(crate) fn address(page: &str) -> String {
    format!("/login?next={}", query_text(local(page)))
}

/// Returns the address if it is one of this server, otherwise that of the overview.
fn local(address: &str) -> &str {
    let path = address.starts_with('/') && !address[1..].starts_with(['/', '\\']);
    let plain = address.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'\\');
    if path && plain && !address.starts_with("/login") { address } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_leads_to_pages_of_this_server_only() {
        for own in ["/", "/runs", "/compare?runs=a,b&metric=rtt_ns", "/runs/20260101-1"] {
            assert_eq!(local(own), own);
        }
        for foreign in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/a\r\nSet-Cookie: x",
            "/a b",
            "/login?next=/login",
            "runs",
        ] {
            assert_eq!(local(foreign), "/", "{foreign}");
        }
    }

    #[test]
    fn address_of_the_form_keeps_the_query_of_the_page() {
        assert_eq!(address("/compare?a=b&c"), "/login?next=/compare%3Fa%3Db%26c");
    }
}
