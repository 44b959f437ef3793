//! Pages: one module per subject, with its forms.

mod alerts;
mod api_docs;
mod compare;
mod data;
mod deletions;
mod devices;
mod editor;
mod experiments;
mod layout;
pub(crate) mod login;
mod mesh;
mod nodes;
mod overview;
mod pager;
mod pair;
mod pair_samples;
mod reports;
mod run;
mod runs;
mod topology;

use std::fmt::Write as _;

use axum::Router;
use axum::response::Redirect;

use crate::app::App;

use compare::Comparisons;
use overview::Clock;
use run::Rendered;

/// What pages remember between requests.
#[derive(Debug, Default)]
pub(crate) struct PageState {
    rendered: Rendered,
    comparisons: Comparisons,
    clock: Clock,
}

/// Returns the routes of all pages.
pub(crate) fn router() -> Router<App> {
    Router::new()
        .merge(overview::router())
        .merge(devices::router())
        .merge(runs::router())
        .merge(run::router())
        .merge(experiments::router())
        .merge(editor::router())
        .merge(compare::router())
        .merge(data::router())
        .merge(reports::router())
        .merge(api_docs::router())
        .merge(login::router())
        .merge(mesh::router())
        .merge(nodes::router())
        .merge(alerts::router())
        .merge(pair::router())
        .fallback(layout::not_found)
}

/// Receives what a reader of the store leaves out. The page says it where the data is missing.
fn ignore_problem(_: &str) {}

/// Sends the browser to another page after a form.
fn redirect(path: &str) -> Redirect {
    Redirect::to(path)
}

/// Escapes a value for the query of an address.
fn query_text(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => text.push(byte.into()),
            b'-' | b'_' | b'.' | b'~' | b',' | b'/' => text.push(byte.into()),
            // Writing to a string does not fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_text_has_no_separators() {
        assert_eq!(query_text("a&b=c #ä,1"), "a%26b%3Dc%20%23%C3%A4,1");
    }
}
