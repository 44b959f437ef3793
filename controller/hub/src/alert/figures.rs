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
use crate::clock::MAX_LEAD_NS;
use crate::coverage::{ClockBounds, VALID_NS};
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::row::{NodeId, Row, StreamId};
use crate::spans::{TimeSpan, join};
use crate::store::{HubStore, HubTransaction, Span as RowSpan, StoredNode};

/// Maximum number of rows that are read at once: each has up to four histograms.
const MAX_BATCH_ROWS: i64 = 10_000;

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
    /// Notes an arrival. Returns whether the node was not heard for long before. Time before `since_ns`, in
    /// which no hub evaluated, is no gap.
    fn note(&mut self, node: &Name, heard_ns: i64, since_ns: i64) -> bool {
        let before_ns = self.heard_ns.insert(node.clone(), heard_ns);
        let Some(before_ns) = before_ns.map(|before_ns| before_ns.max(since_ns)) else {
            return false;
        };
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

/// What an evaluation is about.
pub(super) struct Evaluated<'a> {
    pub(super) rules: &'a AlertRules,
    pub(super) fleet: &'a Fleet,
    pub(super) watches: &'a [Watch],
    pub(super) states: &'a AlertStates,
    pub(super) maintenance: &'a BTreeMap<Name, Vec<Maintenance>>,
    pub(super) nodes: &'a [StoredNode],
    /// Time since which hubs have evaluated without a break, in nanoseconds since 1970.
    pub(super) since_ns: i64,
    pub(super) now_ns: i64,
}

/// Reads the figures of all rules whose time has moved on, in batches of streams. `renew` follows each
/// batch; returns `None` as soon as it returns false.
pub(super) fn read(
    store: &mut dyn HubStore,
    of: &Evaluated<'_>,
    memory: &mut Memory,
    renew: &mut dyn FnMut(&mut dyn HubStore) -> Result<bool, HubError>,
) -> Result<Option<Read>, HubError> {
    let Evaluated { rules, since_ns, now_ns, .. } = *of;
    let silence = watched_for_silence(of.watches);
    let mut changed_gaps = BTreeSet::new();
    let mut numbers: BTreeMap<Name, NodeId> = BTreeMap::new();
    let mut figures = Figures { since_ns, applied_ns: of.fleet.applied_ns, ..Figures::default() };
    for StoredNode { id, name, last_arrival_ns, .. } in of.nodes {
        // A hub whose clock was ahead may have left a later time.
        let heard_ns = last_arrival_ns.filter(|at| *at <= now_ns.saturating_add(MAX_LEAD_NS));
        if let Some(heard_ns) = heard_ns
            && memory.note(name, heard_ns, since_ns)
        {
            changed_gaps.insert(name.clone());
        }
        numbers.insert(name.clone(), *id);
        figures.nodes.insert(name.clone(), NodeFigures { heard_ns, ..NodeFigures::default() });
    }
    for (node, announced) in of.maintenance {
        let is_active = announced.iter().any(|maintenance| maintenance.is_at(now_ns));
        let ended = announced.iter().map(|it| it.span().1).filter(|end_ns| *end_ns <= now_ns);
        let of_node = figures.nodes.entry(node.clone()).or_default();
        of_node.in_maintenance = is_active;
        of_node.maintained_ns = ended.max();
    }
    let mut due: Vec<(&Rule, Quantity, Span, &[ScheduledStream])> = Vec::new();
    for watch in of.watches {
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
        of,
        numbers,
        silence: &silence,
        excluded: BTreeMap::new(),
        bounds: BTreeMap::new(),
        look_back_ns,
        ids: None,
    };
    for (rule, quantity, span, streams) in due {
        for batch in streams.chunks(batch_len(rule, span)) {
            let mut transaction = store.begin_to_read()?;
            let into = (&*memory, &mut figures);
            reader.batch(&mut *transaction, rule, (quantity, span), batch, into)?;
            drop(transaction);
            if !renew(store)? {
                return Ok(None);
            }
        }
    }
    Ok(Some(Read { figures, changed_gaps }))
}

