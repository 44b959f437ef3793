//! `/experiments/new`: the editor of plans. A plan is checked as it is written, with its trials and
//! cost, before it is started.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::{Form, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dwell_results::amounts;
use dwell_results::device::KnownDevice;

use super::layout::{Layout, render, render_refused};
use super::topology::Drawing;
use super::{ignore_problem, redirect};
use crate::app::App;
use crate::error::Error;
use crate::experiments::NewExperiment;
use crate::experiments::plan::{PlanCheck, PlanMistake};
use crate::experiments::topology::plan_topology;

/// Prefix of the fields that bind roles to devices.
const ROLE_PREFIX: &str = "on.";

/// Maximum number of values of an axis that the summary lists.
const MAX_VALUES: usize = 8;

/// An example of a plan.
struct Example {
    name: &'static str,
    about: &'static str,
    text: &'static str,
}

/// The plans of the repository that need no file of their own.
const EXAMPLES: [Example; 5] = [
    Example {
        name: "quick",
        about: "Round trips in a lab on this machine: idle, network load, CPU load",
        text: include_str!("../../../../plans/quick.toml"),
    },
    Example {
        name: "two-devices",
        about: "Round trips between two devices: idle and busy",
        text: include_str!("../../../../plans/two-devices.toml"),
    },
    Example {
        name: "device-accuracy",
        about: "Networks that a device can measure: its verdict card (Mok 2015)",
        text: include_str!("../../../../plans/device-accuracy.toml"),
    },
    Example {
        name: "send-accuracy-short",
        about: "Send-time accuracy of this machine's engines in a lab",
        text: include_str!("../../../../plans/send-accuracy-short.toml"),
    },
    Example {
        name: "relay-delay-short",
        about: "Node delay of relays in a lab (Miya 2020)",
        text: include_str!("../../../../plans/relay-delay-short.toml"),
    },
];

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/experiments/new", get(editor))
        .route("/experiments", post(submit))
        .route("/experiments/check", post(check))
}

/// The fields of the form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Draft {
    plan: String,
    on: BTreeMap<String, String>,
    /// One `PATH=VALUE` per line.
    settings: String,
    seed: String,
    confirmed: bool,
    /// Whether it is started, not only checked.
    start: bool,
}

impl Draft {
    fn new(fields: Vec<(String, String)>) -> Self {
        let mut draft = Self::default();
        for (name, value) in fields {
            // Forms send lines with CR and LF.
            let value = value.replace("\r\n", "\n");
            match &*name {
                "plan" => draft.plan = value,
                "settings" => draft.settings = value,
                "seed" => draft.seed = value.trim().to_owned(),
                "confirmed" => draft.confirmed = true,
                "action" => draft.start = value == "start",
                _ => {
                    if let Some(role) = name.strip_prefix(ROLE_PREFIX).filter(|_| !value.is_empty())
                    {
                        draft.on.insert(role.to_owned(), value);
                    }
                }
            }
        }
        draft
    }

