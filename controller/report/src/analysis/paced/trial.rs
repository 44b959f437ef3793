//! Requests of trials of pairs or trains to their senders.

use std::collections::BTreeMap;

use dwell_plan::{MeasurementKind, PacePlan, Plan};
use dwell_protocol::{PaceEngine, PaceKind};
use dwell_record::{Kind, Summary};
use dwell_stats::median;
use dwell_units::BitRate;

use crate::model::{Axis, RunData, TrialData, TrialState};

/// Identity of a sender: everything but the rate that separates verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) node: String,
    pub(crate) engine: String,
    /// Size of the IP packet in bytes.
    pub(crate) ip_size: u64,
    /// Number of cross-traffic flows.
    pub(crate) flows: u32,
    /// Values of the other varied axes.
    pub(crate) others: BTreeMap<String, String>,
}

/// A trial of packet pairs or trains.
#[derive(Clone, Debug)]
pub(crate) struct PacedTrial<'a> {
    pub(crate) trial: &'a TrialData,
    pub(crate) sender: Sender,
    pub(crate) pairs: bool,
    /// Which size was given, if known: `ip`, `payload` or `frame`.
    size_kind: Option<String>,
    /// Requested rate of a train with a constant rate.
    pub(crate) rate: Option<BitRate>,
    /// Results; `None` if nothing was measured.
    pub(crate) summary: Option<&'a Summary>,
}

dwell_units::named! {
    /// Fields of a plan that [`Sender`] or [`PacedTrial`] states separately, and those that only
    /// change the number of packets. All other varied fields distinguish senders.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum PacedField {
        From = "pace.from",
        Engine = "pace.engine",
        Size = "pace.size",
        PayloadSize = "pace.payload_size",
        FrameSize = "pace.frame_size",
        Flows = "cross.flows",
        Rate = "pace.rate",
        Pattern = "pace.pattern",
        Count = "pace.count",
        Repeat = "pace.repeat",
        Pairs = "pace.pairs",
    }
}

impl PacedField {
    /// The field that an axis sets, if it is one of these.
    fn of_axis(axis: &str) -> Option<Self> {
        Self::named(&MeasurementKind::Pace.axis_path(axis)?)
    }
}

/// Key in [`Sender::others`] for the kind of size that was given.
const SIZE_KIND_KEY: &str = "size counted as";

/// Whether the run measures departures of packets.
pub fn is_paced(run: &RunData) -> bool {
    let is_pace =
        |trial: &TrialData| trial.summary.as_ref().is_some_and(|it| it.kind == Kind::Pace);
    run.trials.iter().any(is_pace)
        || run.plan().is_some_and(|plan| plan.measurement.pace().is_some())
}

/// Every trial of pairs or trains, by number. The plan describes trials that were not measured.
pub(crate) fn paced(run: &RunData) -> Vec<PacedTrial<'_>> {
    if !is_paced(run) {
        return Vec::new();
    }
    let plan = run.plan();
    let used = only_engine(run, plan);
    let mut all: Vec<_> =
        run.trials.iter().filter_map(|trial| PacedTrial::of(run, plan, trial)).collect();
    let kinds = |size: u64, all: &[PacedTrial]| {
        let mut kinds_seen: Vec<&str> = all
            .iter()
            .filter(|paced| paced.sender.ip_size == size)
            .filter_map(|paced| paced.size_kind.as_deref())
            .collect();
        kinds_seen.sort_unstable();
        kinds_seen.dedup();
        kinds_seen.len()
    };
    // At one rate, a frame and the IP packet inside it have different gaps: where both occur, they
    // are separate senders.
    let both: Vec<bool> = all.iter().map(|paced| kinds(paced.sender.ip_size, &all) > 1).collect();
    for (paced, _) in all.iter_mut().zip(both).filter(|(_, both)| *both) {
        let kind = paced.size_kind.clone().into_iter();
        paced.sender.others.extend(kind.map(|kind| (SIZE_KIND_KEY.to_owned(), kind)));
    }
    if let Some(used) = used {
        let automatic = all.iter_mut().filter(|paced| is_automatic(&paced.sender.engine));
        automatic.for_each(|paced| paced.sender.engine.clone_from(&used));
    }
    all
}

/// Engine used by all trials with the automatic engine, if it was the same one.
fn only_engine(run: &RunData, plan: Option<&Plan>) -> Option<String> {
    let pace = plan.and_then(|plan| plan.measurement.pace());
    let mut used = run
        .trials
        .iter()
        .filter(|trial| is_automatic(&engine(trial, pace)))
        .filter_map(|trial| Some(trial.summary.as_ref()?.text("engine_used")?.to_owned()));
    let first = used.next()?;
    used.all(|other| other == first).then_some(first)
}

/// Whether a measurement chooses the engine of this name.
fn is_automatic(engine: &str) -> bool {
    engine.parse().is_ok_and(PaceEngine::is_automatic)
}

