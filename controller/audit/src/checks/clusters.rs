//! Detached clusters, as time-outs and retransmissions leave them, and values cut off at a maximum.

use super::{Found, MIN_DECIDING_VALUES};
use crate::finding::{Finding, counted, quantity};
use crate::table::{Column, Role, Table};
use crate::unit::Unit;

/// Minimum number of values for clusters.
const MIN_VALUES: u64 = 8;
/// Ratio of neighbouring values from which there is a gap between clusters.
const MIN_GAP_RATIO: f64 = 1.08;
/// The same in usual distances between neighbouring values.
const MIN_GAP_SPACINGS: f64 = 8.0;
/// Gap in widths of the narrower neighbour from which a cluster is detached.
const MIN_GAP_WIDTHS: f64 = 3.0;
/// Minimum number of values in a cluster.
const MIN_MEMBERS: u64 = 3;
/// Minimum share of values of the lowest cluster for it to hold the usual delays.
const MIN_USUAL_SHARE: f64 = 0.1;
/// Shortest time-out that occurs several times in one delay, in milliseconds.
const MIN_REPEATED_TIMEOUT: f64 = 200.0;
/// Largest width of a cluster, relative to its middle.
const MAX_WIDTH: f64 = 0.06;
/// Probability that scattered long delays form a cluster by chance.
const FALSE_ALARM: f64 = 1e-4;
/// The same at a usual time-out, where few of them would be.
const USUAL_FALSE_ALARM: f64 = 1e-3;
/// Relative distance between a cluster and the multiple of a time-out.
const TIMEOUT_TOLERANCE: f64 = 0.03;
/// Usual time-outs, in milliseconds: delayed acknowledgements (40, 200), retransmissions (200,
/// 1,000, 3,000), and read time-outs of libraries.
const USUAL_TIMEOUTS: [f64; 16] = [
    40.0, 100.0, 200.0, 250.0, 300.0, 400.0, 500.0, 750.0, 1_000.0, 1_500.0, 2_000.0, 3_000.0,
    5_000.0, 10_000.0, 30_000.0, 60_000.0,
];
/// Shortest time-out at which all values together are a cluster, in milliseconds.
const MIN_LONE_TIMEOUT: f64 = 500.0;

/// A cluster of values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cluster {
    low: f64,
    high: f64,
    sum: f64,
    count: u64,
}

impl Cluster {
    fn middle(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn width(&self) -> f64 {
        self.high - self.low
    }
}

pub(crate) fn check(table: &Table, found: &mut Found) {
    for column in table.measures() {
        let before = found.findings.len();
        if column.totals.count >= MIN_VALUES {
            let values = weighted(table, column);
            if values.is_empty() || values[0].0 < 0.0 {
                continue;
            }
            let clusters = split(&values);
            detached(table, column, &clusters, found);
            cut_off(table, column, &values, found);
        }
        // So few values may be all of one cluster, or have none of another.
        let is_undecided = column.totals.count < MIN_DECIDING_VALUES;
        if is_undecided && found.findings.len() == before && column.role == Role::Latency {
            let text = format!("{} has fewer than {MIN_DECIDING_VALUES} values", column.name);
            found.cannot_tell("time-out-cluster", &table.name, text);
        }
    }
}

/// Positive values with their counts, ascending.
fn weighted(table: &Table, column: &Column) -> Vec<(f64, u64)> {
    if !table.is_whole() {
        return column.totals.bins();
    }
    let mut values: Vec<f64> = column.present().collect();
    values.sort_by(f64::total_cmp);
    let mut weighted: Vec<(f64, u64)> = Vec::new();
    for value in values {
        match weighted.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => weighted.push((value, 1)),
        }
    }
    weighted
}

