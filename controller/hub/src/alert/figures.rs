//! The figures that alerts compare, from the stored rows. Time of maintenance, pauses and lost contact
//! is left out.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;

use super::condition::{Condition, MAX_CONTACT_GAP_NS, Quantity, Span, Statistic, Value};
use super::evaluate::{Figures, Measured, NodeFigures, StreamFigures, watched_for_silence};
use super::file::{AlertRules, Rule};
use super::maintenance::Maintenance;
use super::state::{AlertStates, Phase};
use super::watch::{Fleet, ScheduledStream, Subjects, Watch, alert_key};
use crate::coverage::{ClockBounds, VALID_NS};
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::row::{NodeId, Row, StreamId};
use crate::spans::{TimeSpan, join};
use crate::store::{HubTransaction, Span as RowSpan, StatusPoint};

/// Number of streams whose rows are read at once.
const STREAM_BATCH: usize = 200;

/// Part of the due probes that make the time of a condition complete.
const MIN_SHARE: f64 = 0.8;

/// Time by which statuses are read before the evaluated time: a pause that ended later began there.
const STATUS_NS: i64 = 3_600 * SECOND_NS;

/// Longest time that a condition looks back.
const MAX_LOOK_BACK_NS: i64 = DAY_NS + STATUS_NS;

/// What a hub remembers between evaluations besides the states of alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// End of the last evaluated time, by rule.
    pub(super) evaluated_ns: BTreeMap<String, i64>,
    /// Last known arrival, by node.
    pub(super) heard_ns: BTreeMap<Name, i64>,
    /// Times in which a node was not heard.
    pub(super) gaps: BTreeMap<Name, Vec<TimeSpan>>,
}

impl Memory {
    /// Notes an arrival. Returns whether the node was not heard for long before.
    fn note(&mut self, node: &Name, heard_ns: i64) -> bool {
        let before_ns = self.heard_ns.insert(node.clone(), heard_ns);
        let Some(before_ns) = before_ns else { return false };
        if heard_ns.saturating_sub(before_ns) <= MAX_CONTACT_GAP_NS {
            return false;
        }
        let gaps = self.gaps.entry(node.clone()).or_default();
        gaps.push((before_ns, heard_ns));
        gaps.retain(|gap| gap.1 > heard_ns.saturating_sub(MAX_LOOK_BACK_NS));
        true
    }
}

/// Figures, and the nodes whose remembered gaps changed.
pub(super) struct Read {
    pub(super) figures: Figures,
    pub(super) changed_gaps: BTreeSet<Name>,
}

/// Reads the figures of all rules whose time has moved on.
pub(super) fn read(
    transaction: &mut dyn HubTransaction,
    (rules, fleet, watches): (&AlertRules, &Fleet, &[Watch]),
    states: &AlertStates,
    maintenance: &BTreeMap<Name, Vec<Maintenance>>,
    memory: &mut Memory,
    (since_ns, now_ns): (i64, i64),
) -> Result<Read, HubError> {
    let silence = watched_for_silence(watches);
    let mut changed_gaps = BTreeSet::new();
    let mut numbers: BTreeMap<Name, NodeId> = BTreeMap::new();
    let mut figures = Figures { since_ns, applied_ns: fleet.applied_ns, ..Figures::default() };
    for node in transaction.nodes()? {
        if let Some(heard_ns) = node.last_arrival_ns
            && memory.note(&node.name, heard_ns)
        {
            changed_gaps.insert(node.name.clone());
        }
        numbers.insert(node.name.clone(), node.id);
        let of_node = NodeFigures { heard_ns: node.last_arrival_ns, ..NodeFigures::default() };
        figures.nodes.insert(node.name, of_node);
    }
    for (node, announced) in maintenance {
        let is_active = announced.iter().any(|maintenance| maintenance.is_at(now_ns));
        let ended = announced.iter().map(|it| it.span().1).filter(|end_ns| *end_ns <= now_ns);
        let of_node = figures.nodes.entry(node.clone()).or_default();
        of_node.in_maintenance = is_active;
        of_node.maintained_ns = ended.max();
    }
    let mut due: Vec<(&Rule, Quantity, Span, &[ScheduledStream])> = Vec::new();
    for watch in watches {
        let rule = &watch.rule;
        if let (Condition::Above { quantity, span, .. }, Some(Subjects::Streams(streams))) =
            (rule.when, &watch.subjects)
        {
            let end_ns = end_of(span, rules, now_ns);
            if memory.evaluated_ns.insert(rule.name.clone(), end_ns) != Some(end_ns) {
                due.push((rule, quantity, span, streams));
            }
        }
    }
    let spans = due.iter().map(|(rule, _, span, _)| span.ns().max(rule.clear_span(*span).ns()));
    let look_back_ns = spans.max().unwrap_or(0) + STATUS_NS;
    let mut reader = Reader {
        transaction,
        rules,
        numbers,
        maintenance,
        silence: &silence,
        excluded: BTreeMap::new(),
        bounds: BTreeMap::new(),
        now_ns,
        look_back_ns,
        ids: None,
    };
    for (rule, quantity, span, streams) in due {
        for batch in streams.chunks(STREAM_BATCH) {
            reader.batch(rule, (quantity, span), batch, states, (memory, &mut figures))?;
        }
    }
    Ok(Read { figures, changed_gaps })
}

