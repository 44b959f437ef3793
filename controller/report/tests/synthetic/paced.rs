//! Synthetic runs of the short send-accuracy plan, on a node with given accuracies of its engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use dwell_documents::published;
use dwell_plan::{Expansion, Source, expand};
use dwell_protocol::PaceKind;
use dwell_record::{Figures, Kind, Packets, Scalar, Stamps, Summary, Train};
use dwell_report::model::{RunData, RunPlan, Series, TrialData, TrialState};
use dwell_sample::TimestampSource;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::synthetic::{axis, load, run, steps, summary};

const SHORT_PLAN: &str = include_str!("../../../../plans/send-accuracy-short.toml");

/// 95th percentile of |gap error| per engine in nanoseconds; it is eight times as large with 25
/// flows. Other engines are not supported on this node.
const GAP_ERROR_P95_NS: [(&str, f64); 5] = [
    ("sleep", 60e3),
    ("spin", 300.0),
    ("sleep-spin", 3e3),
    ("sendmmsg", 3e3),
    ("packet-ring", 200.0),
];

/// `dwell run plans/send-accuracy-short.toml` with overrides.
pub(crate) fn paces(settings: &[&str]) -> RunData {
    of(SHORT_PLAN, settings)
}

/// The same for any `[pace]` plan. Departures of packet-ring have only the program's timestamps.
pub(crate) fn of(text: &str, settings: &[&str]) -> RunData {
    let mut source = Source::parse(text).unwrap();
    settings.iter().for_each(|setting| source.set(setting).unwrap());
    let expansion = expand(&source, 1).unwrap();
    let axes = expansion.axes().into_iter().map(|one| {
        let labels = one.labels();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        axis(&one.name, &labels, one.numbers())
    });
    let mut made = run("20261121-4", "send-accuracy-short", None, axes.collect());
    let settings = settings.iter().map(|text| (*text).to_owned()).collect();
    made.plan = Some(RunPlan::read(text.to_owned(), settings).into());
    made.trials = expansion.trials().iter().map(|it| trial(&expansion, it.cell, it)).collect();
    made.trials.sort_by_key(|trial| trial.trial);
    made.published = Arc::new(published(&made));
    made
}

fn trial(expansion: &Expansion, cell: u32, it: &dwell_plan::Trial) -> TrialData {
    let plan = expansion.plan_of(cell).unwrap();
    let pace = plan.measurement.pace().unwrap();
    let parameters = &pace.parameters;
    let engine = parameters.engine.name();
    let mut made = TrialData {
        trial: it.number,
        repetition: it.repetition,
        order: it.number,
        state: TrialState::Finished,
        reason: None,
        parameters: expansion.parameters(cell),
        started_ns: None,
        summary: None,
        loads: Vec::new(),
        witnesses: Vec::new(),
        machines: Vec::new(),
        series: BTreeMap::new(),
    };
    let Some((_, error)) = GAP_ERROR_P95_NS.iter().find(|(name, _)| *name == engine) else {
        made.state = TrialState::NotRun;
        made.reason = Some(format!("pace on n1: {engine} is not supported here"));
        return made;
    };
    let flows = pace.cross.as_ref().map_or(0, |cross| cross.flows);
    let error = if flows > 0 { 8.0 * error } else { *error };
    let size = pace.packet_size().unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(300 + u64::from(it.number));
    let gap = parameters.rate.and_then(|rate| size.gap_ns(dwell_units::Rate::Bits(rate)));
    let mut summary = summary(Packets::default(), BTreeMap::new());
    summary.kind = Kind::Pace;
    summary.engine = engine.to_owned();
    let timestamp_source =
        if engine == "packet-ring" { TimestampSource::User } else { TimestampSource::KernelSw };
    summary.stamps = Stamps { tx: Some(timestamp_source), rx: None, near: None };
    summary.parameters = [
        ("engine".to_owned(), engine.into()),
        ("pattern".to_owned(), parameters.pattern.name().into()),
        ("size_bytes".to_owned(), size.ip().0.into()),
        ("rate_bps".to_owned(), parameters.rate.map(|rate| rate.0).into()),
        ("gap_ns".to_owned(), gap.into()),
    ]
    .into();
    if parameters.pattern == PaceKind::Pair {
        pairs(&mut summary, error, size.bits());
    } else {
        let (gap, rate) = (gap.unwrap(), parameters.rate.unwrap().0 as f64);
        let packets = u64::from(parameters.repeat) * u64::from(parameters.count);
        summary.packets = Some(Packets { sent: packets, received: packets, ..Packets::default() });
        summary.trains = (0..parameters.repeat)
            .map(|_| {
                let spread = random.random_range(0.9..1.1);
                // An error beyond the gap lowers the rate.
                let slow = (error / gap / 4.0).min(0.5);
                Train {
                    rate_bps: Some(rate * (1.0 - slow * spread)),
                    gap_error_p95_ns: Some((error * spread) as i64),
                    holed: false,
                }
            })
            .collect();
        let errors: Vec<i64> =
            (0..400).map(|_| (error * random.random_range(0.0..1.05)) as i64).collect();
        let drawn = Series { steps: steps(&errors), ..Series::default() };
        made.series.insert("gap_error_ns".to_owned(), drawn);
    }
    made.summary = Some(summary);
    if flows > 0 {
        made.loads.push(cross(flows));
    }
    made
}

fn pairs(summary: &mut Summary, error: f64, bits: f64) {
    let gap = 2_000.0 + 3.0 * error;
    let figures = Figures {
        count: 25,
        min: Some(gap as i64),
        p50: Some(gap as i64 * 3 / 2),
        ..Figures::default()
    };
    summary.packets = Some(Packets { sent: 50, received: 50, ..Packets::default() });
    summary.metrics = [("gap_ns".to_owned(), figures)].into();
    summary.values = [
        ("min_gap_ns".to_owned(), Some(Scalar::Real(gap))),
        ("capacity_bps".to_owned(), Some(Scalar::Real(bits * 1e9 / gap))),
        ("merged_pairs".to_owned(), Some(Scalar::Real(0.0))),
    ]
    .into();
}

fn cross(flows: u32) -> Summary {
    let mut load = load("traffic");
    let asked = f64::from(flows) * 1e6;
    load.parameters =
        [("flows".to_owned(), flows.into()), ("rate_bps".to_owned(), asked.into())].into();
    load.values = [("rate_bps".to_owned(), Some(Scalar::Real(0.97 * asked)))].into();
    load
}
