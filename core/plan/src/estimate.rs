//! What a plan will cost, before any of it is run.

use dwell_units::Nanos;

use crate::error::PlanError;
use crate::expand::Expansion;
use crate::plan::{PingPlan, Plan};
use crate::relaying::FlowPlan;

/// Beside the measuring, a trial takes about this long: warm-up, starting and stopping.
const AROUND: Nanos = Nanos::from_millis(150);

/// What some trials cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// How long they take.
    pub time: Nanos,
    /// Whether it may take longer: a closed loop goes as fast as replies come.
    pub at_least: bool,
    /// Probes sent, or packets of a flow; `None` where only a duration is given for a closed loop.
    pub probes: Option<u64>,
    /// Bytes of IP packets of probes and replies together; of a flow, as they leave the sender.
    pub bytes: Option<u64>,
}

impl Estimate {
    /// Of one trial of `plan`.
    pub fn of(plan: &Plan) -> Self {
        let measuring = match (&plan.ping, &plan.flow) {
            (Some(ping), _) => Self::of_ping(ping),
            (None, Some(flow)) => Self::of_flow(flow),
            (None, None) => Self::default(),
        };
        let around = AROUND.0.saturating_add(plan.trials.pause.0);
        Self { time: Nanos(measuring.time.0.saturating_add(around)), ..measuring }
    }

    fn of_flow(flow: &FlowPlan) -> Self {
        let gap = flow.packet_rate().gap().unwrap_or(Nanos::MAX).0.max(1);
        let fitting = flow.duration.map(|time| (time.0 / gap) as u64 + 1);
        let wanted = flow.count.map(|count| count.saturating_add(u64::from(flow.warm_up)));
        let packets = wanted.unwrap_or(u64::MAX).min(fitting.unwrap_or(u64::MAX));
        let sending = gap.saturating_mul(i64::try_from(packets).unwrap_or(i64::MAX));
        let sending = sending.min(flow.duration.map_or(i64::MAX, |time| time.0));
        let headers = if flow.ipv6 { 48 } else { 28 };
        Self {
            time: Nanos(sending.saturating_add(flow.settle.0)),
            at_least: false,
            probes: Some(packets),
            bytes: Some(packets.saturating_mul(flow.size.0 + headers)),
        }
    }

    fn of_ping(ping: &PingPlan) -> Self {
        let interval = match (ping.closed_loop, ping.interval()) {
            (true, interval) => interval.or(ping.pause).filter(|time| *time > Nanos::ZERO),
            (false, interval) => Some(interval.unwrap_or(Nanos::from_secs(1))),
        };
        let by_interval = |time: Nanos| interval.map(|gap| (time.0 / gap.0.max(1)) as u64 + 1);
        let probes = match (ping.count, ping.duration.and_then(by_interval)) {
            (Some(count), Some(fitting)) => Some(count.min(fitting)),
            (Some(count), None) => Some(count),
            (None, fitting) => fitting,
        };
        let by_count = ping.count.zip(interval).map(|(count, gap)| {
            Nanos(gap.0.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
        });
        let measuring = match (by_count, ping.duration) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(Nanos::ZERO),
        };
        Self {
            time: measuring,
            at_least: ping.closed_loop && ping.duration.is_none(),
            probes,
            bytes: probes.map(|probes| probes.saturating_mul(2 * ping.ip_bytes())),
        }
    }

    /// Of all trials.
    ///
    /// # Errors
    /// The values of some cell do not go together.
    pub fn of_all(expansion: &Expansion) -> Result<Self, PlanError> {
        let repetitions = expansion.plan().trials.repetitions;
        let mut all = Self { time: Nanos::ZERO, at_least: false, probes: Some(0), bytes: Some(0) };
        for cell in 0..expansion.cells().len() as u32 {
            let one = Self::of(&expansion.plan_of(cell)?);
            let times = |n: u64| n.saturating_mul(u64::from(repetitions));
            let more = one.time.0.saturating_mul(i64::from(repetitions));
            all.time = Nanos(all.time.0.saturating_add(more));
            all.at_least |= one.at_least;
            all.probes = all.probes.zip(one.probes).map(|(a, b)| a.saturating_add(times(b)));
            all.bytes = all.bytes.zip(one.bytes).map(|(a, b)| a.saturating_add(times(b)));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand;
    use crate::source::Source;

    fn estimate(ping: &str) -> Estimate {
        let text = format!(
            "version = 1\nname = \"e\"\ntopology = {{ lab = \"line:2\" }}\n\
             [ping]\nfrom = \"n1\"\nto = \"n2\"\n{ping}\n[trials]\nrepetitions = 2\n"
        );
        Estimate::of_all(&expand(&Source::parse(&text).unwrap(), 1).unwrap()).unwrap()
    }

    #[test]
    fn time_packets_and_bytes_follow_from_the_plan() {
        let open = estimate("rate = \"200pps\"\nduration = \"5s\"\nsize = \"100B\"");
        assert_eq!(open.probes, Some(2 * 1001));
        assert_eq!(open.bytes, Some(2 * 1001 * 2 * 128));
        assert_eq!((open.time, open.at_least), (Nanos::from_millis(2 * 5_150), false));
        let closed = estimate("closed_loop = true\ncount = 500");
        assert_eq!((closed.probes, closed.at_least), (Some(1_000), true));
        let unknown = estimate("closed_loop = true\nduration = \"1s\"");
        assert_eq!((unknown.probes, unknown.at_least), (None, false));
        assert_eq!(estimate("interval = \"1ms\"\ncount = 100").probes, Some(200));
    }

    #[test]
    fn a_flow_is_counted_one_way_and_takes_as_long_as_it_is_sent() {
        let text = "version = 1\nname = \"e\"\ntopology = { lab = \"line:3\" }\n\
                    [flow]\nfrom = \"n1\"\nto = \"n3\"\nsize = \"100B\"\nrate = \"200pps\"\n\
                    duration = \"5s\"\n";
        let all = Estimate::of_all(&expand(&Source::parse(text).unwrap(), 1).unwrap()).unwrap();
        assert_eq!((all.probes, all.bytes), (Some(1_001), Some(1_001 * 128)));
        assert_eq!(all.time, Nanos::from_millis(5_000 + 100 + 150));
    }
}
