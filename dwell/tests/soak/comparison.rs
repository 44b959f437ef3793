//! Compares the records that nodes wrote with the rows of a hub's database.

use std::collections::BTreeMap;

use dwell_rollup::{
    Body, Identity, Incarnation, Level, Name, ProbeCounts, RangeSet, Record, Stream,
};

const SECOND_NS: i64 = 1_000_000_000;

/// Maximum difference of the times of a record and its row: the hub may date a record by another pairing
/// of the node's clocks.
const MAX_TIME_DIFFERENCE_NS: u64 = 1_000_000_000;

/// A record or a row of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    /// Measured time in nanoseconds since 1970.
    pub(crate) start_ns: i64,
    pub(crate) content: Content,
}

/// What a record and its row both state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Rollup { level: Level, stream: Stream, schedule_version: u64, figures: Figures },
    Status,
}

/// Figures that add up over intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) duration_ns: u64,
    pub(crate) counts: ProbeCounts,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.counts.add(&other.counts);
    }
}

/// Interval that a hub computes: level, sender, stream and start in nanoseconds since 1970.
pub(crate) type Interval = (Level, Name, Stream, i64);

/// Sequence numbers by node and incarnation.
pub(crate) type Sequences = BTreeMap<(Name, Incarnation), RangeSet>;

/// What a database has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// Rows of records, in any order.
    pub(crate) entries: Vec<Entry>,
    /// Rows of 1 h and 1 day.
    pub(crate) computed: Vec<(Interval, Figures)>,
    pub(crate) receipts: Sequences,
}

impl Entry {
    /// Returns what a row of a record states.
    pub(crate) fn of(record: &Record) -> Self {
        let (start_ns, _) = record.body.measured_at(record);
        let content = match &record.body {
            Body::Rollup(rollup) => Content::Rollup {
                level: rollup.level,
                stream: rollup.stream.clone(),
                schedule_version: rollup.schedule_version,
                figures: Figures { duration_ns: rollup.duration_ns, counts: rollup.counts },
            },
            Body::Status(_) => Content::Status,
            Body::Samples(_) => panic!("samples of {} are at a hub's level", record.identity),
        };
        Self { identity: record.identity.clone(), start_ns, content }
    }
}

/// Sequence numbers of records.
pub(crate) fn sequences(entries: &[Entry]) -> Sequences {
    let mut sequences = Sequences::new();
    for Entry { identity, .. } in entries {
        let key = (identity.node.clone(), identity.incarnation);
        sequences.entry(key).or_default().insert(identity.sequence);
    }
    sequences
}

/// Whether all numbers of one set are in another.
pub(crate) fn is_subset(set: &RangeSet, of: &RangeSet) -> bool {
    set.ranges().all(|range| of.contains_range(range))
}

/// Returns a line per difference between the records that were written and what a database has: missing,
/// doubled, changed and unknown rows, sums of 1 h and 1 day that are not those of the records of 5 min,
/// and receipts.
pub(crate) fn differences(written: &[Entry], stored: &Stored) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rows: BTreeMap<&Identity, Vec<&Entry>> = BTreeMap::new();
    for entry in &stored.entries {
        rows.entry(&entry.identity).or_default().push(entry);
    }
    for entry in written {
        let of_record = rows.remove(&entry.identity).unwrap_or_default();
        match of_record[..] {
            [] => lines.push(format!("record {} is missing: {entry:?}", entry.identity)),
            [row] if is_same(row, entry) => {}
            [row] => lines.push(format!(
                "record {} is stored as {row:?} instead of {entry:?}",
                entry.identity
            )),
            _ => lines.push(format!(
                "record {} is stored {} times: {of_record:?}",
                entry.identity,
                of_record.len()
            )),
        }
    }
    let unknown = rows.keys().map(|identity| format!("row {identity} is of no record"));
    lines.extend(unknown);
    lines.extend(differences_of_sums(written, &stored.computed));
    lines.extend(differences_of_receipts(&sequences(written), &stored.receipts));
    lines
}

fn is_same(row: &Entry, record: &Entry) -> bool {
    row.content == record.content
        && row.start_ns.abs_diff(record.start_ns) <= MAX_TIME_DIFFERENCE_NS
}

/// Compares rows of 1 h and 1 day with sums of records of 5 min, which count where their middle is.
fn differences_of_sums(written: &[Entry], computed: &[(Interval, Figures)]) -> Vec<String> {
    let mut sums: BTreeMap<Interval, Figures> = BTreeMap::new();
    for entry in written {
        let Content::Rollup { level: Level::FiveMinutes, stream, figures, .. } = &entry.content
        else {
            continue;
        };
        let middle_ns = entry.start_ns + 150 * SECOND_NS;
        for (level, length_ns) in
            [(Level::Hour, 3_600 * SECOND_NS), (Level::Day, 86_400 * SECOND_NS)]
        {
            let start_ns = middle_ns.div_euclid(length_ns) * length_ns;
            let interval = (level, entry.identity.node.clone(), stream.clone(), start_ns);
            sums.entry(interval).or_default().add(figures);
        }
    }
    let mut lines = Vec::new();
    for (interval, figures) in computed {
        match sums.remove(interval) {
            Some(sum) if sum == *figures => {}
            Some(sum) => lines.push(format!("{interval:?} has {figures:?} instead of {sum:?}")),
            None => lines.push(format!("{interval:?} is doubled or of no record")),
        }
    }
    lines.extend(sums.keys().map(|interval| format!("{interval:?} is missing")));
    lines
}

