//! Result of pacing: summary object and terminal output.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dwell_engine::departures::Pattern;
use dwell_protocol::{PaceEngine, PaceJob};
use dwell_record::{Figures, Kind, Packets, Scalar, Stamps, Summary, Trust, Warning};
use dwell_stats::Resolution;
use dwell_stats::departures::Variability;
use dwell_units::Nanos;
use serde_json::{Value, json};

use super::Outcome;
use super::recorder::{Recorder, Source};
use super::setup::PaceSetup;
use crate::environment::environment;
use crate::ping::unit;
use crate::placement;

/// Relative deviation of rate or pair interval above which a warning is given.
const MAX_DEVIATION: f64 = 0.05;

/// Returns a line that describes what is about to be sent.
pub(super) fn opening(
    job: &PaceJob,
    setup: &PaceSetup,
    engine: PaceEngine,
    source: Source,
) -> String {
    let (trains, packets) = setup.pattern.shape();
    let what = match &setup.pattern {
        Pattern::Pair { gap, .. } => format!("{trains} pairs, one every {gap}"),
        pattern => format!(
            "{trains} trains of {packets} packets, {} apart on average, {} between trains",
            Nanos(pattern.mean_gap().round() as i64),
            pattern.pause()
        ),
    };
    let narrowed =
        setup.narrowed.map_or(String::new(), |mtu| format!(" (limited by the MTU of {mtu})"));
    format!(
        "{what}, to {}: {}{narrowed}; {} by {}, departures from {}",
        job.target,
        setup.size,
        setup.request(true).rate_bps().map_or("back to back".to_owned(), rate),
        engine.name(),
        source.name()
    )
}

/// Builds the summary.
pub(super) fn summary(
    job: &PaceJob,
    setup: &PaceSetup,
    recorder: &Recorder<'_>,
    outcome: &Outcome,
) -> Summary {
    let real = |value: Option<f64>| value.filter(|value| value.is_finite()).map(Scalar::Real);
    let counted = |count: u64| Some(Scalar::Count(count));
    let mut values: BTreeMap<String, Option<Scalar>> = BTreeMap::new();
    let mut metrics: BTreeMap<String, Figures> = BTreeMap::new();
    match &recorder.pairs {
        Some(pairs) => {
            let figures = pairs.figures();
            values.extend(figures.values().map(|(name, value)| (name.to_owned(), real(value))));
            if figures.gap.count > 0 {
                metrics.insert("gap_ns".to_owned(), figures.gap.into());
            }
            if figures.schedule_error.count > 0 {
                metrics.insert("schedule_error_ns".to_owned(), figures.schedule_error.into());
            }
        }
        None => {
            let trains = &recorder.trains;
            values.extend(trains.values().map(|(name, value)| (name.to_owned(), real(value))));
            let named = trains.metrics().map(|(name, figures)| (name.to_owned(), figures.into()));
            metrics.extend(named);
        }
    }
    let counts = recorder.counts;
    values.insert("packets".to_owned(), counted(counts.sent));
    values.insert("icmp_errors".to_owned(), counted(outcome.refused));
    let packets = counts.sink_reported.then(|| Packets {
        sent: counts.sent,
        received: counts.arrived,
        lost: counts.sent.saturating_sub(counts.arrived),
        reordered: counts.reordered,
        send_failed: counts.failed,
        ..Packets::default()
    });
    let gaps = match &recorder.pairs {
        Some(pairs) => pairs.gaps(),
        None => recorder.trains.gap_errors(),
    };
    let mut trust = Trust {
        schedule_error_ns: metrics.get("schedule_error_ns").copied(),
        planned: Some(setup.departures.at().len() as u64),
        warm_up_sent: Some(counts.warm_up),
        percentile_resolution: (gaps.count() > 0).then(|| -> Resolution { gaps.resolution() }),
        ..Trust::default()
    };
    warn(&mut trust, job, setup, recorder, outcome);
    trust.note_clocks(&recorder.start, &recorder.end);
    trust.note_nics(outcome.nics.clone());
    let timestamp_source = recorder.source.timestamp_source();
    Summary {
        kind: Kind::Pace,
        target: job.target.clone(),
        parameters: parameters(job, setup, recorder, outcome),
        packets,
        metrics,
        values,
        stamps: Stamps {
            tx: (counts.sent > 0).then_some(timestamp_source),
            rx: outcome.far_source.filter(|_| counts.arrived > 0),
            near: None,
        },
        engine: match &outcome.why {
            Some(why) => format!("{}: {why}", outcome.engine.name()),
            None => outcome.engine.name().to_owned(),
        },
        trains: recorder.each.clone(),
        spikes: None,
        driver: None,
        trust,
        environment: environment(
            setup.interface.as_ref(),
            placement::record(&setup.place, outcome.placement),
        ),
    }
}

