//! Goals for dwell's trains and their verdicts: medians over turns, in the worst cell of the grid.
//! For nearly equal contestants the worst of fifteen cells is chance; a value above the limit
//! without confidence is "cannot tell".

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::contestant::{CONTESTANTS, JUDGED, LOWER_BOUND, LOWER_BOUND_AGAIN, LOWER_BOUND_SLEEP};
use super::factor::Factor;
use super::gaps::Gaps;
use super::grid::Cell;
use super::limits::{LimitVerdict, VerdictPosition, misplaced};
use crate::StealBudget;
use crate::judge::{Bound, Estimate, Judged, Outcome, Unit, median, paired};

/// Maximum relative deviation of a rate that counts as kept.
const MAX_RATE_DEVIATION: f64 = 0.01;
/// Absolute error limit in nanoseconds, for rates of [`ABSOLUTE_GOAL_MBITS`] and above.
const MAX_ERROR_NS: f64 = 100.0;
/// Lowest rate in Mbit/s with an absolute limit.
pub(super) const ABSOLUTE_GOAL_MBITS: u32 = 50;

/// Minimum number of successful turns out of ten: the failed ones are likely the bad ones.
const MIN_OF_TEN: usize = 9;

/// IP packet sizes of the pairs, in bytes.
pub(super) const PAIR_SIZES: [u32; 2] = [200, 1_500];
/// Name of the C sender of pairs.
pub(super) const TWO_SENDS: &str = "two sends in C";

/// Streams of each turn of a round; empty for a failed turn.
pub(super) type Turns = Vec<Vec<Gaps>>;

/// All measurements, one entry per round.
#[derive(Debug, Default, Serialize)]
pub(super) struct Measured {
    /// By contestant and cell, then by round.
    pub(super) streams: BTreeMap<&'static str, BTreeMap<String, Vec<Turns>>>,
    /// Median gap within pairs in nanoseconds, by sender and size, then by turn; `None` for a
    /// failed turn.
    pub(super) pairs_ns: BTreeMap<&'static str, BTreeMap<u32, Vec<Option<f64>>>>,
    /// Verdicts of runs with and without limits.
    pub(super) found: Vec<LimitVerdict>,
    /// Repetitions of these runs.
    pub(super) patience: StealBudget,
    /// Number of runs required.
    pub(super) runs: u64,
    /// Peers that are not installed.
    pub(super) missing: Vec<&'static str>,
    /// Reasons of failed turns.
    pub(super) failures: BTreeSet<String>,
    /// Packets dropped by the witness.
    pub(super) unseen: u64,
    /// Load average before each round.
    pub(super) load: Vec<f64>,
}

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// Trains at constant rates
    Trains,
    /// The smallest gap of a pair
    Pairs,
    /// Verdicts of `dwell run` behind a rate limit
    Verdicts,
}

/// A judged goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PaceVerdict {
    pub(super) goal: &'static str,
    pub(super) part: Part,
    /// `None` if it could not be measured, which counts as missed.
    pub(super) value: Option<f64>,
    /// Maximum value.
    pub(super) limit: f64,
    pub(super) outcome: Outcome,
    /// Cell with the worst value.
    pub(super) worst: Option<String>,
    /// Largest lower confidence bound over cells, for nearly equal contestants and pairs.
    pub(super) shown: Option<f64>,
    /// Upper confidence bound, for pairs.
    pub(super) high: Option<f64>,
    /// Number of cells judged, for goals that compare senders.
    pub(super) cells: Option<Cells>,
}

/// Cells with a value, of all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cells {
    pub(super) judged: usize,
    pub(super) of: usize,
}

/// Contestant that a cell is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Is(&'static str),
    /// No measured peer kept the rate: the cell is left out.
    OffRate,
    /// No peer was measured.
    Unknown,
}

/// Selects a figure of a stream.
type Figure = fn(&Gaps) -> f64;

/// Returns the cells at rates that all senders can reach.
fn slow() -> impl Iterator<Item = Cell> {
    Cell::all().into_iter().filter(|cell| *cell != Cell::FASTEST)
}

impl Measured {
    /// Returns the median of a contestant's streams in a cell.
    pub(super) fn figure(&self, name: &str, cell: Cell, of: Figure) -> Option<f64> {
        let rounds = self.streams.get(name)?.get(&cell.name())?;
        median(&rounds.iter().flatten().flatten().map(of).collect::<Vec<_>>())
    }

    /// Whether a contestant can be judged in a cell. Third-party programs are judged by the turns
    /// that succeeded.
    fn complete(&self, name: &str, cell: Cell) -> bool {
        let rounds = self.streams.get(name).and_then(|cells| cells.get(&cell.name()));
        rounds.is_some_and(|rounds| is_peer(name) || complete(rounds))
    }