impl<'a> PacedTrial<'a> {
    fn of(run: &RunData, plan: Option<&Plan>, trial: &'a TrialData) -> Option<Self> {
        let summary = trial
            .summary
            .as_ref()
            .filter(|summary| summary.kind == Kind::Pace && trial.state == TrialState::Finished);
        let pace = plan.and_then(|plan| plan.measurement.pace());
        let pattern = requested(trial, PacedField::Pattern)
            .map(str::to_owned)
            .or_else(|| summary?.text("pattern").map(str::to_owned))
            .or_else(|| Some(pace.map(|pace| pace.parameters.pattern)?.name().to_owned()))?;
        let rate = summary
            .and_then(|summary| summary.number("rate_bps"))
            .map(|bps| BitRate(bps.round() as u64))
            .or_else(|| requested(trial, PacedField::Rate)?.parse().ok())
            .or_else(|| pace?.parameters.rate)
            .filter(|_| pattern == PaceKind::Train.name());
        let sender = Sender {
            node: requested(trial, PacedField::From)
                .or_else(|| Some(pace?.from.as_str()))
                .unwrap_or("this node")
                .to_owned(),
            engine: engine(trial, pace),
            ip_size: ip_size(trial, summary, pace)?,
            flows: flows(trial, plan),
            others: others(run, trial),
        };
        let pairs = pattern == PaceKind::Pair.name();
        let size_kind = size_kind(trial, summary, pace);
        Some(Self { trial, sender, pairs, size_kind, rate, summary })
    }

    /// Scalar result by name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.summary?.value(name)
    }

    /// Median rate of its trains in bit/s.
    pub(crate) fn measured_bps(&self) -> Option<f64> {
        let rates: Vec<_> =
            self.summary?.trains.iter().filter_map(|train| train.rate_bps).collect();
        median(&rates)
    }
}

/// Requested engine.
fn engine(trial: &TrialData, pace: Option<&PacePlan>) -> String {
    let reported = || trial.summary.as_ref().and_then(|summary| summary.text("engine"));
    requested(trial, PacedField::Engine)
        .or_else(reported)
        .or_else(|| Some(pace?.parameters.engine.name()))
        .unwrap_or(PaceEngine::default().name())
        .to_owned()
}

fn ip_size(trial: &TrialData, summary: Option<&Summary>, pace: Option<&PacePlan>) -> Option<u64> {
    if let Some(bytes) = summary.and_then(|summary| summary.number("size_bytes")) {
        return Some(bytes as u64);
    }
    Some(requested_size(trial, pace?).packet_size()?.ip().0)
}

/// Which size a trial gave: `ip`, `payload` or `frame`.
fn size_kind(
    trial: &TrialData,
    summary: Option<&Summary>,
    pace: Option<&PacePlan>,
) -> Option<String> {
    if let Some(kind) = summary.and_then(|summary| summary.text("counted")) {
        return Some(kind.to_owned());
    }
    Some(requested_size(trial, pace?).parameters.named_size()?.measure.name().to_owned())
}

/// The plan with the packet size of this trial.
fn requested_size(trial: &TrialData, pace: &PacePlan) -> PacePlan {
    let mut pace = pace.clone();
    let parameters = &mut pace.parameters;
    let size = requested(trial, PacedField::Size).and_then(|text| text.parse().ok());
    let payload = requested(trial, PacedField::PayloadSize).and_then(|text| text.parse().ok());
    let frame = requested(trial, PacedField::FrameSize).and_then(|text| text.parse().ok());
    if size.is_some() || payload.is_some() || frame.is_some() {
        (parameters.size, parameters.payload_size, parameters.frame_size) = (size, payload, frame);
    }
    pace
}

fn flows(trial: &TrialData, plan: Option<&Plan>) -> u32 {
    requested(trial, PacedField::Flows)
        .and_then(|text| text.parse().ok())
        .or_else(|| Some(plan?.measurement.pace()?.cross.as_ref()?.flows))
        .unwrap_or(0)
}

/// Values of the varied axes without a field of their own.
fn others(run: &RunData, trial: &TrialData) -> BTreeMap<String, String> {
    let distinguishes = |axis: &&Axis| PacedField::of_axis(&axis.name).is_none();
    let varied = run.axes.iter().filter(|axis| axis.values.len() > 1).filter(distinguishes);
    let value = |name: &String| Some((name.clone(), trial.parameters.get(name)?.clone()));
    varied.filter_map(|axis| value(&axis.name)).collect()
}

/// Value of the axis that sets this field in the trial.
fn requested(trial: &TrialData, field: PacedField) -> Option<&str> {
    let mut axes = trial.parameters.iter();
    axes.find(|(axis, _)| PacedField::of_axis(axis) == Some(field)).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paced_field_is_an_axis_of_plans() {
        for field in PacedField::ALL {
            let (_, axis) = field.name().rsplit_once('.').unwrap();
            assert_eq!(PacedField::of_axis(axis), Some(field), "{axis}");
        }
        assert_eq!(PacedField::of_axis("cross.size"), None);
        assert_eq!(PacedField::of_axis("late"), None);
    }
}
