//! Cost of a schedule for each node, before it is applied.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::Name;

use super::error::ScheduleError;
use super::expand::{Entry, Expansion};
use super::file::Limits;
use super::window::Window;

/// Cost of a schedule for one node. Replies count as long as probes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeCost {
    /// Number of streams that the node sends.
    pub streams: u64,
    /// Number of streams that the node reflects.
    pub reflected_streams: u64,
    /// Maximum number of packets per second that the node sends, probes and replies.
    pub packets_per_second: f64,
    /// Bytes of IP packets that the node sends per day, probes and replies. It receives as many.
    pub bytes_per_day: u64,
}

/// Returns the cost for each node.
///
/// # Errors
/// A node exceeds a limit.
pub fn costs(
    expansion: &Expansion,
    limits: &Limits,
) -> Result<BTreeMap<Name, NodeCost>, ScheduleError> {
    let mut streams: BTreeMap<&Name, Vec<&Entry>> = BTreeMap::new();
    let mut costs: BTreeMap<Name, NodeCost> = BTreeMap::new();
    for (node, entries) in &expansion.nodes {
        costs.entry(node.clone()).or_default().streams += entries.len() as u64;
        for entry in entries {
            // The reflector sends as many replies.
            streams.entry(node).or_default().push(entry);
            streams.entry(&entry.reflector).or_default().push(entry);
            costs.entry(entry.reflector.clone()).or_default().reflected_streams += 1;
        }
    }
    for (node, cost) in &mut costs {
        let streams = streams.get(node).map(Vec::as_slice).unwrap_or_default();
        cost.packets_per_second = peak_rate(streams);
        let bytes: f64 = streams.iter().map(|entry| bytes_per_day(entry)).sum();
        cost.bytes_per_day = bytes as u64;
        refuse_excess(node, cost, limits)?;
    }
    Ok(costs)
}

/// Largest sum of rates at any time of the day.
fn peak_rate(streams: &[&Entry]) -> f64 {
    let starts = streams.iter().filter_map(|entry| Some(entry.window?.start_s));
    let starts: BTreeSet<u32> = starts.chain([0]).collect();
    let rate_at = |second: u32| {
        let is_active = |window: Option<Window>| window.is_none_or(|it| it.contains(second));
        let active = streams.iter().filter(|entry| is_active(entry.window));
        active.map(|entry| entry.packets_per_second()).sum::<f64>()
    };
    starts.into_iter().map(rate_at).fold(0.0, f64::max)
}

fn bytes_per_day(entry: &Entry) -> f64 {
    entry.packets_per_second() * f64::from(entry.seconds_per_day()) * entry.ip_bytes as f64
}

fn refuse_excess(node: &Name, cost: &NodeCost, limits: &Limits) -> Result<(), ScheduleError> {
    if let Some(limit) = limits.packets_per_second
        && cost.packets_per_second > limit
    {
        return Err(ScheduleError::value(
            format!("node {node}"),
            format!(
                "it would send {:.1} packets/s, more than limits.packets_per_second = {limit}; use \
                 longer intervals or fewer pairs",
                cost.packets_per_second
            ),
        ));
    }
    if let Some(limit) = limits.bytes_per_day
        && cost.bytes_per_day > limit.0
    {
        return Err(ScheduleError::value(
            format!("node {node}"),
            format!(
                "it would send {} bytes per day, more than limits.bytes_per_day = {limit}; use longer \
                 intervals, smaller probes or fewer pairs",
                cost.bytes_per_day
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dwell_units::Bytes;

    use super::*;
    use crate::schedule::{Schedule, expand};

    fn cost_of(measures: &str) -> Result<BTreeMap<Name, NodeCost>, ScheduleError> {
        let schedule = Schedule::parse(&format!("version = 1\n{measures}"))?;
        let address = |number: u8| Some([192, 0, 2, number].into());
        let known = [("a", 1), ("b", 2), ("c", 3)];
        let known = known.map(|(name, number)| (name.parse().unwrap(), address(number)));
        costs(&expand(&schedule, &known.into())?, &schedule.limits)
    }

    #[test]
    fn node_pays_for_probes_and_replies() {
        let mesh =
            "[[measure]]\nname = \"m\"\nmesh = \"all\"\ninterval = \"100ms\"\nsize = \"72B\"\n";
        let cost = cost_of(mesh).unwrap()[&"a".parse().unwrap()];
        assert_eq!((cost.streams, cost.reflected_streams), (2, 2));
        assert_eq!(cost.packets_per_second, 40.0);
        assert_eq!(cost.bytes_per_day, 40 * 100 * 86_400);
    }

    #[test]
    fn windows_that_do_not_overlap_do_not_add_up() {
        let pair = |name: &str, window: &str| {
            format!(
                "[[measure]]\nname = \"{name}\"\npairs = [\"a:b\"]\nrate = \"10pps\"\nsize = \"72B\"\n\
                 window = \"{window}\"\n"
            )
        };
        let apart = pair("day", "08:00-20:00") + &pair("night", "20:00-08:00");
        let cost = cost_of(&apart).unwrap()[&"a".parse().unwrap()];
        assert_eq!((cost.packets_per_second, cost.bytes_per_day), (10.0, 1_000 * 86_400));
        let together = pair("day", "08:00-20:00") + &pair("night", "19:59-08:00");
        assert_eq!(cost_of(&together).unwrap()[&"a".parse().unwrap()].packets_per_second, 20.0);
    }

    #[test]
    fn schedule_beyond_a_limit_is_refused() {
        let mesh = "[[measure]]\nname = \"m\"\nmesh = \"all\"\nrate = \"10pps\"\nsize = \"72B\"\n";
        let limited = |limit: &str| cost_of(&format!("[limits]\n{limit}\n{mesh}"));
        assert!(limited("packets_per_second = 40").is_ok());
        let error = limited("packets_per_second = 39.9").unwrap_err().to_string();
        assert!(error.contains("node a: it would send 40.0 packets/s"), "{error}");
        let bytes = 40 * 100 * 86_400;
        assert!(limited(&format!("bytes_per_day = \"{}\"", Bytes(bytes))).is_ok());
        assert!(limited(&format!("bytes_per_day = \"{}\"", Bytes(bytes - 1))).is_err());
    }
}
