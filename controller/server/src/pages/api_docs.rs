//! `/api`: what the HTTP API offers, from its description.

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use serde_json::Value;

use super::layout::{Layout, render};
use crate::api;
use crate::app::App;
use crate::error::Error;

pub(super) fn router() -> Router<App> {
    Router::new().route("/api", get(page))
}

#[derive(Template)]
#[template(path = "api.html")]
struct Page {
    layout: Layout,
    about: String,
    base: String,
    groups: Vec<Group>,
}

/// Text in which backquotes mark code.
#[derive(Debug, Default, PartialEq, Template)]
#[template(
    source = "{% for (is_code, part) in parts %}{% if is_code %}<code>{{ part }}</code>{% else %}{{ part }}{% endif %}{% endfor %}",
    ext = "html"
)]
struct Marked {
    parts: Vec<(bool, String)>,
}

impl Marked {
    fn new(text: &str) -> Self {
        let parts = text.split('`').enumerate();
        Self { parts: parts.map(|(i, part)| (i % 2 == 1, part.to_owned())).collect() }
    }
}

/// Operations about one subject.
#[derive(Debug, PartialEq)]
struct Group {
    name: String,
    about: String,
    operations: Vec<Operation>,
}

#[derive(Debug, PartialEq)]
struct Operation {
    method: String,
    path: String,
    about: Marked,
    parameters: Vec<Parameter>,
    /// Status, and what it means.
    answers: Vec<(String, Marked)>,
}

#[derive(Debug, PartialEq)]
struct Parameter {
    name: String,
    place: String,
    about: Marked,
}

async fn page() -> Result<Response, Error> {
    let description: Value = serde_json::from_str(&api::openapi())
        .map_err(|error| Error::Invalid(format!("openapi.json cannot be read: {error}")))?;
    Ok(render(&Page {
        layout: Layout::new("API", "/api"),
        about: text(&description["info"]["description"]),
        base: text(&description["servers"][0]["url"]),
        groups: groups(&description),
    }))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the operations by their tags, in the order of the tags.
fn groups(description: &Value) -> Vec<Group> {
    let tags = description["tags"].as_array().into_iter().flatten();
    let group = |tag: &Value| Group {
        name: text(&tag["name"]),
        about: text(&tag["description"]),
        operations: Vec::new(),
    };
    let mut groups: Vec<Group> = tags.map(group).collect();
    for (path, methods) in description["paths"].as_object().into_iter().flatten() {
        for (method, described) in methods.as_object().into_iter().flatten() {
            let name = text(&described["tags"][0]);
            let operation = operation(path, method, described);
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.operations.push(operation),
                None => {
                    groups.push(Group { name, about: String::new(), operations: vec![operation] })
                }
            }
        }
    }
    groups.retain(|group| !group.operations.is_empty());
    groups
}

fn operation(path: &str, method: &str, described: &Value) -> Operation {
    let parameters = described["parameters"].as_array().into_iter().flatten();
    let parameter = |it: &Value| Parameter {
        name: text(&it["name"]),
        place: text(&it["in"]),
        about: Marked::new(&text(&it["description"])),
    };
    let answers = described["responses"].as_object().into_iter().flatten();
    let summary = ["summary", "description"].map(|name| text(&described[name]));
    Operation {
        method: method.to_uppercase(),
        path: path.to_owned(),
        about: Marked::new(
            &summary.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" "),
        ),
        parameters: parameters.map(parameter).collect(),
        answers: answers
            .map(|(code, it)| (code.clone(), Marked::new(&text(&it["description"]))))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_marked_and_escaped() {
        let html = Marked::new("Event `a<b` with `id`").to_string();
        assert_eq!(html, "Event <code>a&#60;b</code> with <code>id</code>");
    }

    #[test]
    fn every_operation_of_the_api_is_listed() {
        let description: Value = serde_json::from_str(&api::openapi()).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let expected: usize =
            paths.values().map(|methods| methods.as_object().unwrap().len()).sum();
        let groups = groups(&description);
        let listed = groups.iter().flat_map(|group| &group.operations);
        assert!(expected > 10);
        assert_eq!(listed.clone().count(), expected);
        assert!(listed.clone().all(|it| it.about != Marked::new("") && !it.answers.is_empty()));
        assert!(groups.iter().all(|group| !group.about.is_empty()), "{groups:#?}");
    }
}