/// Splits values at wide gaps.
fn split(values: &[(f64, u64)]) -> Vec<Cluster> {
    // Values printed with few digits are far apart without being clusters.
    let mut gaps: Vec<f64> = values.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    gaps.sort_by(f64::total_cmp);
    let min_gap = gaps.get(gaps.len() / 2).map_or(0.0, |usual| MIN_GAP_SPACINGS * usual);
    let mut clusters: Vec<Cluster> = Vec::new();
    for (value, count) in values.iter().copied() {
        let sum = value * count as f64;
        match clusters.last_mut() {
            Some(last) if value <= (last.high * MIN_GAP_RATIO).max(last.high + min_gap) => {
                *last = Cluster {
                    high: value,
                    sum: last.sum + sum,
                    count: last.count + count,
                    ..*last
                };
            }
            _ => clusters.push(Cluster { low: value, high: value, sum, count }),
        }
    }
    clusters
}

/// The cluster of usual delays: the lowest one with a fair share of the values, because time-outs
/// add to a delay and may be more frequent than it.
fn usual(clusters: &[Cluster], n: u64) -> Option<Cluster> {
    let is_frequent = |cluster: &&Cluster| {
        cluster.count >= MIN_MEMBERS && cluster.count as f64 >= MIN_USUAL_SHARE * n as f64
    };
    let lowest = clusters.iter().find(is_frequent);
    lowest.or_else(|| clusters.iter().max_by_key(|cluster| cluster.count)).copied()
}

fn detached(table: &Table, column: &Column, clusters: &[Cluster], found: &mut Found) {
    let n: u64 = clusters.iter().map(|cluster| cluster.count).sum();
    let Some(bulk) = usual(clusters, n) else { return };
    let outside = n - bulk.count;
    let to_millis = column.unit.map(|unit| unit.to(Unit::Millis));
    let spread = bulk.width();
    let last = clusters[clusters.len() - 1].high;
    // Values outside the bulk would lie anywhere between these.
    let span = (last / bulk.high.max(f64::MIN_POSITIVE))
        .max(bulk.low / clusters[0].low.max(f64::MIN_POSITIVE))
        .ln();
    let is_usual = |cluster: Cluster| {
        to_millis.is_some_and(|scale| {
            let middle = cluster.middle() * scale;
            let is_once = |millis: f64| multiple(millis, 1.0).is_some();
            USUAL_TIMEOUTS.into_iter().any(|timeout| {
                let [whole, beyond] =
                    [middle, middle - bulk.middle() * scale].map(|at| at / timeout);
                (is_once(whole) && whole < 1.5) || (is_once(beyond) && beyond < 1.5)
            })
        })
    };
    let is_cluster = |index: usize| {
        let cluster = clusters[index];
        if cluster == bulk || cluster.count < MIN_MEMBERS || cluster.low <= 0.0 {
            return false;
        }
        let gap_below =
            index.checked_sub(1).map_or(f64::INFINITY, |i| cluster.low - clusters[i].high);
        let gap_above =
            clusters.get(index + 1).map_or(f64::INFINITY, |next| next.low - cluster.high);
        let width = cluster.width();
        let is_narrow = width <= (MAX_WIDTH * cluster.middle()).max(1.2 * spread);
        let is_apart =
            gap_below.min(gap_above) >= MIN_GAP_WIDTHS * width.min(spread.max(f64::MIN_POSITIVE));
        is_narrow
            && is_apart
            && cluster.low > bulk.high
            && chance(cluster, outside, span)
                < if is_usual(cluster) { USUAL_FALSE_ALARM } else { FALSE_ALARM }
    };
    let members: Vec<Cluster> = (0..clusters.len())
        .filter(|index| is_cluster(*index))
        .map(|index| clusters[index])
        .collect();
    let timeout = to_millis.and_then(|scale| timeout(&members, bulk, scale));
    let unit = column.unit_name();
    let mut report = |cluster: Cluster, named: Option<Named>| {
        let place = format!(
            "{} of {} between {} and {}",
            counted(cluster.count, "value"),
            column.name,
            quantity(cluster.low, ""),
            quantity(cluster.high, unit)
        );
        let (code, message) = match named {
            Some(named) => ("time-out-cluster", format!("{place}: {}", named.text())),
            None => (
                "detached-cluster",
                format!(
                    "{place}, apart from all others: as after a time-out, a retry or another path"
                ),
            ),
        };
        let rows = rows_between(table, column, cluster);
        let finding = Finding::note(code, message).value(cluster.middle(), unit).rows(rows);
        found.push(finding.column(&column.name).table(&table.name));
    };
    if let Some(millis) = timeout
        && let Some(scale) = to_millis
        && let Some(times) = multiple(bulk.middle() * scale, millis)
    {
        report(bulk, Some(Named { millis, times, is_added: false }));
    } else if members.is_empty()
        && let Some(millis) = to_millis.and_then(|scale| lone_timeout(bulk, n, scale))
    {
        report(bulk, Some(Named { millis, times: 1, is_added: false }));
    }
    for cluster in members {
        let named = timeout.zip(to_millis).and_then(|(millis, scale)| {
            let middle = cluster.middle() * scale;
            // The packet's usual delay adds to the time-out.
            let named = |times, is_added| Named { millis, times, is_added };
            let added = || multiple(middle - bulk.middle() * scale, millis);
            let whole = multiple(middle, millis).map(|times| named(times, false));
            whole.or_else(|| added().map(|times| named(times, true)))
        });
        report(cluster, named);
    }
}

