//! Accuracy verdicts as text: which networks a node can measure with each engine.

use std::collections::{BTreeMap, BTreeSet};

use dwell_units::{BitRate, Bytes};

use super::LargestRate;

/// Largest rate of one engine in one cell: one per engine, packet size and number of cross flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineRate<'a> {
    /// Send engine.
    pub engine: &'a str,
    /// IP packet size.
    pub ip_size: Bytes,
    /// Cross-traffic flows sent by the same node.
    pub flows: u32,
    /// Largest accurate rate.
    pub largest: LargestRate,
}

/// Returns the verdict as lines: the best engine, then every engine in table order.
pub fn verdict_lines(table: &[EngineRate]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for engine in best_engines(table) {
        let description = sentence(table, engine);
        match groups.iter_mut().find(|(of, _)| *of == description) {
            Some((_, engines)) => engines.push(engine),
            None => groups.push((description, vec![engine])),
        }
    }
    let best = match &groups[..] {
        [] => "no engine is known to keep any of the tested rates".to_owned(),
        [(description, engines)] => match engines[..] {
            [one] => format!("best is {one}: {description}"),
            _ => format!("best are {}, alike: {description}", listed(engines)),
        },
        // Equal in total, but with different packets.
        _ => {
            let each = groups
                .iter()
                .map(|(description, engines)| format!("{} ({description})", listed(engines)));
            format!("equally good overall: {}", listed(&each.collect::<Vec<_>>()))
        }
    };
    let mut seen = BTreeSet::new();
    let engines = table.iter().map(|row| row.engine).filter(|engine| seen.insert(*engine));
    let each = engines.map(|engine| format!("{engine}: {}", sentence(table, engine)));
    std::iter::once(best).chain(each).collect()
}

/// Formats names as "a, b and c".
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &names[..] {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => names.concat(),
    }
}

/// Describes what one engine measures, without and with the most cross traffic, like "measures 100
/// Mbit/s networks with packets of 576 B or more; 10 Mbit/s with 200 B; under 25 cross flows 50
/// Mbit/s".
pub fn sentence(table: &[EngineRate], engine: &str) -> String {
    described(
        table,
        engine,
        &Words { verb: "measures ", networks: " networks", packets: "packets of " },
    )
}

/// As [`sentence`], in the short form of a device card: "measures up to 100 Mbit/s with 576 B or
/// more; 10 Mbit/s with 200 B; under 25 cross flows 50 Mbit/s".
pub fn card_sentence(table: &[EngineRate], engine: &str) -> String {
    described(table, engine, &Words { verb: "measures up to ", networks: "", packets: "" })
}

/// Words around the first rate and the first size of a sentence.
struct Words {
    verb: &'static str,
    networks: &'static str,
    packets: &'static str,
}

fn described(table: &[EngineRate], engine: &str, words: &Words) -> String {
    let mut levels: BTreeMap<u32, BTreeMap<Bytes, LargestRate>> = BTreeMap::new();
    for row in table.iter().filter(|row| row.engine == engine) {
        levels.entry(row.flows).or_default().insert(row.ip_size, row.largest);
    }
    let Some((&min_flows, idle)) = levels.first_key_value() else { return "not measured".into() };
    let mut clauses = clauses(idle, words.networks, words.packets);
    if idle.values().any(|largest| largest.rate().is_some()) {
        clauses[0].insert_str(0, words.verb);
    }
    if min_flows > 0 {
        clauses[0].insert_str(0, &format!("under {min_flows} cross flows "));
    }
    let (&max_flows, loaded) = levels.last_key_value().unwrap_or((&min_flows, idle));
    if max_flows > min_flows {
        clauses.push(match under(loaded, idle, words.packets) {
            Some(change) => format!("under {max_flows} cross flows {change}"),
            None => format!("the same under {max_flows} cross flows"),
        });
    }
    clauses.join("; ")
}

