//! Rows that the generators expect, and their comparison with those in the database.

use std::collections::BTreeMap;

use anyhow::Result;
use postgres::Client;
use serde::{Deserialize, Serialize};

use super::records::LONG_INTERVAL_NS;

/// Length of the rows of a resolution in nanoseconds.
pub(super) const HOUR_NS: i64 = 12 * LONG_INTERVAL_NS;
pub(super) const DAY_NS: i64 = 24 * HOUR_NS;

/// Probes by outcome, in the order of [`COLUMNS`].
pub(super) type Counts = [i64; 7];

/// Columns of the counts.
const COLUMNS: [&str; 7] =
    ["sent", "received", "lost", "late", "duplicate", "reordered", "send_failed"];

/// Counts of one stream in one interval of 5 min.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExpectedRow {
    /// Sender.
    pub(super) node: String,
    /// Reflector; an agent has one stream to each.
    pub(super) reflector: String,
    /// Start in nanoseconds since 1970.
    pub(super) start_ns: i64,
    /// Probes by outcome.
    pub(super) counts: Counts,
}

/// Rows by sender, reflector and start.
pub(super) type Rows = BTreeMap<(String, String, i64), Counts>;

/// Sums the expected rows to longer ones of this length in nanoseconds.
pub(super) fn at_length(expected: &[ExpectedRow], length_ns: i64) -> Rows {
    let mut rows = Rows::new();
    for row in expected {
        let start_ns = row.start_ns.div_euclid(length_ns) * length_ns;
        let sums = rows.entry((row.node.clone(), row.reflector.clone(), start_ns)).or_default();
        sums.iter_mut().zip(row.counts).for_each(|(sum, count)| *sum += count);
    }
    rows
}

/// Difference between the rows of a resolution and the expected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Comparison {
    /// Expected rows.
    pub(super) rows: u64,
    /// Rows with other counts, missing ones, and ones that were not expected.
    pub(super) differing: u64,
    /// The first of them.
    pub(super) first: Option<String>,
}

/// Compares stored with expected rows.
pub(super) fn compare(expected: &Rows, stored: &Rows) -> Comparison {
    let keys = expected.keys().chain(stored.keys().filter(|key| !expected.contains_key(*key)));
    let differing: Vec<_> = keys.filter(|key| expected.get(*key) != stored.get(*key)).collect();
    let first = differing.first().map(|key| {
        let (node, reflector, start_ns) = key;
        let (expected, stored) = (expected.get(*key), stored.get(*key));
        format!("{node} to {reflector} at {start_ns}: expected {expected:?}, stored {stored:?}")
    });
    Comparison { rows: expected.len() as u64, differing: differing.len() as u64, first }
}

/// Reads the rows of a resolution (`10s`, `5m`, `1h`, `1d`) as sums over intervals of this length.
pub(super) fn stored(client: &mut Client, resolution: &str, length_ns: i64) -> Result<Rows> {
    let sums = COLUMNS.map(|column| format!("sum(r.{column})::bigint")).join(", ");
    let text = format!(
        "SELECT n.name, s.reflector, r.start_ns / {length_ns} * {length_ns}, {sums} \
         FROM dwell_hub.rows_{resolution} r JOIN dwell_hub.streams s ON s.id = r.stream_id \
         JOIN dwell_hub.nodes n ON n.id = s.node_id GROUP BY 1, 2, 3"
    );
    let rows = client.query(&text, &[])?.into_iter().map(|row| {
        let counts: Counts = std::array::from_fn(|at| row.get(3 + at));
        ((row.get(0), row.get(1), row.get(2)), counts)
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(reflector: &str, start_ns: i64, sent: i64) -> ExpectedRow {
        let counts = [sent, sent - 1, 1, 0, 0, 0, 0];
        ExpectedRow { node: "a".to_owned(), reflector: reflector.to_owned(), start_ns, counts }
    }

    #[test]
    fn longer_rows_are_sums_of_their_intervals() {
        let rows = [
            row("b", 0, 10),
            row("b", HOUR_NS - LONG_INTERVAL_NS, 20),
            row("b", HOUR_NS, 40),
            row("c", 0, 80),
        ];
        let hours = at_length(&rows, HOUR_NS);
        let of = |reflector: &str, start_ns| hours[&("a".into(), reflector.into(), start_ns)];
        assert_eq!(hours.len(), 3);
        assert_eq!(of("b", 0), [30, 28, 2, 0, 0, 0, 0]);
        assert_eq!((of("b", HOUR_NS)[0], of("c", 0)[0]), (40, 80));
        assert_eq!(at_length(&rows, DAY_NS)[&("a".into(), "b".into(), 0)][0], 70);
    }

    #[test]
    fn every_difference_is_counted() {
        let rows = [row("b", 0, 10), row("c", 0, 20), row("d", 0, 30)];
        let expected = at_length(&rows, LONG_INTERVAL_NS);
        assert_eq!(compare(&expected, &expected).differing, 0);
        let mut stored = expected.clone();
        stored.get_mut(&("a".into(), "b".into(), 0)).unwrap()[2] += 1;
        stored.remove(&("a".into(), "c".into(), 0));
        stored.insert(("x".into(), "b".into(), 0), [0; 7]);
        let found = compare(&expected, &stored);
        assert_eq!((found.rows, found.differing), (3, 3));
        assert!(found.first.unwrap().contains("a to b at 0"));
    }
}