    /// Returns the figure of a cell by which a contestant is judged.
    fn judged(&self, name: &str, cell: Cell, of: Figure) -> Option<f64> {
        self.figure(name, cell, of).filter(|_| self.complete(name, cell))
    }

    /// Returns a figure of dwell's turns in a cell with its interval, if the cell can be judged.
    fn absolute(&self, cell: Cell, of: Figure) -> Option<Estimate> {
        let rounds = self.streams.get(JUDGED)?.get(&cell.name()).filter(|turns| complete(turns))?;
        let turn = |streams: &Vec<Gaps>| median(&streams.iter().map(of).collect::<Vec<_>>());
        paired::location(&rounds.iter().flatten().filter_map(turn).collect::<Vec<_>>())
    }

    /// Judges a figure of dwell that is not compared with another contestant.
    fn absolute_goal(
        &self,
        goal: &'static str,
        cells: impl IntoIterator<Item = Cell>,
        of: Figure,
        limit: f64,
    ) -> PaceVerdict {
        let cells = cells.into_iter().map(|cell| (self.absolute(cell, of), cell.name()));
        worst_estimate(Part::Trains, goal, cells, limit)
    }

    /// Returns contestants and cells that cannot be judged because of failed turns.
    pub(super) fn incomplete(&self) -> Vec<(&'static str, String)> {
        let trains =
            self.streams.iter().filter(|(name, _)| !is_peer(name)).flat_map(|(name, cells)| {
                let few = cells.iter().filter(|(_, rounds)| !complete(rounds));
                few.map(|(cell, _)| (*name, cell.clone()))
            });
        let pairs = self.pairs_ns.iter().flat_map(|(name, sizes)| {
            let few = sizes.iter().filter(|(_, turns)| !nearly_all(turns, Option::is_some));
            few.map(|(size, _)| (*name, format!("pairs of {size} B")))
        });
        trains.chain(pairs).collect()
    }

    /// Returns the factor between two contestants in a cell. Streams of one turn follow each other
    /// closely and are alike, so turns are compared. If the number of turns differs in a round, the
    /// medians of the round are compared.
    fn beside(&self, own: &str, other: &str, cell: Cell, of: Figure) -> Option<Factor> {
        let rounds = |name: &str| self.streams.get(name)?.get(&cell.name());
        let figure =
            |turn: &[Gaps]| Some(median(&turn.iter().map(of).collect::<Vec<_>>())?.max(1.0));
        let both = rounds(own)?.iter().zip(rounds(other)?).flat_map(|(own, other)| {
            let as_many = own.len() == other.len();
            let compared =
                |turns: &Turns| if as_many { turns.clone() } else { vec![turns.concat()] };
            let both = compared(own).into_iter().zip(compared(other));
            both.filter_map(|(own, other)| Some((figure(&own)?, figure(&other)?)))
        });
        Factor::of(&both.collect::<Vec<_>>())
    }

    /// Judges figures of `own` relative to another contestant, which may differ per cell, up to 100
    /// Mbit/s.
    fn against(
        &self,
        goal: &'static str,
        own: &str,
        other: impl Fn(Cell) -> Other,
        of: Figure,
        limit: f64,
    ) -> PaceVerdict {
        let factor = |cell, other| {
            let both = self.complete(own, cell) && self.complete(other, cell);
            both.then(|| self.beside(own, other, cell, of))?
        };
        let cells: Vec<(Cell, Option<Factor>)> = slow()
            .filter_map(|cell| match other(cell) {
                Other::Is(other) => Some((cell, factor(cell, other))),
                Other::OffRate if self.complete(own, cell) => None,
                Other::OffRate | Other::Unknown => Some((cell, None)),
            })
            .collect();
        let typical = |factor: &Option<Factor>| Some(factor.as_ref()?.typical);
        let known: Vec<f64> = cells.iter().filter_map(|(_, factor)| typical(factor)).collect();
        let shown = cells.iter().map(|(_, factor)| factor.as_ref()?.at_least).collect();
        let factors = cells.iter().map(|(cell, factor)| (cell.name(), typical(factor)));
        let judged = told_apart(verdict(Part::Trains, goal, worst(factors), limit), &known, shown);
        let cells = Cells { judged: known.len(), of: slow().count() };
        PaceVerdict { cells: Some(cells), ..judged }
    }

    /// Judges the deviation of the fastest rate. A sender that does not catch up stays behind by
    /// its stalls: if the lower bound was stalled for longer than the limit and that explains the
    /// deviation, the result is "cannot tell".
    fn fastest_rate(&self, goal: &'static str) -> PaceVerdict {
        let deviation = |gaps: &Gaps| (gaps.rate_ratio - 1.0).abs();
        let verdict = self.absolute_goal(goal, [Cell::FASTEST], deviation, MAX_RATE_DEVIATION);
        let both = verdict.value.zip(self.held_up().filter(|share| *share > MAX_RATE_DEVIATION));
        let excused = both.is_some_and(|(off, held_up)| {
            off > MAX_RATE_DEVIATION && off <= held_up + MAX_RATE_DEVIATION
        });
        if excused { PaceVerdict { outcome: Outcome::CannotTell, ..verdict } } else { verdict }
    }