    fn settings(&self) -> Vec<String> {
        let lines = self.settings.lines().map(str::trim);
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The experiment, with those devices only whose roles the plan has.
    fn experiment(&self, check: &PlanCheck) -> Result<NewExperiment, String> {
        let seed = match self.seed.as_str() {
            "" => None,
            seed => Some(seed.parse().map_err(|_| {
                format!("seed '{seed}': give a whole number, or nothing for a random one")
            })?),
        };
        let on = self.on.iter().filter(|(role, _)| check.roles.contains(role));
        Ok(NewExperiment {
            plan: self.plan.clone(),
            on: on.map(|(role, device)| (role.clone(), device.clone())).collect(),
            settings: self.settings(),
            seed,
            confirmed: self.confirmed,
        })
    }
}

/// A role with the devices that it may be bound to.
struct Role {
    name: String,
    device: String,
}

/// What a plan would do, or its mistakes.
#[derive(Template)]
#[template(path = "plan-check.html")]
struct Checked {
    check: PlanCheck,
    roles: Vec<Role>,
    /// Names and models of devices.
    devices: Vec<(String, String)>,
    confirmed: bool,
    is_empty: bool,
    topology: Option<Drawing>,
}

impl Checked {
    async fn new(app: &App, draft: &Draft) -> Result<Self, Error> {
        let is_empty = draft.plan.trim().is_empty();
        let check = match is_empty {
            true => PlanCheck::default(),
            false => app.experiments().check(draft.plan.clone(), draft.settings()).await?,
        };
        let devices = match check.roles.is_empty() {
            true => Vec::new(),
            false => devices(app).await?,
        };
        let role = |name: &String| Role {
            device: draft.on.get(name).cloned().unwrap_or_default(),
            name: name.clone(),
        };
        let roles = check.roles.iter().map(role).collect();
        let topology = plan_topology(&draft.plan, &draft.settings(), &draft.on);
        let topology = topology.filter(|_| check.is_ok()).as_ref().map(Drawing::new);
        Ok(Self { roles, devices, confirmed: draft.confirmed, is_empty, check, topology })
    }

    fn can_start(&self) -> bool {
        let lacks_devices = !self.roles.is_empty() && self.devices.is_empty();
        !self.is_empty && self.check.is_ok() && !lacks_devices
    }

    /// Names and values of the axes.
    fn axes(&self) -> Vec<(&str, String)> {
        let values = |all: &[String]| match all.len() {
            0..=MAX_VALUES => all.join(", "),
            count => format!("{count} values from {} to {}", all[0], all[count - 1]),
        };
        self.check.axes.iter().map(|axis| (axis.name.as_str(), values(&axis.values))).collect()
    }

    /// Place of a mistake in the text.
    fn place(&self, mistake: &PlanMistake) -> Option<String> {
        Some(format!("line {}, column {}", mistake.line?, mistake.column?))
    }

    fn time(&self) -> &str {
        self.check.time.as_deref().unwrap_or("depends on the replies")
    }

    /// Packets of the measurement and of loads.
    fn packets(&self) -> String {
        let own = self.check.probes.map_or("as many as fit".to_owned(), grouped);
        match self.check.load_packets {
            0 => own,
            loads => format!("{own}, and {} of loads", grouped(loads)),
        }
    }

    fn bytes(&self) -> String {
        let own = self.check.bytes.map_or("as many as fit".to_owned(), amounts::bytes);
        match self.check.load_bytes {
            0 => own,
            loads => format!("{own}, and {} of loads", amounts::bytes(loads)),
        }
    }
}

/// Formats a number with commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the names and models of all devices.
async fn devices(app: &App) -> Result<Vec<(String, String)>, Error> {
    let reader = app.clone();
    let read = app.read(move |store| {
        let deleted = reader.deleted_devices();
        let all = KnownDevice::all(store, &ignore_problem)?.into_iter();
        let all = all.filter(|known| !deleted.hides(&known.row)).map(|known| known.device);
        Ok(all.map(|device| (device.name, device.model.unwrap_or_default())).collect())
    });
    Ok(read.await?.unwrap_or_default())
}

#[derive(Template)]
#[template(path = "editor.html")]
struct Editor {
    layout: Layout,
    draft: Draft,
    checked: Checked,
    examples: &'static [Example],
    /// Why it was not started.
    mistake: Option<String>,
}

impl Editor {
    async fn new(app: &App, draft: Draft, mistake: Option<String>) -> Result<Self, Error> {
        let checked = Checked::new(app, &draft).await?;
        let layout = Layout::new("New experiment", "/experiments");
        Ok(Self { layout, draft, checked, examples: &EXAMPLES, mistake })
    }

    /// Whether the text is that of an example.
    fn shows(&self, example: &Example) -> bool {
        self.draft.plan == example.text
    }

