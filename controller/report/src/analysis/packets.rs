//! Example packets whose delay components a figure draws.

use std::collections::BTreeMap;

use dwell_record::Column;

use crate::analysis::condition::{Condition, Links};
use crate::model::axes::RELAY;
use crate::model::samples::SampleReader;
use crate::model::{PacketData, RunData, TrialData};

/// Metric whose components are drawn.
const WHOLE_METRIC: &str = "end_to_end_ns";

/// Maximum number of trials with example packets.
const MAX_EXAMPLES: usize = 4;

/// Returns the numbers of the trials whose packets are worth drawing: one per relay mode, all at
/// one condition; without modes, one from the middle of the run.
pub(crate) fn packets_wanted(run: &RunData) -> Vec<u32> {
    let has = |trial: &&TrialData| trial.series.contains_key(WHOLE_METRIC);
    let trials: Vec<&TrialData> = run.finished_trials().filter(has).collect();
    let modes = run.modes();
    if modes.is_empty() {
        return trials.get(trials.len() / 2).map(|trial| trial.trial).into_iter().collect();
    }
    let condition = Condition::of(run, WHOLE_METRIC, Links::Rated);
    let of = |mode: &String| {
        let fits = |trial: &&&TrialData| condition.holds(trial) && trial.is_at(RELAY, mode);
        trials.iter().find(fits).map(|trial| trial.trial)
    };
    modes.iter().filter_map(of).take(MAX_EXAMPLES).collect()
}

/// Packets of a trial with the median, the 99th-percentile and the largest delay.
pub(crate) fn typical_packets<R: SampleReader>(
    trial: u32,
    reader: &R,
) -> Result<Vec<PacketData>, R::Error> {
    let mut wanted = vec![Column::EndToEnd];
    wanted.extend(Column::DELAY_COMPONENTS);
    // All packets with a complete set of parts.
    let mut packets: Vec<PacketData> = Vec::new();
    reader.samples(trial, &wanted, &mut |batch| {
        for row in 0..batch.len() {
            let Some(end_to_end_ns) = batch.number(row, Column::EndToEnd) else { continue };
            let has =
                |column: &Column| Some((column.name().to_owned(), batch.number(row, *column)?));
            let all: BTreeMap<String, i64> =
                Column::DELAY_COMPONENTS.iter().filter_map(has).collect();
            let parts = summing(all, end_to_end_ns);
            packets.extend(parts.map(|parts| PacketData {
                trial,
                which: String::new(),
                id: batch.id[row],
                parts,
                end_to_end_ns,
            }));
        }
    })?;
    packets.sort_by_key(|packet| packet.end_to_end_ns);
    let Some(last) = packets.len().checked_sub(1) else { return Ok(Vec::new()) };
    let mut picked = vec![("median", last / 2)];
    if packets.len() >= 100 {
        picked.push(("p99", (packets.len() * 99).div_ceil(100) - 1));
    }
    picked.push(("slowest", last));
    picked.dedup_by_key(|(_, at)| *at);
    let of =
        |(which, at): (&str, usize)| PacketData { which: which.to_owned(), ..packets[at].clone() };
    Ok(picked.into_iter().map(of).collect())
}

/// Returns the parts from one source that sum to the whole; `None` if timestamps are missing.
fn summing(all: BTreeMap<String, i64>, whole: i64) -> Option<BTreeMap<String, i64>> {
    let outside = ["sender_out_ns", "link_in_ns", "link_out_ns", "receiver_in_ns"];
    let program = ["queueing_in_ns", "processing_ns", "queueing_out_ns", "qdisc_ns"];
    let sources: [&[&str]; 3] = [&program, &["node_delay_driver_ns"], &["node_delay_netfilter_ns"]];
    let direct: &[&str] = &["sender_out_ns", "link_delay_ns", "receiver_in_ns"];
    let combinations = sources.iter().map(|source| [&outside[..], source].concat());
    combinations.chain([direct.to_vec()]).find_map(|names| {
        let parts: Option<BTreeMap<String, i64>> =
            names.into_iter().map(|name| Some((name.to_owned(), *all.get(name)?))).collect();
        parts.filter(|parts| parts.values().sum::<i64>() == whole)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
        all.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect()
    }

    #[test]
    fn drawn_parts_sum_to_the_end_to_end_delay() {
        let ends =
            [("sender_out_ns", 1), ("link_in_ns", 2), ("link_out_ns", 3), ("receiver_in_ns", 4)];
        let program =
            [("queueing_in_ns", 5), ("processing_ns", 6), ("queueing_out_ns", 7), ("qdisc_ns", 8)];
        let hooks = [("node_delay_netfilter_ns", 17), ("link_delay_ns", 5)];
        let relayed = parts(&[&ends[..], &program, &hooks].concat());
        assert_eq!(summing(relayed.clone(), 36).unwrap().len(), 8);
        let routed = summing(parts(&[&ends[..], &hooks].concat()), 27).unwrap();
        assert_eq!(routed["node_delay_netfilter_ns"], 17);
        assert!(!routed.contains_key("link_delay_ns"), "the links are listed separately");
        assert_eq!(summing(relayed, 35), None, "a packet without a stamp is not picked");
        let direct = parts(&[("sender_out_ns", 1), ("link_delay_ns", 5), ("receiver_in_ns", 4)]);
        assert_eq!(summing(direct.clone(), 10), Some(direct));
    }
}