/// Returns the engines with the highest score, in table order. The score sums log2 of the largest
/// rate over all sizes and numbers of flows, so doubling a rate counts the same at any rate. A cell
/// without a rate adds nothing. Empty if no engine has a rate.
pub fn best_engines<'a>(table: &[EngineRate<'a>]) -> Vec<&'a str> {
    let mut scores: Vec<(&str, f64)> = Vec::new();
    for row in table {
        let score = row.largest.rate().map_or(0.0, |rate| (rate.0.max(1) as f64).log2());
        match scores.iter_mut().find(|(engine, _)| *engine == row.engine) {
            Some((_, sum)) => *sum += score,
            None => scores.push((row.engine, score)),
        }
    }
    // Summation order changes the last digits.
    const SCORE_TOLERANCE: f64 = 1e-6;
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let is_best = |(_, score): &(&str, f64)| best > 0.0 && *score > best - SCORE_TOLERANCE;
    scores.into_iter().filter(is_best).map(|(engine, _)| engine).collect()
}

/// Describes the change under load; `None` if nothing changes.
fn under(
    loaded: &BTreeMap<Bytes, LargestRate>,
    idle: &BTreeMap<Bytes, LargestRate>,
    packets: &str,
) -> Option<String> {
    let runs = runs(loaded);
    match runs[..] {
        _ if loaded == idle => None,
        [(largest, _)] if loaded.keys().eq(idle.keys()) => Some(rate_text(largest, "")),
        _ => Some(clauses(loaded, "", packets).join(" and ")),
    }
}

/// One clause per run of sizes, the largest rate first; the first clause names the units.
fn clauses(by_size: &BTreeMap<Bytes, LargestRate>, networks: &str, packets: &str) -> Vec<String> {
    let mut runs = runs(by_size);
    let rank = |largest: LargestRate| (largest.rate(), largest == LargestRate::NoneTried);
    // A stable sort: larger packets come first among equal rates.
    runs.reverse();
    runs.sort_by_key(|(largest, _)| std::cmp::Reverse(rank(*largest)));
    let clause = |(n, (largest, sizes)): (usize, (LargestRate, String))| {
        let (networks, packets) = if n == 0 { (networks, packets) } else { ("", "") };
        format!("{} with {packets}{sizes}", rate_text(largest, networks))
    };
    runs.into_iter().enumerate().map(clause).collect()
}

/// Groups neighbouring sizes with the same result, smallest first, with a label for each group.
fn runs(by_size: &BTreeMap<Bytes, LargestRate>) -> Vec<(LargestRate, String)> {
    let all: Vec<(Bytes, LargestRate)> =
        by_size.iter().map(|(size, rate)| (*size, *rate)).collect();
    let last = all.last().map(|(size, _)| *size);
    let groups = all.chunk_by(|a, b| a.1 == b.1);
    let named = groups.map(|run| {
        let (from, to) = (run[0].0, run[run.len() - 1].0);
        let sizes = match run.len() {
            1 => format!("{} B", from.0),
            _ if Some(to) == last => format!("{} B or more", from.0),
            _ => format!("{} to {} B", from.0, to.0),
        };
        (run[0].1, sizes)
    });
    named.collect()
}

/// Formats a largest rate; `networks` follows a rate.
fn rate_text(largest: LargestRate, networks: &str) -> String {
    match largest {
        LargestRate::Rate { rate, undecided: None } => format!("{}{networks}", spaced(rate)),
        LargestRate::Rate { rate, undecided: Some(next) } => {
            format!("{}{networks} ({} undecided)", spaced(rate), spaced(next))
        }
        LargestRate::NoneTried => "none of the tested rates".into(),
        LargestRate::CannotTell => "cannot tell".into(),
    }
}