    /// Returns the share of time for which the lower bound was stalled in the fastest streams.
    fn held_up(&self) -> Option<f64> {
        self.judged(LOWER_BOUND, Cell::FASTEST, |gaps| gaps.held_up)
    }

    /// Whether a contestant kept the rate of a cell.
    pub(super) fn kept_rate(&self, name: &str, cell: Cell) -> Option<bool> {
        let ratio = self.figure(name, cell, |gaps| gaps.rate_ratio)?;
        Some((ratio - 1.0).abs() <= MAX_RATE_DEVIATION)
    }

    /// Returns the peer with the smallest median |gap error| among those that kept the rate.
    fn best_peer(&self, cell: Cell) -> Other {
        let peers = CONTESTANTS.iter().filter(|contestant| contestant.is_peer());
        let known = peers.filter_map(|peer| {
            let error = self.figure(peer.name, cell, median_error)?;
            Some((error, peer.name, self.kept_rate(peer.name, cell)?))
        });
        let known: Vec<(f64, &'static str, bool)> = known.collect();
        if known.is_empty() {
            return Other::Unknown;
        }
        let kept = known.iter().filter(|(_, _, kept)| *kept);
        let best = kept.min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(Other::OffRate, |(_, name, _)| Other::Is(name))
    }

    /// Returns a sender's gap of pairs divided by that of two sends in C, turn by turn.
    fn pair_ratio(&self, name: &str, size: u32) -> Option<Estimate> {
        let turns = |name: &str| {
            let turns = self.pairs_ns.get(name)?.get(&size)?;
            Some(turns).filter(|turns| nearly_all(turns, Option::is_some))
        };
        let both = turns(name)?.iter().zip(turns(TWO_SENDS)?);
        // Timestamps have a resolution of one nanosecond.
        paired::ratio(both.filter_map(|(of, by)| Some(((*of)?.max(1.0), (*by)?.max(1.0)))))
    }

    /// A goal on the gap of pairs at both sizes; its value is that of the worse one.
    fn pair_goal(&self, goal: &'static str, name: &str, limit: f64) -> PaceVerdict {
        let sizes = PAIR_SIZES.map(|size| (self.pair_ratio(name, size), format!("{size} B")));
        worst_estimate(Part::Pairs, goal, sizes, limit)
    }
}

/// Judges every goal.
pub(super) fn judge(measured: &Measured) -> Vec<PaceVerdict> {
    let fast = || slow().filter(|cell| cell.mbits >= ABSOLUTE_GOAL_MBITS);
    let against =
        |goal, other, of, limit| measured.against(goal, JUDGED, |_| Other::Is(other), of, limit);
    let best = |cell| measured.best_peer(cell);
    let in_us = |gaps: &Gaps| median_error(gaps) / 1e3;
    let verdicts = |goal, place, limited| {
        let found = misplaced(&measured.found, measured.runs, place, limited);
        let (value, worst) = found.unzip();
        let outcome = if value == Some(0.0) { Outcome::Reached } else { Outcome::Missed };
        let unknown = verdict(Part::Verdicts, goal, None, 0.0);
        PaceVerdict { value, outcome, worst: worst.flatten(), ..unknown }
    };
    let goals = vec![
        against("median |gap error|: dwell / C spin", LOWER_BOUND, median_error, 1.2),
        measured.against(
            "the same: dwell / best peer that kept the rate",
            JUDGED,
            best,
            median_error,
            1.0,
        ),
        against("the same: dwell / C sleep-spin", LOWER_BOUND_SLEEP, median_error, 1.0),
        measured.absolute_goal(
            "median |gap error| at 50 and 100 Mbit/s, us",
            fast(),
            in_us,
            MAX_ERROR_NS / 1e3,
        ),
        against("p95 |gap error|: dwell / C spin", LOWER_BOUND, p95_error, 1.2),
        measured.fastest_rate("1000 Mbit/s: how far off the rate is"),
        measured.absolute_goal(
            "1000 Mbit/s: median |gap error|, us",
            [Cell::FASTEST],
            in_us,
            MAX_ERROR_NS / 1e3,
        ),
        verdict(
            Part::Trains,
            "1000 Mbit/s: peers that reach both",
            fastest(peers_that_reach_both(measured)),
            0.0,
        ),
        measured.absolute_goal(
            "error of the first gap / (2 x that of the others + 0.1 us)",
            Cell::all(),
            first_gap,
            1.0,
        ),
        measured.pair_goal("gap of a pair: dwell xsk / two sends in C", "xsk", 0.6),
        measured.pair_goal("gap of a pair: dwell gso / two sends in C", "gso", 0.2),
        verdicts("verdicts above a limit", VerdictPosition::TooHigh, true),
        verdicts("verdicts more than a step below a limit, or none", VerdictPosition::TooLow, true),
        verdicts("verdicts of at most 100 Mbit/s without a limit", VerdictPosition::TooLow, false),
    ];
    of_all_seen(measured, goals)
}

/// Judges the lower bound by the same goals. A goal that the lower bound misses cannot be reached, or
/// cannot be shown, on this machine.
pub(super) fn controls(measured: &Measured) -> Vec<PaceVerdict> {
    let floor = |cell: Cell| measured.judged(LOWER_BOUND, cell, median_error).map(|ns| ns / 1e3);
    let fast = slow().filter(|cell| cell.mbits >= ABSOLUTE_GOAL_MBITS);
    let punctual = worst(fast.map(|cell| (cell.name(), floor(cell))));
    let again =
        |goal, of| measured.against(goal, LOWER_BOUND_AGAIN, |_| Other::Is(LOWER_BOUND), of, 1.2);
    let controls = vec![
        again("median |gap error|: C spin again / C spin", median_error),
        again("p95 |gap error|: C spin again / C spin", p95_error),
        verdict(
            Part::Trains,
            "median |gap error| of C spin at 50 and 100 Mbit/s, us",
            punctual,
            MAX_ERROR_NS / 1e3,
        ),
        verdict(
            Part::Trains,
            "1000 Mbit/s: share of the time for which C spin was held up",
            fastest(measured.held_up()),
            MAX_RATE_DEVIATION,
        ),
    ];
    of_all_seen(measured, controls)
}

/// Without knowing whose packets the witness dropped, nothing can be judged.
fn of_all_seen(measured: &Measured, verdicts: Vec<PaceVerdict>) -> Vec<PaceVerdict> {
    let unseen = |part| measured.unseen > 0 && part != Part::Verdicts;
    let judged = |found: PaceVerdict| match unseen(found.part) {
        true => verdict(found.part, found.goal, None, found.limit),
        false => found,
    };
    verdicts.into_iter().map(judged).collect()
}

/// Whether a contestant is a third-party program.
fn is_peer(name: &str) -> bool {
    CONTESTANTS.iter().any(|contestant| contestant.name == name && contestant.is_peer())
}

/// Whether few enough turns of a cell failed to judge it.
fn complete(rounds: &[Turns]) -> bool {
    let turns: Vec<_> = rounds.iter().flatten().collect();
    nearly_all(&turns, |streams| !streams.is_empty())
}

/// Whether there are turns and at least nine of ten have figures.
fn nearly_all<T>(turns: &[T], has_figures: impl Fn(&T) -> bool) -> bool {
    let have = turns.iter().filter(|turn| has_figures(turn)).count();
    !turns.is_empty() && 10 * have >= MIN_OF_TEN * turns.len()
}

fn fastest(value: Option<f64>) -> Option<(f64, String)> {
    value.map(|value| (value, Cell::FASTEST.name()))
}

pub(super) fn median_error(gaps: &Gaps) -> f64 {
    gaps.median_ns
}

fn p95_error(gaps: &Gaps) -> f64 {
    gaps.p95_ns
}

/// Returns the error of the first gap relative to twice the others' error plus 0.1 us.
fn first_gap(gaps: &Gaps) -> f64 {
    gaps.first_ns / (2.0 * gaps.others_ns + MAX_ERROR_NS)
}

/// Returns the number of peers that reach both goals; `None` if none was measured.
fn peers_that_reach_both(measured: &Measured) -> Option<f64> {
    let peers = CONTESTANTS.iter().filter(|contestant| contestant.is_peer());
    let verdicts: Vec<bool> = peers
        .filter_map(|peer| {
            let kept = measured.kept_rate(peer.name, Cell::FASTEST)?;
            let error = measured.figure(peer.name, Cell::FASTEST, median_error)?;
            Some(kept && error <= MAX_ERROR_NS)
        })
        .collect();
    (!verdicts.is_empty()).then(|| verdicts.iter().filter(|both| **both).count() as f64)
}

/// Returns the largest value with its name; `None` unless all are known.
fn worst(values: impl IntoIterator<Item = (String, Option<f64>)>) -> Option<(f64, String)> {
    let known: Option<Vec<(f64, String)>> =
        values.into_iter().map(|(name, value)| Some((value?, name))).collect();
    known?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

fn verdict(
    part: Part,
    goal: &'static str,
    found: Option<(f64, String)>,
    limit: f64,
) -> PaceVerdict {
    let (value, worst) = found.unzip();
    let reached = value.is_some_and(|value| value <= limit);
    let outcome = if reached { Outcome::Reached } else { Outcome::Missed };
    PaceVerdict { goal, part, value, limit, outcome, worst, shown: None, high: None, cells: None }
}

/// Judges estimates of several cells: missed if one is, else undecided if one is; the value is the
/// worst. Missed if one was not measured.
fn worst_estimate(
    part: Part,
    goal: &'static str,
    cells: impl IntoIterator<Item = (Option<Estimate>, String)>,
    limit: f64,
) -> PaceVerdict {
    let unknown = verdict(part, goal, None, limit);
    let known = cells.into_iter().map(|(estimate, name)| Some((estimate?, name)));
    let Some(known) = known.collect::<Option<Vec<_>>>() else { return unknown };
    let has = |outcome| {
        known.iter().any(|(estimate, _)| Bound::AtMost(limit).outcome(estimate) == outcome)
    };
    let outcome = [Outcome::Missed, Outcome::CannotTell].into_iter().find(|outcome| has(*outcome));
    let worst = known.iter().max_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let Some((Estimate { value, low, high }, name)) = worst else { return unknown };
    PaceVerdict {
        value: Some(*value),
        outcome: outcome.unwrap_or(Outcome::Reached),
        worst: Some(name.clone()),
        shown: *low,
        high: *high,
        ..unknown
    }
}

/// Refines a verdict on nearly equal contestants: missed only if one cell is above the limit with
/// confidence, or more cells are than by chance. Too few turns give no confidence.
fn told_apart(verdict: PaceVerdict, cells: &[f64], shown: Option<Vec<f64>>) -> PaceVerdict {
    let shown = shown.and_then(|shown| shown.into_iter().max_by(f64::total_cmp));
    let above = cells.iter().filter(|value| **value > verdict.limit).count();
    let open = verdict.outcome == Outcome::Missed && verdict.value.is_some();
    let none_shown = shown.is_none_or(|shown| shown <= verdict.limit);
    let outcome = match open && none_shown && !mostly(above, cells.len()) {
        true => Outcome::CannotTell,
        false => verdict.outcome,
    };
    PaceVerdict { outcome, shown, ..verdict }
}

/// Whether this many of `n` are significantly more than half (sign test, one-sided, 5 %).
fn mostly(many: usize, n: usize) -> bool {
    let (mut ways, mut tail) = (1.0, 0.0);
    for k in 0..=n {
        tail += if k >= many { ways } else { 0.0 };
        ways *= (n - k) as f64 / (k + 1) as f64;
    }
    tail / 2_f64.powi(n as i32) < 0.05
}

/// Returns the median of the turns that did not fail.
pub(super) fn median_of_known(turns: &[Option<f64>]) -> Option<f64> {
    median(&turns.iter().copied().flatten().collect::<Vec<_>>())
}

impl From<&PaceVerdict> for Judged {
    /// The value has no interval where contestants are not compared turn by turn.
    fn from(verdict: &PaceVerdict) -> Self {
        let PaceVerdict { goal, value, limit, outcome, worst, shown, high, .. } = verdict;
        let estimate = value.map(|value| Estimate { value, low: *shown, high: *high });
        let judged = Self::new(*goal, estimate, Bound::AtMost(*limit), Unit::Ratio);
        Self { outcome: *outcome, note: worst.clone(), ..judged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(median_ns: f64, rate_ratio: f64) -> Gaps {
        let p95_ns = 2.0 * median_ns;
        let (first_ns, others_ns) = (median_ns, median_ns);
        Gaps { packets: 50, rate_ratio, held_up: 0.0, median_ns, p95_ns, first_ns, others_ns }
    }

    /// Enough equal turns for an interval.
    fn steady(gaps: Gaps) -> Vec<Turns> {
        vec![vec![vec![gaps]; 10]]
    }

    /// Results in which each contestant has the same gaps in all cells.
    fn measured(like: &[(&'static str, Gaps)]) -> Measured {
        let mut measured = Measured::default();
        for (name, gaps) in like {
            let cells = Cell::all().into_iter().map(|cell| (cell.name(), steady(*gaps)));
            measured.streams.insert(name, cells.collect());
        }
        measured
    }

    fn verdict_of(measured: &Measured, goal: &str) -> PaceVerdict {
        let found = judge(measured).into_iter().find(|verdict| verdict.goal.contains(goal));
        found.unwrap_or_else(|| panic!("no goal '{goal}'"))
    }

    #[test]
    fn nothing_measured_is_a_miss_of_every_goal() {
        let missed = |verdict: &PaceVerdict| verdict.outcome == Outcome::Missed;
        assert!(judge(&Measured::default()).iter().all(missed));
    }

    #[test]
    fn goals_are_documented() {
        let measured = Measured::default();
        let rows = [judge(&measured), controls(&measured)].concat();
        crate::judge::assert_documented(rows.iter().map(|row| row.goal));
    }

    #[test]
    fn the_worst_cell_decides_and_is_named() {
        let mut measured = measured(&[(JUDGED, gaps(50.0, 1.0)), (LOWER_BOUND, gaps(50.0, 1.0))]);
        let goal = "median |gap error|: dwell / C spin";
        assert_eq!(verdict_of(&measured, goal).outcome, Outcome::Reached);
        let cells = measured.streams.get_mut(JUDGED).unwrap();
        cells.insert("576 B, 10 Mbit/s".to_owned(), steady(gaps(70.0, 1.0)));
        let verdict = verdict_of(&measured, goal);
        assert_eq!((verdict.value, verdict.outcome), (Some(1.4), Outcome::Missed));
        assert_eq!(verdict.worst.as_deref(), Some("576 B, 10 Mbit/s"));
    }

    #[test]
    fn worst_cell_needs_confidence_when_close() {
        let turns = |first: f64, by: i32| -> Vec<Turns> {
            vec![(0..20).map(|n| vec![gaps(first * 1.1_f64.powi(n * by % 20), 1.0)]).collect()]
        };
        let all =
            |first, by| Cell::all().into_iter().map(move |cell| (cell.name(), turns(first, by)));
        let mut measured = Measured::default();
        measured.streams.insert(LOWER_BOUND, all(50.0, 3).collect());
        measured.streams.insert(JUDGED, all(50.0, 7).collect());
        let cell = "576 B, 10 Mbit/s".to_owned();
        let goal = "median |gap error|: dwell / C spin";
        for (first, outcome) in [(70.0, Outcome::CannotTell), (300.0, Outcome::Missed)] {
            measured.streams.get_mut(JUDGED).unwrap().insert(cell.clone(), turns(first, 7));
            assert_eq!(verdict_of(&measured, goal).outcome, outcome, "{first}");
        }
        // All cells slightly above the limit, none of them significant alone.
        measured.streams.insert(JUDGED, all(70.0, 7).collect());
        assert_eq!(verdict_of(&measured, goal).outcome, Outcome::Missed);
    }

    #[test]
    fn turns_are_compared_pairwise_without_failed_ones() {
        let mut measured = Measured::default();
        let cell = Cell::all()[0];
        let mut rounds = |name, rounds: &[&[Option<f64>]]| {
            let turn = |ns: &Option<f64>| ns.map(|ns| gaps(ns, 1.0)).into_iter().collect();
            let rounds = rounds.iter().map(|turns| turns.iter().map(turn).collect());
            measured.streams.insert(name, BTreeMap::from([(cell.name(), rounds.collect())]));
        };
        rounds(JUDGED, &[&[Some(20.0), Some(9.0), None], &[Some(9.0), Some(400.0), Some(9.0)]]);
        rounds(
            LOWER_BOUND,
            &[&[Some(10.0), None, Some(1.0)], &[Some(4.5), Some(200.0), Some(4.5)]],
        );
        // One turn where the others have three; the last round is incomplete.
        rounds("mgen", &[&[Some(18.0)], &[None], &[Some(1.0)]]);
        let factor = |other| measured.beside(JUDGED, other, cell, median_error).unwrap().typical;
        assert!((factor(LOWER_BOUND) - 2.0).abs() < 1e-9);
        assert!((factor("mgen") - 0.5).abs() < 1e-9);
    }

    #[test]
    fn twelve_of_fifteen_are_more_than_chance() {
        assert_eq!([11, 12, 15].map(|many| mostly(many, 15)), [false, true, true]);
        assert!(!mostly(0, 0));
    }

    #[test]
    fn a_cell_that_was_not_measured_is_a_miss() {
        let all =
            [(JUDGED, gaps(50.0, 1.0)), (LOWER_BOUND, gaps(50.0, 1.0)), ("mgen", gaps(50.0, 1.0))];
        let mut measured = measured(&all);
        measured.streams.get_mut(JUDGED).unwrap().remove("200 B, 1 Mbit/s");
        assert_eq!(verdict_of(&measured, "p95").value, None);
        assert_eq!(verdict_of(&measured, "best peer").value, None);
    }

    #[test]
    fn cells_without_peer_at_rate_are_left_out() {
        let mut measured = measured(&[(JUDGED, gaps(50.0, 1.0)), ("mgen", gaps(10.0, 0.5))]);
        let judged = |measured: &Measured| {
            let verdict = verdict_of(measured, "best peer");
            (verdict.value, verdict.cells.unwrap().judged)
        };
        assert_eq!(judged(&measured), (None, 0));
        let cells = measured.streams.get_mut("mgen").unwrap();
        cells.insert("200 B, 1 Mbit/s".to_owned(), steady(gaps(100.0, 1.0)));
        assert_eq!(judged(&measured), (Some(0.5), 1));
        // dwell's figure is required even for a cell that is left out.
        measured.streams.get_mut(JUDGED).unwrap().remove("576 B, 1 Mbit/s");
        assert_eq!(judged(&measured), (None, 1));
    }

    #[test]
    fn a_cell_without_a_figure_of_any_peer_is_not_left_out() {
        let [slow, kept] = [gaps(10.0, 0.5), gaps(100.0, 1.0)];
        let mut measured =
            measured(&[(JUDGED, gaps(50.0, 1.0)), ("mgen", kept), ("trafgen", slow)]);
        let cell = "576 B, 10 Mbit/s".to_owned();
        let mut with = |mgen: &[Gaps], trafgen: &[Gaps]| {
            for (name, streams) in [("mgen", mgen), ("trafgen", trafgen)] {
                let cells = measured.streams.get_mut(name).unwrap();
                cells.insert(cell.clone(), vec![vec![streams.to_vec()]]);
            }
            let verdict = verdict_of(&measured, "best peer");
            (verdict.value, verdict.cells.map(|cells| (cells.judged, cells.of)))
        };
        assert_eq!(with(&[kept], &[slow]), (Some(0.5), Some((15, 15))));
        assert_eq!(with(&[slow], &[slow]), (Some(0.5), Some((14, 15))));
        assert_eq!(with(&[], &[slow]), (Some(0.5), Some((14, 15))));
        assert_eq!(with(&[], &[]), (None, Some((14, 15))));
    }

    #[test]
    fn a_punctual_peer_at_another_rate_is_not_better() {
        let goal = "best peer";
        let with = |ratio| {
            let peers = [("D-ITG", gaps(10.0, ratio)), ("mgen", gaps(80.0, 1.0))];
            measured(&[&peers[..], &[(JUDGED, gaps(40.0, 1.0))]].concat())
        };
        assert_eq!(verdict_of(&with(0.8), goal).value, Some(0.5));
        assert_eq!(verdict_of(&with(0.995), goal).value, Some(4.0));
    }

    #[test]
    fn fastest_rate_miss_is_excused_by_stalled_bound() {
        let off = gaps(10.0, 0.985);
        let outcome = |held_up| {
            let floor = Gaps { held_up, ..gaps(10.0, 1.0) };
            verdict_of(&measured(&[(JUDGED, off), (LOWER_BOUND, floor)]), "how far off").outcome
        };
        assert_eq!([0.009, 0.013].map(outcome), [Outcome::Missed, Outcome::CannotTell]);
        assert_eq!(verdict_of(&measured(&[(JUDGED, off)]), "how far off").outcome, Outcome::Missed);
        let [slow, floor] = [gaps(10.0, 0.9), Gaps { held_up: 0.013, ..gaps(10.0, 1.0) }];
        let much = measured(&[(JUDGED, slow), (LOWER_BOUND, floor)]);
        assert_eq!(verdict_of(&much, "how far off").outcome, Outcome::Missed);
    }

    #[test]
    fn a_first_packet_that_leaves_late_is_a_miss() {
        let late = Gaps { first_ns: 20_000.0, ..gaps(50.0, 1.0) };
        let outcome = |gaps| verdict_of(&measured(&[(JUDGED, gaps)]), "first gap").outcome;
        assert_eq!(outcome(late), Outcome::Missed);
        assert_eq!(outcome(gaps(50.0, 1.0)), Outcome::Reached);
    }

    #[test]
    fn late_first_packet_at_one_size_is_a_miss() {
        let mut measured = measured(&[(JUDGED, gaps(50.0, 1.0))]);
        let late = Gaps { first_ns: 400.0, ..gaps(50.0, 1.0) };
        let cells = measured.streams.get_mut(JUDGED).unwrap();
        cells.insert("1500 B, 5 Mbit/s".to_owned(), steady(late));
        let verdict = verdict_of(&measured, "first gap");
        assert_eq!((verdict.value, verdict.outcome), (Some(2.0), Outcome::Missed));
        assert_eq!(verdict.worst.as_deref(), Some("1500 B, 5 Mbit/s"));
    }

    #[test]
    fn pairs_are_judged_at_both_sizes() {
        let mut measured = Measured::default();
        let both = |small, large| {
            BTreeMap::from([(200, vec![Some(small); 7]), (1_500, vec![Some(large); 7])])
        };
        measured.pairs_ns.insert(TWO_SENDS, both(900.0, 1_000.0));
        measured.pairs_ns.insert("xsk", both(450.0, 700.0));
        let verdict = verdict_of(&measured, "xsk");
        assert!((verdict.value.unwrap() - 0.7).abs() < 1e-9, "{verdict:?}");
        assert_eq!((verdict.outcome, verdict.worst.as_deref()), (Outcome::Missed, Some("1500 B")));
        assert_eq!(verdict_of(&measured, "gso").outcome, Outcome::Missed, "not measured");
    }

    /// Returns this number of turns, of which the last `failed` failed.
    fn turns(of: usize, failed: usize) -> Vec<Turns> {
        let turn = |n| if n < of - failed { vec![gaps(50.0, 1.0)] } else { Vec::new() };
        vec![(0..of / 2).map(turn).collect(), (of / 2..of).map(turn).collect()]
    }

    #[test]
    fn contestant_with_failed_turns_is_not_judged() {
        let cell = "576 B, 10 Mbit/s";
        let all = [JUDGED, LOWER_BOUND, LOWER_BOUND_SLEEP, LOWER_BOUND_AGAIN]
            .map(|name| (name, gaps(50.0, 1.0)));
        let value = |name, of, failed, goal: &str| {
            let mut measured = measured(&all);
            let cells = measured.streams.get_mut(name).unwrap();
            cells.insert(cell.to_owned(), turns(of, failed));
            let judged = [judge(&measured), controls(&measured)].concat();
            judged.into_iter().find(|verdict| verdict.goal.contains(goal)).unwrap().value
        };
        for (name, goal) in [
            (JUDGED, "median |gap error|: dwell / C spin"),
            (JUDGED, "p95 |gap error|: dwell / C spin"),
            (JUDGED, "C sleep-spin"),
            (JUDGED, "first gap"),
            (LOWER_BOUND, "median |gap error|: dwell / C spin"),
            (LOWER_BOUND_SLEEP, "C sleep-spin"),
            (LOWER_BOUND_AGAIN, "p95 |gap error|: C spin again"),
        ] {
            assert!(value(name, 20, 2, goal).is_some(), "{name}: {goal}");
            assert_eq!(value(name, 20, 3, goal), None, "{name}: {goal}");
            assert_eq!(value(name, 4, 1, goal), None, "{name}: {goal}");
        }
    }

    #[test]
    fn absolute_goals_need_their_turns() {
        for (cell, goal) in [
            ("576 B, 50 Mbit/s", "at 50 and 100 Mbit/s"),
            ("1514 B frames, 1000 Mbit/s", "how far off"),
            ("1514 B frames, 1000 Mbit/s", "1000 Mbit/s: median"),
        ] {
            let mut measured = measured(&[(JUDGED, gaps(50.0, 1.0))]);
            assert_eq!(verdict_of(&measured, goal).outcome, Outcome::Reached, "{goal}");
            let cells = measured.streams.get_mut(JUDGED).unwrap();
            cells.insert(cell.to_owned(), turns(10, 2));
            let verdict = verdict_of(&measured, goal);
            assert_eq!((verdict.value, verdict.outcome), (None, Outcome::Missed), "{goal}");
            assert_eq!(measured.incomplete(), [(JUDGED, cell.to_owned())]);
        }
    }

    #[test]
    fn peer_is_judged_by_successful_turns() {
        let mut measured = measured(&[(JUDGED, gaps(25.0, 1.0)), ("mgen", gaps(50.0, 1.0))]);
        let cells = measured.streams.get_mut("mgen").unwrap();
        cells.insert("576 B, 10 Mbit/s".to_owned(), turns(4, 3));
        assert_eq!(verdict_of(&measured, "best peer").value, Some(0.5));
        assert_eq!(measured.incomplete(), []);
    }

    #[test]
    fn pairs_with_failed_turns_are_not_judged() {
        let value = |failed: &'static str, turns: usize| {
            let mut measured = Measured::default();
            for (name, ns) in [(TWO_SENDS, 900.0), ("gso", 90.0)] {
                let mut gaps = vec![Some(ns); 10];
                gaps[..if name == failed { turns } else { 0 }].fill(None);
                let sizes = PAIR_SIZES.map(|size| (size, gaps.clone()));
                measured.pairs_ns.insert(name, sizes.into());
            }
            verdict_of(&measured, "gso").value
        };
        for name in [TWO_SENDS, "gso"] {
            assert_eq!(
                [1, 2, 10].map(|turns| value(name, turns).map(|ratio| (10.0 * ratio).round())),
                [Some(1.0), None, None],
                "{name}"
            );
        }
    }

    #[test]
    fn witness_drops_void_all_goals() {
        let all = [JUDGED, LOWER_BOUND, LOWER_BOUND_SLEEP, LOWER_BOUND_AGAIN]
            .map(|name| (name, gaps(50.0, 1.0)));
        let mut measured = measured(&all);
        let sizes = PAIR_SIZES.map(|size| (size, vec![Some(90.0)]));
        let pairs = [TWO_SENDS, "xsk", "gso"].map(|name| (name, sizes.clone().into()));
        measured.pairs_ns = pairs.into();
        let known = |measured: &Measured| {
            let judged = [judge(measured), controls(measured)].concat();
            judged.iter().filter(|verdict| verdict.value.is_some()).count()
        };
        assert!(known(&measured) > 10);
        measured.unseen = 1;
        assert_eq!(known(&measured), 0);
        let missed = |verdict: &PaceVerdict| verdict.outcome == Outcome::Missed;
        assert!(judge(&measured).iter().all(missed));
    }
}