    /// Number of lines of the text field.
    fn lines(&self) -> usize {
        self.draft.plan.lines().count().clamp(24, 48)
    }
}

async fn editor(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Error> {
    let from = query.iter().find(|(name, _)| name == "from").map(|(_, from)| from.clone());
    let bound = Draft::new(query);
    let mut draft = match from.as_deref() {
        None | Some("") => Draft::default(),
        Some(from) => source(&app, from).await?,
    };
    draft.on.extend(bound.on);
    Ok(render(&Editor::new(&app, draft, None).await?))
}

/// Returns the draft that begins with an example, a run or an experiment.
async fn source(app: &App, from: &str) -> Result<Draft, Error> {
    if let Some(name) = from.strip_prefix("example:") {
        let found = EXAMPLES.iter().find(|example| example.name == name);
        let missing = || Error::NotFound(format!("there is no example '{name}'"));
        let plan = found.ok_or_else(missing)?.text.to_owned();
        return Ok(Draft { plan, ..Draft::default() });
    }
    if let Some(name) = from.strip_prefix("run:") {
        let wanted = name.to_owned();
        let read = app.read(move |store| {
            let run = store.run(&wanted)?;
            let nodes = store.nodes(&run)?.into_iter();
            let on = nodes.filter_map(|node| Some((node.node, node.device?.name))).collect();
            let missing = || Error::NotFound(format!("run {wanted} has no plan"));
            let plan = run.plan.ok_or_else(missing)?;
            Ok(Draft { plan, on, settings: run.settings.join("\n"), ..Draft::default() })
        });
        let missing = || Error::NotFound(format!("there is no run '{name}'"));
        return read.await?.ok_or_else(missing);
    }
    let experiment = app.experiments().get(from).await?;
    Ok(Draft {
        plan: experiment.plan,
        on: experiment.on,
        settings: experiment.settings.join("\n"),
        ..Draft::default()
    })
}

/// Checks or starts a plan.
async fn submit(
    State(app): State<App>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Error> {
    let draft = Draft::new(fields);
    if !draft.start {
        return Ok(render(&Editor::new(&app, draft, None).await?));
    }
    let check = app.experiments().check(draft.plan.clone(), draft.settings()).await?;
    let mistake = match draft.experiment(&check) {
        Err(mistake) => mistake,
        Ok(new) => match app.experiments().create(new).await {
            Ok(created) => {
                return Ok(redirect(&format!("/experiments/{}", created.id)).into_response());
            }
            Err(error) if error.status().is_client_error() => error.to_string(),
            Err(error) => return Err(error),
        },
    };
    Ok(render_refused(&Editor::new(&app, draft, Some(mistake)).await?))
}

/// Checks a plan, for the editor while it is written.
async fn check(
    State(app): State<App>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Error> {
    Ok(render(&Checked::new(&app, &Draft::new(fields)).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_binds_only_roles_of_the_plan() {
        let fields = [
            ("plan", "a = 1\r\nb = 2\r\n"),
            ("on.sender", "pi4"),
            ("on.moon", "pi5"),
            ("on.receiver", ""),
            ("settings", " ping.count=3 \r\n\r\n"),
            ("seed", " 7 "),
            ("action", "start"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let draft = Draft::new(fields.map(owned).into());
        assert!(draft.start && !draft.confirmed);
        let roles = vec!["sender".to_owned(), "receiver".to_owned()];
        let new = draft.experiment(&PlanCheck { roles, ..PlanCheck::default() }).unwrap();
        assert_eq!(new.plan, "a = 1\nb = 2\n");
        assert_eq!(new.on, BTreeMap::from([("sender".to_owned(), "pi4".to_owned())]));
        assert_eq!((new.settings, new.seed), (vec!["ping.count=3".to_owned()], Some(7)));
        let wrong = Draft { seed: "x".to_owned(), ..draft };
        assert!(wrong.experiment(&PlanCheck::default()).unwrap_err().contains("seed 'x'"));
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        let numbers = [0, 999, 1_000, 51_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "51,000", "1,234,567"]);
    }
}