/// Formats a rate with a space before its unit.
fn spaced(rate: BitRate) -> String {
    let text = rate.to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: LargestRate = LargestRate::NoneTried;
    const UNKNOWN: LargestRate = LargestRate::CannotTell;

    fn mbit(rate: u64) -> LargestRate {
        LargestRate::Rate { rate: BitRate(rate * 1_000_000), undecided: None }
    }

    fn rows<'a>(
        engine: &'a str,
        flows: u32,
        by_size: &[(u64, LargestRate)],
    ) -> Vec<EngineRate<'a>> {
        let row = |&(size, largest)| EngineRate { engine, ip_size: Bytes(size), flows, largest };
        by_size.iter().map(row).collect()
    }

    /// Sizes 200, 576 and 1500, without and with 25 flows.
    fn description(idle: [LargestRate; 3], loaded: [LargestRate; 3]) -> String {
        let by_size =
            |of: [LargestRate; 3]| [200, 576, 1_500].into_iter().zip(of).collect::<Vec<_>>();
        let mut table = rows("spin", 0, &by_size(idle));
        table.extend(rows("spin", 5, &by_size(loaded)));
        table.extend(rows("spin", 25, &by_size(loaded)));
        sentence(&table, "spin")
    }

    #[test]
    fn verdict_reads_as_in_mok_2015() {
        assert_eq!(
            description([mbit(10), mbit(100), mbit(100)], [mbit(50); 3]),
            "measures 100 Mbit/s networks with packets of 576 B or more; 10 Mbit/s with 200 B; \
             under 25 cross flows 50 Mbit/s"
        );
        assert_eq!(
            description([mbit(1_000); 3], [mbit(1_000); 3]),
            "measures 1 Gbit/s networks with packets of 200 B or more; the same under 25 cross flows"
        );
        assert_eq!(
            description([mbit(10), mbit(10), mbit(100)], [mbit(5), mbit(5), mbit(50)]),
            "measures 100 Mbit/s networks with packets of 1500 B; 10 Mbit/s with 200 to 576 B; \
             under 25 cross flows 50 Mbit/s with packets of 1500 B and 5 Mbit/s with 200 to 576 B"
        );
    }

    #[test]
    fn undecided_and_failed_rates_are_stated() {
        assert_eq!(
            description([NONE, UNKNOWN, mbit(5)], [UNKNOWN; 3]),
            "measures 5 Mbit/s networks with packets of 1500 B; none of the tested rates with 200 B; \
             cannot tell with 576 B; under 25 cross flows cannot tell"
        );
        assert_eq!(
            description([NONE; 3], [NONE; 3]),
            "none of the tested rates with packets of 200 B or more; the same under 25 cross flows"
        );
        assert_eq!(
            description([UNKNOWN; 3], [NONE; 3]),
            "cannot tell with packets of 200 B or more; under 25 cross flows none of the tested rates"
        );
        let open =
            LargestRate::Rate { rate: BitRate(5_000_000), undecided: Some(BitRate(10_000_000)) };
        assert_eq!(
            description([open; 3], [mbit(1); 3]),
            "measures 5 Mbit/s networks (10 Mbit/s undecided) with packets of 200 B or more; \
             under 25 cross flows 1 Mbit/s"
        );
    }

    #[test]
    fn card_states_rates_up_to_which_a_device_measures() {
        let mut table = rows("spin", 0, &[(200, mbit(10)), (576, mbit(100)), (1_500, mbit(100))]);
        assert_eq!(
            card_sentence(&table, "spin"),
            "measures up to 100 Mbit/s with 576 B or more; 10 Mbit/s with 200 B"
        );
        table.extend(rows("spin", 25, &[(200, mbit(5)), (576, mbit(50)), (1_500, mbit(50))]));
        assert_eq!(
            card_sentence(&table, "spin"),
            "measures up to 100 Mbit/s with 576 B or more; 10 Mbit/s with 200 B; \
             under 25 cross flows 50 Mbit/s with 576 B or more and 5 Mbit/s with 200 B"
        );
        let none = rows("spin", 0, &[(200, NONE), (1_500, NONE)]);
        assert_eq!(card_sentence(&none, "spin"), "none of the tested rates with 200 B or more");
    }

    #[test]
    fn larger_packet_may_have_a_lower_rate() {
        assert_eq!(
            description([mbit(50), mbit(50), mbit(10)], [mbit(50), mbit(50), NONE]),
            "measures 50 Mbit/s networks with packets of 200 to 576 B; 10 Mbit/s with 1500 B; \
             under 25 cross flows 50 Mbit/s with packets of 200 to 576 B and none of the tested rates \
             with 1500 B"
        );
    }

    #[test]
    fn sizes_untested_under_load_are_not_claimed() {
        let mut table = rows("spin", 0, &[(200, mbit(10)), (1_500, mbit(10))]);
        table.extend(rows("spin", 25, &[(1_500, mbit(5))]));
        assert_eq!(
            sentence(&table, "spin"),
            "measures 10 Mbit/s networks with packets of 200 B or more; under 25 cross flows 5 Mbit/s \
             with packets of 1500 B"
        );
        let loaded = rows("spin", 5, &[(200, mbit(10))]);
        assert_eq!(
            sentence(&loaded, "spin"),
            "under 5 cross flows measures 10 Mbit/s networks with packets of 200 B"
        );
        assert_eq!(sentence(&loaded, "xsk"), "not measured");
    }

    #[test]
    fn best_engine_has_the_highest_total_score() {
        let mut table = rows("sleep", 0, &[(200, mbit(1)), (1_500, mbit(10))]);
        table.extend(rows("spin", 0, &[(200, mbit(10)), (1_500, mbit(100))]));
        table.extend(rows("xsk", 0, &[(200, UNKNOWN), (1_500, mbit(1_000))]));
        assert_eq!(best_engines(&table), ["spin"]);
        assert_eq!(
            verdict_lines(&table),
            [
                "best is spin: measures 100 Mbit/s networks with packets of 1500 B; 10 Mbit/s with 200 B",
                "sleep: measures 10 Mbit/s networks with packets of 1500 B; 1 Mbit/s with 200 B",
                "spin: measures 100 Mbit/s networks with packets of 1500 B; 10 Mbit/s with 200 B",
                "xsk: measures 1 Gbit/s networks with packets of 1500 B; cannot tell with 200 B",
            ]
        );
    }

    #[test]
    fn equal_engines_are_all_best_and_none_without_rates() {
        let mut table = rows("spin", 0, &[(200, mbit(10)), (1_500, mbit(100))]);
        table.extend(rows("uring", 0, &[(1_500, mbit(100)), (200, mbit(10))]));
        table.extend(rows("sleep", 0, &[(200, mbit(1)), (1_500, mbit(100))]));
        assert_eq!(best_engines(&table), ["spin", "uring"]);
        assert!(
            verdict_lines(&table)[0].starts_with("best are spin and uring, alike: measures 100")
        );
        let mut table = rows("spin", 0, &[(200, mbit(10)), (1_500, UNKNOWN)]);
        table.extend(rows("uring", 0, &[(200, mbit(10)), (1_500, UNKNOWN)]));
        table.extend(rows("xsk", 0, &[(200, UNKNOWN), (1_500, mbit(10))]));
        assert_eq!(
            verdict_lines(&table)[0],
            "equally good overall: spin and uring (measures 10 Mbit/s networks with packets of \
             200 B; cannot tell with 1500 B) and xsk (measures 10 Mbit/s networks with packets of \
             1500 B; cannot tell with 200 B)"
        );
        let none = rows("sleep", 0, &[(200, NONE), (1_500, UNKNOWN)]);
        assert!(best_engines(&none).is_empty());
        assert_eq!(verdict_lines(&none)[0], "no engine is known to keep any of the tested rates");
        assert_eq!(verdict_lines(&[]).len(), 1);
    }
}
