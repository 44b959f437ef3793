//! `/devices`: the devices, what each can measure, and the forms that add, check, edit and remove
//! them.

use std::ffi::OsString;

use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use dwell_fleet::Device;
use dwell_report::{VerdictCard, table_html};
use dwell_results::age::ago;
use dwell_results::device::{
    Ability, DeviceDetails, JudgedDevice, KnownDevice, Lacks, ListedDevice, PLAN, abilities,
    answer_rows, card_text, cards, in_use, lacks, stored_answer, verdict_list,
};
use dwell_store::{CheckResult, DeviceCheck, Lease, RunRow};
use jiff::Timestamp;
use serde::Deserialize;

use super::deletions::Deletion;
use super::layout::{Layout, Status, render, render_refused};
use super::pager::{ListQuery, Pager};
use super::{ignore_problem, redirect};
use crate::app::App;
use crate::command::{CHANGE_TIMEOUT, WORK_TIMEOUT};
use crate::error::Error;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/devices", get(list).post(add))
        .route("/devices/new", get(new))
        .route("/devices/{name}", get(page))
        .route("/devices/{name}/edit", get(edit_form).post(edit))
        .route("/devices/{name}/check", post(check))
        .route("/devices/{name}/delete", post(delete))
        .route("/devices/{name}/undo", post(undo))
}

#[derive(Template)]
#[template(path = "devices.html")]
struct List {
    layout: Layout,
    deletions: Vec<Deletion>,
    rows: Vec<Row>,
    pager: Pager,
    /// Table of what each device measures, in HTML.
    verdicts: String,
    plan: &'static str,
}

/// A device in the list.
struct Row {
    name: String,
    destination: String,
    /// Model, role and tags.
    about: String,
    arch: String,
    kernel: String,
    clock: String,
    node: String,
    status: Status,
    used: Option<Lease>,
}

impl Row {
    fn new(of: ListedDevice, now: Timestamp) -> Self {
        let answer = of.answer.as_ref().and_then(stored_answer).unwrap_or_default();
        let device = of.known.device;
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let about = device.model.into_iter().chain(device.role).chain(device.tags);
        let clock = &answer.doctor["clocks"];
        let clock = match (clock["utc_error_ns"].as_i64(), of.answer.is_some()) {
            (Some(ns), _) => format!("within {:.3} ms of UTC", ns as f64 / 1e6),
            (None, true) => "not synchronised".to_owned(),
            (None, false) => "-".to_owned(),
        };
        Self {
            name: device.name,
            destination: device.destination,
            about: dash(about.collect::<Vec<_>>().join(", ")),
            arch: dash(answer.arch),
            kernel: dash(answer.kernel),
            clock,
            node: dash(answer.build),
            status: check_status(of.last.as_ref(), now),
            used: of.lease,
        }
    }
}