/// Why departures would not show a rate limit.
enum HiddenLimit<'a> {
    /// Packets bypass the queueing discipline that limits the rate.
    Bypassed(&'a str),
    /// Packets are timestamped when this interface hands them to a program.
    Behind(&'a str),
}

impl<'a> HiddenLimit<'a> {
    fn of(
        job: &PaceJob,
        setup: &'a PaceSetup,
        source: Source,
        outcome: &'a Outcome,
    ) -> Option<Self> {
        if outcome.engine.bypasses_qdisc(job.parameters.bypass)
            && let Some(limiter) = &outcome.limiter
        {
            return Some(Self::Bypassed(limiter));
        }
        let interface = setup.interface.as_ref()?;
        let here = matches!(source, Source::Kernel(_)) && interface.is_tun_or_tap();
        here.then_some(Self::Behind(&interface.name))
    }
}

fn parameters(
    job: &PaceJob,
    setup: &PaceSetup,
    recorder: &Recorder<'_>,
    outcome: &Outcome,
) -> BTreeMap<String, Value> {
    let (trains, packets) = setup.pattern.shape();
    let pattern = match &setup.pattern {
        Pattern::Pair { .. } => "pair",
        Pattern::Train { .. } => "train",
        Pattern::Poisson { .. } => "poisson",
        Pattern::Replay { .. } => "replay",
    };
    let seed = match &setup.pattern {
        Pattern::Poisson { seed, .. } => json!(seed),
        _ => json!(null),
    };
    let size = &setup.size;
    let named = [
        ("address", json!(setup.peer.to_string())),
        ("pattern", json!(pattern)),
        ("engine", json!(job.parameters.engine.name())),
        ("engine_used", json!(outcome.engine.name())),
        ("bypass", json!(job.parameters.bypass)),
        ("limit_unseen", json!(HiddenLimit::of(job, setup, recorder.source, outcome).is_some())),
        ("counted", json!(size.counted().name())),
        ("size_bytes", json!(size.ip().0)),
        ("payload_bytes", json!(size.payload().0)),
        ("frame_bytes", json!(size.frame().0)),
        ("rate_bps", json!(setup.request(true).rate_bps())),
        ("gap_ns", json!((!setup.is_pairs()).then(|| setup.pattern.mean_gap()))),
        ("trains", json!(trains)),
        ("packets_per_train", json!(packets)),
        ("leads_per_train", json!(setup.pattern.lead_in_len())),
        ("ahead_packets", json!(recorder.counts.ahead)),
        ("pause_ns", json!(setup.pattern.pause().0)),
        ("seed", seed),
        ("late_ns", json!(setup.request(true).deadline_ns())),
        ("warm_up", json!(job.parameters.warm_up)),
        ("sink", json!(outcome.far_source.is_some())),
        ("departures", json!(recorder.source.name())),
        ("stamps", json!(job.parameters.stamps)),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds the warnings.
fn warn(
    trust: &mut Trust,
    job: &PaceJob,
    setup: &PaceSetup,
    recorder: &Recorder<'_>,
    outcome: &Outcome,
) {
    let counts = recorder.counts;
    if counts.sent + counts.failed == 0 {
        trust.warn(Warning::NothingSent);
    }
    if let Some(why) = outcome.unsent.as_ref().filter(|_| counts.failed > 0) {
        let packets = format!("{} packets", counts.failed);
        trust.warn(Warning::SendFailed(packets, why.to_string()));
    }
    trust.warn_count(outcome.refused, |count| {
        let suffix = if counts.stamped > 0 { "; departures are valid" } else { "" };
        let advice = format!("port closed or host unreachable at {}{suffix}", job.target);
        Warning::IcmpErrors(count, advice)
    });
    match recorder.source {
        Source::User => trust.warn(Warning::UserDepartures),
        Source::Sink(_) if outcome.same_clock == Some(false) => {
            trust.warn(Warning::DeparturesOnSinkClock);
        }
        Source::Sink(_) => trust.warn(Warning::DeparturesIncludePath),
        Source::Kernel(_) => {}
    }
    match HiddenLimit::of(job, setup, recorder.source, outcome) {
        Some(HiddenLimit::Bypassed(name)) => {
            trust.warn(Warning::LimiterBypassed(name.to_owned()));
        }
        Some(HiddenLimit::Behind(name)) => {
            trust.warn(Warning::LimiterBehindTunnel(name.to_owned()));
        }
        None => {}
    }
    let trains = &recorder.trains;
    match recorder.pairs.as_ref().map(dwell_stats::departures::Pairs::figures) {
        Some(pairs) => {
            trust.warn_count(pairs.merged, Warning::PairsMerged);
            trust.warn_count(pairs.reordered, Warning::PairsReordered);
            trust.warn_count(pairs.unstamped, |count| {
                Warning::MissingTimestamps("pairs", "departure", count)
            });
            trust.warn_count(pairs.discarded, |count| stepped(count, "pairs"));
            if let Some([planned, began]) = recorder.mean_intervals()
                && began.0 as f64 > planned.0 as f64 * (1.0 + MAX_DEVIATION)
            {
                trust.warn(Warning::PairsApart(began.to_string(), planned.to_string()));
            }
        }
        None => {
            trust.warn_count(trains.merged(), Warning::GapsZero);
            trust.warn_count(trains.holed(), Warning::TrainHoles);
            trust.warn_count(trains.unstamped(), |count| {
                Warning::MissingTimestamps("packets", "departure", count)
            });
            trust.warn_count(trains.discarded(), |count| stepped(count, "trains"));
        }
    }
    let reached = trains.values().into_iter().find(|(name, _)| *name == "rate_bps");
    if let (Some((_, Some(reached))), Some(requested)) = (reached, trains.scheduled_rate_bps())
        && reached < requested * (1.0 - MAX_DEVIATION)
    {
        let why = format!("{} requested, {} reached", rate(requested), rate(reached));
        trust.warn(Warning::RateMissed(reached / requested * 100.0, why));
    }
}

/// Returns the warning about trains or pairs discarded for a clock step.
fn stepped(discarded: u64, what: &str) -> Warning {
    Warning::ClockStepped(format!(
        "{discarded} {what} are discarded, as their timestamps are not comparable"
    ))
}

/// Rows of the table: metric and label.
const TABLE: [(&str, &str); 4] = [
    ("gap_ns", "gap"),
    ("gap_error_ns", "|gap - scheduled gap|"),
    ("schedule_error_ns", "left - due"),
    ("first_schedule_error_ns", "left - due, first packets"),
];

/// Returns the verdict on the rate, in one line.
pub(super) fn verdict(
    job: &PaceJob,
    setup: &PaceSetup,
    recorder: &Recorder<'_>,
    outcome: &Outcome,
) -> Option<String> {
    let unseen = HiddenLimit::of(job, setup, recorder.source, outcome).is_some();
    super::verdict::line(setup, recorder, unseen)
}

/// Returns why the departures decide no threshold, by the rule of [`verdict`]; `None` if they do.
pub(super) fn unusable(
    job: &PaceJob,
    setup: &PaceSetup,
    source: Source,
    outcome: &Outcome,
) -> Option<&'static str> {
    let unseen = HiddenLimit::of(job, setup, source, outcome).is_some();
    super::verdict::unusable(source.timestamp_source(), unseen)
}

/// Prints the result; `verbose` adds the variability figures.
pub(super) fn print(summary: &Summary, verbose: bool) -> io::Result<()> {
    let mut out = crate::terminal::stdout();
    let parameter = |name: &str| summary.parameters.get(name);
    let value = |name: &str| match summary.values.get(name) {
        Some(Some(Scalar::Real(value))) => Some(*value),
        Some(Some(Scalar::Count(count))) => Some(*count as f64),
        _ => None,
    };
    // The name of the engine precedes the reason for its choice.
    let name = summary.engine.split(": ").next().unwrap_or_default();
    let engine = if verbose { &summary.engine } else { name };
    writeln!(out, "\n{}  {engine}", summary.target)?;
    if let Some(packets) = &summary.packets {
        let Packets { sent, received, lost, reordered, send_failed, .. } = packets;
        writeln!(
            out,
            "{sent} sent, {received} arrived, {lost} lost, {reordered} reordered, {send_failed} \
             send-failed"
        )?;
    }
    writeln!(
        out,
        "\n{:26}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "", "n", "min", "median", "p95", "p99", "max"
    )?;
    for (name, label) in TABLE {
        let Some(figures) = summary.metrics.get(name) else { continue };
        let Figures { count, min, p50, p95, p99, max, .. } = figures;
        let (size, unit) = unit(max.unwrap_or(0) as f64);
        let cell =
            |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / size));
        let [min, p50, p95, p99, max] = [*min, *p50, *p95, *p99, *max].map(cell);
        writeln!(out, "{label:26}{count:>9}{min:>12}{p50:>12}{p95:>12}{p99:>12}{max:>12} {unit}")?;
    }
    writeln!(out)?;
    let bytes = |name: &str| parameter(name).map_or("-".to_owned(), Value::to_string);
    let [ip, payload, frame] = ["size_bytes", "payload_bytes", "frame_bytes"].map(bytes);
    writeln!(out, "{:26}IP packet {ip} B, UDP payload {payload} B, frame {frame} B", "size")?;
    let requested = parameter("rate_bps").and_then(Value::as_f64);
    if let (Some(requested), reached) = (requested, value("rate_bps")) {
        let reached = reached.map_or("unknown".to_owned(), rate);
        writeln!(
            out,
            "{:26}{} requested, {reached} sent (Mok 2015, equation 1)",
            "rate",
            rate(requested)
        )?;
    }
    for (name, label) in [
        ("capacity_bps", "capacity (smallest gap)"),
        ("capacity_median_bps", "capacity (median gap)"),
    ] {
        if let Some(capacity) = value(name) {
            writeln!(out, "{label:26}{}", rate(capacity))?;
        }
    }
    for (name, sentence) in Variability::EXPLAINED.into_iter().filter(|_| verbose) {
        if let Some(j) = value(name) {
            let (size, unit) = unit(j);
            let name = name.trim_end_matches("_ns");
            writeln!(out, "{name:26}{:.3} {unit}: {sentence}", j / size)?;
        }
    }
    if let (Some(trains), Some(holed), Some(bursts)) =
        (value("trains"), value("holed_trains"), value("bursts"))
    {
        let missed = value("missed_deadlines").map_or("unknown".to_owned(), |n| n.to_string());
        writeln!(
            out,
            "{:26}{trains}, {holed} with a hole; {bursts} bursts; {missed} deadlines missed",
            "trains"
        )?;
    }
    if let (Some(pairs), Some(missed)) = (value("merged_pairs"), value("missed_deadlines")) {
        writeln!(
            out,
            "{:26}{missed} deadlines missed; {pairs} with one timestamp for both",
            "pairs"
        )?;
    }
    crate::human::print_warnings(&mut out, &summary.trust)
}

/// Prints the result of a sink.
pub(super) fn print_sink(summary: &Summary, json: bool) -> io::Result<()> {
    if json {
        return io::stdout().lock().write_all(summary.to_json().as_bytes());
    }
    let mut out = crate::terminal::stdout();
    crate::human::print_values(&mut out, &summary.values, &["packets"])?;
    Ok(())
}

/// Formats a measured rate with at least four digits.
pub(super) fn rate(bps: f64) -> String {
    let (size, unit) = match bps {
        ..1e6 => (1e3, "kbit/s"),
        ..1e9 => (1e6, "Mbit/s"),
        _ => (1e9, "Gbit/s"),
    };
    let text = format!("{:.3}", bps / size);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}