/// Number of streams whose rows are read at once.
fn batch_len(rule: &Rule, span: Span) -> usize {
    let rows = |span: Span| span.ns() / span.resolution().length_ns();
    let rows = rows(span).max(rows(rule.clear_span(span))).max(1);
    (MAX_BATCH_ROWS / rows).max(1) as usize
}

/// End of the time that is evaluated now: the records of its rows have arrived.
fn end_of(span: Span, rules: &AlertRules, now_ns: i64) -> i64 {
    let length_ns = span.resolution().length_ns();
    let arrived_ns = now_ns.saturating_sub(rules.delay.0 + length_ns / 2);
    arrived_ns.div_euclid(span.step_ns()) * span.step_ns()
}

struct Reader<'a> {
    of: &'a Evaluated<'a>,
    numbers: BTreeMap<Name, NodeId>,
    silence: &'a BTreeSet<Name>,
    /// Time that is left out, by node.
    excluded: BTreeMap<Name, Vec<TimeSpan>>,
    bounds: BTreeMap<Name, ClockBounds>,
    /// Time before now in which statuses matter.
    look_back_ns: i64,
    /// Numbers of streams, by sender.
    ids: Option<BTreeMap<(Name, dwell_rollup::Stream), StreamId>>,
}

impl Reader<'_> {
    fn batch(
        &mut self,
        transaction: &mut dyn HubTransaction,
        rule: &Rule,
        (quantity, span): (Quantity, Span),
        streams: &[ScheduledStream],
        (memory, figures): (&Memory, &mut Figures),
    ) -> Result<(), HubError> {
        self.exclude(transaction, streams, memory, figures)?;
        if matches!(quantity, Quantity::Delay(metric, _) if metric.is_one_way()) {
            self.read_bounds(transaction, streams)?;
        }
        let end_ns = end_of(span, self.of.rules, self.of.now_ns);
        let when = self.measure(transaction, quantity, span, streams)?;
        let key = |stream: &ScheduledStream| alert_key(&rule.name, &stream.subject());
        let states = self.of.states;
        let is_firing = |stream: &&ScheduledStream| {
            states.get(&key(stream)).is_some_and(|state| state.phase == Phase::Firing)
        };
        let firing: Vec<ScheduledStream> = streams.iter().filter(is_firing).cloned().collect();
        let clear_span = rule.clear_span(span);
        let clear = self.measure(transaction, quantity, clear_span, &firing)?;
        let clear: BTreeMap<String, Measured> = firing.iter().map(key).zip(clear).collect();
        for (stream, when) in streams.iter().zip(when) {
            let key = key(stream);
            let clear = clear.get(&key).copied().unwrap_or(when);
            figures.streams.insert(key, StreamFigures { end_ns, when, clear });
        }
        Ok(())
    }

    /// Reads the time of the nodes of streams that is left out, and whether their agents are paused.
    fn exclude(
        &mut self,
        transaction: &mut dyn HubTransaction,
        streams: &[ScheduledStream],
        memory: &Memory,
        figures: &mut Figures,
    ) -> Result<(), HubError> {
        let nodes = streams.iter().flat_map(|stream| [&stream.sender, &stream.stream.reflector]);
        let nodes: BTreeSet<&Name> =
            nodes.filter(|node| !self.excluded.contains_key(*node)).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let ids: Vec<NodeId> =
            nodes.iter().filter_map(|node| self.numbers.get(*node).copied()).collect();
        let now_ns = self.of.now_ns;
        let from_ns = now_ns.saturating_sub(self.look_back_ns);
        let to_ns = now_ns.saturating_add(STATUS_NS);
        let mut histories = transaction.status_histories(&ids, from_ns, to_ns)?;
        let last = transaction.last_statuses(&ids)?;
        for node in nodes {
            let mut spans: Vec<TimeSpan> = Vec::new();
            if let Some(number) = self.numbers.get(node) {
                let points = histories.remove(number).unwrap_or_default();
                spans.extend(points.into_iter().flat_map(|point| point.pauses));
                let last = last.get(number).filter(|it| (from_ns..to_ns).contains(&it.wall_ns));
                // A paused agent writes a status every 5 min.
                let paused = last.and_then(|last| {
                    let until_ns = last.wall_ns.saturating_add(2 * MAX_CONTACT_GAP_NS);
                    last.status.pause.as_ref().map(|pause| (pause.since_wall_ns, until_ns))
                });
                spans.extend(paused);
                figures.nodes.entry(node.clone()).or_default().is_paused =
                    paused.is_some_and(|(_, until_ns)| now_ns < until_ns);
            }
            let maintenance = self.of.maintenance.get(node);
            spans.extend(maintenance.into_iter().flatten().map(Maintenance::span));
            if self.silence.contains(node) {
                spans.extend(memory.gaps.get(node).into_iter().flatten());
            }
            self.excluded.insert(node.clone(), join(spans));
        }
        Ok(())
    }

    /// Reads the errors of the clocks of reflectors.
    fn read_bounds(
        &mut self,
        transaction: &mut dyn HubTransaction,
        streams: &[ScheduledStream],
    ) -> Result<(), HubError> {
        let reflectors = streams.iter().map(|stream| &stream.stream.reflector);
        let reflectors: BTreeMap<NodeId, &Name> = reflectors
            .filter(|reflector| !self.bounds.contains_key(*reflector))
            .filter_map(|reflector| Some((*self.numbers.get(reflector)?, reflector)))
            .collect();
        let ids: Vec<NodeId> = reflectors.keys().copied().collect();
        let now_ns = self.of.now_ns;
        let from_ns = now_ns.saturating_sub(self.look_back_ns).saturating_sub(VALID_NS);
        let to_ns = now_ns.saturating_add(VALID_NS);
        let histories = transaction.status_histories(&ids, from_ns, to_ns)?;
        for (number, reflector) in reflectors {
            let points = histories.get(&number).map_or(&[][..], Vec::as_slice);
            self.bounds.insert(reflector.clone(), ClockBounds::of(points));
        }
        Ok(())
    }

    fn stream_ids(
        &mut self,
        transaction: &mut dyn HubTransaction,
    ) -> Result<&BTreeMap<(Name, dwell_rollup::Stream), StreamId>, HubError> {
        let ids = match self.ids.take() {
            Some(ids) => ids,
            None => {
                let all = transaction.streams(None)?.into_iter();
                all.map(|known| ((known.sender, known.stream), known.id)).collect()
            }
        };
        Ok(self.ids.insert(ids))
    }

    /// Measures a quantity of streams over a time.
    fn measure(
        &mut self,
        transaction: &mut dyn HubTransaction,
        quantity: Quantity,
        span: Span,
        streams: &[ScheduledStream],
    ) -> Result<Vec<Measured>, HubError> {
        let to_ns = end_of(span, self.of.rules, self.of.now_ns);
        let from_ns = to_ns.saturating_sub(span.ns());
        let ids = self.stream_ids(transaction)?;
        let key = |stream: &ScheduledStream| (stream.sender.clone(), stream.stream.clone());
        let spans: Vec<Option<RowSpan>> = streams
            .iter()
            .map(|stream| Some(RowSpan { stream: *ids.get(&key(stream))?, from_ns, to_ns }))
            .collect();
        let known: Vec<RowSpan> = spans.iter().flatten().copied().collect();
        let mut rows = transaction.rows(span.resolution(), &known)?.into_iter();
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
            let error_ns = self.error_ns(quantity, stream, &rows, (from_ns, to_ns));
            measured.push(measured_over(quantity, span, stream, &rows, error_ns));
        }
        Ok(measured)
    }

    /// Error of a delay by the clocks of both nodes; `None` if it is unknown.
    fn error_ns(
        &self,
        quantity: Quantity,
        stream: &ScheduledStream,
        rows: &[Row],
        (from_ns, to_ns): TimeSpan,
    ) -> Option<u64> {
        let Quantity::Delay(metric, _) = quantity else { return Some(0) };
        if !metric.is_one_way() {
            return Some(0);
        }
        let bounds = self.bounds.get(&stream.stream.reflector)?;
        let mut clock = None;
        for row in rows {
            match &mut clock {
                None => clock = Some(row.clock),
                Some(clock) => clock.merge(&row.clock),
            }
        }
        bounds.error_ns(&clock?, from_ns, to_ns)
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