/// The time-out that names a cluster.
struct Named {
    millis: f64,
    times: u32,
    /// Whether the usual delay is added to it.
    is_added: bool,
}

impl Named {
    fn text(&self) -> String {
        let timeout = quantity(self.millis, "ms");
        let times = if self.times == 1 { String::new() } else { format!("{} times ", self.times) };
        if self.is_added {
            format!("a cluster {times}{timeout}, a usual time-out, above the usual delays")
        } else {
            format!("a cluster at {times}{timeout}, a usual time-out")
        }
    }
}

/// Probability that `outside` values scattered over `span` (logarithmic) have a cluster this dense.
fn chance(cluster: Cluster, outside: u64, span: f64) -> f64 {
    let width = (cluster.high / cluster.low).ln().max(0.002);
    let expected = outside as f64 * (width / span.max(width * 1.5)).min(1.0);
    // Poisson: at least count - 1 others beside any one.
    let others = cluster.count - 1;
    let mut term = (-expected).exp();
    let mut below = 0.0;
    for k in 0..others.min(10_000) {
        below += term;
        term *= expected / (k + 1) as f64;
    }
    let tail = if expected < 1.0 {
        // The complement would lose all digits.
        let mut power = 1.0;
        for k in 1..=others.min(100) {
            power *= expected / k as f64;
        }
        power
    } else {
        1.0 - below
    };
    outside as f64 * tail.max(0.0)
}

/// The usual time-out of which most clusters are multiples, in milliseconds.
fn timeout(members: &[Cluster], bulk: Cluster, scale: f64) -> Option<f64> {
    let fits = |millis: f64| {
        members.iter().all(|cluster| {
            let middle = cluster.middle() * scale;
            multiple(middle, millis)
                .or_else(|| multiple(middle - bulk.middle() * scale, millis))
                .is_some()
        })
    };
    if members.is_empty() {
        return None;
    }
    // The largest common one: every multiple of 1 s is one of 200 ms too.
    let common = USUAL_TIMEOUTS.into_iter().rev().filter(|millis| fits(*millis));
    // If the bulk is at such a time-out too, that one explains both.
    let with_bulk =
        common.clone().find(|millis| multiple(bulk.middle() * scale, *millis).is_some());
    with_bulk.or_else(|| common.clone().next())
}

/// The small number of time-outs that a delay equals; `None` if it equals none.
fn multiple(millis: f64, timeout: f64) -> Option<u32> {
    const MAX_MULTIPLE: f64 = 4.0;
    let times = (millis / timeout).round();
    let is_near = (millis - times * timeout).abs() <= TIMEOUT_TOLERANCE * timeout * times;
    let is_near = is_near && (times == 1.0 || timeout >= MIN_REPEATED_TIMEOUT);
    ((1.0..=MAX_MULTIPLE).contains(&times) && is_near).then_some(times as u32)
}

