//! `dwell fit`: turns a relay run into a model of its node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_predict::{FitSource, NodeModel, PacketDelays, PredictError, RelayTrial, fit_relay};
use dwell_record::{Batch, Column, Kind, Summary, TrialState, quota_value};
use dwell_sample::{Point, State};
use dwell_store::{Role, RunRow, Store, TrialRow};

use super::data::{DataArgs, find};

/// Maximum number of packets kept of all trials together, 48 bytes each.
const MAX_PACKETS: usize = 4_000_000;

/// Smallest and largest number of packets kept of a trial.
const MIN_TRIAL_PACKETS: usize = 100;
const MAX_TRIAL_PACKETS: usize = 20_000;

/// Axes that the model has as variables, and those that change only the number of packets.
const MODEL_AXES: [&str; 12] = [
    "relay",
    "relay.mode",
    "size",
    "flow.size",
    "rate",
    "flow.rate",
    "load",
    "topology.link.rate",
    "duration",
    "flow.duration",
    "count",
    "flow.count",
];

/// Arguments of `fit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The run needs a relay (docs/plans.md, plans/relay-model.toml): a flow through a node, at several \
sizes, rates and loads. The model has the node delay of each relay mode, the delay of the links \
beside the node and of both ends, and the CPU time per packet. docs/predict.md describes it.")]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    run: String,

    /// Use only trials with this value of an axis, such as topology.quota.n2=10%; repeatable
    #[arg(long = "where", value_name = "AXIS=VALUE")]
    conditions: Vec<String>,

    /// Write the model to this file, for `dwell predict`; `-` for standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the model as one JSON object (dwell.node-model/1)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_to_read()?;
    let run = find(&store, &args.run)?;
    let model = model(&store, &run, &conditions(&args.conditions)?)?;
    let object = serde_json::to_string_pretty(&model).map_err(anyhow::Error::new)?;
    let file = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if let Some(path) = file {
        fs::write(path, format!("{object}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let is_object = args.json || (args.output.is_some() && file.is_none());
    let mut out = terminal::buffered_stdout();
    writeln!(out, "{}", if is_object { object } else { model.text() })?;
    out.flush()?;
    Ok(Exit::Measured)
}

fn conditions(texts: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let condition = |text: &String| match text.split_once('=') {
        Some((axis, value)) if !axis.trim().is_empty() => {
            Ok((axis.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(Failure::usage(format!(
            "invalid value '{text}' for --where: give an axis and a value, like load=none"
        ))),
    };
    texts.iter().map(condition).collect()
}

fn model(
    store: &Store,
    run: &RunRow,
    conditions: &BTreeMap<String, String>,
) -> Result<NodeModel, Failure> {
    let mut trials = store.trials(run)?;
    trials.retain(|trial| trial.state == TrialState::Finished);
    for (axis, value) in conditions {
        check_condition(&trials, axis, value)?;
        trials.retain(|trial| trial.parameters.get(axis) == Some(value));
    }
    if trials.is_empty() {
        return Err(refusal(format!("run {} has no finished trial to fit", run.run)));
    }
    let mut relayed = Vec::new();
    for trial in trials {
        if let Some(described) = Described::of(store, trial)? {
            relayed.push(described);
        }
    }
    if relayed.is_empty() {
        return Err(refusal(format!(
            "run {} has no relay, so there is no node to model; run a plan with [flow] and [relay], \
             such as plans/relay-model.toml",
            run.run
        )));
    }
    let node = single_node(&relayed)?;
    check_axes(&relayed)?;
    let max_packets = (MAX_PACKETS / relayed.len()).clamp(MIN_TRIAL_PACKETS, MAX_TRIAL_PACKETS);
    let trials = relayed
        .iter()
        .map(|described| described.relay_trial(store, run, max_packets))
        .collect::<Result<Vec<RelayTrial>, Failure>>()?;
    let source = FitSource {
        dwell: env!("CARGO_PKG_VERSION").to_owned(),
        run: run.run.clone(),
        plan: run.name.clone(),
        node,
        conditions: conditions.clone(),
    };
    fit_relay(source, &trials).map_err(|error| match error {
        PredictError::Fit(text) => refusal(text),
        other => other.into(),
    })
}

/// A run that cannot be fitted.
fn refusal(text: String) -> Failure {
    anyhow::anyhow!(text).into()
}

/// Fails if no trial has this value of an axis.
fn check_condition(trials: &[TrialRow], axis: &str, value: &str) -> Result<(), Failure> {
    let axes: BTreeSet<&str> =
        trials.iter().flat_map(|trial| trial.parameters.keys().map(String::as_str)).collect();
    let list = |known: &BTreeSet<&str>| known.iter().copied().collect::<Vec<_>>().join(", ");
    if !axes.contains(axis) {
        return Err(Failure::usage(format!(
            "--where: no trial has an axis '{axis}'; the run has {}",
            list(&axes)
        )));
    }
    let values: BTreeSet<&str> =
        trials.iter().filter_map(|trial| trial.parameters.get(axis).map(String::as_str)).collect();
    if !values.contains(value) {
        return Err(Failure::usage(format!(
            "--where: no trial has {axis}={value}; values are {}",
            list(&values)
        )));
    }
    Ok(())
}

/// The node that relayed in all trials.
fn single_node(trials: &[Described]) -> Result<String, Failure> {
    let nodes: BTreeSet<&str> = trials.iter().map(|trial| trial.node.as_str()).collect();
    let mut names = nodes.iter().copied();
    match (names.next(), names.next()) {
        (Some(node), None) => Ok(node.to_owned()),
        _ => Err(Failure::usage(format!(
            "several nodes relayed ({}); fit one at a time with --where relay.on=NODE",
            nodes.into_iter().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Fails if the trials differ in an axis that is no variable of the model.
fn check_axes(trials: &[Described]) -> Result<(), Failure> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (axis, value) in trials.iter().flat_map(|described| &described.trial.parameters) {
        values.entry(axis).or_default().insert(value);
    }
    let other =
        values.into_iter().find(|(axis, values)| values.len() > 1 && !MODEL_AXES.contains(axis));
    other.map_or(Ok(()), |(axis, values)| {
        let values: Vec<&str> = values.into_iter().collect();
        Err(Failure::usage(format!(
            "the model has no variable {axis}, which is {}; choose one with --where '{axis}={}'",
            values.join(", "),
            values[0]
        )))
    })
}

/// A trial with a relay, and the summaries that describe it.
struct Described {
    trial: TrialRow,
    node: String,
    summary: Summary,
    /// CPU load on the relay's node that was requested, 0 to 1, and the one that was reached.
    load_ratio: f64,
    reached_ratio: Option<f64>,
    engine: String,
}

impl Described {
    /// `None` if the trial has no relay.
    fn of(store: &Store, trial: TrialRow) -> Result<Option<Self>, Failure> {
        let summaries = store.summaries(&trial)?;
        let measured = summaries.iter().find(|(role, ..)| *role == Role::Measurement);
        let Some((_, _, summary)) = measured else { return Ok(None) };
        let node = summary.text("relay_node").map(str::to_owned);
        let Some(node) = node.filter(|_| summary.kind == Kind::Relay) else { return Ok(None) };
        let is_on_relay = |name: &String| *name == node;
        let loads = summaries
            .iter()
            .filter(|(role, name, _)| *role == Role::Load && is_on_relay(name))
            .filter(|(_, _, load)| load.text("load") == Some("cpu"))
            .filter_map(|(_, _, load)| Some((load.number("level_ratio")?, load)));
        let (load_ratio, load) =
            loads.fold(
                (0.0, None),
                |largest: (f64, _), (level, load)| {
                    if level > largest.0 { (level, Some(load)) } else { largest }
                },
            );
        let reached_ratio = load.and_then(|load| load.value("burnt_ratio"));
        let relay = summaries.iter().find(|(role, name, summary)| {
            *role == Role::Server && is_on_relay(name) && summary.kind == Kind::Relay
        });
        let engine = relay.map_or(&summary.engine, |(_, _, relay)| &relay.engine).clone();
        let summary = summary.clone();
        Ok(Some(Self { trial, node, summary, load_ratio, reached_ratio, engine }))
    }

    /// The trial with its packets.
    fn relay_trial(
        &self,
        store: &Store,
        run: &RunRow,
        max_packets: usize,
    ) -> Result<RelayTrial, Failure> {
        let summary = &self.summary;
        let mode = summary.text("relay").unwrap_or_default();
        let mut relayed = RelayTrial::new(mode, max_packets, u64::from(self.trial.number));
        relayed.engine.clone_from(&self.engine);
        relayed.size_bytes = summary.number("payload_bytes").unwrap_or_default();
        relayed.rate_pps = summary.number("rate_pps").unwrap_or_default();
        relayed.load_ratio = self.load_ratio;
        relayed.reached_ratio = self.reached_ratio;
        relayed.link_rate_bps = summary.number("link_rate_bps");
        relayed.quota_ratio = summary.value(&quota_value(&self.node, "asked_ratio"));
        relayed.used_ratio = summary.value(&quota_value(&self.node, "burnt_ratio"));
        if let Some(packets) = summary.packets {
            (relayed.sent, relayed.received) = (packets.sent, packets.received);
        }
        let points = summary.parameters.get("node_points").and_then(|points| {
            Some((points.get(0)?.as_str()?.to_owned(), points.get(1)?.as_str()?.to_owned()))
        });
        let Some((from, to)) = points else { return Ok(relayed) };
        let node = match Point::named(&from) {
            Some(Point::PreRouting) => Column::NodeDelayNetfilter,
            Some(Point::RxDriver) => Column::NodeDelayDriver,
            _ => Column::NodeDelay,
        };
        // Where a queueing discipline emulates the link, the time in it is link delay.
        let queue_is_link = to == Point::TxSched.name();
        relayed.delay_points = (from, to);
        let columns = [
            Column::SenderOut,
            Column::LinkIn,
            node,
            Column::Qdisc,
            Column::LinkOut,
            Column::ReceiverIn,
            Column::ProcessingWithSend,
        ];
        store.samples(run, &self.trial, Some(&columns), &mut |batch| {
            for row in (0..batch.len()).filter(|row| is_used(batch, *row)) {
                let value = |column| batch.number(row, column).map_or(f64::NAN, |ns| ns as f64);
                let queue = if queue_is_link { value(Column::Qdisc) } else { 0.0 };
                relayed.push(PacketDelays {
                    sender_out: value(Column::SenderOut),
                    link_in: value(Column::LinkIn),
                    node: value(node),
                    link_out: value(Column::LinkOut) + queue,
                    receiver_in: value(Column::ReceiverIn),
                    program: value(Column::ProcessingWithSend),
                });
            }
            Ok(())
        })?;
        Ok(relayed)
    }
}

fn is_used(batch: &Batch, row: usize) -> bool {
    batch.state[row] == State::Received && !batch.void[row]
}