/// End of the time that is evaluated now: the records of its rows have arrived.
fn end_of(span: Span, rules: &AlertRules, now_ns: i64) -> i64 {
    let length_ns = span.resolution().length_ns();
    let arrived_ns = now_ns.saturating_sub(rules.delay.0 + length_ns / 2);
    arrived_ns.div_euclid(span.step_ns()) * span.step_ns()
}

struct Reader<'a> {
    transaction: &'a mut dyn HubTransaction,
    rules: &'a AlertRules,
    numbers: BTreeMap<Name, NodeId>,
    maintenance: &'a BTreeMap<Name, Vec<Maintenance>>,
    silence: &'a BTreeSet<Name>,
    /// Time that is left out, by node.
    excluded: BTreeMap<Name, Vec<TimeSpan>>,
    bounds: BTreeMap<Name, ClockBounds>,
    now_ns: i64,
    /// Time before now in which statuses matter.
    look_back_ns: i64,
    /// Numbers of streams, by sender.
    ids: Option<BTreeMap<(Name, dwell_rollup::Stream), StreamId>>,
}

impl Reader<'_> {
    fn batch(
        &mut self,
        rule: &Rule,
        (quantity, span): (Quantity, Span),
        streams: &[ScheduledStream],
        states: &AlertStates,
        (memory, figures): (&Memory, &mut Figures),
    ) -> Result<(), HubError> {
        for stream in streams {
            for node in [&stream.sender, &stream.stream.reflector] {
                self.exclude(node, memory, figures)?;
            }
        }
        let end_ns = end_of(span, self.rules, self.now_ns);
        let when = self.measure(quantity, span, streams)?;
        let key = |stream: &ScheduledStream| alert_key(&rule.name, &stream.subject());
        let is_firing = |stream: &&ScheduledStream| {
            states.get(&key(stream)).is_some_and(|state| state.phase == Phase::Firing)
        };
        let firing: Vec<ScheduledStream> = streams.iter().filter(is_firing).cloned().collect();
        let clear_span = rule.clear_span(span);
        let clear = self.measure(quantity, clear_span, &firing)?;
        let clear: BTreeMap<String, Measured> = firing.iter().map(key).zip(clear).collect();
        for (stream, when) in streams.iter().zip(when) {
            let key = key(stream);
            let clear = clear.get(&key).copied().unwrap_or(when);
            figures.streams.insert(key, StreamFigures { end_ns, when, clear });
        }
        Ok(())
    }

    /// Reads the time of a node that is left out, and whether its agent is paused.
    fn exclude(
        &mut self,
        node: &Name,
        memory: &Memory,
        figures: &mut Figures,
    ) -> Result<(), HubError> {
        if self.excluded.contains_key(node) {
            return Ok(());
        }
        let mut spans: Vec<TimeSpan> = Vec::new();
        if let Some(number) = self.numbers.get(node) {
            let from_ns = self.now_ns.saturating_sub(self.look_back_ns);
            let to_ns = self.now_ns.saturating_add(STATUS_NS);
            let statuses = self.transaction.statuses(*number, from_ns, to_ns)?;
            for stored in &statuses {
                spans.extend(StatusPoint::pauses_of(&stored.status, stored.wall_ns));
            }
            // A paused agent writes a status every 5 min.
            let paused = statuses.last().and_then(|last| {
                let until_ns = last.wall_ns.saturating_add(2 * MAX_CONTACT_GAP_NS);
                last.status.pause.as_ref().map(|pause| (pause.since_wall_ns, until_ns))
            });
            spans.extend(paused);
            figures.nodes.entry(node.clone()).or_default().is_paused =
                paused.is_some_and(|(_, until_ns)| self.now_ns < until_ns);
        }
        spans.extend(self.maintenance.get(node).into_iter().flatten().map(Maintenance::span));
        if self.silence.contains(node) {
            spans.extend(memory.gaps.get(node).into_iter().flatten());
        }
        self.excluded.insert(node.clone(), join(spans));
        Ok(())
    }

    fn stream_ids(
        &mut self,
    ) -> Result<&BTreeMap<(Name, dwell_rollup::Stream), StreamId>, HubError> {
        let ids = match self.ids.take() {
            Some(ids) => ids,
            None => {
                let all = self.transaction.streams(None)?.into_iter();
                all.map(|known| ((known.sender, known.stream), known.id)).collect()
            }
        };
        Ok(self.ids.insert(ids))
    }

    /// Measures a quantity of streams over a time.
    fn measure(
        &mut self,
        quantity: Quantity,
        span: Span,
        streams: &[ScheduledStream],
    ) -> Result<Vec<Measured>, HubError> {
        let to_ns = end_of(span, self.rules, self.now_ns);
        let from_ns = to_ns.saturating_sub(span.ns());
        let ids = self.stream_ids()?;
        let key = |stream: &ScheduledStream| (stream.sender.clone(), stream.stream.clone());
        let spans: Vec<Option<RowSpan>> = streams
            .iter()
            .map(|stream| Some(RowSpan { stream: *ids.get(&key(stream))?, from_ns, to_ns }))
            .collect();
        let known: Vec<RowSpan> = spans.iter().flatten().copied().collect();
        let mut rows = self.transaction.rows(span.resolution(), &known)?.into_iter();
        let mut measured = Vec::new();
        for (stream, is_known) in streams.iter().zip(spans.iter().map(Option::is_some)) {
            let mut rows = if is_known { rows.next().unwrap_or_default() } else { Vec::new() };
            let length_ns = span.resolution().length_ns();
            rows.retain(|row| {
                let end_ns = row.start_ns.saturating_add(length_ns);
                let nodes = [&stream.sender, &stream.stream.reflector];
                let mut excluded =
                    nodes.iter().filter_map(|node| self.excluded.get(*node)).flatten();
                !excluded.any(|(from_ns, to_ns)| *from_ns < end_ns && row.start_ns < *to_ns)
            });
            let error_ns = self.error_ns(quantity, stream, &rows, (from_ns, to_ns))?;
            measured.push(measured_over(quantity, span, stream, &rows, error_ns));
        }
        Ok(measured)
    }

    /// Error of a delay by the clocks of both nodes; `None` if it is unknown.
    fn error_ns(
        &mut self,
        quantity: Quantity,
        stream: &ScheduledStream,
        rows: &[Row],
        (from_ns, to_ns): TimeSpan,
    ) -> Result<Option<u64>, HubError> {
        let Quantity::Delay(metric, _) = quantity else { return Ok(Some(0)) };
        if !metric.is_one_way() {
            return Ok(Some(0));
        }
        let reflector = &stream.stream.reflector;
        let Some(number) = self.numbers.get(reflector) else { return Ok(None) };
        if !self.bounds.contains_key(reflector) {
            let from_ns = self.now_ns.saturating_sub(self.look_back_ns);
            let (from_ns, to_ns) =
                (from_ns.saturating_sub(VALID_NS), self.now_ns.saturating_add(VALID_NS));
            let points = self.transaction.status_history(*number, from_ns, to_ns)?;
            self.bounds.insert(reflector.clone(), ClockBounds::of(&points));
        }
        let mut clock = None;
        for row in rows {
            match &mut clock {
                None => clock = Some(row.clock),
                Some(clock) => clock.merge(&row.clock),
            }
        }
        let bounds = self.bounds.get(reflector);
        Ok(bounds.zip(clock).and_then(|(bounds, clock)| bounds.error_ns(&clock, from_ns, to_ns)))
    }
}