/// A long time-out at which nearly all values are.
fn lone_timeout(bulk: Cluster, n: u64, scale: f64) -> Option<f64> {
    let [low, middle, high] = [bulk.low, bulk.middle(), bulk.high].map(|value| value * scale);
    let is_all = bulk.count * 10 >= n * 9;
    USUAL_TIMEOUTS.into_iter().find(|millis| {
        *millis >= MIN_LONE_TIMEOUT
            && is_all
            && low >= millis * 0.995
            && (middle / millis - 1.0).abs() < 0.01
            && high <= millis * 1.03
    })
}

/// Many values equal to the largest one: longer delays were cut off or given up.
fn cut_off(table: &Table, column: &Column, values: &[(f64, u64)], found: &mut Found) {
    const MIN_DISTINCT: usize = 15;
    const COMPARED: usize = 10;
    if values.len() < MIN_DISTINCT || !table.is_whole() {
        return;
    }
    let (max, at_max) = values[values.len() - 1];
    let below = &values[values.len() - 1 - COMPARED..values.len() - 1];
    let mut counts: Vec<u64> = below.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable();
    let n = column.totals.count;
    if at_max < 5
        || at_max * 50 < n
        || at_max < 4 * counts[COMPARED / 2]
        || at_max < 2 * counts[COMPARED - 1]
    {
        return;
    }
    let unit = column.unit_name();
    let message = format!(
        "{} of {} equal the maximum {}: longer delays were cut off there, as by a time-out",
        counted(at_max, "value"),
        column.name,
        quantity(max, unit)
    );
    let rows = rows_between(table, column, Cluster { low: max, high: max, sum: max, count: 1 });
    let finding = Finding::note("time-out-cluster", message).value(max, unit).rows(rows);
    found.push(finding.column(&column.name).table(&table.name));
}

fn rows_between(table: &Table, column: &Column, cluster: Cluster) -> Vec<u64> {
    let inside = |value: f64| value >= cluster.low && value <= cluster.high;
    let rows = column.values.iter().enumerate().filter(|(_, value)| inside(**value));
    rows.map(|(index, _)| table.row_number(index)).take(crate::MAX_LISTED_ROWS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Content;

    fn findings(values: &[f64]) -> Vec<(&'static str, Option<f64>)> {
        let mut column = Column::new("latency", Role::Latency, Content::Number, Some(Unit::Millis));
        column.totals.add(1, values, &vec![0; values.len()]);
        column.values = values.to_vec();
        let mut table = Table { rows: values.len() as u64, blocks: vec![1], ..Table::default() };
        table.columns.push(column);
        let mut found = Found::default();
        check(&table, &mut found);
        found.findings.iter().map(|finding| (finding.code, finding.value)).collect()
    }

    #[test]
    fn clusters_at_multiples_of_a_timeout_are_named() {
        let values =
            [1024., 979., 972., 978., 980., 1024., 2000., 2002., 2004., 1023., 977., 981., 2001.];
        let found = findings(&values);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|(code, _)| *code == "time-out-cluster"));
        assert_eq!(found[1].1, Some(2_001.75));
    }

    #[test]
    fn retransmissions_after_usual_delays_are_clusters() {
        let mut values: Vec<f64> = (0..60).map(|i| 10.0 + f64::from(i * 7 % 23)).collect();
        values.extend([212.0, 215.0, 219.0, 221.0]);
        assert_eq!(findings(&values).len(), 1);
        let mut odd: Vec<f64> = (0..60).map(|i| 10.0 + f64::from(i * 7 % 23)).collect();
        odd.extend([671.0, 673.0, 675.0, 676.0]);
        assert_eq!(findings(&odd)[0].0, "detached-cluster");
    }

    #[test]
    fn scattered_outliers_and_one_mode_are_no_clusters() {
        let mut values: Vec<f64> = (0..60).map(|i| 100.0 + f64::from(i * 7 % 23)).collect();
        assert_eq!(findings(&values), []);
        values.extend([160.0, 240.0, 390.0, 610.0]);
        assert_eq!(findings(&values), []);
    }

    #[test]
    fn values_cut_off_at_a_maximum_are_found() {
        let mut values: Vec<f64> = (0..80).map(|i| 300.0 + f64::from(i * 7 % 80)).collect();
        values.extend([400.0; 12]);
        assert_eq!(findings(&values), [("time-out-cluster", Some(400.0))]);
    }
}