/// State of a device by its last check.
pub(super) fn check_status(last: Option<&DeviceCheck>, now: Timestamp) -> Status {
    match last {
        None => Status::unknown("never checked"),
        Some(check) => {
            let ago = ago(&check.at, now);
            match &check.result {
                CheckResult::Answer { .. } => Status::good(format!("answered {ago}")),
                CheckResult::Error(_) => Status::failed(format!("failed {ago}")),
            }
        }
    }
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Response, Error> {
    let reader = app.clone();
    let read = app.read(move |store| {
        let deleted = reader.deleted_devices();
        let mut all = KnownDevice::all(store, &ignore_problem)?;
        all.retain(|known| {
            let device = &known.device;
            let texts = [
                &device.name,
                &device.destination,
                device.model.as_ref().unwrap_or(&device.name),
                device.role.as_ref().unwrap_or(&device.name),
                &device.tags.join(" "),
            ];
            !deleted.hides(&known.row) && query.matches(&texts.map(String::as_str))
        });
        let (known, pager) = query.page("/devices", all);
        let leases = store.leases()?;
        let listed: Vec<ListedDevice> = known
            .into_iter()
            .map(|known| ListedDevice::read(store, &leases, known))
            .collect::<Result<_, _>>()?;
        let judged: Vec<JudgedDevice<'_>> = listed
            .iter()
            .map(|of| {
                let answer = of.answer.as_ref().and_then(stored_answer);
                let cards = cards(store, &of.known, &ignore_problem)?;
                Ok(JudgedDevice { known: &of.known, answer, cards })
            })
            .collect::<Result<_, Error>>()?;
        let verdicts = verdict_list(&judged);
        drop(judged);
        Ok((listed, pager, verdicts))
    });
    let (listed, pager, verdicts) = read.await?.unwrap_or_else(|| {
        let (_, pager) = ListQuery::default().page::<()>("/devices", Vec::new());
        (Vec::new(), pager, verdict_list(&[]))
    });
    let now = Timestamp::now();
    let caption = "Largest rates that each device paces accurately, beside the boards of Mok 2015";
    Ok(render(&List {
        layout: Layout::new("Devices", "/devices"),
        deletions: app.deletions().await?,
        rows: listed.into_iter().map(|of| Row::new(of, now)).collect(),
        pager,
        verdicts: table_html(&verdicts, caption),
        plan: PLAN,
    }))
}

#[derive(Template)]
#[template(path = "device.html")]
struct Page {
    layout: Layout,
    device: Device,
    status: Status,
    /// Reason of a failed check.
    reason: Option<String>,
    used: Option<String>,
    cards: Vec<Card>,
    /// Command that measures a verdict.
    measure: String,
    facts: Vec<(&'static str, String)>,
    /// When it answered, if the last check failed.
    answered: Option<String>,
    lacks: Option<Lacks>,
    abilities: Vec<(Status, Ability)>,
    runs: Vec<DeviceRun>,
    more_runs: usize,
    ssh: String,
}

/// A verdict card.
struct Card {
    text: String,
    source: String,
    accurate: String,
    run: String,
}

impl From<VerdictCard> for Card {
    fn from(card: VerdictCard) -> Self {
        let source = card_text(&card);
        let source = source.strip_prefix(&card.text).unwrap_or(&source).trim();
        let source = source.trim_start_matches('(').trim_end_matches(')').to_owned();
        Self { text: card.text, source, accurate: card.accurate, run: card.run }
    }
}

/// A run on the device.
struct DeviceRun {
    run: RunRow,
    status: Status,
    roles: String,
}

/// Maximum number of runs on the page of a device.
const MAX_RUNS: usize = 20;

async fn page(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Error> {
    let details = details(&app, &name).await?;
    let device = details.known.device.clone();
    let answer = details.answered.as_ref().and_then(stored_answer);
    let last_failed = |check: &DeviceCheck| match &check.result {
        CheckResult::Error(reason) => Some(reason.clone()),
        CheckResult::Answer { .. } => None,
    };
    let reason = details.last.as_ref().and_then(last_failed);
    let with_status = |ability: Ability| {
        let status = match ability.available {
            Some(true) => Status::good("yes"),
            Some(false) => Status::failed("no"),
            None => Status::unknown("not tested"),
        };
        (status, ability)
    };
    let hidden = app.hidden_runs();
    let runs = details.runs.into_iter().filter(|(run, _)| !hidden.contains(&run.run));
    let runs: Vec<_> = runs.collect();
    let more_runs = runs.len().saturating_sub(MAX_RUNS);
    let runs = runs.into_iter().take(MAX_RUNS).map(|(run, roles)| DeviceRun {
        status: Status::of_run(run.state, run.trials_failed),
        roles: roles.join(", "),
        run,
    });
    let ssh = device.ssh_arguments();
    let ssh = ssh.iter().filter(|argument| *argument != "--").map(String::as_str);
    let ssh = std::iter::once("ssh").chain(ssh).collect::<Vec<_>>().join(" ");
    Ok(render(&Page {
        layout: Layout::new(format!("Device {name}"), "/devices"),
        status: check_status(details.last.as_ref(), Timestamp::now()),
        answered: details.answered.as_ref().filter(|_| reason.is_some()).map(|it| it.at.clone()),
        reason,
        used: details.lease.as_ref().map(in_use),
        cards: details.cards.into_iter().map(Card::from).collect(),
        measure: format!("dwell run {PLAN} --on sender={name},receiver=OTHER"),
        facts: answer.as_ref().map_or_else(Vec::new, |it| answer_rows(&device, it).into()),
        lacks: answer.as_ref().and_then(|answer| lacks(&device, answer)),
        abilities: answer
            .map_or_else(Vec::new, |answer| abilities(&answer.doctor))
            .into_iter()
            .map(with_status)
            .collect(),
        runs: runs.collect(),
        more_runs,
        ssh,
        device,
    }))
}

async fn details(app: &App, name: &str) -> Result<DeviceDetails, Error> {
    let wanted = name.to_owned();
    let reader = app.clone();
    let read = app.read(move |store| {
        let known = KnownDevice::find(store, &wanted)?;
        if reader.deleted_devices().hides(&known.row) {
            return Err(Error::NotFound(format!(
                "device {wanted} is deleted; the list of devices can restore it"
            )));
        }
        Ok(DeviceDetails::read(store, known, &ignore_problem)?)
    });
    let missing = || Error::NotFound(format!("there is no device '{name}'"));
    read.await?.ok_or_else(missing)
}

/// Fields of the form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    name: String,
    destination: String,
    model: String,
    role: String,
    interface: String,
    address: String,
    tag: String,
    price: String,
    note: String,
    sudo: Option<String>,
    check: Option<String>,
}

impl Fields {
    /// The fields that are texts, by the name of their option.
    fn texts(&self) -> [(&'static str, &str); 7] {
        [
            ("model", &self.model),
            ("role", &self.role),
            ("interface", &self.interface),
            ("address", &self.address),
            ("tag", &self.tag),
            ("price", &self.price),
            ("note", &self.note),
        ]
        .map(|(name, value): (_, &String)| (name, value.trim()))
    }

    /// Options of the command: those that differ from the values `before`.
    fn options(&self, before: &Self) -> Vec<OsString> {
        let mut options: Vec<String> = Vec::new();
        for ((name, value), (_, old)) in self.texts().iter().zip(before.texts()) {
            match (*value == old, value.is_empty()) {
                (true, _) => {}
                (false, true) => options.push(format!("--clear={name}")),
                (false, false) if is_list(name) => {
                    let values: Vec<&str> =
                        value.split([',', ' ']).filter(|it| !it.is_empty()).collect();
                    options.push(format!("--{name}={}", values.join(",")));
                }
                (false, false) => options.push(format!("--{name}={value}")),
            }
        }
        match (self.sudo.is_some(), before.sudo.is_some()) {
            (true, false) => options.push("--sudo".to_owned()),
            (false, true) => options.push("--clear=sudo".to_owned()),
            _ => {}
        }
        options.into_iter().map(OsString::from).collect()
    }
}

fn is_list(name: &str) -> bool {
    ["interface", "address", "tag"].contains(&name)
}

impl From<Device> for Fields {
    fn from(device: Device) -> Self {
        let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
        Self {
            name: device.name,
            destination: device.destination,
            model: device.model.unwrap_or_default(),
            role: device.role.unwrap_or_default(),
            interface: device.interfaces.join(", "),
            address: addresses.join(", "),
            tag: device.tags.join(", "),
            price: device.price.unwrap_or_default(),
            note: device.notes.unwrap_or_default(),
            sudo: device.sudo.then(|| "on".to_owned()),
            check: None,
        }
    }
}

/// The form that adds or edits a device.
#[derive(Template)]
#[template(path = "device-form.html")]
struct FormPage {
    layout: Layout,
    /// Name of the edited device; `None` for a new one.
    edited: Option<String>,
    fields: Fields,
    /// Why the form was not accepted.
    mistake: Option<String>,
}

impl FormPage {
    fn new(edited: Option<String>, fields: Fields, mistake: Option<String>) -> Self {
        let title = match &edited {
            Some(name) => format!("Edit device {name}"),
            None => "Add a device".to_owned(),
        };
        Self { layout: Layout::new(title, "/devices"), edited, fields, mistake }
    }
}

async fn new() -> Response {
    let fields = Fields { check: Some("on".to_owned()), ..Fields::default() };
    render(&FormPage::new(None, fields, None))
}

async fn add(State(app): State<App>, Form(fields): Form<Fields>) -> Result<Response, Error> {
    let name = fields.name.trim().to_owned();
    let mut arguments: Vec<OsString> = vec!["device".into(), "add".into()];
    arguments.extend(fields.options(&Fields::default()));
    arguments.extend(["--".into(), (&name).into(), fields.destination.trim().into()]);
    if let Err(mut mistake) = change(&app, arguments).await {
        if is_deleted(&app, &name).await? {
            mistake = format!("device {name} is deleted; restore it, or choose another name");
        }
        return Ok(render_refused(&FormPage::new(None, fields, Some(mistake))));
    }
    if fields.check.is_some() {
        return Ok(check(State(app), Path(name)).await?.into_response());
    }
    Ok(redirect(&format!("/devices/{name}")).into_response())
}

/// Runs a command that changes the catalogue. Its mistake is shown in the form, which keeps its input.
async fn change(app: &App, arguments: Vec<OsString>) -> Result<(), String> {
    match app.command(arguments, CHANGE_TIMEOUT).await {
        Ok(output) if output.code == Some(0) => Ok(()),
        Ok(output) => Err(output.reason()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a device of this name is deleted and can be restored.
async fn is_deleted(app: &App, name: &str) -> Result<bool, Error> {
    match app.device_row(name).await {
        Ok(device) => Ok(app.deleted_devices().hides(&device)),
        Err(Error::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn edit_form(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Error> {
    let device = details(&app, &name).await?.known.device;
    Ok(render(&FormPage::new(Some(name), device.into(), None)))
}

async fn edit(
    State(app): State<App>,
    Path(name): Path<String>,
    Form(fields): Form<Fields>,
) -> Result<Response, Error> {
    let before = Fields::from(details(&app, &name).await?.known.device);
    let mut options = fields.options(&before);
    let (new_name, destination) = (fields.name.trim(), fields.destination.trim());
    if new_name != before.name {
        options.push(format!("--name={new_name}").into());
    }
    if destination != before.destination {
        options.push(format!("--destination={destination}").into());
    }
    if !options.is_empty() {
        let mut arguments: Vec<OsString> = vec!["device".into(), "edit".into()];
        arguments.extend(options);
        arguments.extend(["--".into(), (&name).into()]);
        if let Err(mistake) = change(&app, arguments).await {
            return Ok(render_refused(&FormPage::new(Some(name), fields, Some(mistake))));
        }
    }
    Ok(redirect(&format!("/devices/{new_name}")).into_response())
}

/// Checks a device. Its page shows the stored result, also of a failure.
async fn check(State(app): State<App>, Path(name): Path<String>) -> Result<Redirect, Error> {
    let arguments = ["device", "check", "--", &name].map(OsString::from);
    let output = app.command(arguments, WORK_TIMEOUT).await?;
    match output.code {
        Some(0 | 1) => Ok(redirect(&format!("/devices/{name}"))),
        _ => Err(Error::Command(output.reason())),
    }
}

async fn delete(State(app): State<App>, Path(name): Path<String>) -> Result<Redirect, Error> {
    app.remove_device(&name, false).await?;
    Ok(redirect("/devices"))
}

async fn undo(State(app): State<App>, Path(name): Path<String>) -> Result<Redirect, Error> {
    app.restore_device(&name).await?;
    Ok(redirect("/devices"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_changes_only_fields_that_differ() {
        let mut device = Device::new("pi4", "pi@192.0.2.7").unwrap();
        device.model = Some("Pi 4B".to_owned());
        device.tags = vec!["shelf".to_owned()];
        device.sudo = true;
        let before = Fields::from(device);
        assert_eq!(before.options(&before), Vec::<OsString>::new());
        let after = Fields {
            model: String::new(),
            tag: "shelf, roof".to_owned(),
            note: "--sudo\nnew antenna".to_owned(),
            sudo: None,
            ..before.clone()
        };
        let options = after.options(&before);
        assert_eq!(
            options,
            ["--clear=model", "--tag=shelf,roof", "--note=--sudo\nnew antenna", "--clear=sudo"]
        );
    }
}