fn differences_of_receipts(written: &Sequences, receipts: &Sequences) -> Vec<String> {
    let empty = RangeSet::new();
    let keys = written.keys().chain(receipts.keys().filter(|key| !written.contains_key(key)));
    let differing = keys.filter_map(|key| {
        let (numbers, receipted) =
            (written.get(key).unwrap_or(&empty), receipts.get(key).unwrap_or(&empty));
        let (node, incarnation) = key;
        (numbers != receipted)
            .then(|| format!("{node}/{incarnation}: receipts {receipted} of records {numbers}"))
    });
    differing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: i64 = 20_000 * 86_400 * SECOND_NS;

    fn entry(sequence: u64, level: Level, probes: u64) -> Entry {
        let name = |name: &str| name.parse::<Name>().unwrap();
        let stream =
            Stream { reflector: name("b"), protocol: name("stamp"), entry: name("mesh+b") };
        let counts = ProbeCounts { sent: probes, received: probes, ..ProbeCounts::default() };
        let duration_ns = level.interval().unwrap().0 as u64;
        let figures = Figures { duration_ns, counts };
        Entry {
            identity: Identity { node: name("a"), incarnation: Incarnation(3), sequence },
            start_ns: START_NS + 300 * SECOND_NS * sequence as i64,
            content: Content::Rollup { level, stream, schedule_version: 1, figures },
        }
    }

    /// Three records of 5 min and one of 10 s, and a database that has them.
    fn stored() -> (Vec<Entry>, Stored) {
        let mut written: Vec<_> =
            (1..=3).map(|sequence| entry(sequence, Level::FiveMinutes, 300)).collect();
        let Content::Rollup { stream, .. } = written[0].content.clone() else { unreachable!() };
        let counts = ProbeCounts { sent: 900, received: 900, ..ProbeCounts::default() };
        let figures = Figures { duration_ns: 900 * SECOND_NS as u64, counts };
        let computed = [Level::Hour, Level::Day]
            .map(|level| ((level, "a".parse().unwrap(), stream.clone(), START_NS), figures));
        written.push(entry(4, Level::TenSeconds, 10));
        let mut entries = written.clone();
        entries.reverse();
        let receipts = sequences(&written);
        (written, Stored { entries, computed: computed.to_vec(), receipts })
    }

    /// The only difference.
    fn difference(change: impl FnOnce(&mut Stored)) -> String {
        let (written, mut stored) = stored();
        change(&mut stored);
        let lines = differences(&written, &stored);
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        line.clone()
    }

    #[test]
    fn equal_records_have_no_difference() {
        let (written, mut stored) = stored();
        assert_eq!(differences(&written, &stored), [""; 0]);
        stored.entries[0].start_ns += 3;
        assert_eq!(differences(&written, &stored), [""; 0], "another clock pairing");
    }

    #[test]
    fn missing_record_is_found() {
        let line = difference(|stored| drop(stored.entries.remove(0)));
        assert!(line.starts_with("record a/0000000000000003/4 is missing"), "{line}");
    }

    #[test]
    fn doubled_record_is_found() {
        let line = difference(|stored| {
            let mut again = stored.entries[1].clone();
            again.start_ns += 1;
            stored.entries.push(again);
        });
        assert!(line.starts_with("record a/0000000000000003/3 is stored 2 times"), "{line}");
    }

    #[test]
    fn changed_count_is_found() {
        let line = difference(|stored| {
            let Content::Rollup { figures, .. } = &mut stored.entries[0].content else {
                unreachable!()
            };
            figures.counts.lost += 1;
        });
        assert!(line.contains("/4 is stored as"), "{line}");
        let line = difference(|stored| stored.entries[0].start_ns += 10 * SECOND_NS);
        assert!(line.contains("/4 is stored as"), "{line}");
    }

    #[test]
    fn unknown_row_is_found() {
        let line = difference(|stored| stored.entries.push(entry(9, Level::TenSeconds, 1)));
        assert_eq!(line, "row a/0000000000000003/9 is of no record");
    }

    #[test]
    fn wrong_sum_of_an_hour_is_found() {
        let line = difference(|stored| {
            let ((_, figures), once) = (&mut stored.computed[0], entry(1, Level::FiveMinutes, 300));
            let Content::Rollup { figures: more, .. } = once.content else { unreachable!() };
            figures.add(&more);
        });
        assert!(line.starts_with("(Hour,") && line.contains("instead of"), "{line}");
        let line = difference(|stored| drop(stored.computed.remove(1)));
        assert!(line.starts_with("(Day,") && line.ends_with("is missing"), "{line}");
        let line = difference(|stored| stored.computed.push(stored.computed[1].clone()));
        assert!(line.ends_with("is doubled or of no record"), "{line}");
    }

    #[test]
    fn wrong_receipts_are_found() {
        let of = |numbers: &str| {
            let numbers = numbers.parse().unwrap();
            difference(|stored| *stored.receipts.values_mut().next().unwrap() = numbers)
        };
        assert_eq!(of("1-2,4"), "a/0000000000000003: receipts 1-2,4 of records 1-4");
        assert_eq!(of("1-5"), "a/0000000000000003: receipts 1-5 of records 1-4");
        let line = difference(|stored| {
            let key = ("a".parse().unwrap(), Incarnation(4));
            stored.receipts.insert(key, "1".parse().unwrap());
        });
        assert_eq!(line, "a/0000000000000004: receipts 1 of records ");
    }
}