/// Returns a quantity of rows.
fn measured_over(
    quantity: Quantity,
    span: Span,
    stream: &ScheduledStream,
    rows: &[Row],
    error_ns: Option<u64>,
) -> Measured {
    let Some(merged) = Row::merge(rows, 0) else {
        return Measured { value: None, is_complete: false };
    };
    let sent = merged.counts.sent;
    let due = stream.active_ns(span.ns()) as f64 / stream.interval_ns as f64;
    let is_complete = sent as f64 >= due * MIN_SHARE;
    let exactly = |value: f64, n: u64| Some(Value { low: value, high: value, n });
    let value = match quantity {
        Quantity::Loss if sent > 0 => exactly(merged.counts.lost as f64 / sent as f64, sent),
        Quantity::Loss => None,
        Quantity::Delay(metric, statistic) => merged.delays(metric).and_then(|delays| {
            let n = delays.count();
            match statistic {
                Statistic::Max => exactly(delays.max()?.0 as f64, n),
                Statistic::Mean => exactly(delays.mean_ns()?, n),
                Statistic::Percentile(_, quantile) => {
                    let bin = delays.quantile(quantile)?;
                    Some(Value { low: bin.low.0 as f64, high: bin.high.0 as f64, n })
                }
            }
        }),
    };
    let with_error = |value: Value| {
        let error = error_ns? as f64;
        Some(Value { low: value.low - error, high: value.high + error, ..value })
    };
    Measured { value: value.and_then(with_error), is_complete }
}
